//! Decoded columns: plain buffers that a caller can take over without a copy.

use crate::plan::{Dtype, Missing, Spec};

/// Bytes with room for any element type: numbers lie aligned to eight bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Numbers: whole words, and how many of their bytes count.
    Numbers(Vec<u64>, usize),
    /// Byte strings, one after the other.
    Strings(Vec<u8>),
}

impl Buffer {
    /// Zeros for numbers that take `length` bytes in all.
    pub fn numbers(length: usize) -> Buffer {
        Buffer::Numbers(vec![0; length.div_ceil(8)], length)
    }

    /// Adds `length` zero bytes, and returns them to be written.
    pub fn grow(&mut self, length: usize) -> &mut [u8] {
        let start = self.bytes().len();
        match self {
            // The first rows of a column take zeroed memory as it comes; only more rows are worth a copy.
            Buffer::Numbers(words, _) if words.is_empty() => *self = Buffer::numbers(length),
            Buffer::Numbers(words, whole) => {
                *whole += length;
                words.resize(whole.div_ceil(8), 0);
            }
            Buffer::Strings(bytes) => bytes.resize(start + length, 0),
        }
        &mut self.bytes_mut()[start..]
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Numbers(words, length) => &bytemuck::cast_slice(words)[..*length],
            Buffer::Strings(bytes) => bytes,
        }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Numbers(words, length) => &mut bytemuck::cast_slice_mut(words)[..*length],
            Buffer::Strings(bytes) => bytes,
        }
    }
}

/// One column of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The elements of all rows, one row after the other; for byte strings, their bytes.
    pub values: Buffer,
    /// Where each byte string begins and ends in `values`; only for byte strings.
    pub value_splits: Option<Vec<i64>>,
    /// Where each row begins and ends, in elements; only when rows differ in length.
    pub row_splits: Option<Vec<i64>>,
    /// 1 for each row that is there, 0 for each that is missing; only when that was asked for.
    pub present: Option<Vec<u8>>,
}

impl Column {
    /// A column without rows yet.
    pub fn empty(spec: &Spec) -> Column {
        let strings = spec.dtype == Dtype::Bytes;
        Column {
            values: if strings { Buffer::Strings(Vec::new()) } else { Buffer::numbers(0) },
            value_splits: strings.then(|| vec![0]),
            row_splits: spec.count.is_none().then(|| vec![0]),
            present: (spec.missing == Missing::Mask).then(Vec::new),
        }
    }
}
