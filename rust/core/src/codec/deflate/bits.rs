//! A bit writer, lowest bit first.

const STORED: usize = 65_535;

/// Appends bits to bytes.
pub(super) struct Bits<'a> {
    out: &'a mut Vec<u8>,
    at: usize,
    bits: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        let at = out.len();
        Self { out, at, bits: 0, count: 0 }
    }

    /// Makes room for so many bytes; more must not follow.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.out.resize(self.at + bytes + size_of::<u64>(), 0);
    }

    /// Some bits; 57 of them may wait to be flushed.
    #[inline]
    pub(super) fn add(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
    }

    /// Turns what are whole bytes into those.
    #[inline]
    pub(super) fn flush(&mut self) {
        self.out[self.at..self.at + size_of::<u64>()].copy_from_slice(&self.bits.to_le_bytes());
        self.at += self.count as usize / 8;
        self.bits >>= self.count & !7;
        self.count &= 7;
    }

    pub(super) fn put(&mut self, bits: u64, count: u32) {
        self.add(bits, count);
        self.flush();
    }

    /// Blocks of bytes as they are.
    pub(super) fn store(&mut self, bytes: &[u8], last: bool) {
        self.reserve(bytes.len() + 5 * (bytes.len() / STORED + 1) + 1);
        let mut rest = bytes;
        loop {
            let (part, after) = rest.split_at(rest.len().min(STORED));
            self.put(u64::from(last && after.is_empty()), 3);
            self.fill();
            let length = part.len() as u64;
            self.put(length | (!length & 0xffff) << 16, 32);
            self.out[self.at..self.at + part.len()].copy_from_slice(part);
            self.at += part.len();
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }

    /// The bytes end here.
    pub(super) fn finish(mut self) {
        self.reserve(1);
        self.fill();
        self.out.truncate(self.at);
    }

    /// Goes on to the next whole byte.
    fn fill(&mut self) {
        self.put(0, self.count.wrapping_neg() % 8);
    }
}
