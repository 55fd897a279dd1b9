//! TFRecord framing on bytes in memory: `length u64 | masked CRC u32 | data | masked CRC u32`.

use crate::crc32c;
use crate::error::{Error, Result};

/// Bytes before the data: the length and its CRC.
pub const HEADER: usize = 12;
/// Bytes after the data: its CRC.
pub const FOOTER: usize = 4;
/// What a frame adds to its record.
pub const OVERHEAD: usize = HEADER + FOOTER;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The data length that a header declares, if its CRC holds. `header` has at least [`HEADER`] bytes.
pub fn declared_length(header: &[u8]) -> Result<u64> {
    let (Some(length), Some(stored)) = (header.get(..8), u32_at(header, 8)) else {
        return Err(Error::corrupt(format!("expected a {HEADER}-byte frame header, got {} bytes", header.len())));
    };
    let actual = crc32c::masked(length);
    if actual != stored {
        return Err(Error::corrupt(format!(
            "expected the frame's length CRC to be {actual:#010x}, got {stored:#010x}"
        )));
    }
    Ok(u64::from_le_bytes(length.try_into().expect("eight bytes")))
}

/// The data of one whole frame, both CRCs checked; the frame must fill `frame` exactly.
#[inline]
pub fn open(frame: &[u8]) -> Result<&[u8]> {
    let length = declared_length(frame)?;
    let room = frame.len().saturating_sub(OVERHEAD) as u64;
    if length != room || frame.len() < OVERHEAD {
        return Err(Error::corrupt(format!("expected a record of {room} bytes, got a header that declares {length}")));
    }
    let data = &frame[HEADER..frame.len() - FOOTER];
    check_data(data, &frame[frame.len() - FOOTER..])?;
    Ok(data)
}

/// Checks a record's data against its footer.
#[inline]
pub fn check_data(data: &[u8], footer: &[u8]) -> Result<()> {
    let actual = crc32c::masked(data);
    match u32_at(footer, 0) {
        Some(stored) if stored == actual => Ok(()),
        Some(stored) => {
            Err(Error::corrupt(format!("expected the record's data CRC to be {actual:#010x}, got {stored:#010x}")))
        }
        None => Err(Error::corrupt(format!("expected a {FOOTER}-byte frame footer, got {} bytes", footer.len()))),
    }
}

/// Appends `data` to `out` as one frame.
pub fn append(out: &mut Vec<u8>, data: &[u8]) {
    out.reserve(data.len() + OVERHEAD);
    let start = begin(out);
    out.extend_from_slice(data);
    finish(out, start);
}

/// Leaves room for a header at the end of `out`; what is appended next is the frame's data.
pub fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    start
}

/// Closes the frame begun at `start`: writes its header and its footer.
pub fn finish(out: &mut Vec<u8>, start: usize) {
    let data = &out[start + HEADER..];
    let length = (data.len() as u64).to_le_bytes();
    let footer = crc32c::masked(data).to_le_bytes();
    out[start..start + 8].copy_from_slice(&length);
    out[start + 8..start + HEADER].copy_from_slice(&crc32c::masked(&length).to_le_bytes());
    out.extend_from_slice(&footer);
}

/// Whole frames, one after the other in one buffer: what a shard is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Frames {
    /// No frames yet, in a buffer that was used before.
    pub fn reusing(mut bytes: Vec<u8>, records: usize) -> Self {
        bytes.clear();
        Frames { bytes, ends: Vec::with_capacity(records) }
    }

    /// Appends a record.
    pub fn push(&mut self, data: &[u8]) {
        append(&mut self.bytes, data);
        self.ends.push(self.bytes.len());
    }

    /// Append a whole frame that was checked before.
    pub fn push_frame(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// Appends a record that `write` appends to the buffer.
    pub fn push_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let start = begin(&mut self.bytes);
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(error);
        }
        finish(&mut self.bytes, start);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// Takes over frames read from a shard: checks both CRCs of each. `lengths` are the frames' lengths.
    /// An error carries the number of the frame within this buffer.
    pub fn checked(bytes: Vec<u8>, lengths: impl Iterator<Item = usize>) -> Result<Self> {
        let mut ends = Vec::with_capacity(lengths.size_hint().0);
        let mut start = 0usize;
        for length in lengths {
            let frame = start
                .checked_add(length)
                .and_then(|end| bytes.get(start..end))
                .ok_or_else(|| Error::corrupt("expected a whole frame, got the end of the data"));
            frame.and_then(open).map_err(|error| error.in_record(ends.len() as u64))?;
            start += length;
            ends.push(start);
        }
        Ok(Frames { bytes, ends })
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The frames' bytes, ready to be written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The lengths of the frames, in order.
    pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).map(|i| self.ends[i] - self.start(i))
    }

    fn start(&self, index: usize) -> usize {
        if index == 0 {
            0
        } else {
            self.ends[index - 1]
        }
    }

    /// The data of record `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        Some(&self.bytes[self.start(index) + HEADER..end - FOOTER])
    }

    /// The records' data, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone + '_ {
        (0..self.len()).map(|i| &self.bytes[self.start(i) + HEADER..self.ends[i] - FOOTER])
    }

    /// Gives the buffer back for reuse.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &[u8] =
        &[5, 0, 0, 0, 0, 0, 0, 0, 0xea, 0xb2, 0x04, 0x3e, b'h', b'e', b'l', b'l', b'o', 0xbb, 0x1f, 0x1c, 0x19];

    #[test]
    fn writes_the_known_bytes() {
        let mut out = Vec::new();
        append(&mut out, b"hello");
        assert_eq!(out, HELLO);
        assert_eq!(open(HELLO).unwrap(), b"hello");
    }

    #[test]
    fn empty_records_are_records() {
        let mut frames = Frames::default();
        frames.push(b"");
        assert_eq!(frames.bytes().len(), OVERHEAD);
        assert_eq!(frames.get(0), Some(&b""[..]));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for bit in 0..HELLO.len() * 8 {
            let mut frame = HELLO.to_vec();
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&frame).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_is_found() {
        for length in 0..HELLO.len() {
            assert!(open(&HELLO[..length]).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_huge_declared_length_is_refused() {
        let mut frame = u64::MAX.to_le_bytes().to_vec();
        frame.extend_from_slice(&crc32c::masked(&u64::MAX.to_le_bytes()).to_le_bytes());
        frame.extend_from_slice(&[0; 64]);
        assert!(open(&frame).is_err());
    }

    #[test]
    fn a_failed_record_leaves_no_trace() {
        let mut frames = Frames::default();
        frames.push(b"a");
        let before = frames.clone();
        assert_eq!(
            frames.push_with(|out| {
                out.push(1);
                Err(())
            }),
            Err(())
        );
        assert_eq!(frames, before);
    }

    #[test]
    fn buffers_of_frames_are_checked() {
        let mut frames = Frames::default();
        frames.push(b"one");
        frames.push(b"three");
        let lengths: Vec<usize> = frames.lengths().collect();
        let again = Frames::checked(frames.bytes().to_vec(), lengths.iter().copied()).unwrap();
        assert_eq!(again.iter().collect::<Vec<_>>(), [&b"one"[..], b"three"]);
        let mut bad = frames.bytes().to_vec();
        *bad.last_mut().unwrap() ^= 1;
        assert_eq!(Frames::checked(bad, lengths.into_iter()).unwrap_err().record(), Some(1));
    }
}
