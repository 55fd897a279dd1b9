//! Whole files, many at a time.

use std::path::PathBuf;

use penstock_core::image::ImageHeader;
use penstock_core::interrupt;
use penstock_core::io::file_contents;
use pyo3::prelude::*;

use crate::interpreter::released;

/// A column of image files: their contents are read, and their headers checked, when it is encoded.
#[pyclass(name = "ImageFiles", frozen, module = "penstock._core")]
pub struct PyImageFiles(pub file_contents::FileContents);

#[pymethods]
impl PyImageFiles {
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<PyImageFiles> {
        released(py, || file_contents::FileContents::look(paths, |bytes| ImageHeader::of(bytes).map(drop)))
            .map(PyImageFiles)
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
