//! Options of image decoding: crop, size and number of channels.

use crate::error::{Error, Result};
use crate::random::SplitMix64;

/// Which part of an image is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crop {
    /// All of it.
    #[default]
    None,
    /// The largest centered part of the target's aspect ratio.
    Center,
    /// A random part: of a random share of the area, in a random aspect ratio, anywhere.
    Random,
}

impl Crop {
    /// The crop of this name.
    pub fn parse(name: Option<&str>) -> Result<Crop> {
        match name {
            None => Ok(Crop::None),
            Some("center") => Ok(Crop::Center),
            Some("random") => Ok(Crop::Random),
            Some(other) => Err(Error::usage(format!("expected crop to be None, center or random, got {other:?}"))),
        }
    }
}

/// What to decode to.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageOptions {
    /// The exact height and width of the result.
    pub size: Option<(usize, usize)>,
    /// The longer side of the result is at most this; smaller images are left as they are.
    pub max_side: Option<usize>,
    /// Which part is kept.
    pub crop: Crop,
    /// The least and the largest share of the area that a random crop keeps.
    pub scale: (f64, f64),
    /// The least and the largest aspect ratio (width / height) of a random crop.
    pub ratio: (f64, f64),
    /// How probable it is that left and right are swapped.
    pub flip: f64,
    /// 1 (grey), 3 (RGB), 4 (RGB and alpha); `None`: as stored.
    pub channels: Option<usize>,
    /// Sets crops and flips apart from those of other seeds.
    pub seed: u64,
}

impl Default for ImageOptions {
    fn default() -> ImageOptions {
        ImageOptions {
            size: None,
            max_side: None,
            crop: Crop::None,
            scale: (0.08, 1.0),
            ratio: (3.0 / 4.0, 4.0 / 3.0),
            flip: 0.0,
            channels: Some(3),
            seed: 0,
        }
    }
}

/// The longest side that a result may have.
pub const MAX_SIDE: usize = 1 << 16;

impl ImageOptions {
    /// Refuses options that make no sense.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::usage(message));
        let sides = self.size.iter().flat_map(|&(height, width)| [height, width]).chain(self.max_side);
        for side in sides {
            if !(1..=MAX_SIDE).contains(&side) {
                return refuse(format!("expected sides of 1 to {MAX_SIDE} pixels, got {side}"));
            }
        }
        if self.size.is_some() && self.max_side.is_some() {
            return refuse("expected size or max_side, got both".into());
        }
        if self.crop == Crop::Center && self.size.is_none() {
            return refuse("expected a size for crop=\"center\": it sets the aspect ratio".into());
        }
        if !matches!(self.channels, None | Some(1 | 3 | 4)) {
            return refuse(format!("expected channels to be 1, 3, 4 or None, got {}", self.channels.unwrap_or(0)));
        }
        if self.size.is_some() && self.channels.is_none() {
            return refuse("expected a number of channels with a size: all images of a batch become one array".into());
        }
        if !(0.0..=1.0).contains(&self.flip) {
            return refuse(format!("expected flip to be a probability, got {}", self.flip));
        }
        let (least, most) = self.scale;
        if !(0.0 < least && least <= most && most <= 1.0) {
            return refuse(format!("expected scale as (least, most) share of the area, got ({least}, {most})"));
        }
        let (least, most) = self.ratio;
        if !(0.0 < least && least <= most && most.is_finite()) {
            return refuse(format!("expected ratio as (least, most) width / height, got ({least}, {most})"));
        }
        Ok(())
    }

    /// Height, width and channels of every result, where that is known without an image.
    pub fn fixed_shape(&self) -> Option<[usize; 3]> {
        let (height, width) = self.size?;
        Some([height, width, self.channels?])
    }

    /// What to do with an image of this size.
    pub(super) fn draw(&self, height: usize, width: usize, random: u64) -> Drawn {
        let mut random = SplitMix64(random);
        let flip = random.unit() < self.flip;
        let area = match self.crop {
            Crop::None => Area { top: 0, left: 0, height, width },
            Crop::Center => Area::center(height, width, self.size.unwrap_or((height, width))),
            Crop::Random => Area::random(height, width, self.scale, self.ratio, &mut random),
        };
        let target = self.size.unwrap_or_else(|| shrink(area.height, area.width, self.max_side));
        Drawn { area, target, flip }
    }
}

/// What to do with one image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    /// The part that is kept.
    pub area: Area,
    /// The height and width it gets.
    pub target: (usize, usize),
    /// Whether left and right are swapped.
    pub flip: bool,
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Rows above it.
    pub top: usize,
    /// Columns left of it.
    pub left: usize,
    /// Its rows, at least one.
    pub height: usize,
    /// Its columns, at least one.
    pub width: usize,
}

/// How often a random crop is drawn before the image is found too long for it.
const TRIES: usize = 10;

impl Area {
    fn centered(height: usize, width: usize, within: (usize, usize)) -> Area {
        let (height, width) = (height.clamp(1, within.0), width.clamp(1, within.1));
        Area { top: (within.0 - height) / 2, left: (within.1 - width) / 2, height, width }
    }

    /// The largest centered part that has the aspect ratio of `target`.
    fn center(height: usize, width: usize, target: (usize, usize)) -> Area {
        let ratio = target.1 as f64 / target.0 as f64;
        let fitting_width = (height as f64 * ratio).round_ties_even() as usize;
        let fitting_height = (width as f64 / ratio).round_ties_even() as usize;
        match fitting_width <= width {
            true => Area::centered(height, fitting_width, (height, width)),
            false => Area::centered(fitting_height, width, (height, width)),
        }
    }

    /// A part of a random share of the area in a random aspect ratio, as torchvision's RandomResizedCrop defines it: the
    /// logarithm of the ratio is uniform; if ten tries do not fit, the largest centered part of an allowed ratio.
    fn random(height: usize, width: usize, scale: (f64, f64), ratio: (f64, f64), random: &mut SplitMix64) -> Area {
        let whole = height as f64 * width as f64;
        let (least, most) = (ratio.0.ln(), ratio.1.ln());
        for _ in 0..TRIES {
            let area = whole * (scale.0 + (scale.1 - scale.0) * random.unit());
            let ratio = (least + (most - least) * random.unit()).exp();
            let wide = (area * ratio).sqrt().round_ties_even() as usize;
            let high = (area / ratio).sqrt().round_ties_even() as usize;
            if (1..=width).contains(&wide) && (1..=height).contains(&high) {
                let top = random.below(height - high + 1);
                return Area { top, left: random.below(width - wide + 1), height: high, width: wide };
            }
        }
        let (high, wide) = match width as f64 / height as f64 {
            narrow if narrow < ratio.0 => ((width as f64 / ratio.0).round_ties_even() as usize, width),
            broad if broad > ratio.1 => (height, (height as f64 * ratio.1).round_ties_even() as usize),
            _ => (height, width),
        };
        Area::centered(high, wide, (height, width))
    }
}

/// The height and width of an image whose longer side is at most `max_side`.
fn shrink(height: usize, width: usize, max_side: Option<usize>) -> (usize, usize) {
    let longer = height.max(width);
    match max_side {
        Some(most) if most < longer => {
            let scaled = |side: usize| ((side as f64 * most as f64 / longer as f64).round_ties_even() as usize).max(1);
            (scaled(height), scaled(width))
        }
        _ => (height, width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_center_has_the_targets_ratio() {
        let area = |height, width, target| Area::center(height, width, target);
        assert_eq!(area(375, 500, (224, 224)), Area { top: 0, left: 62, height: 375, width: 375 });
        assert_eq!(area(500, 375, (224, 224)), Area { top: 62, left: 0, height: 375, width: 375 });
        assert_eq!(area(100, 100, (1, 50)), Area { top: 49, left: 0, height: 2, width: 100 });
        assert_eq!(area(1, 1, (7, 9)), Area { top: 0, left: 0, height: 1, width: 1 });
        assert_eq!(area(1, 9, (MAX_SIDE, 1)), Area { top: 0, left: 4, height: 1, width: 1 });
    }

    #[test]
    fn random_crops_stay_inside_and_within_their_bounds() {
        let options = ImageOptions { crop: Crop::Random, ..ImageOptions::default() };
        for seed in 0..5000 {
            let Area { top, left, height, width } = options.draw(375, 500, seed).area;
            assert!(top + height <= 375 && left + width <= 500, "{seed}");
            let share = (height * width) as f64 / (375.0 * 500.0);
            let ratio = width as f64 / height as f64;
            assert!((0.075..=1.0).contains(&share) && (0.74..=1.35).contains(&ratio), "{seed}: {share} {ratio}");
        }
    }

    #[test]
    fn images_too_long_for_a_random_crop_are_cropped_at_their_center() {
        let area = Area::random(10, 1000, (0.9, 1.0), (0.75, 4.0 / 3.0), &mut SplitMix64(1));
        assert_eq!(area, Area { top: 0, left: 493, height: 10, width: 13 });
        let area = Area::random(1000, 10, (0.9, 1.0), (0.75, 4.0 / 3.0), &mut SplitMix64(1));
        assert_eq!(area, Area { top: 493, left: 0, height: 13, width: 10 });
    }

    #[test]
    fn images_only_shrink_to_their_longest_side() {
        assert_eq!(shrink(375, 500, Some(256)), (192, 256));
        assert_eq!(shrink(375, 500, Some(500)), (375, 500));
        assert_eq!(shrink(1, 5000, Some(100)), (1, 100));
        assert_eq!(shrink(3, 4, None), (3, 4));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let refused = [
            ImageOptions { size: Some((0, 5)), ..ImageOptions::default() },
            ImageOptions { size: Some((5, MAX_SIDE + 1)), ..ImageOptions::default() },
            ImageOptions { size: Some((5, 5)), max_side: Some(5), ..ImageOptions::default() },
            ImageOptions { size: Some((5, 5)), channels: None, ..ImageOptions::default() },
            ImageOptions { crop: Crop::Center, ..ImageOptions::default() },
            ImageOptions { channels: Some(2), ..ImageOptions::default() },
            ImageOptions { flip: 1.5, ..ImageOptions::default() },
            ImageOptions { flip: f64::NAN, ..ImageOptions::default() },
            ImageOptions { scale: (0.0, 1.0), ..ImageOptions::default() },
            ImageOptions { ratio: (2.0, 1.0), ..ImageOptions::default() },
        ];
        for options in refused {
            assert!(options.check().is_err(), "{options:?}");
        }
        assert!(ImageOptions::default().check().is_ok());
    }
}
