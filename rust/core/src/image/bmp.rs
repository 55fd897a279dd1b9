//! BMP: uncompressed, with a palette or with 24 or 32 bits a pixel.

use crate::error::Result;
use crate::image::formats::{ImageFormat, ImageShape};
use crate::limits;

/// Numbers of a header, little endian; 0 behind its end.
struct BmpHeader<'a>(&'a [u8]);

impl BmpHeader<'_> {
    fn u16(&self, at: usize) -> usize {
        self.0.get(at..at + 2).map_or(0, |bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    fn i32(&self, at: usize) -> i64 {
        self.0.get(at..at + 4).map_or(0, |b| i64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]])))
    }

    fn u32(&self, at: usize) -> usize {
        self.i32(at) as u32 as usize
    }
}

const FILE_HEADER: usize = 14;
/// The masks of blue, green, red in 32 bits, as everybody writes them.
const USUAL_MASKS: [usize; 3] = [0x00ff_0000, 0x0000_ff00, 0x0000_00ff];

/// Decodes into `out`: RGB.
pub(super) fn read(bytes: &[u8], out: &mut Vec<u8>) -> Result<ImageShape> {
    let broken = |what: &str| Err(ImageFormat::Bmp.broken(what));
    let header = BmpHeader(bytes);
    let (start, info) = (header.u32(10), header.u32(FILE_HEADER));
    let old = info == 12;
    if !old && info < 40 || bytes.len() < FILE_HEADER + info {
        return broken("one that ends in its header");
    }
    let (width, height, depth) = match old {
        true => (header.u16(18) as i64, header.u16(20) as i64, header.u16(24)),
        false => (header.i32(18), header.i32(22), header.u16(28)),
    };
    let compression = if old { 0 } else { header.u32(30) };
    let masks = [54, 58, 62].map(|at| header.u32(at));
    match (compression, depth) {
        (0, 1 | 4 | 8 | 24 | 32) => {}
        (3, 32) if masks == USUAL_MASKS => {}
        _ => return broken(&format!("{depth} bits a pixel in compression {compression}, which are not decoded")),
    }
    let from_top = height < 0;
    let (height, width) = (height.unsigned_abs() as usize, usize::try_from(width).unwrap_or(0));
    let pixels = ImageFormat::Bmp.pixels(height, width, bytes.len())?;
    let stride = (width * depth).div_ceil(32) * 4;
    let Some(rows) = bytes.get(start..).filter(|rows| rows.len() >= stride * height) else {
        return broken("one that ends too early");
    };
    let entry = if old { 3 } else { 4 };
    let palette = bytes.get(FILE_HEADER + info..start.max(FILE_HEADER + info)).unwrap_or(&[]);
    let color = |number: usize| palette.get(number * entry..number * entry + 3).map(|c| [c[2], c[1], c[0]]);
    limits::reserve(out, pixels * 3)?;
    for row in 0..height {
        let at = if from_top { row } else { height - 1 - row } * stride;
        let line = &rows[at..at + stride];
        match depth {
            24 | 32 => line.chunks_exact(depth / 8).take(width).for_each(|p| out.extend([p[2], p[1], p[0]])),
            _ => {
                for pixel in 0..width {
                    let bit = pixel * depth;
                    let value = line[bit / 8] >> (8 - depth - bit % 8) & (0xff >> (8 - depth));
                    match color(usize::from(value)) {
                        Some(color) => out.extend(color),
                        None => return broken("a colour that its palette lacks"),
                    }
                }
            }
        }
    }
    Ok([height, width, 3])
}
