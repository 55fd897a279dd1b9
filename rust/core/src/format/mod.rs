//! Files of records: TFRecord, ArrayRecord and tar archives.

pub mod array_record;
pub mod frame;
pub mod gather;
pub mod index;
pub mod opened_shard;
pub mod riegeli;
pub mod tar;
pub mod tfrecord;
