//! SequenceExample: context columns and feature-list columns.

use numpy::PyUntypedArray;
use penstock_core::example::encode::EncodeBatch;
use penstock_core::example::sequence::{self, ListInput};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::interpreter::released;
use crate::plan::{int64s, Columns, Held, PyPlan};
use crate::records::{with_slices, Records};

/// The two plans of a SequenceExample.
#[pyclass(frozen, module = "penstock._core")]
pub struct SequencePlan {
    context: Py<PyPlan>,
    lists: Py<PyPlan>,
}

#[pymethods]
impl SequencePlan {
    #[new]
    fn new(context: Py<PyPlan>, lists: Py<PyPlan>) -> SequencePlan {
        SequencePlan { context, lists }
    }

    /// Decodes records: the context's columns, and for each list (column of all steps, step_splits, present).
    fn decode<'py>(
        &self,
        py: Python<'py>,
        records: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let (context, lists) = (self.context.get(), self.lists.get());
        let (rows, (columns, list_columns)) = with_slices(records, |slices| {
            let decoded = released(py, || sequence::decode(&context.plan, &lists.plan, slices.iter().copied()))?;
            Ok((slices.len(), decoded))
        })?;
        let batch = PyDict::new(py);
        for (column, face) in list_columns.into_iter().zip(&lists.faces) {
            let steps = column.step_splits.last().copied().unwrap_or(0) as usize;
            let values = face.column(py, column.column, steps)?;
            let splits = numpy::PyArray1::from_vec(py, column.step_splits);
            let present = column
                .present
                .map(|bits| numpy::PyArray1::from_vec(py, bits.into_iter().map(|bit| bit != 0).collect()));
            batch.set_item(&face.name, (values, splits, present))?;
        }
        Ok((context.columns_to_python(py, columns, rows)?, batch))
    }

    /// Encodes the context's columns and, for each list, (parts of all steps, step_splits, present).
    fn encode(
        &self,
        py: Python<'_>,
        columns: &Bound<'_, PyList>,
        lists: &Bound<'_, PyList>,
        rows: usize,
    ) -> PyResult<Records> {
        type ListParts<'py> = (Bound<'py, PyAny>, Bound<'py, PyUntypedArray>, Option<Bound<'py, PyUntypedArray>>);
        let (context, list_plan) = (self.context.get(), self.lists.get());
        let columns = Columns::extract(context, columns)?;
        let parts: Vec<ListParts<'_>> = lists.iter().map(|item| item.extract()).collect::<PyResult<_>>()?;
        let held: Vec<Held<'_>> = parts.iter().map(|(values, _, _)| Held::extract(values)).collect::<PyResult<_>>()?;
        let inputs = columns.inputs();
        let list_inputs: Vec<ListInput<'_>> = held
            .iter()
            .zip(&parts)
            .map(|(held, (_, splits, present))| ListInput {
                input: held.input(),
                step_splits: int64s(splits),
                present: present.as_ref().map(crate::numpy_memory::bytes_of),
            })
            .collect();
        let frames = released(py, || {
            let batch = EncodeBatch::new(&context.plan, &inputs, rows)?;
            sequence::encode(&batch, &list_plan.plan, &list_inputs)
        })?;
        Ok(Records::from_chunks(vec![frames]))
    }
}
