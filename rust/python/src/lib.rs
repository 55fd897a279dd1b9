//! `penstock._core`: the only crate that knows Python. It extracts, calls the core, and converts; nothing more.

mod csv;
mod errors;
mod feed;
mod file_contents;
mod gathered_columns;
mod hdf5;
mod image;
mod inspect;
mod interpreter;
mod key_hash;
mod numpy_memory;
mod order;
mod plan;
mod records;
mod sequence;
mod shard;
mod shard_set;
mod tar;
mod writer;

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use penstock_core::interrupt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Below this many bytes, letting other threads run costs more than it gives.
const RELEASE_FROM: usize = 1 << 16;

/// Calls `work` with the bytes of any object that has some.
fn with_bytes<T: Send>(
    data: &Bound<'_, PyAny>,
    work: impl Fn(&[u8]) -> penstock_core::Result<T> + Send + Sync,
) -> PyResult<T> {
    let py = data.py();
    let run = |bytes: &[u8]| match bytes.len() < RELEASE_FROM {
        true => work(bytes).map_err(|error| errors::raise(py, &error)),
        false => interpreter::released(py, || work(bytes)),
    };
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return run(bytes.as_bytes());
    }
    let view = data.py().import("numpy")?.call_method1("frombuffer", (data, "uint8"))?;
    let view = view.cast_into::<PyUntypedArray>()?;
    debug_assert!(view.is_c_contiguous());
    run(numpy_memory::bytes_of(&view))
}

/// CRC-32C of any number of bytes, in blocks between which the work may end.
fn checksum(value: u32, bytes: &[u8]) -> penstock_core::Result<u32> {
    bytes.chunks(interrupt::BLOCK).try_fold(value, |crc, block| {
        interrupt::check()?;
        Ok(penstock_core::crc32c::append(crc, block))
    })
}

/// CRC-32C of `data`, going on from `value`.
#[pyfunction]
#[pyo3(signature = (data, value = 0))]
fn crc32c(data: &Bound<'_, PyAny>, value: u32) -> PyResult<u32> {
    with_bytes(data, |bytes| checksum(value, bytes))
}

/// CRC-32C of `data`, masked as TFRecord stores it.
#[pyfunction]
fn masked_crc32c(data: &Bound<'_, PyAny>) -> PyResult<u32> {
    with_bytes(data, |bytes| checksum(0, bytes).map(penstock_core::crc32c::mask))
}

/// The largest row of this process in bytes; with `limit`, sets it and returns the one before.
#[pyfunction]
#[pyo3(signature = (limit = None))]
fn max_row_bytes(limit: Option<u64>) -> u64 {
    let before = penstock_core::limits::max_row_bytes();
    limit.into_iter().for_each(penstock_core::limits::set_max_row_bytes);
    before
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("JPEG_DECODER", penstock_core::image::JPEG_DECODER)?;
    module.add_function(wrap_pyfunction!(crc32c, module)?)?;
    module.add_function(wrap_pyfunction!(masked_crc32c, module)?)?;
    module.add_function(wrap_pyfunction!(max_row_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(hdf5::unpack_chunk, module)?)?;
    module.add_function(wrap_pyfunction!(csv::read_csv, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::describe, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::describe_steps, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::have_steps, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::first_records, module)?)?;
    module.add_function(wrap_pyfunction!(image::decode_image, module)?)?;
    module.add_function(wrap_pyfunction!(image::image_header, module)?)?;
    module.add_function(wrap_pyfunction!(image::resize_image, module)?)?;
    module.add_function(wrap_pyfunction!(file_contents::file_stamps, module)?)?;
    module.add_function(wrap_pyfunction!(key_hash::hash_keys, module)?)?;
    module.add_function(wrap_pyfunction!(key_hash::order_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(key_hash::hash_records, module)?)?;
    module.add_function(wrap_pyfunction!(shard::offsets_from_dali, module)?)?;
    module.add_function(wrap_pyfunction!(shard::salvage, module)?)?;
    module.add_function(wrap_pyfunction!(tar::list_tar, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<plan::PyPlan>()?;
    module.add_class::<records::Records>()?;
    module.add_class::<sequence::SequencePlan>()?;
    module.add_class::<shard::PyIndex>()?;
    module.add_class::<shard::PyShard>()?;
    module.add_class::<shard_set::PyShardSet>()?;
    module.add_class::<order::PyOrder>()?;
    module.add_class::<feed::PyFeed>()?;
    module.add_class::<image::PyImages>()?;
    module.add_class::<file_contents::PyImageFiles>()?;
    module.add_class::<interpreter::Stop>()?;
    module.add_class::<writer::PyWriter>()?;
    interpreter::watch_exit(module)?;
    // The first array imports a part of NumPy, which a pending KeyboardInterrupt would end: it is imported here.
    if module.py().import("numpy").is_ok() {
        numpy::PyArray1::<u8>::zeros(module.py(), 0, false);
    }
    Ok(())
}
