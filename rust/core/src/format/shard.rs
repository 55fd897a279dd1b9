//! An open file of records in any format: the only module that knows all three.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::format::array_record::{self, ArrayRecordShard};
use crate::format::container::{Container, ReadBuffer};
use crate::format::frame::{Frames, FOOTER, HEADER};
use crate::format::index::Sidecar;
use crate::format::salvage_report::Report;
use crate::format::tar::{self, TarRules, TarShard};
use crate::format::tfrecord;
use crate::format::tfrecord::shard::TfRecordShard;
use crate::format::tfrecord::stream::FrameStream;
use crate::io::file::{Progress, RandomAccessFile};

/// The format of a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Frames one after the other.
    TfRecord,
    /// Chunks of records, and a table of the chunks.
    ArrayRecord,
    /// Samples of files.
    Tar,
}

impl Format {
    /// Return the format of a file by its first bytes, and of a tar archive also by its name.
    pub fn detect(file: &RandomAccessFile) -> Result<Format> {
        if array_record::is_one(file)? {
            return Ok(Format::ArrayRecord);
        }
        Ok(if tar::is_one(file)? { Format::Tar } else { Format::TfRecord })
    }
}

/// An open shard.
#[derive(Clone, Debug)]
pub struct Shard(Arc<dyn Container>);

impl Shard {
    /// Open a file, by an index or by a scan unless it has a table of its own. `rules` say what the files of a tar
    /// archive are read as.
    pub fn open(path: &Path, sidecar: Sidecar, rules: Option<&Arc<TarRules>>, progress: Progress<'_>) -> Result<Shard> {
        Shard::from_file(RandomAccessFile::open(path)?, sidecar, rules, progress)
    }

    /// Open a shard whose file is open.
    pub fn from_file(
        file: RandomAccessFile,
        sidecar: Sidecar,
        rules: Option<&Arc<TarRules>>,
        progress: Progress<'_>,
    ) -> Result<Shard> {
        Ok(match Format::detect(&file)? {
            Format::TfRecord => Shard(Arc::new(TfRecordShard::from_file(file, sidecar, progress)?)),
            Format::ArrayRecord => Shard(Arc::new(ArrayRecordShard::from_file(file)?)),
            Format::Tar => Shard(Arc::new(TarShard::from_file(file, sidecar, rules.cloned(), progress)?)),
        })
    }

    /// A shard of a container that is open.
    pub fn new(container: impl Container + 'static) -> Shard {
        Shard(Arc::new(container))
    }
}

impl Deref for Shard {
    type Target = dyn Container;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// Read the first records of a file: `count` of them, or until they have `max_bytes` bytes. Only those are read and
/// checked.
pub fn first_records(path: &Path, count: usize, max_bytes: usize, progress: Progress<'_>) -> Result<Frames> {
    let file = RandomAccessFile::open(path)?;
    let mut frames = Frames::default();
    match Format::detect(&file)? {
        Format::ArrayRecord => {
            let shard = ArrayRecordShard::from_file(file)?;
            let mut buffer = ReadBuffer::default();
            while frames.len() < count.min(shard.len()) && frames.bytes().len() < max_bytes {
                frames.push(shard.read(frames.len(), &mut buffer)?);
            }
        }
        Format::Tar => return tar::first_records(&file, count, max_bytes as u64, progress),
        Format::TfRecord => {
            let mut stream = FrameStream::new(file.stream(file.compression()?));
            while frames.len() < count && frames.bytes().len() < max_bytes {
                progress(stream.offset)?;
                match stream.next_frame().map_err(|error| error.in_file(path))? {
                    Some(frame) => frames.push_frame(frame),
                    None => break,
                }
            }
        }
    }
    Ok(frames)
}

/// Read a file that may be damaged: pass each whole record and its offset to `keep`, and report the rest.
pub fn salvage(
    file: &RandomAccessFile,
    keep: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<Report> {
    match Format::detect(file)? {
        Format::ArrayRecord => array_record::salvage(file, keep, progress),
        Format::Tar => tar::salvage(file, keep, progress),
        Format::TfRecord => {
            let mut keep = |offset, frame: &[u8]| keep(offset, &frame[HEADER..frame.len() - FOOTER]);
            tfrecord::salvage::salvage(file, &mut keep, progress)
        }
    }
}
