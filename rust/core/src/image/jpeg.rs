//! JPEG: baseline and progressive, grey, RGB, CMYK.
//!
//! zune-jpeg says what is a JPEG file and what is wrong with one. Where libjpeg-turbo is compiled in, it decodes the
//! pixels of all others.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::JpegDecoder;

use crate::error::{Error, Result};
use crate::image::formats::{Format, Shape};

const LONGEST_SIDE: usize = 1 << 16;

fn broken(error: &DecodeErrors) -> Error {
    match error {
        DecodeErrors::Format(what) => Format::Jpeg.broken(format!("damage ({})", what.trim())),
        DecodeErrors::FormatStatic(what) => Format::Jpeg.broken(format!("damage ({what})")),
        DecodeErrors::ExhaustedData | DecodeErrors::IoErrors(_) => Format::Jpeg.broken("one that ends too early"),
        other => Format::Jpeg.broken(format!("damage ({other})")),
    }
}

/// Whether the file has an end: the last marker of one comes behind the last scan's beginning.
fn has_end(bytes: &[u8]) -> bool {
    // Within a scan, 0xff stands for itself only before 0x00.
    let last = bytes.windows(2).rev().find(|pair| matches!(pair, [0xff, 0xd9 | 0xda]));
    last == Some(&[0xff, 0xd9])
}

/// What decodes the pixels.
pub(super) const DECODER: &str = if cfg!(feature = "turbo") { "libjpeg-turbo" } else { "zune-jpeg" };

/// Decodes into `out`: grey where that is stored or wanted, RGB otherwise.
pub(super) fn read(bytes: &[u8], wanted: Option<usize>, out: &mut Vec<u8>) -> Result<Shape> {
    // Strict: what is damaged is told, not painted grey.
    let options =
        DecoderOptions::default().set_strict_mode(true).set_max_width(LONGEST_SIDE).set_max_height(LONGEST_SIDE);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| broken(&error))?;
    let (width, height) = decoder.dimensions().unwrap_or((0, 0));
    let pixels = Format::Jpeg.pixels(height, width, bytes.len())?;
    if !has_end(bytes) {
        return Err(Format::Jpeg.broken("one that ends too early"));
    }
    let grey = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => wanted.is_none_or(|channels| channels == 1),
        Some(ColorSpace::YCbCr) => wanted == Some(1),
        _ => false,
    };
    if grey {
        decoder.set_options(options.jpeg_set_out_colorspace(ColorSpace::Luma));
    }
    let channels = if grey { 1 } else { 3 };
    out.resize(pixels * channels, 0);
    #[cfg(feature = "turbo")]
    if super::turbo::decode(bytes, [height, width, channels], out) {
        return Ok([height, width, channels]);
    }
    decoder.decode_into(out).map_err(|error| broken(&error))?;
    Ok([height, width, channels])
}
