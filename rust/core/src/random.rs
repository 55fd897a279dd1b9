//! SplitMix64: random numbers that are a pure function of a seed.

/// SplitMix64 (Steele, Lea, Flood, 2014): a counter and a mixing function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Return the next 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Return a number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Return an integer below `limit`; 0 for a limit of 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The first outputs for the seed 1234567, as published with the algorithm's reference implementation.
        let mut random = SplitMix64(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_below_their_limit_and_spread() {
        let mut random = SplitMix64(7);
        let mut counts = [0usize; 5];
        (0..50_000).for_each(|_| counts[random.below(5)] += 1);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        let mean = (0..50_000).map(|_| random.unit()).sum::<f64>() / 50_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
    }
}
