//! Any bytes as an image: an error or pixels of the promised shape, alone as behind another image in a batch.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_core::example::columns::{Column, Shapes};
use penstock_core::example::plan::{Dtype, Encoding, Missing, Plan, Spec};
use penstock_core::image::{decode, resize_file, Crop, ImageHeader, ImageOptions, Images};

/// A whole image, whose pixels must not shine through in the next one.
const OTHER: &[u8] = include_bytes!("../seeds/image/bmp_palette").split_at(1).1;

fn options(choice: u8) -> ImageOptions {
    let plain = ImageOptions {
        channels: [Some(3), Some(1), Some(4), None][usize::from(choice & 3)],
        ..ImageOptions::default()
    };
    let sized = ImageOptions { channels: plain.channels.or(Some(3)), ..plain.clone() };
    match choice >> 2 & 3 {
        0 => plain,
        1 => ImageOptions { max_side: Some(9), ..plain },
        2 => ImageOptions { size: Some((7, 5)), crop: Crop::Center, ..sized },
        _ => ImageOptions { size: Some((7, 5)), crop: Crop::Random, flip: 0.5, ..sized },
    }
}

fuzz_target!(|input: &[u8]| {
    let [choice, file @ ..] = input else { return };
    if let Ok(header) = ImageHeader::of(file) {
        assert!(header.width > 0 && header.height > 0);
    }
    let options = options(*choice);
    let alone = decode(file, &options, 7);
    let [height, width, channels] = match &alone {
        Ok(pixels) => [pixels.height, pixels.width, pixels.channels],
        Err(error) => return assert!(error.kind().is_corrupt(), "{error}"),
    };
    let pixels = alone.expect("checked above");
    assert_eq!(pixels.data.len(), height * width * channels);
    assert!(height > 0 && width > 0 && options.channels.is_none_or(|wanted| wanted == channels));
    if let Some(size) = options.size {
        assert_eq!(size, (height, width));
    }

    if options.crop == Crop::Random {
        return; // a batch has random numbers of its own
    }
    if let Ok(Some(stored)) = resize_file(file, &options) {
        let again = decode(&stored, &ImageOptions::default(), 7).expect("what we wrote");
        assert_eq!((again.height, again.width), (height, width));
    }
    let spec = Spec {
        key: "image".into(),
        dtype: Dtype::Bytes,
        encoding: Encoding::None,
        count: Some(1),
        missing: Missing::Refuse,
    };
    let mut column = Column::empty(&spec);
    for bytes in [OTHER, file] {
        column.values.grow(bytes.len()).expect("memory for a file").copy_from_slice(bytes);
        column.value_splits.as_mut().expect("byte strings").push(column.values.bytes().len() as i64);
    }
    let plan = Plan::new(vec![spec]).expect("one column");
    let images = Images::new(vec![("image".into(), options)]).expect("options that make sense");
    let mut columns = [column];
    images.decode(&plan, &mut columns, 0, &[0, 1]).expect("it was decoded alone");
    assert!(columns[0].values.bytes().ends_with(&pixels.data), "other pixels in a batch");
    match columns[0].shapes.as_ref().expect("images have shapes") {
        Shapes::Same(shape) => assert_eq!(*shape, [height, width, channels]),
        Shapes::Each(shapes) => assert_eq!(shapes[3..], [height, width, channels].map(|size| size as i64)),
    }
});
