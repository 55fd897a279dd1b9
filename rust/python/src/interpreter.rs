//! The GIL, signals, calls back into Python, and the interpreter's exit: all in this module.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use penstock_core::error::contained;
use penstock_core::interrupt::{check, watched, Watch, INTERVAL};
use penstock_core::{Error, Kind, Result};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::errors::{caught, raise};

thread_local! {
    /// What a signal handler, or a function in Python, raised while the core worked for this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// How many calls into the core this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// What stops the work of this thread, if it belongs to a pool.
    static STOP: RefCell<Option<Watch>> = const { RefCell::new(None) };
    /// Whether this thread ran [`end_callbacks`].
    static EXITS: Cell<bool> = const { Cell::new(false) };
}

/// Runs work of the core with the GIL released. Signals are handled every [`INTERVAL`]: what their handlers raise ends the
/// work. A panic becomes an error.
pub fn released<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let before = RAISED.take();
    DEPTH.set(DEPTH.get() + 1);
    let result = py.detach(|| watched(asker(), || contained(work)));
    DEPTH.set(DEPTH.get() - 1);
    if result.is_err() {
        stay_behind(py);
    }
    match RAISED.replace(before) {
        Some(error) => Err(error),
        None => result.map_err(|error| raise(py, &error)),
    }
}

/// The same for work that reports its progress.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64) -> Result<()>) -> Result<T> + Send,
) -> PyResult<T> {
    let mut last = Instant::now();
    released(py, || {
        work(&mut |position| {
            check()?;
            match &progress {
                Some(progress) if last.elapsed() >= INTERVAL => {
                    last = Instant::now();
                    callback(|py| progress.call1(py, (position,)).map(drop)).map_err(|failure| failure.end(false))
                }
                _ => Ok(()),
            }
        })
    })
}

/// Looks for signals, which only Python's main thread handles, and whether the pool of this thread was stopped.
fn asker() -> impl Fn() -> bool {
    let handles_signals = Cell::new(None);
    move || {
        if STOP.with_borrow(|stop| stop.as_ref().is_some_and(Watch::is_ended)) {
            return true;
        }
        if handles_signals.get() == Some(false) {
            return false;
        }
        Python::attach(|py| {
            // What runs bytecode handles signals, too: whatever it raises may be a handler's.
            let main = handles_signals.get().map_or_else(|| is_main_thread(py), Ok);
            match main.and_then(|main| py.check_signals().map(|()| main)) {
                Ok(main) => {
                    handles_signals.set(Some(main));
                    false
                }
                Err(error) => {
                    RAISED.set(Some(error));
                    true
                }
            }
        })
    }
}

/// Ends the work of a pool's threads.
#[pyclass(frozen, module = "penstock._core")]
pub struct Stop(Watch);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop(Watch::default())
    }

    /// Lets the current thread's work end with the others'.
    fn enter(&self) {
        STOP.set(Some(self.0.clone()));
    }

    /// Ends what the threads are at in the core.
    fn end(&self) {
        self.0.end();
    }
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    threading.call_method0("get_ident")?.eq(main)
}

/// Why a call back into Python has no result.
pub enum Failed {
    /// The interpreter exits.
    Exiting,
    /// It raised.
    Raised(PyErr),
}

impl Failed {
    /// The error that ends the work. The exception itself is raised at the end of the call into the core, if this thread is
    /// in one; with `convert`, only what is no `Exception`: `KeyboardInterrupt` and its like.
    pub fn end(self, convert: bool) -> Error {
        let error = match self {
            Failed::Exiting => return Error::new(Kind::Io(None), "stopped: the interpreter exits"),
            Failed::Raised(error) => error,
        };
        Python::attach(|py| {
            let stays = !convert || !error.is_instance_of::<PyException>(py);
            if stays && DEPTH.get() > 0 {
                RAISED.set(Some(error));
                return Error::new(Kind::Interrupted, "interrupted");
            }
            caught(py, &error)
        })
    }
}

/// Calls Python from a thread of the core, or from one of Python's that released the GIL.
///
/// CPython ends a thread that wants the GIL while the interpreter exits, by unwinding its stack: through frames of Rust
/// that is an abort. So no call begins once the interpreter exits, and the exit waits for those that have begun.
pub fn callback<T>(work: impl FnOnce(Python<'_>) -> PyResult<T>) -> std::result::Result<T, Failed> {
    let _inside = Inside::enter()?;
    Python::attach(work).map_err(Failed::Raised)
}

/// Calls that have begun, and whether no more may. A fork begins with none: its other threads are gone.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static EXITING: AtomicBool = AtomicBool::new(false);

/// Counts a call back into Python while it lasts.
pub struct Inside(());

impl Inside {
    /// Begins a call.
    pub fn enter() -> std::result::Result<Inside, Failed> {
        begin_process();
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(());
        match is_exiting() && !EXITS.get() {
            true => Err(Failed::Exiting),
            false => Ok(inside),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

fn begin_process() {
    let here = std::process::id();
    if PROCESS.swap(here, Ordering::SeqCst) != here {
        INSIDE.store(0, Ordering::SeqCst);
        EXITING.store(false, Ordering::SeqCst);
    }
}

/// Whether the interpreter exits.
pub fn is_exiting() -> bool {
    EXITING.load(Ordering::SeqCst)
}

/// Stops a daemon thread for good once the interpreter exits, as CPython would soon: no caller is left for its error.
pub fn stay_behind(py: Python<'_>) {
    if is_exiting() && !EXITS.get() {
        py.detach(|| loop {
            std::thread::park();
        });
    }
}

/// The exit waits this long for calls that have begun; each usually lasts a twentieth of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends calls back into Python from other threads, and waits for those that have begun.
#[pyfunction]
fn end_callbacks(py: Python<'_>) {
    begin_process();
    EXITING.store(true, Ordering::SeqCst);
    EXITS.set(true);
    py.detach(|| {
        let deadline = Instant::now() + PATIENCE;
        while INSIDE.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Has [`end_callbacks`] called when the interpreter exits, after all threads that are not daemons have ended.
pub fn watch_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end_callbacks, module)?;
    module.py().import("atexit")?.call_method1("register", (end,)).map(drop)
}
