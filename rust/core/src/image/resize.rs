//! Crops and resizes an image.

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8x2, U8x3, U8x4, U8};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

use crate::error::{Error, Result};
use crate::image::formats::ImageShape;
use crate::image::options::{Area, Drawn};

/// Writes the drawn part of an image into `out`, which has the room of the target.
///
/// Bilinear, over all pixels that a target's pixel covers when it shrinks (antialiased). Colours are weighted by their alpha.
pub(super) fn resize(
    resizer: &mut Resizer,
    pixels: &[u8],
    shape: ImageShape,
    drawn: &Drawn,
    out: &mut [u8],
) -> Result<()> {
    let [height, width, channels] = shape;
    let Drawn { area, target, flip } = *drawn;
    if target == (area.height, area.width) {
        copy(pixels, width * channels, area, channels, out);
    } else {
        match channels {
            1 => scale::<U8>(resizer, pixels, (height, width), area, target, out),
            2 => scale::<U8x2>(resizer, pixels, (height, width), area, target, out),
            3 => scale::<U8x3>(resizer, pixels, (height, width), area, target, out),
            _ => scale::<U8x4>(resizer, pixels, (height, width), area, target, out),
        }?;
    }
    if flip {
        out.chunks_exact_mut(target.1 * channels).for_each(|row| mirror(row, channels));
    }
    Ok(())
}

fn scale<P: PixelTrait>(
    resizer: &mut Resizer,
    pixels: &[u8],
    size: (usize, usize),
    area: Area,
    target: (usize, usize),
    out: &mut [u8],
) -> Result<()> {
    let internal = |error: &dyn std::fmt::Display| Error::usage(format!("resizing failed: {error}"));
    let [height, width, top, left, high, wide, target_height, target_width] =
        [size.0, size.1, area.top, area.left, area.height, area.width, target.0, target.1].map(|side| side as u32);
    let source = TypedImageRef::<P>::from_buffer(width, height, pixels).map_err(|error| internal(&error))?;
    // A view of its own, not the resizer's crop: that one lets pixels around the area shine in.
    let part = TypedCroppedImage::from_ref(&source, left, top, wide, high).map_err(|error| internal(&error))?;
    let mut result =
        TypedImage::<P>::from_buffer(target_width, target_height, out).map_err(|error| internal(&error))?;
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    resizer.resize_typed(&part, &mut result, &options).map_err(|error| internal(&error))
}

fn copy(pixels: &[u8], stride: usize, area: Area, channels: usize, out: &mut [u8]) {
    let length = area.width * channels;
    let rows = pixels.chunks_exact(stride).skip(area.top);
    for (row, line) in out.chunks_exact_mut(length).zip(rows) {
        row.copy_from_slice(&line[area.left * channels..][..length]);
    }
}

/// Swaps left and right.
fn mirror(row: &mut [u8], channels: usize) {
    row.reverse();
    row.chunks_exact_mut(channels).for_each(<[u8]>::reverse);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(area: Area, target: (usize, usize), flip: bool) -> Drawn {
        Drawn { area, target, flip }
    }

    #[test]
    fn parts_are_cut_out_and_mirrored() {
        let pixels: Vec<u8> = (0..24).collect(); // 2 rows, 4 columns, 3 channels
        let area = Area { top: 1, left: 1, height: 1, width: 2 };
        let mut out = [0; 6];
        resize(&mut Resizer::new(), &pixels, [2, 4, 3], &drawn(area, (1, 2), false), &mut out).unwrap();
        assert_eq!(out, [15, 16, 17, 18, 19, 20]);
        resize(&mut Resizer::new(), &pixels, [2, 4, 3], &drawn(area, (1, 2), true), &mut out).unwrap();
        assert_eq!(out, [18, 19, 20, 15, 16, 17]);
    }

    #[test]
    fn what_lies_outside_of_the_part_does_not_count() {
        let mut pixels = vec![255u8; 8 * 8];
        for row in 2..6 {
            pixels[row * 8 + 2..row * 8 + 6].fill(10);
        }
        let area = Area { top: 2, left: 2, height: 4, width: 4 };
        for target in [(1, 1), (2, 3), (9, 7)] {
            let mut out = vec![0; target.0 * target.1];
            resize(&mut Resizer::new(), &pixels, [8, 8, 1], &drawn(area, target, false), &mut out).unwrap();
            assert!(out.iter().all(|&value| value == 10), "{target:?}: {out:?}");
        }
    }
}
