//! A TFRecord file whose records are read in any order.

use std::ops::Range;
use std::path::Path;

use crate::codec::stream::Compression;
use crate::error::{Error, Result};
use crate::format::container::{Container, Decoded, Extent, RecordScratch};
use crate::format::frame::{self, Frames, HEADER, OVERHEAD};
use crate::format::index::{same_file, unfit, Index, Sidecar};
use crate::format::indexed_file::{advise, IndexedFile};
use crate::format::tfrecord::stream::FrameStream;
use crate::io::file::{Progress, RandomAccessFile, WINDOW};
use crate::io::window_reader::WindowReader;

/// Finds every frame by its header alone: both length and length CRC are checked, the data is not read.
pub fn scan(file: &RandomAccessFile, compression: Compression, progress: Progress<'_>) -> Result<Vec<u64>> {
    let mut offsets = vec![0];
    if compression != Compression::None {
        let mut stream = FrameStream::new(file.stream(compression));
        while stream.next_frame().map_err(|error| advise(error.in_file(file.path())))?.is_some() {
            offsets.push(stream.offset);
            if stream.record % 4096 == 0 {
                progress(stream.offset)?;
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
            progress(at)?;
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

/// A TFRecord file with the offsets of its records.
#[derive(Debug)]
pub struct TfRecordShard(IndexedFile);

impl TfRecordShard {
    /// Open a shard, by an index or by a scan.
    pub fn open(path: &Path, sidecar: Sidecar, progress: Progress<'_>) -> Result<TfRecordShard> {
        TfRecordShard::from_file(RandomAccessFile::open(path)?, sidecar, progress)
    }

    /// Open a shard whose file is open.
    pub(crate) fn from_file(file: RandomAccessFile, sidecar: Sidecar, progress: Progress<'_>) -> Result<TfRecordShard> {
        let compression = file.compression()?;
        let offsets = match sidecar {
            Sidecar::Use(index) => fit(&file, compression, &index).map(|()| index.offsets)?,
            Sidecar::Try(index) if fit(&file, compression, &index).is_ok() => index.offsets,
            Sidecar::Try(_) | Sidecar::Ignore => scan(&file, compression, progress)?,
        };
        Ok(TfRecordShard(IndexedFile::new(file, compression, offsets)))
    }

    /// A shard that lost its end after its index was made: records that are no longer there are errors when they are
    /// read.
    pub(crate) fn truncated(file: RandomAccessFile, index: &Index) -> TfRecordShard {
        let offsets = index.offsets.iter().map(|&offset| offset.min(file.size())).collect();
        TfRecordShard(IndexedFile::new(file, index.compression, offsets))
    }
}

impl Container for TfRecordShard {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn file(&self) -> &RandomAccessFile {
        self.0.file()
    }

    fn offsets(&self) -> &[u64] {
        self.0.offsets()
    }

    fn format(&self) -> (&'static str, &str) {
        ("tfrecord", self.0.compression().name())
    }

    fn index(&self, progress: Progress<'_>) -> Result<Index> {
        self.0.index(progress)
    }

    fn is_in_memory(&self) -> bool {
        self.0.is_in_memory()
    }

    fn place(&self, error: Error) -> Error {
        advise(self.0.place(error))
    }

    fn extent(&self, record: usize) -> Extent {
        self.0.extent(record)
    }

    fn backed(&self, range: Range<u64>) -> Result<usize> {
        self.0.backed(range)
    }

    fn fill(&self, out: &mut [u8], offset: u64) -> Result<()> {
        self.0.fill(out, offset)
    }

    fn cached(&self, length: u64, budget: u64) -> Option<&[u8]> {
        self.0.cached(length, budget)
    }

    fn decode<'b>(&self, _record: usize, bytes: &'b [u8], _scratch: &mut RecordScratch) -> Result<Decoded<'b>> {
        frame::open(bytes).map(Decoded::InPlace)
    }

    fn append(&self, _record: usize, bytes: &[u8], _scratch: &mut RecordScratch, out: &mut Frames) -> Result<()> {
        frame::open(bytes)?;
        out.push_frame(bytes);
        Ok(())
    }
}

/// Fail unless an index can belong to a file: same size and compression, and a frame at the last offset.
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
    use crate::error::Kind;
    use crate::format::container::ReadBuffer;
    use crate::format::gather::read_many;
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
        let mut buffer = ReadBuffer::default();
        assert_eq!(shard.read(5, &mut buffer).unwrap(), b"c");
        assert_eq!(shard.read(1, &mut buffer).unwrap(), large);
        let some = read_many(&shard, &[3, 2, 3, 4, 5, 0]).unwrap();
        assert_eq!(some.iter().map(<[u8]>::len).collect::<Vec<_>>(), [1, 0, 1, large.len(), 1, 1]);
        assert_eq!(shard.read(6, &mut buffer).unwrap_err().kind(), Kind::OutOfRange);
    }

    #[test]
    fn a_file_cut_under_us_is_an_error() {
        let (_folder, path) = written(&[b"one", &[1; 100_000], b"three"]);
        let shard = open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(50).unwrap();
        let mut buffer = ReadBuffer::default();
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
        let mut buffer = ReadBuffer::default();
        for record in (0..6000usize).map(|number| number * 7919 % 2000) {
            assert_eq!(shard.read(record, &mut buffer).unwrap(), records[record]);
        }
        assert!(shard.is_in_memory());
        read_many(&streamed, &(0..2000).collect::<Vec<_>>()).unwrap();
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
        let error = shard.read(1, &mut ReadBuffer::default()).unwrap_err();
        assert_eq!((error.kind(), error.offset(), error.record()), (Kind::Corrupt, Some(19), Some(1)));
        assert_eq!(read_many(&shard, &[0, 1]).unwrap_err().record(), Some(1));
    }

    #[test]
    fn directories_and_missing_files_are_io_errors() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(open(folder.path()).unwrap_err().kind(), Kind::Io(_)));
        assert_eq!(open(&folder.path().join("no")).unwrap_err().kind(), Kind::Io(Some(2)));
    }
}
