//! Files of records: TFRecord, ArrayRecord and tar archives, each a [`container::Container`].

pub mod array_record;
pub mod container;
pub mod frame;
pub mod gather;
pub mod index;
pub(crate) mod indexed_file;
pub mod record_arena;
pub mod riegeli;
pub mod salvage_report;
pub mod shard;
pub mod tar;
pub mod tfrecord;
