//! Decoded columns: plain buffers that a caller can take over without a copy.

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
