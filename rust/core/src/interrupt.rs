//! Interrupts long work.
//!
//! A caller runs work inside [`watched`] with a function that reports whether the work must end. Long loops call [`check`]:
//! on the caller's thread it asks that function every [`INTERVAL`]; threads that work for the caller enter its [`Watch`] and
//! see its answer. Without a watch, a check costs a look at a thread-local variable.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};

/// How often a caller is asked, and the longest time that a thread waits without a check.
pub const INTERVAL: Duration = Duration::from_millis(50);

/// Loops over small items check once per this many items.
const STRIDE: usize = 64;

/// Bytes that are copied, read or written between two checks.
pub const BLOCK: usize = 8 << 20;

/// A caller that may end work, as its threads see it.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    ended: Arc<AtomicBool>,
}

impl Watch {
    /// Ends the work: from now on every check of its threads fails.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether the work must end.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Runs work for this watch on the current thread.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        Current { watch: self.clone(), asker: None }.enter(work)
    }
}

struct Asker {
    ask: Box<dyn Fn() -> bool>,
    last: Cell<Instant>,
}

#[derive(Clone)]
struct Current {
    watch: Watch,
    /// Only on the caller's thread.
    asker: Option<Rc<Asker>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Restores the previous watch, after a panic too.
struct Restore(Option<Current>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl Current {
    fn enter<T>(self, work: impl FnOnce() -> T) -> T {
        let _restore = Restore(CURRENT.replace(Some(self)));
        work()
    }
}

/// Runs work that ends early once `ask` returns true. `ask` runs on this thread, every [`INTERVAL`] at most.
pub fn watched<T>(ask: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    let asker = Asker { ask: Box::new(ask), last: Cell::new(Instant::now()) };
    Current { watch: Watch::default(), asker: Some(Rc::new(asker)) }.enter(work)
}

/// The watch of this thread, for threads that work for it.
pub fn current() -> Watch {
    CURRENT.with_borrow(|current| current.as_ref().map(|current| current.watch.clone()).unwrap_or_default())
}

/// Fails once the work of this thread must end.
pub fn check() -> Result<()> {
    // The borrow ends before `ask` runs: it may call whatever checks, too.
    let asker = CURRENT.with_borrow(|current| match current {
        None => Ok(None),
        Some(current) if current.watch.is_ended() => Err(interrupted()),
        Some(current) => Ok(current.asker.clone().map(|asker| (asker, current.watch.clone()))),
    })?;
    let Some((asker, watch)) = asker else { return Ok(()) };
    if asker.last.get().elapsed() < INTERVAL {
        return Ok(());
    }
    let ended = (asker.ask)();
    asker.last.set(Instant::now());
    match ended {
        true => {
            watch.end();
            Err(interrupted())
        }
        false => Ok(()),
    }
}

/// A check for loops over small items: only some of them cost more than a comparison.
#[inline]
pub fn check_at(item: usize) -> Result<()> {
    match item % STRIDE {
        0 => check(),
        _ => Ok(()),
    }
}

/// The same for code whose errors are those of the system.
pub fn check_io() -> std::io::Result<()> {
    // Never `ErrorKind::Interrupted`, after which `read_exact` and `write_all` go on.
    check().map_err(std::io::Error::other)
}

/// Runs a system call that may last on a thread of its own, and stops waiting for it once the work must end.
pub fn waited<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    if CURRENT.with_borrow(Option::is_none) {
        return work();
    }
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    // Its receiver is gone when it was not waited for.
    std::thread::Builder::new().name("penstock-wait".into()).spawn(move || drop(send.send(work())))?;
    loop {
        match receive.recv_timeout(INTERVAL) {
            Ok(result) => return result,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => check_io()?,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                return Err(std::io::Error::other("a thread panicked"));
            }
        }
    }
}

fn interrupted() -> Error {
    Error::new(Kind::Interrupted, "interrupted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_soon_after_its_caller_says_so() {
        assert!(check().is_ok(), "nobody watches");
        let began = Instant::now();
        let asked = Rc::new(Cell::new(0));
        let counted = asked.clone();
        let ask = move || {
            counted.set(counted.get() + 1);
            counted.get() == 3
        };
        let error = watched(ask, || loop {
            if let Err(error) = check() {
                assert!(check().is_err(), "it stays ended");
                return error;
            }
        });
        assert_eq!((error.kind(), asked.get()), (Kind::Interrupted, 3));
        assert!(began.elapsed() >= 3 * INTERVAL);
        assert!(check().is_ok());
    }

    #[test]
    fn threads_see_what_their_caller_was_told() {
        watched(
            || true,
            || {
                let watch = current();
                std::thread::scope(|scope| {
                    let worker = scope.spawn(|| {
                        assert!(check().is_ok());
                        watch.enter(|| while check().is_ok() {})
                    });
                    while check().is_ok() {}
                    worker.join().unwrap();
                });
                assert!(watched(|| false, check).is_ok(), "a call within a callback has its own caller");
                assert!(check().is_err());
            },
        );
    }

    #[test]
    fn a_system_call_is_waited_for_no_longer_than_its_caller_wants() {
        assert_eq!(waited(|| Ok(5)).unwrap(), 5);
        assert_eq!(watched(|| false, || waited(|| Ok(6))).unwrap(), 6);
        let began = Instant::now();
        let slow = || {
            std::thread::sleep(Duration::from_secs(5));
            Ok(7)
        };
        assert!(watched(|| true, || waited(slow)).is_err());
        assert!(began.elapsed() < Duration::from_secs(4));
    }
}
