//! Decoded columns: plain buffers that a caller can take over without a copy.

use std::sync::Mutex;

use crate::plan::{Dtype, Missing, Spec};

/// Bytes with room for any element type: numbers lie aligned to eight bytes.
///
/// A large buffer that is dropped is kept for the next column: new memory costs a page fault every few kilobytes.
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
        let mut words = SPARE_NUMBERS.take(length.div_ceil(8));
        words.resize(length.div_ceil(8), 0);
        Buffer::Numbers(words, length)
    }

    /// Adds `length` zero bytes, and returns them to be written.
    pub fn grow(&mut self, length: usize) -> &mut [u8] {
        let start = self.bytes().len();
        match self {
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

impl Drop for Buffer {
    fn drop(&mut self) {
        match self {
            Buffer::Numbers(words, _) => SPARE_NUMBERS.give(std::mem::take(words)),
            Buffer::Strings(bytes) => SPARE_STRINGS.give(std::mem::take(bytes)),
        }
    }
}

/// Memory that dropped columns leave for the next ones.
struct Spare<T>(Mutex<Vec<Vec<T>>>);

static SPARE_NUMBERS: Spare<u64> = Spare(Mutex::new(Vec::new()));
static SPARE_STRINGS: Spare<u8> = Spare(Mutex::new(Vec::new()));

/// Smaller buffers come from the allocator's own stock.
const WORTH_KEEPING: usize = 1 << 16;
/// Larger buffers go back to the system.
const TOO_LARGE: usize = 1 << 24;
/// How many buffers of each kind are kept: with their size, that bounds what is held without being used.
const MOST_KEPT: usize = 8;

impl<T> Spare<T> {
    /// An empty vector with room for `length` elements. Never waits for a lock: a fork may have left it locked for good.
    fn take(&self, length: usize) -> Vec<T> {
        let fits = |kept: &Vec<T>| kept.capacity() >= length && kept.capacity() / 4 <= length;
        let kept = match length * size_of::<T>() {
            0..WORTH_KEEPING => None,
            _ => self.0.try_lock().ok().and_then(|mut all| all.iter().position(fits).map(|at| all.swap_remove(at))),
        };
        kept.unwrap_or_else(|| Vec::with_capacity(length))
    }

    fn give(&self, mut used: Vec<T>) {
        if !(WORTH_KEEPING..TOO_LARGE).contains(&(used.capacity() * size_of::<T>())) {
            return;
        }
        if let Ok(mut all) = self.0.try_lock() {
            used.clear();
            if all.len() == MOST_KEPT {
                all.remove(0);
            }
            all.push(used);
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
            values: if strings { Buffer::Strings(Vec::new()) } else { Buffer::Numbers(Vec::new(), 0) },
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
    pub fn join(&mut self, other: &Column) {
        fn join_splits(splits: &mut Option<Vec<i64>>, other: &Option<Vec<i64>>) {
            if let (Some(splits), Some(other)) = (splits, other) {
                let end = splits.last().copied().unwrap_or(0);
                splits.extend(other.iter().skip(1).map(|split| end + split));
            }
        }
        let Column { values, value_splits, row_splits, present, shapes } = other;
        self.values.grow(values.bytes().len()).copy_from_slice(values.bytes());
        join_splits(&mut self.value_splits, value_splits);
        join_splits(&mut self.row_splits, row_splits);
        if let (Some(mine), Some(present)) = (&mut self.present, present) {
            mine.extend_from_slice(present);
        }
        if let (Some(Shapes::Each(mine)), Some(Shapes::Each(shapes))) = (&mut self.shapes, shapes) {
            mine.extend_from_slice(shapes);
        }
    }

    /// Makes room for `rows` rows in all, judging by the `done` that are there, so that it need not grow again and again.
    pub fn expect(&mut self, done: usize, rows: usize) {
        fn enlarge<T: Copy>(used: &mut Vec<T>, spare: &Spare<T>, done: usize, rows: usize) {
            let expected = (used.len() / done.max(1) + 1).saturating_mul(rows + rows / 16);
            if expected > used.capacity() && expected * size_of::<T>() < TOO_LARGE {
                let mut larger = spare.take(expected);
                larger.extend_from_slice(used);
                spare.give(std::mem::replace(used, larger));
            }
        }
        match &mut self.values {
            Buffer::Numbers(words, _) => enlarge(words, &SPARE_NUMBERS, done, rows),
            Buffer::Strings(bytes) => enlarge(bytes, &SPARE_STRINGS, done, rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_where_it_fits() {
        let spare = Spare::<u64>(Mutex::default());
        let used = vec![7u64; 1 << 16];
        let place = used.as_ptr();
        spare.give(used);
        let (larger, smaller) = (spare.take(1 << 18), spare.take(1 << 13));
        assert!(larger.as_ptr() != place && smaller.as_ptr() != place, "what does not fit is left");
        let again = spare.take(60_000);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn used_memory_comes_back_zeroed() {
        for _ in 0..3 {
            let mut buffer = Buffer::numbers(1 << 20);
            assert!(buffer.bytes().iter().all(|&byte| byte == 0));
            buffer.bytes_mut().fill(7);
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let many: Vec<Buffer> = (0..50).map(|_| Buffer::Strings(Vec::with_capacity(WORTH_KEEPING))).collect();
        drop(many);
        drop(Buffer::Strings(Vec::with_capacity(TOO_LARGE)));
        let kept = SPARE_STRINGS.0.lock().unwrap();
        assert!(kept.len() <= MOST_KEPT && kept.iter().all(|used| used.capacity() < TOO_LARGE));
    }

    #[test]
    fn room_is_made_once() {
        let spec = crate::plan::spec("s", Dtype::Bytes, Some(1));
        let mut column = Column::empty(&spec);
        column.values.grow(1000);
        column.expect(1, 100);
        let Buffer::Strings(bytes) = &column.values else { unreachable!("byte strings") };
        assert!(bytes.capacity() >= 100_000 && bytes.len() == 1000);
    }
}
