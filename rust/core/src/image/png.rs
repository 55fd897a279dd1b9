//! PNG: all colour types, eight bits a channel.

use std::io::Cursor;

use png::{Decoder, DecodingError, Limits, Transformations};

use crate::error::{Error, Result};
use crate::image::formats::{ImageFormat, ImageShape};
use crate::limits;

/// What the decoder may take besides the pixels: chunks that are kept, rows that are filtered.
const WORK_BYTES: usize = 1 << 24;

fn broken(error: &DecodingError) -> Error {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            ImageFormat::Png.broken("one that ends too early")
        }
        other => ImageFormat::Png.broken(format!("damage ({})", plain(&other.to_string()))),
    }
}

/// What the decoder says, with a chunk's name in place of all that is known of the chunk.
fn plain(said: &str) -> String {
    let Some((before, rest)) = said.split_once("ChunkType { type: ") else {
        return said.to_owned();
    };
    let name = rest.split(',').next().unwrap_or_default();
    let after = rest.split_once('}').map_or("", |(_, after)| after);
    format!("{before}{name}{}", after.trim_end_matches('.'))
}

/// Decodes into `out`: palettes become colours, 16 bits become the upper 8, an animation its still image.
pub(super) fn read(bytes: &[u8], out: &mut Vec<u8>) -> Result<ImageShape> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: WORK_BYTES });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let header = decoder.read_header_info().map_err(|error| broken(&error))?;
    let (height, width) = (header.height as usize, header.width as usize);
    let pixels = ImageFormat::Png.pixels(height, width, bytes.len())?;
    let mut reader = decoder.read_info().map_err(|error| broken(&error))?;
    let channels = reader.output_color_type().0.samples();
    limits::grow_to(out, pixels * channels, 0)?;
    reader.next_frame(out).map_err(|error| broken(&error))?;
    Ok([height, width, channels])
}
