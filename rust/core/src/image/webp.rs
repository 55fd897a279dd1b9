//! WebP: lossy and lossless; of an animation, the first frame.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use crate::error::{Error, Result};
use crate::image::formats::{Format, Shape};

fn broken(error: &DecodingError) -> Error {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Format::WebP.broken("one that ends too early")
        }
        other => Format::WebP.broken(format!("damage ({other})")),
    }
}

/// Decodes into `out`: RGB, and alpha where the file has it.
pub(super) fn read(bytes: &[u8], out: &mut Vec<u8>) -> Result<Shape> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| broken(&error))?;
    let (width, height) = decoder.dimensions();
    let (height, width) = (height as usize, width as usize);
    let pixels = Format::WebP.pixels(height, width, bytes.len())?;
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    decoder.set_memory_limit(pixels.saturating_mul(16));
    out.resize(pixels * channels, 0);
    match decoder.is_animated() {
        true => decoder.read_frame(out).map(drop),
        false => decoder.read_image(out),
    }
    .map_err(|error| broken(&error))?;
    Ok([height, width, channels])
}
