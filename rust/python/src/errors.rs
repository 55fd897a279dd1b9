//! From the core's errors to the exceptions of `penstock.errors`, and back.

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
        Kind::Corrupt | Kind::Truncated | Kind::TooLarge => ("CorruptionError", None),
        Kind::Sidecar => ("IndexMismatchError", None),
        Kind::Schema | Kind::SchemaTooLarge | Kind::Usage => ("SchemaError", None),
        Kind::OutOfRange => ("RecordIndexError", None),
        Kind::Replaced => ("LoadError", None),
        Kind::NotDownloaded(_) => ("ElsewhereError", None),
        Kind::Interrupted => ("PenstockError", None),
        Kind::Internal => ("InternalError", None),
        Kind::Io(Some(NO_ENTRY)) => ("NotFoundError", Some(NO_ENTRY)),
        Kind::Io(errno) => ("StorageError", errno),
    };
    let exception = py.import("penstock.errors")?.getattr(class)?.call1((error.to_string(),))?;
    if error.kind().is_corrupt() || error.kind().is_schema() || error.kind() == Kind::Sidecar {
        exception.setattr("path", error.path().map(|path| path.to_string_lossy().into_owned()))?;
        exception.setattr("offset", error.offset())?;
        exception.setattr("record", error.record())?;
    }
    if error.kind() == Kind::Replaced {
        exception.setattr("path", error.path().map(|path| path.to_string_lossy().into_owned()))?;
    }
    if let Kind::NotDownloaded(length) = error.kind() {
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
    let text = error.value(py).to_string();
    let class = error.get_type(py).name().map_or_else(|_| "an exception".into(), |name| name.to_string());
    Error::new(kind, if text.is_empty() { class } else { text })
}
