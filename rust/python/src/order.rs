//! The order of an epoch.

use numpy::PyArray1;
use penstock_core::error::Error;
use penstock_core::order;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::interpreter::released;

/// Which example comes at which position of an epoch: an immutable value, whatever its length.
#[pyclass(name = "Order", frozen, module = "penstock._core")]
pub struct PyOrder(pub order::Order);

fn made(py: Python<'_>, order: penstock_core::Result<order::Order>) -> PyResult<PyOrder> {
    order.map(PyOrder).map_err(|error| raise(py, &error))
}

fn inner(parts: &[Bound<'_, PyOrder>]) -> Vec<order::Order> {
    parts.iter().map(|part| part.get().0.clone()).collect()
}

#[pymethods]
impl PyOrder {
    /// The numbers from `start` to before `stop`.
    #[staticmethod]
    fn span(py: Python<'_>, start: u64, stop: u64) -> PyResult<PyOrder> {
        made(py, order::Order::span(start, stop))
    }

    /// One after the other.
    #[staticmethod]
    fn concat(py: Python<'_>, parts: Vec<Bound<'_, PyOrder>>) -> PyResult<PyOrder> {
        made(py, order::Order::concat(inner(&parts)))
    }

    /// By turns, as the weights say.
    #[staticmethod]
    fn mix(py: Python<'_>, parts: Vec<Bound<'_, PyOrder>>, weights: Vec<f64>, seed: u64) -> PyResult<PyOrder> {
        made(py, order::Order::mix(inner(&parts), &weights, seed))
    }

    /// A permutation of the whole, or of windows and in windows.
    #[pyo3(signature = (seed, window = None))]
    fn shuffle(&self, py: Python<'_>, seed: u64, window: Option<u64>) -> PyResult<PyOrder> {
        made(py, self.0.shuffle(seed, window))
    }

    /// Some epochs as one, or epochs for ever.
    fn repeat(&self, py: Python<'_>, count: Option<u64>) -> PyResult<PyOrder> {
        made(py, self.0.repeat(count))
    }

    /// Some positions; `wrap` begins again behind the last one.
    #[pyo3(signature = (start, stop, step = 1, wrap = false))]
    fn slice(&self, py: Python<'_>, start: u64, stop: Option<u64>, step: u64, wrap: bool) -> PyResult<PyOrder> {
        made(py, self.0.slice(start, stop, step, wrap))
    }

    /// Stretches that take turns.
    fn lanes(&self, py: Python<'_>, count: u64) -> PyResult<PyOrder> {
        made(py, self.0.lanes(count))
    }

    /// Each example some times in a row.
    fn echo(&self, py: Python<'_>, times: u64) -> PyResult<PyOrder> {
        made(py, self.0.echo(times))
    }

    /// How many positions; None for ever.
    #[getter]
    fn length(&self) -> Option<u64> {
        self.0.length()
    }

    /// The examples at some positions.
    fn numbers<'py>(&self, py: Python<'py>, epoch: u64, start: u64, stop: u64) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let numbers = released(py, || {
            let end = self.0.length().unwrap_or(order::MAX_LENGTH);
            match stop.checked_sub(start) {
                Some(count) if stop <= end => {
                    let mut numbers = vec![0; count as usize];
                    self.0.numbers(epoch, start, &mut numbers)?;
                    Ok(numbers.into_iter().map(|number| number as i64).collect())
                }
                _ => Err(Error::usage(format!("expected positions within 0..{end}, got {start}..{stop}"))),
            }
        });
        numbers.map(|numbers: Vec<i64>| PyArray1::from_vec(py, numbers))
    }
}
