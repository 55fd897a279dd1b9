//! Re-encodes image files at a smaller size.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::error::{Error, Result};
use crate::image::formats::ImageFormat;
use crate::image::{decode_one, Crop, ImageHeader, ImageOptions, Pixels};

/// Of the JPEG files that are written: what is lost by it is less than what a smaller image loses.
const JPEG_QUALITY: u8 = 92;

/// An image file of the size that the options ask for, in as many channels as it has; `None` if it has that size.
/// JPEG stays JPEG, and all other formats become PNG, which loses nothing more.
pub fn resize_file(bytes: &[u8], options: &ImageOptions) -> Result<Option<Vec<u8>>> {
    options.check()?;
    if options.crop == Crop::Random || options.flip > 0.0 {
        let message = "expected images to be stored without random crops and flips, got some";
        return Err(Error::usage(message).advise("They belong to loading: each epoch has others."));
    }
    let header = ImageHeader::of(bytes)?;
    let (height, width) = (header.height as usize, header.width as usize);
    let drawn = options.draw(height, width, 0);
    if drawn.target == (height, width) {
        return Ok(None);
    }
    let format = header.format;
    let kept = ImageOptions { channels: None, ..options.clone() };
    let pixels = decode_one(bytes, &kept, 0)?;
    if format == ImageFormat::Jpeg { jpeg(&pixels) } else { png(&pixels) }.map(Some)
}

fn failed(format: ImageFormat, error: impl std::fmt::Display) -> Error {
    Error::usage(format!("expected to write a {} image, got: {error}", format.name()))
}

fn jpeg(pixels: &Pixels) -> Result<Vec<u8>> {
    let failed = |error: &dyn std::fmt::Display| failed(ImageFormat::Jpeg, error);
    let width = u16::try_from(pixels.width).map_err(|error| failed(&error))?;
    let height = u16::try_from(pixels.height).map_err(|error| failed(&error))?;
    let colours = if pixels.channels == 1 { ColorType::Luma } else { ColorType::Rgb };
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, JPEG_QUALITY);
    encoder.set_sampling_factor(SamplingFactor::F_2_2); // 4:2:0, as nearly all photographs have it
    encoder.encode(&pixels.data, width, height, colours).map_err(|error| failed(&error))?;
    Ok(out)
}

fn png(pixels: &Pixels) -> Result<Vec<u8>> {
    let failed = |error: png::EncodingError| failed(ImageFormat::Png, error);
    let (width, height) = (pixels.width as u32, pixels.height as u32);
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(match pixels.channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels.data).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::decode;

    fn ramp(height: usize, width: usize, channels: usize) -> Pixels {
        let value = |at: usize| (at / channels % width * 255 / width) as u8;
        Pixels { height, width, channels, data: (0..height * width * channels).map(value).collect() }
    }

    fn smaller(file: &[u8], options: &ImageOptions) -> (ImageFormat, Pixels) {
        let resized = resize_file(file, options).unwrap().unwrap();
        (
            ImageFormat::of(&resized).unwrap(),
            decode(&resized, &ImageOptions { channels: None, ..ImageOptions::default() }, 0).unwrap(),
        )
    }

    #[test]
    fn jpeg_stays_jpeg_and_others_lose_nothing_more() {
        let half = ImageOptions { max_side: Some(40), ..ImageOptions::default() };
        for channels in [1, 3] {
            let (format, pixels) = smaller(&jpeg(&ramp(60, 80, channels)).unwrap(), &half);
            assert_eq!((format, pixels.height, pixels.width, pixels.channels), (ImageFormat::Jpeg, 30, 40, channels));
            let expected = ramp(30, 40, channels).data;
            assert!(pixels.data.iter().zip(&expected).all(|(&a, &b)| a.abs_diff(b) < 16));
        }
        for channels in [1, 2, 3, 4] {
            let file = png(&ramp(60, 80, channels)).unwrap();
            let (format, pixels) = smaller(&file, &half);
            let direct = decode(&file, &ImageOptions { channels: None, ..half.clone() }, 0).unwrap();
            assert_eq!((format, pixels), (ImageFormat::Png, direct));
        }
    }

    #[test]
    fn what_has_the_size_stays_as_it_is() {
        let file = png(&ramp(60, 80, 3)).unwrap();
        for options in [
            ImageOptions { max_side: Some(80), ..ImageOptions::default() },
            ImageOptions { size: Some((60, 80)), ..ImageOptions::default() },
            ImageOptions::default(),
        ] {
            assert_eq!(resize_file(&file, &options).unwrap(), None);
        }
        let (_, pixels) =
            smaller(&file, &ImageOptions { size: Some((60, 60)), crop: Crop::Center, ..ImageOptions::default() });
        assert_eq!((pixels.height, pixels.width), (60, 60));
    }

    #[test]
    fn chance_is_for_loading() {
        let file = png(&ramp(6, 8, 3)).unwrap();
        for options in [
            ImageOptions { size: Some((4, 4)), crop: Crop::Random, ..ImageOptions::default() },
            ImageOptions { max_side: Some(4), flip: 0.5, ..ImageOptions::default() },
        ] {
            let error = resize_file(&file, &options).unwrap_err().to_string();
            assert!(error.contains("without random crops and flips"), "{error}");
        }
        assert!(resize_file(b"text", &ImageOptions::default()).is_err());
    }
}
