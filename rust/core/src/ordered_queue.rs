//! Ordered work on many threads: results arrive in the order of one thread, with a bounded number in flight.
//!
//! Threads live as long as the work they were started for: there is no pool that a fork could break.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{contained, Error, Result};
use crate::interrupt;

/// A queue of numbered results, taken in order.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    room: Condvar,
    ready: Condvar,
    limits: Limits,
}

/// Limits on results in flight; one is always allowed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of results claimed and not taken.
    pub ahead: usize,
    /// Maximum number claimed before the size of any is known.
    pub at_first: usize,
    /// Maximum bytes of results in flight; unfinished ones count as the largest so far.
    pub bytes: usize,
}

struct State<T> {
    /// The next number to be claimed.
    claimed: usize,
    /// The next number to be taken; `done[0]` is its result.
    taken: usize,
    done: VecDeque<Option<T>>,
    /// Number of finished results, and the size of the largest.
    made: usize,
    largest: usize,
    /// Bytes of finished results that are not released yet.
    waiting: usize,
    closed: bool,
    /// Panic of a worker thread.
    failure: Option<Error>,
    /// Total number of results, once known.
    end: Option<usize>,
    /// Time that threads waited for budget.
    full: Duration,
}

/// Outcome of [`Queue::take`].
#[derive(Debug, PartialEq, Eq)]
pub enum NextItem<T> {
    /// The next result.
    Item(T),
    /// Nothing yet.
    NotYet,
    /// No more results.
    End,
}

impl<T> Queue<T> {
    /// A queue without results yet.
    pub fn new(limits: Limits) -> Self {
        let state = State {
            claimed: 0,
            taken: 0,
            done: VecDeque::new(),
            made: 0,
            largest: 0,
            waiting: 0,
            closed: false,
            failure: None,
            end: None,
            full: Duration::ZERO,
        };
        Queue { state: Mutex::new(state), room: Condvar::new(), ready: Condvar::new(), limits }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A worker that panics closes the queue; the guarded state is consistent at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, state: &State<T>) -> bool {
        let ahead = state.claimed - state.taken;
        if ahead == 0 {
            return true;
        }
        let making = state.claimed - state.made;
        let expected = state.waiting.saturating_add(state.largest.saturating_mul(making + 1));
        ahead < self.limits.ahead && expected <= self.limits.bytes && (state.made > 0 || ahead < self.limits.at_first)
    }

    /// Wait for budget, then return the next number and the work that `cut` returns for it. `None` if `cut` returns
    /// nothing or the queue is closed. `cut` is called for one number after the other.
    pub fn claim<W>(&self, cut: impl FnOnce(usize) -> Option<W>) -> Option<(usize, W)> {
        let mut state = self.lock();
        let over = |state: &State<T>| state.closed || state.end.is_some_and(|end| state.claimed >= end);
        while !over(&state) && !self.has_room(&state) {
            let began = Instant::now();
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.full += began.elapsed();
        }
        if over(&state) {
            return None;
        }
        let work = cut(state.claimed);
        match work {
            Some(work) => {
                state.claimed += 1;
                state.done.push_back(None);
                if self.has_room(&state) {
                    self.room.notify_one();
                }
                Some((state.claimed - 1, work))
            }
            None => {
                let end = state.claimed;
                drop(state);
                self.end_at(end);
                None
            }
        }
    }

    /// Set the end: numbers from `end` on have no result.
    pub fn end_at(&self, end: usize) {
        let mut state = self.lock();
        state.end = Some(state.end.map_or(end, |known| known.min(end)));
        self.room.notify_all();
        self.ready.notify_one();
    }

    /// Deliver the result of a claimed number, and its size in bytes.
    pub fn deliver(&self, number: usize, result: T, bytes: usize) {
        let mut state = self.lock();
        let Some(slot) = number.checked_sub(state.taken) else { return };
        state.made += 1;
        state.largest = state.largest.max(bytes);
        state.waiting += bytes;
        if let Some(place) = state.done.get_mut(slot) {
            *place = Some(result);
        }
        if slot == 0 {
            self.ready.notify_one();
        }
        if state.made == 1 {
            self.room.notify_all();
        }
    }

    /// Release this many bytes of taken results from the budget.
    pub fn release(&self, bytes: usize) {
        let mut state = self.lock();
        state.waiting = state.waiting.saturating_sub(bytes);
        if self.has_room(&state) {
            self.room.notify_one();
        }
    }

    /// Close the queue: claims return nothing, takes return the end.
    pub fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
        self.ready.notify_one();
    }

    /// Return true if all results were taken.
    fn is_complete(&self) -> bool {
        let state = self.lock();
        !state.closed && state.end.is_some_and(|end| state.taken >= end)
    }

    /// Return the panic of a worker thread; the queue is closed then.
    pub fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }

    /// Run a worker thread. A panic closes the queue, so that no thread waits for this one.
    pub(crate) fn serve(&self, work: impl FnOnce()) {
        let ended = contained(|| {
            work();
            Ok(())
        });
        if let Err(error) = ended {
            self.lock().failure.get_or_insert(error);
            self.close();
        }
    }

    /// Return true if the queue is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Bytes of finished results that are not released yet.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Total time that threads waited for budget.
    pub fn full(&self) -> Duration {
        self.lock().full
    }

    /// Return the next result in order; wait at most `patience`.
    pub fn take(&self, patience: Duration) -> NextItem<T> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if state.closed {
                return NextItem::End;
            }
            if state.done.front().is_some_and(Option::is_some) {
                let result = state.done.pop_front().flatten();
                state.taken += 1;
                if self.has_room(&state) {
                    self.room.notify_one();
                }
                return result.map_or(NextItem::NotYet, NextItem::Item);
            }
            if state.end.is_some_and(|end| state.taken >= end) {
                return NextItem::End;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return NextItem::NotYet;
            }
            state = self.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Run `work` for 0, 1 ... on `threads` threads and pass the results to `sink` in order, on this thread.
/// The first error ends the work.
pub fn in_order<T: Send>(
    threads: usize,
    tasks: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
    sink: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut numbers = 0..tasks;
    pipeline(threads.min(tasks), || Ok(numbers.next()), work, sink)
}

/// Run `work` for each item of `next` on `threads` threads that take turns to call it, and pass the results to `sink`
/// in order, on this thread. The first error ends the work; a panic in any of the three is an error.
pub fn pipeline<S, T: Send>(
    threads: usize,
    mut next: impl FnMut() -> Result<Option<S>> + Send,
    work: impl Fn(S) -> Result<T> + Sync,
    mut sink: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    if threads <= 1 {
        return contained(|| {
            while let Some(item) = next()? {
                interrupt::check()?;
                sink(work(item)?)?;
            }
            Ok(())
        });
    }
    let queue = Queue::new(Limits { ahead: threads * 2, at_first: threads, bytes: usize::MAX });
    let next = Mutex::new(next);
    let turn = || {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, ()) = queue.claim(|_| Some(()))?;
        let item = contained(&mut *next).transpose();
        if !matches!(item, Some(Ok(_))) {
            queue.end_at(number + usize::from(item.is_some())); // nothing comes after an error
        }
        item.map(|item| (number, item))
    };
    let watch = interrupt::current();
    let serve = || {
        while let Some((number, item)) = turn() {
            queue.deliver(number, item.and_then(|item| contained(|| work(item))), 0);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| queue.serve(|| watch.enter(serve)));
        }
        loop {
            let result = match queue.take(interrupt::INTERVAL) {
                NextItem::Item(result) => {
                    result.and_then(|item| contained(|| sink(item))).and_then(|()| interrupt::check())
                }
                NextItem::NotYet => interrupt::check(),
                NextItem::End if queue.is_complete() => return Ok(()),
                NextItem::End => Err(queue.failure().unwrap_or_else(|| Error::usage("expected a queue that is open"))),
            };
            if let Err(error) = result {
                queue.close();
                return Err(error);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order_for_any_number_of_threads() {
        for threads in [0, 1, 2, 8] {
            let mut seen = Vec::new();
            in_order(
                threads,
                100,
                |n| {
                    std::thread::sleep(Duration::from_micros((100 - n) as u64));
                    Ok(n)
                },
                |n| {
                    seen.push(n);
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(seen, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_so_many_are_ahead() {
        let (made, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        in_order(
            2,
            200,
            |_| {
                let ahead = made.fetch_add(1, Ordering::SeqCst) + 1 - taken.load(Ordering::SeqCst);
                assert!(ahead <= 6, "{ahead} ahead");
                Ok(())
            },
            |()| {
                std::thread::sleep(Duration::from_micros(50));
                taken.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
        )
        .unwrap();
    }

    #[test]
    fn an_error_on_either_side_ends_it() {
        let work = |n| if n == 50 { Err(Error::usage("no")) } else { Ok(n) };
        assert!(in_order(4, 10_000, work, |_| Ok(())).is_err());
        let mut seen = 0;
        assert!(in_order(4, 10_000, Ok, |n| {
            seen = n;
            if n == 7 {
                Err(Error::usage("no"))
            } else {
                Ok(())
            }
        })
        .is_err());
        assert_eq!(seen, 7);
    }

    #[test]
    fn a_panic_is_an_error_with_its_message_wherever_it_is() {
        fn purpose(when: bool) {
            assert!(!when, "on purpose");
        }
        for threads in [1, 2, 5] {
            for place in ["next", "work", "sink"] {
                let mut numbers = 0..1000;
                let mut seen = Vec::new();
                let result = pipeline(
                    threads,
                    || {
                        purpose(place == "next" && numbers.start == 20);
                        Ok(numbers.next())
                    },
                    |number| {
                        purpose(place == "work" && number == 20);
                        Ok(number)
                    },
                    |number| {
                        purpose(place == "sink" && number == 20);
                        seen.push(number);
                        Ok(())
                    },
                );
                let error = result.unwrap_err();
                assert_eq!(error.kind(), Kind::Internal, "{place}, {threads} threads");
                assert!(error.message().contains("on purpose"), "{error}");
                assert_eq!(seen, (0..20).collect::<Vec<_>>(), "{place}, {threads} threads");
            }
        }
    }

    #[test]
    fn a_thread_that_panics_elsewhere_ends_the_queue() {
        let queue: Queue<u8> = Queue::new(Limits { ahead: 4, at_first: 4, bytes: 100 });
        std::thread::scope(|scope| {
            scope.spawn(|| queue.serve(|| panic!("on purpose")));
            assert_eq!(queue.take(Duration::from_secs(60)), NextItem::End);
        });
        assert!(queue.failure().is_some_and(|error| error.message().contains("on purpose")));
    }

    #[test]
    fn work_ends_when_its_caller_says_so() {
        for threads in [1, 3] {
            let began = Instant::now();
            let slow = |number| {
                std::thread::sleep(Duration::from_millis(1));
                interrupt::check().map(|()| number)
            };
            let result = interrupt::watched(|| true, || in_order(threads, 1_000_000, slow, |_| Ok(())));
            assert_eq!(result.unwrap_err().kind(), Kind::Interrupted);
            let waits = |_| {
                while interrupt::check().is_ok() {}
                Ok(())
            };
            let result = interrupt::watched(|| true, || in_order(threads, 10, waits, |()| Ok(())));
            assert_eq!(result.unwrap_err().kind(), Kind::Interrupted);
            assert!(began.elapsed() < Duration::from_secs(20));
        }
    }
}
