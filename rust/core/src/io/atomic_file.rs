//! Atomic writes: a file is written under a temporary name beside its path, then renamed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::thread::JoinHandle;

use crate::crc32c;
use crate::error::{Error, Result};
use crate::interrupt::{self, BLOCK};

/// A temporary name beside the file that no other writer uses.
fn temporary_name(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{number}.partial", std::process::id()))
}

/// A file that is not published yet, with the size and CRC of the bytes written.
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    size: u64,
    crc: u32,
    published: bool,
    /// The process that creates, publishes and removes it: never a fork.
    process: u32,
    /// Whether it is synced while it is written, and the thread that does so once it is large enough.
    along: bool,
    syncing: Option<Syncing>,
}

/// Bytes written between two syncs.
const SYNC_EVERY: u64 = 16 << 20;

/// A thread that syncs a file whenever it is woken.
struct Syncing {
    wake: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl Syncing {
    fn start(file: &File) -> io::Result<Syncing> {
        let file = file.try_clone()?;
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new().name("penstock-sync".into());
        let thread = thread.spawn(move || woken.iter().try_for_each(|()| file.sync_data()))?;
        Ok(Syncing { wake, thread })
    }

    /// Outcome: the system reports a write error once only, and may have reported it to this thread.
    fn end(self) -> io::Result<()> {
        drop(self.wake);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended before its work")))
    }
}

impl AtomicFile {
    /// Create a file; nothing exists at `path` until [`AtomicFile::publish`].
    pub fn create(path: &Path) -> Result<AtomicFile> {
        let temporary = temporary_name(path);
        let file = File::options().write(true).create_new(true).open(&temporary);
        let file = file.map_err(|error| Error::io("creating the shard failed", &error).in_file(path))?;
        Ok(AtomicFile {
            path: path.into(),
            temporary,
            file,
            size: 0,
            crc: 0,
            published: false,
            process: std::process::id(),
            along: false,
            syncing: None,
        })
    }

    /// Sync the file while it is written, so that publishing it with `sync` waits less.
    pub fn sync_along(&mut self) {
        self.along = true;
    }

    /// Rename the file to its path, with `sync` only once it is on disk. Return its size and CRC-32C.
    pub fn publish(mut self, sync: bool) -> io::Result<(u64, u32)> {
        self.check_process()?;
        let syncing = self.syncing.take();
        interrupt::waited(move || syncing.map_or(Ok(()), Syncing::end))?;
        if sync {
            let file = self.file.try_clone()?;
            interrupt::waited(move || file.sync_all())?;
        }
        std::fs::rename(&self.temporary, &self.path)?;
        self.published = true;
        if sync {
            sync_folder(&self.path)?;
        }
        Ok((self.size, self.crc))
    }

    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Fail in a fork: it shares the file's position with the writing process, and its bytes would end up between the
    /// others.
    fn check_process(&self) -> io::Result<()> {
        match self.is_inherited() {
            true => Err(io::Error::other(inherited().in_file(&self.path))),
            false => Ok(()),
        }
    }
}

/// The error for a file that a fork would write to.
pub fn inherited() -> Error {
    let message = "expected to be used by the process that opened it, got a fork of that process";
    Error::usage(message).advise("Open a file of its own in the child process.")
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_process()?;
        let count = self.file.write(bytes)?;
        self.size += count as u64;
        self.crc = crc32c::append(self.crc, &bytes[..count]);
        if self.along && self.size / SYNC_EVERY > (self.size - count as u64) / SYNC_EVERY {
            let syncing = match &mut self.syncing {
                Some(syncing) => syncing,
                none => none.insert(Syncing::start(&self.file)?),
            };
            // A full channel means that the thread is awake; a closed one that it failed, which `publish` reports.
            let _ = syncing.wake.try_send(());
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.is_inherited() {
            // Its thread is not here, and may have left the channel locked.
            std::mem::forget(self.syncing.take());
        } else if !self.published {
            let _ = self.syncing.take().map(Syncing::end);
            // There may be nothing to remove any more; then there is nothing to do.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// The error for a shard that could not be written.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Error {
    Error::io("writing the shard failed", error).in_file(path)
}

/// The error for a shard that takes no more records.
pub(crate) fn closed(path: &Path) -> Error {
    Error::usage("expected an open shard, got one that is closed or failed").in_file(path)
}

/// Makes a rename survive a power cut, where folders can be synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Writes a small file whole: under a temporary name, then renamed.
pub fn publish(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_name(path);
    let written = File::create(&temporary).and_then(|mut file| {
        bytes.chunks(BLOCK).try_for_each(|block| {
            interrupt::check_io()?;
            file.write_all(block)
        })
    });
    written.and_then(|()| std::fs::rename(&temporary, path)).map_err(|error| {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&temporary);
        Error::io("writing failed", &error).in_file(path)
    })
}
