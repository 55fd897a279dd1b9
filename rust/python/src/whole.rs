//! Whole files, many at a time.

use std::path::PathBuf;

use numpy::PyArray1;
use penstock_core::image::Header;
use penstock_core::whole;
use pyo3::prelude::*;

use crate::errors::released;

/// A column of bytes: all of them, and where each row begins and ends.
type Contents<'py> = (Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<i64>>);

/// The contents of image files, their headers checked.
#[pyfunction]
pub fn read_images(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Contents<'_>> {
    let (bytes, ends) = released(py, || whole::read(&paths, |bytes| Header::of(bytes).map(drop)))?;
    Ok((PyArray1::from_vec(py, bytes), PyArray1::from_vec(py, ends)))
}

/// The size and time of change of each file; empty where it cannot be looked at.
#[pyfunction]
pub fn file_stamps(py: Python<'_>, paths: Vec<PathBuf>) -> Vec<String> {
    py.detach(|| paths.iter().map(|path| whole::stamp(path)).collect())
}
