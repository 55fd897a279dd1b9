//! Makes batches from record numbers in any order: read, check, decode.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::example::columns::Column;
use crate::example::plan::{Plan, Spec};
use crate::example::walk::walk;
use crate::feed::shard_set::ShardSet;
use crate::format::container::RecordScratch;
use crate::format::gather::{self, fitting, touch};
use crate::image::Images;
use crate::interrupt;
use crate::io::cached_file::MAX_CACHED;
use crate::io::file::Progress;
use crate::ordered_queue::in_order;

/// About this many bytes are checked and decoded at a time, and read if records are neighbours: they fit into a core's
/// cache.
const PIECE_BYTES: u64 = 1 << 18;

/// At most this many values are decoded at a time, however small their records are.
const PIECE_CELLS: usize = 1 << 20;

/// About this many bytes of small records in random order are read at a time: some of them may be neighbours.
const GATHER_BYTES: u64 = 1 << 20;

/// Maximum bytes of a small record.
const SMALL_RECORD: u64 = 1 << 12;

/// Number of neighbours located at a time: their rows fit into a core's cache.
const LOCATED: usize = 1 << 10;
/// Number of records in random order located at a time: some of them may be neighbours.
const GATHERED: usize = 1 << 13;

/// Records in memory are decoded in steps of about this many bytes.
const DECODED_BYTES: usize = 1 << 23;
/// Maximum number of them at a time.
const DECODED: usize = 1 << 14;

/// Threads are started for parts of at least this many bytes.
const PART_BYTES: u64 = 1 << 17;

/// Makes batches of records.
#[derive(Debug)]
pub struct BatchDecoder {
    /// Where the records are.
    pub shards: Arc<ShardSet>,
    /// The columns.
    pub plan: Arc<Plan>,
    /// The images among them.
    pub images: Option<Arc<Images>>,
    /// True to leave out invalid records.
    pub skip: bool,
}

/// Which records.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Their numbers.
    pub numbers: &'a [u64],
    /// Their positions in the global order.
    pub places: &'a [u64],
    /// The epoch.
    pub epoch: u64,
}

impl Rows<'_> {
    fn part(&self, from: usize, to: usize) -> Rows<'_> {
        Rows { numbers: &self.numbers[from..to], places: &self.places[from..to], epoch: self.epoch }
    }
}

/// A batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// Its columns.
    pub columns: Vec<Column>,
    /// Number of rows.
    pub rows: usize,
    /// Size of the records' frames.
    pub frame_bytes: u64,
    /// Invalid records that were left out.
    pub skipped: Vec<Skipped>,
}

impl Batch {
    /// Bytes of memory of its columns.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(Column::bytes).sum()
    }
}

/// An invalid record that was left out of its batch.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// The row it would have had.
    pub row: usize,
    /// Its number.
    pub number: u64,
    /// Its error.
    pub error: Error,
}

/// Time per stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Finding and reading records.
    pub read: Duration,
    /// Checksums.
    pub check: Duration,
    /// Records to columns.
    pub decode: Duration,
    /// Images.
    pub image: Duration,
}

impl std::ops::AddAssign for StageTimes {
    fn add_assign(&mut self, other: StageTimes) {
        self.read += other.read;
        self.check += other.check;
        self.decode += other.decode;
        self.image += other.image;
    }
}

/// Memory that a thread reuses, and its clock.
pub struct DecodeScratch<'a> {
    /// Memory that frames are read into.
    pub buffer: Vec<u8>,
    /// Memory that records are decoded into.
    pub records: RecordScratch,
    /// Maximum bytes of shards that the process caches.
    pub cache_budget: u64,
    /// Time per stage so far.
    pub spent: StageTimes,
    /// Callback; an error from it ends the work.
    pub progress: Progress<'a>,
}

impl<'a> DecodeScratch<'a> {
    /// Create scratch memory with the default budget.
    pub fn new(progress: Progress<'a>) -> DecodeScratch<'a> {
        DecodeScratch {
            buffer: Vec::new(),
            records: RecordScratch::default(),
            cache_budget: MAX_CACHED,
            spent: StageTimes::default(),
            progress,
        }
    }
}

/// A clock that is read once between two stages.
struct Lap(Instant);

impl Lap {
    fn end(&mut self, stage: &mut Duration) {
        let now = Instant::now();
        *stage += now - self.0;
        self.0 = now;
    }
}

/// Return true for an error of a record, not of a file or of an argument.
fn is_bad_record(error: &Error) -> bool {
    (error.kind().is_corrupt() || error.kind().is_schema()) && error.record().is_some()
}

/// Decodes records into columns, some megabytes at a time. An error names the record by its number among them.
pub fn decode_all(plan: &Plan, records: &[&[u8]]) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = plan.specs().iter().map(Column::empty).collect();
    // A decoded record may be much larger than its compressed bytes.
    let row = plan.specs().iter().filter_map(Spec::row_bytes).fold(1, usize::saturating_add);
    let mut done = 0;
    while done < records.len() {
        interrupt::check()?;
        let mut left = DECODED_BYTES;
        let fits = |record: &&&[u8]| {
            let fits = left > 0;
            left = left.saturating_sub(record.len().saturating_add(row));
            fits
        };
        let count = records[done..].iter().take(DECODED).take_while(fits).count();
        let place = |error: Error| error.renumbered(|row| row + done as u64);
        let walked = walk(plan, records[done..done + count].iter().copied()).map_err(place)?;
        if done == 0 && count == records.len() {
            return (0..columns.len()).map(|number| walked.column(number)).collect();
        }
        for (number, column) in columns.iter_mut().enumerate() {
            walked.append(number, column).map_err(place)?;
            column.expect(done + count, records.len()).map_err(place)?;
        }
        done += count;
    }
    Ok(columns)
}

impl BatchDecoder {
    /// Make batches of `batch` rows; the last has the rest.
    pub fn batches(&self, rows: Rows<'_>, batch: usize, scratch: &mut DecodeScratch<'_>) -> Result<Vec<Batch>> {
        match self.all(rows, batch, scratch) {
            Err(error) if self.skip && is_bad_record(&error) => (0..rows.numbers.len())
                .step_by(batch)
                .map(|from| self.good(rows.part(from, from.saturating_add(batch).min(rows.numbers.len())), scratch))
                .collect(),
            result => result,
        }
    }

    /// Make a batch without its invalid records.
    fn good(&self, rows: Rows<'_>, scratch: &mut DecodeScratch<'_>) -> Result<Batch> {
        let (mut numbers, mut places, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for (row, (&number, &place)) in rows.numbers.iter().zip(rows.places).enumerate() {
            match self.all(rows.part(row, row + 1), 1, scratch) {
                Ok(_) => {
                    numbers.push(number);
                    places.push(place);
                }
                Err(error) if is_bad_record(&error) => skipped.push(Skipped { row, number, error }),
                Err(error) => return Err(error),
            }
        }
        let rows = Rows { numbers: &numbers, places: &places, epoch: rows.epoch };
        let mut batch = match self.all(rows, numbers.len().max(1), scratch)?.pop() {
            Some(batch) => batch,
            None => self.finish(Batch { columns: self.columns(), ..Batch::default() }, rows, &mut scratch.spent)?,
        };
        batch.skipped = skipped;
        Ok(batch)
    }

    fn columns(&self) -> Vec<Column> {
        self.plan.specs().iter().map(Column::empty).collect()
    }

    fn finish(&self, mut batch: Batch, rows: Rows<'_>, spent: &mut StageTimes) -> Result<Batch> {
        if let Some(images) = &self.images {
            let mut lap = Lap(Instant::now());
            images
                .decode(&self.plan, &mut batch.columns, rows.epoch, rows.places)
                .map_err(|error| self.place(rows.numbers, error))?;
            lap.end(&mut spent.image);
        }
        Ok(batch)
    }

    /// Replace the row that an error names by its record and place.
    fn place(&self, numbers: &[u64], error: Error) -> Error {
        match error.record().and_then(|row| numbers.get(row as usize)) {
            Some(&number) => self.shards.place(number, error),
            None => error,
        }
    }

    /// Decode all records, or return the first error.
    fn all(&self, rows: Rows<'_>, batch: usize, scratch: &mut DecodeScratch<'_>) -> Result<Vec<Batch>> {
        let numbers = rows.numbers;
        let mut lap = Lap(Instant::now());
        let neighbours = numbers.is_sorted_by(|one, next| one.checked_add(1) == Some(*next));
        let step = if neighbours { LOCATED } else { GATHERED };
        let widest = (PIECE_CELLS / self.plan.specs().len().max(1)).max(1);
        let (mut located, mut first, mut limit) = (Vec::new(), 0, PIECE_BYTES);
        let mut batches = Vec::with_capacity(numbers.len().div_ceil(batch));
        let mut current = Batch { columns: self.columns(), ..Batch::default() };
        let mut read = 0;
        while read < numbers.len() {
            (scratch.progress)(read as u64)?;
            if read == first + located.len() {
                first = read;
                located = self.shards.rows(&numbers[first..numbers.len().min(first + step)], scratch.progress)?;
                let bytes: u64 = located.iter().map(gather::Row::bytes).sum();
                let small = !neighbours && bytes / SMALL_RECORD < located.len() as u64;
                limit = if small { GATHER_BYTES } else { PIECE_BYTES };
            }
            let located = &mut located[read - first..];
            let end = read + fitting(located, limit);
            let frames = gather::frames(&mut located[..end - read], &mut scratch.buffer, scratch.cache_budget)?;
            lap.end(&mut scratch.spent.read);
            let mut row = read;
            while row < end {
                let whole = batch.min(numbers.len() - (row - current.rows));
                let most = (end - row).min(whole - current.rows);
                let located = &located[row - read..];
                let count = fitting(&located[..most], PIECE_BYTES).min(widest);
                let frames = &frames[row - read..row - read + count];
                if !neighbours {
                    touch(frames);
                    lap.end(&mut scratch.spent.read);
                }
                let place = |error: Error| self.place(&numbers[row..row + count], error);
                let data = gather::decode(&located[..count], frames, &mut scratch.records).map_err(place)?;
                lap.end(&mut scratch.spent.check);
                let walked = walk(&self.plan, data.iter().copied()).map_err(place)?;
                for (number, column) in current.columns.iter_mut().enumerate() {
                    walked.append(number, column).map_err(place)?;
                    column.expect(current.rows + count, whole)?;
                }
                lap.end(&mut scratch.spent.decode);
                current.frame_bytes += located[..count].iter().map(gather::Row::bytes).sum::<u64>();
                current.rows += count;
                row += count;
                if current.rows == whole {
                    let next = Batch { columns: self.columns(), ..Batch::default() };
                    let done = std::mem::replace(&mut current, next);
                    batches.push(self.finish(done, rows.part(row - whole, row), &mut scratch.spent)?);
                    lap = Lap(Instant::now());
                }
            }
            read = end;
        }
        Ok(batches)
    }

    /// Make one batch, on several threads if it is large enough.
    pub fn batch(&self, rows: Rows<'_>, threads: usize) -> Result<Batch> {
        let count = rows.numbers.len();
        let bytes: u64 = match threads {
            0 | 1 => 0,
            _ => self.shards.rows(rows.numbers, &mut |_| interrupt::check())?.iter().map(gather::Row::bytes).sum(),
        };
        let parts = if self.images.is_some() { count } else { (bytes / PART_BYTES) as usize };
        let parts = parts.min(threads).max(1);
        let cut = |part: usize| part * count / parts;
        let work = |part: usize| {
            let rows = rows.part(cut(part), cut(part + 1));
            Ok(self
                .batches(rows, rows.numbers.len().max(1), &mut DecodeScratch::new(&mut |_| interrupt::check()))?
                .pop())
        };
        let mut whole: Option<Batch> = None;
        in_order(parts, parts, work, |part| {
            match (&mut whole, part) {
                (Some(whole), Some(part)) => {
                    whole.columns.iter_mut().zip(&part.columns).try_for_each(|(column, more)| column.join(more))?;
                    whole.rows += part.rows;
                    whole.frame_bytes += part.frame_bytes;
                }
                (None, part) => whole = part,
                (Some(_), None) => {}
            }
            Ok(())
        })?;
        let empty = || Batch { columns: self.columns(), ..Batch::default() };
        whole.map_or_else(|| self.finish(empty(), rows, &mut StageTimes::default()), Ok)
    }
}
