//! Fields that are zlib streams, through libdeflate.

use libdeflater::{DecompressionError, Decompressor};

use crate::error::{Error, Result};

/// Deflate turns one byte into at most this many, so a stream of n bytes can't hold more than n times as much.
pub(crate) const MAX_INFLATION: usize = 1032;

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
    let most = value.len().saturating_mul(MAX_INFLATION);
    let mut room = value.len().saturating_mul(4).min(most);
    loop {
        out.resize(start + room, 0);
        match inflater.zlib_decompress(value, &mut out[start..]) {
            Ok(length) => {
                out.truncate(start + length);
                return Ok(());
            }
            Err(DecompressionError::InsufficientSpace) if room < most => room = room.saturating_mul(4).min(most),
            Err(_) => return Err(not_zlib(value)),
        }
    }
}
