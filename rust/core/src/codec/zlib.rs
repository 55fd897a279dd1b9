//! Fields that are zlib streams: numbers are written by [`crate::codec::deflate`], other bytes and all reads use
//! libdeflate.

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::codec::deflate::Deflate;
use crate::error::{Error, Result};
use crate::limits;

/// docs/decisions.md says why.
const LEVEL: i32 = 5;
/// Bytes from which on numbers of four of them are compressed as such; fewer are not worth the tables.
const MANY: usize = 1 << 12;

/// Deflate turns one byte into at most this many, so a stream of n bytes can't hold more than n times as much.
pub(crate) const MAX_INFLATION: usize = 1032;

/// What compresses, made when it is needed.
#[derive(Default)]
pub(crate) struct ZlibCompressor {
    numbers: Option<Box<Deflate>>,
    bytes: Option<Compressor>,
}

impl ZlibCompressor {
    /// Puts the stream of numbers of so many bytes each in place of what `out` has.
    pub(crate) fn compress(&mut self, bytes: &[u8], width: usize, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        if width == 4 && bytes.len() >= MANY {
            self.numbers.get_or_insert_default().zlib(bytes, out);
            return Ok(());
        }
        let level = || Compressor::new(CompressionLvl::new(LEVEL).unwrap_or_default());
        let compressor = self.bytes.get_or_insert_with(level);
        out.resize(compressor.zlib_compress_bound(bytes.len()), 0);
        let length = compressor
            .zlib_compress(bytes, out)
            .map_err(|error| Error::usage(format!("expected to compress {} bytes, got: {error}", bytes.len())))?;
        out.truncate(length);
        Ok(())
    }
}

fn not_zlib(value: &[u8]) -> Error {
    Error::corrupt(format!("expected a zlib stream, got {} bytes that are not one", value.len()))
}

/// Fills `slot` with what a zlib stream holds, which must be just as much.
pub(crate) fn inflate_exactly(inflater: &mut Decompressor, value: &[u8], slot: &mut [u8]) -> Result<()> {
    match inflater.zlib_decompress(value, slot) {
        Ok(length) if length == slot.len() => Ok(()),
        Ok(length) => Err(Error::schema(format!("expected {} bytes in the zlib stream, got {length}", slot.len()))),
        Err(DecompressionError::InsufficientSpace) => {
            Err(Error::schema(format!("expected {} bytes in the zlib stream, got more", slot.len())))
        }
        Err(DecompressionError::BadData) => Err(not_zlib(value)),
    }
}

/// Appends what a zlib stream of unknown size holds: tries again with more room, never more than deflate can fill.
pub(crate) fn inflate_all(inflater: &mut Decompressor, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    let limit = usize::try_from(limits::max_row_bytes()).unwrap_or(usize::MAX);
    let most = value.len().saturating_mul(MAX_INFLATION).min(limit);
    let mut room = value.len().saturating_mul(4).min(most);
    loop {
        limits::grow_to(out, start.saturating_add(room), 0)?;
        match inflater.zlib_decompress(value, &mut out[start..start + room]) {
            Ok(length) => {
                out.truncate(start + length);
                return Ok(());
            }
            Err(DecompressionError::InsufficientSpace) if room < most => room = room.saturating_mul(4).min(most),
            Err(DecompressionError::InsufficientSpace) if most == limit => {
                return Err(limits::too_large("a zlib stream", "more"));
            }
            Err(_) => return Err(not_zlib(value)),
        }
    }
}
