//! Files read by position.
//!
//! Never through a memory map: a mapped file that another process truncates ends this one with SIGBUS, and no portable
//! way prevents that. A positioned read gives an error instead.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::crc32c;
use crate::error::{Error, Kind, Result};
use crate::interrupt::{self, BLOCK};
use crate::io::range_cache::RangeCache;
use crate::io::slot_cache::{Slot, SlotCache};
use crate::limits;

/// Bytes per read where a whole file is read.
pub(crate) const WINDOW: usize = 1 << 20;

/// Callback of long work with the position it has reached; an error from it ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// Reads exactly `out.len()` bytes at `offset`.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

/// Reads exactly `out.len()` bytes at `offset`.
#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !out.is_empty() {
        match file.seek_read(out, offset)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => {
                out = &mut out[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

/// Fills `out` from `offset` on, in blocks between which the work may end.
fn read_blocks(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    let mut at = offset;
    for block in out.chunks_mut(BLOCK) {
        read_exact_at(file, block, at)?;
        at += block.len() as u64;
        if block.len() == BLOCK {
            interrupt::check_io()?;
        }
    }
    Ok(())
}

/// Maximum number of open files per process, below the limit of any system. Other files are opened again when they are
/// read.
const MOST_OPEN: u64 = 200;

static OPEN: SlotCache<File> = SlotCache::new(MOST_OPEN);

/// Downloads remote files to the paths that they are read from.
pub trait Fetch: std::fmt::Debug + Send + Sync {
    /// Wait until the file exists. It may be evicted later.
    fn fetch(&self, path: &Path, progress: Progress<'_>) -> Result<()>;
}

/// Distinguishes a file from another one under the same path: inode, size and modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    inode: u64,
    size: u64,
    modified: i128,
}

impl Identity {
    /// The identity with these values, as `stat` reports them; `modified` in nanoseconds since 1970.
    pub fn new(inode: u64, size: u64, modified: i128) -> Identity {
        Identity { inode: if cfg!(unix) { inode } else { 0 }, size, modified }
    }

    /// The identity of the file at `path`, following symbolic links.
    pub fn read(path: &Path) -> std::io::Result<Identity> {
        std::fs::metadata(path).map(|metadata| Identity::of(&metadata))
    }

    fn of(metadata: &Metadata) -> Identity {
        let nanoseconds = |duration: std::time::Duration| duration.as_nanos() as i128;
        let modified = metadata.modified().map_or(0, |time| {
            time.duration_since(UNIX_EPOCH).map_or_else(|before| -nanoseconds(before.duration()), nanoseconds)
        });
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Identity { inode, size: metadata.len(), modified }
    }
}

/// A file that must stay as it was when its dataset was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The file: a shard, or the manifest of its dataset. `build` removes the manifest before it replaces a shard.
    pub path: PathBuf,
    /// Its identity at that time.
    pub identity: Identity,
}

impl Stamp {
    /// Fails if the file was replaced, rewritten or removed.
    pub fn check(&self) -> Result<()> {
        match Identity::read(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            _ => Err(replaced(&self.path)),
        }
    }
}

/// The error for a file that is not the one that was opened.
fn replaced(path: &Path) -> Error {
    replacement().in_file(path)
}

pub(crate) fn replacement() -> Error {
    let message = "expected the file of the dataset that was loaded, got another one: the dataset was rebuilt";
    Error::new(Kind::Replaced, message).advise("Call ps.load again.")
}

/// The same as an error of the operating system. NFS reports a file that was removed on the server like this by itself.
fn stale() -> std::io::Error {
    std::io::Error::new(ErrorKind::StaleNetworkFileHandle, "the file was replaced after it was opened")
}

/// What is checked so that all reads of a file are of one content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeCheck {
    /// The size, when it is opened again: another process may replace the file with the same content.
    Size,
    /// The identity, when it is opened again.
    Opens,
    /// The identity, also after every read: another process may write to it in place.
    Reads,
}

/// A file opened for positioned reads.
#[derive(Debug)]
pub struct RandomAccessFile {
    file: Slot<File>,
    path: PathBuf,
    size: u64,
    identity: Option<Identity>,
    watch: ChangeCheck,
    /// Downloads the file if it does not exist when it is opened again.
    fetch: Option<Arc<dyn Fetch>>,
    /// Downloaded ranges of a remote file.
    ranges: Option<Arc<RangeCache>>,
}

/// Attempts to download a file that is evicted before it is opened.
pub(crate) const FETCH_ATTEMPTS: usize = 50;

impl RandomAccessFile {
    /// Opens a regular file.
    pub fn open(path: &Path) -> Result<RandomAccessFile> {
        let fail = |error: std::io::Error| Error::io("opening failed", &error).in_file(path);
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "a directory" } else { "something else" };
            return Err(Error::new(Kind::Io(None), format!("expected a file, got {what}")).in_file(path));
        }
        let slot = Slot::default();
        OPEN.keep(&slot, file, 1);
        let identity = Some(Identity::of(&metadata));
        let (path, size) = (path.to_path_buf(), metadata.len());
        Ok(RandomAccessFile { file: slot, path, size, identity, watch: ChangeCheck::Size, fetch: None, ranges: None })
    }

    /// A remote file of which only downloaded ranges are read.
    pub fn remote(path: &Path, size: u64, ranges: Arc<RangeCache>) -> RandomAccessFile {
        let (file, path, ranges) = (Slot::default(), path.to_path_buf(), Some(ranges));
        RandomAccessFile { file, path, size, identity: None, watch: ChangeCheck::Size, fetch: None, ranges }
    }

    /// Fail if another file has replaced this one; with `reads`, also if it was changed in place.
    #[must_use]
    pub(crate) fn watched(mut self, reads: bool) -> RandomAccessFile {
        self.watch = if reads { ChangeCheck::Reads } else { ChangeCheck::Opens };
        self
    }

    /// Download the file with `fetch` if it does not exist when it is opened again.
    #[must_use]
    pub fn fetched_by(mut self, fetch: Arc<dyn Fetch>) -> RandomAccessFile {
        self.fetch = Some(fetch);
        self
    }

    /// Return true if every byte can be read: false for a remote file.
    pub fn is_whole(&self) -> bool {
        self.ranges.is_none()
    }

    fn open_again(&self) -> std::io::Result<File> {
        // Another process that shares a small cache may delete the file before it is open.
        for _ in 0..FETCH_ATTEMPTS {
            match (File::open(&self.path), &self.fetch) {
                (Err(error), Some(fetch)) if error.kind() == ErrorKind::NotFound => {
                    fetch.fetch(&self.path, &mut |_| interrupt::check()).map_err(std::io::Error::other)?;
                }
                (opened, _) => return opened,
            }
        }
        File::open(&self.path)
    }

    /// Size when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Path it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> std::io::Result<()> {
        // Do not wait for the slot: a fork may have left it locked.
        if let Some(file) = self.file.try_read().ok().as_ref().and_then(|file| file.as_ref()) {
            let read = read_blocks(file, out, offset);
            return if self.watch == ChangeCheck::Reads { self.check_identity(file).and(read) } else { read };
        }
        let file = match self.open_again() {
            Err(error) if self.watch != ChangeCheck::Size && error.kind() == ErrorKind::NotFound => {
                return Err(stale());
            }
            opened => opened?,
        };
        let read = read_blocks(&file, out, offset);
        self.check_identity(&file)?;
        OPEN.keep(&self.file, file, 1);
        read
    }

    /// Fail if an open file is not the one that was opened first.
    fn check_identity(&self, file: &File) -> std::io::Result<()> {
        let metadata = file.metadata()?;
        let same = match self.watch {
            ChangeCheck::Size => metadata.len() == self.size,
            ChangeCheck::Opens | ChangeCheck::Reads => Some(Identity::of(&metadata)) == self.identity,
        };
        if same {
            Ok(())
        } else {
            Err(stale())
        }
    }

    /// Close the file until it is read again.
    pub fn close(&self) {
        if let Ok(mut file) = self.file.try_write() {
            *file = None;
        }
    }

    /// Read bytes from `offset` on.
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        if let Some(ranges) = &self.ranges {
            return ranges.read_at(out, offset).map_err(|error| error.in_file(&self.path));
        }
        self.read_exact_at(out, offset).map_err(|error| {
            let error = match error.kind() {
                ErrorKind::StaleNetworkFileHandle => return replaced(&self.path),
                ErrorKind::UnexpectedEof => Error::corrupt(format!(
                    "expected {} bytes here, got the end of the file: it was truncated after it was opened",
                    out.len()
                )),
                _ => Error::io("reading failed", &error),
            };
            error.at_offset(offset).in_file(&self.path)
        })
    }

    /// Fail unless `record` is below `records`.
    pub(crate) fn check(&self, record: usize, records: usize) -> Result<()> {
        if record < records {
            return Ok(());
        }
        let message = format!("expected a record number below {records}, got {record}");
        Err(Error::new(Kind::OutOfRange, message).in_file(&self.path))
    }

    /// Return the length of a range that lies within the file: memory is allocated for no other.
    pub(crate) fn backed(&self, range: Range<u64>) -> Result<usize> {
        match usize::try_from(range.end - range.start) {
            Ok(length) if range.end <= self.size => Ok(length),
            _ => {
                let length = range.end - range.start;
                let message = format!("expected {length} bytes here, got a file of {} bytes", self.size);
                Err(Error::corrupt(message).at_offset(range.start).in_file(&self.path))
            }
        }
    }

    /// Read `length` bytes at `offset` into `buffer`, which never shrinks, and return them.
    pub fn read_into<'b>(&self, buffer: &'b mut Vec<u8>, offset: u64, length: u64) -> Result<&'b [u8]> {
        let length = self.backed(offset..offset.saturating_add(length))?;
        limits::grow_to(buffer, length, 0).map_err(|error| error.in_file(&self.path))?;
        self.read_at(&mut buffer[..length], offset)?;
        Ok(&buffer[..length])
    }

    /// Read the file from front to back.
    pub fn reader(&self) -> Positioned<'_> {
        Positioned { file: self, offset: 0 }
    }
}

/// Reads a [`RandomAccessFile`] from front to back; each reader has a position of its own.
pub struct Positioned<'a> {
    file: &'a RandomAccessFile,
    offset: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        interrupt::check_io()?;
        let left = self.file.size - self.offset;
        let count = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match &self.file.ranges {
            Some(ranges) => {
                let read = ranges.read_at(&mut out[..count], self.offset);
                read.map_err(|error| std::io::Error::other(error.to_string()))?;
            }
            None => self.file.read_exact_at(&mut out[..count], self.offset)?,
        }
        self.offset += count as u64;
        Ok(count)
    }
}

/// CRC-32C of the whole file.
pub fn checksum(file: &RandomAccessFile, progress: Progress<'_>) -> Result<u32> {
    let (mut crc, mut offset, mut buffer) = (0, 0, Vec::new());
    while offset < file.size {
        let count = (file.size - offset).min(WINDOW as u64);
        crc = crc32c::append(crc, file.read_into(&mut buffer, offset, count)?);
        offset += count;
        progress(offset)?;
    }
    Ok(crc)
}
