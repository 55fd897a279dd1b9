//! Chunks of HDF5 and NetCDF-4 files: a zlib stream of bytes that may be shuffled.

use libdeflater::Decompressor;

use crate::codec::zlib::{inflate_exactly, MAX_INFLATION};
use crate::error::{Error, Result};
use crate::limits;

/// The bytes of a chunk of so many; where they are shuffled, `item` is the size of an element, otherwise 1.
pub fn unpack(packed: &[u8], length: usize, item: usize) -> Result<Vec<u8>> {
    if length > packed.len().saturating_mul(MAX_INFLATION) {
        let got = packed.len();
        return Err(Error::corrupt(format!("expected a chunk of {length} bytes, got {got} that can't hold as many")));
    }
    if item == 0 || length % item != 0 {
        return Err(Error::usage(format!("expected elements that fill {length} bytes, got elements of {item}")));
    }
    if length as u64 > limits::max_row_bytes() {
        return Err(limits::too_large("a chunk", length));
    }
    let mut bytes = Vec::new();
    limits::grow_to(&mut bytes, length, 0)?;
    inflate_exactly(&mut Decompressor::new(), packed, &mut bytes)?;
    if item == 1 || length == 0 {
        return Ok(bytes);
    }
    unshuffle(&bytes, item)
}

/// Puts elements together again, of which all first bytes stand in front, then all second ones, and so on.
fn unshuffle(bytes: &[u8], item: usize) -> Result<Vec<u8>> {
    let planes: Vec<&[u8]> = bytes.chunks_exact(bytes.len() / item).collect();
    let mut out = Vec::new();
    limits::grow_to(&mut out, bytes.len(), 0)?;
    if let [a, b, c, d] = planes[..] {
        for ((((slot, a), b), c), d) in out.chunks_exact_mut(4).zip(a).zip(b).zip(c).zip(d) {
            slot.copy_from_slice(&[*a, *b, *c, *d]);
        }
        return Ok(out);
    }
    for (place, plane) in planes.iter().enumerate() {
        for (slot, byte) in out.iter_mut().skip(place).step_by(item).zip(*plane) {
            *slot = *byte;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use libdeflater::{CompressionLvl, Compressor};

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut compressor = Compressor::new(CompressionLvl::default());
        let mut out = vec![0; compressor.zlib_compress_bound(bytes.len())];
        let length = compressor.zlib_compress(bytes, &mut out).unwrap();
        out.truncate(length);
        out
    }

    fn shuffled(bytes: &[u8], item: usize) -> Vec<u8> {
        (0..item).flat_map(|place| bytes.iter().skip(place).step_by(item).copied()).collect()
    }

    #[test]
    fn chunks_come_back_whatever_their_elements_are() {
        let bytes: Vec<u8> = (0..2400u32).map(|n| (n * n % 251) as u8).collect();
        for item in [1, 2, 3, 4, 8] {
            assert_eq!(unpack(&packed(&shuffled(&bytes, item)), bytes.len(), item).unwrap(), bytes);
        }
        assert_eq!(unpack(&packed(&[]), 0, 4).unwrap(), Vec::<u8>::new());
    }

    #[test]
    fn what_is_no_chunk_of_that_size_is_an_error() {
        let good = packed(&[7; 40]);
        for length in [36, 44, usize::MAX / 2] {
            assert!(unpack(&good, length, 4).is_err());
        }
        assert!(unpack(&good, 40, 0).is_err());
        assert!(unpack(&good, 40, 3).is_err());
        assert!(unpack(&good[..good.len() - 3], 40, 4).is_err());
        assert!(unpack(b"no zlib", 40, 4).is_err());
    }
}
