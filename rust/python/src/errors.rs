//! From the core's errors to the exceptions of `penstock.errors`; and the one place that watches for Ctrl-C.

use std::time::{Duration, Instant};

use penstock_core::{Error, Kind};
use pyo3::prelude::*;

/// `ENOENT`, the same number on Unix and in Windows' own error codes.
const NO_ENTRY: i32 = 2;

/// The exception for an error of the core.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let (class, errno) = match error.kind() {
        Kind::Corrupt => ("CorruptionError", None),
        Kind::Sidecar => ("IndexMismatchError", None),
        Kind::Schema | Kind::Usage => ("SchemaError", None),
        Kind::OutOfRange => ("RecordIndexError", None),
        Kind::Replaced => ("LoadError", None),
        Kind::Elsewhere(_) => ("ElsewhereError", None),
        Kind::Io(Some(NO_ENTRY)) => ("NotFoundError", Some(NO_ENTRY)),
        Kind::Io(errno) => ("StorageError", errno),
    };
    let exception = py.import("penstock.errors")?.getattr(class)?.call1((error.to_string(),))?;
    if matches!(error.kind(), Kind::Corrupt | Kind::Sidecar | Kind::Schema) {
        exception.setattr("path", error.path().map(|path| path.to_string_lossy().into_owned()))?;
        exception.setattr("offset", error.offset())?;
        exception.setattr("record", error.record())?;
    }
    if error.kind() == Kind::Replaced {
        exception.setattr("path", error.path().map(|path| path.to_string_lossy().into_owned()))?;
    }
    if let Kind::Elsewhere(length) = error.kind() {
        exception.setattr("path", error.path().map(|path| path.to_string_lossy().into_owned()))?;
        exception.setattr("offset", error.offset())?;
        exception.setattr("length", length)?;
    }
    if errno.is_some() {
        exception.setattr("errno", errno)?;
    }
    Ok(exception)
}

/// The error of the core for what a function in Python raised.
pub fn caught(py: Python<'_>, error: &PyErr) -> Error {
    let is = |class: &str| {
        let class = py.import("penstock.errors").and_then(|errors| errors.getattr(class));
        class.is_ok_and(|class| error.is_instance(py, &class))
    };
    let kind = match () {
        () if is("NotFoundError") => Kind::Io(Some(NO_ENTRY)),
        () if is("CorruptionError") => Kind::Corrupt,
        () => Kind::Io(None),
    };
    Error::new(kind, error.value(py).to_string())
}

/// Runs work of the core with the GIL released.
pub fn released<T: Send>(py: Python<'_>, work: impl FnOnce() -> penstock_core::Result<T> + Send) -> PyResult<T> {
    py.detach(work).map_err(|error| raise(py, &error))
}

/// How often long work looks for signals and tells its progress.
const BEAT: Duration = Duration::from_millis(50);

/// Runs long work with the GIL released; it calls its pulse now and then, which looks for Ctrl-C and tells the progress.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64) -> penstock_core::Result<()>) -> penstock_core::Result<T> + Send,
) -> PyResult<T> {
    let mut interrupt: Option<PyErr> = None;
    let mut last = Instant::now();
    let result = py.detach(|| {
        work(&mut |position| {
            if last.elapsed() < BEAT {
                return Ok(());
            }
            last = Instant::now();
            let beat = Python::attach(|py| {
                py.check_signals()?;
                progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (position,)).map(drop))
            });
            beat.map_err(|error| {
                interrupt = Some(error);
                Error::new(Kind::Usage, "interrupted")
            })
        })
    });
    match interrupt {
        Some(error) => Err(error),
        None => result.map_err(|error| raise(py, &error)),
    }
}
