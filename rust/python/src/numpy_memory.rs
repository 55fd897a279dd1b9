//! Memory shared with NumPy: the only module with `unsafe` in it.

use numpy::npyffi::{self, flags, npy_intp, NpyTypes, PY_ARRAY_API};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use penstock_core::example::columns::ColumnBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Memory of the core that arrays look into; they keep it alive.
#[pyclass(frozen)]
struct Memory(#[allow(dead_code)] ColumnBuffer);

fn dims(shape: &[usize]) -> Vec<npy_intp> {
    shape.iter().map(|&size| size as npy_intp).collect()
}

fn check_size(length: usize, dtype: &Bound<'_, PyArrayDescr>, shape: &[usize]) -> PyResult<()> {
    let elements = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    match elements.and_then(|elements| elements.checked_mul(dtype.itemsize())) {
        Some(bytes) if bytes == length => Ok(()),
        _ => Err(PyValueError::new_err(format!("expected {shape:?} elements, got {length} bytes"))),
    }
}

/// An array over memory of the core, without a copy.
pub fn array<'py>(
    py: Python<'py>,
    mut buffer: ColumnBuffer,
    dtype: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    check_size(buffer.bytes().len(), dtype, shape)?;
    // From a mutable borrow, since the array writes through it; moving the buffer moves none of its bytes.
    let data = buffer.bytes_mut().as_mut_ptr().cast();
    let memory = Bound::new(py, Memory(buffer))?;
    let mut dims = dims(shape);
    // SAFETY: `data` points to as many bytes as dtype and shape need (checked above), aligned to eight bytes, and lives
    // as long as `memory`, which becomes the array's base. Nobody else has a reference to those bytes, so the array may
    // write them. NewFromDescr steals a reference to the dtype, SetBaseObject one to the memory; both are given one.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, NpyTypes::PyArray_Type),
            dtype.clone().into_dtype_ptr(),
            dims.len() as _,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            data,
            flags::NPY_ARRAY_WRITEABLE | flags::NPY_ARRAY_ALIGNED | flags::NPY_ARRAY_C_CONTIGUOUS,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        match PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), memory.into_ptr()) {
            0 => Ok(array),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

/// A new array in NumPy's own memory, filled by `fill`; an error of `fill` comes back beside the array.
pub fn filled<'py, E>(
    dtype: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> PyResult<Result<Bound<'py, PyAny>, E>> {
    let py = dtype.py();
    let length = shape.iter().product::<usize>() * dtype.itemsize();
    // SAFETY: usize and npy_intp have the same size, and the call reads the shape only. NumPy allocates memory for it, which
    // is ours alone until the array is returned; it is zeroed before a slice over just that memory is made, which ends with
    // `fill`. NewFromDescr steals a reference to the dtype; it is given one.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, NpyTypes::PyArray_Type),
            dtype.clone().into_dtype_ptr(),
            shape.len() as _,
            shape.as_ptr().cast_mut().cast(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        let data = (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.data.cast::<u8>();
        std::ptr::write_bytes(data, 0, length);
        Ok(fill(std::slice::from_raw_parts_mut(data, length)).map(|()| array))
    }
}

/// A NumPy scalar from its bytes.
pub fn scalar<'py>(dtype: &Bound<'py, PyArrayDescr>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    check_size(bytes.len(), dtype, &[])?;
    // SAFETY: `bytes` has an element's size; it is only read, and copied into the scalar before the call returns.
    unsafe {
        let data = bytes.as_ptr().cast_mut().cast();
        let scalar = PY_ARRAY_API.PyArray_Scalar(dtype.py(), data, dtype.as_dtype_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(dtype.py(), scalar)
    }
}

/// The bytes of a NumPy scalar of this very dtype, put in front of `out`; `false` for anything else.
pub fn scalar_bytes(value: &Bound<'_, PyAny>, dtype: &Bound<'_, PyArrayDescr>, out: &mut [u8; 16]) -> PyResult<bool> {
    let py = value.py();
    // SAFETY: the object is a NumPy scalar (its type is checked), so it has a dtype, which is checked to be the wanted
    // one, of at most eight bytes, and one of NumPy's own: of a dtype that others define (bfloat16), ScalarAsCtype does
    // not know the memory. It writes one element. DescrFromScalar returns a new reference.
    unsafe {
        let generic = npyffi::get_type_object(py, NpyTypes::PyGenericArrType_Type);
        let defined_by_others = dtype.num() >= npyffi::NPY_TYPES::NPY_USERDEF as i32;
        if defined_by_others
            || pyo3::ffi::PyObject_TypeCheck(value.as_ptr(), generic) == 0
            || dtype.itemsize() > out.len()
        {
            return Ok(false);
        }
        let found = PY_ARRAY_API.PyArray_DescrFromScalar(py, value.as_ptr());
        let found = Bound::from_owned_ptr_or_err(py, found.cast())?.cast_into_unchecked::<PyArrayDescr>();
        if !found.is_equiv_to(dtype) {
            return Ok(false);
        }
        PY_ARRAY_API.PyArray_ScalarAsCtype(py, value.as_ptr(), out.as_mut_ptr().cast());
        Ok(true)
    }
}

/// The bytes of a C-contiguous array. Whoever holds them over a release of the GIL must keep the array, and tells users
/// not to write to it meanwhile: what would be read then is any mix of old and new values, as with NumPy's own
/// functions.
pub fn bytes_of<'a>(array: &'a Bound<'_, PyUntypedArray>) -> &'a [u8] {
    let length = array.len() * array.dtype().itemsize();
    if length == 0 || !array.is_c_contiguous() {
        return &[];
    }
    // SAFETY: a C-contiguous array has that many bytes in a row at `data`, and they live as long as the array does.
    unsafe { std::slice::from_raw_parts((*array.as_array_ptr()).fields.data.cast::<u8>(), length) }
}
