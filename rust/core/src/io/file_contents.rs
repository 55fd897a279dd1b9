//! A column of the contents of files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::error::{Error, Result};
use crate::interrupt;

/// Files that are read whole, each on request. Their sizes are read first.
#[derive(Debug)]
pub struct FileContents {
    paths: Vec<PathBuf>,
    sizes: Vec<usize>,
    check: fn(&[u8]) -> Result<()>,
}

impl FileContents {
    /// Read the sizes. `check` is called with each content that is read. Errors name the file.
    pub fn look(paths: Vec<PathBuf>, check: fn(&[u8]) -> Result<()>) -> Result<FileContents> {
        let size = |(number, path): (usize, &PathBuf)| {
            interrupt::check_at(number)?;
            let about = std::fs::metadata(path).map_err(|error| Error::io("reading failed", &error).in_file(path))?;
            match usize::try_from(about.len()) {
                Ok(size) if about.is_file() => Ok(size),
                _ => Err(Error::usage("expected a file, got something else").in_file(path)),
            }
        };
        let sizes = paths.iter().enumerate().map(size).collect::<Result<_>>()?;
        Ok(FileContents { paths, sizes, check })
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Return true if there are no files.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Size of all files.
    pub fn bytes(&self) -> usize {
        self.sizes.iter().fold(0, |sum, &size| sum.saturating_add(size))
    }

    /// Size of one file.
    pub fn size(&self, number: usize) -> usize {
        self.sizes[number]
    }

    /// Append the content of one file; fail if its size has changed.
    pub fn append(&self, number: usize, out: &mut Vec<u8>) -> Result<()> {
        let (path, size, before) = (&self.paths[number], self.sizes[number], out.len());
        let failed = |error: &std::io::Error| Error::io("reading failed", error).in_file(path);
        let file = File::open(path).map_err(|error| failed(&error))?;
        // A sparse file may report any size: that must not end the process.
        let room = out.try_reserve(size.saturating_add(1));
        room.map_err(|_| {
            Error::usage(format!("expected a file that fits into memory, got {size} bytes")).in_file(path)
        })?;
        let found = file.take(size as u64 + 1).read_to_end(out).map_err(|error| failed(&error))?;
        if found != size {
            let message = format!("expected a file of {size} bytes, as it had just before, got another size");
            return Err(Error::corrupt(message).in_file(path));
        }
        (self.check)(&out[before..]).map_err(|error| error.in_file(path))
    }
}

/// Return a file's size and modification time in nanoseconds; empty if it cannot be read.
pub fn stamp(path: &Path) -> String {
    let look = || {
        let about = std::fs::metadata(path).ok()?;
        let changed = about.modified().ok()?;
        let nanoseconds = match changed.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        Some(format!("{}-{nanoseconds}", about.len()))
    };
    look().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn any(_: &[u8]) -> Result<()> {
        Ok(())
    }

    #[test]
    fn contents_are_appended() {
        let folder = tempfile::tempdir().unwrap();
        let write = |(number, content): (usize, &&str)| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, content).unwrap();
            path
        };
        let files = FileContents::look(["one", "", "three"].iter().enumerate().map(write).collect(), any).unwrap();
        assert_eq!((files.len(), files.bytes(), files.size(2)), (3, 8, 5));
        let mut out = b"> ".to_vec();
        [2, 1, 0].into_iter().for_each(|number| files.append(number, &mut out).unwrap());
        assert_eq!(out, b"> threeone");
    }

    #[test]
    fn stamps_tell_size_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let file = File::create(&path).unwrap();
        std::fs::write(&path, "text").unwrap();
        file.set_modified(UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_890_123_456_789)).unwrap();
        assert_eq!(stamp(&path), "4-1234567890123456789");
        file.set_modified(UNIX_EPOCH - std::time::Duration::from_millis(1500)).unwrap();
        assert_eq!(stamp(&path), "4--1500000000");
        assert_eq!(stamp(&folder.path().join("b")), "");
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "text").unwrap();
        let refused =
            FileContents::look(vec![path.clone()], |bytes| Err(Error::corrupt(format!("{} bytes", bytes.len()))));
        let error = refused.unwrap().append(0, &mut Vec::new()).unwrap_err();
        assert!(error.message() == "4 bytes" && error.path() == Some(path.as_path()));
        let missing = FileContents::look(vec![path.clone(), folder.path().join("b")], any).unwrap_err();
        assert!(matches!(missing.kind(), Kind::Io(Some(2))));
        assert!(FileContents::look(vec![folder.path().into()], any).is_err(), "a folder is no file");
        let endless = FileContents { paths: vec![path.clone()], sizes: vec![usize::MAX], check: any };
        let error = endless.append(0, &mut Vec::new()).unwrap_err();
        assert!(error.message().contains("fits into memory") && error.path() == Some(path.as_path()));
        let changed = FileContents::look(vec![path.clone()], any).unwrap();
        for content in ["longer", "no"] {
            std::fs::write(&path, content).unwrap();
            let error = changed.append(0, &mut Vec::new()).unwrap_err();
            assert!(error.kind() == Kind::Corrupt && error.path() == Some(path.as_path()));
        }
    }
}
