//! A file and the offsets of its records, compressed as a whole or not: what TFRecord files and tar archives share.

use std::ops::Range;

use crate::codec::inflate_cache::InflateCache;
use crate::codec::stream::Compression;
use crate::error::{Error, Result};
use crate::format::container::Extent;
use crate::format::frame::OVERHEAD;
use crate::format::index::Index;
use crate::io::cached_file::CachedFile;
use crate::io::file::{checksum, Progress, RandomAccessFile};
use crate::limits;

/// A file with the offsets of its records; offsets are in the inflated content.
#[derive(Debug)]
pub(crate) struct IndexedFile {
    file: CachedFile,
    compression: Compression,
    offsets: Vec<u64>,
    inflated: InflateCache,
}

/// Add to the error of a damaged file how to copy its undamaged records.
pub(crate) fn advise(error: Error) -> Error {
    match error.kind().is_corrupt() {
        true => error.advise("`penstock salvage` copies the records that are whole."),
        false => error,
    }
}

fn fewer() -> Error {
    Error::corrupt("expected the records that the index names, got fewer")
}

impl IndexedFile {
    /// `offsets` has one more element than there are records: the end of the last one.
    pub(crate) fn new(file: RandomAccessFile, compression: Compression, offsets: Vec<u64>) -> IndexedFile {
        IndexedFile { file: CachedFile::new(file), compression, offsets, inflated: InflateCache::new() }
    }

    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(crate) fn file(&self) -> &RandomAccessFile {
        self.file.file()
    }

    pub(crate) fn compression(&self) -> Compression {
        self.compression
    }

    pub(crate) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Return true if reads need no system call.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.file.is_in_memory()
    }

    /// Return the bytes of a record, which must exist.
    #[inline]
    pub(crate) fn extent(&self, record: usize) -> Extent {
        let range = self.offsets[record]..self.offsets[record + 1];
        Extent { bytes: range.end - range.start, range }
    }

    /// Add the file, and the offset of the record that the error names.
    pub(crate) fn place(&self, error: Error) -> Error {
        let offset = error.record().and_then(|record| self.offsets.get(record as usize).copied());
        offset.into_iter().fold(error, Error::at_offset).in_file(self.file().path())
    }

    /// Return the length of a range if the file can hold that many bytes.
    pub(crate) fn backed(&self, range: Range<u64>) -> Result<usize> {
        let length = range.end - range.start;
        let (reach, most) = match self.compression {
            Compression::None => (range.end, self.file().size()),
            _ => (length, limits::max_inflated_bytes().max(limits::max_row_bytes().saturating_add(OVERHEAD as u64))),
        };
        match usize::try_from(length) {
            Ok(length) if reach <= most => Ok(length),
            _ => {
                let message = format!("expected {length} bytes here, got a shard of at most {most} bytes");
                Err(Error::corrupt(message).at_offset(range.start).in_file(self.file().path()))
            }
        }
    }

    /// Read bytes of the inflated content from `offset` on.
    pub(crate) fn fill(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let place = |error: Error| {
            let record = self.offsets.partition_point(|&start| start <= offset).saturating_sub(1);
            advise(self.place(error.in_record(record as u64)))
        };
        if self.compression == Compression::None {
            return self.file().read_at(out, offset).map_err(place);
        }
        let length = self.offsets[self.len()];
        match self.inflated.copy(self.file(), self.compression, length, out, offset)? {
            true => Ok(()),
            false => Err(place(fewer())),
        }
    }

    /// Read bytes in any order, of content that has `length` bytes once it is inflated.
    pub(crate) fn fill_scattered(&self, out: &mut [u8], offset: u64, length: u64) -> Result<()> {
        match self.compression {
            Compression::None => self.file().read_at(out, offset),
            compression => match self.inflated.copy_scattered(self.file(), compression, length, out, offset)? {
                true => Ok(()),
                false => Err(fewer().at_offset(offset).in_file(self.file().path())),
            },
        }
    }

    /// Return the whole content if it is cached: see [`CachedFile::content`].
    pub(crate) fn cached(&self, length: u64, budget: u64) -> Option<&[u8]> {
        match self.compression {
            Compression::None => self.file.content(length, budget),
            _ => None,
        }
    }

    /// Make an index: reads the whole file once for its checksum.
    pub(crate) fn index(&self, progress: Progress<'_>) -> Result<Index> {
        let shard_crc32c = checksum(self.file(), progress)?;
        let (compression, offsets, shard_size) = (self.compression, self.offsets.clone(), self.file().size());
        Ok(Index { compression, shard_size, shard_crc32c, offsets, segments: Vec::new() })
    }
}
