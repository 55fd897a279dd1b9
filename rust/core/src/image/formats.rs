//! Decodes an image file to pixels; the format is detected by content.

use crate::error::{Error, Result};
use crate::image::{bmp, gif, jpeg, png, tiff, webp};

/// Maximum number of pixels of an image.
pub const MAX_PIXELS: usize = 178_956_970;
/// Any image may have this many pixels, however small its file: flat colours take no bytes.
pub const FREE_PIXELS: usize = 1 << 24;
/// Beyond that, a file needs a byte for each so many pixels.
pub const PIXELS_PER_BYTE: usize = 1 << 10;

/// Height, width and channels.
pub type ImageShape = [usize; 3];

/// An image format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ImageFormat {
    Jpeg,
    Png,
    WebP,
    Gif,
    Bmp,
    Tiff,
}

impl ImageFormat {
    /// The format that the bytes begin with.
    pub fn of(bytes: &[u8]) -> Result<ImageFormat> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Ok(ImageFormat::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(ImageFormat::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(ImageFormat::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(ImageFormat::Gif),
            [b'B', b'M', ..] => Ok(ImageFormat::Bmp),
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Ok(ImageFormat::Tiff),
            [] => Err(Error::corrupt("expected an image, got no bytes")),
            _ => {
                let first: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                let message =
                    format!("expected an image, got {} bytes that begin with {}", bytes.len(), first.join(" "));
                Err(Error::corrupt(message).advise("JPEG, PNG, WebP, GIF, BMP and TIFF files are decoded."))
            }
        }
    }

    /// The name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            ImageFormat::Jpeg => "JPEG",
            ImageFormat::Png => "PNG",
            ImageFormat::WebP => "WebP",
            ImageFormat::Gif => "GIF",
            ImageFormat::Bmp => "BMP",
            ImageFormat::Tiff => "TIFF",
        }
    }

    /// "expected a JPEG image, got {what}".
    pub(super) fn broken(self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(format!("expected a {} image, got {what}", self.name()))
    }

    /// The number of pixels, if a file of `length` bytes may have that many: nothing is allocated by a header alone.
    pub(super) fn pixels(self, height: usize, width: usize, length: usize) -> Result<usize> {
        let most = length.saturating_mul(PIXELS_PER_BYTE).clamp(FREE_PIXELS, MAX_PIXELS);
        match height.checked_mul(width) {
            Some(0) => Err(self.broken(format!("one of {width} x {height} pixels"))),
            Some(pixels) if pixels <= most => Ok(pixels),
            _ => {
                let what = format!("{width} x {height} pixels in {length} bytes: more than {most} are not decoded");
                Err(self.broken(what))
            }
        }
    }
}

/// Decodes an image file into `out`, which is emptied before. JPEG files give `wanted` channels where that is cheaper;
/// otherwise there are as many as are stored.
pub(super) fn read(bytes: &[u8], wanted: Option<usize>, out: &mut Vec<u8>) -> Result<ImageShape> {
    out.clear();
    match ImageFormat::of(bytes)? {
        ImageFormat::Jpeg => jpeg::read(bytes, wanted, out),
        ImageFormat::Png => png::read(bytes, out),
        ImageFormat::WebP => webp::read(bytes, out),
        ImageFormat::Gif => gif::read(bytes, out),
        ImageFormat::Bmp => bmp::read(bytes, out),
        ImageFormat::Tiff => tiff::read(bytes, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_first_bytes() {
        assert_eq!(ImageFormat::of(b"\xff\xd8\xff\xe0").unwrap(), ImageFormat::Jpeg);
        assert_eq!(ImageFormat::of(b"\x89PNG\r\n\x1a\n").unwrap(), ImageFormat::Png);
        assert_eq!(ImageFormat::of(b"RIFF\0\0\0\0WEBP").unwrap(), ImageFormat::WebP);
        assert_eq!(ImageFormat::of(b"GIF89a").unwrap(), ImageFormat::Gif);
        assert_eq!(ImageFormat::of(b"BM").unwrap(), ImageFormat::Bmp);
        assert_eq!(ImageFormat::of(b"II\x2a\0").unwrap(), ImageFormat::Tiff);
        assert_eq!(ImageFormat::of(b"MM\0\x2a").unwrap(), ImageFormat::Tiff);
        assert_eq!(ImageFormat::of(b"").unwrap_err().message(), "expected an image, got no bytes");
        let message = "expected an image, got 4 bytes that begin with 74 65 78 74";
        assert_eq!(ImageFormat::of(b"text").unwrap_err().message(), message);
    }

    #[test]
    fn a_header_alone_allocates_nothing() {
        assert!(ImageFormat::Jpeg.pixels(65_535, 65_535, usize::MAX).is_err());
        assert!(ImageFormat::Jpeg.pixels(usize::MAX, 2, usize::MAX).is_err());
        assert!(ImageFormat::Jpeg.pixels(0, 7, 1000).is_err());
        assert_eq!(ImageFormat::Png.pixels(4096, 4096, 10).unwrap(), 1 << 24);
        assert!(ImageFormat::Png.pixels(4097, 4096, 10).is_err());
        assert!(ImageFormat::Png.pixels(4097, 4096, 100_000).is_ok());
    }
}
