//! The error type: a kind, a message, and the place.

use std::any::Any;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// The result of anything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, as far as callers distinguish errors. Code compares kinds, never message texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes violate the format.
    Corrupt,
    /// A compressed stream ends too early; the bytes inflated before its end are valid.
    Truncated,
    /// A record, chunk or stream inflates to more than [`crate::limits::max_row_bytes`].
    TooLarge,
    /// The bytes are well formed but violate the schema.
    Schema,
    /// The schema describes rows of more than [`crate::limits::max_row_bytes`].
    SchemaTooLarge,
    /// The record number does not exist.
    OutOfRange,
    /// The index file is damaged or belongs to another shard.
    Sidecar,
    /// A system call failed; the code is its `errno`, if it has one.
    Io(Option<i32>),
    /// The file was replaced or rewritten after its dataset was opened.
    Replaced,
    /// This many bytes of a remote file are not downloaded yet.
    NotDownloaded(u64),
    /// The arguments are invalid.
    Usage,
    /// The caller interrupted the work: see [`crate::interrupt`].
    Interrupted,
    /// A defect of this crate: a thread panicked.
    Internal,
}

impl Kind {
    /// Return true if the data is damaged or refused: [`Kind::Corrupt`], [`Kind::Truncated`] or [`Kind::TooLarge`].
    pub fn is_corrupt(self) -> bool {
        matches!(self, Kind::Corrupt | Kind::Truncated | Kind::TooLarge)
    }

    /// Return true if data and schema disagree: [`Kind::Schema`] or [`Kind::SchemaTooLarge`].
    pub fn is_schema(self) -> bool {
        matches!(self, Kind::Schema | Kind::SchemaTooLarge)
    }
}

/// An error: its kind, what was expected and found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<ErrorParts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrorParts {
    kind: Kind,
    message: String,
    advice: Option<String>,
    path: Option<PathBuf>,
    line: Option<u64>,
    offset: Option<u64>,
    chunk: Option<u64>,
    record: Option<u64>,
    field: Option<String>,
}

impl Error {
    /// An error of this kind; `message` says what was expected and what was found.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(ErrorParts {
            kind,
            message: message.into(),
            advice: None,
            path: None,
            line: None,
            offset: None,
            chunk: None,
            record: None,
            field: None,
        }))
    }

    /// Bytes that break the format.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Error::new(Kind::Corrupt, message)
    }

    /// Bytes that break the schema.
    pub fn schema(message: impl Into<String>) -> Self {
        Error::new(Kind::Schema, message)
    }

    /// A call that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Error::new(Kind::Usage, message)
    }

    /// The error for what a thread panicked with.
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Error::new(Kind::Internal, format!("expected no panic in Penstock, got one: {text}"))
            .advise("This is a bug in Penstock: please report it with this message.")
    }

    /// An error of the operating system while doing `what`.
    pub fn io(what: &str, error: &std::io::Error) -> Self {
        if let Some(own) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return own.clone();
        }
        Error::new(Kind::Io(error.raw_os_error()), format!("{what}: {error}"))
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.0.advice.get_or_insert(advice.into());
        self
    }

    /// Adds the file, unless a deeper place is known already.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// Adds the line of a text file.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.0.line.get_or_insert(line);
        self
    }

    /// Adds the byte offset of the frame or the chunk.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Adds the chunk's number, in files whose records lie in chunks.
    #[must_use]
    pub fn in_chunk(mut self, chunk: u64) -> Self {
        self.0.chunk.get_or_insert(chunk);
        self
    }

    /// Adds the record's number.
    #[must_use]
    pub fn in_record(mut self, record: u64) -> Self {
        self.0.record.get_or_insert(record);
        self
    }

    /// Replaces the record's number: a batch knows rows, its caller knows records.
    #[must_use]
    pub fn renumbered(mut self, number: impl FnOnce(u64) -> u64) -> Self {
        self.0.record = self.0.record.map(number);
        self
    }

    /// Replaces the offset: the bytes that were read may come from several places.
    #[must_use]
    pub fn moved(mut self, offset: impl FnOnce(u64) -> u64) -> Self {
        self.0.offset = self.0.offset.map(offset);
        self
    }

    /// Adds the field.
    #[must_use]
    pub fn in_field(mut self, field: &str) -> Self {
        self.0.field.get_or_insert_with(|| field.to_owned());
        self
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What was expected and found, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The file, when known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte offset of the frame, when known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The record's number, when known.
    pub fn record(&self) -> Option<u64> {
        self.0.record
    }

    /// The field, when known.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }
}

/// Runs work; a panic in it becomes an error that carries the panic's message.
pub fn contained<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Whatever the work was about to change is not used after an error.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(Error::panicked(&*payload)))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorParts { message, advice, path, line, offset, chunk, record, field, .. } = &*self.0;
        f.write_str(message)?;
        let mut place = Vec::new();
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        place.extend(path.as_ref().map(|p| format!("{}{line}", p.display())));
        place.extend(offset.map(|o| format!("offset {o}")));
        place.extend(chunk.map(|c| format!("chunk {c}")));
        place.extend(record.map(|r| format!("record {r}")));
        place.extend(field.as_ref().map(|name| format!("field {name:?}")));
        if !place.is_empty() {
            write!(f, " - at {}", place.join(", "))?;
        }
        match advice {
            Some(advice) => write!(f, ". {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_expected_got_where_and_what_to_do() {
        let error = Error::corrupt("expected CRC 0x00000001, got 0x00000002")
            .advise("Salvage the rest.")
            .in_record(7)
            .at_offset(96)
            .in_file(Path::new("a.tfrecord"));
        assert_eq!(
            error.to_string(),
            "expected CRC 0x00000001, got 0x00000002 - at a.tfrecord, offset 96, record 7. Salvage the rest."
        );
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        for error in [
            contained::<()>(|| panic!("on purpose")),
            contained::<()>(|| panic!("on {}", "purpose")),
            contained::<()>(|| std::panic::panic_any(5)),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), Kind::Internal);
            assert!(error.to_string().contains("on purpose") || error.to_string().contains("no message"), "{error}");
        }
        assert_eq!(contained(|| Ok(5)), Ok(5));
    }

    #[test]
    fn an_error_that_passed_through_io_is_itself_again() {
        let own = Error::new(Kind::Interrupted, "interrupted");
        assert_eq!(Error::io("reading failed", &std::io::Error::other(own.clone())), own);
    }

    #[test]
    fn the_deepest_place_wins() {
        let error = Error::schema("x").in_field("inner").in_field("outer");
        assert_eq!(error.field(), Some("inner"));
    }
}
