//! TIFF: the first image, of 1, 2, 4, 8 or 16 bits a channel; without palettes.

use std::io::Cursor;

use tiff::decoder::{Decoder, Limits};
use tiff::tags::{SampleFormat, Tag};
use tiff::{ColorType, TiffError};

use crate::error::{Error, Result};
use crate::image::formats::{ImageFormat, ImageShape, MAX_PIXELS};
use crate::limits;

/// Memory for the decoder's own use: one compressed strip or tile, and one row of it.
const WORK_BYTES: usize = 1 << 27;
/// A tag's values take at most this many bytes for each byte of the file.
const VALUE_RATIO: usize = 64;

fn broken(error: &TiffError) -> Error {
    match error {
        TiffError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            ImageFormat::Tiff.broken("one that ends too early")
        }
        TiffError::UnsupportedError(variant) => unsupported(variant.to_string().trim_end_matches(" is unsupported")),
        other => ImageFormat::Tiff.broken(format!("damage ({other})")),
    }
}

/// The error for a variant of TIFF that is not decoded.
fn unsupported(variant: impl std::fmt::Display) -> Error {
    let advice = "Convert it to 8 or 16 bits a channel, uncompressed or compressed by LZW, Deflate, PackBits or JPEG.";
    ImageFormat::Tiff.broken(format!("one that is not supported: {variant}")).advise(advice)
}

fn open(bytes: &[u8]) -> Result<Decoder<Cursor<&[u8]>>> {
    let decoder = Decoder::new(Cursor::new(bytes)).map_err(|error| broken(&error))?;
    let mut limits = Limits::default();
    limits.decoding_buffer_size = bytes.len().saturating_mul(VALUE_RATIO).clamp(1 << 16, WORK_BYTES);
    limits.ifd_value_size = limits.decoding_buffer_size;
    limits.intermediate_buffer_size = bytes.len().min(WORK_BYTES);
    Ok(decoder.with_limits(limits))
}

/// Width and height; a file that is shorter than its strips or tiles is broken.
pub(super) fn size(bytes: &[u8]) -> Result<[u32; 2]> {
    let mut decoder = open(bytes)?;
    let (width, height) = decoder.dimensions().map_err(|error| broken(&error))?;
    for (offsets, counts) in [(Tag::StripOffsets, Tag::StripByteCounts), (Tag::TileOffsets, Tag::TileByteCounts)] {
        let mut values = |tag| decoder.find_tag_unsigned_vec::<u64>(tag).map_err(|error| broken(&error));
        let (offsets, counts) = (values(offsets)?.unwrap_or_default(), values(counts)?.unwrap_or_default());
        let end = offsets.iter().zip(&counts).map(|(offset, count)| offset.saturating_add(*count)).max().unwrap_or(0);
        if end > bytes.len() as u64 {
            return Err(ImageFormat::Tiff.broken(format!("one that ends too early: {} of {end} bytes", bytes.len())));
        }
    }
    Ok([width, height])
}

/// Decodes into `out`: 16 bits become the upper 8, fewer than 8 bits are spread over 0 to 255.
pub(super) fn read(bytes: &[u8], out: &mut Vec<u8>) -> Result<ImageShape> {
    let mut decoder = open(bytes)?;
    let failed = |error: TiffError| broken(&error);
    let (width, height) = decoder.dimensions().map_err(failed)?;
    let (height, width) = (height as usize, width as usize);
    let pixels = ImageFormat::Tiff.pixels(height, width, bytes.len())?;
    let color = decoder.colortype().map_err(failed)?;
    let (channels, depth) = match color {
        ColorType::Gray(depth @ (1 | 2 | 4 | 8 | 16)) => (1, depth),
        ColorType::GrayA(depth @ (8 | 16)) => (2, depth),
        ColorType::RGB(depth @ (8 | 16)) => (3, depth),
        ColorType::RGBA(depth @ (8 | 16)) => (4, depth),
        // The crate's name for grey with one more channel.
        ColorType::Multiband { bit_depth: depth @ (8 | 16), num_samples: 2 } => (2, depth),
        ColorType::YCbCr(8) => (3, 8),
        other => return Err(unsupported(format!("{other:?}"))),
    };
    let layout = decoder.image_buffer_layout().map_err(failed)?;
    if layout.sample_format != SampleFormat::Uint {
        return Err(unsupported(format!("{:?} samples", layout.sample_format)));
    }
    // A strip or a tile may be larger than the image, which the decoder makes room for.
    let (chunk_width, chunk_height) = decoder.chunk_dimensions();
    if (chunk_width as usize).checked_mul(chunk_height as usize).is_none_or(|chunk| chunk > pixels.max(1 << 16) * 16) {
        return Err(ImageFormat::Tiff.broken(format!("tiles of {chunk_width} x {chunk_height} pixels")));
    }
    let row_bytes = (width * channels * usize::from(depth)).div_ceil(8);
    let planes = layout.planes.max(1);
    if layout.complete_len > MAX_PIXELS * 8 || (planes > 1 && planes != channels) {
        return Err(unsupported(format!("{planes} planes of {color:?}")));
    }
    let mut stored = Vec::new();
    limits::grow_to(&mut stored, layout.complete_len, 0)?;
    decoder.read_image_bytes(&mut stored).map_err(failed)?;
    let plane_row = if planes == 1 { row_bytes } else { (width * usize::from(depth)).div_ceil(8) };
    if stored.len() < plane_row * height * planes {
        return Err(ImageFormat::Tiff.broken(format!("{} bytes of pixels", stored.len())));
    }
    let value = |row: &[u8], sample: usize| match depth {
        16 => u16::from_ne_bytes([row[2 * sample], row[2 * sample + 1]]).to_be_bytes()[0],
        8 => row[sample],
        _ => {
            let bit = sample * usize::from(depth);
            row[bit / 8] >> (8 - usize::from(depth) - bit % 8) & (0xff >> (8 - depth))
        }
    };
    limits::reserve(out, pixels * channels)?;
    let plane_bytes = plane_row * height;
    for row in 0..height {
        let line = |plane: usize| &stored[plane * plane_bytes + row * plane_row..][..plane_row];
        match planes {
            2.. => {
                out.extend(
                    (0..width)
                        .flat_map(|pixel| (0..planes).map(move |plane| (pixel, plane)))
                        .map(|(pixel, plane)| value(line(plane), pixel)),
                );
            }
            _ if depth < 8 => {
                out.extend((0..width).map(|pixel| value(line(0), pixel) * (255 / ((1 << depth) - 1) as u8)))
            }
            _ => out.extend((0..width * channels).map(|sample| value(line(0), sample))),
        }
    }
    if matches!(color, ColorType::YCbCr(_)) {
        out.chunks_exact_mut(3).for_each(to_rgb);
    }
    Ok([height, width, channels])
}

/// A pixel of luminance and two differences as RGB, by ITU-R 601.
fn to_rgb(pixel: &mut [u8]) {
    let [y, cb, cr] = [pixel[0], pixel[1], pixel[2]].map(f32::from);
    let (cb, cr) = (cb - 128.0, cr - 128.0);
    let rgb = [y + 1.402 * cr, y - 0.344_136 * cb - 0.714_136 * cr, y + 1.772 * cb];
    pixel.copy_from_slice(&rgb.map(|value| value.round() as u8));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of one strip, little endian.
    fn file(width: u32, height: u32, depth: u32, samples: u32, photometric: u32, strip: &[u8]) -> Vec<u8> {
        let tags: [(u16, u32); 9] = [
            (256, width),
            (257, height),
            (258, depth),
            (259, 1),
            (262, photometric),
            (273, 8),
            (277, samples),
            (278, height),
            (279, strip.len() as u32),
        ];
        let mut out = b"II\x2a\0".to_vec();
        out.extend((8 + strip.len() as u32).to_le_bytes());
        out.extend(strip);
        out.extend((tags.len() as u16).to_le_bytes());
        for (tag, value) in tags {
            out.extend(tag.to_le_bytes());
            out.extend(4u16.to_le_bytes());
            out.extend(1u32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        out.extend([0; 4]);
        out
    }

    fn decoded(bytes: &[u8]) -> (ImageShape, Vec<u8>) {
        let mut out = Vec::new();
        (read(bytes, &mut out).unwrap(), out)
    }

    #[test]
    fn grey_of_any_depth() {
        assert_eq!(decoded(&file(3, 1, 8, 1, 1, &[1, 2, 3])), ([1, 3, 1], vec![1, 2, 3]));
        assert_eq!(decoded(&file(2, 1, 16, 1, 1, &[0, 7, 255, 9])), ([1, 2, 1], vec![7, 9]));
        assert_eq!(decoded(&file(9, 1, 1, 1, 1, &[0b1010_0000, 0b1000_0000])).1, [255, 0, 255, 0, 0, 0, 0, 0, 255]);
        assert_eq!(decoded(&file(2, 1, 8, 1, 0, &[0, 255])).1, [255, 0], "white is zero");
    }

    #[test]
    fn sizes_come_from_the_header_and_damage_is_reported() {
        let whole = file(3, 2, 8, 1, 1, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(size(&whole).unwrap(), [3, 2]);
        for length in 0..whole.len() - 4 {
            assert!(size(&whole[..length]).is_err() && read(&whole[..length], &mut Vec::new()).is_err(), "{length}");
        }
        for huge in [file(1 << 30, 1 << 30, 8, 1, 1, &[1]), file(40_000, 40_000, 8, 1, 1, &[1])] {
            assert!(read(&huge, &mut Vec::new()).is_err());
        }
        let error = read(&file(1, 1, 32, 1, 1, &[0; 4]), &mut Vec::new()).unwrap_err();
        assert!(error.message().contains("not supported"), "{error}");
    }
}
