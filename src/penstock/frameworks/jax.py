"""JAX: batches as arrays on devices."""

from __future__ import annotations

import numpy as np

from ..errors import MissingDependencyError, SchemaError
from ..loading.loader import Loader
from ..loading.spec import Form
from ..schema.columns import Bytes, Ragged
from .conversion import Tensor, convert, refuse_missing

try:
    import jax  # type: ignore[import-not-found]
except ImportError:
    raise MissingDependencyError.needed("jax", "arrays of JAX", extra="jax") from None


class OnDevice:
    """Puts what a loader gives on a device, or on several as a sharding says. Strings stay where they are."""

    def __init__(self, sharding: object = None) -> None:
        self.sharding = sharding

    @staticmethod
    def narrows() -> bool:
        """Whether JAX has no integers of 64 bits."""
        return not jax.config.jax_enable_x64

    def __call__(self, item: object) -> Tensor:
        wide = not self.narrows()
        arrays: list[Tensor] = []

        def gather(value: object, where: str) -> Tensor:
            found = _array(value, where, wide)
            if found is None:
                return value
            arrays.append(found)
            return _Place(len(arrays) - 1)

        form = convert(item, gather)
        placed = jax.device_put(arrays, self.sharding)  # all at once: each call has its price
        return convert(form, lambda value, _: placed[value.number] if isinstance(value, _Place) else value)


class _Place:
    """Where an array comes back to."""

    def __init__(self, number: int) -> None:
        self.number = number


def _array(value: object, where: str, wide: bool) -> Tensor:
    """The array of a column; None where there is none."""
    if isinstance(value, np.ma.MaskedArray):
        raise refuse_missing(where)
    if isinstance(value, Ragged) and isinstance(value.values, np.ndarray):
        raise SchemaError(
            "expected columns of one shape, got a ragged one", where, "Pad it: batch(64, pad=0), or pack(length)"
        )
    if isinstance(value, (Bytes, Ragged)) or not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind == "O":
        return None
    if not wide and value.dtype.itemsize == 8 and value.dtype.kind in "iu":
        return _narrowed(np.asarray(value), where)
    return value


def _narrowed(array: Tensor, where: str) -> Tensor:
    """JAX has 32 bits unless told otherwise: it would cut what does not fit without a word."""
    narrow = array.astype(np.int32 if array.dtype.kind == "i" else np.uint32)
    if not np.array_equal(narrow, array):
        raise SchemaError(
            f"expected integers of 32 bits, got {array.dtype.name} values beyond them",
            where,
            'Allow 64 bits: jax.config.update("jax_enable_x64", True)',
        )
    return narrow


def to_jax(loader: Loader, *, sharding: Tensor = None, ahead: int = 2) -> Loader:
    """A loader's items as arrays on devices, some of them ahead."""
    place = OnDevice(sharding)
    return loader.in_form(Form(place, place.narrows, ahead))
