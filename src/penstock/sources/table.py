"""Tables: columns that stay columns, from dicts of arrays, memory maps, pandas, Arrow and Parquet."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import CorruptionError, MissingDependencyError, SchemaError, StorageError, name_known
from ..schema.coercion import DTYPES
from ..schema.columns import Array, Bytes, Columns, ExampleDict, Ragged, Value, gather_rows
from ..schema.field import Field, image_type
from ..schema.inference import infer
from ..schema.schema import Schema
from ..storage.files import LocalCopy, bring_all, local_copies, named_by_url
from ..storage.paths import Paths, files_named
from .files import short_names, stamp_of
from .protocol import TableSource, position


class Origin:
    """Which files the rows of a table come from: `counts` rows from each, at these lines where they have lines."""

    def __init__(
        self, copies: Sequence[LocalCopy], counts: Sequence[int], lines: Sequence[Array] | None = None
    ) -> None:
        self.files = list(map(str, copies))
        self.names = short_names(self.files)
        self._known = {str(copy): copy.remote.tag for copy in copies if copy.remote is not None}
        self.starts = np.cumsum([0, *counts])
        self.lines = lines

    def file(self, row: int) -> tuple[int, int]:
        """The number of the row's file, and the row's number in it."""
        at = int(np.searchsorted(self.starts, row, side="right")) - 1
        return at, row - int(self.starts[at])

    def key(self, row: int) -> str:
        """The row's number, after the file's name where there are many."""
        if len(self.files) == 1:
            return str(row)
        at, inner = self.file(row)
        return f"{self.names[at]}:{inner}"

    def place(self, row: int) -> str:
        """The file and the line, or the row."""
        at, inner = self.file(row)
        return f"{self.files[at]}:{self.lines[at][inner]}" if self.lines else f"{self.files[at]}, row {inner}"

    def stamp(self, row: int) -> str:
        """That of the row's file."""
        return stamp_of(self.files[self.file(row)[0]], self._known)


class Table(TableSource):
    """Columns of equal length, an example in each row.

    columns  name -> ndarray, masked array, Ragged, Bytes or list
    schema   their types: a table knows them without looking at examples
    keys     the columns whose values name a row, if not its number does
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        *,
        schema: Schema | None = None,
        key: str | Sequence[str] | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.columns: Columns = {name: _as_column(name, value) for name, value in columns.items()}
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            got = ", ".join(f"{name} of {length}" for name, length in lengths.items())
            raise SchemaError(f"expected columns of equal length, got {got}")
        self._length = next(iter(lengths.values()), 0)
        self.schema: Schema = schema or Schema({name: _field(name, col) for name, col in self.columns.items()})
        self.keys = (key,) if isinstance(key, str) else tuple(key or ())
        self.origin = origin
        for name in self.keys:
            if name not in self.columns:
                raise SchemaError(f"no column {name!r}", hint=name_known(name, self.columns, "columns"))

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"Table({len(self)} rows of {', '.join(self.columns)})"

    def __getitem__(self, index: int) -> ExampleDict:
        index = position(index, len(self))
        return {name: cell(column, index) for name, column in self.columns.items()}

    def take(self, indices: object) -> Columns:
        """These rows, as columns."""
        numbers = np.asarray(indices, dtype=np.int64)
        if numbers.size and (int(numbers.min()) < 0 or int(numbers.max()) >= len(self)):
            raise SchemaError(f"expected rows of 0 to {len(self) - 1}, got {numbers.min()} to {numbers.max()}")
        return {name: gather_rows(column, numbers) for name, column in self.columns.items()}

    def key(self, index: int) -> str:
        """The values of the key's columns, or the number of the row."""
        if self.keys:
            values = [cell(self.columns[name], position(index, len(self))) for name in self.keys]
            if None in values or "" in values:
                raise SchemaError(f"expected a key in {'/'.join(self.keys)}, got nothing", self.place(index))
            return "/".join(map(str, values))
        row = position(index, len(self))
        return str(row) if self.origin is None else self.origin.key(row)

    @property
    def numbered(self) -> bool:
        """Whether each row's key is its number."""
        return not self.keys and (self.origin is None or len(self.origin.files) == 1)

    def place(self, index: int) -> str:
        """The file and line of the row, or its number."""
        row = position(index, len(self))
        return f"row {row}" if self.origin is None else self.origin.place(row)

    def stamp(self, index: int) -> str:
        """A hash of the row's values; mapped files count by their size and time of change."""
        digest = hashlib.blake2b(digest_size=12)
        for column in self.columns.values():
            if isinstance(column, np.memmap):
                digest.update(stamp_of(str(column.filename)).encode())
                continue
            value = cell(column, index)
            digest.update(value.tobytes() if isinstance(value, (np.ndarray, np.generic)) else repr(value).encode())
            digest.update(b"\0")
        return digest.hexdigest()

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        state["columns"] = {name: _Mapped.of(column) for name, column in self.columns.items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.columns = {n: c.open() if isinstance(c, _Mapped) else c for n, c in self.columns.items()}


class _Mapped:
    """A memory map as it travels between processes: by name, not by its bytes."""

    def __init__(self, array: np.memmap[Any, Any]) -> None:
        self.path = str(array.filename)
        self.dtype = array.dtype
        self.offset = array.offset
        self.shape = array.shape
        self.fortran = not array.flags.c_contiguous

    @classmethod
    def of(cls, column: Value) -> Any:
        """The column, or how to map it again."""
        whole = isinstance(column, np.memmap) and isinstance(column.base, mmap.mmap) and column.filename is not None
        return cls(column) if whole and (column.flags.c_contiguous or column.flags.f_contiguous) else column

    def open(self) -> Any:
        """The memory map, read only."""
        order: Any = "F" if self.fortran else "C"
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order)


def table(data: object, *, key: str | Sequence[str] | None = None) -> Table:
    """A table of columns: a dict of arrays, a structured array, a pandas DataFrame or an Arrow table."""
    package = type(data).__module__.partition(".")[0]
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping):
        return Table(data, key=key)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return Table({name: data[name] for name in data.dtype.names}, key=key)
    if package == "pandas" and hasattr(data, "columns"):
        return Table(_pandas_columns(data), key=key)
    if package == "pyarrow" and hasattr(data, "schema") and hasattr(data, "columns"):
        return Table(arrow_columns(data), key=key)
    hint = 'Give the array a name: {"data": array}' if isinstance(data, np.ndarray) else ""
    raise SchemaError(f"expected a dict of columns, or a table of pandas or Arrow, got {type(data).__name__}", "", hint)


def parquet(pattern: Paths, *, key: str | Sequence[str] | None = None) -> Table:
    """The rows of Parquet files that have the same columns. They are held in memory.

    Files of a store are copied to the local cache first.
    """
    copies = local_copies(files_named(pattern, (".parquet",)))
    with named_by_url(copies):
        columns, counts = read_parquet(bring_all(copies))
    return Table(columns, key=key, origin=Origin(copies, counts))


# Columns
def _as_column(name: object, value: object) -> Any:
    """A column as tables keep it: strings become Bytes, lists of numbers become arrays."""
    if not isinstance(name, str):
        raise SchemaError(f"expected columns with names, got {name!r}", hint="Rename it to a str")
    if isinstance(value, (Ragged, Bytes)):
        return value
    if isinstance(value, np.ndarray):
        if not value.ndim:
            raise SchemaError("expected a column, got a single value", name, "A column has a row for each example")
        if value.dtype.kind not in "OSU":
            return value
        value = value.tolist()
    elif isinstance(value, tuple):
        value = list(value)
    if not isinstance(value, list):
        if not hasattr(value, "__array__"):
            hint = f"Make it an array or a list; sources of splits are given as splits({name}=...)"
            raise SchemaError(f"expected a column, got {type(value).__name__}", name, hint)
        return _as_column(name, np.asarray(value))
    return _from_list(value)


def _from_list(rows: list[Value]) -> Any:
    kinds = set(map(type, rows))
    there = kinds - {type(None)}
    if there == {str} or there == {bytes}:
        return Bytes.from_list(rows)
    if there and there <= {bool, int, float}:
        array = np.asarray([0 if row is None else row for row in rows] if type(None) in kinds else rows)
        if there == {bool}:
            array = array.astype(bool)
        if array.dtype.kind in "biuf":
            missing = np.array([row is None for row in rows]) if type(None) in kinds else None
            return array if missing is None else np.ma.MaskedArray(array, missing)
    return rows


def cell(column: Value, row: int) -> Any:
    """One row of a column, None where it is missing."""
    if isinstance(column, np.ma.MaskedArray):
        return None if np.ma.getmaskarray(column)[row].any() else column.data[row]
    return column[row]


# Types
def _field(name: str, column: Value) -> Field | Schema:
    if isinstance(column, list):
        return infer([{name: row} for row in column])[name]
    if isinstance(column, np.ndarray):
        _check_dtype(name, column.dtype)
        optional = isinstance(column, np.ma.MaskedArray) and bool(np.ma.is_masked(column))
        return Field(name, column.dtype.name, column.shape[1:], optional=optional)
    optional = column.present is not None and not bool(column.present.all())
    levels, inner = 0, column
    while isinstance(inner, Ragged) and isinstance(inner.values, (Ragged, Bytes)):
        levels, inner = levels + 1, inner.values
    if isinstance(inner, Bytes):
        return Field(
            name,
            "str" if inner.text else "bytes",
            inner.shape or (),
            levels=levels,
            optional=optional,
            kind="image" if not levels and _all_images(inner) else "tensor",
        )
    _check_dtype(name, inner.dtype)
    dtype = inner.dtype.name
    if inner.shapes is not None:
        if levels:
            raise SchemaError("expected rows of one shape inside of lists, got others", name)
        return Field(name, dtype, (None,) * inner.shapes.shape[1], optional=optional)
    shape = inner.values.shape[1:]
    if levels:
        return Field(name, dtype, shape, levels=levels + 1, optional=optional)
    return Field(name, dtype, (None, *shape), optional=optional)


def _all_images(column: Bytes) -> bool:
    if column.text or column.shape or not len(column):
        return False
    there: Callable[[int], bool] = (lambda row: True) if column.present is None else column.present.__getitem__
    return all(image_type(column[row]) is not None for row in range(len(column)) if there(row))


def _check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.name not in DTYPES:
        hint = 'Store times as integers: column.astype("int64")' if dtype.kind in "mM" else "Cast it first"
        raise SchemaError(f"expected a column of {', '.join(DTYPES)}, got {dtype.name}", name, hint)


def _pandas_columns(frame: Any) -> Columns:
    """The columns of a DataFrame; its index is left out."""
    if len(set(frame.columns)) != len(frame.columns):
        raise SchemaError(f"expected each column once, got {', '.join(map(str, frame.columns))}")
    return {name: _pandas_column(frame[name]) for name in frame.columns}


def _pandas_column(series: Value) -> Any:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind not in "OSU":
        return series.to_numpy()
    missing = series.isna().to_numpy(dtype=bool)
    kind = getattr(getattr(series.dtype, "numpy_dtype", None), "kind", "")
    if kind and kind in "biuf":  # pandas' own numbers, which may be missing
        dtype = series.dtype.numpy_dtype
        values = series.to_numpy(dtype=dtype, na_value=dtype.type(0))
        return np.ma.MaskedArray(values, missing) if missing.any() else values
    rows = series.to_numpy(dtype=object).tolist()
    return [None if gap else row for row, gap in zip(rows, missing.tolist(), strict=True)]


def read_parquet(files: Sequence[str]) -> tuple[Columns, list[int]]:
    """The columns of Parquet files, and how many rows each file has."""
    try:
        import pyarrow  # type: ignore[import-not-found]
        import pyarrow.parquet  # type: ignore[import-not-found]
    except ImportError:
        raise MissingDependencyError.needed("pyarrow", "Parquet files", extra="parquet") from None
    tables: list[Value] = []
    for path in files:
        try:
            tables.append(pyarrow.parquet.ParquetFile(path).read())
        except pyarrow.ArrowInvalid as error:
            raise CorruptionError(f"expected a Parquet file, got: {_first_line(error)}", path) from None
        except OSError as error:
            raise StorageError(f"cannot read {path}: {_first_line(error)}") from None
        got, wanted = tables[-1].schema.names, tables[0].schema.names
        if sorted(got) != sorted(wanted):
            raise SchemaError(f"expected the columns {', '.join(wanted)}, got {', '.join(got)}", path)
    try:
        joined = pyarrow.concat_tables([t.select(tables[0].schema.names) for t in tables], promote_options="permissive")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise SchemaError(f"expected the same types in all files, got: {_first_line(error)}", files[0]) from None
    return arrow_columns(joined), [len(t) for t in tables]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def arrow_columns(table: Any) -> Columns:
    """The columns of an Arrow table or record batch."""
    names = table.schema.names
    if len(set(names)) != len(names):
        raise SchemaError(f"expected each column once, got {', '.join(names)}")
    return {name: _column(name, _whole(table.column(at))) for at, name in enumerate(names)}


def _whole(column: Value) -> Any:
    """One array of a column in chunks. Strings get wide offsets first, or long columns would stay in pieces."""
    import pyarrow

    if not hasattr(column, "chunks"):
        return column
    wide = {"string": pyarrow.large_string(), "binary": pyarrow.large_binary()}.get(str(column.type))
    column = column if wide is None else column.cast(wide)
    if column.num_chunks == 1:
        return column.chunk(0)
    whole = column.combine_chunks()
    return whole.chunk(0) if hasattr(whole, "chunks") else whole


def _column(name: str, array: Value) -> Any:
    """One Arrow array as an ndarray, a masked array, Ragged or Bytes."""
    import pyarrow
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind):
        return _column(name, array.dictionary_decode())
    missing = np.asarray(array.is_null()) if array.null_count else None
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        filled = array.fill_null(False if types.is_boolean(kind) else 0) if array.null_count else array
        values = filled.to_numpy(zero_copy_only=False)
        return values if missing is None else np.ma.MaskedArray(values, missing)
    if types.is_fixed_size_binary(kind):
        array, kind = array.cast(pyarrow.large_binary()), pyarrow.large_binary()
    text = types.is_string(kind) or types.is_large_string(kind)
    if text or types.is_binary(kind) or types.is_large_binary(kind):
        return _strings(array.cast(pyarrow.large_string() if text else pyarrow.large_binary()), text, missing)
    if types.is_fixed_size_list(kind):
        return _fixed_lists(name, array, missing)
    if types.is_list(kind) or types.is_large_list(kind):
        lengths = np.asarray(array.value_lengths().fill_null(0), dtype=np.int64)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(_elements(name, array), splits, present=None if missing is None else ~missing)
    hint = "Cast it to int64 first" if types.is_temporal(kind) else "Cast it, or leave the column out"
    raise SchemaError(f"expected numbers, strings or lists, got {kind}", name, hint)


def _elements(name: str, array: Value) -> Any:
    """The elements of all lists, one after the other; those of missing lists are left out."""
    flat = array.flatten()
    if flat.null_count:
        raise SchemaError("expected a value, got null inside of a list", name, "Leave it out of the list")
    return _column(name, flat)


def _fixed_lists(name: str, array: Value, missing: Array | None) -> Any:
    size = array.type.list_size
    flat = _elements(name, array)
    if not isinstance(flat, np.ndarray):
        raise SchemaError(f"expected numbers in lists of a fixed size, got {array.type}", name, "Cast it to a list")
    rows = flat.reshape(-1, size, *flat.shape[1:])
    if missing is None:
        return rows
    values = np.zeros((len(array), *rows.shape[1:]), rows.dtype)
    values[~missing] = rows
    mask = np.broadcast_to(missing.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    return np.ma.MaskedArray(values, mask)


def _strings(array: Value, text: bool, missing: Array | None) -> Bytes:
    _, offsets, data = array.buffers()
    count = len(array)
    if offsets is None or not count:
        return Bytes(np.empty(0, np.uint8), np.zeros(count + 1, np.int64), text=text)
    splits = np.frombuffer(offsets, np.int64)[array.offset : array.offset + count + 1]
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    values = values[splits[0] : splits[-1]]
    return Bytes(values, splits - splits[0], text=text, present=None if missing is None else ~missing)
