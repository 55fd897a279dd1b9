//! Hashes of keys and records, many at a time.

use numpy::PyArray1;
use penstock_core::hash::Hasher;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::records::Records;

/// The order hash of each key.
#[pyfunction]
pub fn hash_keys<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyList>,
    seed: u64,
    split: &str,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let hasher = Hasher::for_keys(seed, split);
    let hash = |key: Bound<'py, PyAny>| Ok(hasher.hash(key.cast::<PyString>()?.to_cow()?.as_bytes()));
    Ok(PyArray1::from_vec(py, keys.iter().map(hash).collect::<PyResult<_>>()?))
}

/// The numbers below `count`, in the order of the hashes of the keys "0", "1" ...
#[pyfunction]
pub fn order_numbers<'py>(py: Python<'py>, count: u32, seed: u64, split: &str) -> Bound<'py, PyArray1<u32>> {
    let hasher = Hasher::for_keys(seed, split);
    PyArray1::from_vec(py, py.detach(|| hasher.order_numbers(count)))
}

/// The content hash of each record.
#[pyfunction]
pub fn hash_records<'py>(py: Python<'py>, records: &Bound<'py, Records>) -> Bound<'py, PyArray1<u64>> {
    let records = records.get();
    let hasher = Hasher::for_content();
    let hashes = py.detach(|| records.slices().into_iter().map(|record| hasher.hash(record)).collect());
    PyArray1::from_vec(py, hashes)
}
