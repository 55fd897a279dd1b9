//! Tar archives as shards: the files of one key are a sample, and a sample is a record.
//!
//! Files are grouped by key, wherever they are in the archive; samples come in the order of their first files. The
//! record of a sample is made when it is read: a `tf.train.Example` with a feature for each of its files, and one for
//! its key. No name in an archive is ever taken as a path.

mod member;
mod sample;
mod scan;
mod segments;

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::codec::stream::{read_error, truncated, Compression};
use crate::error::{Error, Kind, Result};
use crate::format::container::{Container, Decoded, Extent, RecordScratch, ScratchRecord};
use crate::format::frame::Frames;
use crate::format::gather::read_many;
use crate::format::index::{same_file, unfit, Index, Sidecar};
use crate::format::indexed_file::IndexedFile;
use crate::format::salvage_report::{Gap, Report};
use crate::io::file::{Progress, RandomAccessFile};
use crate::limits::max_inflated_bytes;

pub use member::{next, ByteSource, Member, Slice, BLOCK};
pub use sample::{write, FileContent, TarRules, KEY};
pub use scan::{scan, Listing};
use segments::Segments;

const SUFFIXES: [&str; 8] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"];

/// Whether a file is a tar archive: by its name, or by what it begins with, inflated if it is compressed.
pub fn is_one(file: &RandomAccessFile) -> Result<bool> {
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
pub fn compression(file: &RandomAccessFile) -> Result<Compression> {
    let mut head = [0; BLOCK];
    let whole = file.size() >= BLOCK as u64 && file.read_at(&mut head, 0).is_ok();
    match whole && member::is_header(&head) {
        true => Ok(Compression::None),
        false => file.compression(),
    }
}

/// An archive with the offsets of its samples.
#[derive(Debug)]
pub struct TarShard {
    archive: IndexedFile,
    /// Where the bytes are, if the files of samples are scattered: offsets are in the row of these segments then.
    segments: Option<Segments>,
    rules: Option<Arc<TarRules>>,
}

impl TarShard {
    /// Opens an archive, by an index or by a scan of its headers.
    pub fn open(
        path: &Path,
        sidecar: Sidecar,
        rules: Option<Arc<TarRules>>,
        progress: Progress<'_>,
    ) -> Result<TarShard> {
        TarShard::from_file(RandomAccessFile::open(path)?, sidecar, rules, progress)
    }

    /// The same with a file that is open.
    pub(crate) fn from_file(
        file: RandomAccessFile,
        sidecar: Sidecar,
        rules: Option<Arc<TarRules>>,
        progress: Progress<'_>,
    ) -> Result<TarShard> {
        let compression = compression(&file)?;
        let known = match sidecar {
            Sidecar::Use(index) => Some(fit(&file, compression, &index).map(|()| index)?),
            Sidecar::Try(index) => fit(&file, compression, &index).is_ok().then_some(index),
            Sidecar::Ignore => None,
        };
        let (offsets, segments) = match known {
            Some(index) => (index.offsets, index.segments),
            None => {
                scan(&file, compression, usize::MAX, progress).map(|listing| (listing.offsets, listing.segments))?
            }
        };
        Ok(TarShard::listed(file, compression, offsets, segments, rules))
    }

    /// An archive whose samples are known.
    fn listed(
        file: RandomAccessFile,
        compression: Compression,
        offsets: Vec<u64>,
        segments: Vec<Range<u64>>,
        rules: Option<Arc<TarRules>>,
    ) -> TarShard {
        let segments = (!segments.is_empty()).then(|| Segments::new(segments));
        TarShard { archive: IndexedFile::new(file, compression, offsets), segments, rules }
    }

    /// Return true if the files of some sample are not next to each other.
    pub fn is_scattered(&self) -> bool {
        self.segments.is_some()
    }

    /// The same out of the beginning of the archive, if the sample is there: it may be all that could be inflated.
    fn bytes_of<'b>(&'b self, record: usize, beginning: &'b [u8], buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let Range { start, end } = self.extent(record).range;
        let Some(segments) = &self.segments else {
            let own = beginning.get(start as usize..end as usize);
            return own.map_or_else(|| self.bytes(record, buffer), Ok);
        };
        buffer.clear();
        for part in segments.parts(start..end) {
            match beginning.get(part.range.start as usize..part.range.end as usize) {
                Some(bytes) => buffer.extend_from_slice(bytes),
                None if beginning.is_empty() => return self.bytes(record, buffer),
                None => return Err(truncated()),
            }
        }
        Ok(buffer)
    }

    /// Where something is in the archive, by its offset in what is read.
    fn real(&self, offset: u64) -> u64 {
        self.segments.as_ref().map_or(offset, |segments| segments.real(offset))
    }

    /// Append the record of a sample whose bytes were read.
    fn write(&self, record: usize, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let begin = self.archive.offsets()[record];
        write(Slice { begin, bytes }, self.rules.as_deref(), out)
            .map_err(|error| error.moved(|offset| self.real(offset)))
    }
}

impl Container for TarShard {
    fn len(&self) -> usize {
        self.archive.len()
    }

    fn file(&self) -> &RandomAccessFile {
        self.archive.file()
    }

    /// Where each sample begins, and where the last one ends: in the archive, or in the row of its segments.
    fn offsets(&self) -> &[u64] {
        self.archive.offsets()
    }

    fn format(&self) -> (&'static str, &str) {
        ("tar", self.archive.compression().name())
    }

    fn inflated_bytes(&self) -> u64 {
        match self.archive.compression() {
            Compression::None => 0,
            _ => self.segments.as_ref().map_or_else(|| self.offsets().last().copied().unwrap_or(0), Segments::reach),
        }
    }

    fn index(&self, progress: Progress<'_>) -> Result<Index> {
        let index = self.archive.index(progress)?;
        Ok(Index { segments: self.segments.as_ref().map_or_else(Vec::new, Segments::to_vec), ..index })
    }

    fn is_in_memory(&self) -> bool {
        self.segments.is_none() && self.archive.is_in_memory()
    }

    /// Add the file. The offset is that of the damaged member, or that of the sample.
    fn place(&self, error: Error) -> Error {
        let offset = error.record().and_then(|record| self.offsets().get(record as usize).copied());
        offset.map(|offset| self.real(offset)).into_iter().fold(error, Error::at_offset).in_file(self.file().path())
    }

    fn extent(&self, record: usize) -> Extent {
        self.archive.extent(record)
    }

    fn backed(&self, range: Range<u64>) -> Result<usize> {
        // Segments lie within the file and apart from each other: a row of them is no larger.
        self.archive.backed(range)
    }

    fn fill(&self, out: &mut [u8], offset: u64) -> Result<()> {
        match &self.segments {
            None => self.archive.fill(out, offset),
            Some(segments) => segments.parts(offset..offset.saturating_add(out.len() as u64)).try_for_each(|part| {
                let place = (part.range.end - part.range.start) as usize;
                let out = out.get_mut(part.at as usize..part.at as usize + place).unwrap_or_default();
                self.archive.fill_scattered(out, part.range.start, segments.reach())
            }),
        }
    }

    fn cached(&self, length: u64, budget: u64) -> Option<&[u8]> {
        match self.segments {
            None => self.archive.cached(length, budget),
            Some(_) => None,
        }
    }

    fn decode<'b>(&self, record: usize, bytes: &'b [u8], scratch: &mut RecordScratch) -> Result<Decoded<'b>> {
        let number = scratch.arena.push_with(|out| self.write(record, bytes, out))?;
        Ok(Decoded::InScratch(ScratchRecord::Arena(number)))
    }

    fn append(&self, record: usize, bytes: &[u8], _scratch: &mut RecordScratch, out: &mut Frames) -> Result<()> {
        out.push_with(|out| self.write(record, bytes, out))
    }
}

/// Whether an index can belong to an archive: the same size and wrapping, and headers where its samples begin.
fn fit(file: &RandomAccessFile, compression: Compression, index: &Index) -> Result<()> {
    let is_scattered = !index.segments.is_empty();
    // Where the last file of the archive is, and where it ends if that is known.
    let (last, end) = match (index.segments.iter().max_by_key(|segment| segment.start), &index.offsets[..]) {
        (Some(segment), _) => (segment.start, Some(segment.end)),
        (None, [.., start, _]) => (*start, None),
        _ => return Err(unfit(file, "expected an index of samples, got an empty one".into())),
    };
    same_file(file, compression, index)?;
    if compression != Compression::None {
        return Ok(());
    }
    let begins = index.segments.iter().map(|segment| segment.start);
    for begin in begins.chain((!is_scattered).then_some(last)) {
        let mut block = [0; BLOCK];
        if !(file.read_at(&mut block, begin).is_ok() && member::is_header(&block)) {
            let message =
                format!("expected a member's header at offset {begin}, as the index says, got something else");
            return Err(unfit(file, message));
        }
    }
    // A file that grew within its padding has the size that it had.
    if file.is_whole() && !scan::is_last(file, last, end) {
        let message = format!("expected one sample from offset {last} on, as the index says, got others");
        return Err(unfit(file, message));
    }
    Ok(())
}

/// The records of the first samples, `count` of them or until their files have `max_bytes` bytes: at least one.
///
/// All headers are looked at, because a file of the first sample may be the last one in the archive; but damage behind
/// the first samples does not matter here.
pub fn first_records(file: &RandomAccessFile, count: usize, max_bytes: u64, progress: Progress<'_>) -> Result<Frames> {
    let compression = compression(file)?;
    let (found, damage) = scan::scan_until_damage(file, compression, usize::MAX, progress);
    let listing = match damage {
        None if found.is_scattered() => found.listing(file, compression, usize::MAX),
        Some(error) if !error.kind().is_corrupt() => return Err(error),
        Some(error) if found.is_scattered() => return Err(error),
        _ => scan(file, compression, count, progress)?,
    };
    let mut frames = Frames::default();
    let Listing { offsets, segments, keys, .. } = listing;
    if keys.is_empty() || count == 0 {
        return Ok(frames);
    }
    let fits = offsets[1..].iter().take(count).take_while(|&&end| end <= max_bytes).count().max(1);
    if !segments.is_empty() {
        let shard = TarShard::listed(RandomAccessFile::open(file.path())?, compression, offsets, segments, None);
        return read_many(&shard, &(0..fits).collect::<Vec<_>>());
    }
    let bytes = beginning(file, compression, offsets[fits])?;
    for (record, Range { start, end }) in offsets.windows(2).take(fits).map(|pair| pair[0]..pair[1]).enumerate() {
        let sample = Slice { begin: start, bytes: bytes.get(start as usize..end as usize).unwrap_or_default() };
        frames
            .push_with(|out| write(sample, None, out))
            .map_err(|error: Error| error.in_record(record as u64).in_file(file.path()))?;
    }
    Ok(frames)
}

fn beginning(file: &RandomAccessFile, compression: Compression, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match compression {
        Compression::None => file.read_into(&mut bytes, 0, length).map(drop)?,
        _ => {
            let mut stream = file.stream(compression).take(length.min(max_inflated_bytes()));
            stream.read_to_end(&mut bytes).map_err(|error| read_error(&error).in_file(file.path()))?;
        }
    }
    Ok(bytes)
}

/// The first bytes of what is inflated, as many as there are where it is cut off.
fn inflated_part(file: &RandomAccessFile, compression: Compression, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match file.stream(compression).take(length.min(max_inflated_bytes())).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) if read_error(&error).kind() == Kind::Truncated => Ok(bytes),
        Err(error) => Err(read_error(&error).in_file(file.path())),
    }
}

/// Reads every sample of an archive; hands the record of each to `keep`. What comes after the first damage is a gap.
/// Where files are scattered, so is each sample that lacks a file which others have: it may have been behind the
/// damage.
pub fn salvage(
    file: &RandomAccessFile,
    keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<Report> {
    let compression = compression(file)?;
    let mut report = Report::default();
    let (found, mut damage) = scan::scan_until_damage(file, compression, usize::MAX, progress);
    if let Some(error) = damage.take_if(|error| !error.kind().is_corrupt()) {
        return Err(error);
    }
    let is_scattered = found.is_scattered();
    // The sample at the damage may go on behind it. Where what is inflated has a wrong checksum, there is none to trust.
    let whole = match &damage {
        None => usize::MAX,
        Some(error) if error.record().is_none() => 0,
        Some(_) if is_scattered => usize::MAX,
        Some(_) => found.keys.len().saturating_sub(1),
    };
    let lacking: Vec<Option<String>> = match is_scattered && damage.is_some() {
        true => (0..found.keys.len()).map(|sample| lacking(&found.keys[sample], &found.missing(sample))).collect(),
        false => Vec::new(),
    };
    let mut listing = found.listing(file, compression, usize::MAX);
    let samples = listing.keys.len().min(whole);
    listing.offsets.truncate(samples + 1);
    let end = if is_scattered { listing.end } else { listing.offsets.last().copied().unwrap_or(0) };
    let left = match &damage {
        Some(error) if error.kind() == Kind::Truncated => inflated_part(file, compression, end)?,
        _ => Vec::new(),
    };
    if samples == 0 {
        listing.segments.clear();
    }
    let shard =
        TarShard::listed(RandomAccessFile::open(file.path())?, compression, listing.offsets, listing.segments, None);
    let (mut raw, mut sample) = (Vec::new(), Vec::new());
    for record in 0..shard.len() {
        let begin = shard.real(shard.offsets()[record]);
        progress(begin)?;
        let gap =
            |report: &Report, bytes: u64, reason: String| Gap { offset: begin, bytes, record: report.records, reason };
        if let Some(reason) = lacking.get(record).and_then(Option::as_ref) {
            let range = shard.extent(record).range;
            report.gaps.push(gap(&report, range.end - range.start, reason.clone()));
            continue;
        }
        let bytes = match shard.bytes_of(record, &left, &mut raw) {
            Ok(bytes) => bytes,
            // The last file that was listed may be the one that is cut off.
            Err(error) if is_scattered && error.kind() == Kind::Truncated && !left.is_empty() => {
                report.gaps.push(gap(&report, 0, error.message().to_owned()));
                continue;
            }
            // Samples of a compressed archive are read by what holds for all of it: its checksum is wrong, say.
            Err(error) if error.kind().is_corrupt() => {
                damage = Some(error.at_offset(begin));
                break;
            }
            Err(error) => return Err(error),
        };
        sample.clear();
        match shard.write(record, bytes, &mut sample) {
            Ok(()) => {
                keep(begin, &sample)?;
                report.count(&sample);
            }
            Err(error) => report.gaps.push(gap(&report, bytes.len() as u64, error.message().to_owned())),
        }
    }
    if let Some(error) = damage {
        let bytes = if compression == Compression::None { file.size().saturating_sub(end) } else { 0 };
        let reason = error.message().to_owned();
        report.gaps.push(Gap { offset: error.offset().unwrap_or(end), bytes, record: report.records, reason });
    }
    Ok(report)
}

/// Why a sample is not kept that lacks files; none where it has all.
fn lacking(key: &str, missing: &[&str]) -> Option<String> {
    let reason = || {
        let missing = missing.join(", ");
        format!("expected a sample with all files, got {key:?}, which lacks {missing}: they may be behind the damage")
    };
    (!missing.is_empty()).then(reason)
}

#[cfg(test)]
mod tests;
