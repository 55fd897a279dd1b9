//! Random numbers that are a pure function of a seed.

use highway::{HighwayHash, HighwayHasher, Key};

/// SplitMix64 (Steele, Lea, Flood, 2014): a counter that is mixed well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number from 0 up to 1, that excluded.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `limit`; 0 for a limit of 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}

/// The number that all randomness of one row of one column comes from.
pub(super) fn seed_of(seed: u64, column: &str, epoch: u64, position: u64) -> u64 {
    HighwayHasher::new(Key([seed, epoch, position, u64::from_le_bytes(*b"IMAGES\0\0")])).hash64(column.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The first outputs for the seed 1234567, as published with the algorithm's reference implementation.
        let mut random = Random(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_below_their_limit_and_spread() {
        let mut random = Random(7);
        let mut counts = [0usize; 5];
        (0..50_000).for_each(|_| counts[random.below(5)] += 1);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        let mean = (0..50_000).map(|_| random.unit()).sum::<f64>() / 50_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
    }

    #[test]
    fn rows_columns_epochs_and_seeds_differ() {
        let all = [
            seed_of(0, "a", 0, 0),
            seed_of(1, "a", 0, 0),
            seed_of(0, "b", 0, 0),
            seed_of(0, "a", 1, 0),
            seed_of(0, "a", 0, 1),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| other != one));
        }
    }
}
