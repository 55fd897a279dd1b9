"""What flows between the steps of a running loader: some examples at a time, as columns or one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..columns import Array
from .collate import collate, padded
from .columnar import count_rows, cut, gather, join, rows_of
from .steps import Items, Mark


class Marks(Sequence[Mark]):
    """The marks of examples as they were read: each is one position further."""

    def __init__(self, positions: Any, slots: Mark) -> None:
        self.positions = positions
        self.slots = slots

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Marks(self.positions[index], self.slots)
        return (int(self.positions[index]) + 1, *self.slots)


@dataclass(frozen=True)
class Chunk:
    """Some examples as columns, with the mark of each."""

    columns: Mapping[str, Any]
    marks: Sequence[Mark]

    def __len__(self) -> int:
        return len(self.marks)

    def items(self) -> list[tuple[Any, Mark]]:
        """The examples one by one."""
        return list(zip(rows_of(self.columns), self.marks, strict=True))

    def rows(self) -> list[Any]:
        """The examples without their marks."""
        return rows_of(self.columns)

    def pick(self, rows: Array) -> Mapping[str, Any]:
        """Some of the examples, as a part of a batch."""
        return gather(self.columns, rows)


@dataclass(frozen=True)
class RowChunk:
    """Some examples that Python has made, with the mark of each."""

    examples: Sequence[Any]
    marks: Sequence[Mark]

    def __len__(self) -> int:
        return len(self.marks)

    def rows(self) -> Sequence[Any]:
        """The examples."""
        return self.examples

    def pick(self, rows: Array) -> list[Any]:
        """Some of the examples, as a part of a batch."""
        return [self.examples[row] for row in rows.tolist()]


def batch_of(parts: Sequence[Any], schema: Mapping[str, Any], shaped: Collection[str], pad: Any) -> Any:
    """A batch of parts that chunks gave."""
    if isinstance(parts[0], Mapping):
        columns = join(parts)
    else:
        columns = collate([row for part in parts for row in part], schema, shaped, pad)
    return columns if pad is None else padded(columns, pad)


def grouped(items: Items, size: int) -> Iterator[RowChunk]:
    """Items, some at a time."""
    examples: list[Any] = []
    marks: list[Mark] = []
    for example, mark in items:
        examples.append(example)
        marks.append(mark)
        if len(marks) == size:
            yield RowChunk(examples, marks)
            examples, marks = [], []
    if marks:
        yield RowChunk(examples, marks)


def rebatched(chunks: Iterator[Chunk], size: int, drop_remainder: bool, pad: Any) -> Items:
    """Chunks of any size as batches of one size: columns are cut and joined, no row is touched."""
    parts: list[Mapping[str, Any]] = []
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


def _finished(parts: Sequence[Mapping[str, Any]], pad: Any) -> Any:
    columns = join(parts)
    return columns if pad is None else padded(columns, pad)


def positions_without(first: int, last: int, gone: Collection[int]) -> Any:
    """Positions in order, but for some."""
    if not gone:
        return range(first, last)
    kept = np.arange(first, last)
    return kept[~np.isin(kept, list(gone))]
