//! The seed of each image's random crop and flip.

use highway::{HighwayHash, HighwayHasher, Key};

/// The number that all randomness of one row of one column comes from.
pub(super) fn seed_of(seed: u64, column: &str, epoch: u64, position: u64) -> u64 {
    HighwayHasher::new(Key([seed, epoch, position, u64::from_le_bytes(*b"IMAGES\0\0")])).hash64(column.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

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
