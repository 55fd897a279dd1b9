//! Compressed files as streams: gzip, zlib, zstd, bzip2 or xz, detected by content.

use std::io::{BufRead, BufReader, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use lzma_rust2::XzReader;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::crc32c;
use crate::error::{Error, Kind, Result};
use crate::io::file::{Positioned, RandomAccessFile};

/// The compression of a whole shard. Index files store these values: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Compression {
    None = 0,
    Gzip = 1,
    Zlib = 2,
    Zstd = 3,
    Bzip2 = 4,
    Xz = 5,
}

/// Bytes that detection needs: the length of a TFRecord frame and its CRC.
const HEAD: usize = 12;

impl Compression {
    const ALL: [Compression; 6] = [
        Compression::None,
        Compression::Gzip,
        Compression::Zlib,
        Compression::Zstd,
        Compression::Bzip2,
        Compression::Xz,
    ];

    /// Return the number that index files store.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Return the compression with this number.
    pub fn from_code(code: u32) -> Option<Compression> {
        Compression::ALL.into_iter().find(|compression| compression.code() == code)
    }

    /// The name, as users spell it.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zlib => "zlib",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        }
    }

    /// The compression of this name, of those that TFRecord files are written in.
    pub fn parse(name: &str) -> Result<Compression> {
        match name {
            "none" => Ok(Compression::None),
            "gzip" => Ok(Compression::Gzip),
            "zlib" => Ok(Compression::Zlib),
            _ => Err(Error::usage(format!("expected a compression out of none, gzip, zlib, got {name:?}"))),
        }
    }

    /// Return the compression of a file that begins with `head`. A length with its CRC begins an uncompressed TFRecord
    /// file, whatever its bytes are.
    pub fn detect(head: &[u8]) -> Compression {
        let framed = head.len() >= HEAD && crc32c::masked(&head[..8]).to_le_bytes() == head[8..HEAD];
        match head {
            _ if framed => Compression::None,
            [0x1f, 0x8b, 0x08, ..] => Compression::Gzip,
            [first @ 0x78, second, ..] if (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0 => Compression::Zlib,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Compression::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            _ => Compression::None,
        }
    }
}

enum MemberDecoder<R: Read> {
    Gzip(GzDecoder<BufReader<R>>),
    Zlib(ZlibDecoder<BufReader<R>>),
    Zstd(ZstdDecoder<'static, BufReader<R>>),
    Bzip2(BzDecoder<BufReader<R>>),
    Xz(Box<XzReader<BufReader<R>>>),
    Plain(BufReader<R>),
    /// There is no memory for it.
    Broken,
    /// Between two members, and after an error.
    Done,
}

/// The framed stream of a shard, whatever it is wrapped in.
///
/// Members that follow each other are read on, empty ones too, a missing trailer or bytes after the last member are
/// errors: where TensorFlow stops without a word, nothing is lost here.
pub struct InflateStream<R: Read> {
    decoder: MemberDecoder<R>,
    compression: Compression,
}

/// What is read from a file at a time.
const CHUNK: usize = 1 << 18;

/// What an xz stream may ask for, in KiB: what `xz -9` takes, twice, and what zstd may.
const XZ_MEMORY: u32 = 1 << 17;

impl<R: Read> InflateStream<R> {
    /// Inflate the bytes of `reader`.
    pub fn new(reader: R, compression: Compression) -> Self {
        let reader = BufReader::with_capacity(CHUNK, reader);
        InflateStream { decoder: Self::member(reader, compression), compression }
    }

    fn member(reader: BufReader<R>, compression: Compression) -> MemberDecoder<R> {
        match compression {
            Compression::Gzip => MemberDecoder::Gzip(GzDecoder::new(reader)),
            Compression::Zlib => MemberDecoder::Zlib(ZlibDecoder::new(reader)),
            Compression::Zstd => ZstdDecoder::with_buffer(reader).map_or(MemberDecoder::Broken, MemberDecoder::Zstd),
            Compression::Bzip2 => MemberDecoder::Bzip2(BzDecoder::new(reader)),
            Compression::Xz => MemberDecoder::Xz(Box::new(XzReader::new_mem_limit(reader, true, XZ_MEMORY))),
            Compression::None => MemberDecoder::Plain(reader),
        }
    }
}

impl<R: Read> Read for InflateStream<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let count = match &mut self.decoder {
                MemberDecoder::Gzip(decoder) => decoder.read(out)?,
                MemberDecoder::Zlib(decoder) => decoder.read(out)?,
                MemberDecoder::Bzip2(decoder) => decoder.read(out)?,
                // These go on to the next frame by themselves.
                MemberDecoder::Zstd(decoder) => return decoder.read(out).map_err(broken_frame),
                MemberDecoder::Xz(decoder) => return decoder.read(out).map_err(broken_frame),
                MemberDecoder::Plain(reader) => return reader.read(out),
                MemberDecoder::Broken => return Err(std::io::ErrorKind::OutOfMemory.into()),
                MemberDecoder::Done => return Ok(0),
            };
            if count > 0 {
                return Ok(count);
            }
            let mut rest = match std::mem::replace(&mut self.decoder, MemberDecoder::Done) {
                MemberDecoder::Gzip(decoder) => decoder.into_inner(),
                MemberDecoder::Zlib(decoder) => decoder.into_inner(),
                MemberDecoder::Bzip2(decoder) => decoder.into_inner(),
                _ => return Ok(0),
            };
            if rest.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.decoder = Self::member(rest, self.compression);
        }
    }
}

/// Give the errors of zstd and xz for damaged bytes a kind.
fn broken_frame(error: std::io::Error) -> std::io::Error {
    use std::io::ErrorKind::{InvalidData, Other, OutOfMemory, QuotaExceeded, Unsupported};
    match error.kind() {
        _ if error.raw_os_error().is_some() => error,
        Other | Unsupported => std::io::Error::new(InvalidData, error),
        OutOfMemory => QuotaExceeded.into(),
        _ => error,
    }
}

impl RandomAccessFile {
    /// Return the compression by the file's first bytes.
    pub fn compression(&self) -> Result<Compression> {
        let mut head = [0; HEAD];
        let count = HEAD.min(self.size() as usize);
        self.read_at(&mut head[..count], 0)?;
        Ok(Compression::detect(&head[..count]))
    }

    /// Return the inflated content, from its beginning.
    pub fn stream(&self, compression: Compression) -> InflateStream<Positioned<'_>> {
        InflateStream::new(self.reader(), compression)
    }
}

/// The message for compressed data without its end; the bytes before it are valid.
pub(crate) const TRUNCATED: &str = "expected more compressed data, got the end of the file: it is truncated";

/// Return the error for compressed data that ends too early.
pub(crate) fn truncated() -> Error {
    Error::new(Kind::Truncated, TRUNCATED)
}

/// A read that failed: broken compression is corruption, anything else is the system's word.
pub(crate) fn read_error(error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, InvalidInput, QuotaExceeded, StaleNetworkFileHandle, UnexpectedEof};
    match error.kind() {
        StaleNetworkFileHandle => crate::io::file::replacement(),
        InvalidData | InvalidInput => {
            Error::corrupt(format!("expected a compressed stream, got broken bytes ({error})"))
        }
        UnexpectedEof => truncated(),
        QuotaExceeded if error.raw_os_error().is_none() => {
            let limit = XZ_MEMORY >> 10;
            Error::corrupt(format!(
                "expected a stream that takes up to {limit} MiB to inflate, got one that takes more"
            ))
            .advise("Compress it by xz -9 or less.")
        }
        _ => Error::new(Kind::Io(error.raw_os_error()), format!("reading failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::frame::{self, HEADER};
    use crate::format::tfrecord::stream::FrameStream;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write;

    fn framed(records: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        records.iter().for_each(|record| frame::append(&mut out, record));
        out
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(data: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn bzip2(data: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(data: &[u8]) -> Vec<u8> {
        let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(0)).unwrap();
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    /// The records read until the end or the first error.
    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Option<Error>) {
        let mut frames = FrameStream::new(InflateStream::new(bytes, Compression::detect(bytes)));
        let mut records = Vec::new();
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => records.push(frame[HEADER..frame.len() - 4].to_vec()),
                Ok(None) => return (records, None),
                Err(error) => return (records, Some(error)),
            }
        }
    }

    #[test]
    fn told_apart_by_content() {
        let plain = framed(&[b"a"]);
        assert_eq!(Compression::detect(&plain), Compression::None);
        assert_eq!(Compression::detect(&gzip(&plain)), Compression::Gzip);
        assert_eq!(Compression::detect(&zlib(&plain)), Compression::Zlib);
        assert_eq!(Compression::detect(&bzip2(&plain)), Compression::Bzip2);
        assert_eq!(Compression::detect(&xz(&plain)), Compression::Xz);
        assert_eq!(Compression::detect(&[]), Compression::None);
        // A record of 0x088b1f bytes begins like gzip; its CRC says that it is a frame.
        let mut header = 0x0008_8b1fu64.to_le_bytes().to_vec();
        header.extend(crc32c::masked(&header).to_le_bytes());
        assert_eq!(Compression::detect(&header), Compression::None);
    }

    #[test]
    fn members_split_anywhere_are_read_on() {
        let plain = framed(&[b"one", b"", b"three"]);
        for cut in 0..=plain.len() {
            for wrap in [gzip, zlib, bzip2, xz] {
                let joined = [wrap(&plain[..cut]), wrap(b""), wrap(&plain[cut..])].concat();
                assert_eq!(read(&joined), (vec![b"one".to_vec(), vec![], b"three".to_vec()], None), "cut {cut}");
            }
        }
    }

    #[test]
    fn every_truncation_of_a_compressed_shard_is_reported() {
        let plain = framed(&[b"one", b"two"]);
        for whole in [gzip(&plain), zlib(&plain), bzip2(&plain), xz(&plain)] {
            for length in 6..whole.len() {
                assert!(read(&whole[..length]).1.is_some(), "length {length}");
            }
        }
    }

    #[test]
    fn bad_trailers_and_trailing_bytes_are_reported() {
        let plain = framed(&[b"one"]);
        let mut bad = gzip(&plain);
        let at = bad.len() - 8;
        bad[at] ^= 1;
        assert!(read(&bad).1.is_some());
        for whole in [gzip(&plain), bzip2(&plain), xz(&plain)] {
            assert!(read(&[&whole[..], &[7; 16]].concat()).1.is_some());
        }
        assert!(read(&[gzip(&plain), vec![0; 16]].concat()).1.is_some());
    }

    #[test]
    fn an_xz_stream_takes_no_more_memory_than_it_may() {
        let plain = framed(&[b"one"]);
        let mut large = xz(&plain);
        // Padding, as xz has it.
        assert_eq!(read(&[&large[..], &[0; 4]].concat()), (vec![b"one".to_vec()], None));
        // The size of the dictionary stands in the block's header, which has a CRC of its own: 4 GiB less a byte.
        let at = large.windows(2).position(|pair| pair == [0x21, 1]).unwrap() + 2;
        large[at] = 40;
        let end = 12 + (usize::from(large[12]) + 1) * 4;
        let mut crc = flate2::Crc::new();
        crc.update(&large[12..end - 4]);
        large[end - 4..end].copy_from_slice(&crc.sum().to_le_bytes());
        let error = read(&large).1.unwrap();
        assert!(error.to_string().contains("up to 128 MiB"), "{error}");
    }

    #[test]
    fn partial_headers_and_short_bodies_are_reported_with_their_offset() {
        let plain = framed(&[b"one", b"two"]);
        for length in 20..plain.len() {
            let (records, error) = read(&plain[..length]);
            assert_eq!(records.len(), 1);
            let error = error.unwrap();
            assert_eq!((error.offset(), error.record()), (Some(19), Some(1)), "length {length}");
        }
        assert!(read(&[plain, vec![0; 16]].concat()).1.is_some());
    }
}
