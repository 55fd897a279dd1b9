//! Files read by position.
//!
//! Never through a memory map: a mapped file that another process truncates ends this one with SIGBUS, and no portable way
//! prevents that. A positioned read gives an error instead.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::crc;
use crate::error::{Error, Kind, Result};
use crate::frames::HEADER;
use crate::inflate::{Compression, Stream};
use crate::pieces::Pieces;
use crate::recent::{Recent, Slot};

/// What is read at a time where all of a file is.
pub(crate) const WINDOW: usize = 1 << 20;

/// Called now and then in long work, with how far it is; an error from it ends the work.
pub type Pulse<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// Reads exactly `out.len()` bytes at `offset`.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

/// Reads exactly `out.len()` bytes at `offset`.
#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !out.is_empty() {
        match file.seek_read(out, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => {
                out = &mut out[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

/// How many files a process keeps open: below what any system allows. The others are opened again when they are read.
const MOST_OPEN: u64 = 200;

static OPEN: Recent<File> = Recent::new(MOST_OPEN);

/// Brings files that are elsewhere to the paths that they are read by.
pub trait Bring: std::fmt::Debug + Send + Sync {
    /// Waits until a file is there. It may be gone again later.
    fn bring(&self, path: &Path, pulse: Pulse<'_>) -> Result<()>;
}

/// A file opened for positioned reads.
#[derive(Debug)]
pub struct Plain {
    file: Slot<File>,
    path: PathBuf,
    size: u64,
    /// Who brings it, should it be gone when it is opened again.
    bring: Option<Arc<dyn Bring>>,
    /// What is there of a file that is elsewhere.
    pieces: Option<Arc<Pieces>>,
}

impl Plain {
    /// Opens a regular file.
    pub fn open(path: &Path) -> Result<Plain> {
        let fail = |error: std::io::Error| Error::io("opening failed", &error).in_file(path);
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "a directory" } else { "something else" };
            return Err(Error::new(Kind::Io(None), format!("expected a file, got {what}")).in_file(path));
        }
        let slot = Slot::default();
        OPEN.keep(&slot, file, 1);
        Ok(Plain { file: slot, path: path.to_path_buf(), size: metadata.len(), bring: None, pieces: None })
    }

    /// A file that is elsewhere, of which only some pieces are read.
    pub fn in_pieces(path: &Path, size: u64, pieces: Arc<Pieces>) -> Plain {
        Plain { file: Slot::default(), path: path.to_path_buf(), size, bring: None, pieces: Some(pieces) }
    }

    /// The same, brought again by someone should it be gone.
    #[must_use]
    pub fn brought_by(mut self, bring: Arc<dyn Bring>) -> Plain {
        self.bring = Some(bring);
        self
    }

    /// Whether any byte can be read at any time.
    pub fn is_whole(&self) -> bool {
        self.pieces.is_none()
    }

    fn open_again(&self) -> std::io::Result<File> {
        match (File::open(&self.path), &self.bring) {
            (Err(error), Some(bring)) if error.kind() == std::io::ErrorKind::NotFound => {
                bring.bring(&self.path, &mut |_| Ok(())).map_err(|error| std::io::Error::other(error.to_string()))?;
                File::open(&self.path)
            }
            (opened, _) => opened,
        }
    }

    /// The size when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> std::io::Result<()> {
        // Whoever can't have the file opens it: one who is filling or emptying the slot may have been left behind by a fork.
        if let Some(file) = self.file.try_read().ok().as_ref().and_then(|file| file.as_ref()) {
            return read_exact_at(file, out, offset);
        }
        let file = self.open_again()?;
        let size = file.metadata()?.len();
        if size != self.size {
            let message = format!("expected the file of {} bytes that was opened before, got {size} bytes", self.size);
            return Err(std::io::Error::other(message));
        }
        let read = read_exact_at(&file, out, offset);
        OPEN.keep(&self.file, file, 1);
        read
    }

    /// Lets go of the file until it is read again.
    pub fn rest(&self) {
        if let Ok(mut file) = self.file.try_write() {
            *file = None;
        }
    }

    /// Fills `out` from `offset` on.
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        if let Some(pieces) = &self.pieces {
            return pieces.read_at(out, offset).map_err(|error| error.in_file(&self.path));
        }
        self.read_exact_at(out, offset).map_err(|error| {
            let error = match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Error::corrupt(format!(
                    "expected {} bytes here, got the end of the file: it was truncated after it was opened",
                    out.len()
                )),
                _ => Error::io("reading failed", &error),
            };
            error.at_offset(offset).in_file(&self.path)
        })
    }

    /// Checks that a record exists, where there are so many.
    pub(crate) fn check(&self, record: usize, records: usize) -> Result<()> {
        if record < records {
            return Ok(());
        }
        let message = format!("expected a record number below {records}, got {record}");
        Err(Error::new(Kind::OutOfRange, message).in_file(&self.path))
    }

    /// How many bytes a range has, if memory may be taken for that many: they are there.
    pub(crate) fn backed(&self, range: Range<u64>) -> Result<usize> {
        match usize::try_from(range.end - range.start) {
            Ok(length) if range.end <= self.size => Ok(length),
            _ => {
                let length = range.end - range.start;
                let message = format!("expected {length} bytes here, got a file of {} bytes", self.size);
                Err(Error::corrupt(message).at_offset(range.start).in_file(&self.path))
            }
        }
    }

    /// Reads `length` bytes at `offset` into `buffer`, which only ever grows, and returns them.
    pub fn read_into<'b>(&self, buffer: &'b mut Vec<u8>, offset: u64, length: u64) -> Result<&'b [u8]> {
        let length = self.backed(offset..offset.saturating_add(length))?;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        self.read_at(&mut buffer[..length], offset)?;
        Ok(&buffer[..length])
    }

    /// What the first bytes say about the compression.
    pub fn compression(&self) -> Result<Compression> {
        let mut head = [0; HEADER];
        let count = HEADER.min(self.size as usize);
        self.read_at(&mut head[..count], 0)?;
        Ok(Compression::detect(&head[..count]))
    }

    /// The inflated stream, from the start.
    pub fn stream(&self, compression: Compression) -> Stream<Positioned<'_>> {
        Stream::new(Positioned { file: self, offset: 0 }, compression)
    }
}

/// Reads a [`Plain`] file from front to back without moving anyone else's position.
pub struct Positioned<'a> {
    file: &'a Plain,
    offset: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let left = self.file.size - self.offset;
        let count = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match &self.file.pieces {
            Some(pieces) => {
                let read = pieces.read_at(&mut out[..count], self.offset);
                read.map_err(|error| std::io::Error::other(error.to_string()))?;
            }
            None => self.file.read_exact_at(&mut out[..count], self.offset)?,
        }
        self.offset += count as u64;
        Ok(count)
    }
}

/// CRC-32C of the whole file.
pub fn checksum(file: &Plain, pulse: Pulse<'_>) -> Result<u32> {
    let (mut crc, mut offset, mut buffer) = (0, 0, Vec::new());
    while offset < file.size {
        let count = (file.size - offset).min(WINDOW as u64);
        crc = crc::append(crc, file.read_into(&mut buffer, offset, count)?);
        offset += count;
        pulse(offset)?;
    }
    Ok(crc)
}
