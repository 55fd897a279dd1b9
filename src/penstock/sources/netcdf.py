"""NetCDF-4 files, which are HDF5: their attributes, variables and times, as the conventions of NetCDF read them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import numpy as np

from .._core import unpack_chunk
from ..errors import CorruptionError, MissingDependencyError, NotFoundError, PenstockError
from ..schema.columns import Array, Value
from ..storage.files import read_file
from ..storage.store import is_url

_DEFLATE, _SHUFFLE = 1, 2  # filters of HDF5, by their numbers
_CODED = ("_FillValue", "missing_value", "scale_factor", "add_offset")
_NANOSECONDS = {"nanosecond": 1, "microsecond": 10**3, "millisecond": 10**6, "second": 10**9}
_NANOSECONDS |= {"minute": 60 * 10**9, "hour": 3600 * 10**9, "day": 86400 * 10**9}
_SINCE = re.compile(
    r"(\w+?)s? since (\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.(\d{0,9}))?)?(?: ?UTC|Z|\+00:00)?"
)


def need_h5py() -> Any:
    """The library that reads HDF5."""
    try:
        import h5py  # type: ignore[import-not-found]
    except ImportError:
        raise MissingDependencyError.needed("h5py", "NetCDF files", extra="netcdf") from None
    return h5py


@contextmanager
def open_netcdf(path: str) -> Iterator[Value]:
    """A file, open. Whatever is wrong with it, or missing in it, is an error that names it."""
    h5py = need_h5py()
    opened: Any = io.BytesIO(read_file(path)) if is_url(path) else path
    try:
        with h5py.File(opened, "r") as file:
            yield file
    except FileNotFoundError:
        raise NotFoundError(f"expected a file, got nothing at {path}") from None
    except PenstockError as error:
        raise CorruptionError(f"expected a sound NetCDF file, got this: {error}", path) from None
    except (OSError, KeyError, ValueError, TypeError) as error:
        said = error.args[0] if error.args else type(error).__name__
        raise CorruptionError(f"expected a sound NetCDF file, got this: {said}", path) from None


def plain(value: object) -> Any:
    """An attribute as a number or a str: libraries write either as arrays of one, and texts as bytes."""
    value = value.item() if isinstance(value, (np.ndarray, np.generic)) and np.size(value) == 1 else value
    return value.decode() if isinstance(value, bytes) else value


def read_variable(variable: Any) -> Array:
    """The values of a variable. What is missing is NaN; what is scaled is scaled back."""
    values = _stored(variable)
    said = {name: plain(variable.attrs[name]) for name in _CODED if name in variable.attrs}
    return _decoded(values, said) if values.dtype.kind in "iuf" else values


def _stored(variable: Any) -> Array:
    """The values as they are. A variable that is one compressed chunk is unpacked by the core, which is quicker."""
    item = _packed_item(variable)
    if item:
        skipped, packed = variable.id.read_direct_chunk((0,) * variable.ndim)
        if not skipped:  # no filter was left out when the chunk was written
            values: Array = unpack_chunk(packed, variable.nbytes, item).view(variable.dtype).reshape(variable.shape)
            return values
    whole: Array = variable[...]
    return whole


def _packed_item(variable: Any) -> int:
    """The size of the elements that are shuffled in a variable's one chunk, or 1; 0 where it is stored another way."""
    if variable.chunks != variable.shape or variable.id.get_num_chunks() != 1 or variable.dtype.byteorder == ">":
        return 0
    told = variable.id.get_create_plist()
    filters = [told.get_filter(number)[0] for number in range(told.get_nfilters())]
    if filters == [_SHUFFLE, _DEFLATE]:
        return int(variable.dtype.itemsize)
    return 1 if filters == [_DEFLATE] else 0


def _decoded(values: Array, said: Mapping[str, Any]) -> Array:
    fills = [said[name] for name in _CODED[:2] if name in said and said[name] == said[name]]  # NaN is NaN already
    missing = np.isin(values, fills) if fills else None
    if "scale_factor" in said or "add_offset" in said:
        values = (values * said.get("scale_factor", 1.0) + said.get("add_offset", 0.0)).astype(np.float32)
    if missing is not None and missing.any():
        values = np.where(missing, np.float32(np.nan), values)
    return values


def read_seconds(variable: Any) -> Array:
    """Times in seconds since 1970, rounded as xarray and the division of its nanoseconds by 1e9 round them."""
    units = str(plain(variable.attrs["units"]))
    match = _SINCE.fullmatch(units)
    if match is None or match[1] not in _NANOSECONDS:
        raise ValueError(f"times in {units!r}")
    step, values = _NANOSECONDS[match[1]], variable[...]
    passed = values.astype(np.int64) * step if values.dtype.kind in "iu" else values.astype(np.float64) * float(step)
    began = seconds_of(f"{match[2]} {match[3] or '00:00'}") * 10**9 + int((match[4] or "").ljust(9, "0"))
    nanoseconds = passed.astype(np.int64) + began
    seconds: Array = (nanoseconds / 1e9).astype(np.int64)  # a float has steps of a quarter of a microsecond there
    return seconds


def seconds_of(text: str) -> int:
    """A time in seconds since 1970; UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp())
