//! From record numbers to batches: read, check, decode, whatever the order.

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
use crate::io::cached_file::MAX_HELD;
use crate::io::file::Progress;
use crate::ordered_queue::in_order;

/// About this many bytes are checked and decoded at a time, and read if they are neighbours: little enough for a core's
/// cache.
const PIECE_BYTES: u64 = 1 << 18;

/// At most this many values are decoded at a time, however small their records are.
const PIECE_CELLS: usize = 1 << 20;

/// About this many bytes of small records are read at a time where they are no neighbours: some of them may be.
const GATHER_BYTES: u64 = 1 << 20;

/// What counts as small.
const SMALL_RECORD: u64 = 1 << 12;

/// So many neighbours are located at a time: little enough for a core's cache, and for memory that is at hand.
const LOCATED: usize = 1 << 10;
/// So many records that are no neighbours: some of them may be.
const GATHERED: usize = 1 << 13;

/// Records that are given in memory are decoded in steps of about this many bytes.
const DECODED_BYTES: usize = 1 << 23;
/// So many of them at a time, at most.
const DECODED: usize = 1 << 14;

/// Threads are started for parts of at least this many bytes.
const PART_BYTES: u64 = 1 << 17;

/// What makes batches of records.
#[derive(Debug)]
pub struct BatchDecoder {
    /// Where the records are.
    pub shards: Arc<ShardSet>,
    /// The columns.
    pub plan: Arc<Plan>,
    /// The images among them.
    pub images: Option<Arc<Images>>,
    /// Whether bad records are left out of their batch.
    pub skip: bool,
}

/// Which records.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Their numbers.
    pub numbers: &'a [u64],
    /// Their places in the global order.
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
    /// How many rows they have.
    pub rows: usize,
    /// The size of the records' frames.
    pub frame_bytes: u64,
    /// The bad records that were left out.
    pub skipped: Vec<Skipped>,
}

impl Batch {
    /// How many bytes of memory its columns take.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(Column::bytes).sum()
    }
}

/// A bad record that was left out of its batch.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// Its row, had it been there.
    pub row: usize,
    /// Its number.
    pub number: u64,
    /// Why.
    pub error: Error,
}

/// Where the time went.
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

/// What a thread uses again and again.
pub struct DecodeScratch<'a> {
    /// What is read into.
    pub buffer: Vec<u8>,
    /// Memory that records are decoded into.
    pub records: RecordScratch,
    /// How many bytes of shards the process may hold for it.
    pub hold: u64,
    /// Where its time went.
    pub spent: StageTimes,
    /// Called now and then; an error from it ends the work.
    pub pulse: Progress<'a>,
}

impl<'a> DecodeScratch<'a> {
    /// Nothing used yet.
    pub fn new(pulse: Progress<'a>) -> DecodeScratch<'a> {
        DecodeScratch {
            buffer: Vec::new(),
            records: RecordScratch::default(),
            hold: MAX_HELD,
            spent: StageTimes::default(),
            pulse,
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

/// Whether an error is that of a record, not of a file or of who asked.
fn is_bad_record(error: &Error) -> bool {
    (error.kind().is_corrupt() || error.kind().is_schema()) && error.record().is_some()
}

/// Decodes records into columns, some megabytes at a time. An error names the record by its number among them.
pub fn decode_all(plan: &Plan, records: &[&[u8]]) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = plan.specs().iter().map(Column::empty).collect();
    // What a record becomes may be much more than what it takes compressed.
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
    /// Records as batches of `batch` rows, the last of what is left.
    pub fn batches(&self, rows: Rows<'_>, batch: usize, tools: &mut DecodeScratch<'_>) -> Result<Vec<Batch>> {
        match self.all(rows, batch, tools) {
            Err(error) if self.skip && is_bad_record(&error) => (0..rows.numbers.len())
                .step_by(batch)
                .map(|from| self.good(rows.part(from, from.saturating_add(batch).min(rows.numbers.len())), tools))
                .collect(),
            result => result,
        }
    }

    /// A batch without its bad records.
    fn good(&self, rows: Rows<'_>, tools: &mut DecodeScratch<'_>) -> Result<Batch> {
        let (mut numbers, mut places, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for (row, (&number, &place)) in rows.numbers.iter().zip(rows.places).enumerate() {
            match self.all(rows.part(row, row + 1), 1, tools) {
                Ok(_) => {
                    numbers.push(number);
                    places.push(place);
                }
                Err(error) if is_bad_record(&error) => skipped.push(Skipped { row, number, error }),
                Err(error) => return Err(error),
            }
        }
        let rows = Rows { numbers: &numbers, places: &places, epoch: rows.epoch };
        let mut batch = match self.all(rows, numbers.len().max(1), tools)?.pop() {
            Some(batch) => batch,
            None => self.finish(Batch { columns: self.columns(), ..Batch::default() }, rows, &mut tools.spent)?,
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

    /// An error that names a row becomes one that names a record and its place.
    fn place(&self, numbers: &[u64], error: Error) -> Error {
        match error.record().and_then(|row| numbers.get(row as usize)) {
            Some(&number) => self.shards.place(number, error),
            None => error,
        }
    }

    /// All of the records, or the first error.
    fn all(&self, rows: Rows<'_>, batch: usize, tools: &mut DecodeScratch<'_>) -> Result<Vec<Batch>> {
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
            (tools.pulse)(read as u64)?;
            if read == first + located.len() {
                first = read;
                located = self.shards.rows(&numbers[first..numbers.len().min(first + step)], tools.pulse)?;
                let bytes: u64 = located.iter().map(gather::Row::bytes).sum();
                let small = !neighbours && bytes / SMALL_RECORD < located.len() as u64;
                limit = if small { GATHER_BYTES } else { PIECE_BYTES };
            }
            let located = &mut located[read - first..];
            let end = read + fitting(located, limit);
            let frames = gather::frames(&mut located[..end - read], &mut tools.buffer, tools.hold)?;
            lap.end(&mut tools.spent.read);
            let mut row = read;
            while row < end {
                let whole = batch.min(numbers.len() - (row - current.rows));
                let most = (end - row).min(whole - current.rows);
                let located = &located[row - read..];
                let count = fitting(&located[..most], PIECE_BYTES).min(widest);
                let frames = &frames[row - read..row - read + count];
                if !neighbours {
                    touch(frames);
                    lap.end(&mut tools.spent.read);
                }
                let place = |error: Error| self.place(&numbers[row..row + count], error);
                let data = gather::decode(&located[..count], frames, &mut tools.records).map_err(place)?;
                lap.end(&mut tools.spent.check);
                let walked = walk(&self.plan, data.iter().copied()).map_err(place)?;
                for (number, column) in current.columns.iter_mut().enumerate() {
                    walked.append(number, column).map_err(place)?;
                    column.expect(current.rows + count, whole)?;
                }
                lap.end(&mut tools.spent.decode);
                current.frame_bytes += located[..count].iter().map(gather::Row::bytes).sum::<u64>();
                current.rows += count;
                row += count;
                if current.rows == whole {
                    let next = Batch { columns: self.columns(), ..Batch::default() };
                    let done = std::mem::replace(&mut current, next);
                    batches.push(self.finish(done, rows.part(row - whole, row), &mut tools.spent)?);
                    lap = Lap(Instant::now());
                }
            }
            read = end;
        }
        Ok(batches)
    }

    /// Some records as one batch, made on threads where that is worth it.
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
