//! Records of any order, read together: neighbours in one piece, wherever they stand in the order.

use crate::error::Result;
use crate::file::Pulse;
use crate::shard::Shard;
use crate::shards::Shards;

/// A gap is read along when that costs less than another system call: up to this many bytes ...
const GAP: u64 = 4096;
/// ... and this many times what is wanted.
const GAP_SHARE: u64 = 2;

/// Where a record's frame is.
#[derive(Clone, Copy, Debug)]
pub struct Row<'s> {
    shard: &'s Shard,
    /// The shard's number.
    place: usize,
    start: u64,
    end: u64,
    /// Where it was put in the buffer, unless its shard is held.
    at: Option<usize>,
}

impl Row<'_> {
    /// The frame's size.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// The rows of some records.
pub fn locate<'s>(shards: &'s Shards, numbers: &[u64], pulse: Pulse<'_>) -> Result<Vec<Row<'s>>> {
    let mut rows = Vec::with_capacity(numbers.len());
    let (mut within, mut place) = (0..0, 0);
    let mut known: Option<&Shard> = None;
    for &number in numbers {
        let shard = match known {
            Some(shard) if within.contains(&number) => shard,
            _ => {
                place = shards.locate(number)?.0;
                within = shards.numbers(place);
                let shard = shards.shard(place, pulse)?;
                known = Some(shard);
                shard
            }
        };
        let record = (number - within.start) as usize;
        let offsets = &shard.offsets()[record..record + 2];
        rows.push(Row { shard, place, start: offsets[0], end: offsets[1], at: None });
    }
    Ok(rows)
}

/// Reads the frames of some rows, in their order, unchecked: into `buffer`, or out of shards that are held.
pub fn frames<'b, 's: 'b>(rows: &mut [Row<'s>], buffer: &'b mut Vec<u8>) -> Result<Vec<&'b [u8]>> {
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
            if row.place != place || gap > GAP.min(GAP_SHARE * row.bytes()) {
                break;
            }
            bytes += row.end.saturating_sub(end.max(row.start));
            end = end.max(row.end);
            count += 1;
        }
        let (stretch, behind) = rest.split_at(count);
        rest = behind;
        if shard.held(bytes).is_some() {
            continue;
        }
        let length = shard.backed(start..end)?;
        if buffer.len() < used + length {
            buffer.resize(used + length, 0);
        }
        shard.fill(&mut buffer[used..used + length], start)?;
        for &row in stretch {
            rows[row].at = Some(used + (rows[row].start - start) as usize);
        }
        used += length;
    }
    let frame = |row: &Row<'s>| -> &'b [u8] {
        let (start, length) = match row.at {
            Some(at) => return &buffer[at..at + row.bytes() as usize],
            None => (row.start as usize, row.bytes() as usize),
        };
        // An index that leads out of the shard gives a frame that does not hold.
        row.shard.held(0).and_then(|content| content.get(start..start + length)).unwrap_or(&[])
    };
    Ok(rows.iter().map(frame).collect())
}

/// How many of the first rows have `bytes` bytes or less together; at least one, if there is one.
pub fn fitting(rows: &[Row<'_>], bytes: u64) -> usize {
    let mut left = bytes;
    let fits = rows.iter().take_while(|row| {
        let fits = row.bytes() <= left;
        left = left.saturating_sub(row.bytes());
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
