//! Encodes columns to records: one entry per key, key before value, one packed chunk per list, keys sorted.

use std::sync::{Mutex, PoisonError};

use half::f16;

use crate::codec::protobuf::{entry_size, put_entry, put_varint, varint_length, write_varint};
use crate::codec::zlib::ZlibCompressor;
use crate::error::{Error, Result};
use crate::example::plan::{Dtype, Encoding, List, Missing, Plan, Spec};
use crate::format::frame::Frames;
use crate::interrupt;
use crate::io::buffer_pool::BufferPool;
use crate::io::file_contents::FileContents;
use crate::ordered_queue::in_order;

/// Records are encoded in pieces of about this many bytes of input: enough to be worth a thread, few enough for its
/// cache.
const PIECE_BYTES: usize = 1 << 19;

/// Memory that records leave for the next ones.
static SPARE: BufferPool<u8> = BufferPool::new(32 * PIECE_BYTES, 4 * PIECE_BYTES);

/// Leaves the memory of frames that are not needed any more to those that are encoded next.
pub fn recycle(frames: Frames) {
    SPARE.give(frames.into_bytes());
}

/// The values of one column, row after row.
#[derive(Clone, Debug)]
pub enum Values<'a> {
    /// Numbers: their bytes in C order, little endian.
    Numbers(&'a [u8]),
    /// Byte strings in one buffer, and where each begins and ends.
    Strings(&'a [u8], &'a [i64]),
    /// Byte strings wherever they lie.
    Slices(Vec<&'a [u8]>),
    /// The contents of files, read when they are encoded.
    Files(&'a FileContents),
}

impl Values<'_> {
    /// The bytes of all values.
    fn bytes(&self) -> usize {
        match self {
            Values::Numbers(bytes) | Values::Strings(bytes, _) => bytes.len(),
            Values::Slices(slices) => slices.iter().map(|slice| slice.len()).sum(),
            Values::Files(files) => files.bytes(),
        }
    }

    /// How many elements, each of `width` bytes if they are numbers.
    fn len(&self, width: usize) -> usize {
        match self {
            Values::Numbers(bytes) => bytes.len() / width,
            Values::Strings(_, splits) => splits.len().saturating_sub(1),
            Values::Slices(slices) => slices.len(),
            Values::Files(files) => files.len(),
        }
    }

    /// The length of a byte string.
    fn length(&self, number: usize) -> usize {
        match self {
            Values::Numbers(_) => 0,
            Values::Strings(_, splits) => (splits[number + 1] - splits[number]) as usize,
            Values::Slices(slices) => slices[number].len(),
            Values::Files(files) => files.size(number),
        }
    }

    /// Appends a byte string.
    fn append(&self, number: usize, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Values::Numbers(_) => {}
            Values::Strings(data, splits) => {
                out.extend_from_slice(&data[splits[number] as usize..splits[number + 1] as usize]);
            }
            Values::Slices(slices) => out.extend_from_slice(slices[number]),
            Values::Files(files) => files.append(number, out)?,
        }
        Ok(())
    }
}

/// One column of a batch to be encoded.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The values of all rows.
    pub values: Values<'a>,
    /// Where each row begins and ends, in elements; only when the plan lets rows differ in length.
    pub row_splits: Option<&'a [i64]>,
    /// 0 for each row that lacks the column; only when the plan lets it.
    pub present: Option<&'a [u8]>,
}

/// Splits begin at zero, never fall, and end at the number of elements.
pub(crate) fn check_splits(splits: &[i64], elements: usize, what: &str) -> Result<()> {
    let monotone = splits.windows(2).all(|pair| pair[0] <= pair[1]);
    match (splits.first(), splits.last()) {
        (Some(0), Some(&last)) if monotone && last as u64 == elements as u64 => Ok(()),
        _ => Err(Error::usage(format!("expected {what} that rise from 0 to {elements}, got others"))),
    }
}

/// One column with its plan, checked: every row can be reached.
pub(crate) struct InputColumn<'a> {
    pub(crate) spec: &'a Spec,
    input: &'a Input<'a>,
}

impl<'a> InputColumn<'a> {
    pub(crate) fn new(spec: &'a Spec, input: &'a Input<'a>, rows: usize) -> Result<Self> {
        Self::check(spec, input, rows).map_err(|error| error.in_field(&spec.key))?;
        Ok(InputColumn { spec, input })
    }

    fn check(spec: &Spec, input: &Input<'_>, rows: usize) -> Result<()> {
        let width = spec.dtype.width();
        match &input.values {
            Values::Numbers(_) if spec.dtype == Dtype::Bytes => {
                return Err(Error::usage("expected byte strings, got numbers"))
            }
            Values::Numbers(bytes) if bytes.len() % width != 0 => return Err(Error::usage("expected whole elements")),
            Values::Numbers(_) => {}
            _ if spec.dtype != Dtype::Bytes => return Err(Error::usage("expected numbers, got byte strings")),
            Values::Strings(data, splits) => check_splits(splits, data.len(), "value splits")?,
            Values::Slices(_) | Values::Files(_) => {}
        }
        let elements = input.values.len(width);
        let found = match (spec.count, input.row_splits) {
            (None, Some(splits)) => {
                check_splits(splits, elements, "row splits")?;
                splits.len() - 1
            }
            (Some(0), None) if elements == 0 => rows,
            (Some(count), None) if count > 0 && elements % count == 0 => elements / count,
            (Some(_), None) => {
                return Err(Error::schema(format!("expected rows of {}, got {elements} in all", spec.describe())))
            }
            (None, None) => return Err(Error::usage("expected row splits for a column of varying length")),
            (Some(_), Some(_)) => return Err(Error::usage("expected no row splits for a column of fixed length")),
        };
        if found != rows || input.present.is_some_and(|present| present.len() != rows) {
            return Err(Error::schema(format!("expected {rows} rows, as other columns have, got {found}")));
        }
        if input.present.is_some_and(|present| present.contains(&0)) && spec.missing == Missing::Refuse {
            return Err(
                Error::schema("expected a value in every row, got rows without one").advise("Mark the field optional.")
            );
        }
        Ok(())
    }

    /// The numbers of the elements of a row.
    fn elements(&self, row: usize) -> std::ops::Range<usize> {
        match (self.spec.count, self.input.row_splits) {
            (Some(count), _) => row * count..(row + 1) * count,
            (None, Some(splits)) => splits[row] as usize..splits[row + 1] as usize,
            (None, None) => 0..0,
        }
    }

    fn number_bytes(&self, row: usize) -> &'a [u8] {
        let width = self.spec.dtype.width();
        let range = self.elements(row);
        match &self.input.values {
            Values::Numbers(bytes) => &bytes[range.start * width..range.end * width],
            _ => &[],
        }
    }

    /// Bytes of the row's packed list, or of its `BytesList` message; `None` when the row lacks the column.
    pub(crate) fn measure(&self, row: usize, scratch: &mut Scratch) -> Result<Option<usize>> {
        if self.input.present.is_some_and(|present| present[row] == 0) {
            return Ok(None);
        }
        let one = |length: usize| 1 + varint_length(length as u64) + length;
        let size = match (self.spec.encoding, self.spec.list()) {
            (Encoding::None, List::Bytes) => self.elements(row).map(|i| one(self.input.values.length(i))).sum(),
            (Encoding::None, List::Floats) => self.elements(row).len() * 4,
            (Encoding::None, List::Ints) => {
                each_int(self.spec.dtype, self.number_bytes(row), |sum, value| sum + varint_length(value))
            }
            (Encoding::Bytes, _) => one(self.number_bytes(row).len()),
            (Encoding::Zlib, _) => one(scratch.compress(self.number_bytes(row), self.spec.dtype.width())?),
        };
        Ok(Some(size))
    }

    /// Appends the row's packed list or `BytesList` message, of `size` bytes as measured.
    fn put(&self, row: usize, size: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        let one = |value: &[u8], out: &mut Vec<u8>| {
            out.push(0x0a);
            put_varint(out, value.len() as u64);
            out.extend_from_slice(value);
        };
        match (self.spec.encoding, self.spec.list()) {
            (Encoding::None, List::Bytes) => {
                for i in self.elements(row) {
                    out.push(0x0a);
                    put_varint(out, self.input.values.length(i) as u64);
                    self.input.values.append(i, out)?;
                }
            }
            (Encoding::None, List::Floats) => put_floats(self.spec.dtype, self.number_bytes(row), out)?,
            (Encoding::None, List::Ints) => {
                let start = out.len();
                out.resize(start + size + 10, 0);
                let room = &mut out[start..];
                let put = |position, value| write_varint(room, position, value);
                let written = each_int(self.spec.dtype, self.number_bytes(row), put);
                if written != size {
                    return Err(Error::usage("expected values that stay as they are while they are encoded"));
                }
                out.truncate(start + size);
            }
            (Encoding::Bytes, _) => one(self.number_bytes(row), out),
            (Encoding::Zlib, _) => one(scratch.take_compressed(), out),
        }
        Ok(())
    }

    /// Bytes of the row's `Feature` message whose list has `size` bytes.
    pub(crate) fn feature_size(&self, size: usize) -> usize {
        let list = self.list_size(size);
        1 + varint_length(list as u64) + list
    }

    /// Bytes of the list message: numbers are wrapped once more than byte strings, unless there are none.
    fn list_size(&self, size: usize) -> usize {
        match self.spec.list() {
            List::Bytes => size,
            _ if size == 0 => 0,
            _ => 1 + varint_length(size as u64) + size,
        }
    }

    pub(crate) fn put_feature(&self, row: usize, size: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        out.push(match self.spec.list() {
            List::Bytes => 0x0a,
            List::Floats => 0x12,
            List::Ints => 0x1a,
        });
        put_varint(out, self.list_size(size) as u64);
        if self.spec.list() != List::Bytes {
            if size == 0 {
                return Ok(());
            }
            out.push(0x0a);
            put_varint(out, size as u64);
        }
        self.put(row, size, scratch, out)
    }
}

/// Folds over the integers of a row, each as the varint it becomes.
#[inline(always)]
fn each_int(dtype: Dtype, bytes: &[u8], mut fold: impl FnMut(usize, u64) -> usize) -> usize {
    macro_rules! fold {
        ($type:ty) => {
            bytes.chunks_exact(size_of::<$type>()).fold(0, |sum, bytes| {
                let value = <$type>::from_le_bytes(bytes.try_into().expect("a whole element"));
                fold(sum, value as i64 as u64)
            })
        };
    }
    match dtype {
        Dtype::Int64 | Dtype::Uint64 => fold!(i64),
        Dtype::Int32 => fold!(i32),
        Dtype::Uint32 => fold!(u32),
        Dtype::Int16 => fold!(i16),
        Dtype::Uint16 => fold!(u16),
        Dtype::Int8 => fold!(i8),
        Dtype::Uint8 => fold!(u8),
        Dtype::Bool => bytes.iter().fold(0, |sum, &byte| fold(sum, u64::from(byte != 0))),
        _ => 0,
    }
}

fn put_floats(dtype: Dtype, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    match dtype {
        Dtype::Float16 => {
            for bytes in bytes.chunks_exact(2) {
                let value = f16::from_le_bytes(bytes.try_into().expect("two bytes"));
                out.extend_from_slice(&value.to_f32().to_le_bytes());
            }
        }
        Dtype::Float64 => {
            for bytes in bytes.chunks_exact(8) {
                let value = f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                let narrow = value as f32;
                if f64::from(narrow) != value && !value.is_nan() {
                    return Err(Error::schema(format!(
                        "expected a float64 that a float_list can hold (it stores float32), got {value:?}"
                    ))
                    .advise("Give the field encoding \"bytes\" or \"zlib\", or cast it to float32."));
                }
                out.extend_from_slice(&narrow.to_le_bytes());
            }
        }
        _ => out.extend_from_slice(bytes),
    }
    Ok(())
}

/// What a thread keeps between records.
#[derive(Default)]
pub(crate) struct Scratch {
    zlib: ZlibCompressor,
    compressed: std::collections::VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    taken: Option<Vec<u8>>,
    pub(crate) sizes: Vec<Option<usize>>,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.spare.drain(..).chain(self.taken.take()).for_each(|used| SPARE.give(used));
    }
}

impl Scratch {
    fn compress(&mut self, bytes: &[u8], width: usize) -> Result<usize> {
        let mut out = self.spare.pop().unwrap_or_else(|| SPARE.take(bytes.len()));
        self.zlib.compress(bytes, width, &mut out)?;
        let length = out.len();
        self.compressed.push_back(out);
        Ok(length)
    }

    /// What was compressed first and not taken yet.
    fn take_compressed(&mut self) -> &[u8] {
        let next = self.compressed.pop_front().unwrap_or_default();
        self.spare.extend(self.taken.replace(next));
        self.taken.as_deref().unwrap_or(&[])
    }
}

/// Columns with their plan, checked once, to be encoded in any pieces on any threads.
pub struct EncodeBatch<'a> {
    /// In the order of the keys.
    lanes: Vec<InputColumn<'a>>,
    rows: usize,
}

impl<'a> EncodeBatch<'a> {
    /// `inputs` stand in the order of the plan's columns and have `rows` rows each.
    pub fn new(plan: &'a Plan, inputs: &'a [Input<'a>], rows: usize) -> Result<Self> {
        if inputs.len() != plan.specs().len() {
            return Err(Error::usage(format!("expected {} columns, got {}", plan.specs().len(), inputs.len())));
        }
        let lanes = plan
            .sorted()
            .iter()
            .map(|&i| InputColumn::new(&plan.specs()[i], &inputs[i], rows))
            .collect::<Result<_>>()?;
        Ok(EncodeBatch { lanes, rows })
    }

    /// How many records.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Encodes all rows on `threads` threads and hands the frames to `sink`, in order and in pieces that fit a core's
    /// cache. The sink gives back the buffers that it is done with, for the next pieces.
    pub fn encode_all(&self, threads: usize, mut sink: impl FnMut(Frames) -> Result<Option<Vec<u8>>>) -> Result<()> {
        let bytes: usize = self.lanes.iter().map(|lane| lane.input.values.bytes()).sum();
        let piece = (PIECE_BYTES * self.rows / bytes.max(1)).clamp(1, self.rows.max(1));
        let spare: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let lock = || spare.lock().unwrap_or_else(PoisonError::into_inner);
        let work = |number: usize| {
            let buffer = lock().pop().unwrap_or_else(|| SPARE.take(PIECE_BYTES));
            self.encode(number * piece..((number + 1) * piece).min(self.rows), buffer)
        };
        in_order(threads, self.rows.div_ceil(piece), work, |frames| {
            let done = sink(frames)?;
            lock().extend(done);
            Ok(())
        })
    }

    /// Encodes some of the rows, framed, in `buffer`.
    pub fn encode(&self, rows: std::ops::Range<usize>, buffer: Vec<u8>) -> Result<Frames> {
        let mut scratch = Scratch::default();
        let mut frames = Frames::reusing(buffer, rows.len());
        for row in rows {
            interrupt::check_at(row)?;
            frames
                .push_with(|out| {
                    let size = self.measure_features(row, &mut scratch)?;
                    out.push(0x0a);
                    put_varint(out, size as u64);
                    self.put_features(row, &mut scratch, out)
                })
                .map_err(|error: Error| error.in_record(row as u64))?;
        }
        Ok(frames)
    }

    /// Bytes of the row's `Features` message; the lists' sizes stay in the scratch.
    pub(crate) fn measure_features(&self, row: usize, scratch: &mut Scratch) -> Result<usize> {
        let mut total = 0;
        scratch.sizes.clear();
        for lane in &self.lanes {
            let size = lane.measure(row, scratch).map_err(|error| error.in_field(&lane.spec.key))?;
            scratch.sizes.push(size);
            if let Some(size) = size {
                let entry = entry_size(&lane.spec.key, lane.feature_size(size));
                total += 1 + varint_length(entry as u64) + entry;
            }
        }
        Ok(total)
    }

    pub(crate) fn put_features(&self, row: usize, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<()> {
        for (number, lane) in self.lanes.iter().enumerate() {
            let Some(size) = scratch.sizes[number] else { continue };
            put_entry(&lane.spec.key, lane.feature_size(size), out);
            lane.put_feature(row, size, scratch, out).map_err(|error| error.in_field(&lane.spec.key))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::columns::Column;
    use crate::example::plan::spec;
    use crate::example::walk::{parse, walk, Feature};

    fn round_trip(plan: &Plan, inputs: &[Input<'_>], rows: usize) -> Vec<Column> {
        let frames = EncodeBatch::new(plan, inputs, rows).unwrap().encode(0..rows, Vec::new()).unwrap();
        let walked = walk(plan, frames.iter()).unwrap();
        assert!(walked.parsed.is_empty(), "what we write is of the usual shape");
        (0..plan.specs().len()).map(|column| walked.column(column).unwrap()).collect()
    }

    fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
        bytemuck::cast_slice(values)
    }

    fn numbers(values: &[u8]) -> Input<'_> {
        Input { values: Values::Numbers(values), row_splits: None, present: None }
    }

    #[test]
    fn numbers_of_every_dtype_come_back() {
        let cases: Vec<(Dtype, Vec<u8>)> = vec![
            (Dtype::Bool, vec![0, 1, 1, 0]),
            (Dtype::Int8, bytes(&[-128i8, 127, 0, -1]).to_vec()),
            (Dtype::Int16, bytes(&[i16::MIN, i16::MAX, 0, -1]).to_vec()),
            (Dtype::Int32, bytes(&[i32::MIN, i32::MAX, 0, -1]).to_vec()),
            (Dtype::Int64, bytes(&[i64::MIN, i64::MAX, 0, -1]).to_vec()),
            (Dtype::Uint8, vec![0, 255, 1, 2]),
            (Dtype::Uint16, bytes(&[0u16, u16::MAX, 1, 2]).to_vec()),
            (Dtype::Uint32, bytes(&[0u32, u32::MAX, 1, 2]).to_vec()),
            (Dtype::Uint64, bytes(&[0u64, u64::MAX, 1, 1 << 63]).to_vec()),
            (Dtype::Float16, bytes(&[0x3c00u16, 0x7c00, 0x0001, 0xc000]).to_vec()),
            (Dtype::Float32, bytes(&[1.5f32, f32::MIN, f32::INFINITY, -0.0]).to_vec()),
            (Dtype::Float64, bytes(&[1.5f64, -0.25, f64::INFINITY, 0.0]).to_vec()),
        ];
        for (dtype, data) in cases {
            for encoding in [Encoding::None, Encoding::Bytes, Encoding::Zlib] {
                let fixed = Spec { encoding, ..spec("x", dtype, Some(2)) };
                let ragged = Spec { encoding, ..spec("y", dtype, None) };
                let plan = Plan::new(vec![fixed, ragged]).unwrap();
                let splits = [0, 3, 4];
                let inputs = [numbers(&data), Input { row_splits: Some(&splits), ..numbers(&data) }];
                let columns = round_trip(&plan, &inputs, 2);
                assert_eq!(columns[0].values.bytes(), data, "{dtype:?} {encoding:?}");
                assert_eq!(columns[1].values.bytes(), data, "{dtype:?} {encoding:?}");
                assert_eq!(columns[1].row_splits.as_deref(), Some(&splits[..]));
            }
        }
    }

    #[test]
    fn strings_and_missing_rows_come_back() {
        let optional = Spec { missing: Missing::Mask, ..spec("s", Dtype::Bytes, Some(1)) };
        let plan = Plan::new(vec![optional, spec("many", Dtype::Bytes, None)]).unwrap();
        let inputs = [
            Input { values: Values::Slices(vec![b"one", b"", b"three"]), row_splits: None, present: Some(&[1, 0, 1]) },
            Input { values: Values::Strings(b"abc", &[0, 1, 1, 3]), row_splits: Some(&[0, 0, 2, 3]), present: None },
        ];
        let columns = round_trip(&plan, &inputs, 3);
        assert_eq!(columns[0].values.bytes(), b"onethree");
        assert_eq!(columns[0].value_splits.as_deref(), Some(&[0, 3, 3, 8][..]));
        assert_eq!(columns[0].present.as_deref(), Some(&[1, 0, 1][..]));
        assert_eq!(columns[1].row_splits.as_deref(), Some(&[0, 0, 2, 3][..]));
        assert_eq!(columns[1].value_splits.as_deref(), Some(&[0, 1, 1, 3][..]));
    }

    #[test]
    fn defaults_fill_what_is_missing() {
        let with_default =
            Spec { missing: Missing::Default(7i64.to_le_bytes().to_vec()), ..spec("a", Dtype::Int64, Some(1)) };
        let plan = Plan::new(vec![with_default]).unwrap();
        let walked = walk(&plan, [&[][..]].into_iter()).unwrap();
        assert_eq!(walked.column(0).unwrap().values.bytes(), 7i64.to_le_bytes());
    }

    #[test]
    fn empty_lists_keep_their_kind() {
        let plan = Plan::new(vec![spec("a", Dtype::Int64, None)]).unwrap();
        let inputs = [Input { row_splits: Some(&[0, 0]), ..numbers(&[]) }];
        let frames = EncodeBatch::new(&plan, &inputs, 1).unwrap().encode(0..1, Vec::new()).unwrap();
        assert_eq!(parse(frames.get(0).unwrap()).unwrap()["a"], Feature::Ints(vec![]));
        assert_eq!(frames.get(0).unwrap().iter().rev().take(2).rev().copied().collect::<Vec<_>>(), [0x1a, 0x00]);
    }

    #[test]
    fn a_float64_that_would_lose_is_refused() {
        let plan = Plan::new(vec![spec("a", Dtype::Float64, Some(1))]).unwrap();
        let data = 1e300f64.to_le_bytes();
        let error = EncodeBatch::new(&plan, &[numbers(&data)], 1).unwrap().encode(0..1, Vec::new()).unwrap_err();
        assert_eq!(error.field(), Some("a"));
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let plan = Plan::new(vec![spec("a", Dtype::Int64, Some(2)), spec("b", Dtype::Int64, None)]).unwrap();
        let good = numbers(&[0; 32]);
        let ragged = |splits| Input { row_splits: Some(splits), ..numbers(&[0; 16]) };
        assert!(EncodeBatch::new(&plan, &[good.clone(), ragged(&[0, 1, 2])], 2).is_ok());
        for splits in [&[0, 1][..], &[0, 2, 1], &[1, 1, 2], &[0, 1, 3], &[0, -1, 2], &[]] {
            assert!(EncodeBatch::new(&plan, &[good.clone(), ragged(splits)], 2).is_err(), "{splits:?}");
        }
        assert!(EncodeBatch::new(&plan, &[good.clone(), good.clone()], 2).is_err());
        assert!(EncodeBatch::new(&plan, &[good], 2).is_err());
    }
}
