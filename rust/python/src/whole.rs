//! Whole files, many at a time.

use std::path::PathBuf;

use penstock_core::image::Header;
use penstock_core::whole;
use pyo3::prelude::*;

use crate::errors::released;

/// A column of image files: their contents are read, and their headers checked, when it is encoded.
#[pyclass(frozen, module = "penstock._core")]
pub struct ImageFiles(pub whole::Files);

#[pymethods]
impl ImageFiles {
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<ImageFiles> {
        released(py, || whole::Files::look(paths, |bytes| Header::of(bytes).map(drop))).map(ImageFiles)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// The size and time of change of each file; empty where it cannot be looked at.
#[pyfunction]
pub fn file_stamps(py: Python<'_>, paths: Vec<PathBuf>) -> Vec<String> {
    py.detach(|| paths.iter().map(|path| whole::stamp(path)).collect())
}
