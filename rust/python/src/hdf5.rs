//! Chunks of HDF5 files.

use numpy::PyArray1;
use penstock_core::codec::hdf5;
use pyo3::prelude::*;

use crate::interpreter::released;

/// The bytes of a compressed chunk; where they are shuffled, `item` is the size of an element, otherwise 1.
#[pyfunction]
pub fn unpack_chunk<'py>(
    py: Python<'py>,
    packed: &[u8],
    length: usize,
    item: usize,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    released(py, || hdf5::unpack(packed, length, item)).map(|bytes| PyArray1::from_vec(py, bytes))
}
