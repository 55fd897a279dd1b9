"""What layouts are made of: the columns that the core's plan takes, and the parts that a batch of one comes in.

A column goes to the core as (values, value_splits, row_splits, present), each None where it has no meaning. It comes
back as such parts, or as one array where there is nothing but that.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from .._core import ImageFiles
from ..errors import SchemaError
from ..schema.coercion import MAX_ELEMENTS, TEXTS
from ..schema.columns import Array, Bytes, Columns, DType, Ragged, Value
from ..schema.field import Field

Parts: TypeAlias = "tuple[Value, Array | None, Array | None, Array | None]"
INT64 = np.dtype(np.int64)
UINT8 = np.dtype(np.uint8)


class Column(NamedTuple):
    """A column as the core's plan takes it. Rows differ in length where `shape` is None."""

    key: str
    dtype: str
    numpy_dtype: DType
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

    def batch(self, raw: Mapping[str, Value]) -> Value:
        """The field's column from what the core decoded."""
        raise NotImplementedError

    def record_values(self, exact: object) -> Columns:
        """What each column holds of a value, which is one that Field.coerce gave."""
        raise NotImplementedError

    def parts(self, column: Value, rows: int) -> list[Parts]:
        """A column of `rows` rows as the core takes it. This one takes any rows; layouts know quicker ways for some."""
        exact = [self.field.coerce(row, f"{self.name}[{number}]") for number, row in enumerate(column)]
        return self.gather(exact)

    def chosen(self, column: object, rows: Array) -> Parts | None:
        """The whole column as it lies in memory, but which of these rows are there; None where that will not do."""
        return None

    def gather(self, exact: Iterable[Value]) -> list[Parts]:
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

    def cast(self, values: Value, shape: tuple[int | None, ...]) -> Array:
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


def gathered(column: Column, values: list[Value]) -> Parts:
    """One column's values, row by row, as parts; a row that is missing counts as zeros."""
    there = np.array([value is not None for value in values], bool)
    present = None if there.all() else there
    if column.dtype == "bytes":
        nothing = [b""] * prod(column.shape or ()) if column.shape is not None else []
        rows = [nothing if v is None else [v] if isinstance(v, bytes) else v for v in values]
        flat: Value = [string for row in rows for string in row]
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


def layout(field: Field) -> Layout:
    """The layout of a field."""
    if field.levels > 1:
        return Nested(field)
    if field.levels:
        return Rows(field) if field.encoding == "none" else EncodedList(field)
    unknown = field.shape.count(None)
    if unknown:
        return Rows(field) if unknown == 1 else Shaped(field)
    return Strings(field) if field.dtype in TEXTS else Fixed(field)


class Fixed(Layout):
    """Numbers of one shape: a plain array, a masked one where rows may be missing."""

    direct_example = True

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.direct_batch = not field.optional or field.default is not None

    def columns(self) -> list[Column]:
        return [self.column(list(self.inner), self.default_bytes())]

    def batch(self, raw: Mapping[str, Value]) -> Value:
        if self.direct_batch:
            return raw[self.key]
        values, _, _, present = raw[self.key]
        return np.ma.MaskedArray(values, np.broadcast_to(~present.reshape(-1, *(1 for _ in self.inner)), values.shape))

    def parts(self, column: object, rows: int) -> list[Parts]:
        present = None
        if self.field.optional:
            if isinstance(column, np.ma.MaskedArray):
                present, column = self._present(column), column.data
            elif not isinstance(column, np.ndarray) or column.dtype == object:
                return super().parts(column, rows)  # any of the rows may be None
        if not isinstance(column, np.ndarray) or isinstance(column, np.ma.MaskedArray) or column.dtype == object:
            whole = replace(self.field, shape=(rows, *self.inner), optional=False, default=None, encoding="auto")
            column = whole.coerce(column, self.name)
        return [(self.cast(column, (rows, *self.inner)), None, None, present)]

    def chosen(self, column: Value, rows: Array) -> Parts | None:
        present = None
        if self.field.optional and isinstance(column, np.ma.MaskedArray) and column.ndim == 1:
            mask: Value = np.ma.getmask(column)
            column = column.data
            present = None if mask is np.ma.nomask else ~mask[rows]
        plain = isinstance(column, np.ndarray) and not isinstance(column, np.ma.MaskedArray)
        if not plain or column.dtype != self.field.numpy_dtype or not column.flags.c_contiguous:
            return None
        fits = column.shape[1:] == self.inner and self.field.classes is None
        return (column, None, None, present) if fits else None

    def _present(self, column: np.ma.MaskedArray[Value, Value]) -> Array | None:
        mask = np.ma.getmaskarray(column).reshape(len(column), -1)
        missing = np.asarray(mask.all(axis=1) & bool(mask.shape[1]))
        if (mask.any(axis=1) != missing).any():
            raise SchemaError("expected rows that are there or missing as a whole, got a mask within a row", self.name)
        return ~missing if missing.any() else None

    def record_values(self, exact: object) -> Columns:
        return {self.key: exact}


class Strings(Layout):
    """Byte strings or texts, one to a row or a fixed number of them: Bytes."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.refuse_nothing()
        self.direct_example = not self.inner

    def columns(self) -> list[Column]:
        default = self.field.default
        single = None if default is None or self.inner else default.encode() if self.text else default
        return [self.column(list(self.inner), single)]

    def batch(self, raw: Mapping[str, Value]) -> Value:
        values, value_splits, _, present = raw[self.key]
        column = Bytes.unchecked(values, value_splits, self.text, self.inner, present)
        if self.field.default is None or not self.inner:
            return column
        strings = _strings_or(column, self.field.default, self.text)
        return Bytes.unchecked(strings.values, strings.row_splits, self.text, self.inner)

    def parts(self, column: object, rows: int) -> list[Parts]:
        if isinstance(column, Bytes):
            if column.text != self.text or (column.shape or ()) != self.inner:
                raise self.wrong(f"{column}")
            return [(*_string_parts(column), None, column.present)]
        if isinstance(column, ImageFiles) and not self.inner and not self.text:
            return [(column, None, None, None)]
        if type(column) is list and not self.inner and not self.text and all(type(item) is bytes for item in column):
            return [(column, None, None, None)]
        return super().parts(column, rows)

    def chosen(self, column: object, rows: Array) -> Parts | None:
        if not isinstance(column, Bytes) or column.text != self.text or self.inner or column.shape:
            return None
        values, splits = column.values, column.row_splits
        if not values.flags.c_contiguous or not splits.flags.c_contiguous:
            return None
        return values, splits, None, None if column.present is None else column.present[rows]

    def record_values(self, exact: Value) -> Columns:
        return {self.key: exact.reshape(-1).tolist() if self.inner else exact}


class Pixels(Strings):
    """Images that the core decodes: one array where all have one size, masked where some are missing."""

    direct_batch = False

    def batch(self, raw: Mapping[str, Value]) -> Value:
        decoded = raw[self.key]
        if isinstance(decoded, np.ndarray):
            return decoded
        values, shapes, row_splits, present = decoded
        if row_splits is not None:
            return Ragged.unchecked(values, row_splits, shapes, present)
        return np.ma.MaskedArray(values, np.broadcast_to(~present[:, None, None, None], values.shape))


class RaggedLayout(Layout):
    """A layout of rows that are cut out of all elements."""

    def parts(self, column: object, rows: int) -> list[Parts]:
        if not isinstance(column, Ragged):
            return super().parts(column, rows)
        return [(*self.elements(column), column.present)]

    def elements(self, column: Ragged) -> tuple[Value, Array | None, Array]:
        """The elements of all rows, where each string begins and ends if they are such, and where each row does."""
        raise NotImplementedError


class Rows(RaggedLayout):
    """One unknown dimension, or one list: Ragged, of numbers or of Bytes."""

    def __init__(self, field: Field, key: str | None = None) -> None:
        super().__init__(field)
        self.refuse_nothing()
        self.key = key or self.key
        self.strings = field.dtype in TEXTS
        self.shape = (None,) * field.levels + field.shape
        #: The unknown dimension is the first: rows are cut out of values of the inner shape.
        self.leading = self.shape[0] is None
        self.direct_example = len(self.shape) == 1 and not (self.strings and field.default is not None)

    def columns(self) -> list[Column]:
        return [self.column(None, None if self.strings else self.default_bytes())]

    def batch(self, raw: Mapping[str, Value]) -> Value:
        values, row_splits, present = self.flat(raw)
        if self.field.default is not None and self.strings and not present.all():
            column = self.rows(values, row_splits, present)
            values = _strings_or(column, self.field.default, self.text)
            lengths = np.where(present, np.diff(row_splits), np.size(self.field.default))
            row_splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return self.rows(values, row_splits, None if self.field.default is not None else present)

    def flat(self, raw: Mapping[str, Value]) -> tuple[Value, Array, Value]:
        """All elements, where each record's begin and end, and which records have some."""
        values, value_splits, row_splits, present = raw[self.key]
        return Bytes.unchecked(values, value_splits, self.text) if self.strings else values, row_splits, present

    def rows(self, values: Value, splits: Array, present: Array | None) -> Ragged:
        """The elements cut into rows."""
        if len(self.shape) == 1:
            return Ragged.unchecked(values, splits, None, present)
        lengths = np.diff(splits)
        wrong = np.flatnonzero(lengths % self.size)
        if len(wrong):
            raise self.wrong(f"{lengths[wrong[0]]} values", int(wrong[0]))
        if self.leading and not self.strings:
            return Ragged.unchecked(values.reshape(-1, *self.inner), splits // self.size, None, present)
        unknown = lengths // self.size
        sizes = [unknown if size is None else np.full_like(unknown, size) for size in self.shape]
        return Ragged.unchecked(values, splits, np.stack(sizes, axis=1), present)

    def elements(self, column: Ragged) -> tuple[Value, Array | None, Array]:
        values = column.values
        if isinstance(values, Ragged) or isinstance(values, Bytes) != self.strings:
            raise self.wrong(f"{column}")
        shapes, splits = _row_shapes(column)
        check_shapes(self, shapes, self.shape, column.present)
        if not isinstance(values, Bytes):
            return self.cast(values, values.shape).reshape(-1), None, np.ascontiguousarray(splits)
        if values.text != self.text or values.present is not None:
            raise self.wrong(f"{values}")
        return (*_string_parts(values), np.ascontiguousarray(splits))

    def record_values(self, exact: Value) -> Columns:
        flat = exact.reshape(-1)
        return {self.key: flat.tolist() if self.strings else flat}

    def lengths(self, parts: list[Parts]) -> list[Array]:
        splits = parts[0][2]
        return [np.diff(splits) // self.size] if self.field.levels and splits is not None else []


class EncodedList(RaggedLayout):
    """A list of arrays, each in a byte string of its own: Ragged."""

    def __init__(self, field: Field, key: str | None = None) -> None:
        super().__init__(field)
        self.key = key or self.key
        dtype = field.numpy_dtype
        assert dtype is not None
        self.dtype = dtype
        self.element_bytes = self.size * dtype.itemsize

    def columns(self) -> list[Column]:
        return [Column(self.key, "bytes", UINT8, optional=self.field.optional)]

    def batch(self, raw: Mapping[str, Value]) -> Value:
        return self.rows(*self.flat(raw))

    def flat(self, raw: Mapping[str, Value]) -> tuple[Array, Array, Array | None]:
        """All elements, where each record's begin and end, and which records have some."""
        values, value_splits, row_splits, present = raw[self.key]
        strings = Bytes.unchecked(values, value_splits)
        row_of = np.repeat(np.arange(len(row_splits) - 1), np.diff(row_splits))
        data = b"".join(self._decoded(string, int(row)) for string, row in zip(strings, row_of, strict=True))
        return np.frombuffer(bytearray(data), self.dtype).reshape(len(strings), *self.inner), row_splits, present

    def rows(self, values: Array, splits: Array, present: Array | None) -> Ragged:
        """The elements cut into rows."""
        return Ragged.unchecked(values, splits, None, present)

    def _decoded(self, data: bytes, row: int) -> bytes:
        if self.field.encoding == "zlib":
            stream = zlib.decompressobj()
            try:
                data = stream.decompress(data, self.element_bytes + 1)  # one more than there may be
            except zlib.error:
                raise self.wrong("bytes that are not zlib", row) from None
            if not stream.eof:
                raise self.wrong(f"zlib bytes that are cut off, or of more than {self.element_bytes} bytes", row)
        if len(data) != self.element_bytes:
            raise self.wrong(f"{len(data)} bytes for an element of {self.element_bytes}", row)
        return data

    def elements(self, column: Ragged) -> tuple[Value, Array | None, Array]:
        values = column.values
        if not isinstance(values, np.ndarray):
            raise self.wrong(f"{column}")
        shapes, _ = _row_shapes(column)
        check_shapes(self, shapes, (None, *self.inner), column.present)
        splits = np.concatenate([[0], np.cumsum(shapes[:, 0])])
        return self._encoded(self.cast(values, values.shape).reshape(splits[-1], *self.inner)), None, splits

    def record_values(self, exact: Value) -> Columns:
        return {self.key: self._encoded(exact)}

    def _encoded(self, elements: Array) -> list[bytes]:
        strings = [element.tobytes() for element in elements]
        return [zlib.compress(string) for string in strings] if self.field.encoding == "zlib" else strings

    def lengths(self, parts: list[Parts]) -> list[Array]:
        splits = parts[0][2]
        assert splits is not None
        return [np.diff(splits)]


class Shaped(Layout):
    """Two or more unknown dimensions: Ragged with a shape for each row."""

    def columns(self) -> list[Column]:
        field = self.field
        default = None if field.default is None else np.array(field.coerce(field.default).shape, np.int64).tobytes()
        shape = Column(field.record_keys[1], "int64", INT64, "none", [len(field.shape)], False, field.optional, default)
        return [self.column(None, self.default_bytes()), shape]

    def batch(self, raw: Mapping[str, Value]) -> Value:
        values, _, row_splits, present = raw[self.key]
        given = raw[self.field.record_keys[1]]
        shapes = given[0] if isinstance(given, tuple) else given
        if present is not None:
            shapes = np.where(present[:, None], shapes, 0)
        check_shapes(self, shapes, self.field.shape, present, np.diff(row_splits))
        return Ragged.unchecked(values, row_splits, shapes, present)

    def parts(self, column: object, rows: int) -> list[Parts]:
        if not isinstance(column, Ragged):
            return super().parts(column, rows)
        values = column.values
        if not isinstance(values, np.ndarray):
            raise self.wrong(f"{column}")
        shapes, splits = _row_shapes(column)
        check_shapes(self, shapes, self.field.shape, column.present)
        flat = self.cast(values, values.shape).reshape(-1)
        shape_parts = (np.ascontiguousarray(shapes), None, None, column.present)
        return [(flat, None, np.ascontiguousarray(splits), column.present), shape_parts]

    def record_values(self, exact: Value) -> Columns:
        return {self.key: exact.reshape(-1), self.field.record_keys[1]: np.array(exact.shape, np.int64)}


class Nested(Layout):
    """Lists of lists: Ragged of Ragged. The innermost rows lie in one column, each level's lengths in another."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        innermost = replace(field, levels=1)
        self.rows = Rows(innermost, self.key) if field.encoding == "none" else EncodedList(innermost, self.key)
        self.length_keys = field.record_keys[1:]

    def columns(self) -> list[Column]:
        lengths = [Column(key, "int64", INT64, optional=self.field.optional) for key in self.length_keys]
        return [*self.rows.columns(), *lengths]

    def batch(self, raw: Mapping[str, Value]) -> Value:
        values, record_splits, present = self.rows.flat(raw)
        levels = []
        for key in self.length_keys:
            lengths, _, outer, _ = raw[key]
            levels.append((lengths, outer))
        size = self.size if isinstance(self.rows, Rows) else 1  # an encoded element is one string
        # Each level's lengths, added up within a record, must come to what the level below it has there.
        below = record_splits
        column: Value = None
        for number, (lengths, outer) in reversed(list(enumerate(levels))):
            innermost = number == len(levels) - 1
            splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths * size if innermost else lengths)])
            wrong = splits[outer] != below
            if (lengths < 0).any() or wrong.any():
                row = int(np.argmax(wrong)) - 1 if wrong.any() else 0
                raise self.wrong("row lengths that do not add up", max(row, 0))
            column = self.rows.rows(values, splits, None) if innermost else Ragged.unchecked(column, splits)
            below = outer
        return Ragged.unchecked(column, below, None, present)

    def parts(self, column: object, rows: int) -> list[Parts]:
        if not isinstance(column, Ragged):
            return super().parts(column, rows)
        lengths: list[Parts] = []
        below: Value = column
        splits = np.arange(rows + 1)
        for _ in self.length_keys:
            outer = below.row_splits[splits]
            below = below.values
            if not isinstance(below, Ragged) or below.present is not None:
                raise self.wrong(f"{column}")
            rows_below = below.row_lengths() if below.shapes is None else np.ascontiguousarray(below.shapes[:, 0])
            lengths.append((rows_below, None, np.ascontiguousarray(outer), column.present))
            splits = outer
        values, value_splits, elements = self.rows.elements(below)
        return [(values, value_splits, np.ascontiguousarray(elements[splits]), column.present), *lengths]

    def record_values(self, exact: Value) -> Columns:
        values: Columns = {}
        for key in self.length_keys[:-1]:
            values[key] = np.array([len(row) for row in exact], np.int64)
            exact = [inner for row in exact for inner in row]
        values[self.length_keys[-1]] = np.array([len(row) for row in exact], np.int64)
        dtype = object if self.field.dtype in TEXTS else self.field.numpy_dtype
        joined = np.concatenate(exact) if exact else np.empty((0, *self.inner), dtype)
        return self.rows.record_values(joined) | values

    def lengths(self, parts: list[Parts]) -> list[Array]:
        outermost = parts[1][2]
        assert outermost is not None
        return [np.diff(outermost), *(values for values, _, _, _ in parts[1:])]


def _row_shapes(column: Ragged) -> tuple[Array, Array]:
    """The shape of each row, and where each begins and ends among all elements."""
    if column.shapes is not None:
        return column.shapes, column.row_splits
    values, lengths = column.values, column.row_lengths()
    inner = values.shape[1:] if isinstance(values, np.ndarray) else getattr(values, "shape", None) or ()
    shapes = np.stack([lengths, *(np.full_like(lengths, size) for size in inner)], axis=1)
    return shapes, column.row_splits * prod(inner)


def _string_parts(column: Bytes) -> tuple[Array, Array]:
    if column.text and len(column.values) and column.values.max() > 127:
        column.strings()  # says which one is not UTF-8
    return np.ascontiguousarray(column.values), np.ascontiguousarray(column.row_splits)


def _strings_or(column: Iterable[Value], default: object, text: bool) -> Bytes:
    """The strings of all rows, the default's in place of a row that is missing."""
    flat: list[Value] = []
    for row in column:
        flat += np.array(default if row is None else row, dtype=object).reshape(-1).tolist()
    return Bytes.from_list(flat, text=text)
