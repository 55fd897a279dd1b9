//! Whole files, one after the other in one buffer: a column of their contents.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::error::{Error, Result};

/// The contents of files, and where each of them begins and ends.
///
/// Their sizes are looked up before any is read; one that has another size when it is read is an error. `check` is
/// called with each content. Errors name the file.
pub fn read<P: AsRef<Path>>(paths: &[P], check: impl Fn(&[u8]) -> Result<()>) -> Result<(Vec<u8>, Vec<i64>)> {
    let mut ends = Vec::with_capacity(paths.len() + 1);
    ends.push(0);
    let mut total = 0u64;
    for path in paths {
        let path = path.as_ref();
        let about = std::fs::metadata(path).map_err(|error| Error::io("reading failed", &error).in_file(path))?;
        if !about.is_file() {
            return Err(Error::usage("expected a file, got something else").in_file(path));
        }
        total += about.len();
        ends.push(i64::try_from(total).map_err(|_| Error::usage("expected fewer bytes").in_file(path))?);
    }
    let mut content = Vec::new();
    let length = usize::try_from(total).unwrap_or(usize::MAX);
    content.try_reserve_exact(length).map_err(|_| Error::usage(format!("no memory for {total} bytes")))?;
    for (path, pair) in paths.iter().zip(ends.windows(2)) {
        let path = path.as_ref();
        let (before, size) = (content.len(), (pair[1] - pair[0]) as usize);
        let read = File::open(path).and_then(|file| file.take(size as u64 + 1).read_to_end(&mut content));
        read.map_err(|error| Error::io("reading failed", &error).in_file(path))?;
        let found = content.len() - before;
        if found != size {
            let message = format!("expected a file of {size} bytes, as it had just before, got another size");
            return Err(Error::corrupt(message).in_file(path));
        }
        check(&content[before..]).map_err(|error| error.in_file(path))?;
    }
    Ok((content, ends))
}

/// A file's size and time of change in nanoseconds; nothing if it cannot be looked at.
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

    #[test]
    fn contents_come_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> = ["one", "", "three"]
            .iter()
            .enumerate()
            .map(|(n, content)| {
                let path = folder.path().join(n.to_string());
                std::fs::write(&path, content).unwrap();
                path
            })
            .collect();
        let (content, ends) = read(&paths, |_| Ok(())).unwrap();
        assert_eq!((&content[..], &ends[..]), (&b"onethree"[..], &[0, 3, 3, 8][..]));
        assert_eq!(read::<&str>(&[], |_| Ok(())).unwrap(), (vec![], vec![0]));
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
        let refused = read(&[&path], |bytes| Err(Error::corrupt(format!("{} bytes", bytes.len())))).unwrap_err();
        assert!(refused.message() == "4 bytes" && refused.path() == Some(path.as_path()));
        let missing = folder.path().join("b");
        assert!(matches!(read(&[&path, &missing], |_| Ok(())).unwrap_err().kind(), Kind::Io(Some(2))));
        assert!(read(&[folder.path()], |_| Ok(())).is_err(), "a folder is no file");
    }
}
