//! A deflate block: its symbols, their cost by the codes of the block before, and how it is written.

use super::bits::Bits;
use super::huffman::Codes;

/// Bytes of a number.
pub(super) const WORD: usize = 4;
/// Numbers that a repetition may be back.
pub(super) const WINDOW: usize = 32_768 / WORD;
/// Numbers of a repetition: 256 of deflate's 258 bytes.
pub(super) const LONGEST: usize = 64;

const STEPS: usize = 16_000; // numbers and repetitions of a block: without any repetition it can be stored in one piece
const LITERALS: usize = 286; // bytes, the end, and lengths
const END: usize = 256;
const DISTANCES: usize = 30;
const LITERAL_BITS: usize = 14; // the codes of a number's bytes and 7 bits that wait are 63
const DISTANCE_BITS: usize = 15;
const UNUSED: u32 = 12; // what a symbol costs that the block before did not use
const UNKNOWN: (u32, u32) = (8, 5); // what bytes cost in the first block, and lengths and distances
const LENGTHS: usize = 19;
const LENGTH_BITS: usize = 7;
const LENGTH_ORDER: [usize; LENGTHS] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// The symbols of distances, by numbers.
const SLOTS: [u8; WINDOW + 1] = {
    let mut slots = [0; WINDOW + 1];
    let mut distance = 1;
    while distance <= WINDOW {
        let over = distance * WORD - 1;
        let bit = over.ilog2();
        slots[distance] = if over < 4 { over as u8 } else { 2 * bit as u8 + (over >> (bit - 1) & 1) as u8 };
        distance += 1;
    }
    slots
};

/// Bits that follow the symbol of a distance.
const fn distance_extra(slot: u32) -> u32 {
    (slot / 2).saturating_sub(1)
}

/// The symbol of a length in numbers, how many bits follow it, and those.
fn length_symbol(length: usize) -> (usize, u32, u64) {
    let over = length * WORD - 3;
    if over < 8 {
        return (257 + over, 0, 0);
    }
    let extra = over.ilog2() - 2;
    (261 + 4 * extra as usize + (over >> extra & 3), extra, (over & ((1 << extra) - 1)) as u64)
}

/// Numbers as they are, then some that were there before.
struct BlockStep {
    literals: u32,
    length: u8,
    distance: u16,
}

/// What comes next, as steps and as uses of symbols.
pub(super) struct Block {
    steps: Vec<BlockStep>,
    literals: u32, // numbers behind the last step
    count: usize,
    byte_uses: [u32; 256],
    length_uses: [u32; LONGEST + 1],
    distance_uses: [u32; DISTANCES],
    byte_prices: [u32; 256],
    length_prices: [u32; LONGEST + 1],
    distance_prices: [u32; DISTANCES],
}

impl Block {
    pub(super) fn new() -> Self {
        Self {
            steps: Vec::new(),
            literals: 0,
            count: 0,
            byte_uses: [0; 256],
            length_uses: [0; LONGEST + 1],
            distance_uses: [0; DISTANCES],
            byte_prices: [0; 256],
            length_prices: [0; LONGEST + 1],
            distance_prices: [0; DISTANCES],
        }
    }

    /// Forgets the blocks before.
    pub(super) fn restart(&mut self) {
        self.set_prices(|symbol| if symbol < END { UNKNOWN.0 } else { UNKNOWN.1 }, |_| UNKNOWN.1);
    }

    fn set_prices(&mut self, literal: impl Fn(usize) -> u32, distance: impl Fn(usize) -> u32) {
        self.byte_prices = std::array::from_fn(&literal);
        for (length, price) in self.length_prices.iter_mut().enumerate().skip(1) {
            let (symbol, extra, _) = length_symbol(length);
            *price = literal(symbol) + extra;
        }
        self.distance_prices = std::array::from_fn(|slot| distance(slot) + distance_extra(slot as u32));
    }

    /// Begin an empty block, with the prices of the block before.
    pub(super) fn begin(&mut self) {
        self.steps.clear();
        (self.literals, self.count) = (0, 0);
        self.byte_uses.fill(0);
        self.length_uses.fill(0);
        self.distance_uses.fill(0);
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == STEPS
    }

    /// The bits of a number as it is.
    #[inline]
    pub(super) fn literal_price(&self, number: u32) -> u32 {
        number.to_le_bytes().iter().map(|byte| self.byte_prices[usize::from(*byte)]).sum()
    }

    /// The bits of a repetition.
    #[inline]
    pub(super) fn price(&self, length: usize, distance: usize) -> u32 {
        self.length_prices[length] + self.distance_prices[usize::from(SLOTS[distance])]
    }

    /// A number as it is.
    #[inline]
    pub(super) fn literal(&mut self, number: u32) {
        self.literals += 1;
        self.count += 1;
        for byte in number.to_le_bytes() {
            self.byte_uses[usize::from(byte)] += 1;
        }
    }

    /// So many numbers that were there before, and how far back.
    #[inline]
    pub(super) fn repeat(&mut self, length: usize, distance: usize) {
        let literals = std::mem::take(&mut self.literals);
        self.steps.push(BlockStep { literals, length: length as u8, distance: distance as u16 });
        self.count += 1;
        self.length_uses[length] += 1;
        self.distance_uses[usize::from(SLOTS[distance])] += 1;
    }

    /// Bytes at the very end that make no number.
    pub(super) fn rest(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte_uses[usize::from(*byte)] += 1;
        }
    }

    /// Writes the block of these bytes: coded, or as they are if that is shorter.
    pub(super) fn write(&mut self, bytes: &[u8], last: bool, bits: &mut Bits<'_>) {
        let mut uses = [0; LITERALS];
        uses[..END].copy_from_slice(&self.byte_uses);
        uses[END] = 1;
        let mut extra_bits = 0;
        for (length, count) in self.length_uses.iter().enumerate().skip(1) {
            let (symbol, extra, _) = length_symbol(length);
            uses[symbol] += count;
            extra_bits += u64::from(extra * count);
        }
        let literals = Codes::of(&uses, LITERAL_BITS);
        let distances = Codes::of(&self.distance_uses, DISTANCE_BITS);
        let header = BlockHeader::of(&literals, &distances);
        let size = header.size()
            + extra_bits
            + uses.iter().enumerate().map(|(symbol, count)| u64::from(count * literals.length(symbol))).sum::<u64>()
            + (self.distance_uses.iter().enumerate())
                .map(|(slot, count)| u64::from(count * (distances.length(slot) + distance_extra(slot as u32))))
                .sum::<u64>();
        if size >= 8 * bytes.len() as u64 {
            bits.store(bytes, last);
        } else {
            bits.reserve(size as usize / 8 + 2);
            bits.put(u64::from(last) | 0b100, 3);
            header.write(bits);
            self.write_steps(bytes, &literals, &distances, bits);
        }
        let paid = |length: u32| if length == 0 { UNUSED } else { length };
        self.set_prices(|symbol| paid(literals.length(symbol)), |slot| paid(distances.length(slot)));
    }

    fn write_steps(&self, bytes: &[u8], literals: &Codes<LITERALS>, distances: &Codes<DISTANCES>, bits: &mut Bits<'_>) {
        let lengths: [(u64, u32); LONGEST + 1] = std::array::from_fn(|length| {
            let (symbol, extra, rest) = length_symbol(length.max(1));
            let code = literals.code(symbol);
            (u64::from(code.bits) | rest << code.length, u32::from(code.length) + extra)
        });
        let mut rest = bytes;
        for step in &self.steps {
            let (raw, after) = rest.split_at(step.literals as usize * WORD);
            write_bytes(raw, literals, bits);
            let (code, length) = lengths[usize::from(step.length)];
            bits.add(code, length);
            let slot = SLOTS[usize::from(step.distance)];
            let code = distances.code(slot.into());
            bits.add(code.bits.into(), code.length.into());
            let extra = distance_extra(slot.into());
            bits.add((u64::from(step.distance) * WORD as u64 - 1) & ((1 << extra) - 1), extra);
            bits.flush();
            rest = &after[usize::from(step.length) * WORD..];
        }
        write_bytes(rest, literals, bits);
        let end = literals.code(END);
        bits.put(end.bits.into(), end.length.into());
    }
}

fn write_bytes(bytes: &[u8], literals: &Codes<LITERALS>, bits: &mut Bits<'_>) {
    for number in bytes.chunks(WORD) {
        for byte in number {
            let code = literals.code(usize::from(*byte));
            bits.add(code.bits.into(), code.length.into());
        }
        bits.flush();
    }
}

/// The lengths of both codes, runs of them shortened: what a block begins with.
struct BlockHeader {
    symbols: Vec<(u8, u8)>, // each with what follows it
    codes: Codes<LENGTHS>,
    literals: usize,
    distances: usize,
    lengths: usize,
}

impl BlockHeader {
    fn of(literals: &Codes<LITERALS>, distances: &Codes<DISTANCES>) -> Self {
        let (first, second) = (literals.lengths(END + 1), distances.lengths(1));
        let (literals, distances) = (first.len(), second.len());
        let lengths: Vec<u8> = first.chain(second).collect();
        let mut symbols = Vec::new();
        for same in lengths.chunk_by(|a, b| a == b) {
            shorten(same[0], same.len(), &mut symbols);
        }
        let mut uses = [0; LENGTHS];
        for (symbol, _) in &symbols {
            uses[usize::from(*symbol)] += 1;
        }
        let codes = Codes::of(&uses, LENGTH_BITS);
        let used = LENGTH_ORDER.iter().rposition(|symbol| codes.length(*symbol) > 0);
        Self { symbols, codes, literals, distances, lengths: used.map_or(4, |last| (last + 1).max(4)) }
    }

    /// Its bits, with the three that begin a block.
    fn size(&self) -> u64 {
        let bits = |symbol: u8| u64::from(self.codes.length(symbol.into()) + length_extra(symbol));
        3 + 14 + 3 * self.lengths as u64 + self.symbols.iter().map(|(symbol, _)| bits(*symbol)).sum::<u64>()
    }

    fn write(&self, bits: &mut Bits<'_>) {
        bits.put(self.literals as u64 - 257, 5);
        bits.put(self.distances as u64 - 1, 5);
        bits.put(self.lengths as u64 - 4, 4);
        for symbol in &LENGTH_ORDER[..self.lengths] {
            bits.put(self.codes.length(*symbol).into(), 3);
        }
        for (symbol, rest) in &self.symbols {
            let code = self.codes.code(usize::from(*symbol));
            bits.add(code.bits.into(), code.length.into());
            bits.put(u64::from(*rest), length_extra(*symbol));
        }
    }
}

/// Bits that follow a symbol of the header.
fn length_extra(symbol: u8) -> u32 {
    match symbol {
        16 => 2,
        17 => 3,
        18 => 7,
        _ => 0,
    }
}

/// The symbols of a run: of zeros up to 138, of others 3 to 6 that repeat the one before.
fn shorten(length: u8, count: usize, symbols: &mut Vec<(u8, u8)>) {
    let mut left = count;
    if length > 0 {
        symbols.push((length, 0));
        left -= 1;
    }
    while left > 0 {
        let (symbol, least, taken) = match (length, left) {
            (0, 11..) => (18, 11, left.min(138)),
            (0, 3..) => (17, 3, left),
            (1.., 3..) => (16, 3, left.min(6)),
            _ => (length, 1, 1),
        };
        symbols.push((symbol, (taken - least) as u8));
        left -= taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_those_of_the_specification() {
        for (length, symbol) in
            [(1, (258, 0, 0)), (2, (262, 0, 0)), (3, (265, 1, 1)), (5, (269, 2, 1)), (64, (284, 5, 29))]
        {
            assert_eq!(length_symbol(length), symbol);
        }
        for (distance, slot) in [(1, 3), (2, 5), (3, 6), (4, 7), (5, 8), (8192, 29)] {
            assert_eq!(SLOTS[distance], slot);
        }
    }

    #[test]
    fn runs_are_shortened() {
        let short = |length, count| {
            let mut symbols = Vec::new();
            shorten(length, count, &mut symbols);
            symbols
        };
        assert_eq!(short(0, 2), [(0, 0), (0, 0)]);
        assert_eq!(short(0, 10), [(17, 7)]);
        assert_eq!(short(0, 140), [(18, 127), (0, 0), (0, 0)]);
        assert_eq!(short(5, 3), [(5, 0), (5, 0), (5, 0)]);
        assert_eq!(short(5, 11), [(5, 0), (16, 3), (16, 1)]);
    }
}
