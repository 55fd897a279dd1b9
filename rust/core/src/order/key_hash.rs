//! The order of records at build: by a keyed hash, so that it depends on neither workers nor the order of the input.

use highway::{HighwayHash, HighwayHasher, Key};

use crate::error::Result;
use crate::interrupt;

/// "PENSTOCK": sets these hashes apart from other uses of the same function.
pub(crate) const DOMAIN: u64 = u64::from_le_bytes(*b"PENSTOCK");

/// Hashes the keys of a split's examples, and the bytes of records.
#[derive(Clone, Copy, Debug)]
pub struct Hasher(Key);

impl Hasher {
    /// For the examples of a split, under a seed.
    pub fn for_keys(seed: u64, split: &str) -> Hasher {
        let split = HighwayHasher::new(Key([0; 4])).hash64(split.as_bytes());
        Hasher(Key([seed, split, DOMAIN, 1]))
    }

    /// For the bytes of records.
    pub fn for_content() -> Hasher {
        Hasher(Key([0, 0, DOMAIN, 2]))
    }

    /// HighwayHash-64 of `bytes`.
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        HighwayHasher::new(self.0).hash64(bytes)
    }

    /// That of the digits of a number.
    pub fn hash_number(&self, mut number: u64) -> u64 {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return self.hash(&digits[first..]);
            }
        }
    }

    /// The numbers below `count` in the order of their hashes; those with equal ones in their own order.
    ///
    /// Only the numbers are held: they are put into buckets by the first bits of their hashes, and each bucket is
    /// sorted by hashes that are computed again.
    pub fn order_numbers(&self, count: u32) -> Result<Vec<u32>> {
        let bits = (count >> BUCKET_BITS).checked_ilog2().map_or(0, |bits| bits + 1);
        let bucket = |number: u32| self.hash_number(number.into()).checked_shr(64 - bits).unwrap_or(0) as usize;
        let mut ends = vec![0u32; 1 << bits];
        for number in 0..count {
            interrupt::check_at(number as usize)?;
            ends[bucket(number)] += 1;
        }
        let mut total = 0;
        for end in &mut ends {
            total += std::mem::replace(end, total);
        }
        let mut numbers = vec![0; count as usize];
        for number in 0..count {
            interrupt::check_at(number as usize)?;
            let end = &mut ends[bucket(number)];
            numbers[*end as usize] = number;
            *end += 1;
        }
        let mut hashed = Vec::new();
        let mut first = 0;
        for end in ends {
            interrupt::check()?;
            let bucket = &mut numbers[first as usize..end as usize];
            hashed.clear();
            hashed.extend(bucket.iter().map(|&number| (self.hash_number(number.into()), number)));
            hashed.sort_unstable();
            bucket.iter_mut().zip(&hashed).for_each(|(place, &(_, number))| *place = number);
            first = end;
        }
        Ok(numbers)
    }
}

/// About so many numbers share a bucket, as a power of two.
const BUCKET_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_split_and_key_all_count() {
        let hash = |seed, split, key: &str| Hasher::for_keys(seed, split).hash(key.as_bytes());
        let all = [hash(0, "train", "a"), hash(1, "train", "a"), hash(0, "eval", "a"), hash(0, "train", "b")];
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| other != one));
        }
        assert_eq!(hash(7, "x", "y"), hash(7, "x", "y"));
    }

    #[test]
    fn numbers_are_ordered_by_the_hashes_of_their_digits() {
        let hasher = Hasher::for_keys(7, "train");
        for number in [0, 9, 10, 4_000_000_000, u64::MAX] {
            assert_eq!(hasher.hash_number(number), hasher.hash(number.to_string().as_bytes()));
        }
        for count in [0, 1, 1000, (1 << BUCKET_BITS) + 1, 300_000] {
            let mut expected: Vec<u32> = (0..count).collect();
            expected.sort_by_key(|number| hasher.hash(number.to_string().as_bytes()));
            assert_eq!(hasher.order_numbers(count).unwrap(), expected);
        }
    }

    #[test]
    fn the_order_is_a_promise() {
        // Datasets built by earlier versions were ordered by these values: they never change.
        assert_eq!(Hasher::for_keys(0, "train").hash(b"0"), PROMISED[0]);
        assert_eq!(Hasher::for_content().hash(b""), PROMISED[1]);
    }

    const PROMISED: [u64; 2] = [14_026_246_264_401_924_922, 5_636_965_584_865_342_373];
}
