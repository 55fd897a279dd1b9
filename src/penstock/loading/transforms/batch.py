"""Columns cut into rows, put together again, and cut anew: batches whose columns are arrays, Ragged, Bytes or dicts."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ArgumentError, SchemaError, check_known
from ...schema.coercion import TEXTS
from ...schema.columns import Array, Bytes, Columns, ExampleDict, Ragged, Value, gather_rows
from ...schema.field import Field
from ...schema.schema import Schema
from ..spec import Items, Mark

ColumnMapping = Mapping[str, Value]  # a batch that is read, whatever kind of mapping it is


def count_rows(columns: ColumnMapping) -> int:
    """How many rows a batch has."""
    column = next(iter(columns.values()))
    return count_rows(column) if isinstance(column, Mapping) else len(column)


def rows_of(columns: ColumnMapping) -> list[ExampleDict]:
    """The examples of a batch."""
    return rows_from({name: values_of(column) for name, column in columns.items()})


def rows_from(values: Mapping[str, list[Value]]) -> list[ExampleDict]:
    """Examples from the values of each field."""
    names = list(values)
    return [dict(zip(names, row, strict=True)) for row in zip(*values.values(), strict=True)]


def values_of(column: Value) -> list[Value]:
    """The values of a column's rows; None where one is missing."""
    if isinstance(column, Mapping):
        return rows_of(column)
    if isinstance(column, np.ma.MaskedArray):
        missing: list[bool] = np.asarray(np.ma.getmaskarray(column).reshape(len(column), -1).any(axis=1)).tolist()
        return [None if gone else value for value, gone in zip(column.data, missing, strict=True)]
    return list(column)


def cut(columns: ColumnMapping, first: int, last: int) -> Columns:
    """Some rows that follow each other, without a copy."""
    return {
        name: cut(column, first, last) if isinstance(column, Mapping) else column[first:last]
        for name, column in columns.items()
    }


def join(parts: Sequence[ColumnMapping]) -> Columns:
    """Batches one after the other, as one."""
    return dict(parts[0]) if len(parts) == 1 else {name: _join([part[name] for part in parts]) for name in parts[0]}


def gather(columns: ColumnMapping, rows: Array) -> Columns:
    """Some rows, in any order."""
    return {name: gather_rows(column, rows) for name, column in columns.items()}


def _join(parts: list[Value]) -> Value:
    first = parts[0]
    if isinstance(first, Mapping):
        return join(parts)
    if isinstance(first, (Ragged, Bytes)):
        values = _join([part.values for part in parts])
        ends = np.cumsum([0, *(part.row_splits[-1] for part in parts)])
        splits = [part.row_splits[1:] + end for part, end in zip(parts, ends, strict=False)]
        row_splits = np.concatenate([first.row_splits[:1], *splits])
        present = None
        if any(part.present is not None for part in parts):
            present = np.concatenate([np.ones(len(p), bool) if p.present is None else p.present for p in parts])
        if isinstance(first, Bytes):
            return Bytes.unchecked(values, row_splits, first.text, first.shape, present)
        shapes = None if first.shapes is None else np.concatenate([part.shapes for part in parts])
        return Ragged.unchecked(values, row_splits, shapes, present)
    if isinstance(first, np.ma.MaskedArray):
        return np.ma.MaskedArray(
            np.concatenate([part.data for part in parts]), np.concatenate([np.ma.getmaskarray(part) for part in parts])
        )
    return np.concatenate(parts)


class Marks(Sequence[Mark]):
    """The marks of examples as they were read: each is one position further."""

    def __init__(self, positions: Value, slots: Mark) -> None:
        self.positions = positions
        self.slots = slots

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: object) -> Value:
        if isinstance(index, slice):
            return Marks(self.positions[index], self.slots)
        return (int(self.positions[index]) + 1, *self.slots)


@dataclass(frozen=True)
class Chunk:
    """Some examples as columns, with the mark of each."""

    columns: Mapping[str, Value]
    marks: Sequence[Mark]

    def __len__(self) -> int:
        return len(self.marks)

    def items(self) -> list[tuple[Value, Mark]]:
        """The examples one by one."""
        return list(zip(rows_of(self.columns), self.marks, strict=True))

    def rows(self) -> list[Value]:
        """The examples without their marks."""
        return rows_of(self.columns)

    def pick(self, rows: Array) -> Mapping[str, Value]:
        """Some of the examples, as a part of a batch."""
        return gather(self.columns, rows)


@dataclass(frozen=True)
class RowChunk:
    """Some examples that Python has made, with the mark of each."""

    examples: Sequence[Value]
    marks: Sequence[Mark]

    def __len__(self) -> int:
        return len(self.marks)

    def rows(self) -> Sequence[Value]:
        """The examples."""
        return self.examples

    def pick(self, rows: Array) -> list[Value]:
        """Some of the examples, as a part of a batch."""
        return [self.examples[row] for row in rows.tolist()]


def batch_of(parts: Sequence[Value], schema: Mapping[str, Value], shaped: Collection[str], pad: object) -> Value:
    """A batch of parts that chunks gave."""
    if isinstance(parts[0], Mapping):
        columns = join(parts)
    else:
        columns = collate([row for part in parts for row in part], schema, shaped, pad)
    return columns if pad is None else padded(columns, pad)


def grouped(items: Items, size: int) -> Iterator[RowChunk]:
    """Items, some at a time."""
    examples: list[Value] = []
    marks: list[Mark] = []
    for example, mark in items:
        examples.append(example)
        marks.append(mark)
        if len(marks) == size:
            yield RowChunk(examples, marks)
            examples, marks = [], []
    if marks:
        yield RowChunk(examples, marks)


def rebatched(chunks: Iterator[Chunk], size: int, drop_remainder: bool, pad: object) -> Items:
    """Chunks of any size as batches of one size: columns are cut and joined, no row is touched."""
    parts: list[Mapping[str, Value]] = []
    held = 0
    last: Mark = ()
    for chunk in chunks:
        first, rows = 0, count_rows(chunk.columns)
        while held + rows - first >= size:
            end = first + size - held
            parts.append(chunk.columns if (first, end) == (0, rows) else cut(chunk.columns, first, end))
            yield _finished(parts, pad), chunk.marks[end - 1]
            parts, held, first = [], 0, end
        if first < rows:
            parts.append(cut(chunk.columns, first, rows) if first else chunk.columns)
            held += rows - first
            last = chunk.marks[rows - 1]
    if held and not drop_remainder:
        yield _finished(parts, pad), last


def _finished(parts: Sequence[Mapping[str, Value]], pad: object) -> Value:
    columns = join(parts)
    return columns if pad is None else padded(columns, pad)


def positions_without(first: int, last: int, gone: Collection[int]) -> Value:
    """Positions in order, but for some."""
    if not gone:
        return range(first, last)
    kept = np.arange(first, last)
    return kept[~np.isin(kept, list(gone))]


MOST_SHAPES = 5  # that a message names


def collate_kept(
    rows: Sequence[Value],
    columns: Mapping[str, Value],
    values: Mapping[str, list[Value]],
    schema: Mapping[str, Value],
    pad: object,
) -> Value:
    """A batch of examples that maps have made out of columns, and of the values that these had row by row.

    A field whose values are all the very ones that were handed out keeps its column: its rows are views of it, so it
    also has what was changed in place.
    """
    if not all(isinstance(row, dict) for row in rows):
        return collate(rows, schema, (), pad)
    names = [name for name in rows[0] if name in columns]
    kept = [name for name in names if all(map(operator.is_, [row.get(name) for row in rows], values[name]))]
    rest = [{name: value for name, value in row.items() if name not in kept} for row in rows] if kept else rows
    made = collate(rest, schema, (), pad) if any(rest) else {}
    return {name: columns[name] if name in kept else made[name] for name in rows[0]}


def collate(
    rows: Sequence[Value], schema: Mapping[str, Value], shaped: Collection[str] = (), pad: object = None
) -> Value:
    """A batch of examples: dicts become a dict of columns, tuples a tuple of them.

    A field of the schema keeps its kind of column for as long as its values fit it. Those named in `shaped` came with
    a shape for each row, and no map touched them: they stay so. Other arrays must be equal in shape, or be padded.
    """
    if isinstance(rows[0], Mapping):
        return _dict(rows, schema, "", shaped, pad)
    return _column(rows, None, "", shaped, pad)


def _dict(
    rows: Sequence[Value], schema: Mapping[str, Value], where: str, shaped: Collection[str], pad: object
) -> Columns:
    names = rows[0].keys()
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or row.keys() != names:
            got = list(row) if isinstance(row, Mapping) else type(row).__name__
            raise SchemaError(
                f"expected the fields {list(names)}, as in the first example of the batch, got {got}",
                f"example {number} of the batch" + (f", {where}" if where else ""),
                "Let the map return the same fields for every example",
            )
    columns = {}
    for name in names:
        path = f"{where}/{name}" if where else name
        columns[name] = _column([row[name] for row in rows], schema.get(name), path, shaped, pad)
    return columns


def _column(values: Sequence[Value], node: object, where: str, shaped: Collection[str], pad: object) -> Value:
    first = next((value for value in values if value is not None), None)
    if isinstance(first, Mapping):
        inner = {leaf.name: leaf for leaf in node.leaves()} if isinstance(node, Schema) and node.sequence else node
        inner = inner if isinstance(inner, Mapping) else {}
        return _dict(values, inner, where, shaped, pad)
    if isinstance(first, tuple):
        if any(not isinstance(value, tuple) or len(value) != len(first) for value in values):
            raise SchemaError(f"expected tuples of {len(first)} values from each example, got others", where)
        parts = enumerate(zip(*values, strict=True))
        return tuple(_column(items, None, f"{where}[{at}]", shaped, pad) for at, items in parts)
    if where.split("/")[0] in shaped and isinstance(first, np.ndarray):
        return ragged(values, first.ndim, first.dtype, shapes=True)
    if isinstance(node, Field):
        column = _known(values, node)
        if column is not None:
            return column
    return _new(values, first, where, pad)


# Fields of the schema
def _known(values: Sequence[Value], field: Field) -> Value:
    """The column of a field, or None where a map has made something else of it."""
    unknown = field.shape.count(None)
    text = field.dtype == "str"
    if field.dtype in TEXTS and not field.levels and not unknown:
        kind = str if text else bytes
        if not field.shape and all(value is None or isinstance(value, kind) for value in values):
            return Bytes.from_list(list(values), text=text)
        return _strings(values, field, kind) if field.shape else None
    if not field.levels and not unknown:
        return _fixed(values, field)
    if unknown > 1:
        return None
    try:
        if field.levels > 1 or field.dtype in TEXTS:
            return Ragged.from_rows(list(values), None if field.dtype in TEXTS else field.numpy_dtype)
        rows = [None if value is None else np.asarray(value) for value in values]
        shaped = [row for row in rows if row is not None]
        dimensions = field.levels + len(field.shape)
        if any(row.ndim != dimensions or row.dtype.kind != shaped[0].dtype.kind for row in shaped):
            return None
        dtype = field.numpy_dtype if not shaped or shaped[0].dtype == field.numpy_dtype else None
        leading = bool(field.levels) or field.shape[0] is None
        return ragged(rows, dimensions, dtype, shapes=not leading)
    except (ValueError, TypeError):
        return None


def _fixed(values: Sequence[Value], field: Field) -> Value:
    """Numbers of one shape, masked where they may be missing."""
    sizes = tuple(size for size in field.shape if size is not None)
    masked = field.optional and field.default is None
    missing = np.array([value is None for value in values], dtype=bool)
    if missing.any() and not masked:
        return None
    arrays = [np.zeros(sizes, field.numpy_dtype) if value is None else np.asarray(value) for value in values]
    if {array.shape for array in arrays} != {sizes}:
        return None
    column = _stacked(arrays)
    if not masked:
        return column
    return np.ma.MaskedArray(column, np.broadcast_to(missing.reshape(-1, *(1 for _ in sizes)), column.shape))


def _stacked(arrays: Sequence[Array]) -> Array:
    """Arrays of one shape as one: quicker than np.stack, which looks at each of them twice."""
    if not arrays[0].ndim:
        return np.array(arrays)
    return np.concatenate(arrays).reshape(len(arrays), *arrays[0].shape)


def _strings(values: Sequence[Value], field: Field, kind: type) -> Value:
    sizes = tuple(size for size in field.shape if size is not None)
    count = int(np.prod(sizes))
    items: list[Value] = []
    for value in values:
        row = [kind()] * count if value is None else np.asarray(value, dtype=object).reshape(-1).tolist()
        if len(row) != count or not all(isinstance(item, kind) for item in row):
            return None
        items += row
    flat = Bytes.from_list(items, text=kind is str)
    present = np.array([value is not None for value in values])
    return Bytes.unchecked(flat.values, flat.row_splits, flat.text, sizes, None if present.all() else present)


def ragged(rows: Sequence[Array | None], dimensions: int, dtype: Value, *, shapes: bool) -> Ragged:
    """Rows of these dimensions; with `shapes`, each has a shape of its own and the values are flat."""
    present = np.array([row is not None for row in rows], dtype=bool)
    filled = [row for row in rows if row is not None]
    if not shapes and len({row.shape[1:] for row in filled}) > 1:
        raise ValueError("rows that differ in more than their length")
    parts = [row.reshape(-1) if shapes else row for row in filled]
    lengths = np.array([0 if row is None else row.size if shapes else len(row) for row in rows], dtype=np.int64)
    splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    values = np.concatenate(parts) if parts else np.empty(0, dtype)
    given = None
    if shapes:
        given = np.zeros((len(rows), dimensions), np.int64)
        given[present] = [row.shape for row in filled]
    values = values if dtype is None else values.astype(dtype, copy=False)
    return Ragged.unchecked(values, splits, given, None if present.all() else present)


# Fields that a map made
def _new(values: Sequence[Value], first: object, where: str, pad: object) -> Value:
    if first is None or any(value is None for value in values):
        number = next(at for at, value in enumerate(values) if value is None)
        raise SchemaError(
            "expected a value, got None",
            f"{where}, example {number} of the batch",
            "Give it a value in the map, or leave the field out",
        )
    if isinstance(first, (str, bytes)):
        return Bytes.from_list(list(values))
    if isinstance(first, list) and first and isinstance(first[0], (str, bytes)):
        return Ragged.from_rows(list(values))
    if isinstance(first, (Ragged, Bytes)):
        raise SchemaError(f"expected a value of one example, got {type(first).__name__}", where)
    arrays = [np.asarray(value) for value in values]
    if arrays[0].dtype == object and not isinstance(first, np.ndarray):
        raise SchemaError(
            f"expected a number, str, bytes, array, list, tuple or dict, got {type(first).__name__}",
            where,
            "Convert it in the map",
        )
    found = list(dict.fromkeys(array.shape for array in arrays))
    if len(found) == 1:
        return _stacked(arrays)
    if pad is not None and len({len(shape) for shape in found}) == 1:
        return ragged(arrays, len(found[0]), None, shapes=True)
    shown = ", ".join(str(list(shape)) for shape in found[:MOST_SHAPES]) + (" ..." if len(found) > MOST_SHAPES else "")
    raise SchemaError(
        f"expected one shape in a batch, got {shown}",
        where,
        "Make them equal in the map, or pad them: batch(..., pad=0)",
    )


# Padding
def padded(columns: object, pad: object, where: str = "") -> Value:
    """Ragged columns as arrays. `pad` is a value for all, or one for each field: {"tokens": 0, "mask": (0, 512)}."""
    if not isinstance(columns, Mapping):
        return columns
    if isinstance(pad, Mapping) and not where:
        check_known(pad, _names(columns), "field", "pad")
    done: Columns = {}
    for name, column in columns.items():
        path = f"{where}/{name}" if where else name
        if isinstance(column, Mapping):
            done[name] = padded(column, pad, path)
            continue
        wanted = pad.get(path) if isinstance(pad, Mapping) else pad
        if wanted is None or not isinstance(column, Ragged):
            done[name] = column
            continue
        value, length = wanted if isinstance(wanted, tuple) else (wanted, None)
        try:
            done[name] = column.to_padded(length, value)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"expected a number to pad with, got {value!r}: {error}", path) from None
    return done


def _names(columns: Mapping[str, Value], where: str = "") -> Iterator[str]:
    """The names of columns, those in dicts by their paths."""
    for name, column in columns.items():
        path = f"{where}/{name}" if where else name
        yield from _names(column, path) if isinstance(column, Mapping) else (path,)
