//! TFRecord files: frames one after the other, which may be compressed as a whole.

pub mod salvage;
pub mod shard;
pub mod stream;
pub mod writer;
