//! A file read by position whose content is cached in memory after enough small random reads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::io::file::RandomAccessFile;
use crate::io::fork_cell::ForkCell;

/// Maximum bytes of file content that a process caches.
pub const MAX_CACHED: u64 = 512 << 20;

/// A file is cached once small reads have read one part in this many of it: reading it whole then costs less than going
/// on.
const CACHE_AFTER: u64 = 8;

/// Maximum bytes of a small read: its system call costs more than the copy.
const SMALL: u64 = 1 << 16;

/// Bytes of file content that this process caches.
static CACHED_BYTES: AtomicU64 = AtomicU64::new(0);

/// A file, and its content if it is cached.
#[derive(Debug)]
pub struct CachedFile {
    file: RandomAccessFile,
    content: ForkCell<Vec<u8>>,
    /// Bytes read by small reads so far; more than the file has once a thread has decided whether to cache it.
    read_small: AtomicU64,
}

impl CachedFile {
    /// Open without cached content.
    pub fn new(file: RandomAccessFile) -> CachedFile {
        CachedFile { file, content: ForkCell::default(), read_small: AtomicU64::new(0) }
    }

    /// The file.
    pub fn file(&self) -> &RandomAccessFile {
        &self.file
    }

    /// Return true if reads need no system call.
    pub fn is_in_memory(&self) -> bool {
        self.content.get().is_some()
    }

    /// Return bytes from `offset` on, in `buffer` or in the cached content.
    pub fn read<'b>(&'b self, offset: u64, length: u64, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let held = self.content(length, MAX_CACHED).and_then(|content| {
            let end = offset.checked_add(length)?;
            content.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
        });
        match held {
            Some(bytes) => Ok(bytes),
            None => self.file.read_into(buffer, offset, length),
        }
    }

    /// Return the whole content if it is cached. Cache it if small reads, this one of `length` bytes included, make
    /// that cheaper, and the process caches at most `budget` bytes then.
    pub fn content(&self, length: u64, budget: u64) -> Option<&[u8]> {
        if let Some(content) = self.content.get() {
            return Some(content);
        }
        let size = self.file.size();
        if !self.file.is_whole()
            || length > SMALL
            || self.read_small.fetch_add(length, Ordering::Relaxed) < size / CACHE_AFTER
        {
            return None;
        }
        if CACHED_BYTES.load(Ordering::Relaxed).saturating_add(size) > budget.min(MAX_CACHED) {
            return None; // a caller with a larger budget tries again
        }
        // One thread tries, once; the others go on with single reads.
        let tried = self.read_small.swap(1 << 62, Ordering::Relaxed) >= 1 << 62;
        if tried || CACHED_BYTES.fetch_add(size, Ordering::Relaxed) + size > budget.min(MAX_CACHED) {
            if !tried {
                CACHED_BYTES.fetch_sub(size, Ordering::Relaxed);
            }
            return None;
        }
        let mut content = Vec::new();
        let whole = self.file.read_into(&mut content, 0, size).is_ok();
        let held = whole.then(|| self.content.fill(content)).flatten();
        match held {
            Some(_) => self.file.close(),
            None => drop(CACHED_BYTES.fetch_sub(size, Ordering::Relaxed)),
        }
        held.map(Vec::as_slice)
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if let Some(content) = self.content.get() {
            CACHED_BYTES.fetch_sub(content.len() as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_read_at_random_is_held_and_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        let open = || CachedFile::new(RandomAccessFile::open(&path).unwrap());
        let (file, mut buffer) = (open(), Vec::new());
        for number in 0..4000usize {
            let at = number * 7919 % 2000 * 40;
            assert_eq!(file.read(at as u64, 40, &mut buffer).unwrap(), &bytes[at..at + 40]);
            assert_eq!(file.is_in_memory(), number >= 250, "after {number} reads");
        }
        assert!(file.read(79_990, 40, &mut buffer).is_err(), "beyond the end");
        assert!(CACHED_BYTES.load(Ordering::Relaxed) >= file.file().size());
        let streamed = open();
        streamed.read(0, 80_000, &mut buffer).unwrap();
        streamed.read(0, 40, &mut buffer).unwrap();
        assert!(!streamed.is_in_memory(), "a file read in large pieces is not held");
        let modest = open();
        (0..4000).for_each(|_| assert!(modest.content(40, 70_000).is_none(), "more than may be held"));
        assert!(modest.content(40, MAX_CACHED).is_some(), "who may hold more does");
    }
}
