//! Writes an ArrayRecord file: threads compress chunks, which are written in order, so that the bytes are always the
//! same.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::footer::{ChunkTable, Postscript};
use super::ChunkCompression;
use crate::error::{Error, Result};
use crate::format::frame::Frames;
use crate::format::riegeli::records::{Packed, Packer};
use crate::format::riegeli::{append, padding, ChunkHeader, ChunkType, SIGNATURE};
use crate::io::atomic_file::{closed, failed, AtomicFile};
use crate::ordered_queue::in_order;

/// Records are gathered up to this size before they are compressed.
const GATHERED: usize = 4 << 20;
/// Chunks are laid out up to this size before they are written.
const LAID_OUT: usize = 1 << 20;
/// A thread compresses chunks of about this size in all before it hands them over.
const TASK: usize = 1 << 18;

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Records to a chunk.
    pub group_size: usize,
    /// How chunks are compressed.
    pub compression: ChunkCompression,
    /// Threads that compress.
    pub threads: usize,
}

/// What a written file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many records.
    pub records: usize,
    /// The file's size in bytes.
    pub size: u64,
    /// CRC-32C of its bytes.
    pub crc32c: u32,
}

/// What is in the file, and what is laid out but not written yet.
struct Layout {
    file: AtomicFile,
    laid_out: Vec<u8>,
    position: u64,
    table: ChunkTable,
}

impl Layout {
    /// Puts a chunk, its header and data in `bytes`, where the last one ends.
    fn put(&mut self, bytes: &[u8], records: u64) -> Result<()> {
        self.position = append(&mut self.laid_out, self.position, bytes, records)?;
        Ok(())
    }

    /// Puts a chunk of the user's records.
    fn put_records(&mut self, bytes: &[u8], packed: &Packed) -> Result<()> {
        let ChunkTable { offsets, decoded, records, .. } = &mut self.table;
        offsets.push(self.position);
        decoded.push(decoded.last().copied().unwrap_or(0) + packed.decoded_size);
        *records += packed.records as usize;
        self.put(bytes, packed.records)
    }

    /// Puts a chunk of records that are not the user's, and padding to the end of its block.
    fn put_padded(&mut self, records: &[&[u8]], compression: ChunkCompression) -> Result<()> {
        let mut chunk = Vec::new();
        let packed = Packer::new(compression)?.pack(records, &mut chunk)?;
        self.put(&chunk, packed.records)?;
        match padding(self.position) {
            Some(length) => {
                let zeros = vec![0; length];
                let header = ChunkHeader::new(ChunkType::Padding, &zeros, 0, 0).to_bytes();
                self.put(&[&header[..], &zeros].concat(), 0)
            }
            None => Ok(()),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all(&self.laid_out)?;
        self.laid_out.clear();
        Ok(())
    }

    /// Puts the table and the postscript, and gives the file its name.
    fn finish(mut self, path: &Path, compression: ChunkCompression, sync: bool) -> Result<Summary> {
        let footer = self.position;
        self.table.offsets.push(footer);
        let (bytes, ends) = self.table.to_records();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let entries: Vec<&[u8]> = starts.zip(&ends).map(|(start, &end)| &bytes[start..end]).collect();
        self.put_padded(&entries, compression)?;
        let postscript = Postscript { footer }.to_records();
        self.put_padded(&postscript.iter().map(Vec::as_slice).collect::<Vec<_>>(), ChunkCompression::None)?;
        let written = self.write().and_then(|()| self.file.publish(sync));
        let (size, crc32c) = written.map_err(|error| failed(path, &error))?;
        Ok(Summary { records: self.table.records, size, crc32c })
    }
}

/// A file that is being written.
pub struct ArrayRecordWriter {
    path: PathBuf,
    options: WriterOptions,
    /// Nothing, once the file is published or failed to take bytes: going on would leave a hole.
    layout: Option<Layout>,
    /// Records that are in no chunk yet, and where each ends.
    gathered: Vec<u8>,
    ends: Vec<usize>,
    records: usize,
    packers: Mutex<Vec<Packer>>,
}

impl ArrayRecordWriter {
    /// Begins a file; nothing is seen at `path` until [`ArrayRecordWriter::finish`].
    pub fn create(path: &Path, options: WriterOptions) -> Result<ArrayRecordWriter> {
        let WriterOptions { group_size, compression, .. } = options;
        if group_size == 0 || group_size > i32::MAX as usize {
            let message = format!("expected a group size from 1 to {}, got {group_size}", i32::MAX);
            return Err(Error::usage(message));
        }
        let described = format!(
            "group_size:{group_size},transpose:false,pad_to_block_boundary:false,{compression},max_parallelism:1"
        );
        let table = ChunkTable { group: group_size, decoded: vec![0], options: described, ..ChunkTable::default() };
        let (laid_out, position) = (SIGNATURE.to_vec(), SIGNATURE.len() as u64);
        Ok(ArrayRecordWriter {
            path: path.into(),
            options,
            packers: Mutex::new(vec![Packer::new(compression)?]),
            layout: Some(Layout { file: AtomicFile::create(path)?, laid_out, position, table }),
            gathered: Vec::new(),
            ends: Vec::new(),
            records: 0,
        })
    }

    /// How many records so far.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Appends one record.
    pub fn write(&mut self, record: &[u8]) -> Result<()> {
        if self.layout.is_none() {
            return Err(closed(&self.path));
        }
        self.gathered.extend_from_slice(record);
        self.ends.push(self.gathered.len());
        self.records += 1;
        let enough = self.gathered.len() + self.ends.len() >= GATHERED;
        match self.ends.len() / self.options.group_size {
            chunks @ 1.. if enough => self.pack(chunks),
            _ => Ok(()),
        }
    }

    /// Appends records that are framed.
    pub fn write_frames(&mut self, frames: &Frames) -> Result<()> {
        frames.iter().try_for_each(|record| self.write(record))
    }

    /// Compress this many chunks of the gathered records and append them.
    fn pack(&mut self, chunks: usize) -> Result<()> {
        let Some(mut layout) = self.layout.take() else { return Err(closed(&self.path)) };
        let tasks = (self.gathered.len() / TASK).clamp(1, chunks.max(1));
        let work = |task: usize| self.pack_some(chunks * task / tasks..chunks * (task + 1) / tasks);
        in_order(self.options.threads, tasks, work, |(bytes, packed)| {
            let mut rest = &bytes[..];
            for chunk in &packed {
                let (bytes, later) = rest.split_at(chunk.length);
                layout.put_records(bytes, chunk)?;
                rest = later;
            }
            match layout.laid_out.len() {
                LAID_OUT.. => layout.write().map_err(|error| failed(&self.path, &error)),
                _ => Ok(()),
            }
        })?;
        self.layout = Some(layout);
        let taken = (chunks * self.options.group_size).min(self.ends.len());
        let end = self.ends.drain(..taken).next_back().unwrap_or(0);
        self.gathered.drain(..end);
        self.ends.iter_mut().for_each(|later| *later -= end);
        Ok(())
    }

    /// Some chunks of the gathered records, one after the other.
    fn pack_some(&self, chunks: Range<usize>) -> Result<(Vec<u8>, Vec<Packed>)> {
        let packers = || self.packers.lock().unwrap_or_else(PoisonError::into_inner);
        let used_before = packers().pop();
        let mut packer = used_before.map_or_else(|| Packer::new(self.options.compression), Ok)?;
        let (mut bytes, mut packed) = (Vec::new(), Vec::with_capacity(chunks.len()));
        let group = self.options.group_size;
        let mut records = Vec::new();
        for chunk in chunks {
            let numbers = chunk * group..((chunk + 1) * group).min(self.ends.len());
            let start = |number: usize| number.checked_sub(1).map_or(0, |before| self.ends[before]);
            records.clear();
            records.extend(numbers.map(|number| &self.gathered[start(number)..self.ends[number]]));
            packed.push(packer.pack(&records, &mut bytes)?);
        }
        packers().push(packer);
        Ok((bytes, packed))
    }

    /// Lets the file go to the disk while it is written: [`ArrayRecordWriter::finish`] with `sync` waits less then.
    pub fn sync_along(&mut self) {
        if let Some(layout) = &mut self.layout {
            layout.file.sync_along();
        }
    }

    /// Publishes the file under its name; with `sync`, only once it is on the disk.
    pub fn finish(&mut self, sync: bool) -> Result<Summary> {
        self.pack(self.ends.len().div_ceil(self.options.group_size))?;
        match self.layout.take() {
            Some(layout) => layout.finish(&self.path, self.options.compression, sync),
            None => Err(closed(&self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ArrayRecordShard;
    use super::*;
    use crate::format::container::{Container, ReadBuffer};
    use crate::format::gather::read_many;

    fn records(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|i| format!("{i} ").repeat(i * 7919 % 400).into_bytes()).collect()
    }

    fn write(path: &Path, options: WriterOptions, records: &[Vec<u8>]) -> Summary {
        let _ = std::fs::remove_file(path);
        let mut writer = ArrayRecordWriter::create(path, options).unwrap();
        records.iter().for_each(|record| writer.write(record).unwrap());
        assert!(!path.exists(), "nothing is seen before it is whole");
        assert_eq!(writer.len(), records.len());
        writer.finish(false).unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_threads_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for compression in
            [ChunkCompression::None, ChunkCompression::Zstd(3), ChunkCompression::Brotli(1), ChunkCompression::Snappy]
        {
            for (group_size, count) in [(1, 0), (1, 1), (1, 9000), (7, 3000), (1000, 3000), (5000, 3000)] {
                let records = records(count);
                let mut seen = Vec::new();
                for threads in [1, 3] {
                    let summary = write(&path, WriterOptions { group_size, compression, threads }, &records);
                    let bytes = std::fs::read(&path).unwrap();
                    assert_eq!((summary.records, summary.size), (count, bytes.len() as u64));
                    assert_eq!(summary.crc32c, crate::crc32c::crc32c(&bytes));
                    seen.push(bytes);
                }
                assert!(seen[0] == seen[1], "the same bytes on any number of threads");
                let shard = ArrayRecordShard::open(&path).unwrap();
                assert_eq!(
                    (shard.len(), shard.group_size()),
                    (count, Some(if count == 0 { 1 } else { group_size.min(count) }))
                );
                let mut buffer = ReadBuffer::default();
                for record in (0..count).rev().step_by(13) {
                    assert_eq!(shard.read(record, &mut buffer).unwrap(), records[record]);
                }
                let all: Vec<usize> = (0..count).collect();
                assert!(read_many(&shard, &all).unwrap().iter().eq(&records));
                assert!(shard.read(count, &mut buffer).is_err());
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn more_than_is_gathered_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let records: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i; 700_001]).collect();
        for group_size in [1, 3, 30] {
            let options = WriterOptions { group_size, compression: ChunkCompression::None, threads: 2 };
            write(&path, options, &records);
            let shard = ArrayRecordShard::open(&path).unwrap();
            assert_eq!(shard.offsets().len(), 40usize.div_ceil(group_size) + 1);
            let all: Vec<usize> = (5..40).chain([2, 39, 38]).collect();
            assert!(read_many(&shard, &all).unwrap().iter().eq(all.iter().map(|&record| &records[record])));
        }
    }

    #[test]
    fn a_dropped_writer_publishes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let options = WriterOptions { group_size: 1, compression: ChunkCompression::Snappy, threads: 1 };
        let mut writer = ArrayRecordWriter::create(&folder.path().join("a"), options).unwrap();
        writer.write(b"one").unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(
            ArrayRecordWriter::create(&folder.path().join("a"), WriterOptions { group_size: 0, ..options }).is_err()
        );
    }
}
