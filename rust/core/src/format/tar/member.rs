//! The members of a tar archive, one after the other: ustar, GNU and pax headers.

use crate::error::{Error, Result};

/// Headers and data come in blocks of this size.
pub const BLOCK: usize = 512;

/// A long name, or a pax header, has no more bytes than this.
const MAX_NOTE: u64 = 1 << 20;

/// Bytes that are looked at from front to back.
pub trait ByteSource {
    /// The bytes from `offset` on, `length` of them or as many as there are. Offsets never go back.
    fn at(&mut self, offset: u64, length: usize) -> Result<&[u8]>;

    /// Where they end, if that is known.
    fn end(&self) -> Option<u64>;
}

/// A part of an archive in memory, and where it begins.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Its offset in the archive.
    pub begin: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Slice<'a> {
    /// The bytes from `offset` on, `length` of them or as many as there are.
    pub fn part(&self, offset: u64, length: u64) -> &'a [u8] {
        let start = offset.checked_sub(self.begin).and_then(|start| usize::try_from(start).ok());
        let rest = start.and_then(|start| self.bytes.get(start..)).unwrap_or_default();
        &rest[..usize::try_from(length).unwrap_or(usize::MAX).min(rest.len())]
    }
}

impl ByteSource for Slice<'_> {
    fn at(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        Ok(self.part(offset, length as u64))
    }

    fn end(&self) -> Option<u64> {
        Some(self.begin.saturating_add(self.bytes.len() as u64))
    }
}

/// A member: its name, and where its data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name, a long one too.
    pub name: String,
    /// Where its first header begins: that of a long name, if it has one.
    pub begin: u64,
    /// Where its data begins.
    pub data: u64,
    /// How many bytes the data has.
    pub size: u64,
    /// Whether it is a file, not a folder, a link or something else.
    pub is_file: bool,
}

impl Member {
    /// Where the next member begins.
    pub fn end(&self) -> u64 {
        padded(self.data, self.size)
    }
}

fn padded(data: u64, size: u64) -> u64 {
    data.saturating_add(size.div_ceil(BLOCK as u64).saturating_mul(BLOCK as u64))
}

/// A parsed header.
struct MemberHeader {
    kind: u8,
    name: Vec<u8>,
    size: u64,
}

/// The member whose first header is at `begin`; none, where the archive ends there. Errors have the offset.
pub fn next(source: &mut impl ByteSource, begin: u64) -> Result<Option<Member>> {
    let mut at = begin;
    let mut long_name: Option<Vec<u8>> = None;
    let mut extended = Extended::default();
    loop {
        let place = |error: Error| error.at_offset(at);
        let block = source.at(at, BLOCK)?;
        if block.len() < BLOCK {
            let message = "expected a member's header or the end of the archive, got the end of the file";
            return Err(place(Error::corrupt(format!("{message}: it is truncated"))));
        }
        if block.iter().all(|&byte| byte == 0) {
            return match at == begin {
                true => Ok(None),
                false => {
                    Err(place(Error::corrupt("expected a member after its long name, got the end of the archive")))
                }
            };
        }
        let header = header(block).map_err(place)?;
        let data = at + BLOCK as u64;
        let mut note =
            |what: &str| -> Result<Vec<u8>> {
                if header.size > MAX_NOTE {
                    let message = format!("expected {what} of at most {MAX_NOTE} bytes, got {}", header.size);
                    return Err(Error::corrupt(message).at_offset(at));
                }
                let bytes = source.at(data, header.size as usize)?;
                match bytes.len() as u64 == header.size {
                    true => Ok(bytes.to_vec()),
                    false => Err(Error::corrupt(format!("expected {what}, got the end of the file: it is truncated"))
                        .at_offset(at)),
                }
            };
        match header.kind {
            b'L' => {
                let name = note("a long name")?;
                long_name = Some(until_zero(&name).to_vec());
            }
            b'K' => drop(note("a long link")?),
            b'x' | b'X' => extended = Extended::parse(&note("a pax header")?).map_err(place)?,
            b'g' => {
                // What it says holds for all members behind it, which are read by themselves here.
                if Extended::parse(&note("a pax header")?).map_err(place)? != Extended::default() {
                    let message = "expected names and sizes in each member's own header, got one for all of them";
                    return Err(place(Error::corrupt(message)));
                }
            }
            kind => return member(source, header, begin, at, extended, long_name, kind).map(Some),
        }
        at = padded(data, header.size);
    }
}

/// Return the member of a header and of the headers before it.
fn member(
    source: &impl ByteSource,
    header: MemberHeader,
    begin: u64,
    at: u64,
    extended: Extended,
    long_name: Option<Vec<u8>>,
    kind: u8,
) -> Result<Member> {
    let name = extended.path.or(long_name).unwrap_or(header.name);
    let name = String::from_utf8(name).map_err(|error| {
        let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
        Error::corrupt(format!("expected a member's name in UTF-8, got {name:?}")).at_offset(at)
    })?;
    let data = at + BLOCK as u64;
    let size = extended.size.unwrap_or(header.size);
    let is_file = matches!(kind, b'0' | b'7') || kind == 0 && !name.ends_with('/');
    if kind == b'S' || extended.is_sparse {
        let message = format!("expected members that are stored whole, got the sparse file {name:?}");
        return Err(Error::corrupt(message).advise("Make the tar without --sparse.").at_offset(at));
    }
    // Links, devices and folders have no data, whatever size they name.
    let size = if matches!(kind, b'1'..=b'6') || kind == 0 && !is_file { 0 } else { size };
    let member = Member { name, begin, data, size, is_file };
    match source.end() {
        Some(end) if member.end() > end => {
            let (name, left) = (&member.name, end.saturating_sub(data));
            let message =
                format!("expected the {size} bytes of {name:?}, got a file that ends {left} bytes on: it is truncated");
            Err(Error::corrupt(message).at_offset(at))
        }
        None if i64::try_from(member.end()).is_err() => {
            let message = format!("expected a member that a file can hold, got {size} bytes of {:?}", member.name);
            Err(Error::corrupt(message).at_offset(at))
        }
        _ => Ok(member),
    }
}

/// Whether a block is a header: its checksum holds.
pub fn is_header(block: &[u8]) -> bool {
    header(block).is_ok()
}

fn header(block: &[u8]) -> Result<MemberHeader> {
    let block: &[u8; BLOCK] = block.try_into().map_err(|_| Error::corrupt("expected a whole block, got less"))?;
    let stored = number(&block[148..156]);
    let blank = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { b' ' } else { *byte };
    let unsigned: u64 = block.iter().enumerate().map(|pair| u64::from(blank(pair))).sum();
    // Some old programs summed signed bytes.
    let signed: i64 = block.iter().enumerate().map(|pair| i64::from(blank(pair) as i8)).sum();
    if stored != Some(unsigned) && stored.and_then(|sum| i64::try_from(sum).ok()) != Some(signed) {
        let got = stored.map_or("no number".to_owned(), |sum| sum.to_string());
        let message = format!("expected a member's header whose checksum is {unsigned}, got {got}");
        return Err(Error::corrupt(message));
    }
    let mut name = until_zero(&block[..100]).to_vec();
    let prefix = until_zero(&block[345..500]);
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let size = number(&block[124..136]).ok_or_else(|| {
        let name = String::from_utf8_lossy(&name).into_owned();
        Error::corrupt(format!("expected the size of {name:?} as a number, got other bytes"))
    })?;
    Ok(MemberHeader { kind: block[156], name, size })
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A number in octal digits, or, behind a set bit, in bytes.
fn number(field: &[u8]) -> Option<u64> {
    if let [first @ 0x80..=0xff, rest @ ..] = field {
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        if *first != 0x80 || high.iter().any(|&byte| byte != 0) {
            return None;
        }
        return Some(low.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)));
    }
    let text = std::str::from_utf8(until_zero(field)).ok()?.trim_matches(' ');
    match text {
        "" => Some(0),
        _ if text.bytes().all(|digit| digit.is_ascii_digit()) => u64::from_str_radix(text, 8).ok(),
        _ => None,
    }
}

/// The attributes of a pax header.
#[derive(Debug, Default, PartialEq, Eq)]
struct Extended {
    path: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

impl Extended {
    /// Lines of `length key=value\n`, where the length is that of the whole line.
    fn parse(mut bytes: &[u8]) -> Result<Extended> {
        let mut found = Extended::default();
        while !until_zero(bytes).is_empty() {
            let line = line(bytes).ok_or_else(|| {
                Error::corrupt("expected lines of length, key and value in a pax header, got something else")
            })?;
            bytes = &bytes[line.0..];
            match line.1 {
                b"path" => found.path = Some(line.2.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(line.2).ok().and_then(|text| text.parse().ok());
                    let wrong = || Error::corrupt("expected a size as a number in a pax header, got something else");
                    found.size = Some(size.ok_or_else(wrong)?);
                }
                key if key.starts_with(b"GNU.sparse.") => found.is_sparse = true,
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The first line's length, key and value.
fn line(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let space = bytes.iter().position(|&byte| byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let body = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|&byte| byte == b'=')?;
    Some((length, &body[..equals], &body[equals + 1..]))
}
