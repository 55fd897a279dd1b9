//! Hashes of keys and records, many at a time.

use numpy::PyArray1;
use penstock_core::interrupt;
use penstock_core::order::key_hash::Hasher;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::interpreter::released;
use crate::records::Records;

/// Keys that are hashed between two looks for signals.
const KEYS: usize = 1 << 16;

/// The order hash of each key.
#[pyfunction]
pub fn hash_keys<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyList>,
    seed: u64,
    split: &str,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let hasher = Hasher::for_keys(seed, split);
    let hash = |(number, key): (usize, Bound<'py, PyAny>)| {
        if number % KEYS == 0 {
            py.check_signals()?;
        }
        Ok(hasher.hash(key.cast::<PyString>()?.to_cow()?.as_bytes()))
    };
    Ok(PyArray1::from_vec(py, keys.iter().enumerate().map(hash).collect::<PyResult<_>>()?))
}

/// The numbers below `count`, in the order of the hashes of the keys "0", "1" ...
#[pyfunction]
pub fn order_numbers<'py>(py: Python<'py>, count: u32, seed: u64, split: &str) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let hasher = Hasher::for_keys(seed, split);
    released(py, || hasher.order_numbers(count)).map(|numbers| PyArray1::from_vec(py, numbers))
}

/// The content hash of each record.
#[pyfunction]
pub fn hash_records<'py>(py: Python<'py>, records: &Bound<'py, Records>) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let records = records.get();
    let hasher = Hasher::for_content();
    let hash = |(number, record): (usize, &[u8])| interrupt::check_at(number).map(|()| hasher.hash(record));
    let hashes = released(py, || records.slices().into_iter().enumerate().map(hash).collect())?;
    Ok(PyArray1::from_vec(py, hashes))
}
