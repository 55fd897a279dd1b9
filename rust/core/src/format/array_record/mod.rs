//! ArrayRecord files: chunks of records in Riegeli's layout, and a table of the chunks at the end.
//!
//! FORMAT.md has the layout. A file is read by its table: any record is one chunk away.

mod footer;
mod salvage;
mod writer;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::format::frame::Frames;
use crate::format::opened_shard::Extent;
use crate::format::riegeli::records::{transposed, Unpacker};
use crate::format::riegeli::{ChunkType, Span, BLOCK, BLOCK_HEADER, CHUNK_HEADER, SIGNATURE};
use crate::format::tar::SampleRecords;
use crate::io::cached_file::CachedFile;
use crate::io::file::{RandomAccessFile, WINDOW};
use footer::{ChunkTable, Postscript};

pub use crate::format::riegeli::records::ChunkCompression;
pub use salvage::salvage;
pub use writer::{ArrayRecordWriter, Summary, WriterOptions};

/// What a chunk's header may take of a file: a block's header may stand in its midst.
const HEADER_SPAN: u64 = (CHUNK_HEADER + BLOCK_HEADER) as u64;

/// Memory that records are unpacked into, or made in, which is used again. The last chunk stays: whoever reads in order comes back to it.
#[derive(Debug, Default)]
pub struct RecordScratch {
    joined: Vec<u8>,
    unpacker: Unpacker,
    last: Option<LastChunk>,
    /// The records of tar archives.
    pub(crate) made: SampleRecords,
}

/// The chunk that was unpacked last.
#[derive(Clone, Copy, Debug)]
struct LastChunk {
    /// Of which shard.
    identity: u64,
    chunk: usize,
    /// Where its first record is among those that are unpacked.
    place: usize,
}

impl RecordScratch {
    /// Where a record is, if it is in the chunk that was unpacked last.
    fn find(&self, shard: &ArrayRecordShard, record: usize) -> Option<usize> {
        let chunk = record / shard.table.group;
        let last = self.last.filter(|last| (last.identity, last.chunk) == (shard.identity, chunk))?;
        Some(last.place + record % shard.table.group)
    }

    /// Forgets all but the chunk of a record, if that was unpacked last.
    pub fn forget_but(&mut self, shard: &ArrayRecordShard, record: usize) {
        match (self.find(shard, record), &mut self.last) {
            (Some(_), Some(last)) => self.unpacker.forget(std::mem::take(&mut last.place)),
            _ => {
                self.unpacker.clear();
                self.last = None;
            }
        }
    }

    /// Unpacks the chunk of a record, whose bytes are in `bytes`, unless it was the last one; returns where the record is.
    pub fn unpack(&mut self, shard: &ArrayRecordShard, record: usize, bytes: &[u8]) -> Result<usize> {
        if let Some(place) = self.find(shard, record) {
            return Ok(place);
        }
        let (chunk, place) = (record / shard.table.group, self.unpacker.len());
        self.last = None;
        let begin = shard.table.offsets[chunk];
        let read = Span { begin, bytes }.chunk(begin, &mut self.joined)?;
        let expected = shard.of_chunk(chunk).len() as u64;
        if read.header.records != expected {
            let message = format!("expected a chunk of {expected} records, got {}", read.header.records);
            return Err(Error::corrupt(message));
        }
        self.unpacker.unpack(&read)?;
        self.last = Some(LastChunk { identity: shard.identity, chunk, place });
        Ok(place + record % shard.table.group)
    }

    /// The record at a place that [`RecordScratch::unpack`] told.
    pub fn get(&self, place: usize) -> &[u8] {
        self.unpacker.get(place).unwrap_or_default()
    }
}

/// Memory that reading uses again: it grows to the largest frame or chunk, and no further.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    pub(crate) raw: Vec<u8>,
    pub(crate) chunks: RecordScratch,
}

impl ReadBuffer {
    /// Reads the chunk at `begin`, which ends at `limit` or before, and returns its records.
    fn unpack(&mut self, file: &RandomAccessFile, begin: u64, limit: u64) -> Result<&Unpacker> {
        let place = |error: Error| error.at_offset(begin).in_file(file.path());
        let bytes = file.read_into(&mut self.raw, begin, HEADER_SPAN.min(limit - begin))?;
        let (header, _) = Span { begin, bytes }.header(begin).map_err(place)?;
        let length = header.end(begin).unwrap_or(u64::MAX).min(limit) - begin;
        let bytes = file.read_into(&mut self.raw, begin, length)?;
        let RecordScratch { joined, unpacker, last, .. } = &mut self.chunks;
        *last = None;
        unpacker.clear();
        unpacker.unpack(&Span { begin, bytes }.chunk(begin, joined).map_err(place)?).map_err(place)?;
        Ok(unpacker)
    }
}

/// A file with its table of chunks.
#[derive(Debug)]
pub struct ArrayRecordShard {
    file: CachedFile,
    table: ChunkTable,
    /// Tells this shard from others that use the same buffer.
    identity: u64,
}

impl ArrayRecordShard {
    /// Opens a file: its table is read and checked, its records are not.
    pub fn open(path: &Path) -> Result<ArrayRecordShard> {
        ArrayRecordShard::from_file(RandomAccessFile::open(path)?)
    }

    /// The same with a file that is open.
    pub(crate) fn from_file(file: RandomAccessFile) -> Result<ArrayRecordShard> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        if head(&file)? != SIGNATURE {
            let error = Error::corrupt("expected a file that begins as ArrayRecord files do, got other bytes");
            return Err(advise(error.at_offset(0).in_file(file.path())));
        }
        let table = read_table(&file).map_err(|error| advise(error.in_file(file.path())))?;
        let shard =
            ArrayRecordShard { file: CachedFile::new(file), table, identity: OPENED.fetch_add(1, Ordering::Relaxed) };
        if !shard.is_empty() {
            let (begin, mut raw) = (shard.table.offsets[0], Vec::new());
            let bytes = shard.file().read_into(&mut raw, begin, HEADER_SPAN.min(shard.file().size() - begin))?;
            // A damaged header is found by whoever reads its records.
            if (Span { begin, bytes }).header(begin).is_ok_and(|(header, _)| header.content == ChunkType::Transposed) {
                return Err(shard.place(transposed().in_record(0)));
            }
        }
        Ok(shard)
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.table.records
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records to a chunk; the last one may have fewer.
    pub fn group_size(&self) -> usize {
        self.table.group
    }

    /// What the writer left about its options.
    pub fn writer_options(&self) -> &str {
        &self.table.options
    }

    /// Where each chunk begins, and where the table does.
    pub fn offsets(&self) -> &[u64] {
        &self.table.offsets
    }

    /// The file.
    pub fn file(&self) -> &RandomAccessFile {
        self.file.file()
    }

    /// Whether reading needs no system call.
    pub fn is_in_memory(&self) -> bool {
        self.file.is_in_memory()
    }

    /// Checks that a record exists.
    pub fn check(&self, record: usize) -> Result<()> {
        self.file().check(record, self.len())
    }

    /// Adds the file, and the chunk of the record that the error names.
    pub fn place(&self, error: Error) -> Error {
        let error = match error.record().and_then(|record| usize::try_from(record).ok()) {
            Some(record) if record < self.len() => {
                let chunk = record / self.table.group;
                error.at_offset(self.table.offsets[chunk]).in_chunk(chunk as u64)
            }
            _ => error,
        };
        advise(error.in_file(self.file().path()))
    }

    /// Where a record is that exists.
    pub fn extent(&self, record: usize) -> Extent {
        let ChunkTable { offsets, decoded, group, .. } = &self.table;
        let chunk = record / group;
        let bytes = (decoded[chunk + 1] - decoded[chunk]).max(offsets[chunk + 1] - offsets[chunk]);
        Extent { range: offsets[chunk]..offsets[chunk + 1], bytes: bytes / self.of_chunk(chunk).len() as u64 }
    }

    /// The whole file, if it is held: see [`CachedFile::content`].
    pub(crate) fn held(&self, length: u64, most: u64) -> Option<&[u8]> {
        self.file.content(length, most)
    }

    /// The records of a chunk.
    fn of_chunk(&self, chunk: usize) -> Range<usize> {
        chunk * self.table.group..((chunk + 1) * self.table.group).min(self.len())
    }

    /// One record, all hashes of its chunk checked.
    pub fn read<'b>(&self, record: usize, buffer: &'b mut ReadBuffer) -> Result<&'b [u8]> {
        self.check(record)?;
        let ReadBuffer { raw, chunks } = buffer;
        let place = match chunks.find(self, record) {
            Some(place) => place,
            None => {
                chunks.forget_but(self, record);
                let Range { start, end } = self.extent(record).range;
                let bytes = self.file.read(start, end - start, raw)?;
                chunks.unpack(self, record, bytes).map_err(|error| self.place(error.in_record(record as u64)))?
            }
        };
        Ok(chunks.get(place))
    }

    /// Some records in the order they are asked for, checked; neighbours are read together.
    pub fn read_many(&self, records: &[usize]) -> Result<Frames> {
        records.iter().try_for_each(|&record| self.check(record))?;
        let (mut frames, mut raw, mut chunks) = (Frames::default(), Vec::new(), RecordScratch::default());
        let mut rest = records;
        while let Some(&first) = rest.first() {
            let start = self.extent(first).range.start;
            let run = rest.iter().zip(first..).take_while(|(&record, expected)| {
                record == *expected && (record == first || self.extent(record).range.end - start <= WINDOW as u64)
            });
            let run = run.count();
            let end = self.extent(first + run - 1).range.end;
            let bytes = self.file.read(start, end - start, &mut raw)?;
            for record in first..first + run {
                chunks.forget_but(self, record);
                let within = self.extent(record).range;
                let bytes = &bytes[(within.start - start) as usize..(within.end - start) as usize];
                let place = chunks.unpack(self, record, bytes);
                frames.push(chunks.get(place.map_err(|error| self.place(error.in_record(record as u64)))?));
            }
            rest = &rest[run..];
        }
        Ok(frames)
    }
}

fn advise(error: Error) -> Error {
    match error.kind().is_corrupt() {
        true => error.advise("Salvage copies the records that are whole."),
        false => error,
    }
}

/// The first bytes of a file, or zeros where it has none.
fn head(file: &RandomAccessFile) -> Result<[u8; SIGNATURE.len()]> {
    let mut head = [0; SIGNATURE.len()];
    let count = (file.size() as usize).min(head.len());
    file.read_at(&mut head[..count], 0)?;
    Ok(head)
}

/// Whether a file is an ArrayRecord file by its first bytes, even if a few of them are damaged.
pub fn is_one(file: &RandomAccessFile) -> Result<bool> {
    let same = head(file)?.iter().zip(&SIGNATURE).filter(|(found, expected)| found == expected).count();
    Ok(same >= SIGNATURE.len() - 8)
}

/// The table of chunks that a file ends with.
fn read_table(file: &RandomAccessFile) -> Result<ChunkTable> {
    let size = file.size();
    if size % BLOCK != 0 || size < 2 * BLOCK {
        let message = format!("expected a file of whole blocks of {BLOCK} bytes, got {size} bytes: it is truncated");
        return Err(Error::corrupt(message));
    }
    let mut buffer = ReadBuffer::default();
    let last = size - BLOCK;
    let here = |error: Error| error.at_offset(last);
    let first = |records: &Unpacker| Postscript::from_bytes(records.get(0).unwrap_or_default());
    let Postscript { footer } = buffer.unpack(file, last, size).and_then(first).map_err(here)?;
    if footer < SIGNATURE.len() as u64 || footer >= last {
        let message = format!("expected the table of chunks between offset 64 and {last}, got {footer}");
        return Err(here(Error::corrupt(message)));
    }
    let records = buffer.unpack(file, footer, last)?;
    ChunkTable::from_records(records.iter(), footer).map_err(|error| error.at_offset(footer))
}
