"""Columns cut into rows, put together again, and cut anew: batches whose columns are arrays, Ragged, Bytes or dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..columns import Array, Bytes, Ragged

Columns = Mapping[str, Any]


def count_rows(columns: Columns) -> int:
    """How many rows a batch has."""
    column = next(iter(columns.values()))
    return count_rows(column) if isinstance(column, Mapping) else len(column)


def rows_of(columns: Columns) -> list[dict[str, Any]]:
    """The examples of a batch."""
    return rows_from({name: values_of(column) for name, column in columns.items()})


def rows_from(values: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Examples from the values of each field."""
    names = list(values)
    return [dict(zip(names, row, strict=True)) for row in zip(*values.values(), strict=True)]


def values_of(column: Any) -> list[Any]:
    """The values of a column's rows; None where one is missing."""
    if isinstance(column, Mapping):
        return rows_of(column)
    if isinstance(column, np.ma.MaskedArray):
        missing: list[bool] = np.asarray(np.ma.getmaskarray(column).reshape(len(column), -1).any(axis=1)).tolist()
        return [None if gone else value for value, gone in zip(column.data, missing, strict=True)]
    return list(column)


def cut(columns: Columns, first: int, last: int) -> dict[str, Any]:
    """Some rows that follow each other, without a copy."""
    return {
        name: cut(column, first, last) if isinstance(column, Mapping) else column[first:last]
        for name, column in columns.items()
    }


def join(parts: Sequence[Columns]) -> dict[str, Any]:
    """Batches one after the other, as one."""
    return dict(parts[0]) if len(parts) == 1 else {name: _join([part[name] for part in parts]) for name in parts[0]}


def gather(columns: Columns, rows: Array) -> dict[str, Any]:
    """Some rows, in any order."""
    return {name: _gather(column, rows) for name, column in columns.items()}


def _join(parts: list[Any]) -> Any:
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
            return Bytes._trusted(values, row_splits, first.text, first.shape, present)
        shapes = None if first.shapes is None else np.concatenate([part.shapes for part in parts])
        return Ragged._trusted(values, row_splits, shapes, present)
    if isinstance(first, np.ma.MaskedArray):
        return np.ma.MaskedArray(
            np.concatenate([part.data for part in parts]), np.concatenate([np.ma.getmaskarray(part) for part in parts])
        )
    return np.concatenate(parts)


def _gather(column: Any, rows: Array) -> Any:
    if isinstance(column, Mapping):
        return gather(column, rows)
    if isinstance(column, np.ndarray):
        return column[rows]
    present = None if column.present is None else column.present[rows]
    if isinstance(column, Ragged):
        elements, splits = _ranges(column.row_splits, rows)
        shapes = None if column.shapes is None else column.shapes[rows]
        return Ragged._trusted(_gather(column.values, elements), splits, shapes, present)
    strings = (rows[:, None] * column._per_row + np.arange(column._per_row)).reshape(-1)
    letters, splits = _ranges(column.row_splits, strings)
    return Bytes._trusted(column.values[letters], splits, column.text, column.shape, present)


def _ranges(splits: Array, rows: Array) -> tuple[Array, Array]:
    """The elements of some rows, and where each row begins and ends among them."""
    lengths = splits[rows + 1] - splits[rows]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return np.arange(ends[-1]) + np.repeat(splits[rows] - ends[:-1], lengths), ends
