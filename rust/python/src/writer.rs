//! Writing shards.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_core::codec::stream::Compression;
use penstock_core::example::encode::EncodeBatch;
use penstock_core::format::array_record;
use penstock_core::format::frame::Frames;
use penstock_core::format::tfrecord::writer;
use penstock_core::io::atomic_file::inherited;
use penstock_core::Kind;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::raise;
use crate::interpreter::released;
use crate::plan::{Columns, PyPlan};
use crate::records::Records;
use crate::shard::{closed, PyIndex};

/// A file being written, of either format.
#[pyclass(name = "Writer", frozen, module = "penstock._core")]
pub struct PyWriter {
    begun: Mutex<Option<Begun>>,
    /// The process that opened it: in a fork the lock may be held by a thread that does not exist.
    process: u32,
}

enum Begun {
    TfRecord(writer::TfRecordWriter),
    ArrayRecord(array_record::ArrayRecordWriter),
}

impl Begun {
    fn len(&self) -> usize {
        match self {
            Begun::TfRecord(writer) => writer.len(),
            Begun::ArrayRecord(writer) => writer.len(),
        }
    }

    fn write(&mut self, record: &[u8]) -> penstock_core::Result<()> {
        match self {
            Begun::TfRecord(writer) => writer.write(record),
            Begun::ArrayRecord(writer) => writer.write(record),
        }
    }

    fn write_frames(&mut self, frames: &Frames) -> penstock_core::Result<()> {
        match self {
            Begun::TfRecord(writer) => writer.write_frames(frames),
            Begun::ArrayRecord(writer) => writer.write_frames(frames),
        }
    }
}

/// What a finished file holds: records, bytes, its CRC-32C, and the index of a TFRecord file.
type Finished = (usize, u64, u32, Option<PyIndex>);

impl PyWriter {
    fn with<T>(&self, work: impl FnOnce(&mut Begun) -> penstock_core::Result<T>) -> penstock_core::Result<T> {
        if self.is_inherited() {
            return Err(inherited());
        }
        let mut begun = self.lock();
        let result = begun.as_mut().map_or_else(|| Err(closed()), work);
        if result.as_ref().is_err_and(|error| error.kind() == Kind::Interrupted) {
            *begun = None; // some of the records are written: going on would leave a hole
        }
        result
    }

    fn begin(begun: Begun) -> PyWriter {
        PyWriter { begun: Mutex::new(Some(begun)), process: std::process::id() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Encodes a batch and appends its records: other threads encode while this one writes.
    fn encode(&self, batch: &EncodeBatch<'_>, threads: usize) -> penstock_core::Result<()> {
        self.with(|writer| {
            batch.encode_all(threads, |frames| {
                writer.write_frames(&frames)?;
                Ok(Some(frames.into_bytes()))
            })
        })
    }

    /// Appends one record.
    pub fn write_record(&self, record: &[u8]) -> penstock_core::Result<()> {
        self.with(|writer| writer.write(record))
    }
}

impl Drop for PyWriter {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The file is another process's, and a thread that is not here may have been in the midst of writing.
            std::mem::forget(std::mem::replace(&mut self.begun, Mutex::new(None)));
        }
    }
}

#[pymethods]
impl PyWriter {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, compression: &str, level: u32) -> PyResult<PyWriter> {
        let writer =
            Compression::parse(compression).and_then(|kind| writer::TfRecordWriter::create(&path, kind, level));
        Ok(PyWriter::begin(Begun::TfRecord(writer.map_err(|error| raise(py, &error))?)))
    }

    /// Begins an ArrayRecord file.
    #[staticmethod]
    fn array_record(
        py: Python<'_>,
        path: PathBuf,
        group_size: usize,
        compression: &str,
        level: Option<i32>,
        threads: usize,
    ) -> PyResult<PyWriter> {
        let writer = array_record::ChunkCompression::parse(compression, level).and_then(|compression| {
            array_record::ArrayRecordWriter::create(
                &path,
                array_record::WriterOptions { group_size, compression, threads },
            )
        });
        Ok(PyWriter::begin(Begun::ArrayRecord(writer.map_err(|error| raise(py, &error))?)))
    }

    fn __len__(&self) -> PyResult<usize> {
        if self.is_inherited() {
            return Ok(0);
        }
        Ok(self.lock().as_ref().map_or(0, Begun::len))
    }

    /// Appends one record.
    fn write(&self, py: Python<'_>, record: &Bound<'_, PyBytes>) -> PyResult<()> {
        self.write_record(record.as_bytes()).map_err(|error| raise(py, &error))
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
        plan: &Bound<'_, PyPlan>,
        columns: &Bound<'_, PyList>,
        rows: usize,
        threads: usize,
    ) -> PyResult<()> {
        let plan = plan.get();
        let columns = Columns::extract(plan, columns)?;
        let inputs = columns.inputs();
        released(py, || self.encode(&EncodeBatch::new(&plan.plan, &inputs, rows)?, threads))
    }

    /// Encodes examples and appends the records.
    fn write_examples(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, PyPlan>,
        examples: &Bound<'_, PyList>,
        coerce: &Bound<'_, PyAny>,
        threads: usize,
    ) -> PyResult<()> {
        let plan = plan.get();
        plan.gather(examples, coerce, |gathered| {
            let inputs = gathered.inputs();
            released(py, || self.encode(&EncodeBatch::new(&plan.plan, &inputs, gathered.rows)?, threads))
        })
    }

    /// Lets the file go to the disk while it is written.
    fn sync_along(&self, py: Python<'_>) -> PyResult<()> {
        let along = |writer: &mut Begun| {
            match writer {
                Begun::TfRecord(writer) => writer.sync_along(),
                Begun::ArrayRecord(writer) => writer.sync_along(),
            }
            Ok(())
        };
        self.with(along).map_err(|error| raise(py, &error))
    }

    /// Publishes the file.
    fn finish(&self, py: Python<'_>, sync: bool) -> PyResult<Finished> {
        let finish = |writer: &mut Begun| match writer {
            Begun::TfRecord(writer) => {
                let index = writer.finish(sync)?;
                Ok((index.len(), index.shard_size, index.shard_crc32c, Some(PyIndex(index))))
            }
            Begun::ArrayRecord(writer) => {
                let array_record::Summary { records, size, crc32c } = writer.finish(sync)?;
                Ok((records, size, crc32c, None))
            }
        };
        let finished = released(py, || self.with(finish))?;
        self.lock().take();
        Ok(finished)
    }

    /// Removes what was written.
    fn abandon(&self) {
        if !self.is_inherited() {
            self.lock().take();
        }
    }
}
