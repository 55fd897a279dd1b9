//! Inspects files: their first records, and the features of a record.

use std::path::PathBuf;

use penstock_core::example::feature_lists;
use penstock_core::example::walk::{parse, Feature};
use penstock_core::format::shard;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::raise;
use crate::interpreter::interruptible;
use crate::records::{with_slices, Records};

/// The first records of a file, `count` of them or until they have `max_bytes` bytes. Only those are read, and checked.
#[pyfunction]
pub fn first_records(py: Python<'_>, path: PathBuf, count: usize, max_bytes: usize) -> PyResult<Records> {
    let frames = interruptible(py, None, |progress| shard::first_records(&path, count, max_bytes, progress))?;
    Ok(Records::from_chunks(vec![frames]))
}

/// One feature: its key, the list that holds it, how many values, and the values themselves if they are byte strings.
type FeatureSummary<'py> = (String, &'static str, usize, Vec<Bound<'py, PyBytes>>);

/// One feature list: its key, the list that holds its values, how many each step has, and those that are byte strings.
type DescribedSteps<'py> = (String, Option<&'static str>, Vec<i64>, Vec<Bound<'py, PyBytes>>);

/// The feature lists of a tf.SequenceExample, by key; none for any other record.
#[pyfunction]
pub fn describe_steps<'py>(py: Python<'py>, record: &Bound<'py, PyBytes>) -> PyResult<Vec<DescribedSteps<'py>>> {
    let lists = feature_lists::parse(record.as_bytes()).map_err(|error| raise(py, &error))?;
    let described = lists.into_iter().map(|(key, steps)| {
        let values = match &steps.values {
            Feature::Bytes(values) => values.iter().map(|value| PyBytes::new(py, value)).collect(),
            _ => Vec::new(),
        };
        (key.to_owned(), steps.values.list().map(|list| list.name()), steps.lengths, values)
    });
    Ok(described.collect())
}

/// Whether any of the records is a tf.SequenceExample with feature lists.
#[pyfunction]
pub fn have_steps(py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<bool> {
    with_slices(records, |slices| Ok(py.detach(|| slices.iter().any(|record| feature_lists::has_lists(record)))))
}

/// What a tf.Example holds, by key; features that are not set are left out.
#[pyfunction]
pub fn describe<'py>(py: Python<'py>, record: &Bound<'py, PyBytes>) -> PyResult<Vec<FeatureSummary<'py>>> {
    let features = parse(record.as_bytes()).map_err(|error| raise(py, &error))?;
    let described = features.into_iter().filter_map(|(key, feature)| {
        let values = match &feature {
            Feature::Bytes(values) => values.iter().map(|value| PyBytes::new(py, value)).collect(),
            _ => Vec::new(),
        };
        Some((key.to_owned(), feature.list()?.name(), feature.len(), values))
    });
    Ok(described.collect())
}
