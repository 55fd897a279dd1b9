//! Riegeli's file layout: chunks one after the other, interrupted by a header every 64 KiB.
//!
//! FORMAT.md has the layout. What a chunk of records holds is in [`records`].

pub(crate) mod chunk_cache;
pub mod records;

use std::ops::Range;

use highway::{HighwayHash, HighwayHasher, Key};

use crate::error::{Error, Result};
use crate::limits;

/// A block header of [`BLOCK_HEADER`] bytes is at every multiple of this offset.
pub const BLOCK: u64 = 1 << 16;
/// Bytes of a block's header.
pub const BLOCK_HEADER: usize = 24;
/// Bytes of a chunk's header.
pub const CHUNK_HEADER: usize = 40;
/// What a block holds besides its header.
const USABLE: u64 = BLOCK - BLOCK_HEADER as u64;

/// The first chunk of every file, with the header of the block that it begins in.
pub const SIGNATURE: [u8; 64] = [
    0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, //
    0x40, 0, 0, 0, 0, 0, 0, 0, 0x91, 0xba, 0xc2, 0x3c, 0x92, 0x87, 0xe1, 0xa9, //
    0, 0, 0, 0, 0, 0, 0, 0, 0xe1, 0x9f, 0x13, 0xc0, 0xe9, 0xb1, 0xc3, 0x72, //
    b's', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// "Riegeli/records\n", twice.
const KEY: [u64; 4] = {
    let (name, rest) = (u64::from_le_bytes(*b"Riegeli/"), u64::from_le_bytes(*b"records\n"));
    [name, rest, name, rest]
};

/// HighwayHash-64 under Riegeli's key.
pub fn hash(bytes: &[u8]) -> u64 {
    HighwayHasher::new(Key(KEY)).hash64(bytes)
}

/// The type of a chunk. Chunk headers store these letters: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkType {
    /// Marks the file; no records.
    Signature = b's',
    /// Metadata of the file, in an encoding that Penstock does not read.
    Metadata = b'm',
    /// Unused bytes.
    Padding = b'p',
    /// Records, one after the other.
    Records = b'r',
    /// Records split into the fields of their messages, which Penstock does not read.
    Transposed = b't',
}

impl ChunkType {
    const ALL: [ChunkType; 5] =
        [ChunkType::Signature, ChunkType::Metadata, ChunkType::Padding, ChunkType::Records, ChunkType::Transposed];

    fn letter(self) -> u8 {
        self as u8
    }
}

/// A chunk's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Bytes of data, without the block headers in between.
    pub data_size: u64,
    /// Their hash.
    pub data_hash: u64,
    /// What they are.
    pub content: ChunkType,
    /// How many records they hold.
    pub records: u64,
    /// The records' bytes, once decoded.
    pub decoded_size: u64,
}

impl ChunkHeader {
    /// The header for some data.
    pub fn new(content: ChunkType, data: &[u8], records: u64, decoded_size: u64) -> ChunkHeader {
        ChunkHeader { data_size: data.len() as u64, data_hash: hash(data), content, records, decoded_size }
    }

    /// Its bytes, with their hash in front.
    pub fn to_bytes(self) -> [u8; CHUNK_HEADER] {
        let mut out = [0; CHUNK_HEADER];
        let words = [self.data_size, self.data_hash, u64::from(self.content.letter()) | self.records << 8];
        for (place, word) in out[8..].chunks_exact_mut(8).zip(words.into_iter().chain([self.decoded_size])) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let hash = hash(&out[8..]).to_le_bytes();
        out[..8].copy_from_slice(&hash);
        out
    }

    /// Reads a header whose hash holds.
    pub fn from_bytes(bytes: &[u8; CHUNK_HEADER]) -> Result<ChunkHeader> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (stored, actual) = (word(0), hash(&bytes[8..]));
        if stored != actual {
            let message = format!("expected the chunk header's hash to be {actual:#018x}, got {stored:#018x}");
            return Err(Error::corrupt(message));
        }
        let Some(content) = ChunkType::ALL.into_iter().find(|content| content.letter() == bytes[24]) else {
            return Err(Error::corrupt(format!("expected a chunk of a known type, got {:#04x}", bytes[24])));
        };
        let header = ChunkHeader {
            data_size: word(8),
            data_hash: word(16),
            content,
            records: word(24) >> 8,
            decoded_size: word(32),
        };
        Ok(header)
    }

    /// Where a chunk that begins at `begin` ends.
    pub fn end(&self, begin: u64) -> Option<u64> {
        end(begin, self.data_size.checked_add(CHUNK_HEADER as u64)?, self.records)
    }
}

/// Where a chunk ends whose header and data have `length` bytes: it takes as many bytes as it has records, or more.
fn end(begin: u64, length: u64, records: u64) -> Option<u64> {
    let least = begin.checked_add(records)?;
    // No chunk ends within the header of a block, nor right behind it.
    let into_block = (least.wrapping_neg() % BLOCK).saturating_sub(USABLE - 1);
    Some(after(begin, length)?.max(least.checked_add(into_block)?))
}

/// Where `length` bytes of a chunk end that begin at `begin`, the block headers in between counted.
fn after(begin: u64, length: u64) -> Option<u64> {
    let headers = length.checked_add((begin % BLOCK + USABLE - 1) % BLOCK)? / USABLE;
    begin.checked_add(length)?.checked_add(headers.checked_mul(BLOCK_HEADER as u64)?)
}

/// The header of the block at `block`, within a chunk that takes these bytes of the file.
fn block_header(block: u64, chunk: &Range<u64>) -> [u8; BLOCK_HEADER] {
    let mut out = [0; BLOCK_HEADER];
    out[8..16].copy_from_slice(&(block - chunk.start).to_le_bytes());
    out[16..].copy_from_slice(&(chunk.end - block).to_le_bytes());
    let hash = hash(&out[8..]).to_le_bytes();
    out[..8].copy_from_slice(&hash);
    out
}

/// The bytes of a file from an offset on.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Where they begin.
    pub begin: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A chunk whose hashes hold.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'b> {
    /// Its header.
    pub header: ChunkHeader,
    /// Its data, without block headers.
    pub data: &'b [u8],
    /// Where the next chunk begins.
    pub end: u64,
}

impl<'a> Span<'a> {
    /// The bytes at `range` of the file.
    fn get(&self, range: Range<u64>) -> Result<&'a [u8]> {
        let start = range.start.checked_sub(self.begin).and_then(|start| usize::try_from(start).ok());
        let end = range.end.checked_sub(self.begin).and_then(|end| usize::try_from(end).ok());
        start.zip(end).and_then(|(start, end)| self.bytes.get(start..end)).ok_or_else(|| {
            let end = self.begin + self.bytes.len() as u64;
            Error::corrupt(format!("expected bytes {} to {} of a chunk, got its end at {end}", range.start, range.end))
        })
    }

    /// Calls `take` with the pieces of `length` bytes of a chunk from `at` on, the block headers left out; returns
    /// where they end.
    fn pieces(&self, mut at: u64, mut length: u64, mut take: impl FnMut(&'a [u8])) -> Result<u64> {
        while length > 0 {
            if at % BLOCK == 0 {
                at += BLOCK_HEADER as u64;
            }
            let piece = length.min(BLOCK - at % BLOCK);
            take(self.get(at..at + piece)?);
            (at, length) = (at + piece, length - piece);
        }
        Ok(at)
    }

    /// The header of the chunk that begins at `at`, and where its data begins.
    pub fn header(&self, at: u64) -> Result<(ChunkHeader, u64)> {
        let mut bytes = [0; CHUNK_HEADER];
        let mut filled = 0;
        let data = self.pieces(at, CHUNK_HEADER as u64, |piece| {
            bytes[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        })?;
        Ok((ChunkHeader::from_bytes(&bytes)?, data))
    }

    /// Whether the byte that tells the type of a chunk beginning at `at` is one of a type: a look before the hash.
    pub fn may_begin(&self, at: u64) -> bool {
        let letter = after(at, 25).and_then(|end| self.get(end - 1..end).ok());
        letter.is_some_and(|letter| ChunkType::ALL.iter().any(|content| content.letter() == letter[0]))
    }

    /// The chunk that begins at `at`, all its hashes checked: its header's, those of the blocks it crosses, its data's.
    /// The data is here or, if a block header interrupts it, in `joined`.
    pub fn chunk<'b>(&self, at: u64, joined: &'b mut Vec<u8>) -> Result<Chunk<'b>>
    where
        'a: 'b,
    {
        let (header, begin) = self.header(at)?;
        let end = header.end(at).filter(|&end| end <= self.begin + self.bytes.len() as u64).ok_or_else(|| {
            let left = self.begin + self.bytes.len() as u64 - at;
            let message =
                format!("expected a chunk of {} bytes of data, got {left} bytes to its end", header.data_size);
            Error::corrupt(message)
        })?;
        let mut block = at.next_multiple_of(BLOCK);
        while block < end {
            let found = self.get(block..block + BLOCK_HEADER as u64)?;
            if found != block_header(block, &(at..end)) {
                let message = format!("expected the block at offset {block} to name its chunk, got another header");
                return Err(Error::corrupt(message));
            }
            block += BLOCK;
        }
        let in_one_piece = begin % BLOCK != 0 && begin % BLOCK + header.data_size <= BLOCK;
        let data: &'b [u8] = if in_one_piece {
            self.get(begin..begin + header.data_size)?
        } else {
            joined.clear();
            limits::reserve(joined, usize::try_from(header.data_size).unwrap_or(usize::MAX))?;
            self.pieces(begin, header.data_size, |piece| joined.extend_from_slice(piece))?;
            joined
        };
        let actual = hash(data);
        if header.data_hash != actual {
            let message =
                format!("expected the chunk's data hash to be {actual:#018x}, got {:#018x}", header.data_hash);
            return Err(Error::corrupt(message));
        }
        Ok(Chunk { header, data, end })
    }
}

/// Appends a chunk to `out`, whose end is offset `position` of the file: its header and data, which are in `chunk`,
/// with block headers in between. Returns where the chunk ends.
pub fn append(out: &mut Vec<u8>, position: u64, chunk: &[u8], records: u64) -> Result<u64> {
    let end = end(position, chunk.len() as u64, records).ok_or_else(|| Error::usage("expected a file below 16 EiB"))?;
    let (mut at, mut rest) = (position, chunk);
    while at < end {
        if at % BLOCK == 0 {
            out.extend_from_slice(&block_header(at, &(position..end)));
            at += BLOCK_HEADER as u64;
        }
        let room = (end - at).min(BLOCK - at % BLOCK);
        let (piece, later) = rest.split_at(rest.len().min(room as usize));
        out.extend_from_slice(piece);
        // What the records' number asks for beyond the data is filled with zeros.
        out.resize(out.len() + room as usize - piece.len(), 0);
        (at, rest) = (at + room, later);
    }
    Ok(end)
}

/// Bytes of data of the padding chunk that, put at `position`, ends where a block does; `None` if that is so already.
pub fn padding(position: u64) -> Option<usize> {
    let left = position.wrapping_neg() % BLOCK;
    let room = if left < CHUNK_HEADER as u64 { left + USABLE } else { left };
    (left > 0).then_some(room as usize - CHUNK_HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(content: ChunkType, data: &[u8], records: u64) -> Vec<u8> {
        [&ChunkHeader::new(content, data, records, data.len() as u64).to_bytes(), data].concat()
    }

    #[test]
    fn the_signature_is_a_chunk_like_others() {
        let mut out = Vec::new();
        assert_eq!(append(&mut out, 0, &chunk(ChunkType::Signature, b"", 0), 0).unwrap(), 64);
        assert_eq!(out, SIGNATURE);
    }

    #[test]
    fn chunks_come_back_wherever_they_begin_and_end() {
        let data: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for begin in [0, 25, 64, 1000, BLOCK - 41, BLOCK - 40, BLOCK - 39, BLOCK - 1, BLOCK, BLOCK + 25, 5 * BLOCK - 17]
        {
            for length in [0, 1, 300, 65_447, 65_471, 65_472, 65_473, 65_488, 130_000, 200_000] {
                for records in [0, 1, 100, 65_000, 65_511, 65_536, 65_537, 65_560, 300_000] {
                    let chunk = chunk(ChunkType::Records, &data[..length], records);
                    let mut bytes = Vec::new();
                    let end = append(&mut bytes, begin, &chunk, records).unwrap();
                    assert_eq!(begin + bytes.len() as u64, end);
                    assert!(
                        end % BLOCK == 0 || end % BLOCK > BLOCK_HEADER as u64,
                        "not within a block's header: {end}"
                    );
                    assert!(end - begin >= records);
                    let mut joined = Vec::new();
                    let read = Span { begin, bytes: &bytes }.chunk(begin, &mut joined).unwrap();
                    assert_eq!((read.data, read.end), (&data[..length], end));
                    let cut = Span { begin, bytes: &bytes[..bytes.len() - 1] };
                    assert!(cut.chunk(begin, &mut Vec::new()).is_err());
                }
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (begin, data) = (BLOCK - 50, b"some records");
        let mut bytes = Vec::new();
        append(&mut bytes, begin, &chunk(ChunkType::Records, data, 3), 3).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Span { begin, bytes: &bad }.chunk(begin, &mut Vec::new()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn numbers_that_nothing_backs_are_refused() {
        for (data_size, records) in [(u64::MAX, 0), (u64::MAX - 60, 0), (1 << 40, 1), (0, (1 << 56) - 1), (0, 1000)] {
            let header =
                ChunkHeader { data_size, data_hash: hash(b""), content: ChunkType::Records, records, decoded_size: 0 };
            let bytes = [&header.to_bytes()[..], &[0; 100]].concat();
            for begin in [64, u64::MAX - 1000] {
                assert!(Span { begin, bytes: &bytes }.chunk(begin, &mut Vec::new()).is_err());
            }
        }
    }

    #[test]
    fn padding_ends_with_its_block() {
        for position in (1..2 * BLOCK).filter(|at| at % BLOCK == 0 || at % BLOCK > BLOCK_HEADER as u64) {
            let Some(length) = padding(position) else {
                assert_eq!(position % BLOCK, 0);
                continue;
            };
            let header = ChunkHeader { data_size: length as u64, ..ChunkHeader::new(ChunkType::Padding, b"", 0, 0) };
            assert_eq!(header.end(position).unwrap() % BLOCK, 0, "{position}");
        }
    }
}
