//! Many shards as one sequence of records; each shard is opened on first use, by any thread.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crate::codec::stream::Compression;
use crate::error::{Error, Kind, Result};
use crate::format::container::{Container, ReadBuffer};
use crate::format::frame::Frames;
use crate::format::gather::{read_rows, Row};
use crate::format::index::{Index, Sidecar};
use crate::format::shard::Shard;
use crate::format::tar::{self, TarRules};
use crate::format::tfrecord::shard::TfRecordShard;
use crate::interrupt;
use crate::io::file::{Fetch, Progress, RandomAccessFile, Stamp, FETCH_ATTEMPTS};
use crate::io::fork_cell::ForkCell;
use crate::io::range_cache::RangeCache;

/// What a manifest knows of a shard: its file, its number of records, and its index.
#[derive(Clone, Debug)]
pub struct ShardSource {
    /// The file.
    pub path: PathBuf,
    /// Number of records, by the manifest.
    pub records: u64,
    /// Its index, which is used if it fits.
    pub sidecar: Option<PathBuf>,
    /// What the files of a tar archive are read as.
    pub rules: Option<Arc<TarRules>>,
}

/// Where the bytes of shards come from.
#[derive(Debug)]
enum Origin {
    /// Local files.
    Local,
    /// Files that are downloaded before they are opened.
    Fetched(Arc<dyn Fetch>),
    /// Remote files: the size of each, and its downloaded ranges.
    Remote(Vec<(u64, Arc<RangeCache>)>),
}

/// A sequence of records over many shards.
#[derive(Debug)]
pub struct ShardSet {
    sources: Vec<ShardSource>,
    opened: Vec<ForkCell<Shard>>,
    /// Number of each shard's first record, and the number of all records.
    starts: Vec<u64>,
    /// Number of calls of [`ShardSet::open`] so far.
    turns: AtomicUsize,
    origin: Origin,
    /// For each shard the file that must be unchanged when it is opened; empty where none is checked.
    stamps: Vec<Option<Arc<Stamp>>>,
}

impl ShardSet {
    /// Create a sequence; no shard is opened yet.
    pub fn new(sources: Vec<ShardSource>) -> Result<ShardSet> {
        let mut starts = Vec::with_capacity(sources.len() + 1);
        let mut end = 0u64;
        starts.push(0);
        for source in &sources {
            let sum = end.checked_add(source.records).filter(|&sum| i64::try_from(sum).is_ok());
            end = sum.ok_or_else(|| {
                let message = format!("expected fewer than 2^63 records in all, got {} more", source.records);
                Error::usage(message).in_file(&source.path)
            })?;
            starts.push(end);
        }
        let opened = sources.iter().map(|_| ForkCell::default()).collect();
        Ok(ShardSet { sources, opened, starts, turns: AtomicUsize::new(0), origin: Origin::Local, stamps: Vec::new() })
    }

    /// Download each file with `fetch` before it is opened.
    #[must_use]
    pub fn fetched_by(self, fetch: Arc<dyn Fetch>) -> ShardSet {
        ShardSet { origin: Origin::Fetched(fetch), ..self }
    }

    /// Read remote files of these sizes: ranges are added by [`ShardSet::put`] before they are read.
    #[must_use]
    pub fn remote(self, sizes: impl Iterator<Item = u64>) -> ShardSet {
        ShardSet { origin: Origin::Remote(sizes.map(|size| (size, Arc::default())).collect()), ..self }
    }

    /// Open each shard only while its stamp's file is unchanged.
    #[must_use]
    pub fn stamped(self, stamps: Vec<Option<Arc<Stamp>>>) -> ShardSet {
        ShardSet { stamps, ..self }
    }

    fn stamp(&self, number: usize) -> Option<&Stamp> {
        self.stamps.get(number).and_then(Option::as_deref)
    }

    /// Add a downloaded range of a remote file, of which at most `most` bytes are cached.
    pub fn put(&self, shard: usize, offset: u64, bytes: Vec<u8>, most: usize) {
        if let Origin::Remote(files) = &self.origin {
            files[shard].1.put(offset, bytes, most);
        }
    }

    /// Close a shard's file until it is read again.
    pub fn close(&self, shard: usize) {
        if let Some(opened) = self.opened[shard].get() {
            opened.file().close();
        }
    }

    /// Fail if another file replaces this one and the shard has a stamp.
    fn watched(&self, number: usize, file: RandomAccessFile) -> RandomAccessFile {
        match self.stamp(number) {
            Some(stamp) => file.watched(stamp.path == self.sources[number].path),
            None => file,
        }
    }

    /// Return a shard's file, downloaded if necessary.
    fn file(&self, number: usize, progress: Progress<'_>) -> Result<RandomAccessFile> {
        let path = &self.sources[number].path;
        match &self.origin {
            Origin::Local => RandomAccessFile::open(path).map(|file| self.watched(number, file)),
            Origin::Remote(files) => Ok(RandomAccessFile::remote(path, files[number].0, files[number].1.clone())),
            Origin::Fetched(fetch) => {
                let mut left = FETCH_ATTEMPTS;
                loop {
                    fetch.fetch(path, progress)?;
                    left -= 1;
                    match RandomAccessFile::open(path) {
                        Err(error) if left > 0 && matches!(error.kind(), Kind::Io(Some(2))) => {}
                        opened => return opened.map(|file| self.watched(number, file.fetched_by(fetch.clone()))),
                    }
                }
            }
        }
    }

    /// A sequence of one open shard.
    pub fn of(shard: Shard) -> ShardSet {
        let records = shard.len() as u64;
        let source = ShardSource { path: shard.file().path().to_path_buf(), records, sidecar: None, rules: None };
        let opened = ForkCell::default();
        opened.fill(shard);
        ShardSet {
            sources: vec![source],
            opened: vec![opened],
            starts: vec![0, records],
            turns: AtomicUsize::new(0),
            origin: Origin::Local,
            stamps: Vec::new(),
        }
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.starts[self.sources.len()]
    }

    /// Return true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the shard of a record, and the record's number within it.
    pub fn locate(&self, number: u64) -> Result<(usize, usize)> {
        if number >= self.len() {
            let message = format!("expected a record number below {}, got {number}", self.len());
            return Err(Error::new(Kind::OutOfRange, message));
        }
        let shard = self.starts.partition_point(|&start| start <= number) - 1;
        Ok((shard, (number - self.starts[shard]) as usize))
    }

    /// Return the numbers of a shard's records.
    pub fn numbers(&self, shard: usize) -> std::ops::Range<u64> {
        self.starts[shard]..self.starts[shard + 1]
    }

    /// Return a shard if it is open.
    pub fn opened(&self, number: usize) -> Option<&Shard> {
        self.opened[number].get()
    }

    /// Return a shard; open it on first use. Two threads may open it at once, and one result is kept: a fork never
    /// waits for a thread that it does not have.
    pub fn shard(&self, number: usize, progress: Progress<'_>) -> Result<&Shard> {
        if let Some(shard) = self.opened[number].get() {
            return Ok(shard);
        }
        let opened = self.open_shard(number, progress);
        // Checked last: while the stamp's file is unchanged, so are the shard and the index that were opened before.
        // The error of a shard that was replaced reports the replacement.
        self.stamp(number).map_or(Ok(()), Stamp::check)?;
        self.opened[number].fill(opened?).ok_or_else(|| {
            let message = "expected a process that was not forked twice while shards were opened";
            Error::usage(message).advise("Open the dataset in this process.").in_file(&self.sources[number].path)
        })
    }

    fn open_shard(&self, number: usize, progress: Progress<'_>) -> Result<Shard> {
        let source = &self.sources[number];
        let file = self.file(number, progress)?;
        let sidecar = match source.sidecar.as_deref().map(Index::read) {
            Some(Ok(index)) if file.is_whole() => Sidecar::Try(index),
            Some(Ok(index)) => Sidecar::Use(index), // remote files are not scanned
            Some(Err(error)) if !file.is_whole() => return Err(error),
            Some(Err(_)) | None => Sidecar::Ignore,
        };
        let opened = Shard::from_file(file, sidecar, source.rules.as_ref(), progress).and_then(|shard| {
            if shard.len() as u64 == source.records {
                return Ok(shard);
            }
            let message = format!("expected a shard of {} records, got {}", source.records, shard.len());
            let advice = "It was changed after its dataset was made: build it again, or open the file by itself.";
            Err(Error::corrupt(message).advise(advice).in_file(&source.path))
        });
        match opened {
            Err(error) if error.kind().is_corrupt() => self.cut_off(number, progress).ok_or(error),
            opened => opened,
        }
    }

    /// Open a TFRecord shard that was truncated after its index was made: the remaining records are read, and each of
    /// the others is an error.
    fn cut_off(&self, number: usize, progress: Progress<'_>) -> Option<Shard> {
        let index = Index::read(self.sources[number].sidecar.as_deref()?).ok()?;
        let file = self.file(number, progress).ok()?;
        let size = file.size();
        let known =
            index.compression == Compression::None && index.offsets.len() as u64 == self.sources[number].records + 1;
        if !known || size >= index.shard_size || tar::is_one(&file).ok()? {
            return None;
        }
        Some(Shard::new(TfRecordShard::truncated(file, &index)))
    }

    /// Open the shards of some records. Threads that need the same shards begin at different ends.
    pub fn open(&self, numbers: &[u64], progress: Progress<'_>) -> Result<()> {
        let mut closed = Vec::new();
        let mut within = 0..0;
        for &number in numbers {
            if !within.contains(&number) {
                let shard = self.locate(number)?.0;
                within = self.numbers(shard);
                if self.opened[shard].get().is_none() {
                    closed.push(shard);
                }
            }
        }
        closed.sort_unstable();
        closed.dedup();
        if self.turns.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            closed.reverse();
        }
        closed.into_iter().try_for_each(|shard| self.shard(shard, progress).map(drop))
    }

    /// Return one record, checked.
    pub fn read<'b>(&'b self, number: u64, buffer: &'b mut ReadBuffer) -> Result<&'b [u8]> {
        let (shard, record) = self.locate(number)?;
        self.shard(shard, &mut |_| interrupt::check())?.read(record, buffer)
    }

    /// Return the rows of some records; opens their shards.
    pub fn rows(&self, numbers: &[u64], progress: Progress<'_>) -> Result<Vec<Row<'_>>> {
        let mut rows = Vec::with_capacity(numbers.len());
        let (mut within, mut place) = (0..0, 0);
        let mut known: Option<&dyn Container> = None;
        for (row, &number) in numbers.iter().enumerate() {
            interrupt::check_at(row)?;
            let shard = match known {
                Some(shard) if within.contains(&number) => shard,
                _ => {
                    place = self.locate(number)?.0;
                    within = self.numbers(place);
                    if self.opened(place).is_none() {
                        self.open(&numbers[row..], progress)?;
                    }
                    let shard: &dyn Container = &**self.shard(place, progress)?;
                    known = Some(shard);
                    shard
                }
            };
            rows.push(Row::new(shard, place, (number - within.start) as usize));
        }
        Ok(rows)
    }

    /// Read records in the order of `numbers`, checked; neighbours are read together.
    pub fn read_many(&self, numbers: &[u64], progress: Progress<'_>) -> Result<Frames> {
        let mut rows = self.rows(numbers, progress)?;
        read_rows(&mut rows, progress, |row, error| self.place(numbers[row], error))
    }

    /// Return true if reading a record needs no system call.
    pub fn is_in_memory(&self, number: u64) -> bool {
        let shard = self.locate(number).ok().and_then(|(shard, _)| self.opened[shard].get());
        shard.is_some_and(|shard| shard.is_in_memory())
    }

    /// Add the file, the number within it and the offset to the error of a record.
    pub fn place(&self, number: u64, error: Error) -> Error {
        match self.locate(number) {
            Ok((shard, record)) => {
                let error = error.in_record(record as u64).renumbered(|_| record as u64);
                match self.opened[shard].get() {
                    Some(opened) => opened.place(error),
                    None => error.in_file(&self.sources[shard].path),
                }
            }
            Err(_) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &std::path::Path, counts: &[u64]) -> Vec<ShardSource> {
        let mut number = 0;
        let mut source = |(shard, &records): (usize, &u64)| {
            let mut frames = Frames::default();
            for _ in 0..records {
                frames.push(format!("record {number}").as_bytes());
                number += 1;
            }
            let path = folder.join(format!("{shard}.tfrecord"));
            std::fs::write(&path, frames.bytes()).unwrap();
            ShardSource { path, records, sidecar: None, rules: None }
        };
        counts.iter().enumerate().map(&mut source).collect()
    }

    #[test]
    fn any_record_of_any_shard() {
        let folder = tempfile::tempdir().unwrap();
        let shards = ShardSet::new(written(folder.path(), &[3, 0, 5, 1, 0])).unwrap();
        assert_eq!(shards.len(), 9);
        for number in [8, 0, 3, 2, 7] {
            assert_eq!(shards.read(number, &mut ReadBuffer::default()).unwrap(), format!("record {number}").as_bytes());
        }
        assert_eq!((shards.locate(3).unwrap(), shards.locate(8).unwrap()), ((2, 0), (3, 0)));
        assert_eq!(shards.read(9, &mut ReadBuffer::default()).unwrap_err().kind(), Kind::OutOfRange);
    }

    #[test]
    fn a_shard_that_was_replaced_is_an_error() {
        use crate::io::file::Identity;
        let folder = tempfile::tempdir().unwrap();
        let sources = written(folder.path(), &[100, 100]);
        let stamp = |path: PathBuf| {
            let identity = Identity::read(&path).unwrap();
            Some(Arc::new(Stamp { path, identity }))
        };
        let replace = |path: &std::path::Path| {
            let fresh = folder.path().join("fresh");
            std::fs::copy(path, &fresh).unwrap();
            std::fs::rename(&fresh, path).unwrap();
        };
        let own: Vec<_> = sources.iter().map(|source| stamp(source.path.clone())).collect();
        let shards = ShardSet::new(sources.clone()).unwrap().stamped(own);
        let read = |number| shards.read(number, &mut ReadBuffer::default()).map(<[u8]>::to_vec);
        assert_eq!(read(0).unwrap(), b"record 0");
        sources.iter().for_each(|source| replace(&source.path));
        assert_eq!(read(1).unwrap(), b"record 1", "an open file is read on");
        let error = read(100).unwrap_err();
        assert_eq!((error.kind(), error.path()), (Kind::Replaced, Some(sources[1].path.as_path())), "{error}");
        shards.close(0);
        assert_eq!(read(2).unwrap_err().kind(), Kind::Replaced, "opened again");

        // One stamp for all, as a manifest is.
        let manifest = folder.path().join("manifest");
        std::fs::write(&manifest, "{}").unwrap();
        let shared = stamp(manifest.clone());
        let shards = ShardSet::new(sources.clone()).unwrap().stamped(vec![shared.clone(), shared]);
        let read = |number| shards.read(number, &mut ReadBuffer::default()).map(<[u8]>::to_vec);
        assert_eq!(read(0).unwrap(), b"record 0");
        std::fs::remove_file(&manifest).unwrap();
        std::fs::remove_file(&sources[1].path).unwrap();
        let error = read(100).unwrap_err();
        assert_eq!((error.kind(), error.path()), (Kind::Replaced, Some(manifest.as_path())), "not that it is missing");
        assert_eq!(read(3).unwrap(), b"record 3");
    }

    #[test]
    fn a_file_that_is_written_to_in_place_is_an_error() {
        use crate::io::file::Identity;
        let folder = tempfile::tempdir().unwrap();
        let sources = written(folder.path(), &[100]);
        let path = sources[0].path.clone();
        let stamp = Arc::new(Stamp { identity: Identity::read(&path).unwrap(), path: path.clone() });
        let shards = ShardSet::new(sources).unwrap().stamped(vec![Some(stamp)]);
        let read = |number| shards.read(number, &mut ReadBuffer::default()).map(<[u8]>::to_vec);
        assert_eq!(read(0).unwrap(), b"record 0");
        let bytes = std::fs::read(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20)); // coarser than the clock of any file system here
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(read(1).unwrap_err().kind(), Kind::Replaced);
    }

    #[test]
    fn another_number_of_records_is_an_error_that_names_both() {
        let folder = tempfile::tempdir().unwrap();
        let mut sources = written(folder.path(), &[3, 4]);
        sources[1].records = 5;
        let shards = ShardSet::new(sources).unwrap();
        assert!(shards.read(0, &mut ReadBuffer::default()).is_ok());
        let error = shards.read(3, &mut ReadBuffer::default()).unwrap_err().to_string();
        assert!(error.starts_with("expected a shard of 5 records, got 4 - at ") && error.contains("1.tfrecord"));
        let endless = ShardSource { path: "a".into(), records: u64::MAX, sidecar: None, rules: None };
        assert!(ShardSet::new(vec![endless.clone(), endless]).is_err());
    }

    /// Copies files from another folder.
    #[derive(Debug)]
    struct Copies(PathBuf, AtomicUsize);

    impl Fetch for Copies {
        fn fetch(&self, path: &std::path::Path, _: Progress<'_>) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let from = self.0.join(path.file_name().unwrap());
            std::fs::copy(&from, path).map(drop).map_err(|error| Error::io("copying failed", &error).in_file(&from))
        }
    }

    #[test]
    fn shards_are_brought_when_they_are_needed_and_again_when_they_are_gone() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut sources = written(there.path(), &[3, 100]); // so many that it is not held
        sources.iter_mut().for_each(|source| source.path = here.path().join(source.path.file_name().unwrap()));
        let fetch = Arc::new(Copies(there.path().into(), AtomicUsize::new(0)));
        let shards = ShardSet::new(sources.clone()).unwrap().fetched_by(fetch.clone());
        let read = |number| shards.read(number, &mut ReadBuffer::default()).map(<[u8]>::to_vec);
        assert_eq!(read(4).unwrap(), b"record 4");
        assert!(!sources[0].path.exists() && sources[1].path.exists(), "only what is needed is brought");
        std::fs::remove_file(&sources[1].path).unwrap();
        assert_eq!(read(5).unwrap(), b"record 5", "an open file is read on");
        shards.close(1);
        assert_eq!((read(6).unwrap(), fetch.1.load(Ordering::Relaxed)), (b"record 6".to_vec(), 2));
        std::fs::remove_file(there.path().join("0.tfrecord")).unwrap();
        assert!(read(0).unwrap_err().to_string().starts_with("copying failed"));
    }

    #[test]
    fn a_shard_that_was_cut_off_has_the_records_that_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut sources = written(folder.path(), &[5]);
        let bytes = std::fs::read(&sources[0].path).unwrap();
        let index = folder.path().join("0.index");
        let scanned = TfRecordShard::open(&sources[0].path, Sidecar::Ignore, &mut |_| Ok(())).unwrap();
        std::fs::write(&index, scanned.index(&mut |_| Ok(())).unwrap().to_bytes()).unwrap();
        for length in 1..bytes.len() {
            std::fs::write(&sources[0].path, &bytes[..length]).unwrap();
            sources[0].sidecar = Some(index.clone());
            let shards = ShardSet::new(sources.clone()).unwrap();
            for number in 0..5 {
                match shards.read(number, &mut ReadBuffer::default()) {
                    Ok(record) => assert_eq!(record, format!("record {number}").as_bytes()),
                    Err(error) => assert_eq!((error.kind(), error.record()), (Kind::Corrupt, Some(number)), "{error}"),
                }
                let left = scanned.offsets()[number as usize + 1] <= length as u64;
                assert_eq!(shards.read(number, &mut ReadBuffer::default()).is_ok(), left, "{number} of {length} bytes");
            }
            sources[0].sidecar = None;
            let unknown = ShardSet::new(sources.clone()).unwrap();
            assert_eq!(unknown.read(0, &mut ReadBuffer::default()).unwrap_err().kind(), Kind::Corrupt);
        }
    }

    #[test]
    fn shards_in_pieces_say_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let mut sources = written(folder.path(), &[3, 4]);
        let bytes = std::fs::read(&sources[1].path).unwrap();
        let index = folder.path().join("1.index");
        let scanned =
            crate::format::tfrecord::shard::TfRecordShard::open(&sources[1].path, Sidecar::Ignore, &mut |_| Ok(()))
                .unwrap();
        std::fs::write(&index, scanned.index(&mut |_| Ok(())).unwrap().to_bytes()).unwrap();
        sources[1].sidecar = Some(index);
        sources.iter_mut().for_each(|source| source.path = "elsewhere".into());
        let sizes = [0, bytes.len() as u64].into_iter();
        let shards = ShardSet::new(sources).unwrap().remote(sizes);
        let mut asked = 0;
        let record = loop {
            match shards.read(5, &mut ReadBuffer::default()) {
                Ok(record) => break record.to_vec(),
                Err(error) => {
                    let Kind::NotDownloaded(length) = error.kind() else { panic!("{error}") };
                    let start = error.offset().unwrap() as usize;
                    shards.put(1, start as u64, bytes[start..start + length as usize].to_vec(), 1000);
                    asked += length;
                }
            }
        };
        assert_eq!(record, b"record 5");
        assert!(asked < 600, "{asked} bytes were asked for");
    }

    #[test]
    fn thousands_of_shards_do_not_use_up_files() {
        let folder = tempfile::tempdir().unwrap();
        let shards = ShardSet::new(written(folder.path(), &[2; 3000])).unwrap();
        for number in (0..6000).chain((0..6000).rev()) {
            assert_eq!(shards.read(number, &mut ReadBuffer::default()).unwrap(), format!("record {number}").as_bytes());
        }
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        assert!(open < 600, "{open} files are open");
    }
}
