//! Cached content of a compressed file: all of it if it is small, else a window that moves on.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::codec::stream::{read_error, Compression, InflateStream};
use crate::error::{Error, Result};
use crate::io::cached_file::MAX_CACHED;
use crate::io::file::{read_exact_at, RandomAccessFile};
use crate::io::fork_cell::ForkCell;
use crate::io::slot_cache::{Slot, SlotCache};

/// Maximum bytes of content that is inflated and cached as a whole.
pub const MAX_WHOLE: u64 = 256 << 20;

/// Minimum bytes of larger content cached behind the last read: threads are not all at one place.
pub const WINDOW: u64 = 64 << 20;

/// Bytes inflated at a time.
const STEP: u64 = 1 << 20;

/// Maximum bytes inflated behind the content: a checksum, and the zeros that end an archive.
const MAX_REST: u64 = 1 << 30;

/// The windows of all files, within the cache budget.
static WINDOWS: SlotCache<Window> = SlotCache::new(MAX_CACHED);

/// A part of the content, and the stream that goes on where it ends.
struct Window {
    begin: u64,
    bytes: Vec<u8>,
    stream: Mutex<InflateStream<File>>,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("begin", &self.begin).field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Window {
    /// At the beginning of a file, which must be the one that was opened before.
    fn new(file: &RandomAccessFile, compression: Compression) -> Result<Window> {
        let fail = |error: std::io::Error| Error::io("opening failed", &error).in_file(file.path());
        let again = File::open(file.path()).map_err(fail)?;
        let size = again.metadata().map_err(fail)?.len();
        if size != file.size() {
            let message =
                format!("expected the file of {} bytes that was opened before, got {size} bytes", file.size());
            return Err(Error::corrupt(message).in_file(file.path()));
        }
        Ok(Window { begin: 0, bytes: Vec::new(), stream: Mutex::new(InflateStream::new(again, compression)) })
    }

    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// Return the bytes of a range if the window has all of them.
    fn get(&self, range: &Range<u64>) -> Option<&[u8]> {
        let place = |offset: u64| offset.checked_sub(self.begin).and_then(|place| usize::try_from(place).ok());
        self.bytes.get(place(range.start)?..place(range.end)?)
    }

    /// Inflate until `to` or the end. At least `keep` bytes before `from` stay.
    fn advance(&mut self, from: u64, to: u64, keep: u64) -> std::io::Result<()> {
        while self.end() < to {
            let stale = from.min(self.end()).saturating_sub(keep).saturating_sub(self.begin);
            if stale > keep / 2 {
                self.bytes.drain(..stale as usize);
                self.begin += stale;
            }
            let count = STEP.min(to - self.end());
            let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
            if stream.take(count).read_to_end(&mut self.bytes)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Inflate the rest behind the content, so that a wrong checksum is found.
    fn finish(&mut self) -> std::io::Result<()> {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::io::copy(&mut stream.take(MAX_REST), &mut std::io::sink()).map(drop)
    }
}

/// The content of one file.
#[derive(Debug)]
pub(crate) struct InflateCache {
    window: Slot<Window>,
    /// All of it in a temporary file, if it is read out of order and too large for memory.
    spool: ForkCell<File>,
    /// One thread inflates.
    inflating: Mutex<()>,
    /// The process of the thread that inflated last.
    inflater: AtomicU32,
}

impl InflateCache {
    /// Create an empty cache.
    pub(crate) fn new() -> InflateCache {
        let (window, spool) = (Slot::default(), ForkCell::default());
        InflateCache { window, spool, inflating: Mutex::new(()), inflater: AtomicU32::new(std::process::id()) }
    }

    /// Copy bytes that are read out of order: content too large for memory is inflated once, into a temporary file.
    pub(crate) fn copy_scattered(
        &self,
        file: &RandomAccessFile,
        compression: Compression,
        length: u64,
        out: &mut [u8],
        offset: u64,
    ) -> Result<bool> {
        match length <= MAX_WHOLE {
            true => self.copy(file, compression, length, out, offset),
            false => self.copy_spooled(file, compression, length, out, offset),
        }
    }

    fn copy_spooled(
        &self,
        file: &RandomAccessFile,
        compression: Compression,
        length: u64,
        out: &mut [u8],
        offset: u64,
    ) -> Result<bool> {
        let spool = match self.spool.get() {
            Some(spool) => spool,
            None => {
                let _alone = self.wait_to_inflate();
                match self.spool.get() {
                    Some(spool) => spool,
                    None => {
                        let made = spooled(file, compression, length)?;
                        let advice = "Open the dataset in this process.";
                        self.spool.fill(made).ok_or_else(|| {
                            Error::usage("expected a process that was not forked twice while it inflated a tar")
                                .advise(advice)
                                .in_file(file.path())
                        })?
                    }
                }
            }
        };
        match read_exact_at(spool, out, offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Error::io("reading the spooled content failed", &error).in_file(file.path())),
        }
    }

    /// Copy bytes from `offset` on, of content of `length` bytes. Return false if there are fewer.
    pub(crate) fn copy(
        &self,
        file: &RandomAccessFile,
        compression: Compression,
        length: u64,
        out: &mut [u8],
        offset: u64,
    ) -> Result<bool> {
        self.copy_within(file, compression, length, out, offset, (MAX_WHOLE, WINDOW))
    }

    fn copy_within(
        &self,
        file: &RandomAccessFile,
        compression: Compression,
        length: u64,
        out: &mut [u8],
        offset: u64,
        (whole, keep): (u64, u64),
    ) -> Result<bool> {
        let range = offset..offset.saturating_add(out.len() as u64);
        if self.copy_kept(&range, out) {
            return Ok(true);
        }
        let _alone = self.wait_to_inflate();
        if self.copy_kept(&range, out) {
            return Ok(true);
        }
        let before = self.window.try_write().ok().and_then(|mut slot| slot.take());
        let mut window = match before {
            Some(window) if window.begin <= offset => window,
            _ => Window::new(file, compression)?,
        };
        let failed = |error: std::io::Error| read_error(&error).in_file(file.path());
        let (to, keep) = if length <= whole { (length.max(range.end), length) } else { (range.end, keep) };
        window.advance(offset, to, keep).map_err(failed)?;
        if window.end() >= length {
            window.finish().map_err(failed)?;
        }
        let found = window.get(&range).map(|bytes| out.copy_from_slice(bytes)).is_some();
        let size = window.bytes.len() as u64;
        WINDOWS.keep(&self.window, window, size);
        Ok(found)
    }

    fn copy_kept(&self, range: &Range<u64>, out: &mut [u8]) -> bool {
        let Ok(slot) = self.window.try_read() else { return false };
        let bytes = slot.as_ref().and_then(|window| window.get(range));
        bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }

    /// Lock for the thread that inflates; the others wait, but not for a thread that a fork does not have.
    fn wait_to_inflate(&self) -> Option<MutexGuard<'_, ()>> {
        loop {
            let guard = match self.inflating.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
                Err(TryLockError::WouldBlock) if self.inflater.load(Ordering::Relaxed) != std::process::id() => {
                    return None
                }
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            self.inflater.store(std::process::id(), Ordering::Relaxed);
            return Some(guard);
        }
    }
}

/// Inflate a file into a temporary file without a name, up to `length` bytes; check the rest.
fn spooled(file: &RandomAccessFile, compression: Compression, length: u64) -> Result<File> {
    let folder = std::env::temp_dir();
    let failed = |error: std::io::Error| {
        let advice = format!(
            "The files of its samples are scattered, so {length} bytes are spooled once. Set TMPDIR to a folder with room, or \
             sort the archive: `tar --sort=name`."
        );
        let what = format!("spooling the archive in {} failed", folder.display());
        Error::io(&what, &error).advise(advice).in_file(file.path())
    };
    let mut spool = temporary(&folder).map_err(failed)?;
    let mut stream = file.stream(compression);
    let mut left = length;
    let mut block = vec![0; STEP as usize];
    while left > 0 {
        let most = STEP.min(left) as usize;
        let count = stream.read(&mut block[..most]).map_err(|error| read_error(&error).in_file(file.path()))?;
        if count == 0 {
            break;
        }
        spool.write_all(&block[..count]).map_err(failed)?;
        left -= count as u64;
    }
    let rest = std::io::copy(&mut stream.take(MAX_REST), &mut std::io::sink());
    rest.map_err(|error| read_error(&error).in_file(file.path()))?;
    Ok(spool)
}

#[cfg(windows)]
const DELETE_ON_CLOSE: u32 = 0x0400_0000;

/// Create a file that is deleted when it is closed.
fn temporary(folder: &Path) -> std::io::Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos());
        let path = folder.join(format!(".penstock-{}-{number}-{now}.spool", std::process::id()));
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(windows)]
        std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, DELETE_ON_CLOSE);
        match options.open(&path) {
            Ok(file) if cfg!(windows) => return Ok(file),
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(content: &[u8]) -> (tempfile::TempDir, RandomAccessFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gz");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        std::fs::write(&path, encoder.finish().unwrap()).unwrap();
        let file = RandomAccessFile::open(&path).unwrap();
        (folder, file)
    }

    fn numbers(count: u32) -> Vec<u8> {
        (0..count).flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn any_range_in_any_order_whether_all_is_kept_or_a_window() {
        let content = numbers(2_000_000);
        let (_folder, file) = written(&content);
        let length = content.len() as u64;
        for limits in [(MAX_WHOLE, WINDOW), (1 << 20, 1 << 20), (0, 1000)] {
            let inflated = InflateCache::new();
            for at in [0u64, 4000, 3_000_000, 2_990_000, 7_999_000, 10, 7_000_000, 6_500_000] {
                let mut out = vec![0; 1000];
                assert!(inflated.copy_within(&file, Compression::Gzip, length, &mut out, at, limits).unwrap());
                assert_eq!(out, content[at as usize..][..1000], "at {at}");
                if limits.0 < length {
                    let kept = inflated.window.read().unwrap().as_ref().map_or(0, |window| window.bytes.len());
                    assert!(kept as u64 <= 2 * limits.1 + STEP + 1000, "{kept} bytes are kept");
                }
            }
        }
    }

    #[test]
    fn a_spool_is_made_once_and_has_no_name() {
        let content = numbers(2_000_000);
        let (_folder, file) = written(&content);
        let inflated = InflateCache::new();
        let read = |at: u64| {
            let mut out = vec![0; 100];
            let found = inflated.copy_spooled(&file, Compression::Gzip, 8_000_000, &mut out, at).unwrap();
            found.then_some(out)
        };
        for at in [7_000_000u64, 10, 3_000_000, 7_999_900] {
            assert_eq!(read(at).unwrap(), content[at as usize..][..100]);
            let _ = std::fs::remove_file(file.path()); // inflating again from the start would fail
        }
        assert_eq!(read(7_999_901), None);
        let own = format!(".penstock-{}-", std::process::id());
        let names = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(names.filter(|name| name.to_string_lossy().starts_with(&own)).count(), 0);
    }

    #[test]
    fn a_window_moves_on_without_beginning_again() {
        let content = numbers(2_000_000);
        let (_folder, file) = written(&content);
        let inflated = InflateCache::new();
        let read = |at: u64| {
            let mut out = vec![0; 100];
            inflated.copy_within(&file, Compression::Gzip, 8_000_000, &mut out, at, (0, 1 << 20)).unwrap();
            assert_eq!(out, content[at as usize..][..100]);
        };
        read(5_000_000);
        std::fs::remove_file(file.path()).unwrap(); // inflating again from the start would fail
        read(6_000_000);
        read(5_500_000);
        read(7_999_900);
    }

    #[test]
    fn damage_at_the_end_and_content_that_is_not_there_are_told() {
        let content = numbers(1000);
        let (_folder, file) = written(&content);
        let mut out = [0; 8];
        let copy = |length: u64, out: &mut [u8], at: u64| {
            InflateCache::new().copy_within(
                &RandomAccessFile::open(file.path()).unwrap(),
                Compression::Gzip,
                length,
                out,
                at,
                (0, 100),
            )
        };
        assert!(copy(4000, &mut out, 3992).unwrap());
        assert!(!copy(5000, &mut out, 4992).unwrap(), "beyond the end");
        let mut bytes = std::fs::read(file.path()).unwrap();
        let trailer = bytes.len() - 8;
        bytes[trailer] ^= 1;
        std::fs::write(file.path(), bytes).unwrap();
        assert!(copy(4000, &mut out, 0).unwrap(), "the end is far");
        assert!(copy(4000, &mut out, 3992).is_err());
    }
}
