//! Finds the samples of a tar archive: reads its headers, not its data.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::ops::Range;

use super::member::{next, ByteSource, Member};
use super::sample::{duplicate, key_and_extension};
use crate::codec::stream::{read_error, Compression};
use crate::error::{Error, Result};
use crate::io::file::{Progress, RandomAccessFile};
use crate::io::window_reader::WindowReader;

/// The samples of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Where each sample begins, and where the last one ends: in the archive, where the files of each sample are next
    /// to each other, and what is between two samples belongs to the first of them; else in its segments, put in a row.
    pub offsets: Vec<u64>,
    /// Where the files of scattered samples are, in the order of samples: none where the samples are contiguous.
    pub segments: Vec<Range<u64>>,
    /// Their keys.
    pub keys: Vec<String>,
    /// How many samples have a file of this extension.
    pub extensions: BTreeMap<String, u64>,
    /// Where the last member that was listed ends.
    pub end: u64,
}

impl ByteSource for WindowReader<'_> {
    fn at(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        WindowReader::at(self, offset, length as u64)
    }

    fn end(&self) -> Option<u64> {
        Some(self.size())
    }
}

/// A stream: what is left out is read over.
struct StreamSource<R> {
    stream: R,
    offset: u64,
    bytes: Vec<u8>,
}

impl<R: Read> ByteSource for StreamSource<R> {
    fn at(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let skip = offset.saturating_sub(self.offset);
        let skipped = std::io::copy(&mut (&mut self.stream).take(skip), &mut std::io::sink());
        self.offset += skipped.map_err(|error| read_error(&error).at_offset(offset))?;
        self.bytes.clear();
        if self.offset == offset {
            let read = (&mut self.stream).take(length as u64).read_to_end(&mut self.bytes);
            self.offset += read.map_err(|error| read_error(&error).at_offset(offset))? as u64;
        }
        Ok(&self.bytes)
    }

    fn end(&self) -> Option<u64> {
        None
    }
}

/// Lists an archive, or its first `most` samples. Errors have the file and the offset.
pub fn scan(file: &RandomAccessFile, compression: Compression, most: usize, progress: Progress<'_>) -> Result<Listing> {
    let (found, error) = scan_until_damage(file, compression, most, progress);
    error.map_or_else(|| Ok(found.listing(file, compression, most)), Err)
}

/// The same up to the first error: the members before it are listed.
pub(super) fn scan_until_damage(
    file: &RandomAccessFile,
    compression: Compression,
    most: usize,
    progress: Progress<'_>,
) -> (Found, Option<Error>) {
    let mut found = Found::new(0);
    let listed = match compression {
        Compression::None => found.list(&mut WindowReader::new(file), most, progress),
        _ => {
            let mut stream = StreamSource { stream: file.stream(compression), offset: 0, bytes: Vec::new() };
            found.list(&mut stream, most, progress).and_then(|()| {
                // To the end, where the checksum of what was compressed stands.
                if found.keys.len() < most {
                    std::io::copy(&mut stream.stream, &mut std::io::sink()).map_err(|error| read_error(&error))?;
                }
                Ok(())
            })
        }
    };
    (found, listed.err().map(|error| error.in_file(file.path())))
}

/// Whether what begins at an offset is a single sample, and the archive ends behind it; with `end`, right there.
pub(super) fn is_last(file: &RandomAccessFile, start: u64, end: Option<u64>) -> bool {
    let mut found = Found::new(start);
    found.list(&mut WindowReader::new(file), 2, &mut |_| Ok(())).is_ok()
        && found.keys.len() == 1
        && end.is_none_or(|end| found.runs.last().is_some_and(|run| run.1.end == end))
}

/// What a scan has found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    start: u64,
    at: u64,
    pub(super) keys: Vec<String>,
    /// The number of each key's sample.
    samples: HashMap<String, usize>,
    /// Members of one sample that follow each other, in the order of the archive, and the number of the sample.
    runs: Vec<(usize, Range<u64>)>,
    extensions: BTreeMap<String, (usize, u64)>,
    /// Each file's sample and the number of its extension.
    files: HashSet<(usize, usize)>,
}

impl Found {
    fn new(start: u64) -> Found {
        Found { start, at: start, ..Found::default() }
    }

    fn list(&mut self, source: &mut impl ByteSource, most: usize, progress: Progress<'_>) -> Result<()> {
        let mut members = 0u64;
        loop {
            let current = self.runs.last().map_or(0, |run| run.0 as u64);
            let place = |error: Error| error.in_record(current);
            let Some(member) = next(source, self.at).map_err(place)? else { return Ok(()) };
            members += 1;
            if members % 1024 == 0 {
                progress(member.end())?;
            }
            if let Some((key, extension)) = key_and_extension(&member).map_err(place)? {
                if !self.add(&member, key, extension, most)? {
                    return Ok(());
                }
            }
            self.at = member.end();
        }
    }

    /// Adds a file to its sample; false where that would be one more than `most`.
    fn add(&mut self, member: &Member, key: &str, extension: String, most: usize) -> Result<bool> {
        let sample = match self.samples.get(key) {
            Some(&sample) => sample,
            None if self.keys.len() == most => return Ok(false),
            None => {
                self.samples.insert(key.to_owned(), self.keys.len());
                self.keys.push(key.to_owned());
                self.keys.len() - 1
            }
        };
        let known = self.extensions.len();
        let is_key = extension == super::KEY;
        let (number, count) = self.extensions.entry(extension).or_insert((known, 0));
        if is_key || !self.files.insert((sample, *number)) {
            return Err(duplicate(member).in_record(sample as u64));
        }
        *count += 1;
        match self.runs.last_mut() {
            Some((last, run)) if *last == sample => run.end = member.end(),
            _ => self.runs.push((sample, member.begin..member.end())),
        }
        Ok(true)
    }

    /// Whether the files of some sample are not next to each other.
    pub(super) fn is_scattered(&self) -> bool {
        self.runs.len() > self.keys.len()
    }

    /// The extensions that other samples have, and this one does not.
    pub(super) fn missing(&self, sample: usize) -> Vec<&str> {
        let lacks = |(_, (number, _)): &(&String, &(usize, u64))| !self.files.contains(&(sample, *number));
        self.extensions.iter().filter(lacks).map(|(extension, _)| extension.as_str()).collect()
    }

    /// The listing of what was found, which has fewer than `most` samples if that is all.
    pub(super) fn listing(self, file: &RandomAccessFile, compression: Compression, most: usize) -> Listing {
        let is_scattered = self.is_scattered();
        let Found { start, at, keys, mut runs, extensions, .. } = self;
        let extensions = extensions.into_iter().map(|(extension, (_, count))| (extension, count)).collect();
        let mut listing = Listing { offsets: vec![start], segments: Vec::new(), keys, extensions, end: at };
        if !is_scattered {
            listing.offsets.extend(runs.iter().skip(1).map(|(_, run)| run.start));
            if !listing.keys.is_empty() {
                // The end of the archive, and what may stand behind it, go with the last sample.
                let all = compression == Compression::None && listing.keys.len() < most;
                listing.offsets.push(if all { file.size() } else { at });
            }
            return listing;
        }
        runs.sort_by_key(|run| run.0);
        let mut end = 0;
        for (number, (sample, run)) in runs.iter().enumerate() {
            end += run.end - run.start;
            if runs.get(number + 1).is_none_or(|next| next.0 != *sample) {
                listing.offsets.push(end);
            }
        }
        listing.segments = runs.into_iter().map(|(_, run)| run).collect();
        listing
    }
}
