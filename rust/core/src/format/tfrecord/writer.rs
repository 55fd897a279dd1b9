//! Writes a TFRecord file under a temporary name, then publishes it by a rename.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::write::{GzEncoder, ZlibEncoder};

use crate::codec::stream::Compression;
use crate::error::{Error, Result};
use crate::format::frame::{self, Frames, OVERHEAD};
use crate::format::index::Index;
use crate::interrupt;
use crate::io::atomic_file::{closed, failed, AtomicFile};

/// Small records are gathered up to this size before they are written.
const BUFFER: usize = 1 << 20;

enum Sink {
    Plain(AtomicFile),
    Gzip(GzEncoder<AtomicFile>),
    Zlib(ZlibEncoder<AtomicFile>),
}

impl Sink {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::Plain(file) => file.write_all(bytes),
            Sink::Gzip(encoder) => encoder.write_all(bytes),
            Sink::Zlib(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<AtomicFile> {
        match self {
            Sink::Plain(file) => Ok(file),
            Sink::Gzip(encoder) => encoder.finish(),
            Sink::Zlib(encoder) => encoder.finish(),
        }
    }
}

/// A shard that is being written.
pub struct TfRecordWriter {
    path: PathBuf,
    /// Compressed only from the first byte on: a gzip member is never empty.
    sink: Option<Sink>,
    compression: Compression,
    level: u32,
    pending: Vec<u8>,
    offsets: Vec<u64>,
}

impl TfRecordWriter {
    /// Begins a shard; nothing is seen at `path` until [`TfRecordWriter::finish`].
    pub fn create(path: &Path, compression: Compression, level: u32) -> Result<TfRecordWriter> {
        if level > 9 {
            return Err(Error::usage(format!("expected a compression level from 0 to 9, got {level}")));
        }
        let sink = Some(Sink::Plain(AtomicFile::create(path)?));
        Ok(TfRecordWriter { path: path.into(), sink, compression, level, pending: Vec::new(), offsets: vec![0] })
    }

    /// Lets the shard go to the disk while it is written: [`TfRecordWriter::finish`] with `sync` waits less then. To be
    /// said before anything is written.
    pub fn sync_along(&mut self) {
        if let Some(Sink::Plain(file)) = &mut self.sink {
            file.sync_along();
        }
    }

    /// How many records so far.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn add_offset(&mut self, frame: usize) {
        let last = self.offsets.last().copied().unwrap_or(0);
        self.offsets.push(last + frame as u64);
    }

    /// Appends one record.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        self.check_open()?;
        frame::append(&mut self.pending, data);
        self.add_offset(data.len() + OVERHEAD);
        self.flush_blocks()
    }

    /// Appends records that are framed already.
    pub fn write_frames(&mut self, frames: &Frames) -> Result<()> {
        self.check_open()?;
        frames.lengths().for_each(|length| self.add_offset(length));
        if self.compression == Compression::None {
            self.flush()?;
            return self.put(frames.bytes());
        }
        self.pending.extend_from_slice(frames.bytes());
        self.flush_blocks()
    }

    /// Writes whole blocks. What a compressor makes of bytes depends on where they are cut: always at the same places.
    fn flush_blocks(&mut self) -> Result<()> {
        match self.pending.len() - self.pending.len() % BUFFER {
            0 => Ok(()),
            whole => self.flush_first(whole),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.flush_first(self.pending.len())
    }

    fn flush_first(&mut self, count: usize) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        pending[..count].chunks(BUFFER).try_for_each(|block| self.put(block))?;
        pending.drain(..count);
        self.pending = pending;
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        match self.sink {
            Some(_) => Ok(()),
            None => Err(closed(&self.path)),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.check_open()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if let Err(error) = interrupt::check() {
            self.sink = None; // going on would leave a hole
            return Err(error);
        }
        let level = flate2::Compression::new(self.level);
        let mut sink = match (self.sink.take(), self.compression) {
            (Some(Sink::Plain(file)), Compression::Gzip) => Sink::Gzip(GzEncoder::new(file, level)),
            (Some(Sink::Plain(file)), Compression::Zlib) => Sink::Zlib(ZlibEncoder::new(file, level)),
            (Some(sink), _) => sink,
            (None, _) => return self.check_open(),
        };
        // A shard that failed to take bytes stays closed: going on would leave a hole.
        sink.write_all(bytes).map_err(|error| failed(&self.path, &error))?;
        self.sink = Some(sink);
        Ok(())
    }

    /// Publishes the shard under its name; with `sync`, only once it is on the disk. Returns its index.
    pub fn finish(&mut self, sync: bool) -> Result<Index> {
        self.flush()?;
        let Some(sink) = self.sink.take() else { return Err(closed(&self.path)) };
        let written = sink.finish().and_then(|file| file.publish(sync));
        let (shard_size, shard_crc32c) = written.map_err(|error| failed(&self.path, &error))?;
        let compression = if self.is_empty() { Compression::None } else { self.compression };
        let offsets = std::mem::take(&mut self.offsets);
        Ok(Index { compression, shard_size, shard_crc32c, offsets, segments: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c;
    use crate::format::container::Container;
    use crate::format::gather::read_many;
    use crate::format::index::Sidecar;
    use crate::format::tfrecord::shard::TfRecordShard;

    #[test]
    fn what_is_written_is_read_and_indexed() {
        let folder = tempfile::tempdir().unwrap();
        for compression in [Compression::None, Compression::Gzip, Compression::Zlib] {
            let path = folder.path().join(compression.name());
            let mut writer = TfRecordWriter::create(&path, compression, 6).unwrap();
            writer.sync_along();
            writer.write(b"one").unwrap();
            let mut frames = Frames::default();
            frames.push(b"two");
            frames.push(b"");
            writer.write_frames(&frames).unwrap();
            writer.write(b"four").unwrap();
            assert!(!path.exists());
            let index = writer.finish(true).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!((index.shard_size, index.shard_crc32c), (bytes.len() as u64, crc32c::crc32c(&bytes)));
            let scanned = TfRecordShard::open(&path, Sidecar::Ignore, &mut |_| Ok(())).unwrap();
            assert_eq!(scanned.index(&mut |_| Ok(())).unwrap(), index);
            let shard = TfRecordShard::open(&path, Sidecar::Use(index), &mut |_| Ok(())).unwrap();
            assert_eq!(read_many(&shard, &[3, 1]).unwrap().iter().collect::<Vec<_>>(), [&b"four"[..], b"two"]);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "no temporary file is left");
    }

    #[test]
    fn a_large_shard_goes_to_the_disk_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard");
        let mut writer = TfRecordWriter::create(&path, Compression::None, 6).unwrap();
        writer.sync_along();
        for number in 0..50u8 {
            writer.write(&vec![number; 1 << 20]).unwrap();
        }
        let index = writer.finish(true).unwrap();
        assert_eq!(index.shard_crc32c, crc32c::crc32c(&std::fs::read(&path).unwrap()));
        let mut dropped = TfRecordWriter::create(&path, Compression::None, 6).unwrap();
        dropped.sync_along();
        (0..40).for_each(|_| dropped.write(&vec![7; 1 << 20]).unwrap());
        drop(dropped);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn compressed_bytes_do_not_depend_on_how_records_are_handed_over() {
        let folder = tempfile::tempdir().unwrap();
        let records: Vec<Vec<u8>> =
            (0..6000usize).map(|n| (0..n % 700).map(|i| (i * n % 251) as u8).collect()).collect();
        for compression in [Compression::Gzip, Compression::Zlib] {
            let written = [1, 7, 500, 6000].map(|step| {
                let path = folder.path().join("shard");
                let mut writer = TfRecordWriter::create(&path, compression, 6).unwrap();
                for some in records.chunks(step) {
                    let mut frames = Frames::default();
                    some.iter().for_each(|record| frames.push(record));
                    match step {
                        1 => writer.write(&some[0]).unwrap(),
                        _ => writer.write_frames(&frames).unwrap(),
                    }
                }
                writer.finish(false).unwrap();
                std::fs::read(&path).unwrap()
            });
            assert!(written.iter().all(|bytes| *bytes == written[0]));
        }
    }

    #[test]
    fn an_empty_shard_is_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let index = TfRecordWriter::create(&path, Compression::Gzip, 6).unwrap().finish(false).unwrap();
        assert_eq!((index.shard_size, std::fs::metadata(&path).unwrap().len()), (0, 0));
        assert!(TfRecordShard::open(&path, Sidecar::Use(index), &mut |_| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn a_dropped_writer_publishes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut writer = TfRecordWriter::create(&path, Compression::None, 6).unwrap();
        writer.write(b"one").unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
