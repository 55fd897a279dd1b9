//! A compiled schema, and the columns it decodes to and encodes from.

use std::sync::Arc;

use numpy::{PyArray1, PyArrayDescr, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use penstock_core::example::columns::{Column, Shapes};
use penstock_core::example::encode::{EncodeBatch, Input, Values};
use penstock_core::example::plan;
use penstock_core::example::plan::{Dtype, Encoding, Missing, Spec};
use penstock_core::example::row_selection::SelectedRows;
use penstock_core::example::walk::walk;
use penstock_core::feed::batch::decode_all;
use penstock_core::Error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::errors::raise;
use crate::file_contents::PyImageFiles;
use crate::gathered_columns::Gathered;
use crate::interpreter::{released, Inside};
use crate::records::{with_slices, Records};

/// What Python knows of a column besides its spec.
pub struct Face {
    pub name: Py<PyString>,
    /// The dtype of its arrays; for byte strings, uint8.
    pub dtype: Py<PyArrayDescr>,
    /// The shape of a row, when it is fixed.
    pub shape: Vec<usize>,
    /// Byte strings that are shown as str.
    pub text: bool,
}

/// The columns of a schema as records hold them, compiled once.
#[pyclass(name = "Plan", frozen, module = "penstock._core")]
pub struct PyPlan {
    pub plan: Arc<plan::Plan>,
    pub faces: Vec<Face>,
}

/// A column as Python hands it over: key, dtype's name, NumPy dtype, encoding, shape of a row (None when it varies),
/// whether it is text, whether a record may lack it, and the default's bytes.
type Declared = (String, String, Py<PyArrayDescr>, String, Option<Vec<usize>>, bool, bool, Option<Vec<u8>>);

#[pymethods]
impl PyPlan {
    #[new]
    fn new(py: Python<'_>, columns: Vec<Declared>) -> PyResult<PyPlan> {
        let mut specs = Vec::with_capacity(columns.len());
        let mut faces = Vec::with_capacity(columns.len());
        for (key, dtype_name, dtype, encoding, shape, text, optional, default) in columns {
            let product =
                |shape: &Vec<usize>| shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
            let count = shape.as_ref().map(|shape| product(shape).unwrap_or(usize::MAX));
            let missing = match (default, optional) {
                (Some(row), _) => Missing::Default(row),
                (None, true) => Missing::Mask,
                (None, false) => Missing::Refuse,
            };
            faces.push(Face { name: PyString::new(py, &key).unbind(), dtype, shape: shape.unwrap_or_default(), text });
            let dtype = Dtype::parse(&dtype_name).map_err(|error| raise(py, &error))?;
            let encoding = Encoding::parse(&encoding).map_err(|error| raise(py, &error))?;
            specs.push(Spec { key, dtype, encoding, count, missing });
        }
        let plan = plan::Plan::new(specs).map_err(|error| raise(py, &error))?;
        Ok(PyPlan { plan: Arc::new(plan), faces })
    }

    /// Decodes records into one column each: an array, or the parts (values, value_splits, row_splits, present).
    fn decode<'py>(&self, py: Python<'py>, records: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let columns = with_slices(records, |slices| released(py, || decode_all(&self.plan, slices)))?;
        let rows = records.len().or_else(|_| records.try_iter().map(Iterator::count))?;
        self.columns_to_python(py, columns, rows)
    }

    /// Decodes one record into its values.
    fn decode_example<'py>(&self, record: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyDict>> {
        self.example(record.py(), record.as_bytes()).map_err(|error| error.into_python(record.py()))
    }

    /// Encodes columns: for each (values, value_splits, row_splits, present), as `decode` gives them. With `chosen`, an
    /// int64 array, only those of the rows, in that order; `present` then has an entry for each of them.
    #[pyo3(signature = (columns, rows, threads, chosen = None))]
    fn encode(
        &self,
        py: Python<'_>,
        columns: &Bound<'_, PyList>,
        rows: usize,
        threads: usize,
        chosen: Option<Bound<'_, PyUntypedArray>>,
    ) -> PyResult<Records> {
        let columns = Columns::extract(self, columns)?;
        let inputs = columns.inputs();
        let chosen = chosen.as_ref().map(int64s);
        let texts: Vec<bool> = self.faces.iter().map(|face| face.text).collect();
        let mut chunks = Vec::new();
        released(py, || {
            let taken = chosen.map(|chosen| take_rows(&self.plan, &texts, &inputs, rows, chosen)).transpose()?;
            let inputs = match &taken {
                Some(taken) => taken.iter().zip(&inputs).map(|(taken, input)| taken.input(input.present)).collect(),
                None => inputs,
            };
            EncodeBatch::new(&self.plan, &inputs, chosen.map_or(rows, <[i64]>::len))?.encode_all(threads, |frames| {
                chunks.push(frames);
                Ok(None)
            })
        })?;
        Ok(Records::from_chunks(chunks))
    }

    /// Encodes examples, given as dicts by key; `coerce(column, row, value)` turns whatever has not its column's very
    /// type into that, or raises.
    fn encode_examples(
        &self,
        py: Python<'_>,
        examples: &Bound<'_, PyList>,
        coerce: &Bound<'_, PyAny>,
        threads: usize,
    ) -> PyResult<Records> {
        let mut chunks = Vec::new();
        self.gather(examples, coerce, |gathered| {
            released(py, || {
                let inputs = gathered.inputs();
                EncodeBatch::new(&self.plan, &inputs, gathered.rows)?.encode_all(threads, |frames| {
                    chunks.push(frames);
                    Ok(None)
                })
            })
        })?;
        Ok(Records::from_chunks(chunks))
    }
}

/// The chosen rows of all columns; those of `texts` are UTF-8.
fn take_rows(
    plan: &plan::Plan,
    texts: &[bool],
    inputs: &[Input<'_>],
    rows: usize,
    chosen: &[i64],
) -> penstock_core::Result<Vec<SelectedRows>> {
    let take = |((spec, &text), input): ((&Spec, &bool), &Input<'_>)| {
        let taken = SelectedRows::new(spec, input, rows, chosen)?;
        match text && !taken.is_text() {
            true => Err(Error::schema("expected str, got bytes that are not UTF-8").in_field(&spec.key)),
            false => Ok(taken),
        }
    };
    plan.specs().iter().zip(texts).zip(inputs).map(take).collect()
}

/// An error of the core, or one of Python.
pub enum Failure {
    Core(Error),
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Core(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

impl Failure {
    pub fn into_python(self, py: Python<'_>) -> PyErr {
        match self {
            Failure::Core(error) => raise(py, &error),
            Failure::Python(error) => error,
        }
    }
}

/// Examples are gathered and encoded so many at a time: the memory that takes is bounded, however many there are.
const GATHER: usize = 8192;

impl PyPlan {
    /// Calls `work` with the examples, some thousand at a time, as columns.
    pub fn gather(
        &self,
        examples: &Bound<'_, PyList>,
        coerce: &Bound<'_, PyAny>,
        mut work: impl FnMut(&Gathered) -> PyResult<()>,
    ) -> PyResult<()> {
        let mut first = 0;
        while first < examples.len() {
            let last = (first + GATHER).min(examples.len());
            let gathered = {
                let _inside = Inside::enter().map_err(|failure| raise(examples.py(), &failure.end(true)))?;
                Gathered::new(self, examples, first..last, coerce)?
            };
            work(&gathered)?;
            examples.py().check_signals()?;
            first = last;
        }
        Ok(())
    }

    /// One record as a dict of values.
    pub fn example<'py>(&self, py: Python<'py>, record: &[u8]) -> Result<Bound<'py, PyDict>, Failure> {
        let walked = walk(&self.plan, std::iter::once(record))?;
        let example = PyDict::new(py);
        for (number, face) in self.faces.iter().enumerate() {
            let dtype = face.dtype.bind(py);
            let value = match walked.fixed_bytes(number) {
                Some(length) if face.shape.is_empty() => {
                    let mut word = [0u64];
                    let bytes = &mut bytemuck::cast_slice_mut(&mut word)[..length];
                    walked.fill(number, bytes)?;
                    crate::numpy_memory::scalar(dtype, bytes)?
                }
                Some(_) => crate::numpy_memory::filled(dtype, &face.shape, |out| walked.fill(number, out))??,
                None => face.value(py, walked.column(number)?)?,
            };
            example.set_item(&face.name, value)?;
        }
        Ok(example)
    }

    /// Columns as Python sees them.
    pub fn columns_to_python<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<Column>,
        rows: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let batch = PyDict::new(py);
        for (column, face) in columns.into_iter().zip(&self.faces) {
            batch.set_item(&face.name, face.column(py, column, rows)?)?;
        }
        Ok(batch)
    }
}

impl Face {
    /// An array when the column is nothing but that, otherwise its parts.
    pub fn column<'py>(&self, py: Python<'py>, column: Column, rows: usize) -> PyResult<Bound<'py, PyAny>> {
        let Column { values, value_splits, row_splits, present, shapes } = column;
        let dtype = self.dtype.bind(py);
        let plain = value_splits.is_none() && row_splits.is_none();
        let row_shape = if let Some(Shapes::Same(shape)) = &shapes { shape } else { self.shape.as_slice() };
        let shape: Vec<usize> = match plain {
            true => std::iter::once(rows).chain(row_shape.iter().copied()).collect(),
            false => vec![values.bytes().len() / dtype.itemsize().max(1)],
        };
        let values = crate::numpy_memory::array(py, values, dtype, &shape)?;
        if plain && present.is_none() {
            return Ok(values);
        }
        let splits = |splits: Option<Vec<i64>>| splits.map(|splits| PyArray1::from_vec(py, splits));
        let present = present.map(|bits| PyArray1::from_vec(py, bits.into_iter().map(|bit| bit != 0).collect()));
        // Images of any size have their shapes where byte strings have their splits.
        if let Some(Shapes::Each(shapes)) = shapes {
            let shapes = PyArray1::from_vec(py, shapes).reshape([rows, 3])?;
            return Ok((values, shapes, splits(row_splits), present).into_pyobject(py)?.into_any());
        }
        Ok((values, splits(value_splits), splits(row_splits), present).into_pyobject(py)?.into_any())
    }

    /// The value of a column of one row: None, an array, bytes, str, or a list of those.
    fn value<'py>(&self, py: Python<'py>, column: Column) -> Result<Bound<'py, PyAny>, Failure> {
        if column.present.as_ref().is_some_and(|present| present == &[0]) {
            return Ok(py.None().into_bound(py));
        }
        let Some(splits) = &column.value_splits else {
            let dtype = self.dtype.bind(py);
            let length = column.values.bytes().len() / dtype.itemsize().max(1);
            if let Some(shapes) = column.shapes {
                return Ok(crate::numpy_memory::array(py, column.values, dtype, &shapes.first())?);
            }
            return Ok(match column.row_splits {
                Some(_) => crate::numpy_memory::array(py, column.values, dtype, &[length])?,
                None if self.shape.is_empty() => crate::numpy_memory::scalar(dtype, column.values.bytes())?,
                None => crate::numpy_memory::array(py, column.values, dtype, &self.shape)?,
            });
        };
        let string = |pair: &[i64]| -> PyResult<Bound<'py, PyAny>> {
            let bytes = &column.values.bytes()[pair[0] as usize..pair[1] as usize];
            if !self.text {
                return Ok(PyBytes::new(py, bytes).into_any());
            }
            let text = std::str::from_utf8(bytes).map_err(|_| {
                let error =
                    Error::schema("expected str, got bytes that are not UTF-8").in_field(&self.name.to_string());
                raise(py, &error.advise("Declare the field as bytes."))
            })?;
            Ok(PyString::new(py, text).into_any())
        };
        if self.shape.is_empty() && column.row_splits.is_none() {
            return Ok(string(splits)?);
        }
        let strings = splits.windows(2).map(string).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, strings)?.into_any())
    }
}

/// One column from Python, kept alive for as long as the core reads it.
pub struct Held<'py> {
    values: HeldValues<'py>,
    value_splits: Option<Bound<'py, PyUntypedArray>>,
    row_splits: Option<Bound<'py, PyUntypedArray>>,
    present: Option<Bound<'py, PyUntypedArray>>,
}

enum HeldValues<'py> {
    Array(Bound<'py, PyUntypedArray>),
    Bytes(Vec<Bound<'py, PyBytes>>),
    Files(Bound<'py, PyImageFiles>),
}

impl<'py> Held<'py> {
    pub fn extract(parts: &Bound<'py, PyAny>) -> PyResult<Held<'py>> {
        type Parts<'py> = (
            Bound<'py, PyAny>,
            Option<Bound<'py, PyUntypedArray>>,
            Option<Bound<'py, PyUntypedArray>>,
            Option<Bound<'py, PyUntypedArray>>,
        );
        let (values, value_splits, row_splits, present): Parts<'py> = parts.extract()?;
        let values = match values.cast_into::<PyUntypedArray>() {
            Ok(array) => HeldValues::Array(array),
            Err(other) => match other.into_inner().cast_into::<PyImageFiles>() {
                Ok(files) => HeldValues::Files(files),
                Err(other) => {
                    let list = other.into_inner().cast_into::<PyList>()?;
                    let items = list.iter().map(|item| Ok(item.cast_into::<PyBytes>()?)).collect::<PyResult<_>>()?;
                    HeldValues::Bytes(items)
                }
            },
        };
        let held = Held { values, value_splits, row_splits, present };
        let arrays = [&held.value_splits, &held.row_splits, &held.present];
        let values = if let HeldValues::Array(array) = &held.values { Some(array) } else { None };
        if !arrays.into_iter().flatten().chain(values).all(|array| array.is_c_contiguous()) {
            return Err(PyTypeError::new_err("expected C-contiguous arrays"));
        }
        Ok(held)
    }

    /// What the core takes: plain slices.
    pub fn input(&self) -> Input<'_> {
        let values = match (&self.values, &self.value_splits) {
            (HeldValues::Files(files), _) => Values::Files(&files.get().0),
            (HeldValues::Bytes(items), _) => Values::Slices(items.iter().map(|item| item.as_bytes()).collect()),
            (HeldValues::Array(array), Some(splits)) => {
                Values::Strings(crate::numpy_memory::bytes_of(array), int64s(splits))
            }
            (HeldValues::Array(array), None) => Values::Numbers(crate::numpy_memory::bytes_of(array)),
        };
        let row_splits = self.row_splits.as_ref().map(int64s);
        Input { values, row_splits, present: self.present.as_ref().map(crate::numpy_memory::bytes_of) }
    }
}

/// The numbers of an int64 array; none, if it is another one.
pub fn int64s<'a>(array: &'a Bound<'_, PyUntypedArray>) -> &'a [i64] {
    bytemuck::try_cast_slice(crate::numpy_memory::bytes_of(array)).unwrap_or(&[])
}

/// The columns of a batch from Python.
pub struct Columns<'py>(Vec<Held<'py>>);

impl<'py> Columns<'py> {
    pub fn extract(plan: &PyPlan, columns: &Bound<'py, PyList>) -> PyResult<Columns<'py>> {
        let held: Vec<Held<'py>> = columns.iter().map(|parts| Held::extract(&parts)).collect::<PyResult<_>>()?;
        for (column, face) in held.iter().zip(&plan.faces) {
            if let HeldValues::Array(array) = &column.values {
                if !array.dtype().is_equiv_to(face.dtype.bind(array.py())) {
                    let message =
                        format!("expected an array of {}, got {}", face.dtype.bind(array.py()), array.dtype());
                    return Err(raise(array.py(), &Error::schema(message).in_field(&face.name.to_string())));
                }
            }
        }
        Ok(Columns(held))
    }

    pub fn inputs(&self) -> Vec<Input<'_>> {
        self.0.iter().map(Held::input).collect()
    }
}
