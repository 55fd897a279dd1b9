//! Writing a shard: under a temporary name, then published whole by a rename.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::write::{GzEncoder, ZlibEncoder};

use crate::crc;
use crate::error::{Error, Result};
use crate::frames::{self, Frames, OVERHEAD};
use crate::index::Index;
use crate::inflate::Compression;

/// Small records are gathered up to this size before they are written.
const BUFFER: usize = 1 << 20;

/// The file, with the size and CRC of what went into it.
struct Counted {
    file: File,
    size: u64,
    crc: u32,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.size += count as u64;
        self.crc = crc::append(self.crc, &bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

enum Sink {
    Plain(Counted),
    Gzip(GzEncoder<Counted>),
    Zlib(ZlibEncoder<Counted>),
}

impl Sink {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::Plain(file) => file.write_all(bytes),
            Sink::Gzip(encoder) => encoder.write_all(bytes),
            Sink::Zlib(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<Counted> {
        match self {
            Sink::Plain(file) => Ok(file),
            Sink::Gzip(encoder) => encoder.finish(),
            Sink::Zlib(encoder) => encoder.finish(),
        }
    }
}

/// A shard that is being written.
pub struct Writer {
    path: PathBuf,
    temporary: PathBuf,
    /// Compressed only from the first byte on: a gzip member is never empty.
    sink: Option<Sink>,
    compression: Compression,
    level: u32,
    pending: Vec<u8>,
    offsets: Vec<u64>,
}

/// A name that no other writer uses, beside the shard.
fn temporary_name(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{number}.partial", std::process::id()))
}

impl Writer {
    /// Begins a shard; nothing is seen at `path` until [`Writer::finish`].
    pub fn create(path: &Path, compression: Compression, level: u32) -> Result<Writer> {
        if level > 9 {
            return Err(Error::usage(format!("expected a compression level from 0 to 9, got {level}")));
        }
        let temporary = temporary_name(path);
        let file = File::options().write(true).create_new(true).open(&temporary);
        let file = file.map_err(|error| Error::io("creating the shard failed", &error).in_file(path))?;
        let sink = Some(Sink::Plain(Counted { file, size: 0, crc: 0 }));
        Ok(Writer { path: path.into(), temporary, sink, compression, level, pending: Vec::new(), offsets: vec![0] })
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
        frames::append(&mut self.pending, data);
        self.add_offset(data.len() + OVERHEAD);
        if self.pending.len() >= BUFFER {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Appends records that are framed already.
    pub fn write_frames(&mut self, frames: &Frames) -> Result<()> {
        self.flush()?;
        self.put(frames.bytes())?;
        frames.lengths().for_each(|length| self.add_offset(length));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.put(&pending)?;
        self.pending = pending;
        self.pending.clear();
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        match self.sink {
            Some(_) => Ok(()),
            None => Err(Error::usage("expected an open shard, got one that is closed or failed").in_file(&self.path)),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.check_open()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let level = flate2::Compression::new(self.level);
        let mut sink = match (self.sink.take(), self.compression) {
            (Some(Sink::Plain(file)), Compression::Gzip) => Sink::Gzip(GzEncoder::new(file, level)),
            (Some(Sink::Plain(file)), Compression::Zlib) => Sink::Zlib(ZlibEncoder::new(file, level)),
            (Some(sink), _) => sink,
            (None, _) => return self.check_open(),
        };
        // A shard that failed to take bytes stays closed: going on would leave a hole.
        sink.write_all(bytes).map_err(|error| self.failed(&error))?;
        self.sink = Some(sink);
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::io("writing the shard failed", error).in_file(&self.path)
    }

    /// Publishes the shard under its name; with `sync`, only once it is on the disk. Returns its index.
    pub fn finish(&mut self, sync: bool) -> Result<Index> {
        self.flush()?;
        let Some(sink) = self.sink.take() else { return Err(Error::usage("expected an open shard")) };
        let counted = sink.finish().map_err(|error| self.failed(&error))?;
        if sync {
            counted.file.sync_all().map_err(|error| self.failed(&error))?;
        }
        std::fs::rename(&self.temporary, &self.path).map_err(|error| self.failed(&error))?;
        if sync {
            sync_folder(&self.path).map_err(|error| self.failed(&error))?;
        }
        let (shard_size, shard_crc32c) = (counted.size, counted.crc);
        let compression = if self.is_empty() { Compression::None } else { self.compression };
        Ok(Index { compression, shard_size, shard_crc32c, offsets: std::mem::take(&mut self.offsets) })
    }

    /// Removes what was written; nothing is published.
    pub fn abandon(&mut self) {
        if self.sink.take().is_some() || self.temporary.exists() {
            // There may be nothing to remove any more; then there is nothing to do.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Makes a rename survive a power cut, where folders can be synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Writes a small file whole: under a temporary name, then renamed.
pub fn publish(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_name(path);
    std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path)).map_err(|error| {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&temporary);
        Error::io("writing failed", &error).in_file(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{Shard, Sidecar};

    #[test]
    fn what_is_written_is_read_and_indexed() {
        let folder = tempfile::tempdir().unwrap();
        for compression in [Compression::None, Compression::Gzip, Compression::Zlib] {
            let path = folder.path().join(compression.name());
            let mut writer = Writer::create(&path, compression, 6).unwrap();
            writer.write(b"one").unwrap();
            let mut frames = Frames::default();
            frames.push(b"two");
            frames.push(b"");
            writer.write_frames(&frames).unwrap();
            writer.write(b"four").unwrap();
            assert!(!path.exists());
            let index = writer.finish(true).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!((index.shard_size, index.shard_crc32c), (bytes.len() as u64, crc::crc32c(&bytes)));
            let scanned = Shard::open(&path, Sidecar::Ignore, &mut |_| Ok(())).unwrap();
            assert_eq!(scanned.index(&mut |_| Ok(())).unwrap(), index);
            let shard = Shard::open(&path, Sidecar::Use(index), &mut |_| Ok(())).unwrap();
            assert_eq!(shard.read_many(&[3, 1]).unwrap().iter().collect::<Vec<_>>(), [&b"four"[..], b"two"]);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "no temporary file is left");
    }

    #[test]
    fn an_empty_shard_is_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let index = Writer::create(&path, Compression::Gzip, 6).unwrap().finish(false).unwrap();
        assert_eq!((index.shard_size, std::fs::metadata(&path).unwrap().len()), (0, 0));
        assert!(Shard::open(&path, Sidecar::Use(index), &mut |_| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn a_dropped_writer_publishes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut writer = Writer::create(&path, Compression::None, 6).unwrap();
        writer.write(b"one").unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
