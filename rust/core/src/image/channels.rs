//! Converts pixels between numbers of channels.

use crate::error::Result;
use crate::limits;

/// The grey of a colour: ITU-R 601, in whole numbers, rounded, as Pillow computes it.
fn grey(red: u8, green: u8, blue: u8) -> u8 {
    let weighted = 19_595 * u32::from(red) + 38_470 * u32::from(green) + 7_471 * u32::from(blue);
    ((weighted + 0x8000) >> 16) as u8
}

/// Turns pixels of `from` channels (grey, grey and alpha, RGB, RGB and alpha) into pixels of `to`: grey is repeated, alpha is
/// left out or opaque.
pub(super) fn convert(pixels: &[u8], from: usize, to: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    limits::reserve(out, pixels.len() / from * to)?;
    let wide = pixels.chunks_exact(from).map(|pixel| match *pixel {
        [grey] => [grey, grey, grey, 255],
        [grey, alpha] => [grey, grey, grey, alpha],
        [red, green, blue] => [red, green, blue, 255],
        [red, green, blue, alpha] => [red, green, blue, alpha],
        _ => [0; 4],
    });
    match to {
        1 if from <= 2 => out.extend(wide.map(|[grey, ..]| grey)),
        1 => out.extend(wide.map(|[red, green, blue, _]| grey(red, green, blue))),
        3 => wide.for_each(|[red, green, blue, _]| out.extend([red, green, blue])),
        _ => wide.for_each(|pixel| out.extend(pixel)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_and_go() {
        let to = |pixels: &[u8], from, to| {
            let mut out = vec![9; 9];
            convert(pixels, from, to, &mut out).unwrap();
            out
        };
        assert_eq!(to(&[1, 2], 1, 3), [1, 1, 1, 2, 2, 2]);
        assert_eq!(to(&[1, 2], 1, 4), [1, 1, 1, 255, 2, 2, 2, 255]);
        assert_eq!(to(&[1, 7], 2, 1), [1]);
        assert_eq!(to(&[1, 7], 2, 4), [1, 1, 1, 7]);
        assert_eq!(to(&[1, 2, 3, 7], 4, 3), [1, 2, 3]);
        assert_eq!(to(&[1, 2, 3], 3, 4), [1, 2, 3, 255]);
        assert_eq!(to(&[255, 255, 255, 0, 255, 0], 3, 1), [255, 150]);
    }
}
