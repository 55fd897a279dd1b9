//! Memory that is used again: to get it from the system anew costs more than to fill it.

use std::sync::Mutex;

/// Buffers that were let go, for whoever needs one.
pub struct Spare<T> {
    kept: Mutex<Vec<Vec<T>>>,
    most: usize,
    largest: usize,
}

/// Smaller buffers come from the allocator's own stock.
const WORTH_KEEPING: usize = 1 << 16;

impl<T> Spare<T> {
    /// Keeps `most` buffers of less than `largest` bytes.
    pub const fn new(most: usize, largest: usize) -> Spare<T> {
        Spare { kept: Mutex::new(Vec::new()), most, largest }
    }

    /// An empty vector with room for `length` elements. Never waits for a lock: a fork may have left it locked for good.
    pub fn take(&self, length: usize) -> Vec<T> {
        let fits = |kept: &Vec<T>| kept.capacity() >= length && kept.capacity() / 4 <= length;
        let kept = match length * size_of::<T>() {
            0..WORTH_KEEPING => None,
            _ => self.kept.try_lock().ok().and_then(|mut all| all.iter().position(fits).map(|at| all.swap_remove(at))),
        };
        kept.unwrap_or_else(|| Vec::with_capacity(length))
    }

    /// Leaves a vector for others.
    pub fn give(&self, mut used: Vec<T>) {
        if !(WORTH_KEEPING..self.largest).contains(&(used.capacity() * size_of::<T>())) {
            return;
        }
        if let Ok(mut all) = self.kept.try_lock() {
            used.clear();
            if all.len() == self.most {
                all.remove(0);
            }
            all.push(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_is_used_again() {
        let spare: Spare<u8> = Spare::new(2, 1 << 20);
        let first = spare.take(1 << 19);
        let place = first.as_ptr();
        spare.give(first);
        let (larger, smaller) = (spare.take(1 << 20), spare.take(1 << 16));
        assert!(larger.as_ptr() != place && smaller.as_ptr() != place, "too small, or most of it would lie idle");
        let again = spare.take(1 << 18);
        assert!(again.as_ptr() == place && again.is_empty());
        spare.give(Vec::with_capacity(10));
        spare.give(Vec::with_capacity(1 << 20));
        assert!(spare.kept.lock().unwrap().is_empty(), "too small, too large");
        (0..5).for_each(|_| spare.give(Vec::with_capacity(1 << 17)));
        assert_eq!(spare.kept.lock().unwrap().len(), 2);
    }
}
