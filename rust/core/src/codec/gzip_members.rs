//! Inflates damaged gzip and zlib files: every byte before the damage, and every undamaged member behind it.

use std::ops::Range;

use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::codec::stream::{Compression, TRUNCATED};
use crate::error::Result;
use crate::io::file::{Progress, WINDOW};
use crate::io::window_reader::WindowReader;
use crate::limits::max_inflated_bytes;

/// The search for members may inflate this many times the file's size; a file made to cost more is given up.
const SEARCH_BUDGET: u64 = 16;
/// A gzip header with a name and a comment is read up to this many bytes.
const MAX_HEADER: u64 = 1 << 16;
/// Bytes inflated at a time.
const STEP: usize = 1 << 16;
/// Reports of damage beyond this many are left out.
const MAX_BREAKS: usize = 100;

/// A place in the inflated bytes where the compressed stream is damaged, and the reason.
pub(crate) struct Break {
    pub(crate) offset: u64,
    pub(crate) reason: String,
}

/// The inflated bytes of all members, one behind the other.
#[derive(Default)]
pub(crate) struct Members {
    pub(crate) bytes: Vec<u8>,
    pub(crate) breaks: Vec<Break>,
}

/// How the deflate stream of a member ends.
enum End {
    /// At this offset of the file.
    Whole(u64),
    Broken(String),
    /// More than [`max_inflated_bytes`] bytes.
    Full,
}

impl Members {
    /// Inflates as much as possible of a gzip or zlib file.
    pub(crate) fn inflate(
        file: &mut WindowReader<'_>,
        compression: Compression,
        progress: Progress<'_>,
    ) -> Result<Members> {
        let format = MemberFormat::of(compression);
        let size = file.size();
        let mut members = Members::default();
        let mut budget = size.saturating_mul(SEARCH_BUDGET).saturating_add(WINDOW as u64);
        let mut at = 0;
        while at < size && budget > 0 {
            let (begin, before) = (at, members.bytes.len());
            let header = format.header(file.at(begin, MAX_HEADER)?);
            if header.is_none() {
                members.note(format!("expected a {} header, got other bytes", compression.name()));
            }
            let header = header.unwrap_or(format.header as u64);
            let mut end = members.inflate_one(file, begin + header, &mut budget, progress)?;
            if matches!(end, End::Broken(_)) && header != format.header as u64 {
                // Damage in the header may announce parts that do not exist.
                let mut other = Members::default();
                let other_end = other.inflate_one(file, begin + format.header as u64, &mut budget, progress)?;
                if other.bytes.len() > members.bytes.len() - before {
                    members.bytes.truncate(before);
                    members.bytes.append(&mut other.bytes);
                    end = other_end;
                }
            }
            at = match end {
                End::Full => {
                    members.note(format!("expected at most {} inflated bytes, got more", max_inflated_bytes()));
                    break;
                }
                End::Broken(reason) => {
                    members.note(reason);
                    format.search(file, begin + 1)?
                }
                End::Whole(end) => {
                    let next = end + format.trailer as u64;
                    let trailer = file.at(end.min(size), format.trailer as u64)?;
                    let is_whole = match format.check(trailer, &members.bytes[before..]) {
                        Ok(()) => true,
                        Err(reason) => {
                            members.note(reason);
                            false
                        }
                    };
                    let follows = next >= size || format.header(file.at(next, MAX_HEADER)?).is_some();
                    match (follows, is_whole) {
                        (true, _) => next,
                        // Its header may be all that is damaged.
                        (false, true) => next,
                        // Damage may have moved the end of this member.
                        (false, false) => format.search(file, begin + 1)?,
                    }
                }
            };
        }
        Ok(members)
    }

    fn note(&mut self, reason: String) {
        let offset = self.bytes.len() as u64;
        let is_known = self.breaks.last().is_some_and(|last| last.offset == offset);
        if !is_known && self.breaks.len() < MAX_BREAKS {
            self.breaks.push(Break { offset, reason });
        }
    }

    /// Appends the bytes of the deflate stream at `at`.
    fn inflate_one(
        &mut self,
        file: &mut WindowReader<'_>,
        mut at: u64,
        budget: &mut u64,
        progress: Progress<'_>,
    ) -> Result<End> {
        let mut inflater = Decompress::new(false);
        let mut piece = vec![0; STEP];
        loop {
            progress(at)?;
            let input = file.at(at.min(file.size()), STEP as u64)?;
            let (before_in, before_out) = (inflater.total_in(), inflater.total_out());
            // What was inflated before an error counts: the inflater's own total says how much that is.
            let outcome = inflater.decompress(input, &mut piece, FlushDecompress::None);
            let (read, made) = (inflater.total_in() - before_in, (inflater.total_out() - before_out) as usize);
            let is_end = input.is_empty();
            at += read;
            *budget = budget.saturating_sub(read + made as u64 / 64);
            if (self.bytes.len() + made) as u64 > max_inflated_bytes() || self.bytes.try_reserve(made).is_err() {
                return Ok(End::Full);
            }
            self.bytes.extend_from_slice(&piece[..made]);
            match outcome {
                Ok(Status::StreamEnd) => return Ok(End::Whole(at)),
                Err(error) => {
                    return Ok(End::Broken(format!("expected a compressed stream, got broken bytes ({error})")));
                }
                Ok(_) if is_end && made == 0 => return Ok(End::Broken(TRUNCATED.into())),
                Ok(_) if *budget == 0 => {
                    return Ok(End::Broken("expected fewer damaged members, got too many to search".into()));
                }
                Ok(_) => {}
            }
        }
    }
}

/// What surrounds the deflate stream of a member.
struct MemberFormat {
    is_gzip: bool,
    /// Bytes of the shortest header.
    header: usize,
    trailer: usize,
}

impl MemberFormat {
    fn of(compression: Compression) -> MemberFormat {
        match compression {
            Compression::Gzip => MemberFormat { is_gzip: true, header: 10, trailer: 8 },
            _ => MemberFormat { is_gzip: false, header: 2, trailer: 4 },
        }
    }

    /// The length of the header that `bytes` begin with.
    fn header(&self, bytes: &[u8]) -> Option<u64> {
        if !self.is_gzip {
            return (bytes.len() >= 2 && Compression::detect(&bytes[..2]) == Compression::Zlib).then_some(2);
        }
        let flags = match bytes {
            [0x1f, 0x8b, 0x08, flags, ..] if bytes.len() >= self.header && flags & 0xe0 == 0 => *flags,
            _ => return None,
        };
        let mut at = self.header;
        if flags & 4 != 0 {
            at += 2 + usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        }
        for flag in [8, 16] {
            if flags & flag != 0 {
                at += bytes.get(at..)?.iter().position(|&byte| byte == 0)? + 1;
            }
        }
        at += if flags & 2 != 0 { 2 } else { 0 };
        (at <= bytes.len()).then_some(at as u64)
    }

    /// Compares a trailer with the bytes of its member.
    fn check(&self, trailer: &[u8], bytes: &[u8]) -> std::result::Result<(), String> {
        if trailer.len() < self.trailer {
            return Err(TRUNCATED.into());
        }
        let word = |range: Range<usize>| trailer[range].try_into().map(u32::from_le_bytes).unwrap_or(0);
        let (expected, got) = if self.is_gzip {
            let mut crc = Crc::new();
            crc.update(bytes);
            ((word(0..4), word(4..8)), (crc.sum(), bytes.len() as u32))
        } else {
            ((word(0..4).swap_bytes(), 0), (libdeflater::adler32(bytes), 0))
        };
        match expected == got {
            true => Ok(()),
            false => {
                Err(format!("expected the checksum {:#010x} of the inflated bytes, got {:#010x}", expected.0, got.0))
            }
        }
    }

    /// The offset of the next member's header at or behind `from`, or the end of the file.
    fn search(&self, file: &mut WindowReader<'_>, from: u64) -> Result<u64> {
        let (size, mut start) = (file.size(), from);
        while start < size {
            let window = file.at(start, WINDOW as u64)?;
            let length = window.len();
            let first: &[u8] = if self.is_gzip { &[0x1f, 0x8b, 0x08] } else { &[0x78] };
            let found = (0..length).find(|&at| window[at..].starts_with(first) && self.header(&window[at..]).is_some());
            match found {
                Some(at) => return Ok(start + at as u64),
                // A header may begin at the end of a window.
                None if start + length as u64 == size => return Ok(size),
                None => start += (length - self.header) as u64,
            }
        }
        Ok(size)
    }
}
