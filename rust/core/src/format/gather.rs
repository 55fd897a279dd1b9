//! Reads records in any order: records that are neighbours in a file are read together.

use crate::error::{Error, Result};
use crate::format::container::{Container, Decoded, Extent, RecordScratch};
use crate::format::frame::Frames;
use crate::interrupt;
use crate::io::cached_file::MAX_CACHED;
use crate::io::file::Progress;
use crate::limits;

/// A gap between two records is read too if that costs less than another system call: up to this many bytes ...
const GAP: u64 = 4096;
/// ... and this many times the record behind it.
const GAP_SHARE: u64 = 2;

/// About this many bytes of records that are not decoded are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// At most this many records are looked up at a time.
const ROWS: usize = 4096;

/// A record to read: its shard, and the range of its frame or chunk.
#[derive(Clone, Copy, Debug)]
pub struct Row<'s> {
    shard: &'s dyn Container,
    /// The shard's number.
    place: usize,
    /// The record's number within the shard.
    record: usize,
    start: u64,
    end: u64,
    bytes: u64,
    /// Offset in the buffer, unless its shard is cached.
    at: Option<usize>,
}

impl<'s> Row<'s> {
    /// The row of a record, which must exist.
    pub fn new(shard: &'s dyn Container, place: usize, record: usize) -> Row<'s> {
        let Extent { range, bytes } = shard.extent(record);
        Row { shard, place, record, start: range.start, end: range.end, bytes, at: None }
    }

    /// Return about how many bytes the record has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Return the shard's number and the range to read.
    pub fn place(&self) -> (usize, u64, u64) {
        (self.place, self.start, self.end)
    }

    fn length(&self) -> u64 {
        self.end - self.start
    }

    fn chunk(&self) -> (usize, u64) {
        (self.place, self.start)
    }
}

/// Read the frames of rows in their order, unchecked: into `buffer`, or from cached shards. Cache shards that are read
/// at random, as long as the process caches at most `cache_budget` bytes.
pub fn frames<'b, 's: 'b>(rows: &mut [Row<'s>], buffer: &'b mut Vec<u8>, cache_budget: u64) -> Result<Vec<&'b [u8]>> {
    let mut wanted: Vec<usize> = (0..rows.len()).filter(|&row| !rows[row].shard.is_in_memory()).collect();
    let key = |&row: &usize| (rows[row].place, rows[row].start);
    if !wanted.is_sorted_by_key(key) {
        wanted.sort_unstable_by_key(key);
    }
    let mut used = 0;
    let mut rest = &wanted[..];
    while let Some(&first) = rest.first() {
        let Row { shard, place, start, mut end, .. } = rows[first];
        let mut bytes = end - start;
        let mut count = 1;
        for &next in &rest[1..] {
            let row = &rows[next];
            let gap = row.start.saturating_sub(end);
            if row.place != place || gap > GAP.min(GAP_SHARE * row.length()) {
                break;
            }
            bytes += row.end.saturating_sub(end.max(row.start));
            end = end.max(row.end);
            count += 1;
        }
        let (stretch, behind) = rest.split_at(count);
        rest = behind;
        if shard.cached(bytes, cache_budget).is_some() {
            continue;
        }
        let length = shard.backed(start..end)?;
        limits::grow_to(buffer, used + length, 0).map_err(|error| error.in_file(shard.file().path()))?;
        shard.fill(&mut buffer[used..used + length], start)?;
        for &row in stretch {
            rows[row].at = Some(used + (rows[row].start - start) as usize);
        }
        used += length;
    }
    let frame = |row: &Row<'s>| -> &'b [u8] {
        let (start, length) = match row.at {
            Some(at) => return &buffer[at..at + row.length() as usize],
            None => (row.start as usize, row.length() as usize),
        };
        // An index that points outside the shard yields an empty frame, whose check fails.
        row.shard.cached(0, 0).and_then(|content| content.get(start..start + length)).unwrap_or(&[])
    };
    Ok(rows.iter().map(frame).collect())
}

/// Check and decode the records of rows whose frames were read. An error names the row.
pub fn decode<'b>(rows: &[Row<'_>], frames: &[&'b [u8]], scratch: &'b mut RecordScratch) -> Result<Vec<&'b [u8]>> {
    let mut data = Vec::with_capacity(rows.len());
    let mut made = Vec::new();
    scratch.reset();
    for (number, (row, frame)) in rows.iter().zip(frames).enumerate() {
        let decoded = row.shard.decode(row.record, frame, scratch);
        data.push(match decoded.map_err(|error| error.in_record(number as u64))? {
            Decoded::InPlace(bytes) => bytes,
            Decoded::InScratch(place) => {
                made.push((number, place));
                &[]
            }
        });
    }
    for (number, place) in made {
        data[number] = scratch.get(place);
    }
    Ok(data)
}

/// Read the records of rows in their order, checked; neighbours are read together. `place` adds the place to the error
/// of a row.
pub fn read_rows(
    rows: &mut [Row<'_>],
    progress: Progress<'_>,
    place: impl Fn(usize, Error) -> Error,
) -> Result<Frames> {
    let mut reading = Reading::default();
    let mut done = 0;
    while done < rows.len() {
        progress(done as u64)?;
        let end = done + fitting(&rows[done..], READ_BYTES);
        reading.append(&mut rows[done..end], |row, error| place(done + row, error.in_record((done + row) as u64)))?;
        done = end;
    }
    Ok(reading.records)
}

/// Read records of one file in the order of `records`, checked; neighbours are read together.
pub fn read_many(shard: &dyn Container, records: &[usize]) -> Result<Frames> {
    for &record in records {
        shard.check(record)?;
    }
    let mut reading = Reading::default();
    let mut rows: Vec<Row<'_>> = Vec::with_capacity(records.len().min(ROWS));
    let mut done = 0;
    while done < records.len() {
        interrupt::check()?;
        rows.clear();
        rows.extend(records[done..].iter().take(ROWS).map(|&record| Row::new(shard, 0, record)));
        let end = fitting(&rows, READ_BYTES);
        let place = |row: usize, error: Error| {
            let record = records[done + row] as u64;
            shard.place(error.in_record(record).renumbered(|_| record))
        };
        reading.append(&mut rows[..end], place)?;
        done += end;
    }
    Ok(reading.records)
}

/// Records that were read so far, and the memory for reading more.
#[derive(Default)]
struct Reading {
    records: Frames,
    buffer: Vec<u8>,
    scratch: RecordScratch,
}

impl Reading {
    /// Read and check some more rows. `place` adds the place to the error of a row.
    fn append(&mut self, rows: &mut [Row<'_>], place: impl Fn(usize, Error) -> Error) -> Result<()> {
        let frames = frames(rows, &mut self.buffer, MAX_CACHED)?;
        for (number, (row, frame)) in rows.iter().zip(frames).enumerate() {
            let appended = row.shard.append(row.record, frame, &mut self.scratch, &mut self.records);
            appended.map_err(|error| place(number, error))?;
        }
        Ok(())
    }
}

/// Return how many of the first rows have at most `bytes` bytes in total; at least one. Consecutive rows of a chunk
/// stay together.
pub fn fitting(rows: &[Row<'_>], bytes: u64) -> usize {
    let mut left = bytes;
    let mut last = None;
    let fits = rows.iter().take_while(|row| {
        let fits = row.bytes() <= left || last == Some(row.chunk());
        left = left.saturating_sub(row.bytes());
        last = Some(row.chunk());
        fits
    });
    fits.count().max(1).min(rows.len())
}

/// Read one byte of every cache line of some frames. The processor loads many lines at a time here; checking each frame
/// would wait for its lines one by one and take several times as long.
pub fn touch(frames: &[&[u8]]) {
    const LINE: usize = 64;
    let mut seen = 0;
    for frame in frames {
        for line in frame.chunks(LINE) {
            seen ^= line[0];
        }
        seen ^= frame.last().copied().unwrap_or(0);
    }
    std::hint::black_box(seen);
}
