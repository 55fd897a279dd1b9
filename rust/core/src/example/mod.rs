//! `tf.train.Example` and `tf.train.SequenceExample` records, and the columns that they decode to and encode from.

pub mod columns;
pub(crate) mod convert;
pub mod decode;
pub mod encode;
pub mod feature_lists;
pub mod plan;
pub mod row_selection;
pub mod sequence;
pub mod walk;
