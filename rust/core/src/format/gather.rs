//! Records of any order, read together: neighbours in one piece, wherever they stand in the order.

use crate::error::{Error, Result};
use crate::format::container::{Container, Decoded, Extent, RecordScratch};
use crate::format::frame::Frames;
use crate::interrupt;
use crate::io::cached_file::MAX_HELD;
use crate::io::file::Progress;
use crate::limits;

/// A gap is read along when that costs less than another system call: up to this many bytes ...
const GAP: u64 = 4096;
/// ... and this many times what is wanted.
const GAP_SHARE: u64 = 2;

/// About this many bytes of records that are not decoded are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Where a record's frame is, or its chunk.
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
    /// Where it was put in the buffer, unless its shard is held.
    at: Option<usize>,
}

impl<'s> Row<'s> {
    /// The row of a record, which must exist.
    pub fn new(shard: &'s dyn Container, place: usize, record: usize) -> Row<'s> {
        let Extent { range, bytes } = shard.extent(record);
        Row { shard, place, record, start: range.start, end: range.end, bytes, at: None }
    }

    /// About how many bytes the record has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its shard, and what has to be read of it.
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

/// Reads the frames of some rows, in their order, unchecked: into `buffer`, or out of shards that are held. Others are
/// held from now on where that is worth it, as long as the process holds no more than `hold` bytes.
pub fn frames<'b, 's: 'b>(rows: &mut [Row<'s>], buffer: &'b mut Vec<u8>, hold: u64) -> Result<Vec<&'b [u8]>> {
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
        if shard.held(bytes, hold).is_some() {
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
        // An index that leads out of the shard gives a frame that does not hold.
        row.shard.held(0, 0).and_then(|content| content.get(start..start + length)).unwrap_or(&[])
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

/// Read the records of rows in their order, checked; neighbours are read together. `place` adds to an error of a row where it
/// is.
pub fn read_rows(
    rows: &mut [Row<'_>],
    progress: Progress<'_>,
    place: impl Fn(usize, Error) -> Error,
) -> Result<Frames> {
    let mut records = Frames::default();
    let (mut buffer, mut scratch) = (Vec::new(), RecordScratch::default());
    let mut done = 0;
    while done < rows.len() {
        progress(done as u64)?;
        let end = done + fitting(&rows[done..], READ_BYTES);
        let frames = frames(&mut rows[done..end], &mut buffer, MAX_HELD)?;
        for (number, frame) in (done..end).zip(frames) {
            let row = &rows[number];
            row.shard
                .append(row.record, frame, &mut scratch, &mut records)
                .map_err(|error| place(number, error.in_record(number as u64)))?;
        }
        done = end;
    }
    Ok(records)
}

/// Read records of one file in the order of `records`, checked; neighbours are read together.
pub fn read_many(shard: &dyn Container, records: &[usize]) -> Result<Frames> {
    let row = |&record: &usize| shard.check(record).map(|()| Row::new(shard, 0, record));
    let mut rows = records.iter().map(row).collect::<Result<Vec<_>>>()?;
    let place = |row: usize, error: Error| shard.place(error.renumbered(|_| records[row] as u64));
    read_rows(&mut rows, &mut |_| interrupt::check(), place)
}

/// How many of the first rows have `bytes` bytes or less together; at least one, if there is one. A chunk's rows stay
/// together where they follow each other.
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

/// Looks at every part of some frames once. Memory that comes from far away comes for many of them at a time here; where
/// each was waited for when it is checked, that would take several times as long.
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
