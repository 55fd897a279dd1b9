//! A file read by position, and held in memory once it has been read at random so much that this is worth it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::io::file::RandomAccessFile;
use crate::io::fork_cell::ForkCell;

/// Files that are read at random are held in memory, as long as all that a process holds is not more than this.
pub const MAX_HELD: u64 = 512 << 20;

/// A file is held once this part of it has been read in small pieces: reading it whole then costs less than going on.
const HOLD_AFTER: u64 = 8;

/// What counts as a small piece: a system call costs more than copying it.
const SMALL: u64 = 1 << 16;

/// What this process holds.
static HELD: AtomicU64 = AtomicU64::new(0);

/// A file, and its content if it is held.
#[derive(Debug)]
pub struct CachedFile {
    file: RandomAccessFile,
    content: ForkCell<Vec<u8>>,
    /// Bytes read in small pieces so far; more than the file has, once it is decided whether to hold it.
    read_small: AtomicU64,
}

impl CachedFile {
    /// Not held yet.
    pub fn new(file: RandomAccessFile) -> CachedFile {
        CachedFile { file, content: ForkCell::default(), read_small: AtomicU64::new(0) }
    }

    /// The file.
    pub fn file(&self) -> &RandomAccessFile {
        &self.file
    }

    /// Whether reading needs no system call.
    pub fn is_in_memory(&self) -> bool {
        self.content.get().is_some()
    }

    /// The bytes from `offset` on, in `buffer` or in the held content.
    pub fn read<'b>(&'b self, offset: u64, length: u64, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let held = self.content(length, MAX_HELD).and_then(|content| {
            let end = offset.checked_add(length)?;
            content.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
        });
        match held {
            Some(bytes) => Ok(bytes),
            None => self.file.read_into(buffer, offset, length),
        }
    }

    /// The whole file, if it is held; it is from when `length` more bytes make it worth it, as long as the process holds
    /// no more than `most` then.
    pub fn content(&self, length: u64, most: u64) -> Option<&[u8]> {
        if let Some(content) = self.content.get() {
            return Some(content);
        }
        let size = self.file.size();
        if !self.file.is_whole()
            || length > SMALL
            || self.read_small.fetch_add(length, Ordering::Relaxed) < size / HOLD_AFTER
        {
            return None;
        }
        if HELD.load(Ordering::Relaxed).saturating_add(size) > most.min(MAX_HELD) {
            return None; // who may hold more tries again
        }
        // One thread tries, once; the others read on as before.
        let tried = self.read_small.swap(1 << 62, Ordering::Relaxed) >= 1 << 62;
        if tried || HELD.fetch_add(size, Ordering::Relaxed) + size > most.min(MAX_HELD) {
            if !tried {
                HELD.fetch_sub(size, Ordering::Relaxed);
            }
            return None;
        }
        let mut content = Vec::new();
        let whole = self.file.read_into(&mut content, 0, size).is_ok();
        let held = whole.then(|| self.content.fill(content)).flatten();
        match held {
            Some(_) => self.file.rest(),
            None => drop(HELD.fetch_sub(size, Ordering::Relaxed)),
        }
        held.map(Vec::as_slice)
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if let Some(content) = self.content.get() {
            HELD.fetch_sub(content.len() as u64, Ordering::Relaxed);
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
        assert!(HELD.load(Ordering::Relaxed) >= file.file().size());
        let streamed = open();
        streamed.read(0, 80_000, &mut buffer).unwrap();
        streamed.read(0, 40, &mut buffer).unwrap();
        assert!(!streamed.is_in_memory(), "a file read in large pieces is not held");
        let modest = open();
        (0..4000).for_each(|_| assert!(modest.content(40, 70_000).is_none(), "more than may be held"));
        assert!(modest.content(40, MAX_HELD).is_some(), "who may hold more does");
    }
}
