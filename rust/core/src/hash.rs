//! The order of records at build: by a keyed hash, so that it depends on neither workers nor the order of the input.

use highway::{HighwayHash, HighwayHasher, Key};

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
}

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
    fn the_order_is_a_promise() {
        // Datasets built by earlier versions were ordered by these values: they never change.
        assert_eq!(Hasher::for_keys(0, "train").hash(b"0"), PROMISED[0]);
        assert_eq!(Hasher::for_content().hash(b""), PROMISED[1]);
    }

    const PROMISED: [u64; 2] = [14_026_246_264_401_924_922, 5_636_965_584_865_342_373];
}
