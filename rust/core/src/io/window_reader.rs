//! Reads a file in windows: small ones after a jump, larger ones where one follows the other.

use crate::error::Result;
use crate::io::file::{RandomAccessFile, WINDOW};

/// Bytes of the first window, and of one after a jump.
const FIRST: u64 = 1 << 12;

/// A window that begins at most this many bytes behind the last one is not a jump.
const NEAR: u64 = 1 << 14;

/// The bytes of a file or of a buffer, read at any offset.
pub(crate) struct WindowReader<'a>(Source<'a>);

enum Source<'a> {
    File { file: &'a RandomAccessFile, window: Vec<u8>, start: u64, length: u64, step: u64 },
    Memory(Vec<u8>),
}

impl<'a> WindowReader<'a> {
    /// Read from a file.
    pub(crate) fn new(file: &'a RandomAccessFile) -> Self {
        WindowReader(Source::File { file, window: Vec::new(), start: 0, length: 0, step: FIRST / 4 })
    }

    /// Read from a buffer.
    pub(crate) fn in_memory(bytes: Vec<u8>) -> Self {
        WindowReader(Source::Memory(bytes))
    }

    /// Return true if the bytes are in a buffer.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.0, Source::Memory(_))
    }

    /// Number of bytes in all.
    pub(crate) fn size(&self) -> u64 {
        match &self.0 {
            Source::File { file, .. } => file.size(),
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Return the `length` bytes from `offset` on, fewer at the end.
    #[inline]
    pub(crate) fn at(&mut self, offset: u64, length: u64) -> Result<&[u8]> {
        let size = self.size();
        let end = offset.saturating_add(length).min(size);
        if offset >= end {
            return Ok(&[]);
        }
        match &mut self.0 {
            Source::Memory(bytes) => Ok(&bytes[offset as usize..end as usize]),
            Source::File { file, window, start, length, step } => {
                if offset < *start || end > *start + *length {
                    let is_near = offset <= *start + *length + NEAR;
                    *step = if is_near { (4 * *step).min(WINDOW as u64) } else { FIRST };
                    *length = 0; // a read that fails leaves no window
                    let count = (*step).max(end - offset).min(size - offset);
                    file.read_into(window, offset, count)?;
                    (*start, *length) = (offset, count);
                }
                Ok(&window[(offset - *start) as usize..(end - *start) as usize])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_read_from_a_file_as_from_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..700_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = RandomAccessFile::open(&path).unwrap();
        let mut readers = [WindowReader::new(&file), WindowReader::in_memory(bytes.clone())];
        let size = bytes.len() as u64;
        let ranges = [(0, 12), (4000, 200), (4200, 1 << 21), (2_500_000, 9), (100, 5000), (size - 3, 100), (size, 1)];
        for (offset, length) in ranges.into_iter().chain([(u64::MAX, 5), (5, 0)]) {
            let expected = bytes.get(offset as usize..).unwrap_or_default();
            let expected = &expected[..expected.len().min(length as usize)];
            for reader in &mut readers {
                assert!(reader.at(offset, length).unwrap() == expected, "{length} bytes at {offset}");
            }
        }
    }

    #[test]
    fn windows_grow_in_order_and_shrink_after_a_jump() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        let file = RandomAccessFile::open(&path).unwrap();
        let mut reader = WindowReader::new(&file);
        let mut lengths = Vec::new();
        for offset in (0..2 << 20).step_by(1000).chain([4 << 20, 6 << 20]) {
            reader.at(offset, 12).unwrap();
            let Source::File { length, .. } = &reader.0 else { unreachable!() };
            if lengths.last() != Some(length) {
                lengths.push(*length);
            }
        }
        assert_eq!(lengths, [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 12]);
    }
}
