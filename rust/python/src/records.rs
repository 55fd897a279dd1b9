//! A batch of records in one buffer.

use numpy::PyArray1;
use penstock_core::example::encode::recycle;
use penstock_core::format::frame::Frames;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// An immutable sequence of records, in as few buffers as they were made in.
#[pyclass(frozen, sequence, module = "penstock")]
pub struct Records {
    pub chunks: Vec<Frames>,
    length: usize,
}

impl Records {
    pub fn from_chunks(chunks: Vec<Frames>) -> Records {
        let length = chunks.iter().map(Frames::len).sum();
        Records { chunks, length }
    }

    /// The data of all records, in order.
    pub fn slices(&self) -> Vec<&[u8]> {
        self.chunks.iter().flat_map(Frames::iter).collect()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        std::mem::take(&mut self.chunks).into_iter().for_each(recycle);
    }
}

#[pymethods]
impl Records {
    #[new]
    fn new(records: &Bound<'_, PyAny>) -> PyResult<Records> {
        let mut frames = Frames::default();
        for record in records.try_iter()? {
            frames.push(record?.cast::<PyBytes>()?.as_bytes());
        }
        Ok(Records::from_chunks(vec![frames]))
    }

    fn __len__(&self) -> usize {
        self.length
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyBytes>> {
        let position = if index < 0 { index + self.length as isize } else { index };
        let mut left = usize::try_from(position).unwrap_or(usize::MAX);
        for chunk in &self.chunks {
            if let Some(record) = chunk.get(left) {
                return Ok(PyBytes::new(py, record));
            }
            left = left.wrapping_sub(chunk.len());
        }
        let message = format!("expected a record number below {}, got {index}", self.length);
        Err(crate::errors::raise(py, &penstock_core::Error::new(penstock_core::Kind::OutOfRange, message)))
    }

    fn __iter__(slf: Bound<'_, Self>) -> RecordsIterator {
        RecordsIterator { records: slf.unbind(), chunk: 0, index: 0 }
    }

    /// The records' bytes in all, without their frames.
    #[getter]
    fn nbytes(&self) -> usize {
        self.chunks.iter().flat_map(Frames::iter).map(<[u8]>::len).sum()
    }

    /// The bytes of each record.
    #[getter]
    fn lengths<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_iter(py, self.slices().into_iter().map(|record| record.len() as i64))
    }

    fn __repr__(&self) -> String {
        format!("Records({} records, {} bytes)", self.length, self.nbytes())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyList>,))> {
        let py = slf.py();
        let items = PyList::new(py, slf.get().slices().into_iter().map(|record| PyBytes::new(py, record)))?;
        Ok((slf.get_type().into_any(), (items,)))
    }
}

/// An iterator over records.
#[pyclass(module = "penstock._core")]
struct RecordsIterator {
    records: Py<Records>,
    chunk: usize,
    index: usize,
}

#[pymethods]
impl RecordsIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        loop {
            let chunk = self.records.get().chunks.get(self.chunk)?;
            if let Some(record) = chunk.get(self.index) {
                self.index += 1;
                return Some(PyBytes::new(py, record));
            }
            (self.chunk, self.index) = (self.chunk + 1, 0);
        }
    }
}

/// Records given as a [`Records`] or as any iterable of bytes: calls `work` with their data, the GIL still held.
pub fn with_slices<T>(records: &Bound<'_, PyAny>, work: impl FnOnce(&[&[u8]]) -> PyResult<T>) -> PyResult<T> {
    if let Ok(records) = records.cast::<Records>() {
        return work(&records.get().slices());
    }
    let items: Vec<Bound<'_, PyBytes>> =
        records.try_iter()?.map(|item| Ok(item?.cast_into::<PyBytes>()?)).collect::<PyResult<_>>()?;
    let slices: Vec<&[u8]> = items.iter().map(|item| item.as_bytes()).collect();
    work(&slices)
}
