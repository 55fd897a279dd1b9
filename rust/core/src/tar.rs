//! Tar archives as shards: the files of one key are a sample, and a sample is a record.
//!
//! WebDataset's layout: the files of a sample stand one after the other. The record of a sample is made when it is read: a
//! `tf.train.Example` with a feature for each of its files, and one for its key. Nothing is ever written to a disk, and no
//! name in an archive is ever taken as a path.

mod member;
mod sample;
mod scan;

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::file::{Plain, Pulse};
use crate::frames::Frames;
use crate::index::Index;
use crate::inflate::{read_error, Compression, TRUNCATED};
use crate::opened::Extent;
use crate::salvage::{Gap, Report};
use crate::shard::{self, Sidecar, MAX_INFLATED};

pub use member::{next, Member, Slice, Source, BLOCK};
pub use sample::{write, Content, Made, Rules, KEY};
pub use scan::{scan, Listing};

const SUFFIXES: [&str; 8] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"];

/// Whether a file is a tar archive: by its name, or by what it begins with, inflated if it is compressed.
pub fn is_one(file: &Plain) -> Result<bool> {
    let name = file.path().file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
        return Ok(true);
    }
    let mut head = Vec::new();
    // Whoever reads the file says what is wrong with it.
    let read = file.stream(compression(file)?).take(BLOCK as u64).read_to_end(&mut head);
    Ok(read.is_ok() && member::is_header(&head))
}

/// How an archive is wrapped. A header settles it: names may begin as compressed bytes do.
pub fn compression(file: &Plain) -> Result<Compression> {
    let mut head = [0; BLOCK];
    let whole = file.size() >= BLOCK as u64 && file.read_at(&mut head, 0).is_ok();
    match whole && member::is_header(&head) {
        true => Ok(Compression::None),
        false => file.compression(),
    }
}

/// An archive with the offsets of its samples.
#[derive(Debug)]
pub struct Shard {
    extents: shard::Shard,
    rules: Option<Arc<Rules>>,
}

impl Shard {
    /// Opens an archive, by an index or by a scan of its headers.
    pub fn open(path: &Path, sidecar: Sidecar, rules: Option<Arc<Rules>>, pulse: Pulse<'_>) -> Result<Shard> {
        Shard::from_file(Plain::open(path)?, sidecar, rules, pulse)
    }

    /// The same with a file that is open.
    pub(crate) fn from_file(
        file: Plain,
        sidecar: Sidecar,
        rules: Option<Arc<Rules>>,
        pulse: Pulse<'_>,
    ) -> Result<Shard> {
        let compression = compression(&file)?;
        let known = match sidecar {
            Sidecar::Use(index) => Some(fit(&file, compression, &index).map(|()| index.offsets)?),
            Sidecar::Try(index) => fit(&file, compression, &index).is_ok().then_some(index.offsets),
            Sidecar::Ignore => None,
        };
        let offsets = match known {
            Some(offsets) => offsets,
            None => scan(&file, compression, usize::MAX, pulse)?.offsets,
        };
        Ok(Shard { extents: shard::Shard::with_offsets(file, compression, offsets), rules })
    }

    /// What the bytes of the samples are read by.
    pub(crate) fn extents(&self) -> &shard::Shard {
        &self.extents
    }

    /// How many samples.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How the file is wrapped.
    pub fn compression(&self) -> Compression {
        self.extents.compression()
    }

    /// Where a sample is that exists.
    pub(crate) fn extent(&self, record: usize) -> Extent {
        let range = self.extents.offsets()[record]..self.extents.offsets()[record + 1];
        Extent { bytes: range.end - range.start, range }
    }

    /// Adds the file. The offset is that of the member that is wrong, or that of the sample.
    pub fn place(&self, error: Error) -> Error {
        let offset = error.record().and_then(|record| self.extents.offsets().get(record as usize).copied());
        offset.into_iter().fold(error, Error::at_offset).in_file(self.extents.file().path())
    }

    /// Makes the record of a sample whose bytes were read, and returns its number in `made`.
    pub(crate) fn make(&self, record: usize, bytes: &[u8], made: &mut Made) -> Result<usize> {
        let begin = self.extents.offsets()[record];
        made.push(Slice { begin, bytes }, self.rules.as_deref())
    }

    /// Appends the record of a sample whose bytes were read.
    pub(crate) fn write(&self, record: usize, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let begin = self.extents.offsets()[record];
        write(Slice { begin, bytes }, self.rules.as_deref(), out)
    }

    /// One record.
    pub fn read<'b>(&self, record: usize, raw: &mut Vec<u8>, made: &'b mut Made) -> Result<&'b [u8]> {
        let bytes = self.extents.frames(record..record.saturating_add(1), raw)?;
        made.clear();
        let number = self.make(record, bytes, made).map_err(|error| self.place(error.in_record(record as u64)))?;
        Ok(made.get(number))
    }

    /// Some records in the order they are asked for.
    pub fn read_many(&self, records: &[usize]) -> Result<Frames> {
        records.iter().try_for_each(|&record| self.extents.check(record))?;
        let mut frames = Frames::default();
        let mut raw = Vec::new();
        for &record in records {
            let bytes = self.extents.frames(record..record + 1, &mut raw)?;
            frames
                .push_with(|out| self.write(record, bytes, out))
                .map_err(|error| self.place(error.in_record(record as u64)))?;
        }
        Ok(frames)
    }

    /// An index of this archive: the whole file is read once for its checksum.
    pub fn index(&self, pulse: Pulse<'_>) -> Result<Index> {
        self.extents.index(pulse)
    }
}

/// Whether an index can belong to an archive: the same size and wrapping, and a header where its last sample begins.
fn fit(file: &Plain, compression: Compression, index: &Index) -> Result<()> {
    let last = match &index.offsets[..] {
        [.., start, _] => *start,
        _ => return Err(shard::unfit(file, "expected an index of samples, got an empty one".into())),
    };
    shard::same_file(file, compression, index)?;
    let mut block = [0; BLOCK];
    if compression == Compression::None && !(file.read_at(&mut block, last).is_ok() && member::is_header(&block)) {
        let message = format!("expected a member's header at offset {last}, as the index says, got something else");
        return Err(shard::unfit(file, message));
    }
    // A file that grew within its padding has the size that it had.
    if compression == Compression::None && file.is_whole() && !scan::is_last(file, last) {
        let message = format!("expected one sample from offset {last} on, as the index says, got others");
        return Err(shard::unfit(file, message));
    }
    Ok(())
}

/// The records of the first samples, `count` of them or until their files have `max_bytes` bytes: at least one.
pub fn first_records(file: &Plain, count: usize, max_bytes: u64, pulse: Pulse<'_>) -> Result<Frames> {
    let compression = compression(file)?;
    let Listing { offsets, keys, .. } = scan(file, compression, count, pulse)?;
    let mut frames = Frames::default();
    if keys.is_empty() || count == 0 {
        return Ok(frames);
    }
    let fits = offsets[1..].iter().take_while(|&&end| end <= max_bytes).count().max(1);
    let bytes = beginning(file, compression, offsets[fits])?;
    for (record, Range { start, end }) in offsets.windows(2).take(fits).map(|pair| pair[0]..pair[1]).enumerate() {
        let sample = Slice { begin: start, bytes: bytes.get(start as usize..end as usize).unwrap_or_default() };
        frames
            .push_with(|out| write(sample, None, out))
            .map_err(|error: Error| error.in_record(record as u64).in_file(file.path()))?;
    }
    Ok(frames)
}

fn beginning(file: &Plain, compression: Compression, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match compression {
        Compression::None => file.read_into(&mut bytes, 0, length).map(drop)?,
        _ => {
            let mut stream = file.stream(compression).take(length.min(MAX_INFLATED));
            stream.read_to_end(&mut bytes).map_err(|error| read_error(&error).in_file(file.path()))?;
        }
    }
    Ok(bytes)
}

/// Reads every sample of an archive; hands the record of each to `keep`. What comes after the first damage is a gap.
pub fn salvage(file: &Plain, keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>, pulse: Pulse<'_>) -> Result<Report> {
    let compression = compression(file)?;
    let mut report = Report::default();
    let mut damage = match scan(file, compression, usize::MAX, pulse) {
        Ok(_) => None,
        Err(error) if error.kind() == Kind::Corrupt => Some(error),
        Err(error) => return Err(error),
    };
    let whole = damage.as_ref().map_or(usize::MAX, |error| error.record().map_or(0, |record| record as usize));
    let listing = match whole {
        0 => Listing { offsets: vec![0], ..Listing::default() },
        _ => scan(file, compression, whole, pulse).or_else(|error| match error.kind() {
            Kind::Corrupt => Ok(Listing { offsets: vec![0], ..Listing::default() }),
            _ => Err(error),
        })?,
    };
    let end = listing.offsets.last().copied().unwrap_or(0);
    let left = match &damage {
        Some(error) if error.message() == TRUNCATED => beginning(file, compression, end)?,
        _ => Vec::new(),
    };
    let shard = shard::Shard::with_offsets(Plain::open(file.path())?, compression, listing.offsets);
    let (mut raw, mut made) = (Vec::new(), Made::default());
    for record in 0..shard.len() {
        let begin = shard.offsets()[record];
        pulse(begin)?;
        made.clear();
        let own = begin as usize..shard.offsets()[record + 1] as usize;
        let bytes = match left.get(own).map_or_else(|| shard.frames(record..record + 1, &mut raw), Ok) {
            Ok(bytes) => bytes,
            // Samples of a compressed archive are read by what holds for all of it: its checksum is wrong, say.
            Err(error) if error.kind() == Kind::Corrupt => {
                damage = Some(error.at_offset(begin));
                break;
            }
            Err(error) => return Err(error),
        };
        match made.push(Slice { begin, bytes }, None) {
            Ok(number) => {
                keep(begin, made.get(number))?;
                report.records += 1;
                report.record_bytes += made.get(number).len() as u64;
            }
            Err(error) => {
                let (bytes, reason) = (bytes.len() as u64, error.message().to_owned());
                report.gaps.push(Gap { offset: begin, bytes, record: report.records, reason });
            }
        }
    }
    if let Some(error) = damage {
        let bytes = if compression == Compression::None { file.size().saturating_sub(end) } else { 0 };
        let reason = error.message().to_owned();
        report.gaps.push(Gap { offset: error.offset().unwrap_or(end), bytes, record: report.records, reason });
    }
    Ok(report)
}

#[cfg(test)]
#[path = "tar/tests.rs"]
mod tests;
