//! An open shard of any format, as those see it who read records.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::array_record::{self, Buffer};
use crate::format::tar::{self, Rules};
use crate::format::tfrecord::shard::{Shard, Sidecar};
use crate::io::file::{Plain, Pulse};

/// An open shard.
#[derive(Clone, Debug)]
pub enum Opened {
    /// Frames one after the other.
    TfRecord(Arc<Shard>),
    /// Chunks, and a table of them.
    ArrayRecord(Arc<array_record::Shard>),
    /// Samples of files.
    Tar(Arc<tar::Shard>),
}

/// Where a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// What has to be read for it: its frame, its chunk, or its files.
    pub range: Range<u64>,
    /// About how many bytes it has.
    pub bytes: u64,
}

impl Opened {
    /// Opens a file, by an index or by a scan unless it has a table of its own. What it is, its first bytes say; what the
    /// files of a tar archive are read as, `rules` do.
    pub fn open(path: &Path, sidecar: Sidecar, rules: Option<&Arc<Rules>>, pulse: Pulse<'_>) -> Result<Opened> {
        Opened::from_file(Plain::open(path)?, sidecar, rules, pulse)
    }

    /// The same with a file that is open.
    pub fn from_file(file: Plain, sidecar: Sidecar, rules: Option<&Arc<Rules>>, pulse: Pulse<'_>) -> Result<Opened> {
        if array_record::is_one(&file)? {
            return Ok(Opened::ArrayRecord(Arc::new(array_record::Shard::from_file(file)?)));
        }
        if tar::is_one(&file)? {
            return Ok(Opened::Tar(Arc::new(tar::Shard::from_file(file, sidecar, rules.cloned(), pulse)?)));
        }
        Ok(Opened::TfRecord(Arc::new(Shard::from_file(file, sidecar, pulse)?)))
    }

    /// How many records.
    pub fn len(&self) -> usize {
        match self {
            Opened::TfRecord(shard) => shard.len(),
            Opened::ArrayRecord(shard) => shard.len(),
            Opened::Tar(shard) => shard.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file.
    pub fn file(&self) -> &Plain {
        match self {
            Opened::TfRecord(shard) => shard.file(),
            Opened::ArrayRecord(shard) => shard.file(),
            Opened::Tar(shard) => shard.file(),
        }
    }

    /// Where each frame, chunk or sample begins, and where the last one ends.
    pub fn offsets(&self) -> &[u64] {
        match self {
            Opened::TfRecord(shard) => shard.offsets(),
            Opened::ArrayRecord(shard) => shard.offsets(),
            Opened::Tar(shard) => shard.offsets(),
        }
    }

    /// Whether reading needs no system call.
    pub fn is_in_memory(&self) -> bool {
        match self {
            Opened::TfRecord(shard) => shard.is_in_memory(),
            Opened::ArrayRecord(shard) => shard.is_in_memory(),
            Opened::Tar(shard) => shard.is_in_memory(),
        }
    }

    /// Adds the file, and the offset of the record that the error names.
    pub fn place(&self, error: Error) -> Error {
        match self {
            Opened::TfRecord(shard) => shard.place(error),
            Opened::ArrayRecord(shard) => shard.place(error),
            Opened::Tar(shard) => shard.place(error),
        }
    }

    /// One record's data, checked.
    pub fn read<'b>(&'b self, record: usize, buffer: &'b mut Buffer) -> Result<&'b [u8]> {
        match self {
            Opened::TfRecord(shard) => shard.read(record, &mut buffer.raw),
            Opened::ArrayRecord(shard) => shard.read(record, buffer),
            Opened::Tar(shard) => shard.read(record, &mut buffer.raw, &mut buffer.chunks.made),
        }
    }

    /// Where a record is that exists.
    pub fn extent(&self, record: usize) -> Extent {
        match self {
            Opened::TfRecord(shard) => {
                let range = shard.offsets()[record]..shard.offsets()[record + 1];
                Extent { bytes: range.end - range.start, range }
            }
            Opened::ArrayRecord(shard) => shard.extent(record),
            Opened::Tar(shard) => shard.extent(record),
        }
    }

    /// How many bytes a range has, if memory may be taken for that many: the file can back them.
    pub(crate) fn backed(&self, range: Range<u64>) -> Result<usize> {
        match self {
            Opened::TfRecord(shard) => shard.backed(range),
            Opened::ArrayRecord(shard) => shard.file().backed(range),
            Opened::Tar(shard) => shard.backed(range),
        }
    }

    /// Reads bytes of the shard from `offset` on.
    pub(crate) fn fill(&self, out: &mut [u8], offset: u64) -> Result<()> {
        match self {
            Opened::TfRecord(shard) => shard.fill(out, offset),
            Opened::ArrayRecord(shard) => shard.file().read_at(out, offset),
            Opened::Tar(shard) => shard.fill(out, offset),
        }
    }

    /// The whole shard, if it is held; it is from when `length` more bytes, read in a small piece, make it worth it, as
    /// long as the process holds no more than `most` then.
    pub(crate) fn held(&self, length: u64, most: u64) -> Option<&[u8]> {
        match self {
            Opened::TfRecord(shard) => shard.held(length, most),
            Opened::ArrayRecord(shard) => shard.held(length, most),
            Opened::Tar(shard) => shard.held(length, most),
        }
    }
}
