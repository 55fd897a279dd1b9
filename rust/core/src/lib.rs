//! What bytes are: TFRecord frames, ArrayRecord chunks, tar samples, `tf.train.Example` records, shard indexes and the feed.
//!
//! Nothing here knows Python, nothing here is `unsafe`, and no input of any bytes makes it panic,
//! read out of bounds or allocate more than the input warrants.
#![forbid(unsafe_code)]

pub mod array_record;
pub mod batches;
pub mod chunk;
pub mod columns;
pub mod convert;
pub mod crc;
pub mod csv;
pub mod decode;
pub mod deflate;
pub mod encode;
pub mod error;
pub mod example;
pub mod feed;
pub mod file;
pub mod frames;
pub mod gather;
pub mod hash;
pub mod held;
pub mod image;
pub mod index;
pub mod inflate;
pub mod inflated;
pub mod interrupt;
pub mod limits;
pub mod mix;
mod once;
pub mod opened;
pub mod order;
pub mod permutation;
pub mod pieces;
pub mod plan;
pub mod publish;
pub mod queue;
mod recent;
pub mod riegeli;
pub mod salvage;
pub mod sequence;
pub mod shard;
pub mod shards;
mod spare;
pub mod steps;
pub mod take;
pub mod tar;
pub mod whole;
pub mod wire;
pub mod writer;
mod zlib;

pub use error::{Error, Kind, Result};
