//! The data of a chunk of records: their sizes and their bytes, each compressed as one piece.

use std::fmt;
use std::io::{Cursor, Read};

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

use super::{Chunk, ChunkHeader, ChunkType, CHUNK_HEADER};
use crate::codec::protobuf::{put_varint, varint, varint_length};
use crate::error::{Error, Result};
use crate::limits;

/// A chunk may declare this many bytes for each byte on disk, if it has more than [`limits::max_row_bytes`] once
/// decoded.
const MAX_RATIO: u64 = 16;
/// What zstd may look back, as a power of two: what the format's own library takes.
const ZSTD_WINDOW: u32 = 20;
/// The same for brotli.
const BROTLI_WINDOW: i32 = 22;
/// Maximum inflated bytes per compressed byte of Snappy.
const MAX_SNAPPY_RATIO: u64 = 22;

/// Up to so many bytes zstd only stores: the sizes of a chunk with one record are that few.
const STORED: usize = 8;

/// What zstd puts before so many bytes that it only stores: magic, a size of one byte, the header of a single block.
fn stored(length: u8) -> [u8; 9] {
    let [low, high] = (u16::from(length) << 3 | 1).to_le_bytes();
    [0x28, 0xb5, 0x2f, 0xfd, 0x20, length, low, high, 0]
}

/// How chunks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkCompression {
    /// Not at all.
    None,
    /// Zstandard, at a level.
    Zstd(i32),
    /// Brotli, at a level.
    Brotli(i32),
    /// Snappy, which has no levels.
    Snappy,
}

impl ChunkCompression {
    /// By its name and a level, or the usual level.
    pub fn parse(name: &str, level: Option<i32>) -> Result<ChunkCompression> {
        let within = |level: i32, least: i32, most: i32| {
            let fits = (least..=most).contains(&level);
            let message = || format!("expected a level from {least} to {most} for {name}, got {level}");
            fits.then_some(level).ok_or_else(|| Error::usage(message()))
        };
        match (name, level) {
            ("zstd", level) => Ok(ChunkCompression::Zstd(within(level.unwrap_or(3), -5, 22)?)),
            ("brotli", level) => Ok(ChunkCompression::Brotli(within(level.unwrap_or(6), 0, 11)?)),
            ("none" | "snappy", Some(level)) => Err(Error::usage(format!("expected no level for {name}, got {level}"))),
            ("snappy", None) => Ok(ChunkCompression::Snappy),
            ("none", None) => Ok(ChunkCompression::None),
            _ => Err(Error::usage(format!("expected the compression none, zstd, brotli or snappy, got {name:?}"))),
        }
    }

    fn letter(self) -> u8 {
        let codec = match self {
            ChunkCompression::None => ChunkCodec::None,
            ChunkCompression::Zstd(_) => ChunkCodec::Zstd,
            ChunkCompression::Brotli(_) => ChunkCodec::Brotli,
            ChunkCompression::Snappy => ChunkCodec::Snappy,
        };
        codec as u8
    }
}

/// The codec of a chunk's data. Chunks store these letters: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ChunkCodec {
    None = 0,
    Zstd = b'z',
    Brotli = b'b',
    Snappy = b's',
}

impl ChunkCodec {
    fn from_letter(letter: u8) -> Option<ChunkCodec> {
        let all = [ChunkCodec::None, ChunkCodec::Zstd, ChunkCodec::Brotli, ChunkCodec::Snappy];
        all.into_iter().find(|codec| *codec as u8 == letter)
    }
}

impl fmt::Display for ChunkCompression {
    /// As the options that a writer leaves in a file name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChunkCompression::None => f.write_str("uncompressed"),
            ChunkCompression::Zstd(level) => write!(f, "zstd:{level},window_log:{ZSTD_WINDOW}"),
            ChunkCompression::Brotli(level) => write!(f, "brotli:{level}"),
            ChunkCompression::Snappy => f.write_str("snappy"),
        }
    }
}

/// A chunk that is ready to be put somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of its header and its data.
    pub length: usize,
    /// How many records.
    pub records: u64,
    /// Their bytes.
    pub decoded_size: u64,
}

/// Maximum decoded bytes of a chunk with this much data: more is refused as an attack.
fn warranted(data: usize) -> u64 {
    limits::max_row_bytes().max((data as u64).saturating_mul(MAX_RATIO))
}

/// Makes chunks of records.
pub struct Packer {
    compression: ChunkCompression,
    zstd: Option<Compressor<'static>>,
    snappy: snap::raw::Encoder,
    sizes: Vec<u8>,
    values: Vec<u8>,
    compressed: Vec<u8>,
}

impl Packer {
    /// With memory of its own.
    pub fn new(compression: ChunkCompression) -> Result<Packer> {
        let zstd = match compression {
            ChunkCompression::Zstd(level) => {
                let compressor = Compressor::new(level).and_then(|mut zstd| {
                    zstd.set_parameter(CParameter::WindowLog(ZSTD_WINDOW))?;
                    Ok(zstd)
                });
                Some(compressor.map_err(|error| Error::io("starting zstd failed", &error))?)
            }
            _ => None,
        };
        let snappy = snap::raw::Encoder::new();
        Ok(Packer { compression, zstd, snappy, sizes: Vec::new(), values: Vec::new(), compressed: Vec::new() })
    }

    /// Appends the header and the data of a chunk to `out`.
    pub fn pack(&mut self, records: &[&[u8]], out: &mut Vec<u8>) -> Result<Packed> {
        let mut sizes = std::mem::take(&mut self.sizes);
        sizes.clear();
        records.iter().for_each(|record| put_varint(&mut sizes, record.len() as u64));
        let mut joined = std::mem::take(&mut self.values);
        let values = match records {
            [record] => record,
            _ => {
                joined.clear();
                records.iter().for_each(|record| joined.extend_from_slice(record));
                &joined[..]
            }
        };
        let start = out.len();
        self.pack_as(self.compression, &sizes, values, out)?;
        let length = out.len() - start - CHUNK_HEADER;
        let plain = 1 + varint_length(sizes.len() as u64) + sizes.len() + values.len();
        // What becomes no smaller is left as it is; what becomes too small, no reader of ours would believe.
        if length >= plain || values.len() as u64 > warranted(length) {
            out.truncate(start);
            self.pack_as(ChunkCompression::None, &sizes, values, out)?;
        }
        let (count, decoded_size) = (records.len() as u64, values.len() as u64);
        let header = ChunkHeader::new(ChunkType::Records, &out[start + CHUNK_HEADER..], count, decoded_size);
        out[start..start + CHUNK_HEADER].copy_from_slice(&header.to_bytes());
        (self.sizes, self.values) = (sizes, joined);
        Ok(Packed { length: out.len() - start, records: count, decoded_size })
    }

    /// Appends room for a header, and the data.
    fn pack_as(&mut self, compression: ChunkCompression, sizes: &[u8], values: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&[0; CHUNK_HEADER]);
        out.push(compression.letter());
        let mut packed = std::mem::take(&mut self.compressed);
        packed.clear();
        self.compress(compression, sizes, &mut packed)?;
        put_varint(out, packed.len() as u64);
        out.extend_from_slice(&packed);
        self.compressed = packed;
        self.compress(compression, values, out)
    }

    fn compress(&mut self, compression: ChunkCompression, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if compression != ChunkCompression::None {
            put_varint(out, bytes.len() as u64);
        }
        let start = out.len();
        let fail = |error: std::io::Error| Error::io("compressing failed", &error);
        match (compression, &mut self.zstd) {
            (ChunkCompression::Zstd(_), _) if bytes.len() <= STORED => {
                out.extend(stored(bytes.len() as u8).iter().chain(bytes))
            }
            (ChunkCompression::Zstd(_), Some(zstd)) => {
                out.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
                let mut room = Cursor::new(&mut *out);
                room.set_position(start as u64);
                zstd.compress_to_buffer(bytes, &mut room).map_err(fail)?;
            }
            (ChunkCompression::Brotli(quality), _) => {
                let mut options =
                    brotli::enc::BrotliEncoderParams { quality, lgwin: BROTLI_WINDOW, ..Default::default() };
                options.size_hint = bytes.len();
                brotli::BrotliCompress(&mut &bytes[..], out, &options).map_err(fail)?;
            }
            (ChunkCompression::Snappy, _) => {
                out.resize(start + snap::raw::max_compress_len(bytes.len()), 0);
                let length = self.snappy.compress(bytes, &mut out[start..]);
                let length = length.map_err(|error| Error::usage(format!("compressing failed: {error}")))?;
                out.truncate(start + length);
            }
            (ChunkCompression::None | ChunkCompression::Zstd(_), _) => out.extend_from_slice(bytes),
        }
        Ok(())
    }
}

/// Takes the records out of chunks, and keeps them in memory that is used again.
#[derive(Default)]
pub struct Unpacker {
    zstd: Option<Decompressor<'static>>,
    sizes: Vec<u8>,
    bytes: Vec<u8>,
    spans: Vec<(usize, usize)>,
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker").field("records", &self.spans.len()).finish_non_exhaustive()
    }
}

fn broken(what: &str) -> Error {
    Error::corrupt(format!("expected the chunk's data to have {what}, got something else"))
}

impl Unpacker {
    /// Remove all records.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Remove the first records.
    pub fn remove_first(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let kept = self.spans.get(count).map_or(self.bytes.len(), |&(start, _)| start);
        self.bytes.drain(..kept);
        self.spans.drain(..count.min(self.spans.len()));
        self.spans.iter_mut().for_each(|(start, end)| (*start, *end) = (*start - kept, *end - kept));
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// A record.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        self.spans.get(number).map(|&(start, end)| &self.bytes[start..end])
    }

    /// All records.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone + '_ {
        self.spans.iter().map(|&(start, end)| &self.bytes[start..end])
    }

    /// Adds the records of a chunk. An error leaves those before.
    pub fn unpack(&mut self, chunk: &Chunk<'_>) -> Result<()> {
        let (records, bytes) = (self.spans.len(), self.bytes.len());
        let outcome = self.add(&chunk.header, chunk.data);
        if outcome.is_err() {
            self.spans.truncate(records);
            self.bytes.truncate(bytes);
        }
        outcome
    }

    fn add(&mut self, header: &ChunkHeader, data: &[u8]) -> Result<()> {
        match header.content {
            ChunkType::Records => {}
            ChunkType::Transposed => return Err(transposed()),
            other => return Err(Error::corrupt(format!("expected a chunk of records, got one of {other:?}"))),
        }
        let mut position = 1;
        let sizes_length = varint(data, &mut position).and_then(|length| usize::try_from(length).ok());
        let sizes_end = sizes_length.and_then(|length| position.checked_add(length));
        let (Some(&letter), Some(sizes_end)) = (data.first(), sizes_end.filter(|&end| end <= data.len())) else {
            return Err(broken("a size for its sizes"));
        };
        let (packed_sizes, packed_values) = (&data[position..sizes_end], &data[sizes_end..]);
        let first = self.bytes.len();
        let (sizes, start) = if letter == 0 {
            self.bytes.extend_from_slice(data);
            (packed_sizes, first + sizes_end)
        } else {
            self.sizes.clear();
            let most = header.records.saturating_mul(10);
            decompress(letter, packed_sizes, ..=most, &mut self.zstd, &mut self.sizes)?;
            let (warranted, declared) = (warranted(data.len()), header.decoded_size);
            if declared > warranted {
                return Err(limits::too_large("a chunk of records", declared));
            }
            decompress(
                letter,
                packed_values,
                header.decoded_size..=header.decoded_size,
                &mut self.zstd,
                &mut self.bytes,
            )?;
            (&self.sizes[..], first)
        };
        if (self.bytes.len() - start) as u64 != header.decoded_size {
            return Err(broken("as many bytes as its header says"));
        }
        let (mut position, mut at) = (0, start);
        limits::reserve(&mut self.spans, usize::try_from(header.records).unwrap_or(0).min(sizes.len()))?;
        for _ in 0..header.records {
            let size = varint(sizes, &mut position).and_then(|size| usize::try_from(size).ok());
            let end = size.and_then(|size| at.checked_add(size)).filter(|&end| end <= self.bytes.len());
            let Some(end) = end else { return Err(broken("a size for each record")) };
            self.spans.push((at, end));
            at = end;
        }
        if position != sizes.len() || at != self.bytes.len() {
            return Err(broken("sizes that add up to its records"));
        }
        Ok(())
    }
}

/// The error for records that were taken apart.
pub fn transposed() -> Error {
    let advice =
        "Copy the records into a file that is not: read them with the array_record package, write them with ours.";
    Error::usage("expected a chunk of whole records, got a transposed one, which only its own library reads")
        .advise(advice)
}

/// Appends what a compressed piece holds: its declared size must be within `sizes`, and true.
fn decompress(
    letter: u8,
    piece: &[u8],
    sizes: impl std::ops::RangeBounds<u64>,
    zstd: &mut Option<Decompressor<'static>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut position = 0;
    let declared = varint(piece, &mut position).filter(|size| sizes.contains(size));
    let Some(declared) = declared.and_then(|size| usize::try_from(size).ok()) else {
        return Err(broken("a piece of the size that its header says"));
    };
    let (packed, start) = (&piece[position..], out.len());
    let whole = match ChunkCodec::from_letter(letter) {
        Some(ChunkCodec::Zstd) => unzstd(packed, declared, zstd, out)?,
        Some(ChunkCodec::Brotli) => {
            let mut inflated = brotli::Decompressor::new(packed, 4096).take(declared as u64 + 1);
            inflated.read_to_end(out).is_ok()
        }
        Some(ChunkCodec::Snappy) => {
            let fits = declared as u64 <= (packed.len() as u64).saturating_mul(MAX_SNAPPY_RATIO);
            fits && snap::raw::decompress_len(packed).is_ok_and(|length| length == declared) && {
                limits::grow_to(out, start + declared, 0)?;
                snap::raw::Decoder::new().decompress(packed, &mut out[start..]).is_ok()
            }
        }
        Some(ChunkCodec::None) | None => {
            let message = format!("expected chunks compressed with zstd, brotli, snappy or not, got {letter:#04x}");
            return Err(Error::corrupt(message));
        }
    };
    if !whole || out.len() - start != declared {
        return Err(broken("compressed bytes that can be read"));
    }
    Ok(())
}

/// Appends what zstd makes of `packed`, at most `declared` bytes. Room is made as the bytes on disk warrant it: for a
/// size that is out of proportion, more only if less was not enough.
fn unzstd(packed: &[u8], declared: usize, zstd: &mut Option<Decompressor<'static>>, out: &mut Vec<u8>) -> Result<bool> {
    if let Some((head, bytes)) = packed.split_first_chunk().filter(|(_, bytes)| bytes.len() == declared) {
        if u8::try_from(declared).is_ok_and(|length| stored(length) == *head) {
            out.extend_from_slice(bytes);
            return Ok(true);
        }
    }
    let zstd = match zstd {
        Some(zstd) => zstd,
        None => zstd.insert(Decompressor::new().map_err(|error| Error::io("starting zstd failed", &error))?),
    };
    let start = out.len();
    let mut room = declared.min(packed.len().saturating_mul(64).saturating_add(1 << 16));
    loop {
        limits::reserve(out, room)?;
        let mut place = Cursor::new(&mut *out);
        place.set_position(start as u64);
        match zstd.decompress_to_buffer(packed, &mut place) {
            Ok(_) => return Ok(true),
            Err(_) if room < declared => room = room.saturating_mul(16).min(declared),
            Err(_) => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::riegeli::{append, Span};

    const ALL: [ChunkCompression; 5] = [
        ChunkCompression::None,
        ChunkCompression::Zstd(3),
        ChunkCompression::Zstd(-5),
        ChunkCompression::Brotli(4),
        ChunkCompression::Snappy,
    ];

    fn packed(compression: ChunkCompression, records: &[&[u8]]) -> Vec<u8> {
        let (mut chunk, mut out) = (Vec::new(), Vec::new());
        let packed = Packer::new(compression).unwrap().pack(records, &mut chunk).unwrap();
        assert_eq!(packed.length, chunk.len());
        append(&mut out, 64, &chunk, packed.records).unwrap();
        out
    }

    fn unpacked(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (mut unpacker, mut joined) = (Unpacker::default(), Vec::new());
        unpacker.unpack(&Span { begin: 64, bytes }.chunk(64, &mut joined)?)?;
        Ok(unpacker.iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn records_come_back_in_every_compression() {
        let large: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 26) as u8).collect();
        let zeros = vec![0; 10_000_000];
        let many = vec![&b""[..]; 5000];
        let cases: [&[&[u8]]; 6] =
            [&[b"one"], &[b""], &[b"a", b"", b"long enough"], &[&large, b"x", &large], &[&zeros], &many];
        for compression in ALL {
            for records in cases {
                assert_eq!(unpacked(&packed(compression, records)).unwrap(), records, "{compression:?}");
            }
        }
    }

    #[test]
    fn what_becomes_no_smaller_is_not_compressed() {
        let noise: Vec<u8> = (0..200u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for compression in ALL {
            assert_eq!(packed(compression, &[&noise])[CHUNK_HEADER], 0, "{compression:?}");
            assert_eq!(packed(compression, &[&[7; 200]])[CHUNK_HEADER], compression.letter(), "{compression:?}");
        }
    }

    #[test]
    fn damage_behind_the_hashes_is_found_too() {
        // Whoever makes a file on purpose can make its hashes fit.
        for compression in ALL {
            let whole = packed(compression, &[&b"some record, ".repeat(20), b"", &b"record".repeat(20)]);
            assert_eq!(whole[CHUNK_HEADER], compression.letter());
            let header = ChunkHeader::from_bytes(whole[..CHUNK_HEADER].try_into().unwrap()).unwrap();
            let data = &whole[CHUNK_HEADER..];
            let attempt = |header: ChunkHeader, data: &[u8]| {
                let mut unpacker = Unpacker::default();
                let outcome = unpacker.unpack(&Chunk { header, data, end: 0 });
                assert_eq!(outcome.is_err(), unpacker.is_empty());
                outcome
            };
            attempt(header, data).unwrap();
            (0..data.len()).for_each(|length| assert!(attempt(header, &data[..length]).is_err(), "{length}"));
            for (records, decoded_size) in
                [(2, 380), (4, 380), (3, 379), (3, 381), (0, 0), (1 << 50, 380), (3, 1 << 60)]
            {
                assert!(
                    attempt(ChunkHeader { records, decoded_size, ..header }, data).is_err(),
                    "{records} {decoded_size}"
                );
            }
            for at in 0..data.len() {
                let mut bad = data.to_vec();
                bad[at] ^= 0x55;
                let _ = attempt(header, &bad);
            }
        }
    }

    #[test]
    fn chunks_that_only_others_read_are_told() {
        let chunk = Chunk { header: ChunkHeader::new(ChunkType::Transposed, b"x", 1, 1), data: b"x", end: 0 };
        let error = Unpacker::default().unpack(&chunk).unwrap_err();
        assert!(error.to_string().contains("transposed"), "{error}");
    }

    #[test]
    fn what_zstd_only_stores_is_what_zstd_writes() {
        for length in 0..=STORED {
            for bytes in [vec![7; length], (0..length as u8).collect()] {
                let ours = [&stored(length as u8)[..], &bytes].concat();
                assert_eq!(zstd::bulk::compress(&bytes, 3).unwrap(), ours);
                assert_eq!(zstd::bulk::decompress(&ours, length).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn names_and_levels() {
        assert_eq!(ChunkCompression::parse("zstd", None).unwrap(), ChunkCompression::Zstd(3));
        assert_eq!(ChunkCompression::parse("brotli", Some(11)).unwrap().to_string(), "brotli:11");
        for (name, level) in
            [("zstd", Some(23)), ("brotli", Some(-1)), ("snappy", Some(1)), ("none", Some(0)), ("gzip", None)]
        {
            assert!(ChunkCompression::parse(name, level).is_err());
        }
    }
}
