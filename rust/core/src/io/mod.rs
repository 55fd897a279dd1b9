//! Files: positioned reads, caches of their content, and atomic writes.

pub mod atomic_file;
pub(crate) mod buffer_pool;
pub mod cached_file;
pub mod file;
pub mod file_contents;
pub(crate) mod fork_cell;
pub mod range_cache;
pub(crate) mod slot_cache;
pub(crate) mod window_reader;
