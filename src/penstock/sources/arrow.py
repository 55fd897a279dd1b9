"""Arrow's columns as ours. The one place that knows pyarrow, which is optional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..columns import Array, Bytes, Ragged
from ..errors import CorruptionError, MissingDependencyError, SchemaError, StorageError


def read_parquet(files: Sequence[str]) -> tuple[dict[str, Any], list[int]]:
    """The columns of Parquet files, and how many rows each file has."""
    try:
        import pyarrow  # type: ignore[import-not-found]
        import pyarrow.parquet  # type: ignore[import-not-found]
    except ImportError:
        raise MissingDependencyError.needed("pyarrow", "Parquet files", extra="parquet") from None
    tables: list[Any] = []
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


def arrow_columns(table: Any) -> dict[str, Any]:
    """The columns of an Arrow table or record batch."""
    names = table.schema.names
    if len(set(names)) != len(names):
        raise SchemaError(f"expected each column once, got {', '.join(names)}")
    return {name: _column(name, _whole(table.column(at))) for at, name in enumerate(names)}


def _whole(column: Any) -> Any:
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


def _column(name: str, array: Any) -> Any:
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


def _elements(name: str, array: Any) -> Any:
    """The elements of all lists, one after the other; those of missing lists are left out."""
    flat = array.flatten()
    if flat.null_count:
        raise SchemaError("expected a value, got null inside of a list", name, "Leave it out of the list")
    return _column(name, flat)


def _fixed_lists(name: str, array: Any, missing: Array | None) -> Any:
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


def _strings(array: Any, text: bool, missing: Array | None) -> Bytes:
    _, offsets, data = array.buffers()
    count = len(array)
    if offsets is None or not count:
        return Bytes(np.empty(0, np.uint8), np.zeros(count + 1, np.int64), text=text)
    splits = np.frombuffer(offsets, np.int64)[array.offset : array.offset + count + 1]
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    values = values[splits[0] : splits[-1]]
    return Bytes(values, splits - splits[0], text=text, present=None if missing is None else ~missing)
