//! The iterator over a running feed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use penstock_core::columns::Column;
use penstock_core::feed;
use penstock_core::queue::Taken;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raise;
use crate::plan::Plan;

/// Ctrl-C is looked for this often while a batch is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// Batches of a shard in order, decoded ahead on threads of its own.
#[pyclass(frozen, module = "penstock._core")]
pub struct Feed {
    plan: Py<Plan>,
    feed: Mutex<Option<feed::Feed>>,
}

impl Feed {
    pub fn new(plan: Py<Plan>, feed: feed::Feed) -> Feed {
        Feed { plan, feed: Mutex::new(Some(feed)) }
    }

    fn take(&self) -> penstock_core::Result<Taken<(Vec<Column>, usize)>> {
        match self.feed.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(feed) => feed.take(PATIENCE),
            None => Ok(Taken::End),
        }
    }
}

#[pymethods]
impl Feed {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        loop {
            match py.detach(|| self.take()) {
                Ok(Taken::Item((columns, rows))) => {
                    return self.plan.get().columns_to_python(py, columns, rows).map(Some)
                }
                Ok(Taken::NotYet) => py.check_signals()?,
                Ok(Taken::End) => return Ok(None),
                Err(error) => return Err(raise(py, &error)),
            }
        }
    }

    /// Ends the threads. Nothing comes after it.
    fn close(&self, py: Python<'_>) {
        let feed = py.detach(|| self.feed.lock().unwrap_or_else(PoisonError::into_inner).take());
        py.detach(|| drop(feed));
    }
}
