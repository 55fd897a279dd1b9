//! What is made once and stays, in a process that may be forked at any moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// How often a thread looks for what another one is putting into its place.
const PATIENCE: usize = 1000;

/// A place that is filled once. Unlike a `OnceLock`, nobody waits for a thread that a fork left behind in the middle of
/// filling it: then there is a second place.
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
    /// What was put there.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.iter().find_map(|place| place.value.get())
    }

    /// Puts a value there, unless another thread was faster, and returns what is there. `None` only if a fork left both
    /// places behind.
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
