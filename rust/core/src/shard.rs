//! A TFRecord file that any record can be read from.
//!
//! Files are read with positioned reads, never through a memory map: a mapped file that another process truncates ends
//! this one with SIGBUS, and no portable way prevents it. A positioned read gives an error instead.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::crc;
use crate::error::{Error, Kind, Result};
use crate::frames::{self, Frames, HEADER, OVERHEAD};
use crate::index::Index;
use crate::inflate::{read_error, Compression, FrameStream, Stream};

/// A compressed shard is inflated into memory for random access, up to this size.
pub const MAX_INFLATED: u64 = 1 << 30;

/// What a scan reads at a time.
const WINDOW: usize = 1 << 20;

/// Reads exactly `out.len()` bytes at `offset`.
#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

/// Reads exactly `out.len()` bytes at `offset`.
#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !out.is_empty() {
        match file.seek_read(out, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => {
                out = &mut out[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

/// A file opened for positioned reads.
#[derive(Debug)]
pub struct Plain {
    file: File,
    path: PathBuf,
    size: u64,
}

impl Plain {
    /// Opens a regular file.
    pub fn open(path: &Path) -> Result<Plain> {
        let fail = |error: std::io::Error| Error::io("opening failed", &error).in_file(path);
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "a directory" } else { "something else" };
            return Err(Error::new(Kind::Io(None), format!("expected a file, got {what}")).in_file(path));
        }
        Ok(Plain { file, path: path.to_path_buf(), size: metadata.len() })
    }

    /// The size when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `out` from `offset` on.
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        read_exact_at(&self.file, out, offset).map_err(|error| {
            let error = match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Error::corrupt(format!(
                    "expected {} bytes here, got the end of the file: it was truncated after it was opened",
                    out.len()
                )),
                _ => Error::io("reading failed", &error),
            };
            error.at_offset(offset).in_file(&self.path)
        })
    }

    /// Reads `length` bytes at `offset` into `buffer`, which only ever grows, and returns them.
    pub fn read_into<'b>(&self, buffer: &'b mut Vec<u8>, offset: u64, length: u64) -> Result<&'b [u8]> {
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let message = format!("expected {length} bytes here, got a file of {} bytes", self.size);
            return Err(Error::corrupt(message).at_offset(offset).in_file(&self.path));
        }
        let length = length as usize;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        self.read_at(&mut buffer[..length], offset)?;
        Ok(&buffer[..length])
    }

    /// What the first bytes say about the compression.
    pub fn compression(&self) -> Result<Compression> {
        let mut head = [0; HEADER];
        let count = HEADER.min(self.size as usize);
        self.read_at(&mut head[..count], 0)?;
        Ok(Compression::detect(&head[..count]))
    }

    /// The inflated stream, from the start.
    pub fn stream(&self, compression: Compression) -> Stream<Positioned<'_>> {
        Stream::new(Positioned { file: self, offset: 0 }, compression)
    }

    fn place(&self, error: Error) -> Error {
        error.in_file(&self.path)
    }
}

/// Reads a [`Plain`] file from front to back without moving anyone else's position.
pub struct Positioned<'a> {
    file: &'a Plain,
    offset: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let left = self.file.size - self.offset;
        let count = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        read_exact_at(&self.file.file, &mut out[..count], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Called now and then in long work; an error from it ends the work.
pub type Pulse<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// Finds every frame by its header alone: both length and length CRC are checked, the data is not read.
pub fn scan(file: &Plain, compression: Compression, pulse: Pulse<'_>) -> Result<Vec<u64>> {
    let mut offsets = vec![0];
    if compression != Compression::None {
        let mut stream = FrameStream::new(file.stream(compression));
        while stream.next_frame().map_err(|error| advise(file.place(error)))?.is_some() {
            offsets.push(stream.offset);
            if stream.record % 4096 == 0 {
                pulse(stream.offset)?;
            }
        }
        return Ok(offsets);
    }
    let mut window = Vec::new();
    let (mut start, mut length, mut at) = (0u64, 0usize, 0u64);
    while at < file.size {
        let place = |error: Error| advise(file.place(error.at_offset(at).in_record(offsets.len() as u64 - 1)));
        let left = file.size - at;
        if left < HEADER as u64 {
            let message = format!(
                "expected a {HEADER}-byte frame header, got the last {left} bytes of the file: it is truncated"
            );
            return Err(place(Error::corrupt(message)));
        }
        if at + HEADER as u64 > start + length as u64 {
            pulse(at)?;
            // Records larger than the window are stepped over: then only a little is read for each.
            let step = if length > 0 && at - start > WINDOW as u64 { 4096 } else { WINDOW as u64 };
            (start, length) = (at, step.min(left) as usize);
            file.read_into(&mut window, start, length as u64)?;
        }
        let header = &window[(at - start) as usize..][..HEADER];
        let declared = frames::declared_length(header).map_err(place)?;
        let end = declared.checked_add(OVERHEAD as u64).and_then(|frame| at.checked_add(frame));
        match end {
            Some(end) if end <= file.size => at = end,
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
    match error.kind() {
        Kind::Corrupt => error.advise("`penstock salvage` copies the records that are whole."),
        _ => error,
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
pub struct Shard {
    file: Plain,
    compression: Compression,
    offsets: Vec<u64>,
    inflated: OnceLock<Result<Vec<u8>>>,
}

impl Shard {
    /// Opens a shard, by an index or by a scan.
    pub fn open(path: &Path, sidecar: Sidecar, pulse: Pulse<'_>) -> Result<Shard> {
        let file = Plain::open(path)?;
        let compression = file.compression()?;
        let offsets = match sidecar {
            Sidecar::Use(index) => fit(&file, compression, &index).map(|()| index.offsets)?,
            Sidecar::Try(index) if fit(&file, compression, &index).is_ok() => index.offsets,
            Sidecar::Try(_) | Sidecar::Ignore => scan(&file, compression, pulse)?,
        };
        Ok(Shard { file, compression, offsets, inflated: OnceLock::new() })
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
    pub fn file(&self) -> &Plain {
        &self.file
    }

    /// Where each frame begins, and where the last one ends.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Checks that a record exists.
    pub fn check(&self, record: usize) -> Result<()> {
        if record < self.len() {
            return Ok(());
        }
        let message = format!("expected a record number below {}, got {record}", self.len());
        Err(Error::new(Kind::OutOfRange, message).in_file(self.file.path()))
    }

    /// Adds the file, and the offset of the record that the error names.
    pub fn place(&self, error: Error) -> Error {
        let offset = error.record().and_then(|record| self.offsets.get(record as usize).copied());
        let error = offset.into_iter().fold(error, Error::at_offset);
        advise(self.file.place(error))
    }

    /// The frames of consecutive records, unchecked, in `buffer` or in the inflated shard.
    pub fn frames<'b>(&'b self, records: Range<usize>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        if records.is_empty() {
            return Ok(&[]);
        }
        self.check(records.end - 1)?;
        let (start, end) = (self.offsets[records.start], self.offsets[records.end]);
        match self.compression {
            Compression::None => self.file.read_into(buffer, start, end - start),
            _ => {
                let inflated = self.inflated.get_or_init(|| self.inflate()).as_ref().map_err(Clone::clone)?;
                let gone = || Error::corrupt("expected the records that the index names, got fewer");
                inflated
                    .get(start as usize..end as usize)
                    .ok_or_else(|| self.place(gone().in_record(records.start as u64)))
            }
        }
    }

    fn inflate(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut stream = self.file.stream(self.compression).take(MAX_INFLATED + 1);
        stream.read_to_end(&mut out).map_err(|error| self.file.place(read_error(&error)))?;
        if out.len() as u64 > MAX_INFLATED {
            let message =
                format!("expected a compressed shard of at most {MAX_INFLATED} bytes once inflated, got more");
            let advice = "Read it in order, or rewrite it in smaller or uncompressed shards.";
            return Err(Error::usage(message).advise(advice).in_file(self.file.path()));
        }
        Ok(out)
    }

    /// The data of consecutive records whose frames are in `frames`, both CRCs of each checked.
    pub fn records<'b>(&self, records: Range<usize>, frames: &'b [u8]) -> Result<Vec<&'b [u8]>> {
        let first = self.offsets[records.start];
        records
            .map(|record| {
                let (start, end) = (self.offsets[record] - first, self.offsets[record + 1] - first);
                frames::open(&frames[start as usize..end as usize])
                    .map_err(|error| self.place(error.in_record(record as u64)))
            })
            .collect()
    }

    /// One record's data, checked.
    pub fn read<'b>(&'b self, record: usize, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        self.check(record)?;
        let frame = self.frames(record..record + 1, buffer)?;
        frames::open(frame).map_err(|error| self.place(error.in_record(record as u64)))
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
    pub fn index(&self, pulse: Pulse<'_>) -> Result<Index> {
        let shard_crc32c = checksum(&self.file, pulse)?;
        let Shard { compression, offsets, .. } = self;
        Ok(Index { compression: *compression, shard_size: self.file.size, shard_crc32c, offsets: offsets.clone() })
    }
}

/// CRC-32C of the whole file.
pub fn checksum(file: &Plain, pulse: Pulse<'_>) -> Result<u32> {
    let (mut crc, mut offset, mut buffer) = (0, 0, Vec::new());
    while offset < file.size {
        let count = (file.size - offset).min(WINDOW as u64);
        crc = crc::append(crc, file.read_into(&mut buffer, offset, count)?);
        offset += count;
        pulse(offset)?;
    }
    Ok(crc)
}

/// Whether an index can belong to a file: the same size and wrapping, and the last frame where it says.
fn fit(file: &Plain, compression: Compression, index: &Index) -> Result<()> {
    let refuse = |message: String| {
        let advice = "The shard was changed after its index was made; make the index again with `penstock index`.";
        Err(Error::new(Kind::Sidecar, message).advise(advice).in_file(&file.path))
    };
    if index.shard_size != file.size {
        return refuse(format!("expected a shard of {} bytes, as its index says, got {}", index.shard_size, file.size));
    }
    if index.compression != compression {
        return refuse(format!(
            "expected a {} shard, as its index says, got {}",
            index.compression.name(),
            compression.name()
        ));
    }
    if let (Compression::None, [.., start, end]) = (compression, &index.offsets[..]) {
        let mut header = [0; HEADER];
        file.read_at(&mut header, *start)?;
        if frames::declared_length(&header).ok() != Some(end - start - OVERHEAD as u64) {
            return refuse(format!("expected a frame at offset {start}, as its index says, got something else"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(records: &[&[u8]]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tfrecord");
        let mut frames = Frames::default();
        records.iter().for_each(|record| frames.push(record));
        std::fs::write(&path, frames.bytes()).unwrap();
        (folder, path)
    }

    fn open(path: &Path) -> Result<Shard> {
        Shard::open(path, Sidecar::Ignore, &mut |_| Ok(()))
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
        assert_eq!(index.shard_crc32c, crc::crc32c(&std::fs::read(&path).unwrap()));
        let shard = Shard::open(&path, Sidecar::Use(index.clone()), &mut |_| panic!("scanned")).unwrap();
        assert_eq!(shard.len(), 2);
        let (_other, other) = written(&[b"one!", b"to"]);
        assert_eq!(
            Shard::open(&other, Sidecar::Use(index.clone()), &mut |_| Ok(())).unwrap_err().kind(),
            Kind::Sidecar
        );
        assert_eq!(Shard::open(&other, Sidecar::Try(index), &mut |_| Ok(())).unwrap().len(), 2);
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
