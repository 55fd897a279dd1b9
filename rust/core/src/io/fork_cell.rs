//! A cell that is filled once, in a process that may be forked at any moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// Number of times a thread checks for a value that another thread is storing.
const PATIENCE: usize = 1000;

/// A cell that is filled once. Unlike `OnceLock`, it does not block on a thread that was storing its value when the
/// process was forked and does not exist in the child: a second place is used then.
#[derive(Debug)]
pub(crate) struct ForkCell<T>([Place<T>; 2]);

#[derive(Debug)]
struct Place<T> {
    taken: AtomicBool,
    value: OnceLock<T>,
}

impl<T> Default for ForkCell<T> {
    fn default() -> Self {
        ForkCell(std::array::from_fn(|_| Place { taken: AtomicBool::new(false), value: OnceLock::new() }))
    }
}

impl<T> ForkCell<T> {
    /// Return the value, if the cell is filled.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.iter().find_map(|place| place.value.get())
    }

    /// Store a value unless another thread has stored one, and return the stored value. `None` only if forks left both
    /// places half filled.
    pub(crate) fn fill(&self, value: T) -> Option<&T> {
        for place in &self.0 {
            if !place.taken.swap(true, Ordering::AcqRel) {
                return Some(place.value.get_or_init(|| value));
            }
            for _ in 0..PATIENCE {
                if let Some(value) = place.value.get() {
                    return Some(value);
                }
                std::thread::yield_now();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_stays() {
        let once = ForkCell::default();
        assert_eq!(once.get(), None);
        assert_eq!((once.fill(1), once.fill(2), once.get()), (Some(&1), Some(&1), Some(&1)));
    }

    #[test]
    fn a_place_that_was_left_behind_is_replaced() {
        let once = ForkCell::default();
        once.0[0].taken.store(true, Ordering::Relaxed);
        assert_eq!((once.fill(1), once.get(), once.fill(2)), (Some(&1), Some(&1), Some(&1)));
        let broken = ForkCell::default();
        broken.0.iter().for_each(|place| place.taken.store(true, Ordering::Relaxed));
        assert_eq!(broken.fill(1), None);
    }

    #[test]
    fn threads_agree() {
        let once = ForkCell::default();
        let found: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|number| {
                    scope.spawn({
                        let once = &once;
                        move || *once.fill(number).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|number| number == once.get().unwrap()));
    }
}
