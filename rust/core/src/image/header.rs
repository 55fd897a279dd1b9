//! Reads the header of an image file: enough to find a damaged file without decoding it.

use crate::error::{Error, Result};
use crate::image::formats::ImageFormat;
use crate::image::tiff;

/// The header of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// What the bytes are.
    pub format: ImageFormat,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// Width and height, or what is wrong with the bytes.
type Size = std::result::Result<[u32; 2], String>;

impl ImageHeader {
    /// The header of an image file. A file that ends too early is broken too, as far as its format tells.
    pub fn of(bytes: &[u8]) -> Result<ImageHeader> {
        let broken = |problem: String| Error::corrupt(format!("expected an image, got {problem}"));
        let format = match ImageFormat::of(bytes) {
            Ok(format) => format,
            Err(_) if bytes.is_empty() => return Err(broken("an empty file".into())),
            Err(_) if bytes.starts_with(b"\xff\xd8") => ImageFormat::Jpeg,
            Err(_) => {
                let first: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                return Err(broken(format!("bytes of no known format ({})", first.join(" "))));
            }
        };
        let size = match format {
            ImageFormat::Jpeg => jpeg(bytes),
            ImageFormat::Png => png(bytes),
            ImageFormat::Gif => {
                little(bytes, 6, 2).zip(little(bytes, 8, 2)).map(<[u32; 2]>::from).ok_or_else(|| cut(format))
            }
            ImageFormat::WebP => webp(bytes),
            ImageFormat::Bmp => bmp(bytes),
            ImageFormat::Tiff => return of_tiff(bytes),
        };
        match size.map_err(broken)? {
            [width, height] if width > 0 && height > 0 => Ok(ImageHeader { format, width, height }),
            [width, height] => Err(broken(format!("{} of {width} x {height} pixels", format.name()))),
        }
    }
}

fn of_tiff(bytes: &[u8]) -> Result<ImageHeader> {
    match tiff::size(bytes)? {
        [width, height] if width > 0 && height > 0 => Ok(ImageHeader { format: ImageFormat::Tiff, width, height }),
        [width, height] => Err(ImageFormat::Tiff.broken(format!("one of {width} x {height} pixels"))),
    }
}

fn cut(format: ImageFormat) -> String {
    format!("a {} that ends in its header", format.name())
}

/// A number of so many bytes.
fn little(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let number = bytes.get(at..at.checked_add(length)?)?;
    Some(number.iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte)))
}

fn big(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let number = bytes.get(at..at.checked_add(length)?)?;
    Some(number.iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte)))
}

/// Whether some bytes are among those from `start` on; looked for from the end, where they usually are.
fn ends_with(bytes: &[u8], start: usize, end: &[u8]) -> bool {
    bytes.get(start..).is_some_and(|rest| rest.windows(end.len()).rev().any(|window| window == end))
}

/// Walks from marker to marker, each with the length of what follows, up to the first scan.
fn jpeg(bytes: &[u8]) -> Size {
    let ends = || cut(ImageFormat::Jpeg);
    let mut size = None;
    let mut at = 2;
    loop {
        let (&first, &marker) = bytes.get(at).zip(bytes.get(at + 1)).ok_or_else(ends)?;
        if first != 0xff {
            return Err(format!("a JPEG without a marker at offset {at}"));
        }
        match marker {
            0xff => at += 1,               // filling
            0xd0..=0xd8 | 0x01 => at += 2, // without a length
            0xd9 => return Err("a JPEG without an image in it".into()),
            _ => {
                let length = big(bytes, at + 2, 2).ok_or_else(ends)? as usize;
                if length < 2 {
                    return Err(format!("a JPEG with a segment of {length} bytes at offset {at}"));
                }
                if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) && size.is_none() {
                    let (height, width) = big(bytes, at + 5, 2).zip(big(bytes, at + 7, 2)).ok_or_else(ends)?;
                    size = Some([width, height]);
                }
                at += 2 + length;
                if marker == 0xda {
                    break;
                }
            }
        }
    }
    let size = size.ok_or("a JPEG without a frame header")?;
    // Within a scan, 0xff stands for itself only before 0x00.
    match ends_with(bytes, at, b"\xff\xd9") {
        true => Ok(size),
        false => Err("a JPEG that ends too early: it has no end marker".into()),
    }
}

fn png(bytes: &[u8]) -> Size {
    if bytes.get(8..16) != Some(b"\0\0\0\rIHDR") {
        return Err("a PNG without its header".into());
    }
    let size = big(bytes, 16, 4).zip(big(bytes, 20, 4)).ok_or_else(|| cut(ImageFormat::Png))?;
    match ends_with(bytes, 24, b"IEND\xae\x42\x60\x82") {
        true => Ok(size.into()),
        false => Err("a PNG that ends too early: it has no end chunk".into()),
    }
}

fn webp(bytes: &[u8]) -> Size {
    let size = little(bytes, 4, 4).map_or(0, |size| size as usize + 8);
    if size > bytes.len() {
        return Err(format!("a WebP that ends too early: {} of {size} bytes", bytes.len()));
    }
    let kind = bytes.get(12..30).ok_or_else(|| cut(ImageFormat::WebP))?;
    let number = |at, length| little(bytes, at, length).unwrap_or(0);
    match (&kind[..4], &kind[8..14]) {
        (b"VP8X", _) => Ok([number(24, 3) + 1, number(27, 3) + 1]),
        (b"VP8L", [0x2f, ..]) => Ok([number(21, 4) & 0x3fff, number(21, 4) >> 14 & 0x3fff].map(|side| side + 1)),
        (b"VP8 ", [_, _, _, 0x9d, 0x01, 0x2a]) => Ok([number(26, 2) & 0x3fff, number(28, 2) & 0x3fff]),
        _ => Err("a WebP without an image in it".into()),
    }
}

fn bmp(bytes: &[u8]) -> Size {
    let number = |at, length| little(bytes, at, length).ok_or_else(|| cut(ImageFormat::Bmp));
    let (start, header) = (number(10, 4)?, number(14, 4)?);
    let (width, height, depth, compression) = match header {
        12 => (number(18, 2)?, number(20, 2)?, number(24, 2)?, 0),
        // A negative height: from the top down.
        40.. => (number(18, 4)?, (number(22, 4)? as i32).unsigned_abs(), number(28, 2)?, number(30, 4)?),
        _ => return Err(format!("a BMP with a header of {header} bytes")),
    };
    if width > i32::MAX as u32 {
        return Err(format!("a BMP of {} x {height} pixels", width as i32));
    }
    let row = (u128::from(width) * u128::from(depth)).div_ceil(32) * 4;
    let needed = u128::from(start) + row * u128::from(height);
    match compression == 0 && (bytes.len() as u128) < needed {
        true => Err(format!("a BMP that ends too early: {} of {needed} bytes", bytes.len())),
        false => Ok([width, height]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beginning, frame of 3 x 2 pixels, scan, end.
    const JPEG: &[u8] = b"\xff\xd8\xff\xc0\0\x08\x08\0\x02\0\x03\x01\xff\xda\0\x02scan\xff\xd9";

    #[test]
    fn the_size_is_in_the_header_and_the_end_is_there() {
        assert_eq!(ImageHeader::of(JPEG).unwrap(), ImageHeader { format: ImageFormat::Jpeg, width: 3, height: 2 });
        for length in 0..JPEG.len() {
            assert!(ImageHeader::of(&JPEG[..length]).is_err(), "{length} bytes");
        }
        let appended = [JPEG, b"by a camera"].concat();
        assert!(ImageHeader::of(&appended).is_ok());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let message = |bytes: &[u8]| ImageHeader::of(bytes).unwrap_err().message().to_string();
        assert_eq!(message(b""), "expected an image, got an empty file");
        assert_eq!(message(b"text"), "expected an image, got bytes of no known format (74 65 78 74)");
        assert_eq!(message(b"GIF89a\0\0\x01\0"), "expected an image, got GIF of 0 x 1 pixels");
        assert!(message(&[b"BM".as_slice(), &[0xff; 60]].concat()).contains("a BMP"));
    }
}
