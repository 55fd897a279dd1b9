"""Token streams: the rows of all examples one after the other, cut into rows of one length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from ...errors import SchemaError, StateError, name_known
from ...schema.columns import Array, Bytes, Ragged, Value
from ..spec import Bucket, Items, Mark, Pack, with_slot
from .batch import Chunk, RowChunk, batch_of


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


def _from_rows(rows: list[Value], name: str) -> Ragged:
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
    return Ragged.unchecked(np.concatenate(arrays), splits)


def bucketed(
    chunks: Iterator[Chunk | RowChunk],
    step: Bucket,
    slot: int,
    given: int,
    schema: Mapping[str, Value],
    shaped: Callable[[], Collection[str]],
) -> Items:
    """A batch as soon as a bucket is full; at the end, what is left in each.

    Examples wait in the buckets when a state is taken, and are not part of it: it counts the batches, and resuming
    goes through the examples from the epoch's start and leaves out the `given` batches that were delivered before.
    """
    parts: list[list[Value]] = [[] for _ in step.sizes]
    held = [0] * len(step.sizes)
    count = 0
    last: Mark = ()
    for chunk in chunks:
        if not len(chunk):
            continue
        buckets = np.searchsorted(np.array(step.boundaries, np.int64), _lengths(chunk, step), side="right")
        for row, bucket, rows in _events(buckets, step.sizes, held):
            if row is None:
                parts[bucket].append(chunk.pick(rows))
                continue
            count += 1
            full = [*parts[bucket], chunk.pick(rows)]
            parts[bucket] = []
            if count > given:
                yield batch_of(full, schema, shaped(), step.pad), with_slot(chunk.marks[row], slot, count)
        last = chunk.marks[len(chunk) - 1]
    for left in parts:
        if not left or step.drop_remainder:
            continue
        count += 1
        if count > given:
            yield batch_of(left, schema, shaped(), step.pad), with_slot(last, slot, count)
    if count < given:
        raise StateError(f"expected an epoch of {given} batches or more, as the state has, got {count}", "bucket")


def _events(buckets: Array, sizes: tuple[int, ...], held: list[int]) -> list[tuple[int | None, int, Array]]:
    """What happens to a chunk's rows, in order: a bucket is full at a row, or (None) keeps some rows at the end."""
    full: list[tuple[int | None, int, Array]] = []
    kept: list[tuple[int | None, int, Array]] = []
    for bucket in np.unique(buckets).tolist():
        rows = np.flatnonzero(buckets == bucket)
        first, size = 0, sizes[bucket]
        while held[bucket] + len(rows) - first >= size:
            end = first + size - held[bucket]
            full.append((int(rows[end - 1]), bucket, rows[first:end]))
            first, held[bucket] = end, 0
        if first < len(rows):
            kept.append((None, bucket, rows[first:]))
            held[bucket] += len(rows) - first
    return sorted(full, key=lambda event: event[0] or 0) + kept


def _lengths(chunk: Chunk | RowChunk, step: Bucket) -> Array:
    by = step.by
    if callable(by):
        return np.array([int(by(row)) for row in chunk.rows()], np.int64)
    if isinstance(chunk, RowChunk):
        try:
            return np.array([len(row[by]) for row in chunk.examples], np.int64)
        except (KeyError, TypeError) as error:
            raise SchemaError(f"expected a field that has a length, got {error}", f"bucket, field {by!r}") from None
    column: Value = chunk.columns
    for name in [by] if by in chunk.columns else by.split("/"):
        if not isinstance(column, Mapping) or name not in column:
            raise SchemaError(f"no field {by!r}", "bucket", name_known(by, chunk.columns))
        column = column[name]
    if isinstance(column, Ragged):
        return column.row_lengths() if column.shapes is None else np.asarray(column.shapes[:, 0])
    if isinstance(column, Bytes) and column.shape is None:
        return np.diff(column.row_splits)
    raise SchemaError(
        f"expected a field whose rows differ in length, got {type(column).__name__}", f"bucket, field {by!r}"
    )
