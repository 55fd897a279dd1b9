//! Limits on rows and on inflated bytes. Sizes from data or from a schema are checked before memory is allocated for
//! them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Kind, Result};

/// The default of [`max_row_bytes`].
pub const DEFAULT_ROW_BYTES: u64 = 1 << 30;

/// The default of [`max_inflated_bytes`].
pub const DEFAULT_INFLATED_BYTES: u64 = 1 << 30;

static MAX_INFLATED_BYTES: AtomicU64 = AtomicU64::new(DEFAULT_INFLATED_BYTES);

/// Return the number of bytes of a compressed shard that are inflated into memory at once, at most.
pub fn max_inflated_bytes() -> u64 {
    MAX_INFLATED_BYTES.load(Ordering::Relaxed)
}

/// Set [`max_inflated_bytes`] for all threads of this process.
pub fn set_max_inflated_bytes(bytes: u64) {
    MAX_INFLATED_BYTES.store(bytes, Ordering::Relaxed);
}

static MAX_ROW_BYTES: AtomicU64 = AtomicU64::new(DEFAULT_ROW_BYTES);

const ADVICE: &str = "If the data is trusted, allow more: penstock.max_row_bytes(N), or penstock --max-row-bytes N.";

/// The largest row of this process in bytes: a record once inflated, a decoded row of one column, and the rows of a batch
/// that are missing from their records.
pub fn max_row_bytes() -> u64 {
    MAX_ROW_BYTES.load(Ordering::Relaxed)
}

/// Sets [`max_row_bytes`] for all threads of this process.
pub fn set_max_row_bytes(bytes: u64) {
    MAX_ROW_BYTES.store(bytes, Ordering::Relaxed);
}

/// The error for `what` of more than [`max_row_bytes`] bytes; `got` says how many there are.
#[cold]
pub(crate) fn too_large(what: &str, got: impl std::fmt::Display) -> Error {
    let message = format!("expected {what} of at most {} bytes, got {got}", max_row_bytes());
    Error::new(Kind::TooLarge, message).advise(ADVICE)
}

/// Return the error for rows whose size the schema sets.
#[cold]
pub(crate) fn too_wide(what: &str, got: impl std::fmt::Display) -> Error {
    let message = format!("expected {what} of at most {} bytes, got {got}", max_row_bytes());
    Error::new(Kind::SchemaTooLarge, message).advise(ADVICE)
}

#[cold]
fn no_memory(bytes: usize) -> Error {
    Error::schema(format!("expected memory for {bytes} more bytes, got none from the system"))
        .advise("Read fewer examples at a time.")
}

/// Makes room for `more` elements, or gives an error where that would end the process.
pub(crate) fn reserve<T>(values: &mut Vec<T>, more: usize) -> Result<()> {
    if values.capacity() - values.len() >= more {
        return Ok(());
    }
    // Twice as much as before makes growing cheap, but is more than is needed.
    let made = values.try_reserve(more).or_else(|_| values.try_reserve_exact(more));
    made.map_err(|_| no_memory(more.saturating_mul(size_of::<T>())))
}

/// Makes `values` at least `length` long.
pub(crate) fn grow_to<T: Clone>(values: &mut Vec<T>, length: usize, value: T) -> Result<()> {
    if values.len() < length {
        reserve(values, length - values.len())?;
        values.resize(length, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_does_not_exist_is_an_error() {
        let mut bytes = vec![1u8];
        assert!(reserve(&mut bytes, isize::MAX as usize).is_err());
        assert!(grow_to(&mut bytes, usize::MAX / 2, 0).unwrap_err().to_string().contains("expected memory for"));
        grow_to(&mut bytes, 3, 7).unwrap();
        grow_to(&mut bytes, 2, 9).unwrap();
        assert_eq!(bytes, [1, 7, 7]);
    }
}
