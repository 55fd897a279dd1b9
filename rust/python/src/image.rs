//! Which columns hold images, and what becomes of them.

use std::sync::Arc;

use penstock_core::image;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What the feed decodes in a batch's columns.
#[pyclass(frozen, module = "penstock._core")]
pub struct Images(pub Arc<image::Images>);

#[pymethods]
impl Images {
    #[new]
    fn new(_columns: &Bound<'_, PyDict>) -> Images {
        Images(Arc::default())
    }
}
