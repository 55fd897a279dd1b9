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
use crate::format::container::{Container, Decoded, Extent, RecordScratch, ScratchRecord};
use crate::format::index::Index;
use crate::format::riegeli::records::{transposed, Unpacker};
use crate::format::riegeli::{ChunkType, Span, BLOCK, BLOCK_HEADER, CHUNK_HEADER, SIGNATURE};
use crate::io::cached_file::CachedFile;
use crate::io::file::{Progress, RandomAccessFile};
use footer::{ChunkTable, Postscript};

pub use crate::format::riegeli::records::ChunkCompression;
pub use salvage::salvage;
pub use writer::{ArrayRecordWriter, Summary, WriterOptions};

/// Maximum bytes of a chunk header in the file: a block header may interrupt it.
const HEADER_SPAN: u64 = (CHUNK_HEADER + BLOCK_HEADER) as u64;

/// Read the chunk at `begin`, which ends at `limit` or before, and unpack its records.
fn read_chunk(file: &RandomAccessFile, begin: u64, limit: u64) -> Result<Unpacker> {
    let place = |error: Error| error.at_offset(begin).in_file(file.path());
    let (mut raw, mut joined, mut unpacker) = (Vec::new(), Vec::new(), Unpacker::default());
    let bytes = file.read_into(&mut raw, begin, HEADER_SPAN.min(limit - begin))?;
    let (header, _) = Span { begin, bytes }.header(begin).map_err(place)?;
    let length = header.end(begin).unwrap_or(u64::MAX).min(limit) - begin;
    let bytes = file.read_into(&mut raw, begin, length)?;
    unpacker.unpack(&Span { begin, bytes }.chunk(begin, &mut joined).map_err(place)?).map_err(place)?;
    Ok(unpacker)
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
            // A damaged header is an error when its records are read.
            if (Span { begin, bytes }).header(begin).is_ok_and(|(header, _)| header.content == ChunkType::Transposed) {
                return Err(shard.place(transposed().in_record(0)));
            }
        }
        Ok(shard)
    }

    /// What the writer left about its options.
    pub fn writer_options(&self) -> &str {
        &self.table.options
    }

    /// The records of a chunk.
    fn of_chunk(&self, chunk: usize) -> Range<usize> {
        chunk * self.table.group..((chunk + 1) * self.table.group).min(self.len())
    }
}

impl Container for ArrayRecordShard {
    fn len(&self) -> usize {
        self.table.records
    }

    fn file(&self) -> &RandomAccessFile {
        self.file.file()
    }

    /// Where each chunk begins, and where the table does.
    fn offsets(&self) -> &[u64] {
        &self.table.offsets
    }

    fn format(&self) -> (&'static str, &str) {
        ("array_record", self.writer_options())
    }

    /// The last chunk may have fewer records.
    fn group_size(&self) -> Option<usize> {
        Some(self.table.group)
    }

    fn index(&self, _progress: Progress<'_>) -> Result<Index> {
        let error = Error::usage("expected a TFRecord file, got an ArrayRecord file, which needs no index");
        Err(error.in_file(self.file().path()))
    }

    fn is_in_memory(&self) -> bool {
        self.file.is_in_memory()
    }

    /// Add the file, and the chunk of the record that the error names.
    fn place(&self, error: Error) -> Error {
        let error = match error.record().and_then(|record| usize::try_from(record).ok()) {
            Some(record) if record < self.len() => {
                let chunk = record / self.table.group;
                error.at_offset(self.table.offsets[chunk]).in_chunk(chunk as u64)
            }
            _ => error,
        };
        advise(error.in_file(self.file().path()))
    }

    fn extent(&self, record: usize) -> Extent {
        let ChunkTable { offsets, decoded, group, .. } = &self.table;
        let chunk = record / group;
        let bytes = (decoded[chunk + 1] - decoded[chunk]).max(offsets[chunk + 1] - offsets[chunk]);
        Extent { range: offsets[chunk]..offsets[chunk + 1], bytes: bytes / self.of_chunk(chunk).len() as u64 }
    }

    fn backed(&self, range: Range<u64>) -> Result<usize> {
        self.file().backed(range)
    }

    fn fill(&self, out: &mut [u8], offset: u64) -> Result<()> {
        self.file().read_at(out, offset)
    }

    fn cached(&self, length: u64, budget: u64) -> Option<&[u8]> {
        self.file.content(length, budget)
    }

    fn decode<'b>(&self, record: usize, bytes: &'b [u8], scratch: &mut RecordScratch) -> Result<Decoded<'b>> {
        let (chunk, within) = (record / self.table.group, record % self.table.group);
        let id = (self.identity, chunk);
        if std::mem::take(&mut scratch.is_free) {
            scratch.chunks.retain(id);
        }
        let span = Span { begin: self.table.offsets[chunk], bytes };
        let first = scratch.chunks.unpack(id, span, self.of_chunk(chunk).len() as u64)?;
        Ok(Decoded::InScratch(ScratchRecord::Chunk(first + within)))
    }

    fn decoded(&self, record: usize, scratch: &RecordScratch) -> Option<ScratchRecord> {
        let first = scratch.chunks.find((self.identity, record / self.table.group))?;
        Some(ScratchRecord::Chunk(first + record % self.table.group))
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
    let last = size - BLOCK;
    let here = |error: Error| error.at_offset(last);
    let first = |records: Unpacker| Postscript::from_bytes(records.get(0).unwrap_or_default());
    let Postscript { footer } = read_chunk(file, last, size).and_then(first).map_err(here)?;
    if footer < SIGNATURE.len() as u64 || footer >= last {
        let message = format!("expected the table of chunks between offset 64 and {last}, got {footer}");
        return Err(here(Error::corrupt(message)));
    }
    let records = read_chunk(file, footer, last)?;
    ChunkTable::from_records(records.iter(), footer).map_err(|error| error.at_offset(footer))
}
