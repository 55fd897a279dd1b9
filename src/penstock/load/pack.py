"""Token streams: the rows of all examples one after the other, cut into rows of one length."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..columns import Array, Ragged
from ..errors import SchemaError, StateError
from .chunks import Chunk, RowChunk
from .steps import Mark, Pack, with_slot


class _Piece:
    """What is left of an example: so many tokens, the first of which is its `offset`th; and the mark after it."""

    __slots__ = ("count", "mark", "offset")

    def __init__(self, count: int, offset: int, mark: Mark) -> None:
        self.count, self.offset, self.mark = count, offset, mark


def packed(
    chunks: Iterator[Chunk | RowChunk], step: Pack, slot: int, start: Mark, gone: Mapping[int, int]
) -> Iterator[Chunk]:
    """Rows of `step.length` tokens.

    start  where to begin: its slot has the tokens of the next example that were delivered before
    gone   more examples of which some tokens were delivered: position, tokens
    """
    pieces: deque[_Piece] = deque()
    held: dict[str, Array] = {}
    skip: int | None = start[slot]
    last = start
    for chunk in chunks:
        fields = _fields(chunk)
        splits = next(iter(fields.values())).row_splits
        lengths = np.diff(splits)
        begins = np.zeros(len(lengths), np.int64)
        marks = chunk.marks
        if gone or skip:
            begins = np.array([gone.get(marks[row][0] - 1, 0) for row in range(len(lengths))], np.int64)
            if skip is not None and len(begins):
                begins[0] = skip or begins[0]
                skip = None
            if np.any((begins > 0) & (begins >= lengths)):
                row = int(np.argmax((begins > 0) & (begins >= lengths)))
                expected = f"expected an example of more than {begins[row]} tokens, as the state has"
                raise StateError(f"{expected}, got {lengths[row]}", "pack", "Resume with the maps of before")
        for row, (length, begin) in enumerate(zip(lengths.tolist(), begins.tolist(), strict=True)):
            pieces.append(_Piece(length - begin, begin, with_slot(marks[row], slot, 0)))
        tokens = {name: _values(column, splits, begins) for name, column in fields.items()}
        held = {name: np.concatenate([held[name], new]) if name in held else new for name, new in tokens.items()}
        rows = len(next(iter(held.values()))) // step.length
        if rows:
            end = rows * step.length
            whole = {name: values[:end].reshape(rows, step.length) for name, values in held.items()}
            held = {name: values[end:] for name, values in held.items()}
            ends, segments, last = _walk(pieces, rows, step, slot, last)
            yield Chunk(_with_segments(whole, segments, step), ends)
    rest = len(next(iter(held.values()))) if held else 0
    if rest and not step.drop_remainder:
        missing = step.length - rest
        padding = {name: np.full(missing, step.pad, values.dtype) for name, values in held.items()}
        whole = {name: np.concatenate([values, padding[name]])[None] for name, values in held.items()}
        ends, segments, _ = _walk(pieces, 1, step, slot, last)
        yield Chunk(_with_segments(whole, segments, step), ends)


def _walk(
    pieces: deque[_Piece], rows: int, step: Pack, slot: int, last: Mark
) -> tuple[list[Mark], list[tuple[Array, Array]], Mark]:
    """The mark after each row, what its tokens belong to, and the mark after the last example that is used up."""
    marks: list[Mark] = []
    segments: list[tuple[Array, Array]] = []
    for _ in range(rows):
        room, counts, offsets = step.length, [], []
        while room and pieces:
            piece = pieces[0]
            used = min(room, piece.count)
            if used:
                counts.append(used)
                offsets.append(piece.offset)
            room -= used
            piece.count -= used
            piece.offset += used
            if not piece.count:
                last = pieces.popleft().mark
        # An example that is cut goes on from its offset, counted from its own beginning.
        cut = pieces[0].offset if pieces and counts and pieces[0].offset and pieces[0].count else 0
        marks.append(with_slot(last, slot, cut))
        if step.segments:
            segments.append(_segment(counts, offsets, step.length))
    return marks, segments, last


def _segment(counts: list[int], offsets: list[int], length: int) -> tuple[Array, Array]:
    ids = np.zeros(length, np.int32)
    positions = np.zeros(length, np.int32)
    total = sum(counts)
    ids[:total] = np.repeat(np.arange(1, len(counts) + 1), counts)
    starts = np.repeat(np.array(offsets) - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    positions[:total] = np.arange(total) + starts
    return ids, positions


def _with_segments(columns: dict[str, Array], segments: list[tuple[Array, Array]], step: Pack) -> dict[str, Array]:
    if not step.segments:
        return columns
    ids, positions = zip(*segments, strict=True)
    return {**columns, "segment_ids": np.stack(ids), "positions": np.stack(positions)}


def _values(column: Ragged, splits: Array, begins: Array) -> Array:
    values = np.asarray(column.values)
    if not begins.any():
        return values
    return np.concatenate([values[splits[row] + begin : splits[row + 1]] for row, begin in enumerate(begins.tolist())])


def _fields(chunk: Chunk | RowChunk) -> dict[str, Ragged]:
    """The columns to pack: rows of numbers, equally long within an example."""
    if isinstance(chunk, RowChunk):
        names = list(chunk.examples[0]) if isinstance(chunk.examples[0], Mapping) else []
        columns = {name: _from_rows([example[name] for example in chunk.examples], name) for name in names}
    else:
        columns = dict(chunk.columns)
    first = None
    for name, column in columns.items():
        numbers = isinstance(column, Ragged) and isinstance(column.values, np.ndarray) and column.values.ndim == 1
        if not numbers or column.shapes is not None:
            kind = "rows that may be missing" if getattr(column, "present", None) is not None else type(column).__name__
            raise SchemaError(
                f"expected rows of numbers such as int64[?], got {kind}",
                f"pack, field {name!r}",
                "select() the fields to pack",
            )
        first = first or column
        if not np.array_equal(column.row_splits, first.row_splits):
            raise SchemaError(
                "expected rows of equal length in all fields of an example, got others", f"pack, field {name!r}"
            )
    if not columns:
        raise SchemaError("expected examples with fields, got others", "pack")
    return columns


def _from_rows(rows: list[Any], name: str) -> Ragged:
    arrays = [np.asarray(row) for row in rows]
    if any(array.ndim != 1 or array.dtype.kind not in "biuf" for array in arrays):
        wrong = next(array for array in arrays if array.ndim != 1 or array.dtype.kind not in "biuf")
        got = f"{wrong.dtype}{list(wrong.shape)}"
        raise SchemaError(
            f"expected rows of numbers such as int64[?], got {got}",
            f"pack, field {name!r}",
            "select() the fields to pack",
        )
    splits = np.concatenate([[0], np.cumsum([len(array) for array in arrays])])
    return Ragged._trusted(np.concatenate(arrays), splits)
