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
use crate::image::formats::{ImageFormat, ImageShape};
use crate::limits;

const LONGEST_SIDE: usize = 1 << 16;

fn broken(error: &DecodeErrors) -> Error {
    match error {
        DecodeErrors::Format(what) => ImageFormat::Jpeg.broken(format!("damage ({})", what.trim())),
        DecodeErrors::FormatStatic(what) => ImageFormat::Jpeg.broken(format!("damage ({what})")),
        DecodeErrors::ExhaustedData | DecodeErrors::IoErrors(_) => ImageFormat::Jpeg.broken("one that ends too early"),
        other => ImageFormat::Jpeg.broken(format!("damage ({other})")),
    }
}

/// Whether the file has an end: the last marker of one comes behind the last scan's beginning.
fn has_end(bytes: &[u8]) -> bool {
    // Within a scan, 0xff stands for itself only before 0x00.
    let last = bytes.windows(2).rev().find(|pair| matches!(pair, [0xff, 0xd9 | 0xda]));
    last == Some(&[0xff, 0xd9])
}

/// Whether each component of a sequential file has a scan of its own, with fewer rows for colours: zune-jpeg paints
/// such files wrong without a word.
fn has_scans_apart(bytes: &[u8]) -> bool {
    let mut frame: &[u8] = &[]; // precision, height, width, the number of components, three bytes for each
    let mut at = 2;
    while let Some(&[0xff, marker]) = bytes.get(at..at + 2) {
        let has_length = !matches!(marker, 0xff | 0xd0..=0xd8 | 0x01);
        let length = bytes.get(at + 2..at + 4).map_or(0, |pair| usize::from(u16::from_be_bytes([pair[0], pair[1]])));
        let body = bytes.get(at + 4..at + 2 + length).unwrap_or_default();
        match marker {
            0xc0 | 0xc1 => frame = body,
            0xda => {
                let components = frame.get(6..).unwrap_or_default().chunks_exact(3);
                let fewer_rows = components.clone().any(|component| component[1] & 0xf != 1);
                return fewer_rows && body.first().is_some_and(|&here| usize::from(here) < components.len());
            }
            _ => {}
        }
        at += if marker == 0xff { 1 } else { 2 + if has_length { length } else { 0 } };
    }
    false
}

/// What decodes the pixels.
pub(super) const DECODER: &str = if cfg!(feature = "turbo") { "libjpeg-turbo" } else { "zune-jpeg" };

/// Decodes into `out`: grey where that is stored or wanted, RGB otherwise.
pub(super) fn read(bytes: &[u8], wanted: Option<usize>, out: &mut Vec<u8>) -> Result<ImageShape> {
    // Strict: damage is an error, not grey pixels.
    let options =
        DecoderOptions::default().set_strict_mode(true).set_max_width(LONGEST_SIDE).set_max_height(LONGEST_SIDE);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| broken(&error))?;
    let (width, height) = decoder.dimensions().unwrap_or((0, 0));
    let pixels = ImageFormat::Jpeg.pixels(height, width, bytes.len())?;
    if !has_end(bytes) {
        return Err(ImageFormat::Jpeg.broken("one that ends too early"));
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
    limits::grow_to(out, pixels * channels, 0)?;
    #[cfg(feature = "turbo")]
    if super::turbo::decode(bytes, [height, width, channels], out) {
        return Ok([height, width, channels]);
    }
    if has_scans_apart(bytes) {
        let error = ImageFormat::Jpeg.broken("a scan for each colour, which is not decoded");
        return Err(error.advise("Save it anew, or store it through Pillow."));
    }
    decoder.decode_into(out).map_err(|error| broken(&error))?;
    Ok([height, width, channels])
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    use super::*;

    fn file(sampling: SamplingFactor, scan_for_each: bool) -> Vec<u8> {
        let data: Vec<u8> = (0..48 * 64 * 3).map(|at| (at * 7 % 251) as u8).collect();
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out, 92);
        encoder.set_sampling_factor(sampling);
        encoder.set_optimized_huffman_tables(scan_for_each); // its way to write those
        encoder.encode(&data, 64, 48, ColorType::Rgb).unwrap();
        out
    }

    #[test]
    fn several_scans_give_the_same_pixels_or_none() {
        for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_1_2, SamplingFactor::F_2_2] {
            let [one, several] = [false, true].map(|apart| {
                let mut out = Vec::new();
                read(&file(sampling, apart), Some(3), &mut out).map(|_| out)
            });
            match several {
                Ok(pixels) => assert_eq!(pixels, one.unwrap(), "{sampling:?}"),
                Err(error) => assert!(error.to_string().contains("a scan for each colour"), "{error}"),
            }
        }
        assert!(has_scans_apart(&file(SamplingFactor::F_2_2, true)));
        assert!(!has_scans_apart(&file(SamplingFactor::F_2_2, false)));
        assert!(!has_scans_apart(&file(SamplingFactor::F_2_1, true)));
        assert!(!has_scans_apart(b"\xff\xd8\xff") && !has_scans_apart(b""));
    }
}
