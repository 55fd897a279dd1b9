//! Encodings of bytes: compressed streams, zlib fields, HDF5 chunks, and the protobuf wire format.

pub mod deflate;
pub(crate) mod gzip_members;
pub mod hdf5;
pub(crate) mod inflate_cache;
pub mod protobuf;
pub mod stream;
pub(crate) mod zlib;
