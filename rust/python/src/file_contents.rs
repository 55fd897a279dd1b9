//! Whole files, many at a time.

use std::path::PathBuf;

use penstock_core::image::Header;
use penstock_core::interrupt;
use penstock_core::io::file_contents;
use pyo3::prelude::*;

use crate::interpreter::released;

/// A column of image files: their contents are read, and their headers checked, when it is encoded.
#[pyclass(frozen, module = "penstock._core")]
pub struct ImageFiles(pub file_contents::Files);

#[pymethods]
impl ImageFiles {
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<ImageFiles> {
        released(py, || file_contents::Files::look(paths, |bytes| Header::of(bytes).map(drop))).map(ImageFiles)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// The size and time of change of each file; empty where it cannot be looked at.
#[pyfunction]
pub fn file_stamps(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Vec<String>> {
    let stamp = |(number, path): (usize, &PathBuf)| interrupt::check_at(number).map(|()| file_contents::stamp(path));
    released(py, || paths.iter().enumerate().map(stamp).collect())
}
