//! The order of an epoch: a pure function from (epoch, position) to the number of an example.
//!
//! An order is a small value composed of others and never a list: any range of positions is computed in memory that
//! does not depend on the length of the order.

pub mod key_hash;
pub mod mix;
pub mod permutation;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::interrupt;
use crate::order::mix::Mix;
use crate::order::permutation::Permutation;

/// Positions and numbers are below this.
pub const MAX_LENGTH: u64 = i64::MAX as u64;

/// Numbers that are made between two checks whether the work must end.
const NUMBERS: usize = 1 << 16;

/// How many steps an order may be made of, one on the other.
const MAX_DEPTH: usize = 100;

/// Which example comes at which position.
#[derive(Clone, Debug)]
pub struct Order(Arc<OrderNode>);

#[derive(Debug)]
struct OrderNode {
    step: OrderStep,
    /// How many positions; `None` for ever.
    length: Option<u64>,
    depth: usize,
}

#[derive(Debug)]
enum OrderStep {
    /// Numbers from here on.
    Span(u64),
    /// One after the other, with where each ends.
    Concat(Vec<Order>, Vec<u64>),
    Mix(Mix),
    Shuffle {
        inner: Order,
        seed: u64,
        window: u64,
    },
    /// Epochs of the inner order, how many in one of ours.
    Repeat {
        inner: Order,
        epochs: u64,
    },
    /// Every `stride`th position from `start` on, beginning again at `wrap`.
    Slice {
        inner: Order,
        start: u64,
        stride: u64,
        wrap: Option<u64>,
    },
    /// Stretches of the inner order, about as long as each other, that take turns.
    Lanes {
        inner: Order,
        count: u64,
    },
    Echo {
        inner: Order,
        times: u64,
    },
}

/// What sets the permutations of a shuffle apart: the whole's or the windows' order, the rotation, and from here on
/// one for each window.
const WHOLE: u64 = 0;
const ROTATION: u64 = 1;
const WINDOWS: u64 = 2;

fn limited(length: Option<u64>) -> Result<u64> {
    length
        .filter(|&length| length <= MAX_LENGTH)
        .ok_or_else(|| Error::usage(format!("expected an order of at most {MAX_LENGTH} positions, got a longer one")))
}

fn positive(what: &str, value: u64) -> Result<()> {
    match value {
        0 => Err(Error::usage(format!("expected {what} to be 1 or more, got 0"))),
        _ => Ok(()),
    }
}

impl Order {
    fn new(step: OrderStep, length: Option<u64>, parts: &[Order]) -> Result<Order> {
        let length = length.map(|length| limited(Some(length))).transpose()?;
        let depth = 1 + parts.iter().map(|part| part.0.depth).max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(Error::usage(format!("expected at most {MAX_DEPTH} steps in an order, got {depth}")));
        }
        Ok(Order(Arc::new(OrderNode { step, length, depth })))
    }

    /// The numbers from `start` to before `stop`.
    pub fn span(start: u64, stop: u64) -> Result<Order> {
        let length = stop.checked_sub(start);
        let length = length.ok_or_else(|| Error::usage(format!("expected a span, got {start}..{stop}")))?;
        limited(Some(stop))?;
        Order::new(OrderStep::Span(start), Some(length), &[])
    }

    /// All of the first, then all of the second, and so on.
    pub fn concat(parts: Vec<Order>) -> Result<Order> {
        if let [only] = &parts[..] {
            return Ok(only.clone());
        }
        let mut ends = Vec::with_capacity(parts.len());
        let mut end = Some(0u64);
        for part in &parts {
            let start = end.ok_or_else(|| {
                Error::usage("expected only the last part to go on for ever, got one before it")
                    .advise("Take a number of examples of it.")
            })?;
            end = part.length().map(|length| limited(start.checked_add(length))).transpose()?;
            ends.push(end.unwrap_or(MAX_LENGTH));
        }
        // Neighbours that make one span are one.
        let spans: Option<Vec<u64>> = parts.iter().map(Order::span_start).collect();
        if let (Some(starts), Some(length)) = (spans, end) {
            let first = starts.first().copied().unwrap_or(0);
            if starts[1.min(starts.len())..].iter().zip(&ends).all(|(&start, end)| start == first + end) {
                return Order::span(first, first + length);
            }
        }
        let kept = parts.clone();
        Order::new(OrderStep::Concat(parts, ends), end, &kept)
    }

    fn span_start(&self) -> Option<u64> {
        match self.0.step {
            OrderStep::Span(start) => Some(start),
            _ => None,
        }
    }

    /// Parts by turns, as their weights say; it ends before the first position whose part has no more.
    pub fn mix(parts: Vec<Order>, weights: &[f64], seed: u64) -> Result<Order> {
        let kept = parts.clone();
        let mix = Mix::new(parts, weights, seed)?;
        let length = mix.length()?;
        Order::new(OrderStep::Mix(mix), length, &kept)
    }

    /// A permutation of the whole, another one each epoch. With a window, windows of that many neighbours come in a
    /// shuffled order, each shuffled in itself: reads in order stay within a window.
    pub fn shuffle(&self, seed: u64, window: Option<u64>) -> Result<Order> {
        let Some(length) = self.length() else {
            let error = Error::usage("expected an order that ends, got one that goes on for ever");
            return Err(error.advise("Shuffle first, then repeat."));
        };
        window.map(|window| positive("the window", window)).transpose()?;
        let window = window.unwrap_or(length).min(length);
        Order::new(OrderStep::Shuffle { inner: self.clone(), seed, window }, Some(length), std::slice::from_ref(self))
    }

    /// Some epochs one after the other, or epochs for ever.
    pub fn repeat(&self, count: Option<u64>) -> Result<Order> {
        count.map(|count| positive("the number of repetitions", count)).transpose()?;
        let length = match (self.length(), count) {
            (Some(0), _) => Some(0),
            (Some(length), Some(count)) => Some(limited(length.checked_mul(count))?),
            (None, _) | (_, None) => None,
        };
        Order::new(
            OrderStep::Repeat { inner: self.clone(), epochs: count.unwrap_or(1) },
            length,
            std::slice::from_ref(self),
        )
    }

    /// Every `stride`th position from `start` to before `stop`, or to the end. Positions beyond the end are left out,
    /// or with `wrap` begin again at the first.
    pub fn slice(&self, start: u64, stop: Option<u64>, stride: u64, wrap: bool) -> Result<Order> {
        positive("the step", stride)?;
        let stop = match (self.length(), stop) {
            (Some(1..), Some(stop)) if wrap => Some(limited(Some(stop))?),
            (Some(length), stop) => Some(stop.map_or(length, |stop| stop.min(length))),
            (None, stop) => stop,
        };
        let length = stop.map(|stop| stop.saturating_sub(start).div_ceil(stride));
        let wrap = self.length().filter(|&length| wrap && length > 0);
        Order::new(OrderStep::Slice { inner: self.clone(), start, stride, wrap }, length, std::slice::from_ref(self))
    }

    /// So many stretches of it take turns. Dealt out to as many hosts, or to a number that divides it, each host has
    /// stretches of its own: it reads on where it was.
    pub fn lanes(&self, count: u64) -> Result<Order> {
        positive("the number of lanes", count)?;
        let Some(length) = self.length() else {
            let error = Error::usage("expected an order that ends, got one that goes on for ever");
            return Err(error.advise("Make lanes first, then repeat."));
        };
        Order::new(OrderStep::Lanes { inner: self.clone(), count }, Some(length), std::slice::from_ref(self))
    }

    /// Each example some times in a row.
    pub fn echo(&self, times: u64) -> Result<Order> {
        positive("the number of times", times)?;
        let length = self.length().map(|length| limited(length.checked_mul(times))).transpose()?;
        Order::new(OrderStep::Echo { inner: self.clone(), times }, length, std::slice::from_ref(self))
    }

    /// How many positions; `None` for ever.
    pub fn length(&self) -> Option<u64> {
        self.0.length
    }

    /// The examples of some positions of an epoch.
    pub fn numbers(&self, epoch: u64, start: u64, out: &mut [u64]) -> Result<()> {
        let end = self.length().unwrap_or(MAX_LENGTH);
        if start.checked_add(out.len() as u64).is_none_or(|stop| stop > end) {
            let message = format!("expected positions below {end}, got {} from {start} on", out.len());
            return Err(Error::usage(message));
        }
        let mut next = start;
        for part in out.chunks_mut(NUMBERS) {
            interrupt::check()?;
            part.iter_mut().zip(next..).for_each(|(slot, position)| *slot = position);
            next += part.len() as u64;
            self.apply(epoch, part);
        }
        Ok(())
    }

    /// Replaces positions, which must be below the length, by where they were before the slices at the end were taken:
    /// an example keeps its position in the global order on whichever host `shard` puts it.
    pub fn places(&self, positions: &mut [u64]) {
        if let OrderStep::Slice { inner, .. } = &self.0.step {
            self.deal(positions);
            inner.places(positions);
        }
    }

    fn deal(&self, positions: &mut [u64]) {
        if let OrderStep::Slice { start, stride, wrap, .. } = self.0.step {
            for position in positions {
                *position = start.saturating_add(position.saturating_mul(stride));
                if let Some(length) = wrap.filter(|&length| *position >= length) {
                    *position %= length;
                }
            }
        }
    }

    /// Replaces positions, which must be below the length, by numbers.
    pub(crate) fn apply(&self, epoch: u64, positions: &mut [u64]) {
        match &self.0.step {
            OrderStep::Span(start) => positions.iter_mut().for_each(|position| *position += start),
            OrderStep::Concat(parts, ends) => {
                let part_of = |&position: &u64| ends.partition_point(|&end| end <= position);
                for_each_run(positions, part_of, |part, positions| {
                    let start = part.checked_sub(1).map_or(0, |before| ends[before]);
                    positions.iter_mut().for_each(|position| *position -= start);
                    parts[part].apply(epoch, positions);
                });
            }
            OrderStep::Mix(mix) => mix.apply(epoch, positions),
            OrderStep::Shuffle { inner, seed, window } => {
                self.shuffled(*seed, epoch, *window, positions);
                inner.apply(epoch, positions);
            }
            OrderStep::Repeat { inner, epochs } => {
                let length = inner.length().unwrap_or(u64::MAX);
                for_each_run(
                    positions,
                    |position| position / length,
                    |copy, positions| {
                        positions.iter_mut().for_each(|position| *position -= copy * length);
                        inner.apply(epoch.wrapping_mul(*epochs).wrapping_add(copy), positions);
                    },
                );
            }
            OrderStep::Slice { inner, .. } => {
                self.deal(positions);
                inner.apply(epoch, positions);
            }
            OrderStep::Lanes { inner, count } => {
                let (whole, longer) = inner.length().map_or((0, 0), |length| (length / count, length % count));
                // A lane at a time: its positions are neighbours below.
                let mut lanes: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
                for (slot, &position) in positions.iter().enumerate() {
                    let lane = position % count;
                    let below = lane * whole + lane.min(longer) + position / count;
                    lanes.entry(lane).or_default().push((slot, below));
                }
                for lane in lanes.values() {
                    let mut numbers: Vec<u64> = lane.iter().map(|&(_, below)| below).collect();
                    inner.apply(epoch, &mut numbers);
                    lane.iter().zip(numbers).for_each(|(&(slot, _), number)| positions[slot] = number);
                }
            }
            OrderStep::Echo { inner, times } => {
                positions.iter_mut().for_each(|position| *position /= times);
                inner.apply(epoch, positions);
            }
        }
    }

    /// A shuffle's positions in the order below it.
    fn shuffled(&self, seed: u64, epoch: u64, window: u64, positions: &mut [u64]) {
        let length = self.length().unwrap_or(0);
        if window == length {
            return Permutation::new(seed, epoch, WHOLE, length).apply(positions);
        }
        // What is left beside whole windows comes last, and is another piece each epoch: the whole is turned first.
        let windows = length / window;
        let order = Permutation::new(seed, epoch, WHOLE, windows);
        let turn = Permutation::new(seed, epoch, ROTATION, length).at(0);
        for_each_run(
            positions,
            |position| position / window,
            |place, positions| {
                let (number, size) = match place < windows {
                    true => (order.at(place), window),
                    false => (windows, length - windows * window),
                };
                positions.iter_mut().for_each(|position| *position -= place * window);
                Permutation::new(seed, epoch, WINDOWS + number, size).apply(positions);
                for position in positions {
                    *position += number * window;
                    *position = if *position < length - turn { *position + turn } else { *position - (length - turn) };
                }
            },
        );
    }
}

/// Calls `work` for each run of neighbours that have the same key.
pub(crate) fn for_each_run<K: PartialEq + Copy>(
    mut positions: &mut [u64],
    key: impl Fn(&u64) -> K,
    mut work: impl FnMut(K, &mut [u64]),
) {
    while let Some(first) = positions.first().map(&key) {
        let count = positions.iter().take_while(|position| key(position) == first).count();
        let (run, rest) = positions.split_at_mut(count);
        work(first, run);
        positions = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(order: &Order, epoch: u64) -> Vec<u64> {
        let mut out = vec![0; order.length().unwrap() as usize];
        order.numbers(epoch, 0, &mut out).unwrap();
        out
    }

    fn span(start: u64, stop: u64) -> Order {
        Order::span(start, stop).unwrap()
    }

    #[test]
    fn steps_do_what_their_names_say() {
        assert_eq!(all(&span(3, 6), 0), [3, 4, 5]);
        assert_eq!(all(&Order::concat(vec![span(3, 5), span(0, 0), span(9, 11)]).unwrap(), 0), [3, 4, 9, 10]);
        assert_eq!(all(&span(0, 2).repeat(Some(2)).unwrap(), 0), [0, 1, 0, 1]);
        assert_eq!(all(&span(0, 9).slice(1, Some(8), 3, false).unwrap(), 0), [1, 4, 7]);
        assert_eq!(all(&span(0, 4).slice(2, Some(9), 2, true).unwrap(), 0), [2, 0, 2, 0]);
        assert_eq!(all(&span(0, 4).slice(2, Some(9), 1, false).unwrap(), 0), [2, 3]);
        assert_eq!(all(&span(4, 6).echo(2).unwrap(), 0), [4, 4, 5, 5]);
        assert_eq!(all(&span(0, 8).lanes(3).unwrap(), 0), [0, 3, 6, 1, 4, 7, 2, 5]);
        assert_eq!(all(&span(0, 2).lanes(3).unwrap(), 0), [0, 1]);
    }

    #[test]
    fn neighbouring_spans_are_one() {
        let joined = Order::concat(vec![span(2, 4), span(4, 4), span(4, 9)]).unwrap();
        assert!(matches!(joined.0.step, OrderStep::Span(2)) && joined.length() == Some(7));
        assert_eq!(all(&Order::concat(vec![]).unwrap(), 0), []);
    }

    #[test]
    fn copies_are_epochs_of_their_own() {
        let shuffled = span(0, 100).shuffle(1, None).unwrap();
        let twice = all(&shuffled.repeat(Some(2)).unwrap(), 3);
        assert_eq!((&twice[..100], &twice[100..]), (&all(&shuffled, 6)[..], &all(&shuffled, 7)[..]));
        let mut ever = vec![0; 250];
        shuffled.repeat(None).unwrap().numbers(3, 0, &mut ever).unwrap();
        assert_eq!((&ever[100..200], &ever[200..]), (&all(&shuffled, 4)[..], &all(&shuffled, 5)[..50]));
    }

    #[test]
    fn a_window_is_read_as_a_whole() {
        for (length, window) in [(1000, 10), (1003, 100), (50, 49), (50, 50), (7, 100), (10, 1)] {
            let order = span(0, length).shuffle(5, Some(window)).unwrap();
            let numbers = all(&order, 1);
            for piece in numbers.chunks(window as usize) {
                let mut sorted = piece.to_vec();
                sorted.sort_unstable();
                // Consecutive, where the last number is followed by the first.
                let gaps = sorted.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
                let around = gaps == 1 && sorted[0] == 0 && *sorted.last().unwrap() == length - 1;
                assert!(gaps == 0 || around, "{length}, {window}: {sorted:?}");
            }
            let mut sorted = numbers;
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..length));
        }
    }

    #[test]
    fn places_are_the_same_whoever_reads() {
        let whole = span(0, 100).shuffle(1, None).unwrap().repeat(None).unwrap();
        let (mut one, mut other) = ([5, 6], [1, 2]);
        whole.slice(7, None, 2, false).unwrap().places(&mut one);
        whole.slice(7, None, 1, false).unwrap().slice(8, None, 2, false).unwrap().places(&mut other);
        assert_eq!((one, other), ([17, 19], [17, 19]));
        whole.places(&mut one);
        assert_eq!(one, [17, 19]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let ever = span(0, 5).repeat(None).unwrap();
        assert!(Order::span(3, 2).is_err() && Order::span(0, u64::MAX).is_err());
        assert!(ever.shuffle(0, None).is_err() && span(0, 5).shuffle(0, Some(0)).is_err());
        assert!(span(0, 5).repeat(Some(0)).is_err() && span(0, 5).echo(0).is_err());
        assert!(span(0, 5).slice(0, None, 0, false).is_err());
        assert!(span(0, MAX_LENGTH).echo(2).is_err() && span(0, MAX_LENGTH).repeat(Some(2)).is_err());
        assert!(
            span(0, 5).numbers(0, 4, &mut [0; 2]).is_err() && span(0, 5).numbers(0, u64::MAX, &mut [0; 2]).is_err()
        );
        assert!(Order::concat(vec![ever.clone(), span(0, 1)]).is_err());
        assert_eq!(Order::concat(vec![span(0, 1), ever]).unwrap().length(), None);
        let deep = (0..200).try_fold(span(0, 5), |order, _| order.echo(1));
        assert!(deep.is_err());
    }

    #[test]
    fn the_order_is_a_promise() {
        // A resumed epoch goes on with the order of the version that began it: these values never change.
        let order = span(0, 1000).shuffle(7, Some(100)).unwrap();
        let mixed = Order::mix(vec![order, span(5000, 9000)], &[2.0, 1.0], 9).unwrap();
        let mut out = [0; 6];
        mixed.numbers(3, 500, &mut out).unwrap();
        assert_eq!((mixed.length(), out), PROMISED);
    }

    const PROMISED: (Option<u64>, [u64; 6]) = (Some(1477), [5158, 758, 689, 739, 732, 733]);
}
