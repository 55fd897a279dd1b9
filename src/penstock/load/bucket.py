"""Batches of examples of about the same length."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ..columns import Array, Bytes, Ragged
from ..errors import SchemaError, StateError, name_known
from .chunks import Chunk, RowChunk, batch_of
from .steps import Bucket, Items, Mark, with_slot


def bucketed(
    chunks: Iterator[Chunk | RowChunk],
    step: Bucket,
    slot: int,
    given: int,
    schema: Mapping[str, Any],
    shaped: Callable[[], Collection[str]],
) -> Items:
    """A batch as soon as a bucket is full; at the end, what is left in each.

    Examples wait in the buckets when a state is taken, and are not part of it: it counts the batches, and resuming
    goes through the examples from the epoch's start and leaves out the `given` batches that were delivered before.
    """
    parts: list[list[Any]] = [[] for _ in step.sizes]
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
    column: Any = chunk.columns
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
