"""How a field lies in a record: which columns hold it, and how it comes out of them and goes into them.

Most fields are one column of their own name and need nothing more. The others, as TFDS lays them out:

    float32[?,3]          one column of flat values, cut into rows of 3
    float32[?,?]          "k/value" with the bytes and "k/shape"
    list[list[int64]]     "k/ragged_flat_values" and "k/ragged_row_lengths_0", one more for each further level
    list[T], encoded      one byte string for each element of the list

A column is handed over in parts: (values, value_splits, row_splits, present), None for what it hasn't.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..columns import Array, Bytes, Ragged
from ..errors import SchemaError
from ..schema import TEXTS, Field

Parts: TypeAlias = "tuple[Any, Array | None, Array | None, Array | None]"


class Column(NamedTuple):
    """A column as the core's plan takes it."""

    key: str
    dtype: str
    numpy_dtype: np.dtype[Any]
    encoding: str = "none"
    shape: list[int] | None = None
    text: bool = False
    optional: bool = False
    default: bytes | None = None


class Leaf:
    """A field and the columns that hold it."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.name
        self.unknown = field.shape.count(None)
        #: Elements of a byte string each, decoded here and not by the core.
        self.encoded_list = field.levels > 0 and field.encoding != "none"
        self.strings = field.dtype in TEXTS
        self.inner = tuple(size for size in field.shape if size is not None)
        self.leading = self.unknown == 1 and field.shape[0] is None
        #: A column of the field's own name that needs no work in Python: as a batch, and as one example.
        self.direct_batch = not (field.levels or self.unknown or self.strings or (field.optional and field.default is None))
        self.direct_example = not field.levels and (not self.unknown or field.shape == (None,)) and not (self.strings and self.inner)

    def columns(self) -> list[Column]:
        """The columns that hold it, the values' own first."""
        field = self.field
        dtype = "bytes" if self.strings or self.encoded_list else field.dtype
        numpy_dtype = np.dtype(np.uint8) if dtype == "bytes" else field.numpy_dtype
        assert numpy_dtype is not None
        fixed = None if field.levels or self.unknown else list(self.inner)
        encoding = "none" if self.encoded_list else field.encoding
        keys = field.record_keys
        values = Column(keys[0], dtype, numpy_dtype, encoding, fixed, field.dtype == "str", field.optional, self._default())
        int64 = np.dtype(np.int64)
        if field.levels > 1:
            return [values, *(Column(key, "int64", int64, optional=field.optional) for key in keys[1:])]
        if self.unknown > 1:
            return [values, Column(keys[1], "int64", int64, shape=[len(field.shape)], optional=field.optional)]
        return [values]

    def _default(self) -> bytes | None:
        default = self.field.default
        if default is None:
            return None
        if self.strings:
            return default.encode() if isinstance(default, str) else bytes(default) if isinstance(default, bytes) else None
        return np.asarray(default, dtype=self.field.numpy_dtype).tobytes()

    # From a record to values

    def batch(self, raw: Mapping[str, Any]) -> Any:
        """The field's column from what the core decoded."""
        parts = raw[self.field.record_keys[0]]
        if self.direct_batch:
            return parts
        values, value_splits, row_splits, present = parts
        if row_splits is None:
            return self._fixed(values, value_splits, present)
        if self.unknown > 1:
            return self._shaped(values, row_splits, raw[self.field.record_keys[1]], present)
        column: Any = Bytes._trusted(values, value_splits, self.field.dtype == "str") if value_splits is not None else values
        if self.encoded_list:
            column = self._decoded(column)
            size = 1
        else:
            size = prod(self.inner)
        if self.unknown and not self.leading:
            return Ragged._trusted(column, row_splits, self._shapes_of(row_splits, size), present)
        if self.inner and not self.encoded_list:
            column, row_splits = self._cut(column, row_splits, size)
        return self._nested(column, row_splits, raw) if self.field.levels > 1 else Ragged._trusted(column, row_splits, None, present)

    def _fixed(self, values: Array, value_splits: Array | None, present: Array | None) -> Any:
        if value_splits is not None:
            return Bytes._trusted(values, value_splits, self.field.dtype == "str", self.inner or None, present)
        assert present is not None
        mask = np.broadcast_to(~present.reshape(-1, *(1 for _ in self.inner)), values.shape)
        return np.ma.MaskedArray(values, mask)

    def _shaped(self, values: Array, row_splits: Array, given: Any, present: Array | None) -> Ragged:
        shapes: Array = given[0] if isinstance(given, tuple) else given
        sizes = shapes.prod(axis=1, dtype=np.float64)
        declared = np.array([-1 if size is None else size for size in self.field.shape])
        wrong = (sizes != np.diff(row_splits)) | (shapes < 0).any(axis=1) | ((declared >= 0) & (shapes != declared)).any(axis=1)
        if present is not None:
            wrong &= present
            shapes = np.where(present[:, None], shapes, 0)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            got = f"shape {shapes[row].tolist()} for {int(np.diff(row_splits)[row])} values"
            raise SchemaError(f"expected {self.field}, got {got}", f"{self.name}, row {row}")
        return Ragged._trusted(values, row_splits, shapes, present)

    def _shapes_of(self, row_splits: Array, size: int) -> Array:
        """The rows' shapes, where the one unknown dimension follows from a row's length."""
        lengths = np.diff(row_splits)
        self._check_multiple(lengths, size)
        columns = [lengths // max(size, 1) if known is None else np.full_like(lengths, known) for known in self.field.shape]
        return np.stack(columns, axis=1)

    def _cut(self, column: Any, row_splits: Array, size: int) -> tuple[Any, Array]:
        """Flat values as rows of the inner shape."""
        self._check_multiple(np.diff(row_splits), size)
        if isinstance(column, Bytes):
            return Bytes._trusted(column.values, column.row_splits, column.text, self.inner), row_splits // size
        return column.reshape(-1, *self.inner) if size else np.empty((0, *self.inner), column.dtype), row_splits // max(size, 1)

    def _check_multiple(self, lengths: Array, size: int) -> None:
        wrong = np.flatnonzero(lengths % size if size else lengths)
        if len(wrong):
            row = int(wrong[0])
            raise SchemaError(f"expected {self.field}, got {int(lengths[row])} values", f"{self.name}, row {row}")

    def _decoded(self, column: Bytes) -> Any:
        """The elements of a list whose byte strings each hold an array."""
        dtype = self.field.numpy_dtype
        size = prod(self.inner) * (dtype.itemsize if dtype else 1)
        rows = []
        for item in column:
            try:
                data = zlib.decompress(item) if self.field.encoding == "zlib" else item
            except zlib.error as error:
                raise SchemaError(f"expected a zlib stream, got broken bytes ({error})", self.name) from None
            if len(data) != size:
                raise SchemaError(f"expected {size} bytes for {self.field}, got {len(data)}", self.name)
            rows.append(np.frombuffer(data, dtype=dtype).reshape(self.inner))
        return np.stack(rows) if rows else np.empty((0, *self.inner), dtype)

    def _nested(self, column: Any, row_splits: Array, raw: Mapping[str, Any]) -> Ragged:
        """Rows within rows: `row_splits` counts the innermost, each lengths column the level above."""
        levels = [raw[key] for key in self.field.record_keys[1:]]
        present = levels[0][3]
        for lengths, _, outer, _ in reversed(levels):
            splits = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths, out=splits[1:])
            if (lengths < 0).any() or (splits[outer] != row_splits).any():
                raise SchemaError(f"expected {self.field}, got row lengths that do not add up", self.name)
            column, row_splits = Ragged._trusted(column, splits), outer
        return Ragged._trusted(column, row_splits, None, present)

    def example(self, value: Any) -> Any:
        """The value of one example, where the core's is not final: an array in place of a list of numbers, and so on."""
        return value

    # From values to a record

    def parts(self, column: Any, rows: int) -> list[Parts]:
        """A batch's column as the core takes it, one entry for each of `columns()`."""
        if self.direct_batch or (not self.field.levels and not self.unknown):
            return [self._fixed_parts(column, rows)]
        ragged = self._as_ragged(column)
        if len(ragged) != rows:
            raise SchemaError(f"expected {rows} rows, as other columns have, got {len(ragged)}", self.name)
        if self.unknown > 1:
            return self._shaped_parts(ragged)
        present = ragged.present
        lengths: list[Parts] = []
        for _ in range(self.field.levels - 1):
            inner = ragged.values
            if not isinstance(inner, Ragged):
                raise SchemaError(f"expected {self.field}, got fewer levels", self.name)
            lengths.append((inner.row_lengths(), None, ragged.row_splits, present))
            ragged = Ragged._trusted(inner.values, inner.row_splits[ragged.row_splits])
        return [self._flat_parts(ragged, present), *lengths]

    def _fixed_parts(self, column: Any, rows: int) -> Parts:
        field = self.field
        present = None
        if isinstance(column, (np.ma.MaskedArray, Bytes)) and field.optional:
            present = column.present if isinstance(column, Bytes) else self._rows_present(column)
        if self.strings:
            return self._string_parts(column, rows, present)
        array = np.ma.getdata(column) if present is not None else column
        if not (isinstance(array, np.ndarray) and array.dtype == field.numpy_dtype and array.shape == (rows, *field.shape)):
            array = replace(field, shape=(rows, *field.shape), optional=False, default=None, classes=None, kind="tensor").coerce(array, self.name)
        return (np.ascontiguousarray(array), None, None, present)

    def _rows_present(self, column: np.ma.MaskedArray[Any, Any]) -> Array | None:
        mask = np.ma.getmaskarray(column).reshape(len(column), -1)
        if (mask.any(axis=1) != mask.all(axis=1)).any():
            raise SchemaError("expected rows that are there or missing as a whole, got a mask within a row", self.name)
        return ~mask.all(axis=1) if mask.any() else None

    def _string_parts(self, column: Any, rows: int, present: Array | None) -> Parts:
        items = column.to_numpy() if isinstance(column, Bytes) and self.inner else column
        if isinstance(items, Bytes):
            if len(items) != rows or items.text != (self.field.dtype == "str"):
                raise SchemaError(f"expected {rows} rows of {self.field}, got {items}", self.name)
            return (np.ascontiguousarray(items.values), np.ascontiguousarray(items.row_splits), None, present)
        flat = []
        there = np.ones(rows, bool)
        for row, item in enumerate(items):
            value = self.field.coerce(item, f"{self.name}[{row}]")
            there[row] = value is not None
            if self.inner:
                flat += value.ravel().tolist() if value is not None else [b""] * prod(self.inner)
            else:
                flat.append(b"" if value is None else value)
        if len(items) != rows:
            raise SchemaError(f"expected {rows} rows, as other columns have, got {len(items)}", self.name)
        return (flat, None, None, None if there.all() else there)

    def _as_ragged(self, column: Any) -> Ragged:
        if isinstance(column, Ragged):
            return column
        rows = [self.field.coerce(row, f"{self.name}[{number}]") for number, row in enumerate(column)]
        if self.strings:
            rows = [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]
            text = [None if row is None else row for row in rows]
            ragged = Ragged.from_rows(text) if any(row is not None and len(row) for row in rows) else None
            if ragged is None:
                empty = Bytes._trusted(np.empty(0, np.uint8), np.zeros(1, np.int64))
                there = np.array([row is not None for row in rows], bool)
                return Ragged._trusted(empty, np.zeros(len(rows) + 1, np.int64), None, None if there.all() else there)
            return ragged
        return Ragged.from_rows(rows, self.field.numpy_dtype)

    def _flat_parts(self, ragged: Ragged, present: Array | None) -> Parts:
        values, splits = ragged.values, np.ascontiguousarray(ragged.row_splits)
        if isinstance(values, Bytes):
            if not self.strings:
                raise SchemaError(f"expected {self.field}, got {values}", self.name)
            return (np.ascontiguousarray(values.values), np.ascontiguousarray(values.row_splits), splits, present)
        if isinstance(values, Ragged) or self.strings:
            raise SchemaError(f"expected {self.field}, got {ragged}", self.name)
        if self.encoded_list:
            return ([self._encoded(row) for row in values], None, splits, present)
        values = values.astype(self.field.numpy_dtype, casting="safe", copy=False)
        if ragged.shapes is None and values.shape[1:] != (self.inner if self.leading or self.field.levels else ()):
            raise SchemaError(f"expected {self.field}, got rows of shape {list(values.shape[1:])}", self.name)
        size = prod(values.shape[1:])
        return (np.ascontiguousarray(values).reshape(-1), None, splits * size, present)

    def _encoded(self, row: Array) -> bytes:
        data = np.ascontiguousarray(row, dtype=self.field.numpy_dtype).tobytes()
        return zlib.compress(data) if self.field.encoding == "zlib" else data

    def _shaped_parts(self, ragged: Ragged) -> list[Parts]:
        values = np.asarray(ragged.values)
        shapes, splits = ragged.shapes, np.ascontiguousarray(ragged.row_splits)
        if shapes is None:
            rows = np.diff(splits)
            shapes = np.stack([rows, *(np.full_like(rows, size) for size in values.shape[1:])], axis=1)
            splits = splits * prod(values.shape[1:])
        if shapes.shape[1] != len(self.field.shape):
            raise SchemaError(f"expected {self.field}, got rows of {shapes.shape[1]} dimensions", self.name)
        flat = np.ascontiguousarray(values.astype(self.field.numpy_dtype, casting="safe", copy=False)).reshape(-1)
        return [(flat, None, splits, ragged.present), (np.ascontiguousarray(shapes), None, None, ragged.present)]

    def record_values(self, value: Any, where: str) -> dict[str, Any]:
        """One example's value by column, each in the very type that the core takes; None for what is missing."""
        keys = self.field.record_keys
        exact = self.field.coerce(value, where)
        if exact is None:
            return dict.fromkeys(keys)
        if self.unknown > 1:
            return {keys[0]: exact.reshape(-1), keys[1]: np.array(exact.shape, np.int64)}
        lengths: dict[str, Any] = {}
        for key in keys[1:]:
            lengths[key] = np.array([len(row) for row in exact], np.int64)
            exact = [item for row in exact for item in row] if key != keys[-1] else _joined(exact, self)
        if self.encoded_list:
            return {keys[0]: [self._encoded(row) for row in exact], **lengths}
        if self.strings and isinstance(exact, np.ndarray):
            return {keys[0]: exact.reshape(-1).tolist(), **lengths}
        return {keys[0]: exact.reshape(-1) if self.unknown or self.field.levels else exact, **lengths}


def _joined(rows: list[Any], leaf: Leaf) -> Array:
    """The innermost rows of nested lists, one after the other."""
    if rows:
        return np.concatenate(rows)
    return np.empty((0, *leaf.inner), object if leaf.strings else leaf.field.numpy_dtype)
