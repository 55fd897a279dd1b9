//! Records in files and in memory: TFRecord, ArrayRecord and tar containers, `tf.train.Example` records, images, CSV,
//! and the feed that decodes them in order.
//!
//! Nothing here knows Python, nothing here is `unsafe`, and no input of any bytes makes it panic,
//! read out of bounds or allocate more than the input warrants.
//!
//! Modules depend on those before them in this list: [`io`], [`codec`], [`format`], [`example`], [`image`] and [`csv`],
//! [`order`], [`feed`].
#![forbid(unsafe_code)]

pub mod codec;
pub mod crc32c;
pub mod csv;
pub mod error;
pub mod example;
pub mod feed;
pub mod format;
pub mod image;
pub mod interrupt;
pub mod io;
pub mod limits;
pub mod order;
pub mod ordered_queue;
mod random;

pub use error::{Error, Kind, Result};
