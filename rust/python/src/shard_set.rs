//! Many shards as one sequence of records.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use numpy::PyReadonlyArray1;
use penstock_core::feed::batch::{BatchDecoder, Rows};
use penstock_core::feed::shard_set::{self, ShardSource};
use penstock_core::feed::{self, FeedOptions};
use penstock_core::format::container::ReadBuffer;
use penstock_core::format::gather;
use penstock_core::interrupt;
use penstock_core::io::file::{Fetch, Identity, Progress, Stamp};
use penstock_core::Error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::errors::raise;
use crate::feed::PyFeed;
use crate::image::PyImages;
use crate::interpreter::{callback, interruptible, released};
use crate::order::PyOrder;
use crate::plan::{Failure, PyPlan};
use crate::records::Records;
use crate::tar::{shared, Rules};
use crate::with_bytes;

thread_local! {
    /// What a thread reads single records into: it grows to the largest one, and no further.
    static BUFFER: RefCell<ReadBuffer> = RefCell::default();
}

/// A Python function that downloads a file: it waits a while, and returns true once the file exists.
#[derive(Debug)]
struct PythonFetch(Py<PyAny>);

impl Fetch for PythonFetch {
    fn fetch(&self, path: &Path, progress: Progress<'_>) -> penstock_core::Result<()> {
        let there = || callback(|py| self.0.call1(py, (path,))?.is_truthy(py));
        while !there().map_err(|failure| failure.end(true))? {
            progress(0)?;
        }
        Ok(())
    }
}

/// A shard's path, the number of its records, the path of its index, and what the files of a tar are read as.
type ShardArgs = (PathBuf, u64, Option<PathBuf>, Option<Rules>);

fn opened(py: Python<'_>, shards: Vec<ShardArgs>) -> PyResult<shard_set::ShardSet> {
    let source = |(path, records, sidecar, rules)| ShardSource { path, records, sidecar, rules: shared(rules) };
    shard_set::ShardSet::new(shards.into_iter().map(source).collect()).map_err(|error| raise(py, &error))
}

/// The stamps of shards. Shards of one dataset share a stamp: it is converted once.
fn stamps_of<'py>(stamps: Vec<Option<Bound<'py, PyTuple>>>) -> PyResult<Vec<Option<Arc<Stamp>>>> {
    let mut last: Option<(Bound<'py, PyTuple>, Arc<Stamp>)> = None;
    let mut stamp = |given: Bound<'py, PyTuple>| match &last {
        Some((known, stamp)) if known.is(&given) => Ok(stamp.clone()),
        _ => {
            let (path, inode, size, modified) = given.extract::<(PathBuf, u64, u64, i128)>()?;
            let stamp = Arc::new(Stamp { path, identity: Identity::new(inode, size, modified) });
            last = Some((given, stamp.clone()));
            Ok(stamp)
        }
    };
    stamps.into_iter().map(|given| given.map(&mut stamp).transpose()).collect()
}

/// The shards of a split, or of several. Each is opened when it is first needed.
#[pyclass(name = "Shards", frozen, module = "penstock._core")]
pub struct PyShardSet(pub Arc<shard_set::ShardSet>);

#[pymethods]
impl PyShardSet {
    /// For each its path, the number of its records, the path of its index if there is one, and what the files of a tar
    /// archive are read as. `bring` is called with a path before it is opened, until it returns true.
    /// `stamps` has for each shard the file that must be unchanged when it is opened: path, inode, size and time of
    /// modification in nanoseconds.
    #[new]
    #[pyo3(signature = (shards, bring = None, stamps = None))]
    fn new(
        py: Python<'_>,
        shards: Vec<ShardArgs>,
        bring: Option<Py<PyAny>>,
        stamps: Option<Vec<Option<Bound<'_, PyTuple>>>>,
    ) -> PyResult<PyShardSet> {
        if stamps.as_ref().is_some_and(|stamps| stamps.len() != shards.len()) {
            return Err(raise(py, &Error::usage("expected a stamp or None for each shard")));
        }
        let shards = opened(py, shards)?.stamped(stamps.map_or(Ok(Vec::new()), stamps_of)?);
        Ok(PyShardSet(Arc::new(match bring {
            Some(bring) => shards.fetched_by(Arc::new(PythonFetch(bring))),
            None => shards,
        })))
    }

    /// A set of remote files, each with its size: ranges are added by `put` before they are read.
    #[staticmethod]
    fn in_pieces(py: Python<'_>, shards: Vec<ShardArgs>, sizes: Vec<u64>) -> PyResult<PyShardSet> {
        if sizes.len() != shards.len() {
            return Err(raise(py, &Error::usage("expected a size for each shard")));
        }
        Ok(PyShardSet(Arc::new(opened(py, shards)?.remote(sizes.into_iter()))))
    }

    /// Add a downloaded range of a remote shard, of which at most `most` bytes are cached.
    fn put(&self, shard: usize, offset: u64, bytes: &Bound<'_, PyAny>, most: usize) -> PyResult<()> {
        with_bytes(bytes, |bytes| {
            self.0.put(shard, offset, bytes.to_vec(), most);
            Ok(())
        })
    }

    /// Return the shard of each record, and the range to read.
    fn places(&self, py: Python<'_>, numbers: &Bound<'_, PyAny>) -> PyResult<Vec<(usize, u64, u64)>> {
        let numbers = record_numbers(numbers)?;
        released(py, || {
            Ok(self.0.rows(&numbers, &mut |_| interrupt::check())?.iter().map(gather::Row::place).collect())
        })
    }

    /// Close a shard's file until it is read again.
    fn rest(&self, shard: usize) {
        self.0.close(shard);
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    /// Return the shard of a record, and the record's number within it.
    fn shard(&self, py: Python<'_>, number: u64) -> PyResult<(usize, usize)> {
        self.0.locate(number).map_err(|error| raise(py, &error))
    }

    /// One record.
    fn read<'py>(&self, py: Python<'py>, number: u64) -> PyResult<Bound<'py, PyBytes>> {
        self.with_record(py, number, |bytes| Ok(PyBytes::new(py, bytes)))
    }

    /// Some records, in the order they are asked for.
    fn records(&self, py: Python<'_>, numbers: &Bound<'_, PyAny>) -> PyResult<Records> {
        let numbers = record_numbers(numbers)?;
        let frames = interruptible(py, None, |progress| self.0.read_many(&numbers, progress))?;
        Ok(Records::from_chunks(vec![frames]))
    }

    /// One record, decoded.
    #[pyo3(signature = (plan, number, images = None))]
    pub fn example<'py>(
        &self,
        py: Python<'py>,
        plan: &Bound<'py, PyPlan>,
        number: u64,
        images: Option<&Bound<'py, PyImages>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.with_record(py, number, |bytes| {
            let example = plan.get().example(py, bytes).and_then(|example| {
                images.map_or(Ok(()), |images| images.get().decode_example(&example, number)).map(|()| example)
            });
            example.map_err(|failure| match failure {
                Failure::Core(error) => raise(py, &self.0.place(number, error)),
                Failure::Python(error) => error,
            })
        })
    }

    /// Some records, decoded into columns.
    #[pyo3(signature = (plan, numbers, images = None, threads = 1))]
    fn examples<'py>(
        &self,
        py: Python<'py>,
        plan: &Bound<'py, PyPlan>,
        numbers: &Bound<'py, PyAny>,
        images: Option<&Bound<'py, PyImages>>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.batch(py, plan, &record_numbers(numbers)?, images, threads)
    }

    /// Starts a feed.
    #[pyo3(signature = (plan, order, *, epoch, start, stop, batch, drop_remainder, threads, budget, images, skip))]
    #[allow(clippy::too_many_arguments)]
    fn feed(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, PyPlan>,
        order: &Bound<'_, PyOrder>,
        epoch: u64,
        start: u64,
        stop: Option<u64>,
        batch: usize,
        drop_remainder: bool,
        threads: usize,
        budget: usize,
        images: Option<&Bound<'_, PyImages>>,
        skip: bool,
    ) -> PyResult<PyFeed> {
        let order = order.get().0.clone();
        let options = FeedOptions { order, epoch, start, stop, batch, drop_remainder, threads, budget };
        self.start(py, plan, images, skip, options)
    }
}

fn record_numbers(numbers: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if let Ok(array) = numbers.extract::<PyReadonlyArray1<'_, i64>>() {
        let number = |&number: &i64| u64::try_from(number).unwrap_or(u64::MAX);
        return Ok(array.as_array().iter().map(number).collect());
    }
    numbers.extract::<Vec<u64>>().map_err(|_| {
        PyTypeError::new_err("expected record numbers: an array of int64, or a list of int that are 0 or more")
    })
}

impl PyShardSet {
    fn decoder(&self, plan: &Bound<'_, PyPlan>, images: Option<&Bound<'_, PyImages>>, skip: bool) -> BatchDecoder {
        let images = images.map(|images| images.get().0.clone());
        BatchDecoder { shards: self.0.clone(), plan: plan.get().plan.clone(), images, skip }
    }

    /// Starts a feed with these options.
    pub fn start(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, PyPlan>,
        images: Option<&Bound<'_, PyImages>>,
        skip: bool,
        options: FeedOptions,
    ) -> PyResult<PyFeed> {
        let feed = feed::Feed::start(self.decoder(plan, images, skip), options);
        Ok(PyFeed::new(plan.clone().unbind(), feed.map_err(|error| raise(py, &error))?))
    }

    /// Some records as one batch.
    pub fn batch<'py>(
        &self,
        py: Python<'py>,
        plan: &Bound<'py, PyPlan>,
        numbers: &[u64],
        images: Option<&Bound<'py, PyImages>>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let decoder = self.decoder(plan, images, false);
        let batch = released(py, || decoder.batch(Rows { numbers, places: numbers, epoch: 0 }, threads))?;
        plan.get().columns_to_python(py, batch.columns, batch.rows)
    }

    /// Reads a record, with the GIL released where that may take a while, then calls `work` with its data.
    pub fn with_record<'py, T>(
        &self,
        py: Python<'py>,
        number: u64,
        work: impl FnOnce(&[u8]) -> PyResult<T>,
    ) -> PyResult<T> {
        // Python may run, and read another record, before this one is done: the buffer is taken out meanwhile.
        let mut buffer = BUFFER.take();
        let bytes = match self.0.is_in_memory(number) {
            true => self.0.read(number, &mut buffer).map_err(|error| raise(py, &error)),
            false => released(py, || self.0.read(number, &mut buffer)),
        };
        let result = bytes.and_then(work);
        BUFFER.set(buffer);
        result
    }
}
