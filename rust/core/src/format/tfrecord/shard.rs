//! A TFRecord file that any record can be read from.

use std::ops::Range;
use std::path::Path;

use crate::codec::inflate_cache::InflateCache;
use crate::codec::stream::Compression;
use crate::error::{Error, Kind, Result};
use crate::format::frame::{self, Frames, HEADER, OVERHEAD};
use crate::format::index::Index;
use crate::format::tfrecord::stream::FrameStream;
use crate::io::cached_file::{CachedFile, MAX_HELD};
use crate::io::file::{checksum, Progress, RandomAccessFile, WINDOW};
use crate::io::window_reader::WindowReader;
use crate::limits;

/// Finds every frame by its header alone: both length and length CRC are checked, the data is not read.
pub fn scan(file: &RandomAccessFile, compression: Compression, pulse: Progress<'_>) -> Result<Vec<u64>> {
    let mut offsets = vec![0];
    if compression != Compression::None {
        let mut stream = FrameStream::new(file.stream(compression));
        while stream.next_frame().map_err(|error| advise(error.in_file(file.path())))?.is_some() {
            offsets.push(stream.offset);
            if stream.record % 4096 == 0 {
                pulse(stream.offset)?;
            }
        }
        return Ok(offsets);
    }
    let mut window = WindowReader::new(file);
    let (mut at, mut reported) = (0u64, 0u64);
    while at < file.size() {
        let place = |error: Error| advise(error.at_offset(at).in_record(offsets.len() as u64 - 1).in_file(file.path()));
        let left = file.size() - at;
        if left < HEADER as u64 {
            let message = format!(
                "expected a {HEADER}-byte frame header, got the last {left} bytes of the file: it is truncated"
            );
            return Err(place(Error::corrupt(message)));
        }
        if at >= reported {
            pulse(at)?;
            reported = at + WINDOW as u64;
        }
        let header = window.at(at, HEADER as u64)?;
        let declared = frame::declared_length(header).map_err(place)?;
        let end = declared.checked_add(OVERHEAD as u64).and_then(|frame| at.checked_add(frame));
        match end {
            Some(end) if end <= file.size() => at = end,
            _ => {
                let message = format!(
                    "expected a record of {declared} bytes, got a file that ends {left} bytes on: it is truncated"
                );
                return Err(place(Error::corrupt(message)));
            }
        }
        offsets.push(at);
    }
    Ok(offsets)
}

fn advise(error: Error) -> Error {
    match error.kind().is_corrupt() {
        true => error.advise("`penstock salvage` copies the records that are whole."),
        false => error,
    }
}

/// Which index an open shard goes by.
#[derive(Clone, Debug)]
pub enum Sidecar {
    /// A scan of the file.
    Ignore,
    /// This one, or an error.
    Use(Index),
    /// This one if it fits, otherwise a scan.
    Try(Index),
}

/// A shard with the offsets of its records.
#[derive(Debug)]
pub struct TfRecordShard {
    file: CachedFile,
    compression: Compression,
    offsets: Vec<u64>,
    inflated: InflateCache,
}

impl TfRecordShard {
    /// Opens a shard, by an index or by a scan.
    pub fn open(path: &Path, sidecar: Sidecar, pulse: Progress<'_>) -> Result<TfRecordShard> {
        TfRecordShard::from_file(RandomAccessFile::open(path)?, sidecar, pulse)
    }

    /// The same with a file that is open.
    pub(crate) fn from_file(file: RandomAccessFile, sidecar: Sidecar, pulse: Progress<'_>) -> Result<TfRecordShard> {
        let compression = file.compression()?;
        let offsets = match sidecar {
            Sidecar::Use(index) => fit(&file, compression, &index).map(|()| index.offsets)?,
            Sidecar::Try(index) if fit(&file, compression, &index).is_ok() => index.offsets,
            Sidecar::Try(_) | Sidecar::Ignore => scan(&file, compression, pulse)?,
        };
        Ok(TfRecordShard::with_offsets(file, compression, offsets))
    }

    /// The same where the offsets are known: those of frames, or of whatever else stands there.
    pub(crate) fn with_offsets(file: RandomAccessFile, compression: Compression, offsets: Vec<u64>) -> TfRecordShard {
        TfRecordShard { file: CachedFile::new(file), compression, offsets, inflated: InflateCache::new() }
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How the file is wrapped.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The file.
    pub fn file(&self) -> &RandomAccessFile {
        self.file.file()
    }

    /// Where each frame begins, and where the last one ends.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Whether reading needs no system call.
    pub fn is_in_memory(&self) -> bool {
        self.file.is_in_memory()
    }

    /// Checks that a record exists.
    pub fn check(&self, record: usize) -> Result<()> {
        self.file().check(record, self.len())
    }

    /// Adds the file, and the offset of the record that the error names.
    pub fn place(&self, error: Error) -> Error {
        let offset = error.record().and_then(|record| self.offsets.get(record as usize).copied());
        let error = offset.into_iter().fold(error, Error::at_offset);
        advise(error.in_file(self.file().path()))
    }

    /// The frames of consecutive records, unchecked, in `buffer` or in the held shard.
    pub fn frames<'b>(&'b self, records: Range<usize>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        if records.is_empty() {
            return Ok(&[]);
        }
        self.check(records.end - 1)?;
        let (start, end) = (self.offsets[records.start], self.offsets[records.end]);
        if let Some(content) = self.held(end - start, MAX_HELD) {
            return Ok(content.get(start as usize..end as usize).unwrap_or(&[]));
        }
        let length = self.backed(start..end)?;
        limits::grow_to(buffer, length, 0).map_err(|error| error.in_file(self.file().path()))?;
        self.fill(&mut buffer[..length], start)?;
        Ok(&buffer[..length])
    }

    /// How many bytes a range has, if memory may be taken for that many: the file can back them.
    pub(crate) fn backed(&self, range: Range<u64>) -> Result<usize> {
        let length = range.end - range.start;
        let (reach, most) = match self.compression {
            Compression::None => (range.end, self.file().size()),
            _ => (length, limits::max_inflated_bytes().max(limits::max_row_bytes().saturating_add(OVERHEAD as u64))),
        };
        match usize::try_from(length) {
            Ok(length) if reach <= most => Ok(length),
            _ => {
                let message = format!("expected {length} bytes here, got a shard of at most {most} bytes");
                Err(Error::corrupt(message).at_offset(range.start).in_file(self.file().path()))
            }
        }
    }

    /// Reads bytes of the uncompressed shard from `offset` on.
    pub(crate) fn fill(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let place = |error: Error| {
            let record = self.offsets.partition_point(|&start| start <= offset).saturating_sub(1);
            self.place(error.in_record(record as u64))
        };
        if self.compression == Compression::None {
            return self.file().read_at(out, offset).map_err(place);
        }
        let length = self.offsets[self.len()];
        match self.inflated.copy(self.file(), self.compression, length, out, offset)? {
            true => Ok(()),
            false => Err(place(fewer())),
        }
    }

    /// Reads bytes from anywhere, in any order, of content that has `length` bytes once it is inflated.
    pub(crate) fn fill_scattered(&self, out: &mut [u8], offset: u64, length: u64) -> Result<()> {
        match self.compression {
            Compression::None => self.file().read_at(out, offset),
            compression => match self.inflated.copy_scattered(self.file(), compression, length, out, offset)? {
                true => Ok(()),
                false => Err(fewer().at_offset(offset).in_file(self.file().path())),
            },
        }
    }

    /// The whole shard, if it is held: see [`CachedFile::content`].
    pub(crate) fn held(&self, length: u64, most: u64) -> Option<&[u8]> {
        match self.compression {
            Compression::None => self.file.content(length, most),
            _ => None,
        }
    }

    /// The data of consecutive records whose frames are in `frames`, both CRCs of each checked.
    pub fn records<'b>(&self, records: Range<usize>, frames: &'b [u8]) -> Result<Vec<&'b [u8]>> {
        let first = self.offsets[records.start];
        records
            .map(|record| {
                let (start, end) = (self.offsets[record] - first, self.offsets[record + 1] - first);
                frame::open(&frames[start as usize..end as usize])
                    .map_err(|error| self.place(error.in_record(record as u64)))
            })
            .collect()
    }

    /// One record's data, checked.
    pub fn read<'b>(&'b self, record: usize, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        self.check(record)?;
        let frame = self.frames(record..record + 1, buffer)?;
        frame::open(frame).map_err(|error| self.place(error.in_record(record as u64)))
    }

    /// Some records in the order they are asked for, checked; neighbours are read together.
    pub fn read_many(&self, records: &[usize]) -> Result<Frames> {
        records.iter().try_for_each(|&record| self.check(record))?;
        let mut bytes = Vec::new();
        let mut buffer = Vec::new();
        let mut rest = records;
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(&record, expected)| record == *expected).count();
            bytes.extend_from_slice(self.frames(first..first + run, &mut buffer)?);
            rest = &rest[run..];
        }
        let lengths = records.iter().map(|&record| (self.offsets[record + 1] - self.offsets[record]) as usize);
        Frames::checked(bytes, lengths)
            .map_err(|error| self.place(error.renumbered(|row| records[row as usize] as u64)))
    }

    /// An index of this shard: the whole file is read once for its checksum.
    pub fn index(&self, pulse: Progress<'_>) -> Result<Index> {
        let shard_crc32c = checksum(self.file(), pulse)?;
        let (compression, offsets, shard_size) = (self.compression, self.offsets.clone(), self.file().size());
        Ok(Index { compression, shard_size, shard_crc32c, offsets, segments: Vec::new() })
    }
}

fn fewer() -> Error {
    Error::corrupt("expected the records that the index names, got fewer")
}

/// The error for an index that belongs to another file.
pub(crate) fn unfit(file: &RandomAccessFile, message: String) -> Error {
    let advice = "The shard was changed after its index was made; make the index again with `penstock index`.";
    Error::new(Kind::Sidecar, message).advise(advice).in_file(file.path())
}

/// Whether a file has the size and the wrapping that an index names.
pub(crate) fn same_file(file: &RandomAccessFile, compression: Compression, index: &Index) -> Result<()> {
    let refuse = |message: String| Err(unfit(file, message));
    if index.shard_size != file.size() {
        return refuse(format!(
            "expected a shard of {} bytes, as its index says, got {}",
            index.shard_size,
            file.size()
        ));
    }
    if index.compression != compression {
        return refuse(format!(
            "expected a {} shard, as its index says, got {}",
            index.compression.name(),
            compression.name()
        ));
    }
    Ok(())
}

/// Whether an index can belong to a file: the same size and wrapping, and the last frame where it says.
fn fit(file: &RandomAccessFile, compression: Compression, index: &Index) -> Result<()> {
    same_file(file, compression, index)?;
    if !index.segments.is_empty() {
        return Err(unfit(file, "expected an index of frames, got one of a tar's segments".into()));
    }
    if let (Compression::None, [.., start, end]) = (compression, &index.offsets[..]) {
        let mut header = [0; HEADER];
        file.read_at(&mut header, *start)?;
        if frame::declared_length(&header).ok() != Some(end - start - OVERHEAD as u64) {
            let message = format!("expected a frame at offset {start}, as its index says, got something else");
            return Err(unfit(file, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c;
    use std::fs::File;
    use std::path::PathBuf;

    fn written(records: &[&[u8]]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tfrecord");
        let mut frames = Frames::default();
        records.iter().for_each(|record| frames.push(record));
        std::fs::write(&path, frames.bytes()).unwrap();
        (folder, path)
    }

    fn open(path: &Path) -> Result<TfRecordShard> {
        TfRecordShard::open(path, Sidecar::Ignore, &mut |_| Ok(()))
    }

    #[test]
    fn any_record_in_any_order() {
        let large = vec![7u8; 3 * WINDOW];
        let (_folder, path) = written(&[b"a", &large, b"", b"b", &large, b"c"]);
        let shard = open(&path).unwrap();
        assert_eq!(shard.len(), 6);
        let mut buffer = Vec::new();
        assert_eq!(shard.read(5, &mut buffer).unwrap(), b"c");
        assert_eq!(shard.read(1, &mut buffer).unwrap(), large);
        let some = shard.read_many(&[3, 2, 3, 4, 5, 0]).unwrap();
        assert_eq!(some.iter().map(<[u8]>::len).collect::<Vec<_>>(), [1, 0, 1, large.len(), 1, 1]);
        assert_eq!(shard.read(6, &mut buffer).unwrap_err().kind(), Kind::OutOfRange);
    }

    #[test]
    fn a_file_cut_under_us_is_an_error() {
        let (_folder, path) = written(&[b"one", &[1; 100_000], b"three"]);
        let shard = open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(50).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(shard.read(0, &mut buffer).unwrap(), b"one");
        let error = shard.read(2, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("truncated"), "{error}");
    }

    #[test]
    fn a_shard_read_at_random_is_held_and_one_read_in_order_is_not() {
        let records: Vec<Vec<u8>> = (0..2000u32).map(|i| i.to_le_bytes().repeat(10)).collect();
        let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let (_folder, path) = written(&slices);
        let (shard, streamed) = (open(&path).unwrap(), open(&path).unwrap());
        let mut buffer = Vec::new();
        for record in (0..6000usize).map(|number| number * 7919 % 2000) {
            assert_eq!(shard.read(record, &mut buffer).unwrap(), records[record]);
        }
        assert!(shard.is_in_memory());
        streamed.read_many(&(0..2000).collect::<Vec<_>>()).unwrap();
        assert!(!streamed.is_in_memory());
    }

    #[test]
    fn every_truncation_is_found_at_open() {
        let (_folder, path) = written(&[b"one", b"two"]);
        let whole = std::fs::read(&path).unwrap();
        for length in (1..whole.len()).filter(|&length| length != 19) {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = open(&path).unwrap_err();
            assert_eq!(error.offset(), Some(if length < 19 { 0 } else { 19 }), "length {length}");
        }
        std::fs::write(&path, b"").unwrap();
        assert!(open(&path).unwrap().is_empty());
    }

    #[test]
    fn an_index_saves_the_scan_and_must_fit() {
        let (_folder, path) = written(&[b"one", b"two"]);
        let index = open(&path).unwrap().index(&mut |_| Ok(())).unwrap();
        assert_eq!(index.shard_crc32c, crc32c::crc32c(&std::fs::read(&path).unwrap()));
        let shard = TfRecordShard::open(&path, Sidecar::Use(index.clone()), &mut |_| panic!("scanned")).unwrap();
        assert_eq!(shard.len(), 2);
        let (_other, other) = written(&[b"one!", b"to"]);
        assert_eq!(
            TfRecordShard::open(&other, Sidecar::Use(index.clone()), &mut |_| Ok(())).unwrap_err().kind(),
            Kind::Sidecar
        );
        assert_eq!(TfRecordShard::open(&other, Sidecar::Try(index), &mut |_| Ok(())).unwrap().len(), 2);
    }

    #[test]
    fn damage_is_found_when_read_with_its_place() {
        let (_folder, path) = written(&[b"one", b"two"]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[19 + 13] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        let shard = open(&path).unwrap();
        let error = shard.read(1, &mut Vec::new()).unwrap_err();
        assert_eq!((error.kind(), error.offset(), error.record()), (Kind::Corrupt, Some(19), Some(1)));
        assert_eq!(shard.read_many(&[0, 1]).unwrap_err().record(), Some(1));
    }

    #[test]
    fn directories_and_missing_files_are_io_errors() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(open(folder.path()).unwrap_err().kind(), Kind::Io(_)));
        assert_eq!(open(&folder.path().join("no")).unwrap_err().kind(), Kind::Io(Some(2)));
    }
}
