//! An open shard of any format, as those see it who read records.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::array_record::{self, ReadBuffer};
use crate::format::tar::{self, TarRules};
use crate::format::tfrecord::shard::{Sidecar, TfRecordShard};
use crate::io::file::{Progress, RandomAccessFile};

/// An open shard.
#[derive(Clone, Debug)]
pub enum Shard {
    /// Frames one after the other.
    TfRecord(Arc<TfRecordShard>),
    /// Chunks, and a table of them.
    ArrayRecord(Arc<array_record::ArrayRecordShard>),
    /// Samples of files.
    Tar(Arc<tar::TarShard>),
}

/// Where a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// What has to be read for it: its frame, its chunk, or its files.
    pub range: Range<u64>,
    /// About how many bytes it has.
    pub bytes: u64,
}

impl Shard {
    /// Opens a file, by an index or by a scan unless it has a table of its own. What it is, its first bytes say; what the
    /// files of a tar archive are read as, `rules` do.
    pub fn open(path: &Path, sidecar: Sidecar, rules: Option<&Arc<TarRules>>, pulse: Progress<'_>) -> Result<Shard> {
        Shard::from_file(RandomAccessFile::open(path)?, sidecar, rules, pulse)
    }

    /// The same with a file that is open.
    pub fn from_file(
        file: RandomAccessFile,
        sidecar: Sidecar,
        rules: Option<&Arc<TarRules>>,
        pulse: Progress<'_>,
    ) -> Result<Shard> {
        if array_record::is_one(&file)? {
            return Ok(Shard::ArrayRecord(Arc::new(array_record::ArrayRecordShard::from_file(file)?)));
        }
        if tar::is_one(&file)? {
            return Ok(Shard::Tar(Arc::new(tar::TarShard::from_file(file, sidecar, rules.cloned(), pulse)?)));
        }
        Ok(Shard::TfRecord(Arc::new(TfRecordShard::from_file(file, sidecar, pulse)?)))
    }

    /// How many records.
    pub fn len(&self) -> usize {
        match self {
            Shard::TfRecord(shard) => shard.len(),
            Shard::ArrayRecord(shard) => shard.len(),
            Shard::Tar(shard) => shard.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file.
    pub fn file(&self) -> &RandomAccessFile {
        match self {
            Shard::TfRecord(shard) => shard.file(),
            Shard::ArrayRecord(shard) => shard.file(),
            Shard::Tar(shard) => shard.file(),
        }
    }

    /// Where each frame, chunk or sample begins, and where the last one ends.
    pub fn offsets(&self) -> &[u64] {
        match self {
            Shard::TfRecord(shard) => shard.offsets(),
            Shard::ArrayRecord(shard) => shard.offsets(),
            Shard::Tar(shard) => shard.offsets(),
        }
    }

    /// Whether reading needs no system call.
    pub fn is_in_memory(&self) -> bool {
        match self {
            Shard::TfRecord(shard) => shard.is_in_memory(),
            Shard::ArrayRecord(shard) => shard.is_in_memory(),
            Shard::Tar(shard) => shard.is_in_memory(),
        }
    }

    /// Adds the file, and the offset of the record that the error names.
    pub fn place(&self, error: Error) -> Error {
        match self {
            Shard::TfRecord(shard) => shard.place(error),
            Shard::ArrayRecord(shard) => shard.place(error),
            Shard::Tar(shard) => shard.place(error),
        }
    }

    /// One record's data, checked.
    pub fn read<'b>(&'b self, record: usize, buffer: &'b mut ReadBuffer) -> Result<&'b [u8]> {
        match self {
            Shard::TfRecord(shard) => shard.read(record, &mut buffer.raw),
            Shard::ArrayRecord(shard) => shard.read(record, buffer),
            Shard::Tar(shard) => shard.read(record, &mut buffer.raw, &mut buffer.chunks.made),
        }
    }

    /// Where a record is that exists.
    pub fn extent(&self, record: usize) -> Extent {
        match self {
            Shard::TfRecord(shard) => {
                let range = shard.offsets()[record]..shard.offsets()[record + 1];
                Extent { bytes: range.end - range.start, range }
            }
            Shard::ArrayRecord(shard) => shard.extent(record),
            Shard::Tar(shard) => shard.extent(record),
        }
    }

    /// How many bytes a range has, if memory may be taken for that many: the file can back them.
    pub(crate) fn backed(&self, range: Range<u64>) -> Result<usize> {
        match self {
            Shard::TfRecord(shard) => shard.backed(range),
            Shard::ArrayRecord(shard) => shard.file().backed(range),
            Shard::Tar(shard) => shard.backed(range),
        }
    }

    /// Reads bytes of the shard from `offset` on.
    pub(crate) fn fill(&self, out: &mut [u8], offset: u64) -> Result<()> {
        match self {
            Shard::TfRecord(shard) => shard.fill(out, offset),
            Shard::ArrayRecord(shard) => shard.file().read_at(out, offset),
            Shard::Tar(shard) => shard.fill(out, offset),
        }
    }

    /// The whole shard, if it is held; it is from when `length` more bytes, read in a small piece, make it worth it, as
    /// long as the process holds no more than `most` then.
    pub(crate) fn held(&self, length: u64, most: u64) -> Option<&[u8]> {
        match self {
            Shard::TfRecord(shard) => shard.held(length, most),
            Shard::ArrayRecord(shard) => shard.held(length, most),
            Shard::Tar(shard) => shard.held(length, most),
        }
    }
}
