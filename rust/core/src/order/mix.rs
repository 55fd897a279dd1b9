//! Mixes several orders in given proportions.

use crate::error::{Error, Result};
use crate::order::permutation::Permutation;
use crate::order::{for_each_run, Order, MAX_LENGTH};

/// Every block of this many positions has each part's share of it, rounded up or down.
pub const BLOCK: u64 = 1024;

/// Shares are counted in units of 1 / 2^32.
const UNITS: u32 = 32;

/// Parts and their turns.
#[derive(Debug)]
pub struct Mix {
    parts: Vec<Order>,
    /// The shares of all parts up to and with each, in units.
    cuts: Vec<u64>,
    seed: u64,
}

impl Mix {
    /// Parts with weights, which need not add up to one.
    pub fn new(parts: Vec<Order>, weights: &[f64], seed: u64) -> Result<Mix> {
        if parts.is_empty() || parts.len() != weights.len() {
            let message = format!("expected a weight for each part, got {} for {}", weights.len(), parts.len());
            return Err(Error::usage(message));
        }
        if let Some(empty) = parts.iter().position(|part| part.length() == Some(0)) {
            return Err(Error::usage(format!("expected examples in every part of a mix, got none in part {empty}")));
        }
        if let Some(bad) = weights.iter().find(|weight| !weight.is_finite() || **weight <= 0.0) {
            return Err(Error::usage(format!("expected weights above 0, got {bad}")));
        }
        let total: f64 = weights.iter().sum();
        if !total.is_finite() {
            return Err(Error::usage("expected weights with a sum, got larger ones"));
        }
        let mut sum = 0.0;
        let cuts: Vec<u64> = weights
            .iter()
            .map(|weight| {
                sum += weight;
                (sum / total * (1u64 << UNITS) as f64).round() as u64
            })
            .collect();
        let mix = Mix { parts, cuts, seed };
        match (0..mix.parts.len()).find(|&part| mix.cuts[part] - mix.before(part) < (1 << UNITS) / BLOCK) {
            Some(part) => {
                let message =
                    format!("expected weights of at least 1/{BLOCK} of their sum, got {} of {total}", weights[part]);
                Err(Error::usage(message).advise("Concatenate small parts, or give them a larger weight."))
            }
            None => Ok(mix),
        }
    }

    /// The shares of all parts before one.
    fn before(&self, part: usize) -> u64 {
        part.checked_sub(1).map_or(0, |before| self.cuts[before])
    }

    /// How many turns the parts up to a cut have had before a block.
    fn turns_to(cut: u64, block: u64) -> u128 {
        (u128::from(block) * u128::from(BLOCK) * u128::from(cut)) >> UNITS
    }

    /// How many turns a part has had before a block.
    fn turns(&self, part: usize, block: u64) -> u128 {
        Mix::turns_to(self.cuts[part], block) - Mix::turns_to(self.before(part), block)
    }

    /// Whose turn each position of a block is, and the how-manyth of that part.
    fn block(&self, block: u64) -> Vec<(usize, u64)> {
        let slots = |cut: &u64| (Mix::turns_to(*cut, block + 1) - Mix::turns_to(*cut, block)) as u64;
        let ends: Vec<u64> = self.cuts.iter().map(slots).collect();
        let mut turns: Vec<u64> = (0..self.parts.len()).map(|part| self.turns(part, block) as u64).collect();
        let mut order: Vec<u64> = (0..BLOCK).collect();
        Permutation::new(self.seed, 0, block, BLOCK).apply(&mut order);
        let turn = |slot: u64| {
            let part = ends.partition_point(|&end| end <= slot);
            turns[part] += 1;
            (part, turns[part] - 1)
        };
        order.into_iter().map(turn).collect()
    }

    /// The first position whose part has no more; `None` when all go on for ever.
    pub fn length(&self) -> Result<Option<u64>> {
        let mut first: Option<u64> = None;
        for (part, order) in self.parts.iter().enumerate() {
            let Some(length) = order.length() else { continue };
            // A part has a turn in every block: the turn after its last one is in one of this many.
            let (mut low, mut high) = (0, length);
            while low < high {
                let middle = low + (high - low).div_ceil(2);
                if self.turns(part, middle) <= u128::from(length) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            let start = low.checked_mul(BLOCK).filter(|start| start + BLOCK <= MAX_LENGTH);
            let Some(start) = start else { continue };
            let slot = self.block(low).iter().position(|&turn| turn == (part, length));
            let end = start + slot.map_or(BLOCK, |slot| slot as u64);
            first = Some(first.map_or(end, |first| first.min(end)));
        }
        match first {
            None if self.parts.iter().any(|part| part.length().is_some()) => {
                Err(Error::usage(format!("expected an order of at most {MAX_LENGTH} positions, got a longer one")))
            }
            _ => Ok(first),
        }
    }

    /// Replaces positions by numbers.
    pub fn apply(&self, epoch: u64, positions: &mut [u64]) {
        let mut parts = Vec::with_capacity(positions.len());
        let mut turns = vec![Vec::new(); self.parts.len()];
        for_each_run(
            positions,
            |position| position / BLOCK,
            |number, positions| {
                let block = self.block(number);
                for position in positions {
                    let (part, turn) = block[(*position % BLOCK) as usize];
                    parts.push(part);
                    turns[part].push(turn);
                }
            },
        );
        self.parts.iter().zip(&mut turns).for_each(|(part, turns)| part.apply(epoch, turns));
        let mut next = vec![0; self.parts.len()];
        for (position, part) in positions.iter_mut().zip(parts) {
            *position = turns[part][next[part]];
            next[part] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(lengths: &[u64], weights: &[f64]) -> Mix {
        let parts = lengths.iter().map(|&length| Order::span(0, length).unwrap()).collect();
        Mix::new(parts, weights, 3).unwrap()
    }

    #[test]
    fn shares_hold_in_every_block_and_turns_follow_each_other() {
        let weights = [0.7, 0.297, 0.003];
        let mix = mixed(&[1 << 40; 3], &weights);
        let mut turns = [0u64; 3];
        for number in 0..200 {
            let mut counts = [0f64; 3];
            for (part, turn) in mix.block(number) {
                assert_eq!(turn, turns[part], "part {part} of block {number}");
                turns[part] += 1;
                counts[part] += 1.0;
            }
            assert!(counts.iter().zip(weights).all(|(count, weight)| (count - weight * 1024.0).abs() < 2.0));
        }
        let total = 200.0 * 1024.0;
        assert!(turns.iter().zip(weights).all(|(&turns, weight)| (turns as f64 - weight * total).abs() < 2.0));
    }

    #[test]
    fn it_ends_before_the_first_part_that_has_no_more() {
        for lengths in [[1, 100], [100, 1], [5000, 17], [716, 100_000], [717, 307], [1 << 40, 9999]] {
            let mix = mixed(&lengths, &[0.7, 0.3]);
            let length = mix.length().unwrap().unwrap();
            let turn = |position: u64| mix.block(position / BLOCK)[(position % BLOCK) as usize];
            let (part, next) = turn(length);
            assert_eq!(next, lengths[part], "{lengths:?}");
            assert!((length.saturating_sub(3000)..length).all(|position| turn(position).1 < lengths[turn(position).0]));
        }
    }

    #[test]
    fn odd_weights_are_refused() {
        let part = || Order::span(0, 10).unwrap();
        for weights in [&[1.0][..], &[1.0, 0.0], &[1.0, -1.0], &[f64::NAN, 1.0], &[f64::INFINITY, 1.0], &[1.0, 1e-4]] {
            assert!(Mix::new(vec![part(), part()], weights, 0).is_err(), "{weights:?}");
        }
        assert!(Mix::new(vec![part(), part()], &[f64::MAX, f64::MAX], 0).is_err());
        assert!(Mix::new(vec![part(), Order::span(5, 5).unwrap()], &[1.0, 1.0], 0).is_err());
        assert!(Mix::new(vec![], &[], 0).is_err());
    }
}
