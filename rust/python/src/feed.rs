//! The iterator over a running feed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_core::feed::{self, Placed, Stats};
use penstock_core::interrupt::INTERVAL;
use penstock_core::ordered_queue::NextItem;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raise;
use crate::interpreter::{is_exiting, stay_behind};
use crate::plan::PyPlan;

/// Batches of an epoch in order, decoded ahead on threads of its own.
#[pyclass(name = "Feed", frozen, module = "penstock._core")]
pub struct PyFeed {
    plan: Py<PyPlan>,
    /// The process that started it: in a fork its locks may be held by threads that do not exist.
    process: u32,
    feed: Mutex<Option<feed::Feed>>,
    last: Mutex<LastBatch>,
}

/// What is reported of the last batch, and of the whole feed once it is closed.
#[derive(Default)]
struct LastBatch {
    rows: usize,
    skipped: Vec<SkippedRow>,
    stats: Stats,
}

/// A bad record: its position, its number, what is wrong with it.
type SkippedRow = (u64, u64, String);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PyFeed {
    pub fn new(plan: Py<PyPlan>, feed: feed::Feed) -> PyFeed {
        PyFeed { plan, process: feed.process(), feed: Mutex::new(Some(feed)), last: Mutex::default() }
    }

    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_inherited() {
            true => Err(raise(py, &feed::inherited())),
            false => Ok(()),
        }
    }

    fn take(&self) -> penstock_core::Result<NextItem<Placed>> {
        match lock(&self.feed).as_mut() {
            Some(feed) => feed.take(INTERVAL),
            None => Ok(NextItem::End),
        }
    }
}

impl Drop for PyFeed {
    /// Without the GIL: a thread that waits for a file may need it to end.
    fn drop(&mut self) {
        if self.is_inherited() {
            // A thread that is not here may have been in the midst of changing it.
            std::mem::forget(std::mem::replace(&mut self.feed, Mutex::new(None)));
        } else if let Some(feed) = lock(&self.feed).take() {
            match is_exiting() {
                true => feed.detach(),
                false => Python::attach(|py| py.detach(|| drop(feed))),
            }
        }
    }
}

#[pymethods]
impl PyFeed {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.check_process(py)?;
        loop {
            match py.detach(|| self.take()) {
                Ok(NextItem::Item((position, batch))) => {
                    let skipped = batch.skipped.into_iter();
                    let mut last = lock(&self.last);
                    last.rows = batch.rows;
                    last.skipped =
                        skipped.map(|bad| (position + bad.row as u64, bad.number, bad.error.to_string())).collect();
                    drop(last);
                    return self.plan.get().columns_to_python(py, batch.columns, batch.rows).map(Some);
                }
                Ok(NextItem::NotYet) => py.check_signals()?,
                Ok(NextItem::End) => return Ok(None),
                Err(error) => {
                    stay_behind(py);
                    return Err(raise(py, &error));
                }
            }
        }
    }

    /// How many rows the last batch has.
    #[getter]
    fn rows(&self) -> usize {
        if self.is_inherited() {
            return 0;
        }
        lock(&self.last).rows
    }

    /// The bad records that were left out of the last batch: position, number, message.
    #[getter]
    fn skipped(&self) -> Vec<SkippedRow> {
        if self.is_inherited() {
            return Vec::new();
        }
        lock(&self.last).skipped.clone()
    }

    /// Where the time of its threads went so far, in seconds, and what came of it.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_process(py)?;
        let stats = py.detach(|| match lock(&self.feed).as_ref() {
            Some(feed) => feed.stats(),
            None => Ok(lock(&self.last).stats),
        });
        let Stats { spent, full, empty, records, bytes, batches } = stats.map_err(|error| raise(py, &error))?;
        let told = PyDict::new(py);
        let seconds = [
            ("read", spent.read),
            ("check", spent.check),
            ("decode", spent.decode),
            ("image", spent.image),
            ("full", full),
            ("empty", empty),
        ];
        seconds.into_iter().try_for_each(|(stage, time)| told.set_item(stage, time.as_secs_f64()))?;
        let counts = [("records", records), ("bytes", bytes), ("batches", batches)];
        counts.into_iter().try_for_each(|(what, count)| told.set_item(what, count))?;
        Ok(told)
    }

    /// Ends the threads. Nothing comes after it.
    fn close(&self, py: Python<'_>) {
        if self.is_inherited() {
            return; // its threads are those of another process
        }
        py.detach(|| {
            let feed = lock(&self.feed).take();
            if let Some(stats) = feed.as_ref().and_then(|feed| feed.stats().ok()) {
                lock(&self.last).stats = stats;
            }
            match (feed, is_exiting()) {
                (Some(feed), true) => feed.detach(),
                (feed, _) => drop(feed),
            }
        });
    }
}
