//! GIF: the first frame.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, MemoryLimit};

use crate::error::{Error, Result};
use crate::image::formats::{ImageFormat, ImageShape};
use crate::limits;

fn broken(error: &DecodingError) -> Error {
    match error {
        DecodingError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            ImageFormat::Gif.broken("one that ends too early")
        }
        other => ImageFormat::Gif.broken(format!("damage ({other})")),
    }
}

/// Decodes into `out`: RGB, and alpha where the frame has a transparent colour. What the frame leaves free is black.
pub(super) fn read(bytes: &[u8], out: &mut Vec<u8>) -> Result<ImageShape> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    options.check_frame_consistency(true);
    let most = NonZeroU64::MIN.saturating_add(bytes.len() as u64 * 1024).max(NonZeroU64::MIN.saturating_add(1 << 26));
    options.set_memory_limit(MemoryLimit::Bytes(most));
    let mut decoder = options.read_info(bytes).map_err(|error| broken(&error))?;
    let (height, width) = (usize::from(decoder.height()), usize::from(decoder.width()));
    let pixels = ImageFormat::Gif.pixels(height, width, bytes.len())?;
    let frame = decoder.read_next_frame().map_err(|error| broken(&error))?;
    let frame = frame.ok_or_else(|| ImageFormat::Gif.broken("one without a frame"))?;
    let channels = if frame.transparent.is_some() { 4 } else { 3 };
    limits::grow_to(out, pixels * channels, 0)?;
    let (top, left) = (usize::from(frame.top), usize::from(frame.left));
    let rows = out.chunks_exact_mut(width * channels).skip(top);
    for (row, line) in rows.zip(frame.buffer.chunks_exact((usize::from(frame.width) * 4).max(1))) {
        for (pixel, color) in row.chunks_exact_mut(channels).skip(left).zip(line.chunks_exact(4)) {
            pixel.copy_from_slice(&color[..channels]);
        }
    }
    Ok([height, width, channels])
}
