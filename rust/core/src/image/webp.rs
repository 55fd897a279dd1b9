//! WebP: lossy and lossless; of an animation, the first frame.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use crate::error::{Error, Result};
use crate::image::formats::{ImageFormat, ImageShape};
use crate::limits;

fn broken(error: &DecodingError) -> Error {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            ImageFormat::WebP.broken("one that ends too early")
        }
        other => ImageFormat::WebP.broken(format!("damage ({other})")),
    }
}

/// A chunk's name and content, and where the next one begins; none behind the end of the file.
fn chunk(bytes: &[u8], at: usize) -> Option<(&[u8], &[u8], usize)> {
    let (head, rest) = bytes.get(at..)?.split_at_checked(8)?;
    let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    Some((&head[..4], &rest[..size.min(rest.len())], at + 8 + size.next_multiple_of(2)))
}

/// Three bytes, little endian.
fn u24(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 3).map(|b| u32::from_le_bytes([b[0], b[1], b[2], 0]))
}

/// Refuses a lossy frame of another size than its container says: the decoder would take memory for it before it
/// compares the two.
fn check_frame(bytes: &[u8], [width, height]: [u32; 2]) -> Result<()> {
    let mut at = 12;
    while let Some((name, content, next)) = chunk(bytes, at) {
        match name {
            b"ANMF" => {
                let size = [6, 9].map(|at| u24(content, at).map_or(0, |side| side + 1));
                let alpha = chunk(content, 16).filter(|(name, ..)| *name == b"ALPH");
                let frame = chunk(content, alpha.map_or(16, |(_, _, next)| next));
                return frame.filter(|(name, ..)| *name == b"VP8 ").map_or(Ok(()), |(_, frame, _)| same(frame, size));
            }
            b"VP8 " => return same(content, [width, height]),
            _ => at = next,
        }
    }
    Ok(())
}

fn same(frame: &[u8], size: [u32; 2]) -> Result<()> {
    // The two upper bits of each side are a display scale.
    let found =
        [6, 8].map(|at| frame.get(at..at + 2).map_or(0, |b| u32::from(u16::from_le_bytes([b[0], b[1]]) & 0x3fff)));
    match found == size {
        true => Ok(()),
        false => {
            let [[width, height], [wide, high]] = [found, size];
            Err(ImageFormat::WebP
                .broken(format!("a frame of {width} x {height} pixels where {wide} x {high} were announced")))
        }
    }
}

/// Decodes into `out`: RGB, and alpha where the file has it.
pub(super) fn read(bytes: &[u8], out: &mut Vec<u8>) -> Result<ImageShape> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| broken(&error))?;
    let (width, height) = decoder.dimensions();
    check_frame(bytes, [width, height])?;
    let (height, width) = (height as usize, width as usize);
    let pixels = ImageFormat::WebP.pixels(height, width, bytes.len())?;
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    decoder.set_memory_limit(pixels.saturating_mul(16));
    limits::grow_to(out, pixels * channels, 0)?;
    match decoder.is_animated() {
        true => decoder.read_frame(out).map(drop),
        false => decoder.read_image(out),
    }
    .map_err(|error| broken(&error))?;
    Ok([height, width, channels])
}
