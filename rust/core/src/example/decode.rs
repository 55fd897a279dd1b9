//! Decodes the located values of records into columns.

use bytemuck::Pod;
use libdeflater::Decompressor;

use crate::codec::protobuf::{count_varints, each_varint, read_varints};
use crate::codec::zlib::{inflate_all, inflate_exactly, MAX_INFLATION};
use crate::error::{Error, Result};
use crate::example::columns::{Column, ColumnBuffer};
use crate::example::convert::{dispatch, typed, Convert, ForDtype};
use crate::example::plan::{Encoding, List, Missing, Spec};
use crate::example::walk::{byte_strings, malformed, Cell, Feature, Walked};
use crate::limits;

impl Walked<'_, '_> {
    /// How many records.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Decodes column `column` into memory of its own.
    pub fn column(&self, column: usize) -> Result<Column> {
        let mut out = Column::empty(&self.plan.specs()[column]);
        self.append(column, &mut out)?;
        Ok(out)
    }

    /// Decodes column `column` behind the rows that `out` has already.
    pub fn append(&self, column: usize, out: &mut Column) -> Result<()> {
        self.lane(column).append(out)
    }

    /// The size of a column whose rows are all there and of one length: what [`Walked::fill`] needs. `None` also when
    /// the records can't hold that much, so that nobody makes room in vain: [`Walked::column`] says why.
    pub fn fixed_bytes(&self, column: usize) -> Option<usize> {
        let spec = &self.plan.specs()[column];
        if spec.missing == Missing::Mask {
            return None;
        }
        let bytes = spec.row_bytes()?.checked_mul(self.rows)?;
        self.lane(column).check_sizes(0).ok()?;
        Some(bytes)
    }

    /// Decodes a column of [`Walked::fixed_bytes`] into `out`, which must have that size and be aligned for the dtype.
    pub fn fill(&self, column: usize, out: &mut [u8]) -> Result<()> {
        self.lane(column).fill_rows(out, None)
    }

    fn lane(&self, column: usize) -> ColumnCells<'_, '_> {
        ColumnCells {
            spec: &self.plan.specs()[column],
            cells: self.cells.get(column..).unwrap_or(&[]),
            stride: self.plan.specs().len(),
            parsed: &self.parsed,
        }
    }
}

/// One column's cells over all rows.
pub(crate) struct ColumnCells<'a, 'r> {
    pub(crate) spec: &'a Spec,
    pub(crate) cells: &'a [Cell<'r>],
    pub(crate) stride: usize,
    pub(crate) parsed: &'a [Feature<'r>],
}

impl<'a, 'r> ColumnCells<'a, 'r> {
    fn rows(&self) -> impl ExactSizeIterator<Item = (usize, Cell<'r>)> + 'a {
        self.cells.iter().step_by(self.stride).copied().enumerate()
    }

    fn place(&self, row: usize, error: Error) -> Error {
        error.in_record(row as u64).in_field(&self.spec.key)
    }

    /// Decodes all rows behind those that `column` has already.
    pub(crate) fn append(&self, column: &mut Column) -> Result<()> {
        let Column { values, value_splits, row_splits, present, .. } = column;
        let lacking = present.as_ref().map_or(0, |present| present.iter().filter(|&&there| there == 0).count());
        // All count as present until a row turns out to be missing.
        let mut present = present.as_mut().map(|present| {
            let start = present.len();
            present.resize(start + self.rows().len(), 1);
            &mut present[start..]
        });
        match (value_splits, row_splits, self.spec.encoding) {
            (Some(value_splits), row_splits, _) => {
                let ColumnBuffer::Strings(values) = values else {
                    return Err(Error::usage("expected a column of byte strings"));
                };
                self.check_missing(lacking)?;
                self.append_strings(values, value_splits, row_splits.as_mut(), &mut present)
            }
            (None, None, _) => {
                self.check_sizes(lacking)?;
                let bytes = self.spec.row_bytes().unwrap_or(0).saturating_mul(self.rows().len());
                self.fill_rows(values.grow(bytes)?, present)
            }
            (None, Some(splits), Encoding::None) => self.append_ragged(values, splits, present),
            (None, Some(splits), _) => self.append_ragged_bytes(values, splits, &mut present),
        }
    }

    /// Refuses more missing rows than may be filled in: no bytes of a record stand behind them. The column has
    /// `lacking` of them already.
    fn check_missing(&self, lacking: usize) -> Result<()> {
        let bytes = match &self.spec.missing {
            Missing::Refuse => return Ok(()),
            Missing::Mask => self.spec.most_bytes().unwrap_or(usize::MAX),
            Missing::Default(row) => row.len(),
        };
        let limit = limits::max_row_bytes();
        let most = usize::try_from(limit / (bytes as u64).max(1)).unwrap_or(usize::MAX).saturating_sub(lacking);
        if bytes == 0 || self.rows().len() <= most {
            return Ok(());
        }
        match self.rows().filter(|(_, cell)| *cell == Cell::Missing).nth(most) {
            None => Ok(()),
            Some((row, _)) => {
                let got = format!("more: {} rows of {}", lacking + most + 1, self.spec.describe());
                let error = limits::too_wide("missing rows of a batch", got);
                Err(self.place(row, error))
            }
        }
    }

    /// Refuses rows that can't have the declared size, before anything is allocated by it.
    fn check_sizes(&self, lacking: usize) -> Result<()> {
        self.check_missing(lacking)?;
        let (Some(count), Some(row_bytes)) = (self.spec.count, self.spec.row_bytes()) else { return Ok(()) };
        for (row, cell) in self.rows() {
            let possible = match (cell, self.spec.encoding) {
                (Cell::Packed(List::Ints, packed), Encoding::None) => packed.len() >= count,
                (Cell::Packed(List::Floats, packed), Encoding::None) => packed.len() == 4 * count,
                (Cell::Packed(_, packed), Encoding::Bytes) => packed.len() >= row_bytes,
                (Cell::Packed(_, packed), Encoding::Zlib) => packed.len().saturating_mul(MAX_INFLATION) >= row_bytes,
                (Cell::Packed(..), Encoding::None) => false,
                (Cell::Parsed(number), Encoding::None) => self.parsed[number].len() == count,
                (Cell::Parsed(_), encoding) => {
                    let value = self.single(cell).map_err(|error| self.place(row, error))?.unwrap_or(&[]);
                    let most = if encoding == Encoding::Zlib { MAX_INFLATION } else { 1 };
                    value.len().saturating_mul(most) >= row_bytes
                }
                (Cell::Missing, _) => self.spec.missing != Missing::Refuse,
            };
            if !possible {
                return Err(self.place(row, self.wrong_size(cell)));
            }
        }
        Ok(())
    }

    fn fill_rows(&self, out: &mut [u8], mut present: Option<&mut [u8]>) -> Result<()> {
        let row_bytes = self.spec.row_bytes().unwrap_or(0);
        if row_bytes * self.rows().len() != out.len() {
            return Err(Error::usage(format!("expected room for {} rows, got {} bytes", self.rows().len(), out.len())));
        }
        match (self.spec.encoding, self.spec.dtype) {
            (Encoding::None, dtype) => dispatch(dtype, Fill { lane: self, out, splits: None, present })?,
            (encoding, _) => {
                let mut inflater = Decompressor::new();
                for (row, cell) in self.rows() {
                    let slot = &mut out[row * row_bytes..(row + 1) * row_bytes];
                    let filled = match self.single(cell) {
                        Ok(None) => self.fill_missing(slot).map(|there| mark(&mut present, row, there)),
                        Ok(Some(value)) if encoding == Encoding::Zlib => inflate_exactly(&mut inflater, value, slot),
                        Ok(Some(value)) if value.len() == row_bytes => {
                            slot.copy_from_slice(value);
                            Ok(())
                        }
                        Ok(Some(value)) => Err(self.wrong_bytes(value.len())),
                        Err(error) => Err(error),
                    };
                    filled.map_err(|error| self.place(row, error))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the row of a record that lacks the column; says whether it counts as there.
    fn fill_missing(&self, slot: &mut [u8]) -> Result<bool> {
        match &self.spec.missing {
            Missing::Refuse => Err(self.absent()),
            Missing::Mask => {
                slot.fill(0);
                Ok(false)
            }
            Missing::Default(row) => {
                slot.copy_from_slice(row);
                Ok(true)
            }
        }
    }

    fn append_ragged(
        &self,
        values: &mut ColumnBuffer,
        splits: &mut Vec<i64>,
        present: Option<&mut [u8]>,
    ) -> Result<()> {
        let first = splits.len() - 1;
        let start = splits[first];
        let mut total = start;
        self.check_missing(0)?;
        limits::reserve(splits, self.rows().len())?;
        for (row, cell) in self.rows() {
            let count = match cell {
                Cell::Packed(list, _) if list != self.spec.list() => Err(self.wrong_list(list)),
                Cell::Packed(List::Ints, packed) => Ok(count_varints(packed)),
                Cell::Packed(_, packed) if packed.len() % 4 == 0 => Ok(packed.len() / 4),
                Cell::Packed(_, _) => Err(self.broken()),
                Cell::Parsed(number) => match self.parsed[number].list() {
                    Some(list) if list == self.spec.list() => Ok(self.parsed[number].len()),
                    Some(list) => Err(self.wrong_list(list)),
                    None => Err(self.absent()),
                },
                Cell::Missing => match &self.spec.missing {
                    Missing::Refuse => Err(self.absent()),
                    Missing::Default(row) => Ok(row.len() / self.spec.dtype.width()),
                    Missing::Mask => Ok(0),
                },
            };
            total += count.map_err(|error| self.place(row, error))? as i64;
            splits.push(total);
        }
        let out = values.grow(((total - start) as usize).saturating_mul(self.spec.dtype.width()))?;
        dispatch(self.spec.dtype, Fill { lane: self, out, splits: Some(&splits[first..]), present })
    }

    fn append_ragged_bytes(
        &self,
        values: &mut ColumnBuffer,
        splits: &mut Vec<i64>,
        present: &mut Option<&mut [u8]>,
    ) -> Result<()> {
        let width = self.spec.dtype.width();
        let before = splits.last().copied().unwrap_or(0);
        let mut all: Vec<u8> = Vec::new();
        let mut inflater = Decompressor::new();
        for (row, cell) in self.rows() {
            let start = all.len();
            let added = match self.single(cell) {
                Err(error) => Err(error),
                Ok(Some(value)) if self.spec.encoding == Encoding::Zlib => inflate_all(&mut inflater, value, &mut all),
                Ok(Some(value)) => limits::reserve(&mut all, value.len()).map(|()| all.extend_from_slice(value)),
                Ok(None) => match &self.spec.missing {
                    Missing::Refuse => Err(self.absent()),
                    Missing::Mask => {
                        mark(present, row, false);
                        Ok(())
                    }
                    Missing::Default(default) => {
                        limits::reserve(&mut all, default.len()).map(|()| all.extend_from_slice(default))
                    }
                },
            };
            added.map_err(|error| self.place(row, error))?;
            if (all.len() - start) % width != 0 {
                return Err(self.place(row, self.wrong_bytes(all.len() - start)));
            }
            splits.push(before + (all.len() / width) as i64);
        }
        values.grow(all.len())?.copy_from_slice(&all);
        Ok(())
    }

    fn append_strings(
        &self,
        values: &mut Vec<u8>,
        value_splits: &mut Vec<i64>,
        mut row_splits: Option<&mut Vec<i64>>,
        present: &mut Option<&mut [u8]>,
    ) -> Result<()> {
        let sizes = self.rows().map(|(_, cell)| match cell {
            Cell::Packed(List::Bytes, message) => message.len(),
            _ => 0,
        });
        limits::reserve(values, sizes.sum())?;
        limits::reserve(value_splits, self.rows().len())?;
        for (row, cell) in self.rows() {
            let before = value_splits.len();
            let mut push = |value: &[u8]| {
                values.extend_from_slice(value);
                value_splits.push(values.len() as i64);
            };
            let added = match cell {
                Cell::Packed(List::Bytes, message) => {
                    byte_strings(message).try_for_each(|value| value.map(&mut push)).map_err(malformed)
                }
                Cell::Packed(list, _) => Err(self.wrong_list(list)),
                Cell::Parsed(number) => match &self.parsed[number] {
                    Feature::Bytes(strings) => {
                        strings.iter().copied().for_each(&mut push);
                        Ok(())
                    }
                    other => Err(other.list().map_or_else(|| self.absent(), |list| self.wrong_list(list))),
                },
                Cell::Missing => match &self.spec.missing {
                    Missing::Refuse => Err(self.absent()),
                    Missing::Default(value) => {
                        push(value);
                        Ok(())
                    }
                    Missing::Mask => {
                        (0..self.spec.count.unwrap_or(0)).for_each(|_| push(&[]));
                        mark(present, row, false);
                        Ok(())
                    }
                },
            };
            added.map_err(|error| self.place(row, error))?;
            let got = value_splits.len() - before;
            match (self.spec.count, &mut row_splits) {
                (Some(count), _) if got != count => return Err(self.place(row, self.wrong_count(got))),
                (_, Some(splits)) => splits.push(value_splits.len() as i64 - 1),
                _ => {}
            }
        }
        Ok(())
    }

    /// The one byte string of a cell, `None` when the cell is missing.
    fn single(&self, cell: Cell<'r>) -> Result<Option<&'r [u8]>> {
        let (first, count) = match cell {
            Cell::Missing => return Ok(None),
            Cell::Packed(List::Bytes, message) => {
                let mut first = None;
                let mut count = 0;
                for value in byte_strings(message) {
                    first.get_or_insert(value.map_err(malformed)?);
                    count += 1;
                }
                (first, count)
            }
            Cell::Packed(list, _) => return Err(self.wrong_list(list)),
            Cell::Parsed(number) => match &self.parsed[number] {
                Feature::Bytes(strings) => (strings.first().copied(), strings.len()),
                other => return Err(other.list().map_or_else(|| self.absent(), |list| self.wrong_list(list))),
            },
        };
        match first {
            Some(value) if count == 1 => Ok(Some(value)),
            _ => Err(Error::schema(format!("expected one byte string that holds the values, got {count}"))),
        }
    }

    fn absent(&self) -> Error {
        let advice = "Mark the field optional or give it a default, if records may lack it.";
        Error::schema(format!("expected {}, got no such feature", self.spec.describe())).advise(advice)
    }

    fn wrong_list(&self, got: List) -> Error {
        Error::schema(format!(
            "expected {} in a {}, got a {}",
            self.spec.describe(),
            self.spec.list().name(),
            got.name()
        ))
    }

    fn wrong_count(&self, got: usize) -> Error {
        Error::schema(format!("expected {}, got {got}", self.spec.describe()))
            .advise("Declare an unknown dimension (?) if the number differs from record to record.")
    }

    fn wrong_bytes(&self, got: usize) -> Error {
        let width = self.spec.dtype.width();
        Error::schema(format!("expected {} of {width} bytes each, got {got} bytes", self.spec.describe()))
    }

    fn broken(&self) -> Error {
        Error::corrupt(format!("expected a packed {}, got broken bytes", self.spec.list().name()))
    }

    /// Why a row that has not the declared size hasn't.
    fn wrong_size(&self, cell: Cell<'r>) -> Error {
        match cell {
            Cell::Packed(list, _) if list != self.spec.list() => self.wrong_list(list),
            Cell::Packed(List::Ints, packed) => self.wrong_count(count_varints(packed)),
            Cell::Packed(List::Floats, packed) if packed.len() % 4 == 0 => self.wrong_count(packed.len() / 4),
            Cell::Packed(List::Floats, _) => self.broken(),
            Cell::Packed(List::Bytes, packed) => self.wrong_bytes(packed.len()),
            Cell::Parsed(number) => match (&self.parsed[number], self.parsed[number].list()) {
                (_, Some(list)) if list != self.spec.list() => self.wrong_list(list),
                (Feature::Bytes(values), _) if self.spec.encoding != Encoding::None => {
                    self.wrong_bytes(values.iter().map(|value| value.len()).sum())
                }
                (feature, _) => self.wrong_count(feature.len()),
            },
            Cell::Missing => self.absent(),
        }
    }

    /// Writes one row of list values into `slots`, each through `convert`.
    #[inline(always)]
    fn put_row<T: Pod>(&self, cell: Cell<'r>, slots: &mut [T], convert: &impl Convert<T>) -> Result<bool> {
        match cell {
            Cell::Packed(List::Ints, packed) if self.spec.list() == List::Ints => {
                if !read_varints(packed, slots, |value| convert.int(value as i64)) {
                    return Err(self.wrong_ints(packed, slots.len()));
                }
            }
            Cell::Packed(List::Floats, packed) if self.spec.list() == List::Floats => {
                if packed.len() != slots.len() * 4 {
                    return Err(self.wrong_size(cell));
                }
                for (slot, bytes) in slots.iter_mut().zip(packed.chunks_exact(4)) {
                    *slot = convert.float(f32::from_le_bytes(bytes.try_into().expect("four bytes")));
                }
            }
            Cell::Packed(list, _) => return Err(self.wrong_list(list)),
            Cell::Parsed(number) => match &self.parsed[number] {
                Feature::Ints(values) if self.spec.list() == List::Ints && values.len() == slots.len() => {
                    for (slot, &value) in slots.iter_mut().zip(values) {
                        let (element, fits) = convert.int(value);
                        if !fits {
                            return Err(self.out_of_range(value));
                        }
                        *slot = element;
                    }
                }
                Feature::Floats(values) if self.spec.list() == List::Floats && values.len() == slots.len() => {
                    slots.iter_mut().zip(values).for_each(|(slot, &value)| *slot = convert.float(value));
                }
                _ => return Err(self.wrong_size(cell)),
            },
            Cell::Missing => return self.fill_missing(bytemuck::cast_slice_mut(slots)),
        }
        Ok(true)
    }

    #[cold]
    fn wrong_ints(&self, packed: &[u8], expected: usize) -> Error {
        let mut values = Vec::new();
        let whole = each_varint(packed, |value| values.push(value as i64));
        match values.iter().find(|&&value| !self.spec.dtype.holds(value)) {
            _ if !whole => self.broken(),
            _ if values.len() != expected => self.wrong_count(values.len()),
            Some(&value) => self.out_of_range(value),
            None => self.broken(),
        }
    }

    #[cold]
    fn out_of_range(&self, value: i64) -> Error {
        Error::schema(format!(
            "expected {}, got {value}, which {} can't hold",
            self.spec.describe(),
            self.spec.dtype.name()
        ))
        .advise("Declare a wider dtype.")
    }
}

#[inline]
fn mark(present: &mut Option<&mut [u8]>, row: usize, there: bool) {
    if let (Some(present), false) = (present, there) {
        present[row] = 0;
    }
}

/// Fills all rows of a list column, of one length or as `splits` say.
struct Fill<'l, 'a, 'r> {
    lane: &'l ColumnCells<'a, 'r>,
    out: &'l mut [u8],
    splits: Option<&'l [i64]>,
    present: Option<&'l mut [u8]>,
}

impl ForDtype for Fill<'_, '_, '_> {
    fn run<T: Pod>(mut self, convert: &impl Convert<T>) -> Result<()> {
        let count = self.lane.spec.count.unwrap_or(0);
        let mut rest = typed::<T>(self.out)?;
        for (row, cell) in self.lane.rows() {
            let length = self.splits.map_or(count, |splits| (splits[row + 1] - splits[row]) as usize);
            let slots;
            (slots, rest) = rest.split_at_mut(length);
            let there = self.lane.put_row(cell, slots, convert).map_err(|error| self.lane.place(row, error))?;
            mark(&mut self.present, row, there);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::plan::{spec, Dtype, Plan};
    use crate::example::walk::walk;
    use crate::limits::DEFAULT_ROW_BYTES;

    #[test]
    fn rows_that_are_not_there_are_refused_before_memory_is_taken_for_them() {
        // Nothing, no list, a list of another kind, and lists in a form that only the whole parser takes: all too short.
        let records: [&[u8]; 8] = [
            &[],
            &[0x0a, 7, 0x0a, 5, 0x0a, 1, b'a', 0x12, 0],
            &[0x0a, 9, 0x0a, 7, 0x0a, 1, b'a', 0x12, 2, 0x0a, 0],
            &[0x0a, 9, 0x0a, 7, 0x0a, 1, b'a', 0x12, 2, 0x12, 0],
            &[0x0a, 9, 0x0a, 7, 0x0a, 1, b'a', 0x12, 2, 0x1a, 0],
            &[0x0a, 11, 0x0a, 9, 0x0a, 1, b'a', 0x12, 4, 0x0a, 2, 0x0a, 0],
            &[0x0a, 13, 0x0a, 11, 0x0a, 1, b'a', 0x12, 6, 0x20, 1, 0x0a, 2, 0x0a, 0],
            &[0x0a, 13, 0x0a, 11, 0x0a, 1, b'a', 0x12, 6, 0x20, 1, 0x1a, 2, 0x08, 1],
        ];
        for encoding in [Encoding::None, Encoding::Bytes, Encoding::Zlib] {
            let count = DEFAULT_ROW_BYTES as usize / 8;
            let plan = Plan::new(vec![Spec { encoding, ..spec("a", Dtype::Int64, Some(count)) }]).unwrap();
            for record in records {
                let rows = vec![record; 1 << 16];
                let walked = walk(&plan, rows.into_iter()).unwrap();
                assert_eq!(walked.fixed_bytes(0), None, "{record:?}");
                let error = walked.column(0).unwrap_err();
                assert_eq!((error.record(), error.field()), (Some(0), Some("a")), "{record:?}");
            }
        }
    }
}
