"""What a decoded batch is made of, besides plain arrays: columns whose rows differ in length.

Ragged   rows of numbers (or of Bytes, or of Ragged): values 1 2 3 4 5, row_splits 0 2 2 5 -> [1 2] [] [3 4 5]
Bytes    byte strings or texts, all in one buffer, cut by row_splits in the same way

Slices share the values with their column; nothing is copied until a row is taken out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from ..errors import RecordIndexError, SchemaError

Value: TypeAlias = Any
"""A value of an example, as users give it and get it: numbers, strings, arrays, and lists and dicts of them."""
ExampleDict: TypeAlias = dict[str, Value]
"""An example: the value of each field. Nested fields are dicts."""
Columns: TypeAlias = dict[str, Value]
"""A batch: the column of each field. Nested fields are dicts of columns."""
DType: TypeAlias = "np.dtype[Any]"
Array: TypeAlias = "np.ndarray[Any, Any]"


class Ragged:
    """A column of arrays that differ in length, one row per example.

    values      all rows one after the other: an ndarray, Bytes, or Ragged where rows are lists of rows
    row_splits  int64[n + 1]: row i is values[row_splits[i]:row_splits[i + 1]]
    shapes      int64[n, dimensions] where each row has a shape of its own (values are flat then), or None
    present     bool[n], False where an optional value is missing, or None when all are there
    """

    __slots__ = ("present", "row_splits", "shapes", "values")

    values: Array | Bytes | Ragged
    row_splits: Array
    shapes: Array | None
    present: Array | None

    def __init__(
        self, values: Array | Bytes | Ragged, row_splits: object, *, shapes: object = None, present: object = None
    ) -> None:
        if not isinstance(values, (Bytes, Ragged)):
            values = np.asarray(values)
            if not values.ndim:
                raise SchemaError("expected values of one dimension or more, got a single number")
        self.values = values
        self.row_splits = _checked_splits(row_splits, len(values))
        self.shapes = None if shapes is None else self._checked_shapes(shapes)
        self.present = _checked_present(present, len(self))

    def _checked_shapes(self, given: object) -> Array:
        shapes: Array = np.asarray(given, dtype=np.int64)
        if not isinstance(self.values, np.ndarray) or self.values.ndim != 1:
            raise SchemaError("expected flat values where rows have their own shapes")
        if shapes.ndim != 2 or len(shapes) != len(self) or (shapes < 0).any():
            raise SchemaError(f"expected one shape for each of {len(self)} rows, got shapes {list(shapes.shape)}")
        if (shapes.prod(axis=1, dtype=np.float64) != self.row_lengths()).any():
            raise SchemaError("expected shapes whose sizes are the rows' lengths")
        return shapes

    @classmethod
    def unchecked(
        cls,
        values: Array | Bytes | Ragged,
        row_splits: Array,
        shapes: Array | None = None,
        present: Array | None = None,
    ) -> Ragged:
        """Return a column of these parts without checking them."""
        column = cls.__new__(cls)
        column.values = values
        column.row_splits = row_splits
        column.shapes = shapes
        column.present = present
        return column

    @classmethod
    def from_rows(cls, rows: Sequence[Value], dtype: Value = None) -> Ragged:
        """A column of the given rows: arrays, lists of numbers or strings, lists of such lists; None where missing."""
        rows = [row.tolist() if _holds_objects(row) else row for row in rows]
        present = np.array([row is not None for row in rows], dtype=bool)
        lengths = np.zeros(len(rows), dtype=np.int64)
        shapes = None
        values: Array | Bytes | Ragged
        kinds = {type(item) for row in rows if isinstance(row, (list, tuple)) for item in row}
        if any(issubclass(kind, (str, bytes, list, tuple, np.ndarray)) for kind in kinds):
            items = [item for row in rows if row is not None for item in row]
            strings = all(issubclass(kind, (str, bytes)) for kind in kinds)
            values = Bytes.from_list(items) if strings else cls.from_rows(items, dtype)
            lengths[present] = [len(row) for row in rows if row is not None]
        else:
            # An empty list has neither dtype nor shape: it is a row of length 0.
            filled = [row is not None and not (isinstance(row, (list, tuple)) and not row) for row in rows]
            arrays = [np.asarray(row, dtype=dtype) for row, full in zip(rows, filled, strict=True) if full]
            if any(not array.ndim or array.ndim != arrays[0].ndim for array in arrays):
                raise SchemaError("expected rows of the same number of dimensions, one or more")
            if len({array.shape[1:] for array in arrays}) > 1:
                shapes = np.zeros((len(rows), arrays[0].ndim), dtype=np.int64)
                shapes[filled] = [array.shape for array in arrays]
                arrays = [array.ravel() for array in arrays]
            values = np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
            lengths[filled] = [len(array) for array in arrays]
        return cls.unchecked(values, _splits(lengths), shapes, None if present.all() else present)

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: int | slice) -> Value:
        """One row (None when missing; a list where the rows are lists), or a column of some rows without a copy."""
        if isinstance(index, slice):
            first, last = _bounds(index, len(self))
            values = self.values[int(self.row_splits[first]) : int(self.row_splits[last])]
            splits = self.row_splits[first : last + 1] - self.row_splits[first]
            return Ragged.unchecked(values, splits, _cut(self.shapes, first, last), _cut(self.present, first, last))
        index = _position(index, len(self))
        if self.present is not None and not self.present[index]:
            return None
        row = self.values[int(self.row_splits[index]) : int(self.row_splits[index + 1])]
        if self.shapes is not None:
            return (row.to_numpy() if isinstance(row, Bytes) else np.asarray(row)).reshape(self.shapes[index])
        return row if isinstance(row, np.ndarray) else list(row)

    def __iter__(self) -> Iterator[Value]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        lengths = self.row_lengths()
        reach = f" of {lengths.min()} to {lengths.max()}" if len(lengths) else ""
        missing = "" if self.present is None else f", {int((~self.present).sum())} missing"
        kind = repr(self.values) if isinstance(self.values, (Bytes, Ragged)) else self.values.dtype.name
        return f"Ragged({len(self)} rows{reach} {kind}{missing})"

    @property
    def dtype(self) -> DType:
        """The dtype of the rows; object for bytes and texts."""
        return self.values.dtype

    def row_lengths(self) -> Array:
        """int64[n]; a missing row has length 0."""
        return np.diff(self.row_splits)

    def to_list(self) -> list[Value]:
        """Nested lists of plain Python values, None where a row is missing."""
        if self.shapes is not None:
            return [None if row is None else row.tolist() for row in self]
        items = self.values.tolist() if isinstance(self.values, np.ndarray) else self.values.to_list()
        splits = self.row_splits.tolist()
        present = [True] * len(self) if self.present is None else self.present.tolist()
        return [items[splits[i] : splits[i + 1]] if present[i] else None for i in range(len(self))]

    def to_padded(self, length: int | Sequence[int | None] | None = None, value: object = 0) -> Array:
        """One array, rows filled up with `value` (0 stands for the empty string in a column of bytes or text).

        `length` is that of the longest row, or as given: longer rows are cut. Where rows are lists of rows, or have
        shapes of their own, it may be a tuple with one entry per padded dimension.
        """
        lengths = tuple(length) if isinstance(length, Sequence) else (length,)
        values = self.values
        if isinstance(values, Ragged):
            values = values.to_padded(lengths[1:] or None, value)
        elif isinstance(values, Bytes):
            value = ("" if values.text else b"") if isinstance(value, int) and value == 0 else value
            values = values.to_numpy()
        shapes = self.row_lengths()[:, None] if self.shapes is None else self.shapes
        if len(lengths) > shapes.shape[1] and not isinstance(self.values, Ragged):
            raise SchemaError(f"expected at most {shapes.shape[1]} lengths, got {len(lengths)}")
        return _scatter(values, shapes, self.row_lengths(), lengths, value)


class Bytes:
    """A column of byte strings, or of texts, one row per example.

    values      uint8, all strings one after the other
    row_splits  int64[strings + 1]: where each string begins and ends
    text        rows are str (UTF-8) instead of bytes
    shape       the shape of a row that holds several strings, or None when each row is one string
    present     bool[n], False where an optional value is missing, or None when all are there
    """

    __slots__ = ("present", "row_splits", "shape", "text", "values")

    values: Array
    row_splits: Array
    text: bool
    shape: tuple[int, ...] | None
    present: Array | None

    def __init__(
        self,
        values: object,
        row_splits: object,
        *,
        text: bool = False,
        shape: tuple[int, ...] | None = None,
        present: object = None,
    ) -> None:
        self.values = np.asarray(values)
        if self.values.dtype != np.uint8 or self.values.ndim != 1:
            raise SchemaError(f"expected values uint8[?], got {self.values.dtype}{list(self.values.shape)}")
        self.row_splits = _checked_splits(row_splits, len(self.values))
        self.text = text
        self.shape = shape or None
        if self.strings_per_row < 1 or (len(self.row_splits) - 1) % self.strings_per_row:
            raise SchemaError(f"expected rows of shape {shape}, got {len(self.row_splits) - 1} strings")
        self.present = _checked_present(present, len(self))

    @classmethod
    def unchecked(
        cls,
        values: Array,
        row_splits: Array,
        text: bool = False,
        shape: tuple[int, ...] | None = None,
        present: Array | None = None,
    ) -> Bytes:
        """Return a column of these parts without checking them."""
        column = cls.__new__(cls)
        column.values = values
        column.row_splits = row_splits
        column.text = text
        column.shape = shape or None
        column.present = present
        return column

    @classmethod
    def from_list(cls, items: Sequence[bytes | str | None], *, text: bool | None = None) -> Bytes:
        """A column of the given strings, None where one is missing. All are bytes, or all are str."""
        present = np.array([item is not None for item in items], dtype=bool)
        if text is None:
            text = any(isinstance(item, str) for item in items)
        kind = str if text else bytes
        for index, item in enumerate(items):
            if item is not None and not isinstance(item, kind):
                raise SchemaError(f"expected {kind.__name__}, got {type(item).__name__}", f"row {index}")
        parts = [b"" if item is None else item.encode() if isinstance(item, str) else item for item in items]
        values = np.frombuffer(b"".join(parts), dtype=np.uint8)
        lengths = np.array([len(part) for part in parts], dtype=np.int64)
        return cls.unchecked(values, _splits(lengths), text, None, None if present.all() else present)

    @property
    def strings_per_row(self) -> int:
        """Number of strings in each row."""
        return math.prod(self.shape) if self.shape else 1

    @property
    def dtype(self) -> DType:
        """Always object: what `to_numpy` gives."""
        return np.dtype(object)

    def __len__(self) -> int:
        return (len(self.row_splits) - 1) // self.strings_per_row

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Bytes: ...
    def __getitem__(self, index: int | slice) -> Value:
        """One row (bytes or str, None when missing, an object array where rows have a shape), or a column of some."""
        if isinstance(index, slice):
            first, last = _bounds(index, len(self))
            splits = self.row_splits[first * self.strings_per_row : last * self.strings_per_row + 1]
            values = self.values[int(splits[0]) : int(splits[-1])]
            return Bytes.unchecked(values, splits - splits[0], self.text, self.shape, _cut(self.present, first, last))
        index = _position(index, len(self))
        if self.present is not None and not self.present[index]:
            return None
        strings = self[index : index + 1].strings(index)
        return _objects(strings).reshape(self.shape) if self.shape else strings[0]

    def __iter__(self) -> Iterator[Value]:
        return (self[index] for index in range(len(self))) if self.shape else iter(self.to_list())

    def __repr__(self) -> str:
        kind = ("str" if self.text else "bytes") + (str(list(self.shape)) if self.shape else "")
        missing = "" if self.present is None else f", {int((~self.present).sum())} missing"
        return f"Bytes({len(self)} rows of {kind}, {len(self.values)} bytes{missing})"

    def strings(self, first_row: int = 0) -> list[Value]:
        """All strings in order, those of missing rows included."""
        buffer = self.values.tobytes()
        splits = self.row_splits.tolist()
        parts = [buffer[splits[i] : splits[i + 1]] for i in range(len(splits) - 1)]
        if not self.text:
            return parts
        texts = []
        for part in parts:
            try:
                texts.append(part.decode())
            except UnicodeDecodeError:
                where = f"row {first_row + len(texts) // self.strings_per_row}"
                raise SchemaError("expected str, got bytes that are not UTF-8", where, "Read it as bytes") from None
        return texts

    def to_numpy(self) -> Array:
        """An object array [n, *shape] of bytes or str, None where a row is missing."""
        array = _objects(self.strings()).reshape(len(self), *(self.shape or ()))
        if self.present is not None:
            array[~self.present] = None
        return array

    def to_list(self) -> list[Value]:
        """bytes or str, None where a row is missing; nested lists where rows have a shape."""
        rows = self.strings() if not self.shape else self.to_numpy().tolist()
        if self.present is None:
            return rows
        return [row if there else None for row, there in zip(rows, self.present.tolist(), strict=True)]


def _splits(lengths: Array) -> Array:
    splits = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits


def _checked_splits(row_splits: object, total: int) -> Array:
    splits = np.asarray(row_splits)
    if splits.ndim != 1 or not len(splits) or splits.dtype.kind not in "iu":
        raise SchemaError(f"expected row_splits int64[n + 1], got {splits.dtype}{list(splits.shape)}")
    splits = splits.astype(np.int64, copy=False)
    if splits[0] != 0 or splits[-1] != total or (np.diff(splits) < 0).any():
        raise SchemaError(f"expected row_splits that rise from 0 to {total}, got {splits[0]} to {splits[-1]}")
    return splits


def _checked_present(present: object, rows: int) -> Array | None:
    if present is None:
        return None
    checked: Array = np.asarray(present)
    if checked.dtype != bool or checked.shape != (rows,):
        raise SchemaError(f"expected present bool[{rows}], got {checked.dtype}{list(checked.shape)}")
    return checked


def _position(index: int, rows: int) -> int:
    position = operator.index(index)
    if not -rows <= position < rows:
        raise RecordIndexError(f"row {position} is outside of a column of {rows} rows")
    return position % rows


def _bounds(rows: slice, count: int) -> tuple[int, int]:
    first, last, step = rows.indices(count)
    if step != 1:
        raise RecordIndexError(f"expected a slice of step 1, got {step}")
    return first, max(first, last)


def _cut(array: Array | None, first: int, last: int) -> Array | None:
    return None if array is None else array[first:last]


def _holds_objects(row: object) -> bool:
    return isinstance(row, np.ndarray) and row.dtype.kind in "OSU"


def _objects(items: list[Value]) -> Array:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _scatter(values: Array, shapes: Array, counts: Array, lengths: tuple[int | None, ...], value: object) -> Array:
    """Flat values to one array [rows, *largest shape, *inner]: every element is sent to its place at once."""
    if values.dtype.kind in "biu" and (value != value or np.asarray(value).astype(values.dtype) != value):
        raise SchemaError(f"expected a padding that {values.dtype.name} can hold, got {value!r}")
    given = lengths + (None,) * (shapes.shape[1] - len(lengths))
    largest = shapes.max(axis=0, initial=0).tolist()
    sizes = [size if want is None else operator.index(want) for want, size in zip(given, largest, strict=False)]
    padded = np.full((len(shapes), *sizes, *values.shape[1:]), value, dtype=values.dtype)
    rows = np.repeat(np.arange(len(shapes)), counts)
    left = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = [rows]
    inside = np.ones(len(rows), dtype=bool)
    for dimension in reversed(range(shapes.shape[1])):
        left, place = np.divmod(left, shapes[rows, dimension])
        inside &= place < sizes[dimension]
        places.insert(1, place)
    padded[tuple(place[inside] for place in places)] = values[inside]
    return padded


def gather_rows(column: Value, rows: Array) -> Value:
    """Return some rows of a column, in any order. A dict of columns gives a dict."""
    if isinstance(column, Mapping):
        return {name: gather_rows(part, rows) for name, part in column.items()}
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, list):
        return [column[row] for row in rows.tolist()]
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and (np.diff(rows) == 1).all():
        return column[int(rows[0]) : int(rows[-1]) + 1]  # consecutive rows are a view
    present = None if column.present is None else column.present[rows]
    if isinstance(column, Ragged):
        elements, splits = _elements_of(column.row_splits, rows)
        shapes = None if column.shapes is None else column.shapes[rows]
        return Ragged.unchecked(gather_rows(column.values, elements), splits, shapes, present)
    strings = (rows[:, None] * column.strings_per_row + np.arange(column.strings_per_row)).reshape(-1)
    letters, splits = _elements_of(column.row_splits, strings)
    return Bytes.unchecked(column.values[letters], splits, column.text, column.shape, present)


def _elements_of(row_splits: Array, rows: Array) -> tuple[Array, Array]:
    """Return the elements of some rows, and where each row begins and ends among them."""
    lengths = row_splits[rows + 1] - row_splits[rows]
    splits = _splits(lengths)
    return np.arange(splits[-1]) + np.repeat(row_splits[rows] - splits[:-1], lengths), splits
