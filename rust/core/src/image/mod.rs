//! Decodes image files to pixels, one at a time or as columns of a batch.

mod bmp;
mod channels;
mod encode;
mod formats;
mod gif;
mod header;
mod jpeg;
mod options;
mod png;
mod random;
mod resize;
mod tiff;
#[cfg(feature = "turbo")]
mod turbo;
mod webp;

use fast_image_resize::Resizer;

use crate::error::{Error, Result};
use crate::example::columns::{Column, ColumnBuffer, Shapes};
use crate::example::plan::{Dtype, Encoding, Plan};
use crate::interrupt;
use crate::limits;

pub use encode::resize_file;
pub use formats::{ImageFormat, ImageShape, FREE_PIXELS, MAX_PIXELS, PIXELS_PER_BYTE};
pub use header::ImageHeader;
pub use options::{Area, Crop, ImageOptions, MAX_SIDE};

use options::Drawn;

/// What decodes the pixels of JPEG files.
pub const JPEG_DECODER: &str = jpeg::DECODER;

/// Decoded pixels: rows from the top, pixels from the left, channels side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// 1: grey; 2: grey and alpha; 3: RGB; 4: RGB and alpha.
    pub channels: usize,
    /// `height * width * channels` bytes.
    pub data: Vec<u8>,
}

/// Decodes an image file. `random` decides what a random crop keeps, and whether the image is flipped.
pub fn decode(bytes: &[u8], options: &ImageOptions, random: u64) -> Result<Pixels> {
    options.check()?;
    decode_one(bytes, options, random)
}

/// The same with options that are checked: an image alone may have a size and whatever channels it has.
fn decode_one(bytes: &[u8], options: &ImageOptions, random: u64) -> Result<Pixels> {
    let mut decoder = ImageDecoder::default();
    let (drawn, shape) = decoder.read(bytes, options, random)?;
    let [height, width, channels] = shape;
    let mut data = Vec::new();
    limits::grow_to(&mut data, height * width * channels, 0)?;
    decoder.write(&drawn, &mut data)?;
    Ok(Pixels { height, width, channels, data })
}

/// Memory that one image after the other is decoded in.
#[derive(Default)]
struct ImageDecoder {
    pixels: Vec<u8>,
    converted: Vec<u8>,
    shape: ImageShape,
    resizer: Resizer,
}

impl ImageDecoder {
    /// Decodes an image to the wanted channels, and says what becomes of it, and in which shape.
    fn read(&mut self, bytes: &[u8], options: &ImageOptions, random: u64) -> Result<(Drawn, ImageShape)> {
        self.shape = formats::read(bytes, options.channels, &mut self.pixels)?;
        let [height, width, stored] = self.shape;
        let channels = options.channels.unwrap_or(stored);
        if channels != stored {
            channels::convert(&self.pixels, stored, channels, &mut self.converted)?;
            std::mem::swap(&mut self.pixels, &mut self.converted);
            self.shape[2] = channels;
        }
        let drawn = options.draw(height, width, random);
        Ok((drawn, [drawn.target.0, drawn.target.1, channels]))
    }

    /// Writes what was read into its place.
    fn write(&mut self, drawn: &Drawn, out: &mut [u8]) -> Result<()> {
        resize::resize(&mut self.resizer, &self.pixels, self.shape, drawn, out)
    }
}

/// Which columns hold images, and what becomes of them.
#[derive(Clone, Debug, Default)]
pub struct Images {
    columns: Vec<(String, ImageOptions)>,
}

impl Images {
    /// Decodes the columns with these keys.
    pub fn new(columns: Vec<(String, ImageOptions)>) -> Result<Images> {
        for (key, options) in &columns {
            options.check().map_err(|error| error.in_field(key))?;
        }
        Ok(Images { columns })
    }

    /// The columns, by key.
    pub fn columns(&self) -> &[(String, ImageOptions)] {
        &self.columns
    }

    /// The pixels of one file of a column: as in a batch, at this position.
    pub fn decode_one(&self, key: &str, bytes: &[u8], epoch: u64, position: u64) -> Result<Pixels> {
        let Some((_, options)) = self.columns.iter().find(|(known, _)| known == key) else {
            return Err(Error::usage("expected a column of images").in_field(key));
        };
        let random = random::seed_of(options.seed, key, epoch, position);
        decode(bytes, options, random).map_err(|error| error.in_field(key))
    }

    /// Called once a batch's columns are complete, on whatever thread made them: replaces the columns that hold image
    /// files. `positions` has one number for each row, the row's place in the global order whoever reads it: with
    /// `epoch` it is all that randomness may depend on. An error names the row by its number within the batch
    /// (`in_record`) and the field.
    pub fn decode(&self, plan: &Plan, columns: &mut [Column], epoch: u64, positions: &[u64]) -> Result<()> {
        let mut decoder = ImageDecoder::default();
        for (key, options) in &self.columns {
            let number = plan.find(key.as_bytes());
            let Some((number, column)) = number.and_then(|number| Some((number, columns.get_mut(number)?))) else {
                continue; // it was not selected
            };
            let spec = &plan.specs()[number];
            if spec.dtype != Dtype::Bytes || spec.encoding != Encoding::None || spec.count != Some(1) {
                let message = format!("expected one byte string that holds an image, got {}", spec.describe());
                return Err(Error::schema(message).in_field(key));
            }
            let seeds =
                |row: usize| random::seed_of(options.seed, key, epoch, positions.get(row).copied().unwrap_or(0));
            *column = decoder.column(column, options, seeds).map_err(|error| error.in_field(key))?;
        }
        Ok(())
    }
}

impl ImageDecoder {
    /// The pixels of a column of image files; a missing row has none, or black ones.
    fn column(&mut self, files: &Column, options: &ImageOptions, random: impl Fn(usize) -> u64) -> Result<Column> {
        let splits = files.value_splits.as_deref().unwrap_or(&[0]);
        let rows = splits.windows(2).map(|pair| &files.values.bytes()[pair[0] as usize..pair[1] as usize]).enumerate();
        let there = |row: usize| files.present.as_ref().is_none_or(|present| present.get(row) != Some(&0));
        let place = |row: usize| move |error: Error| error.in_record(row as u64);
        let present = files.present.clone();
        if let Some(shape) = options.fixed_shape() {
            let length: usize = shape.iter().product();
            let mut values = ColumnBuffer::numbers(length.saturating_mul(rows.len()))?;
            for ((row, bytes), out) in
                rows.zip(values.bytes_mut().chunks_exact_mut(length)).filter(|((row, _), _)| there(*row))
            {
                interrupt::check()?;
                let decoded = self.read(bytes, options, random(row));
                decoded.and_then(|(drawn, _)| self.write(&drawn, out)).map_err(place(row))?;
            }
            return Ok(Column {
                values,
                value_splits: None,
                row_splits: None,
                present,
                shapes: Some(Shapes::Same(shape)),
            });
        }
        let (mut values, mut row_splits, mut shapes) = (ColumnBuffer::Strings(Vec::new()), vec![0], Vec::new());
        for (row, bytes) in rows {
            interrupt::check()?;
            let mut shape = [0; 3];
            if there(row) {
                let (drawn, drawn_shape) = self.read(bytes, options, random(row)).map_err(place(row))?;
                shape = drawn_shape;
                let out = values.grow(shape.iter().product()).map_err(place(row))?;
                self.write(&drawn, out).map_err(place(row))?;
            }
            row_splits.push(values.bytes().len() as i64);
            shapes.extend(shape.map(|size| size as i64));
        }
        Ok(Column {
            values,
            value_splits: None,
            row_splits: Some(row_splits),
            present,
            shapes: Some(Shapes::Each(shapes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::plan::{spec, Missing, Spec};

    /// A BMP of one colour: the simplest file there is.
    fn bmp(height: u32, width: u32, color: [u8; 3]) -> Vec<u8> {
        let stride = (width * 3).div_ceil(4) * 4;
        let mut file = b"BM".to_vec();
        for number in [54 + stride * height, 0, 54, 40, width, height, 24 << 16 | 1, 0, stride * height, 0, 0, 0, 0] {
            file.extend(number.to_le_bytes());
        }
        for _ in 0..height {
            let row = (0..width).flat_map(|_| [color[2], color[1], color[0]]);
            file.extend(row.chain(std::iter::repeat(0)).take(stride as usize));
        }
        file
    }

    fn column(files: &[Option<Vec<u8>>]) -> (Plan, Vec<Column>) {
        let spec = Spec { missing: Missing::Mask, ..spec("image", Dtype::Bytes, Some(1)) };
        let mut column = Column::empty(&spec);
        for file in files {
            let bytes = file.as_deref().unwrap_or(&[]);
            column.values.grow(bytes.len()).unwrap().copy_from_slice(bytes);
            column.value_splits.as_mut().unwrap().push(column.values.bytes().len() as i64);
            column.present.as_mut().unwrap().push(u8::from(file.is_some()));
        }
        (Plan::new(vec![spec]).unwrap(), vec![column])
    }

    fn images(options: ImageOptions) -> Images {
        Images::new(vec![("image".into(), options)]).unwrap()
    }

    #[test]
    fn a_batch_of_one_size_is_one_block() {
        let (plan, mut columns) = column(&[Some(bmp(3, 5, [1, 2, 3])), None, Some(bmp(9, 2, [7, 8, 9]))]);
        images(ImageOptions { size: Some((2, 2)), ..ImageOptions::default() })
            .decode(&plan, &mut columns, 0, &[0, 1, 2])
            .unwrap();
        let expected = [[1, 2, 3].repeat(4), vec![0; 12], [7, 8, 9].repeat(4)].concat();
        assert_eq!(columns[0].values.bytes(), expected);
        assert_eq!(columns[0].shapes, Some(Shapes::Same([2, 2, 3])));
        assert_eq!(columns[0].present, Some(vec![1, 0, 1]));
    }

    #[test]
    fn images_of_any_size_have_shapes_of_their_own() {
        let (plan, mut columns) = column(&[Some(bmp(1, 2, [1, 2, 3])), None, Some(bmp(2, 1, [7, 8, 9]))]);
        images(ImageOptions { channels: Some(1), ..ImageOptions::default() })
            .decode(&plan, &mut columns, 0, &[0, 1, 2])
            .unwrap();
        assert_eq!(columns[0].values.bytes(), [2, 2, 8, 8]);
        assert_eq!(columns[0].row_splits, Some(vec![0, 2, 2, 4]));
        assert_eq!(columns[0].shapes, Some(Shapes::Each(vec![1, 2, 1, 0, 0, 0, 2, 1, 1])));
    }

    #[test]
    fn an_image_alone_is_that_of_a_batch() {
        let options = ImageOptions { size: Some((3, 4)), crop: Crop::Random, flip: 0.5, ..ImageOptions::default() };
        let mut file = bmp(20, 30, [1, 2, 3]);
        file[54..].iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * at % 251) as u8);
        let (plan, mut columns) = column(&[Some(file.clone()), Some(file.clone())]);
        let images = images(options);
        images.decode(&plan, &mut columns, 5, &[7, 100]).unwrap();
        let alone = [7, 100].map(|position| images.decode_one("image", &file, 5, position).unwrap().data);
        assert_ne!(alone[0], alone[1]);
        assert_eq!(columns[0].values.bytes(), alone.concat());
        assert!(images.decode_one("label", &file, 5, 7).is_err());
    }

    #[test]
    fn a_broken_image_is_named() {
        let (plan, mut columns) = column(&[Some(bmp(1, 1, [1, 2, 3])), Some(b"text".to_vec())]);
        let error = images(ImageOptions::default()).decode(&plan, &mut columns, 0, &[0, 1]).unwrap_err();
        assert_eq!((error.record(), error.field()), (Some(1), Some("image")));
    }

    #[test]
    fn columns_that_are_no_images_are_refused_and_others_left_alone() {
        let plan = Plan::new(vec![spec("image", Dtype::Int64, Some(1))]).unwrap();
        let mut columns = vec![Column::empty(&plan.specs()[0])];
        assert!(images(ImageOptions::default()).decode(&plan, &mut columns, 0, &[]).is_err());
        let plan = Plan::new(vec![spec("label", Dtype::Int64, Some(1))]).unwrap();
        assert!(images(ImageOptions::default()).decode(&plan, &mut columns, 0, &[]).is_ok());
    }
}
