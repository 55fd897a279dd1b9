//! A pool of buffers: reusing memory costs less than allocating and zeroing it again.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::error::Result;
use crate::limits;

/// Buffers that are free for reuse.
pub struct BufferPool<T> {
    kept: Mutex<VecDeque<Vec<T>>>,
    most: usize,
    largest: usize,
}

/// Smaller buffers come from the allocator's own stock.
const WORTH_KEEPING: usize = 1 << 16;

impl<T> BufferPool<T> {
    /// Keeps `most` bytes in all, in buffers of less than `largest` bytes.
    pub const fn new(most: usize, largest: usize) -> BufferPool<T> {
        BufferPool { kept: Mutex::new(VecDeque::new()), most, largest }
    }

    /// An empty vector with room for `length` elements, if possible what was used last: the processor may still have it
    /// at hand. Never waits for a lock: a fork may have left it locked for good.
    pub fn take(&self, length: usize) -> Vec<T> {
        self.find(length).unwrap_or_else(|| Vec::with_capacity(length))
    }

    /// The same where `length` comes from data or from a schema: an error if there is not as much memory.
    pub fn try_take(&self, length: usize) -> Result<Vec<T>> {
        let mut made = self.find(length).unwrap_or_default();
        limits::reserve(&mut made, length)?;
        Ok(made)
    }

    fn find(&self, length: usize) -> Option<Vec<T>> {
        let fits = |kept: &Vec<T>| kept.capacity() >= length && kept.capacity() / 4 <= length;
        match length.saturating_mul(size_of::<T>()) {
            0..WORTH_KEEPING => None,
            _ => self.kept.try_lock().ok().and_then(|mut all| all.iter().rposition(fits).and_then(|at| all.remove(at))),
        }
    }

    /// Leaves a vector for others; what was left long ago makes room for it.
    pub fn give(&self, mut used: Vec<T>) {
        if !(WORTH_KEEPING..self.largest).contains(&bytes(&used)) {
            return;
        }
        if let Ok(mut all) = self.kept.try_lock() {
            used.clear();
            all.push_back(used);
            let mut held: usize = all.iter().map(bytes).sum();
            while held > self.most {
                held -= all.pop_front().as_ref().map_or(held, bytes);
            }
        }
    }
}

fn bytes<T>(buffer: &Vec<T>) -> usize {
    buffer.capacity() * size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_is_used_again() {
        let spare: BufferPool<u8> = BufferPool::new(1 << 22, 1 << 20);
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
    }

    #[test]
    fn no_more_than_its_bytes_is_kept_and_the_newest_of_them() {
        let spare: BufferPool<u64> = BufferPool::new(1 << 20, 1 << 20);
        let made: Vec<Vec<u64>> = (0..12).map(|_| Vec::with_capacity(1 << 15)).collect();
        let places: Vec<*const u64> = made.iter().map(|buffer| buffer.as_ptr()).collect();
        made.into_iter().for_each(|buffer| spare.give(buffer));
        let kept: Vec<*const u64> = spare.kept.lock().unwrap().iter().map(|buffer| buffer.as_ptr()).collect();
        assert_eq!(kept, places[8..], "a quarter of a mebibyte each");
        let taken = spare.take(1 << 15);
        assert_eq!(taken.as_ptr(), places[11]);
    }
}
