//! Deflate for arrays of four-byte numbers, which any zlib reads.
//!
//! What repeats in such an array are whole numbers. So repetitions are looked for from number to number, not from byte
//! to byte: at a quarter of the places. Two earlier places are known of each: where its number was last, and where it
//! was last before the same successor. The one that takes fewer bits is taken, by the codes of the block before.

mod bits;
mod block;
mod huffman;

use bits::Bits;
use block::{Block, LONGEST, WINDOW, WORD};

const HASH_BITS: u32 = 13;
/// Of what repeats for longer than this, only the end is remembered.
const REMEMBERED: usize = 16;

/// A compressor, with the memory that it uses again.
pub struct Deflate {
    singles: Places,
    pairs: Places,
    block: Block,
}

impl Default for Deflate {
    fn default() -> Self {
        Self { singles: Places::new(), pairs: Places::new(), block: Block::new() }
    }
}

impl Deflate {
    /// Appends the zlib stream of some bytes: of numbers of four bytes each, if it is to be small.
    pub fn zlib(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&[0x78, 0x01]); // deflate with a window of 32 KB, compressed quickly
        self.singles.clear();
        self.pairs.clear();
        self.block.restart();
        let mut bits = Bits::new(out);
        let mut start = 0;
        loop {
            let stop = self.find(bytes, start);
            self.block.write(&bytes[start..stop], stop == bytes.len(), &mut bits);
            if stop == bytes.len() {
                break;
            }
            start = stop;
        }
        bits.finish();
        out.extend_from_slice(&libdeflater::adler32(bytes).to_be_bytes());
    }

    /// Finds what repeats in the next block; gives where it ends.
    fn find(&mut self, bytes: &[u8], start: usize) -> usize {
        let count = bytes.len() / WORD;
        let mut at = start / WORD;
        self.block.begin();
        while at < count && !self.block.is_full() {
            let number = number(bytes, at);
            let (length, distance) = self.earlier(bytes, at, count, number);
            if length == 0 {
                self.block.literal(number);
                at += 1;
                continue;
            }
            self.block.repeat(length, distance);
            let end = at + length;
            let first = if length > REMEMBERED { end - 2 } else { at + 1 };
            for next in first..end {
                self.singles.put(hash(self::number(bytes, next)), next);
                if next + 1 < count {
                    self.pairs.put(hash_both(both(bytes, next)), next);
                }
            }
            at = end;
        }
        if at == count {
            self.block.rest(&bytes[at * WORD..]);
            return bytes.len();
        }
        at * WORD
    }

    /// How many numbers from here on were there before, and how far back; none if they are cheaper as they are.
    fn earlier(&mut self, bytes: &[u8], at: usize, count: usize, number: u32) -> (usize, usize) {
        let mut best = (0, 0);
        let mut price = self.block.literal_price(number);
        let distance = self.singles.put(hash(number), at);
        if (1..=WINDOW.min(at)).contains(&distance) && self::number(bytes, at - distance) == number {
            let single = self.block.price(1, distance);
            if single < price {
                (best, price) = ((1, distance), single);
            }
        }
        if at + 1 < count {
            let pair = both(bytes, at);
            let distance = self.pairs.put(hash_both(pair), at);
            if (1..=WINDOW.min(at)).contains(&distance) && both(bytes, at - distance) == pair {
                let length = repeated(bytes, at, distance, LONGEST.min(count - at));
                if self.block.price(length, distance) < price * length as u32 {
                    best = (length, distance);
                }
            }
        }
        best
    }
}

/// The last position of each hash, modulo 2^16. The caller compares the bytes: other bytes may have the same hash.
struct Places(Vec<u16>);

impl Places {
    fn new() -> Self {
        Self(vec![0; 1 << HASH_BITS])
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Notes a place; gives how far back the one before is.
    #[inline]
    fn put(&mut self, hash: usize, at: usize) -> usize {
        let before = std::mem::replace(&mut self.0[hash], at as u16);
        (at as u16).wrapping_sub(before).into()
    }
}

#[inline]
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes[at * WORD..].first_chunk().map_or(0, |number| u32::from_le_bytes(*number))
}

#[inline]
fn both(bytes: &[u8], at: usize) -> u64 {
    bytes[at * WORD..].first_chunk().map_or(0, |numbers| u64::from_le_bytes(*numbers))
}

#[inline]
fn hash(number: u32) -> usize {
    (number.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize
}

#[inline]
fn hash_both(numbers: u64) -> usize {
    (numbers.wrapping_mul(0x9e37_79b1_85eb_ca87) >> (u64::BITS - HASH_BITS)) as usize
}

/// How many numbers are those of so far back, at most so many.
fn repeated(bytes: &[u8], at: usize, distance: usize, most: usize) -> usize {
    let here = bytes[at * WORD..(at + most) * WORD].chunks_exact(2 * WORD);
    let earlier = bytes[(at - distance) * WORD..].chunks_exact(2 * WORD);
    let pairs = here.zip(earlier).take_while(|(here, earlier)| here == earlier).count();
    let length = 2 * pairs;
    let more = length < most && number(bytes, at + length) == number(bytes, at + length - distance);
    length + usize::from(more)
}

#[cfg(test)]
mod tests {
    use libdeflater::Decompressor;

    use super::*;
    use crate::order::key_hash::Hasher;

    /// Numbers from a seed: how many different ones, or all of them.
    fn numbers(seed: u64, count: usize, different: u64) -> Vec<u8> {
        let random = Hasher::for_keys(seed, "");
        (0..count as u64).flat_map(|i| ((random.hash_number(i) % different) as u32).to_le_bytes()).collect()
    }

    fn size_of(deflate: &mut Deflate, bytes: &[u8]) -> usize {
        let mut out = vec![7];
        deflate.zlib(bytes, &mut out);
        let mut back = vec![0; bytes.len() + 1];
        let length = Decompressor::new().zlib_decompress(&out[1..], &mut back).unwrap();
        assert_eq!((out[0], &back[..length]), (7, bytes));
        let mut again = Vec::new();
        Deflate::default().zlib(bytes, &mut again);
        assert_eq!(again, out[1..], "what came before changes nothing");
        again.len()
    }

    #[test]
    fn all_comes_back() {
        let mut deflate = Deflate::default();
        for count in [0, 1, 2, 3, 63, 64, 65, 66, 129, 8191, 8192, 8193, 70_000] {
            for different in [1, 2, 40, 5000, u64::from(u32::MAX)] {
                let mut bytes = numbers(5, count, different);
                size_of(&mut deflate, &bytes);
                bytes.extend_from_slice(&[0, 1, 0][..1 + count % 3]);
                size_of(&mut deflate, &bytes);
            }
        }
    }

    #[test]
    fn what_does_not_repeat_hardly_grows() {
        let mut deflate = Deflate::default();
        for count in [1, 1000, 100_000] {
            let bytes = numbers(9, count, u64::MAX);
            assert!(size_of(&mut deflate, &bytes) <= bytes.len() + 5 * (bytes.len() / 64_000 + 1) + 6);
        }
    }

    #[test]
    fn what_repeats_is_found_as_far_back_as_the_window_goes() {
        let mut deflate = Deflate::default();
        let once = numbers(3, WINDOW, u64::MAX);
        let twice = [&once[..], &once[..]].concat();
        let size = size_of(&mut deflate, &twice);
        assert!(size < once.len() + once.len() / 10, "got {size}");
        let apart = [&once[..], &[1, 2, 3, 4], &once[..]].concat();
        assert!(size_of(&mut deflate, &apart) > 2 * once.len() - once.len() / 50, "one number too far");
    }

    #[test]
    fn few_numbers_take_about_as_many_bits_as_they_must() {
        let bytes = numbers(1, 100_000, 16);
        let size = size_of(&mut Deflate::default(), &bytes) as f64;
        assert!(size < 1.7 * 4.0 / 32.0 * bytes.len() as f64, "4 bits of 32, got {size}");
    }
}
