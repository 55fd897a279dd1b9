"""What layouts are made of: the columns that the core's plan takes, and the parts that a batch of one comes in.

A column goes to the core as (values, value_splits, row_splits, present), each None where it has no meaning. It comes
back as such parts, or as one array where there is nothing but that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..columns import Array
from ..dtypes import MAX_ELEMENTS, TEXTS
from ..errors import SchemaError
from ..field import Field

Parts: TypeAlias = "tuple[Any, Array | None, Array | None, Array | None]"

INT64 = np.dtype(np.int64)
UINT8 = np.dtype(np.uint8)


class Column(NamedTuple):
    """A column as the core's plan takes it. Rows differ in length where `shape` is None."""

    key: str
    dtype: str
    numpy_dtype: np.dtype[Any]
    encoding: str = "none"
    shape: list[int] | None = None
    text: bool = False
    optional: bool = False
    default: bytes | None = None

    def narrowed(self) -> Column:
        """The same, its integers in 32 bits if they are read one by one."""
        if self.dtype not in ("int64", "uint64") or (self.encoding, self.default) != ("none", None):
            return self
        dtype = self.dtype.replace("64", "32")
        return self._replace(dtype=dtype, numpy_dtype=np.dtype(dtype))


class Layout:
    """What all layouts share. The verbs are columns, batch, parts and record_values."""

    #: Whether a batch's column, and an example's value, are what the core decodes, with nothing left to do here.
    direct_batch = False
    direct_example = False

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.name
        self.key = field.record_keys[0]
        self.text = field.dtype == "str"
        #: The known dimensions, and how many elements they make.
        self.inner = tuple(size for size in field.shape if size is not None)
        self.size = prod(self.inner)

    def columns(self) -> list[Column]:
        """The columns that hold the field, that of its values first."""
        raise NotImplementedError

    def batch(self, raw: Mapping[str, Any]) -> Any:
        """The field's column from what the core decoded."""
        raise NotImplementedError

    def record_values(self, exact: Any) -> dict[str, Any]:
        """What each column holds of a value, which is one that Field.coerce gave."""
        raise NotImplementedError

    def parts(self, column: Any, rows: int) -> list[Parts]:
        """A column of `rows` rows as the core takes it. This one takes any rows; layouts know quicker ways for some."""
        exact = [self.field.coerce(row, f"{self.name}[{number}]") for number, row in enumerate(column)]
        return self.gather(exact)

    def chosen(self, column: Any, rows: Array) -> Parts | None:
        """The whole column as it lies in memory, but which of these rows are there; None where that will not do."""
        return None

    def gather(self, exact: Iterable[Any]) -> list[Parts]:
        """Values that Field.coerce gave, as the core takes them."""
        columns = self.columns()
        nothing = {column.key: None for column in columns}
        values = [nothing if value is None else self.record_values(value) for value in exact]
        return [gathered(column, [value[column.key] for value in values]) for column in columns]

    def lengths(self, parts: list[Parts]) -> list[Array]:
        """How many elements each list has, level by level from the outermost; none for what is no list."""
        return []

    def column(self, shape: list[int] | None, default: bytes | None = None) -> Column:
        """The column of the values."""
        field = self.field
        if field.dtype in TEXTS:
            return Column(self.key, "bytes", UINT8, "none", shape, self.text, field.optional, default)
        dtype = field.numpy_dtype
        assert dtype is not None
        return Column(self.key, field.dtype, dtype, field.encoding, shape, False, field.optional, default)

    def default_bytes(self) -> bytes | None:
        """The default's numbers as they lie in memory."""
        default = self.field.default
        return None if default is None else np.asarray(default, dtype=self.field.numpy_dtype).tobytes()

    def cast(self, values: Any, shape: tuple[int | None, ...]) -> Array:
        """An array of this shape in the field's dtype, or a SchemaError: nothing is lost."""
        if values.dtype == self.field.numpy_dtype and values.shape == shape and self.field.classes is None:
            return np.ascontiguousarray(values)
        whole = replace(self.field, shape=shape, levels=0, optional=False, default=None, encoding="auto")
        return np.ascontiguousarray(whole.coerce(values, self.name))

    def refuse_nothing(self) -> None:
        """For layouts that count rows by their elements: those of no elements would get lost."""
        if not self.size:
            hint = "Leave out the dimension of 0"
            raise SchemaError(f"expected rows that hold something, got {self.field}", self.name, hint)

    def wrong(self, got: str, row: int | None = None) -> SchemaError:
        """The error for a column, or one of its rows."""
        place = "" if row is None else f"record {row}, "
        return SchemaError(f"expected {self.field}, got {got}", f'{place}field "{self.name}"')


def gathered(column: Column, values: list[Any]) -> Parts:
    """One column's values, row by row, as parts; a row that is missing counts as zeros."""
    there = np.array([value is not None for value in values], bool)
    present = None if there.all() else there
    if column.dtype == "bytes":
        nothing = [b""] * prod(column.shape or ()) if column.shape is not None else []
        rows = [nothing if v is None else [v] if isinstance(v, bytes) else v for v in values]
        flat: Any = [string for row in rows for string in row]
    else:
        zeros = np.zeros(prod(column.shape) if column.shape is not None else 0, column.numpy_dtype)
        rows = [zeros if value is None else value.reshape(-1) for value in values]
        flat = np.concatenate(rows) if rows else zeros[:0]
    if column.shape is not None:
        return flat, None, None, present
    return flat, None, np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)]), present


def check_shapes(
    layout: Layout,
    shapes: Array,
    declared: tuple[int | None, ...],
    present: Array | None,
    lengths: Array | None = None,
) -> None:
    """Each row's shape is one of the declared kind, and makes as many elements as the row has."""
    if shapes.shape[1] != len(declared):
        raise layout.wrong(f"rows of {shapes.shape[1]} dimensions")
    known = np.array([-1 if size is None else size for size in declared])
    wrong = (shapes < 0).any(axis=1) | ((known >= 0) & (shapes != known)).any(axis=1)
    wrong |= np.maximum(shapes, 1).prod(axis=1, dtype=np.float64) > MAX_ELEMENTS
    if lengths is not None:
        wrong |= shapes.prod(axis=1, dtype=np.float64) != lengths
    if present is not None:
        wrong &= present
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        values = "" if lengths is None else f" for {lengths[row]} values"
        raise layout.wrong(f"shape {shapes[row].tolist()}{values}", row)
