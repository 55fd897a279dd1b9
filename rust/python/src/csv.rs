//! CSV files to columns.

use std::fs::File;
use std::path::{Path, PathBuf};

use numpy::{PyArray1, PyArrayDescr};
use penstock_core::csv::{read, CsvOptions, CsvTable};
use penstock_core::example::plan::Dtype;
use penstock_core::Error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::interpreter::interruptible;
use crate::plan::Face;

/// The lines of the rows of each file.
type Lines<'py> = Vec<Bound<'py, PyArray1<i64>>>;

/// The columns of CSV files by name, as `Plan.decode` gives them, and the line of each row in its file. The columns in
/// `texts` stay texts, all of them if it is None.
#[pyfunction]
pub fn read_csv<'py>(
    py: Python<'py>,
    files: Vec<PathBuf>,
    delimiter: char,
    texts: Option<Vec<String>>,
    block: usize,
    threads: usize,
) -> PyResult<(Bound<'py, PyDict>, Lines<'py>)> {
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let open = |path: &Path| File::open(path).map_err(|error| Error::io("opening failed", &error).in_file(path));
    let options = CsvOptions { delimiter, texts: texts.as_deref(), block, threads };
    let CsvTable { names, columns, lines } =
        interruptible(py, None, |progress| read(&files, open, &options, progress))?;
    let rows = lines.iter().map(Vec::len).sum();
    let batch = PyDict::new(py);
    for (name, (dtype, column)) in names.into_iter().zip(columns) {
        let text = dtype == Dtype::Bytes;
        let dtype = PyArrayDescr::new(py, if text { "uint8" } else { dtype.name() })?.unbind();
        let face = Face { name: PyString::new(py, &name).unbind(), dtype, shape: Vec::new(), text };
        batch.set_item(&face.name, face.column(py, column, rows)?)?;
    }
    Ok((batch, lines.into_iter().map(|lines| PyArray1::from_vec(py, lines)).collect()))
}
