//! Where the samples of a tar archive begin: its headers are read, its data is not.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use super::member::{next, Member, Source};
use super::sample::{duplicate, key_and_extension};
use crate::error::{Error, Result};
use crate::file::{Plain, Pulse, WINDOW};
use crate::inflate::{read_error, Compression};

/// What is read at first, and after a jump: a header, and the small members behind it with theirs.
const FIRST: u64 = 1 << 12;

/// The samples of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Where each sample begins, and where the last one ends. What stands between two belongs to the first of them.
    pub offsets: Vec<u64>,
    /// Their keys.
    pub keys: Vec<String>,
    /// How many samples have a file of this extension.
    pub extensions: BTreeMap<String, u64>,
}

/// A file, a window at a time. Windows grow where one is read after the other; where members are large, and their data is
/// jumped over, they stay small.
struct Windows<'a> {
    file: &'a Plain,
    window: Vec<u8>,
    start: u64,
    length: u64,
    step: u64,
}

impl<'a> Windows<'a> {
    fn new(file: &'a Plain) -> Windows<'a> {
        Windows { file, window: Vec::new(), start: 0, length: 0, step: FIRST }
    }
}

impl Source for Windows<'_> {
    fn at(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let end = offset.saturating_add(length as u64).min(self.file.size());
        if offset >= end {
            return Ok(&[]);
        }
        if offset < self.start || end > self.start + self.length {
            let near = offset < self.start.saturating_add(self.length).saturating_add(self.step);
            self.step = if near { WINDOW.min(4 * self.step as usize) as u64 } else { FIRST };
            (self.start, self.length) = (offset, self.step.max(end - offset).min(self.file.size() - offset));
            self.file.read_into(&mut self.window, self.start, self.length)?;
        }
        Ok(&self.window[(offset - self.start) as usize..(end - self.start) as usize])
    }

    fn end(&self) -> Option<u64> {
        Some(self.file.size())
    }
}

/// A stream: what is left out is read over.
struct Stream<R> {
    stream: R,
    offset: u64,
    bytes: Vec<u8>,
}

impl<R: Read> Source for Stream<R> {
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
pub fn scan(file: &Plain, compression: Compression, most: usize, pulse: Pulse<'_>) -> Result<Listing> {
    let listing = match compression {
        Compression::None => {
            list(&mut Windows::new(file), 0, most, pulse).map(|mut listing| {
                // The end of the archive, and what may stand behind it, go with the last sample.
                if listing.keys.len() < most {
                    if let Some(end) = listing.offsets[1..].last_mut() {
                        *end = file.size();
                    }
                }
                listing
            })
        }
        _ => {
            let mut stream = Stream { stream: file.stream(compression), offset: 0, bytes: Vec::new() };
            list(&mut stream, 0, most, pulse).and_then(|listing| {
                // To the end, where the checksum of what was compressed stands.
                if listing.keys.len() < most {
                    std::io::copy(&mut stream.stream, &mut std::io::sink()).map_err(|error| read_error(&error))?;
                }
                Ok(listing)
            })
        }
    };
    listing.map_err(|error| error.in_file(file.path()))
}

/// Whether what begins at an offset is a single sample, and the archive ends behind it.
pub(super) fn is_last(file: &Plain, start: u64) -> bool {
    list(&mut Windows::new(file), start, 2, &mut |_| Ok(())).is_ok_and(|listing| listing.keys.len() == 1)
}

fn list(source: &mut impl Source, start: u64, most: usize, pulse: Pulse<'_>) -> Result<Listing> {
    let mut listing = Listing { offsets: vec![start], ..Listing::default() };
    let mut begins: HashMap<String, u64> = HashMap::new();
    let mut extensions: Vec<String> = Vec::new();
    let (mut at, mut members) = (start, 0u64);
    loop {
        let current = (listing.keys.len() as u64).saturating_sub(1);
        let place = |error: Error| error.in_record(current);
        let Some(member) = next(source, at).map_err(place)? else { break };
        at = member.end();
        members += 1;
        if members % 1024 == 0 {
            pulse(at)?;
        }
        let Some((key, extension)) = key_and_extension(&member).map_err(place)? else { continue };
        if listing.keys.last().is_none_or(|last| last != key) {
            if listing.keys.len() == most {
                at = member.begin;
                break;
            }
            if let Some(&before) = begins.get(key) {
                return Err(place(apart(&member, before)));
            }
            if !listing.keys.is_empty() {
                listing.offsets.push(member.begin);
            }
            begins.insert(key.to_owned(), member.begin);
            listing.keys.push(key.to_owned());
            extensions.clear();
        }
        if extensions.contains(&extension) || extension == super::KEY {
            return Err(duplicate(&member).in_record(listing.keys.len() as u64 - 1));
        }
        *listing.extensions.entry(extension.clone()).or_default() += 1;
        extensions.push(extension);
    }
    if !listing.keys.is_empty() {
        listing.offsets.push(at);
    }
    Ok(listing)
}

/// The error for a file that stands apart from the others of its key.
fn apart(member: &Member, before: u64) -> Error {
    let name = &member.name;
    let message =
        format!("expected the files of a sample one after the other, got {name:?} apart from those at offset {before}");
    let advice = "Sort the archive by name: `tar --sort=name`.";
    Error::corrupt(message).advise(advice).at_offset(member.begin)
}
