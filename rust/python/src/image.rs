//! Image columns and single images.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArray1, PyArrayMethods};
use penstock_core::error::contained;
use penstock_core::image::{self, Crop, ImageHeader, ImageOptions, Pixels};
use penstock_core::Error;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::raise;
use crate::interpreter::released;
use crate::plan::Failure;

/// What the feed decodes in a batch's columns.
#[pyclass(name = "Images", frozen, module = "penstock._core")]
pub struct PyImages(pub Arc<image::Images>);

#[pymethods]
impl PyImages {
    #[new]
    fn new(py: Python<'_>, columns: &Bound<'_, PyDict>) -> PyResult<PyImages> {
        let mut all = Vec::with_capacity(columns.len());
        for (key, options) in columns {
            all.push((key.extract()?, options_from(options.cast::<PyDict>()?)?));
        }
        let images = image::Images::new(all).map_err(|error| raise(py, &error))?;
        Ok(PyImages(Arc::new(images)))
    }
}

/// Options as `penstock.Image` hands them over; what is not there keeps its default.
fn options_from(given: &Bound<'_, PyDict>) -> PyResult<ImageOptions> {
    let mut options = ImageOptions::default();
    for (name, value) in given {
        match name.extract::<&str>()? {
            "size" => options.size = value.extract()?,
            "max_side" => options.max_side = value.extract()?,
            "crop" => {
                let name: Option<String> = value.extract()?;
                options.crop = Crop::parse(name.as_deref()).map_err(|error| raise(given.py(), &error))?;
            }
            "scale" => options.scale = value.extract()?,
            "ratio" => options.ratio = value.extract()?,
            "flip" => options.flip = value.extract()?,
            "channels" => options.channels = value.extract()?,
            "seed" => options.seed = value.extract()?,
            other => {
                return Err(raise(given.py(), &Error::usage(format!("expected an option of images, got {other:?}"))))
            }
        }
    }
    Ok(options)
}

/// The pixels of one image file, uint8[height, width, channels]; `random` decides crops and flips.
#[pyfunction]
#[pyo3(signature = (data, random = 0, **options))]
pub fn decode_image<'py>(
    data: &Bound<'py, PyBytes>,
    random: u64,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    let options = options.map(options_from).transpose()?.unwrap_or_default();
    let bytes = data.as_bytes();
    let pixels = released(py, || image::decode(bytes, &options, random))?;
    array(py, pixels)
}

/// An image file resized, as a file again; as it is where it has the size. `place` is named if it is broken.
#[pyfunction]
#[pyo3(signature = (data, place, **options))]
pub fn resize_image<'py>(
    data: &Bound<'py, PyBytes>,
    place: PathBuf,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = data.py();
    let options = options.map(options_from).transpose()?.unwrap_or_default();
    let bytes = data.as_bytes();
    let resized = released(py, || image::resize_file(bytes, &options).map_err(|error| error.in_file(&place)))?;
    Ok(resized.map_or_else(|| data.clone(), |file| PyBytes::new(py, &file)))
}

/// What the header of an image file says: format, width, height. `place` is named if it is broken.
#[pyfunction]
pub fn image_header(data: &Bound<'_, PyBytes>, place: PathBuf) -> PyResult<(&'static str, u32, u32)> {
    let ImageHeader { format, width, height } =
        ImageHeader::of(data.as_bytes()).map_err(|error| raise(data.py(), &error.in_file(&place)))?;
    Ok((format.name(), width, height))
}

fn array(py: Python<'_>, pixels: Pixels) -> PyResult<Bound<'_, PyAny>> {
    let Pixels { height, width, channels, data } = pixels;
    Ok(PyArray1::from_vec(py, data).reshape([height, width, channels])?.into_any())
}

impl PyImages {
    /// Replaces the image files of one example by their pixels.
    pub fn decode_example(&self, example: &Bound<'_, PyDict>, position: u64) -> Result<(), Failure> {
        let py = example.py();
        for (key, _) in self.0.columns() {
            let Some(value) = example.get_item(key)? else { continue };
            let Ok(file) = value.cast::<PyBytes>() else { continue };
            let bytes = file.as_bytes();
            let pixels = contained(|| py.detach(|| self.0.decode_one(key, bytes, 0, position)))?;
            example.set_item(key, array(py, pixels)?)?;
        }
        Ok(())
    }
}
