//! Decoded columns: plain buffers that a caller can take over without a copy.

use crate::error::Result;
use crate::example::plan::{Dtype, Missing, Spec};
use crate::io::buffer_pool::BufferPool;
use crate::limits;

/// Bytes with room for any element type: numbers lie aligned to eight bytes, and those that are made in one go to
/// [`LINE`], so that frameworks take them over without a copy.
///
/// A large buffer that is dropped is kept for the next column: new memory costs a page fault every few kilobytes.
#[derive(Clone, Debug)]
pub enum ColumnBuffer {
    /// Numbers: whole words, where the first of them is, and how many bytes count from there.
    Numbers(Vec<u64>, usize, usize),
    /// Byte strings, one after the other.
    Strings(Vec<u8>),
}

impl ColumnBuffer {
    /// Zeros for numbers that take `length` bytes in all.
    pub fn numbers(length: usize) -> Result<ColumnBuffer> {
        let (mut words, first) = ColumnBuffer::room(length.div_ceil(8))?;
        words.resize(first + length.div_ceil(8), 0);
        Ok(ColumnBuffer::Numbers(words, first, length))
    }

    /// Memory for so many words, and the first of them that is aligned to a line; there are zeros before it.
    fn room(length: usize) -> Result<(Vec<u64>, usize)> {
        let mut words = SPARE_NUMBERS.try_take(length + LINE / 8)?;
        let first = words.as_ptr().align_offset(LINE).min(LINE / 8);
        words.resize(first, 0);
        Ok((words, first))
    }

    /// Adds `length` zero bytes, and returns them to be written.
    pub fn grow(&mut self, length: usize) -> Result<&mut [u8]> {
        let start = self.bytes().len();
        match self {
            ColumnBuffer::Numbers(words, ..) if words.is_empty() => *self = ColumnBuffer::numbers(length)?,
            ColumnBuffer::Numbers(words, first, whole) => {
                limits::grow_to(words, *first + (*whole + length).div_ceil(8), 0)?;
                *whole += length;
            }
            ColumnBuffer::Strings(bytes) => limits::grow_to(bytes, start + length, 0)?,
        }
        Ok(&mut self.bytes_mut()[start..])
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            ColumnBuffer::Numbers(words, first, length) => &bytemuck::cast_slice(&words[*first..])[..*length],
            ColumnBuffer::Strings(bytes) => bytes,
        }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            ColumnBuffer::Numbers(words, first, length) => {
                &mut bytemuck::cast_slice_mut(&mut words[*first..])[..*length]
            }
            ColumnBuffer::Strings(bytes) => bytes,
        }
    }
}

impl PartialEq for ColumnBuffer {
    fn eq(&self, other: &ColumnBuffer) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for ColumnBuffer {}

impl Drop for ColumnBuffer {
    fn drop(&mut self) {
        match self {
            ColumnBuffer::Numbers(words, ..) => SPARE_NUMBERS.give(std::mem::take(words)),
            ColumnBuffer::Strings(bytes) => SPARE_STRINGS.give(std::mem::take(bytes)),
        }
    }
}

/// Memory that dropped columns leave for the next ones.
static SPARE_NUMBERS: BufferPool<u64> = BufferPool::new(MOST_KEPT, TOO_LARGE);
static SPARE_STRINGS: BufferPool<u8> = BufferPool::new(MOST_KEPT, TOO_LARGE);

/// What large arrays are aligned to, in bytes: a line of the processor's cache.
pub const LINE: usize = 64;
/// Larger buffers go back to the system.
const TOO_LARGE: usize = 1 << 24;
/// How many bytes of each kind are held without being used: the columns of a few batches.
const MOST_KEPT: usize = 64 << 20;

/// One column of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The elements of all rows, one row after the other; for byte strings, their bytes.
    pub values: ColumnBuffer,
    /// Where each byte string begins and ends in `values`; only for byte strings.
    pub value_splits: Option<Vec<i64>>,
    /// Where each row begins and ends, in elements; only when rows differ in length.
    pub row_splits: Option<Vec<i64>>,
    /// 1 for each row that is there, 0 for each that is missing; only when that was asked for.
    pub present: Option<Vec<u8>>,
    /// The shapes of rows whose plan does not know them: decoded images.
    pub shapes: Option<Shapes>,
}

/// The shapes of images: height, width, channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// One shape for all.
    Same([usize; 3]),
    /// Three numbers for each row.
    Each(Vec<i64>),
}

impl Shapes {
    /// The shape of the first row.
    pub fn first(&self) -> [usize; 3] {
        match self {
            Shapes::Same(shape) => *shape,
            Shapes::Each(all) => [0, 1, 2].map(|at| all.get(at).map_or(0, |&size| size as usize)),
        }
    }
}

impl Column {
    /// A column without rows yet.
    pub fn empty(spec: &Spec) -> Column {
        let strings = spec.dtype == Dtype::Bytes;
        Column {
            values: if strings { ColumnBuffer::Strings(Vec::new()) } else { ColumnBuffer::Numbers(Vec::new(), 0, 0) },
            value_splits: strings.then(|| vec![0]),
            row_splits: spec.count.is_none().then(|| vec![0]),
            present: (spec.missing == Missing::Mask).then(Vec::new),
            shapes: None,
        }
    }

    /// How many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let splits = |splits: &Option<Vec<i64>>| splits.as_ref().map_or(0, |splits| 8 * splits.len());
        let present = self.present.as_ref().map_or(0, Vec::len);
        self.values.bytes().len() + splits(&self.value_splits) + splits(&self.row_splits) + present
    }

    /// Puts the rows of another column of the same kind behind its own.
    pub fn join(&mut self, other: &Column) -> Result<()> {
        fn join_splits(splits: &mut Option<Vec<i64>>, other: &Option<Vec<i64>>) {
            if let (Some(splits), Some(other)) = (splits, other) {
                let end = splits.last().copied().unwrap_or(0);
                splits.extend(other.iter().skip(1).map(|split| end + split));
            }
        }
        let Column { values, value_splits, row_splits, present, shapes } = other;
        self.values.grow(values.bytes().len())?.copy_from_slice(values.bytes());
        join_splits(&mut self.value_splits, value_splits);
        join_splits(&mut self.row_splits, row_splits);
        if let (Some(mine), Some(present)) = (&mut self.present, present) {
            mine.extend_from_slice(present);
        }
        if let (Some(Shapes::Each(mine)), Some(Shapes::Each(shapes))) = (&mut self.shapes, shapes) {
            mine.extend_from_slice(shapes);
        }
        Ok(())
    }

    /// Makes room for `rows` rows in all, judging by the `done` that are there, so that it need not grow again and
    /// again.
    pub fn expect(&mut self, done: usize, rows: usize) -> Result<()> {
        let expected = |used: usize| (used / done.max(1) + 1).saturating_mul(rows + rows / 16);
        match &mut self.values {
            ColumnBuffer::Numbers(words, first, length) => {
                let (used, expected) = (*first..words.len(), expected(words.len() - *first));
                if expected > words.capacity() && expected * 8 < TOO_LARGE {
                    let (mut larger, start) = ColumnBuffer::room(expected)?;
                    larger.extend_from_slice(&words[used]);
                    let length = *length;
                    self.values = ColumnBuffer::Numbers(larger, start, length);
                }
            }
            ColumnBuffer::Strings(bytes) => {
                let expected = expected(bytes.len());
                if expected > bytes.capacity() && expected < TOO_LARGE {
                    let mut larger = SPARE_STRINGS.try_take(expected)?;
                    larger.extend_from_slice(bytes);
                    self.values = ColumnBuffer::Strings(larger);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_memory_comes_back_zeroed() {
        for _ in 0..3 {
            let mut buffer = ColumnBuffer::numbers(1 << 20).unwrap();
            assert!(buffer.bytes().iter().all(|&byte| byte == 0));
            buffer.bytes_mut().fill(7);
        }
    }

    #[test]
    fn numbers_begin_with_a_line() {
        for length in [1, 8, 1000, 1 << 17, 1 << 20, (1 << 25) + 3] {
            let mut buffer = ColumnBuffer::numbers(length).unwrap();
            assert_eq!(buffer.bytes().as_ptr() as usize % LINE, 0, "{length}");
            buffer.bytes_mut().fill(7);
            buffer.grow(100).unwrap().fill(8);
            assert!(buffer.bytes().len() == length + 100 && buffer.bytes()[..length].iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn room_is_made_once() {
        let spec = crate::example::plan::spec("s", Dtype::Bytes, Some(1));
        let mut column = Column::empty(&spec);
        column.values.grow(1000).unwrap();
        column.expect(1, 100).unwrap();
        let ColumnBuffer::Strings(bytes) = &column.values else { unreachable!("byte strings") };
        assert!(bytes.capacity() >= 100_000 && bytes.len() == 1000);
    }
}
