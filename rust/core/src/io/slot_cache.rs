//! A process-wide cache of values in slots: evicts the oldest value beyond a budget, and never waits for a lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, RwLock, TryLockError, Weak};

/// Holds a value while it is cached.
pub(crate) type Slot<T> = Arc<RwLock<Option<T>>>;

type FilledSlot<T> = (Weak<RwLock<Option<T>>>, u64);

/// The filled slots, oldest first, each with its cost.
#[derive(Debug)]
pub(crate) struct SlotCache<T> {
    kept: Mutex<VecDeque<FilledSlot<T>>>,
    most: u64,
}

/// Number of slots that stay filled whatever they cost: two threads may work on both sides of a boundary between slots.
const ALWAYS: usize = 2;

/// Attempts to lock: other threads hold the lock for a few hundred nanoseconds.
const PATIENCE: usize = 1000;

impl<T> SlotCache<T> {
    /// Create a cache whose values cost at most `most` in total.
    pub(crate) const fn new(most: u64) -> SlotCache<T> {
        SlotCache { kept: Mutex::new(VecDeque::new()), most }
    }

    /// Fill a slot, and evict the oldest values if the total cost is above the budget.
    ///
    /// Does not cache the value if a lock is not free: a fork may have left it locked for good.
    pub(crate) fn keep(&self, slot: &Slot<T>, value: T, cost: u64) {
        let Some(mut kept) = (0..PATIENCE).find_map(|_| match self.kept.try_lock() {
            Ok(kept) => Some(kept),
            Err(TryLockError::Poisoned(kept)) => Some(kept.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::hint::spin_loop();
                None
            }
        }) else {
            return;
        };
        // Evicted values are dropped after the lock is released.
        let mut old = Vec::new();
        match slot.try_write() {
            Ok(mut place) if place.is_none() => *place = Some(value),
            _ => return,
        }
        kept.push_back((Arc::downgrade(slot), cost));
        kept.retain(|(slot, _)| slot.strong_count() > 0);
        let mut total: u64 = kept.iter().map(|(_, cost)| cost).sum();
        // A value that is being read is evicted later.
        for _ in 0..kept.len() - 1 {
            if total <= self.most || kept.len() <= ALWAYS {
                break;
            }
            let Some((oldest, cost)) = kept.pop_front() else { break };
            let busy =
                oldest.upgrade().is_some_and(|slot| slot.try_write().map(|mut place| old.push(place.take())).is_err());
            if busy {
                kept.push_back((oldest, cost));
            } else {
                total -= cost;
            }
        }
        drop(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(slots: &[Slot<u8>]) -> Vec<usize> {
        (0..slots.len()).filter(|&number| slots[number].read().unwrap().is_some()).collect()
    }

    #[test]
    fn the_oldest_is_let_go() {
        let recent = SlotCache::new(30);
        let slots: Vec<Slot<u8>> = (0..6).map(|_| Slot::default()).collect();
        slots.iter().for_each(|slot| recent.keep(slot, 1, 10));
        assert_eq!(full(&slots), [3, 4, 5]);
        recent.keep(&slots[0], 1, 10);
        assert_eq!(full(&slots), [0, 4, 5]);
    }

    #[test]
    fn what_is_read_from_stays_and_what_is_dropped_counts_no_more() {
        let recent = SlotCache::new(30);
        let mut slots: Vec<Slot<u8>> = (0..6).map(|_| Slot::default()).collect();
        recent.keep(&slots[0], 1, 10);
        let first = slots[0].clone();
        let reading = first.read().unwrap();
        slots[1..4].iter().for_each(|slot| recent.keep(slot, 1, 10));
        assert_eq!(full(&slots), [0, 2, 3]);
        drop(reading);
        slots.drain(2..4);
        recent.keep(&slots[2], 1, 10);
        assert_eq!(full(&slots), [0, 2]);
        recent.keep(&slots[3], 1, 1000);
        assert_eq!(full(&slots), [2, 3], "two are kept whatever they cost");
    }
}
