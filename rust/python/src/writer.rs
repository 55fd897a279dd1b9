//! Writing shards.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use penstock_core::encode::Batch;
use penstock_core::frames::{FOOTER, HEADER};
use penstock_core::inflate::Compression;
use penstock_core::writer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{raise, released};
use crate::plan::{Columns, Plan};
use crate::records::Records;
use crate::shard::{closed, Index};

/// A TFRecord file being written.
#[pyclass(frozen, module = "penstock._core")]
pub struct Writer(Mutex<Option<writer::Writer>>);

impl Writer {
    fn with<T>(&self, work: impl FnOnce(&mut writer::Writer) -> penstock_core::Result<T>) -> penstock_core::Result<T> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(writer) => work(writer),
            None => Err(closed()),
        }
    }

    /// Encodes a batch and appends its records: other threads encode while this one writes.
    fn encode(&self, batch: &Batch<'_>, threads: usize) -> penstock_core::Result<()> {
        self.with(|writer| {
            batch.encode_all(threads, |frames| {
                writer.write_frames(&frames)?;
                Ok(Some(frames.into_bytes()))
            })
        })
    }

    /// Appends a record that is framed already.
    pub fn write_frame(&self, frame: &[u8]) -> penstock_core::Result<()> {
        self.with(|writer| writer.write(&frame[HEADER..frame.len() - FOOTER]))
    }
}

#[pymethods]
impl Writer {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, compression: &str, level: u32) -> PyResult<Writer> {
        let writer = Compression::parse(compression).and_then(|kind| writer::Writer::create(&path, kind, level));
        Ok(Writer(Mutex::new(Some(writer.map_err(|error| raise(py, &error))?))))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, writer::Writer::len))
    }

    /// Appends one record.
    fn write(&self, py: Python<'_>, record: &Bound<'_, PyBytes>) -> PyResult<()> {
        self.with(|writer| writer.write(record.as_bytes())).map_err(|error| raise(py, &error))
    }

    /// Appends records.
    fn write_records(&self, py: Python<'_>, records: &Bound<'_, Records>) -> PyResult<()> {
        let records = records.get();
        released(py, || self.with(|writer| records.chunks.iter().try_for_each(|frames| writer.write_frames(frames))))
    }

    /// Encodes columns and appends the records.
    fn write_columns(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        columns: &Bound<'_, PyList>,
        rows: usize,
        threads: usize,
    ) -> PyResult<()> {
        let plan = plan.get();
        let columns = Columns::extract(plan, columns)?;
        let inputs = columns.inputs();
        released(py, || self.encode(&Batch::new(&plan.plan, &inputs, rows)?, threads))
    }

    /// Encodes examples and appends the records.
    fn write_examples(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        examples: &Bound<'_, PyList>,
        coerce: &Bound<'_, PyAny>,
        threads: usize,
    ) -> PyResult<()> {
        let plan = plan.get();
        plan.gather(examples, coerce, |gathered| {
            let inputs = gathered.inputs();
            released(py, || self.encode(&Batch::new(&plan.plan, &inputs, gathered.rows)?, threads))
        })
    }

    /// Publishes the file, and returns its index.
    fn finish(&self, py: Python<'_>, sync: bool) -> PyResult<Index> {
        let index = released(py, || self.with(|writer| writer.finish(sync)))?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Index(index))
    }

    /// Removes what was written.
    fn abandon(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
