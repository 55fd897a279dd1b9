//! The trait of all files of records, and the memory that reads reuse.

use std::fmt::Debug;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::frame::Frames;
use crate::format::index::Index;
use crate::format::record_arena::RecordArena;
use crate::format::riegeli::chunk_cache::ChunkCache;
use crate::io::cached_file::MAX_CACHED;
use crate::io::file::{Progress, RandomAccessFile};
use crate::limits;

/// The bytes that hold a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The range to read: the record's frame, its chunk, or its files.
    pub range: Range<u64>,
    /// About how many bytes the record has.
    pub bytes: u64,
}

/// A decoded record.
#[derive(Clone, Copy, Debug)]
pub enum Decoded<'b> {
    /// A part of the bytes that were read.
    InPlace(&'b [u8]),
    /// Made in the scratch memory: see [`RecordScratch::get`].
    InScratch(ScratchRecord),
}

/// Where a record is in a [`RecordScratch`].
#[derive(Clone, Copy, Debug)]
pub enum ScratchRecord {
    /// A number among the records of unpacked chunks.
    Chunk(usize),
    /// A number among the records that were made.
    Arena(usize),
}

/// Memory that decoding reuses from call to call.
#[derive(Debug, Default)]
pub struct RecordScratch {
    /// Records of unpacked chunks. The last chunk stays: reads in order return to it.
    pub(crate) chunks: ChunkCache,
    /// Records made of something else.
    pub(crate) arena: RecordArena,
    /// No record of an earlier call is used any more.
    pub(crate) is_free: bool,
}

impl RecordScratch {
    /// Release the records of earlier calls.
    pub fn reset(&mut self) {
        self.arena.clear();
        self.is_free = true;
    }

    /// Return a record that was decoded since the last [`RecordScratch::reset`].
    pub fn get(&self, record: ScratchRecord) -> &[u8] {
        match record {
            ScratchRecord::Chunk(number) => self.chunks.get(number),
            ScratchRecord::Arena(number) => self.arena.get(number),
        }
    }
}

/// Memory that reading reuses: it grows to the largest frame or chunk, and no further.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    raw: Vec<u8>,
    scratch: RecordScratch,
}

/// A file whose records are read in any order: TFRecord, ArrayRecord or tar.
///
/// A read has two steps, so that many records are read at once: read the bytes of an [`Container::extent`], then
/// [`Container::decode`] them.
pub trait Container: Debug + Send + Sync {
    /// Number of records.
    fn len(&self) -> usize;

    /// Return true if there are no records.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file.
    fn file(&self) -> &RandomAccessFile;

    /// Where each frame, chunk or sample begins, and where the last one ends.
    fn offsets(&self) -> &[u64];

    /// Name of the format and how the file was written: the compression, or the writer's options.
    fn format(&self) -> (&'static str, &str);

    /// Number of records per chunk, in a format that has chunks.
    fn group_size(&self) -> Option<usize> {
        None
    }

    /// Bytes of a compressed tar once it is inflated; 0 for other files.
    fn inflated_bytes(&self) -> u64 {
        0
    }

    /// Make an index: reads the whole file once for its checksum.
    fn index(&self, progress: Progress<'_>) -> Result<Index>;

    /// Return true if reads need no system call.
    fn is_in_memory(&self) -> bool;

    /// Add the file, and the offset of the record that the error names.
    fn place(&self, error: Error) -> Error;

    /// Return the bytes that hold a record, which must exist.
    fn extent(&self, record: usize) -> Extent;

    /// Return the length of a range if the file can hold that many bytes: memory is allocated for no more.
    fn backed(&self, range: Range<u64>) -> Result<usize>;

    /// Read bytes from `offset` on.
    fn fill(&self, out: &mut [u8], offset: u64) -> Result<()>;

    /// Return the whole content if it is cached. It is cached once enough small reads, this one of `length` bytes
    /// included, make that cheaper, as long as the process caches at most `most` bytes.
    fn cached(&self, length: u64, budget: u64) -> Option<&[u8]>;

    /// Check and decode a record from the bytes of its extent.
    fn decode<'b>(&self, record: usize, bytes: &'b [u8], scratch: &mut RecordScratch) -> Result<Decoded<'b>>;

    /// Check a record and append it as a frame.
    fn append(&self, record: usize, bytes: &[u8], scratch: &mut RecordScratch, out: &mut Frames) -> Result<()> {
        scratch.reset();
        match self.decode(record, bytes, scratch)? {
            Decoded::InPlace(data) => out.push(data),
            Decoded::InScratch(place) => out.push(scratch.get(place)),
        }
        Ok(())
    }

    /// Return a record that the scratch memory still has from the last read.
    fn decoded(&self, _record: usize, _scratch: &RecordScratch) -> Option<ScratchRecord> {
        None
    }

    /// Fail if a record does not exist.
    fn check(&self, record: usize) -> Result<()> {
        self.file().check(record, self.len())
    }

    /// Return the bytes of a record's extent, in `buffer` or in the cached content.
    fn bytes<'b>(&'b self, record: usize, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let Range { start, end } = self.extent(record).range;
        if let Some(content) = self.cached(end - start, MAX_CACHED) {
            return Ok(content.get(start as usize..end as usize).unwrap_or(&[]));
        }
        let length = self.backed(start..end)?;
        limits::grow_to(buffer, length, 0).map_err(|error| error.in_file(self.file().path()))?;
        self.fill(&mut buffer[..length], start)?;
        Ok(&buffer[..length])
    }

    /// Return one record, checked.
    fn read<'b>(&'b self, record: usize, buffer: &'b mut ReadBuffer) -> Result<&'b [u8]> {
        self.check(record)?;
        let ReadBuffer { raw, scratch } = buffer;
        if let Some(place) = self.decoded(record, scratch) {
            return Ok(scratch.get(place));
        }
        let bytes = self.bytes(record, raw).map_err(|error| error.in_record(record as u64))?;
        scratch.reset();
        match self.decode(record, bytes, scratch).map_err(|error| self.place(error.in_record(record as u64)))? {
            Decoded::InPlace(data) => Ok(data),
            Decoded::InScratch(place) => Ok(scratch.get(place)),
        }
    }
}
