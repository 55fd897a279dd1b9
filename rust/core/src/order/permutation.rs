//! A keyed permutation of 0..n: the shuffle. Each number is computed on its own.
//!
//! FORMAT.md has the algorithm in MUST words: what it gives must never change.

use highway::{HighwayHash, HighwayHasher, Key};

use crate::order::key_hash::DOMAIN;
use crate::random::SplitMix64;

/// Up to this length a permutation is drawn whole, so that all of them can be.
const DRAWN: u64 = 256;

/// Rounds of the network: three for each half.
const ROUNDS: usize = 6;

/// A permutation of 0..n.
#[derive(Clone, Debug)]
pub struct Permutation {
    length: u64,
    shape: PermutationMethod,
}

#[derive(Clone, Debug)]
enum PermutationMethod {
    /// The numbers themselves.
    Drawn(Box<[u8; DRAWN as usize]>),
    /// A Feistel network on pairs (left, right), which stand for left * columns + right.
    Network { rows: u64, columns: Divisor, keys: [u64; ROUNDS] },
}

/// A number that others are divided by again and again, two or more.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    value: u64,
    /// 2^64 divided by it, rounded down.
    inverse: u64,
}

impl Divisor {
    fn new(value: u64) -> Divisor {
        Divisor { value, inverse: ((1u128 << 64) / u128::from(value)) as u64 }
    }

    /// Quotient and remainder.
    #[inline]
    fn divide(self, number: u64) -> (u64, u64) {
        // The product's upper half is the quotient, or one less.
        let quotient = ((u128::from(number) * u128::from(self.inverse)) >> 64) as u64;
        let rest = number - quotient * self.value;
        if rest >= self.value {
            (quotient + 1, rest - self.value)
        } else {
            (quotient, rest)
        }
    }
}

/// A number below `range` from 32 random bits.
#[inline]
fn scale(bits: u64, range: u64) -> u64 {
    (bits * range) >> 32
}

/// 32 bits that depend on all of `half` and `key`.
#[inline]
fn scramble(half: u64, key: u64) -> u64 {
    let h = (half ^ key).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (h ^ (h >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32
}

#[inline]
fn add(half: u64, more: u64, range: u64) -> u64 {
    let sum = half + more;
    if sum >= range {
        sum - range
    } else {
        sum
    }
}

impl Permutation {
    /// The permutation of 0..length that belongs to a seed, an epoch and a number that sets it apart from others of
    /// these. `length` is below 2^63.
    pub fn new(seed: u64, epoch: u64, salt: u64, length: u64) -> Permutation {
        let mut what = [0; 16];
        what[..8].copy_from_slice(&salt.to_le_bytes());
        what[8..].copy_from_slice(&length.to_le_bytes());
        let mut stream = SplitMix64(HighwayHasher::new(Key([seed, epoch, DOMAIN, 3])).hash64(&what));
        let shape = if length <= DRAWN {
            let mut numbers: Box<[u8; DRAWN as usize]> = Box::new(std::array::from_fn(|number| number as u8));
            for last in (1..length).rev() {
                numbers.swap(last as usize, scale(stream.next() >> 32, last + 1) as usize);
            }
            PermutationMethod::Drawn(numbers)
        } else {
            let floor = length.isqrt();
            let rows = floor + u64::from(floor * floor < length);
            let keys = std::array::from_fn(|_| stream.next());
            PermutationMethod::Network { rows, columns: Divisor::new(length.div_ceil(rows)), keys }
        };
        Permutation { length, shape }
    }

    /// Replaces each position, which must be below the length, by the number at it.
    pub fn apply(&self, positions: &mut [u64]) {
        match &self.shape {
            PermutationMethod::Drawn(numbers) => {
                positions.iter_mut().for_each(|position| *position = u64::from(numbers[*position as usize]));
            }
            PermutationMethod::Network { rows, columns, keys } => {
                let once = |position: u64| {
                    let (mut left, mut right) = columns.divide(position);
                    for pair in keys.chunks_exact(2) {
                        left = add(left, scale(scramble(right, pair[0]), *rows), *rows);
                        right = add(right, scale(scramble(left, pair[1]), columns.value), columns.value);
                    }
                    left * columns.value + right
                };
                for position in positions {
                    *position = once(*position);
                    // Pairs that stand for no number lead on to one that does.
                    while *position >= self.length {
                        *position = once(*position);
                    }
                }
            }
        }
    }

    /// The number at one position.
    pub fn at(&self, position: u64) -> u64 {
        let mut one = [position];
        self.apply(&mut one);
        one[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn whole(permutation: &Permutation) -> Vec<u64> {
        let mut all: Vec<u64> = (0..permutation.length).collect();
        permutation.apply(&mut all);
        all
    }

    #[test]
    fn every_number_comes_once() {
        for length in (0..1200).chain([1023, 1024, 1025, 4095, 65_536, 100_003]) {
            let mut all = whole(&Permutation::new(7, length, 1, length));
            all.sort_unstable();
            assert!(all.into_iter().eq(0..length), "length {length}");
        }
    }

    #[test]
    fn large_ranges_hold_and_do_not_collide() {
        for length in [(1 << 32) - 1, (1 << 40) + 12_345, 1 << 48, (1 << 63) - 1] {
            let permutation = Permutation::new(1, 2, 3, length);
            for start in [0, length / 3, length - 50_000] {
                let mut some: Vec<u64> = (start..start + 50_000).collect();
                permutation.apply(&mut some);
                assert!(some.iter().all(|&number| number < length));
                assert_eq!(some.into_iter().collect::<HashSet<_>>().len(), 50_000);
            }
        }
    }

    #[test]
    fn all_orders_of_a_few_are_about_as_likely() {
        for (length, orders) in [(1, 1), (2, 2), (3, 6), (4, 24), (5, 120)] {
            let mut seen: HashMap<Vec<u64>, f64> = HashMap::new();
            let draws = 400 * orders;
            for epoch in 0..draws {
                *seen.entry(whole(&Permutation::new(5, epoch, 0, length))).or_default() += 1.0;
            }
            assert_eq!(seen.len() as u64, orders);
            let chi_square: f64 = seen.values().map(|count| (count - 400.0).powi(2) / 400.0).sum();
            let freedom = orders as f64 - 1.0;
            assert!(chi_square <= freedom + 5.0 * (2.0 * freedom).sqrt(), "length {length}: {chi_square}");
        }
    }

    #[test]
    fn division_is_exact() {
        for value in [2, 3, 7, 255, 4096, 65_537, (1 << 32) - 1, 1 << 32] {
            for number in [0, 1, value - 1, value, 12 * value - 1, 12 * value, (1 << 63) - 1, u64::MAX, u64::MAX - 7] {
                assert_eq!(Divisor::new(value).divide(number), (number / value, number % value));
            }
        }
    }

    #[test]
    fn pairs_of_positions_are_about_uniform_where_the_network_is_smallest() {
        let (length, epochs) = (257u64, 400_000);
        let mut differences = vec![0f64; length as usize];
        for epoch in 0..epochs {
            let mut pair = [0, 1];
            Permutation::new(3, epoch, 0, length).apply(&mut pair);
            differences[((pair[1] + length - pair[0]) % length) as usize] += 1.0;
        }
        assert!(differences[0] == 0.0);
        let expected = epochs as f64 / (length - 1) as f64;
        let chi_square: f64 = differences[1..].iter().map(|count| (count - expected).powi(2) / expected).sum();
        let freedom = length as f64 - 2.0;
        assert!(chi_square < freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi_square}");
    }

    #[test]
    fn the_numbers_are_a_promise() {
        // A resumed epoch goes on with the order of the version that began it: these values never change.
        let at = |length, position| Permutation::new(1, 2, 3, length).at(position);
        assert_eq!([at(10, 0), at(10, 9), at(1000, 0), at(1000, 999), at(1 << 40, 12_345)], PROMISED);
    }

    const PROMISED: [u64; 5] = [5, 6, 937, 49, 734_948_972_656];
}
