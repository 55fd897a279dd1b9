//! Shards and their indexes.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::PyArray1;
use penstock_core::error::{Error, Kind};
use penstock_core::feed::shard_set;
use penstock_core::feed::FeedOptions;
use penstock_core::format::gather::read_many;
use penstock_core::format::index::{self, Sidecar};
use penstock_core::format::shard::{self, Shard};
use penstock_core::io::atomic_file::publish;
use penstock_core::io::file::RandomAccessFile;
use penstock_core::order::Order;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::raise;
use crate::feed::PyFeed;
use crate::interpreter::{interruptible, released};
use crate::plan::PyPlan;
use crate::records::Records;
use crate::shard_set::PyShardSet;
use crate::writer::PyWriter;

/// Bytes of batches in flight per thread, when a shard is read in order.
const AHEAD: usize = 32 << 20;

/// Records that are read between two looks for signals.
const READ: usize = 1 << 12;

/// Where each record of a shard begins.
#[pyclass(name = "Index", frozen, eq, module = "penstock._core")]
#[derive(PartialEq)]
pub struct PyIndex(pub index::Index);

#[pymethods]
impl PyIndex {
    /// Reads a sidecar.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<PyIndex> {
        released(py, || index::Index::read(&path)).map(PyIndex)
    }

    /// Writes the sidecar, whole or not at all.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        released(py, || publish(&path, &self.0.to_bytes()))
    }

    /// DALI's text.
    fn to_dali(&self, py: Python<'_>) -> PyResult<String> {
        self.0.to_dali().map_err(|error| raise(py, &error))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn compression(&self) -> &'static str {
        self.0.compression.name()
    }

    #[getter]
    fn shard_size(&self) -> u64 {
        self.0.shard_size
    }

    #[getter]
    fn shard_crc32c(&self) -> u32 {
        self.0.shard_crc32c
    }

    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_slice(py, &self.0.offsets)
    }
}

/// The offsets in DALI's text.
#[pyfunction]
pub fn offsets_from_dali<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let offsets = index::offsets_from_dali(text).map_err(|error| raise(py, &error))?;
    Ok(PyArray1::from_vec(py, offsets))
}

/// A file whose records can be read in any order.
#[pyclass(name = "Shard", frozen, module = "penstock._core")]
pub struct PyShard {
    shard: Shard,
    /// The same as a sequence of one shard, which knows how to decode.
    shards: PyShardSet,
}

#[pymethods]
impl PyShard {
    /// Opens a file of any format; by the sidecar if there is one that fits, and with `strict` only by that.
    #[new]
    #[pyo3(signature = (path, sidecar = None, strict = false, progress = None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        sidecar: Option<PathBuf>,
        strict: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<PyShard> {
        let shard = interruptible(py, progress, |progress| {
            let sidecar = match sidecar.map(|path| index::Index::read(&path)) {
                Some(Ok(index)) if strict => Sidecar::Use(index),
                Some(Ok(index)) => Sidecar::Try(index),
                Some(Err(error)) if strict => return Err(error),
                Some(Err(_)) | None => Sidecar::Ignore,
            };
            Shard::open(&path, sidecar, None, progress)
        })?;
        let shards = PyShardSet(Arc::new(shard_set::ShardSet::of(shard.clone())));
        Ok(PyShard { shard, shards })
    }

    fn __len__(&self) -> usize {
        self.shard.len()
    }

    /// What the file is, and how it was written: "tfrecord" or "tar" and its compression, or "array_record" and its
    /// options.
    #[getter]
    fn format(&self) -> (&'static str, &str) {
        self.shard.format()
    }

    /// How many records a chunk has, in a file that has chunks.
    #[getter]
    fn group_size(&self) -> Option<usize> {
        self.shard.group_size()
    }

    /// The file's size in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.shard.file().size()
    }

    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_slice(py, self.shard.offsets())
    }

    /// The bytes of a compressed tar once it is inflated; 0 of other files.
    #[getter]
    fn inflated(&self) -> u64 {
        self.shard.inflated_bytes()
    }

    /// One record; a negative number counts from the end.
    fn read<'py>(&self, py: Python<'py>, record: isize) -> PyResult<Bound<'py, PyBytes>> {
        let number = self.number(py, record)?;
        self.shards.with_record(py, number as u64, |bytes| Ok(PyBytes::new(py, bytes)))
    }

    /// Some records, in the order they are asked for.
    fn read_many(&self, py: Python<'_>, records: Vec<isize>) -> PyResult<Records> {
        let records = records.into_iter().map(|record| self.number(py, record)).collect::<PyResult<Vec<_>>>()?;
        let read = |records: &[usize]| read_many(&*self.shard, records);
        released(py, || records.chunks(READ).map(read).collect()).map(Records::from_chunks)
    }

    /// One record, decoded; a negative number counts from the end.
    fn example<'py>(&self, py: Python<'py>, plan: &Bound<'py, PyPlan>, record: isize) -> PyResult<Bound<'py, PyDict>> {
        let number = self.number(py, record)?;
        self.shards.example(py, plan, number as u64, None)
    }

    /// Some records, decoded into columns.
    #[pyo3(signature = (plan, records, threads = 1))]
    fn examples<'py>(
        &self,
        py: Python<'py>,
        plan: &Bound<'py, PyPlan>,
        records: Vec<isize>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let number = |record| self.number(py, record).map(|number| number as u64);
        let numbers = records.into_iter().map(number).collect::<PyResult<Vec<_>>>()?;
        self.shards.batch(py, plan, &numbers, None, threads)
    }

    /// Starts a feed of the records from the first to before the last of the two.
    fn feed(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, PyPlan>,
        records: (u64, u64),
        batch: usize,
        drop_remainder: bool,
        threads: usize,
    ) -> PyResult<PyFeed> {
        let order = Order::span(records.0, records.1).map_err(|error| raise(py, &error))?;
        let budget = threads.saturating_mul(AHEAD);
        let options = FeedOptions { order, epoch: 0, start: 0, stop: None, batch, drop_remainder, threads, budget };
        self.shards.start(py, plan, None, false, options)
    }

    /// The index of this shard, for which the whole file is read once.
    #[pyo3(signature = (progress = None))]
    fn index(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<PyIndex> {
        interruptible(py, progress, |progress| self.shard.index(progress)).map(PyIndex)
    }
}

impl PyShard {
    /// A record's number, counted from the end if it is negative.
    fn number(&self, py: Python<'_>, record: isize) -> PyResult<usize> {
        let count = self.shard.len() as isize;
        let number = if record < 0 { record + count } else { record };
        if (0..count).contains(&number) {
            return Ok(number as usize);
        }
        let message = format!("expected a number within the {count} records, got {record}");
        Err(raise(py, &Error::new(Kind::OutOfRange, message).in_file(self.shard.file().path())))
    }
}

/// One gap: offset, bytes, whole records before it, reason.
type GapFields = (u64, u64, u64, String);

/// Looks at every byte of a file: the number of whole records, their bytes, the file's CRC-32C and the gaps between them.
/// Whole records are copied into `out`, if there is one.
#[pyfunction]
#[pyo3(signature = (path, out = None, progress = None))]
pub fn salvage(
    py: Python<'_>,
    path: PathBuf,
    out: Option<&Bound<'_, PyWriter>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, u64, Vec<GapFields>)> {
    let out = out.map(Bound::get);
    let report = interruptible(py, progress, |progress| {
        let file = RandomAccessFile::open(&path)?;
        let mut keep = |_: u64, record: &[u8]| out.map_or(Ok(()), |writer| writer.write_record(record));
        shard::salvage(&file, &mut keep, progress)
    })?;
    let gaps = report.gaps.into_iter().map(|gap| (gap.offset, gap.bytes, gap.record, gap.reason)).collect();
    Ok((report.records, report.record_bytes, gaps))
}

/// The error for a closed writer, which only the binding knows.
pub fn closed() -> Error {
    Error::new(Kind::Usage, "expected an open shard, got one that is closed")
}
