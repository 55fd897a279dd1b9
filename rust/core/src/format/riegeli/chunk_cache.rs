//! Unpacked chunks: the last one is cached for reads that follow each other.

use super::records::Unpacker;
use super::Span;
use crate::error::{Error, Result};

/// Names a chunk: the identity of its file, and its number there.
pub(crate) type ChunkId = (u64, usize);

/// Records of unpacked chunks.
#[derive(Debug, Default)]
pub(crate) struct ChunkCache {
    joined: Vec<u8>,
    unpacker: Unpacker,
    /// The chunk unpacked last, and the number of its first record in the unpacker.
    last: Option<(ChunkId, usize)>,
}

impl ChunkCache {
    /// Return the number of the chunk's first record, if it is the chunk unpacked last.
    pub(crate) fn find(&self, chunk: ChunkId) -> Option<usize> {
        self.last.filter(|(last, _)| *last == chunk).map(|(_, first)| first)
    }

    /// Remove all records but those of this chunk.
    pub(crate) fn retain(&mut self, chunk: ChunkId) {
        match &mut self.last {
            Some((last, first)) if *last == chunk => self.unpacker.remove_first(std::mem::take(first)),
            _ => {
                self.unpacker.clear();
                self.last = None;
            }
        }
    }

    /// Unpack a chunk of `records` records, unless it is the last one, and return the number of its first record.
    /// `span` begins where the chunk begins.
    pub(crate) fn unpack(&mut self, chunk: ChunkId, span: Span<'_>, records: u64) -> Result<usize> {
        if let Some(first) = self.find(chunk) {
            return Ok(first);
        }
        let first = self.unpacker.len();
        self.last = None;
        let read = span.chunk(span.begin, &mut self.joined)?;
        if read.header.records != records {
            let message = format!("expected a chunk of {records} records, got {}", read.header.records);
            return Err(Error::corrupt(message));
        }
        self.unpacker.unpack(&read)?;
        self.last = Some((chunk, first));
        Ok(first)
    }

    /// Return the record with this number.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        self.unpacker.get(number).unwrap_or_default()
    }
}
