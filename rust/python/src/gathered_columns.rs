//! Gathers dicts into columns. Holds the GIL, so each value costs as little as possible.

use std::ops::Range;

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use penstock_core::example::encode::{Input, Values};
use penstock_core::example::plan::{self, Dtype, Missing};
use penstock_core::Error;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors::raise;
use crate::plan::{Face, PyPlan};

/// One column, gathered value by value.
struct Gathering {
    /// Numbers in C order; the bytes of strings that are not kept as slices.
    data: Vec<u8>,
    value_splits: Vec<i64>,
    row_splits: Vec<i64>,
    present: Vec<u8>,
    missing: bool,
}

/// Some examples as columns.
pub struct Gathered {
    columns: Vec<Gathering>,
    pub rows: usize,
    strings: Vec<bool>,
    ragged: Vec<bool>,
}

impl Gathered {
    pub fn new(
        plan: &PyPlan,
        examples: &Bound<'_, PyList>,
        rows: Range<usize>,
        coerce: &Bound<'_, PyAny>,
    ) -> PyResult<Gathered> {
        let py = examples.py();
        let specs = plan.plan.specs();
        let count = rows.len();
        let mut columns: Vec<Gathering> = specs.iter().map(|spec| Gathering::new(spec, count)).collect();
        for row in rows {
            let example = examples.get_item(row)?;
            let Ok(example) = example.cast::<PyDict>() else {
                let message = format!("expected an example as a dict, got {}", example.get_type().name()?);
                return Err(raise(py, &Error::schema(message).in_record(row as u64)));
            };
            let mut known = 0;
            for (number, (gathering, (spec, face))) in columns.iter_mut().zip(specs.iter().zip(&plan.faces)).enumerate()
            {
                let value = example.get_item(face.name.bind(py))?;
                known += usize::from(value.is_some());
                let value = value.filter(|value| !value.is_none());
                let taken = match &value {
                    Some(value) => gathering.take(spec, face, value, false)?,
                    None if spec.missing == Missing::Refuse => false,
                    None => gathering.skip(spec),
                };
                if !taken {
                    // Not the column's very type: Python's schema turns it into that, or says what is wrong.
                    let exact = coerce.call1((number, row, value))?;
                    if !gathering.take(spec, face, &exact, true)? {
                        let message = format!("expected {}, got {}", spec.describe(), exact.get_type().name()?);
                        return Err(raise(py, &Error::schema(message).in_field(&spec.key).in_record(row as u64)));
                    }
                }
            }
            if known != example.len() {
                // A key that no column has: Python's schema says which.
                coerce.call1((py.None(), row, example))?;
            }
        }
        let strings = specs.iter().map(|spec| spec.dtype == Dtype::Bytes).collect();
        let ragged = specs.iter().map(|spec| spec.count.is_none()).collect();
        Ok(Gathered { columns, rows: count, strings, ragged })
    }

    /// What the core takes.
    pub fn inputs(&self) -> Vec<Input<'_>> {
        (self.columns.iter().zip(&self.strings).zip(&self.ragged))
            .map(|((column, &strings), &ragged)| Input {
                values: match strings {
                    true => Values::Strings(&column.data, &column.value_splits),
                    false => Values::Numbers(&column.data),
                },
                row_splits: ragged.then_some(&column.row_splits[..]),
                present: column.missing.then_some(&column.present[..]),
            })
            .collect()
    }
}

impl Gathering {
    fn new(spec: &plan::Spec, rows: usize) -> Gathering {
        Gathering {
            data: Vec::with_capacity(spec.row_bytes().unwrap_or(0).saturating_mul(rows).min(1 << 24)),
            value_splits: vec![0],
            row_splits: vec![0],
            present: Vec::with_capacity(rows),
            missing: false,
        }
    }

    /// Ends a row that is there.
    fn end_row(&mut self, width: usize, strings: bool) -> bool {
        let elements = if strings { self.value_splits.len() - 1 } else { self.data.len() / width };
        self.row_splits.push(elements as i64);
        self.present.push(1);
        true
    }

    fn string(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
        self.value_splits.push(self.data.len() as i64);
    }

    /// Adds a row that is not there: zeros, so that the rows after it stay in place.
    fn skip(&mut self, spec: &plan::Spec) -> bool {
        match (spec.dtype, spec.count) {
            (Dtype::Bytes, count) => (0..count.unwrap_or(0)).for_each(|_| self.string(&[])),
            (_, count) => self.data.resize(self.data.len() + count.unwrap_or(0) * spec.dtype.width(), 0),
        }
        self.end_row(spec.dtype.width(), spec.dtype == Dtype::Bytes);
        self.missing = true;
        if let Some(last) = self.present.last_mut() {
            *last = 0;
        }
        true
    }

    /// Adds a row if `value` has the column's very type; `false` says that it hasn't. A text is a str, or bytes if the
    /// schema `fitted` them: those are UTF-8.
    fn take(&mut self, spec: &plan::Spec, face: &Face, value: &Bound<'_, PyAny>, fitted: bool) -> PyResult<bool> {
        let width = spec.dtype.width();
        if spec.dtype == Dtype::Bytes {
            return self.take_strings(spec, face, value, fitted);
        }
        if let Ok(array) = value.cast::<PyUntypedArray>() {
            let fits = match spec.count {
                Some(_) => array.shape() == face.shape,
                None => array.ndim() == 1,
            };
            if !fits || !array.is_c_contiguous() || !array.dtype().is_equiv_to(face.dtype.bind(value.py())) {
                return Ok(false);
            }
            self.data.extend_from_slice(crate::numpy_memory::bytes_of(array));
            return Ok(self.end_row(width, false));
        }
        let start = self.data.len();
        let data = &mut self.data;
        let taken = match spec.count {
            Some(_) if face.shape.is_empty() => {
                put_number(spec.dtype, value, data) || put_scalar(face, width, value, data)?
            }
            Some(_) => put_numbers(spec.dtype, &face.shape, value, data),
            None => all_items(value, None, |item| put_number(spec.dtype, item, data)),
        };
        if !taken {
            self.data.truncate(start);
            return Ok(false);
        }
        Ok(self.end_row(width, false))
    }

    fn take_strings(
        &mut self,
        spec: &plan::Spec,
        face: &Face,
        value: &Bound<'_, PyAny>,
        fitted: bool,
    ) -> PyResult<bool> {
        let bytes_fit = fitted || !face.text;
        if let (Some(_), true) = (spec.count, face.shape.is_empty()) {
            if let (true, Ok(bytes)) = (bytes_fit, value.cast::<PyBytes>()) {
                self.string(bytes.as_bytes());
                return Ok(self.end_row(1, true));
            }
            let (true, Ok(text)) = (face.text, value.cast::<PyString>()) else { return Ok(false) };
            // A str with half a surrogate pair has no UTF-8.
            let Ok(text) = text.to_cow() else { return Ok(false) };
            self.string(text.as_bytes());
            return Ok(self.end_row(1, true));
        }
        if !fitted && face.shape.len() > 1 {
            return Ok(false);
        }
        let (bytes, strings) = (self.data.len(), self.value_splits.len());
        let taken = all_items(value, spec.count, |item| match (bytes_fit, item.cast::<PyBytes>()) {
            (true, Ok(bytes)) => {
                self.string(bytes.as_bytes());
                true
            }
            _ => {
                face.text
                    && item.cast::<PyString>().is_ok_and(|text| {
                        text.to_cow().is_ok_and(|text| {
                            self.string(text.as_bytes());
                            true
                        })
                    })
            }
        });
        if !taken {
            self.data.truncate(bytes);
            self.value_splits.truncate(strings);
            return Ok(false);
        }
        Ok(self.end_row(1, true))
    }
}

/// Whether `take` takes each item of a list or a tuple, of so many if that is fixed; `false` for anything else.
fn all_items(value: &Bound<'_, PyAny>, count: Option<usize>, mut take: impl FnMut(&Bound<'_, PyAny>) -> bool) -> bool {
    let fits = |found: usize| count.is_none_or(|count| count == found);
    if let Ok(list) = value.cast_exact::<PyList>() {
        fits(list.len()) && list.iter().all(|item| take(&item))
    } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        fits(tuple.len()) && tuple.iter().all(|item| take(&item))
    } else {
        false
    }
}

/// Appends the numbers of nested lists of this very shape.
fn put_numbers(dtype: Dtype, shape: &[usize], value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    match shape {
        [] => put_number(dtype, value, out),
        &[count] => all_items(value, Some(count), |item| put_number(dtype, item, out)),
        [count, inner @ ..] => all_items(value, Some(*count), |item| put_numbers(dtype, inner, item, out)),
    }
}

/// Appends one of Python's own numbers, if the schema would: an integer must fit as it is, a float may be rounded but
/// stays finite.
fn put_number(dtype: Dtype, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    macro_rules! put_int {
        ($type:ty) => {
            value.extract::<$type>().is_ok_and(|number| {
                out.extend_from_slice(&number.to_le_bytes());
                true
            })
        };
    }
    let whole = value.is_exact_instance_of::<PyInt>();
    match dtype {
        Dtype::Int64 => whole && put_int!(i64),
        Dtype::Int32 => whole && put_int!(i32),
        Dtype::Int16 => whole && put_int!(i16),
        Dtype::Int8 => whole && put_int!(i8),
        Dtype::Uint64 => whole && put_int!(u64),
        Dtype::Uint32 => whole && put_int!(u32),
        Dtype::Uint16 => whole && put_int!(u16),
        Dtype::Uint8 => whole && put_int!(u8),
        Dtype::Float64 => exact_float(value, whole).is_some_and(|number| {
            out.extend_from_slice(&number.to_le_bytes());
            true
        }),
        Dtype::Float32 => exact_float(value, whole).is_some_and(|number| {
            let narrow = number as f32;
            out.extend_from_slice(&narrow.to_le_bytes());
            match whole {
                true => f64::from(narrow) == number,
                false => narrow.is_finite() || !number.is_finite(),
            }
        }),
        Dtype::Bool => value.cast_exact::<PyBool>().is_ok_and(|truth| {
            out.push(u8::from(truth.is_true()));
            true
        }),
        _ => false,
    }
}

/// The value of a float; that of an int which a float64 can hold.
fn exact_float(value: &Bound<'_, PyAny>, whole: bool) -> Option<f64> {
    if !whole {
        return value.cast_exact::<PyFloat>().ok().map(|number| number.value());
    }
    let number = value.extract::<i64>().ok()?;
    (number.unsigned_abs() <= 1 << 53).then_some(number as f64)
}

/// Appends a NumPy scalar of the column's very dtype.
fn put_scalar(face: &Face, width: usize, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<bool> {
    let mut bytes = [0; 16];
    let known = crate::numpy_memory::scalar_bytes(value, face.dtype.bind(value.py()), &mut bytes)?;
    if known {
        out.extend_from_slice(&bytes[..width]);
    }
    Ok(known)
}
