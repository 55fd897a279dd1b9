//! Converts values of a list to elements of a column, for every dtype.

use bytemuck::Pod;
use half::f16;

use crate::error::{Error, Result};
use crate::example::plan::Dtype;

impl Dtype {
    /// Whether an int64 on the wire fits: uint64 is stored bit for bit.
    pub(crate) fn holds(self, value: i64) -> bool {
        match self {
            Dtype::Bool => (0..2).contains(&value),
            Dtype::Int8 => i8::try_from(value).is_ok(),
            Dtype::Int16 => i16::try_from(value).is_ok(),
            Dtype::Int32 => i32::try_from(value).is_ok(),
            Dtype::Uint8 => u8::try_from(value).is_ok(),
            Dtype::Uint16 => u16::try_from(value).is_ok(),
            Dtype::Uint32 => u32::try_from(value).is_ok(),
            _ => true,
        }
    }
}

/// From a value on the wire to an element in memory.
pub(crate) trait Convert<T> {
    /// From an int64 list, and whether the element type can hold it: something else comes where it can't.
    fn int(&self, value: i64) -> (T, bool);
    /// From a float list.
    fn float(&self, value: f32) -> T;
}

/// A conversion given by its two functions.
struct By<I, F>(I, F);

impl<T, I: Fn(i64) -> (T, bool), F: Fn(f32) -> T> Convert<T> for By<I, F> {
    #[inline(always)]
    fn int(&self, value: i64) -> (T, bool) {
        self.0(value)
    }
    #[inline(always)]
    fn float(&self, value: f32) -> T {
        self.1(value)
    }
}

/// Work to be done for one element type.
pub(crate) trait ForDtype {
    fn run<T: Pod>(self, convert: &impl Convert<T>) -> Result<()>;
}

/// Runs `work` for the element type that `dtype` names.
pub(crate) fn dispatch(dtype: Dtype, work: impl ForDtype) -> Result<()> {
    // What is cut is compared with what it was: no branch, which there would be with `try_from`.
    macro_rules! ints {
        ($kind:ty) => {
            work.run(&By(|value| (value as $kind, value as $kind as i64 == value), |_| <$kind>::default()))
        };
    }
    match dtype {
        Dtype::Int64 | Dtype::Uint64 => work.run(&By(|value| (value, true), |_| 0i64)),
        Dtype::Bool => work.run(&By(|value| (value as u8, value & !1 == 0), |_| 0u8)),
        Dtype::Int8 => ints!(i8),
        Dtype::Int16 => ints!(i16),
        Dtype::Int32 => ints!(i32),
        Dtype::Uint8 => ints!(u8),
        Dtype::Uint16 => ints!(u16),
        Dtype::Uint32 => ints!(u32),
        Dtype::Float32 => work.run(&By(|_| (0.0, false), |value: f32| value)),
        Dtype::Float64 => work.run(&By(|_| (0.0, false), f64::from)),
        Dtype::Float16 => work.run(&By(|_| (0, false), |value| f16::from_f32(value).to_bits())),
        Dtype::Bfloat16 | Dtype::Bytes => Err(Error::usage(format!("expected numbers, got {}", dtype.name()))),
    }
}

/// Bytes as elements.
pub(crate) fn typed<T: Pod>(out: &mut [u8]) -> Result<&mut [T]> {
    bytemuck::try_cast_slice_mut(out).map_err(|_| Error::usage("expected memory aligned for the dtype"))
}
