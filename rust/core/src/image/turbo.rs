//! The pixels of a JPEG file by libjpeg-turbo.

use std::cell::RefCell;

use turbojpeg::{Colorspace, Decompressor, Image, PixelFormat};

use crate::image::formats::ImageShape;

thread_local! {
    /// One for each thread: to make one takes longer than to decode a thumbnail.
    static DECOMPRESSOR: RefCell<Option<Decompressor>> = RefCell::new(Decompressor::new().ok());
}

/// More scans than any encoder writes: each is as much work as a whole image.
const MOST_SCANS: u32 = 500;

/// Decodes into `out`, which is as large as `shape` says. `false` for what it does not take as it is: damage of any
/// kind, and colours that it would not turn into RGB. `out` may be written to even so.
pub(super) fn decode(bytes: &[u8], shape: ImageShape, out: &mut [u8]) -> bool {
    let [height, width, channels] = shape;
    let format = if channels == 1 { PixelFormat::GRAY } else { PixelFormat::RGB };
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let Some(decompressor) = decompressor else { return false };
        let known = decompressor.set_scan_limit(MOST_SCANS).and_then(|()| decompressor.read_header(bytes));
        let fits = known.is_ok_and(|header| {
            let plain = matches!(header.colorspace, Colorspace::Gray | Colorspace::YCbCr | Colorspace::RGB);
            plain && (header.height, header.width) == (height, width) && !(header.is_lossless || header.is_arithmetic)
        });
        let image = Image { pixels: out, width, pitch: width * channels, height, format };
        fits && decompressor.decompress(bytes, image).is_ok()
    })
}
