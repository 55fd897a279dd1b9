"""What stores share: which ranges are asked for together, and what an answer may be besides right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import StorageError

PIECE = 8 << 20  # bytes of a large object that are asked for at a time
GAP = 1 << 14  # bytes between two parts that are read along


class ShortError(Exception):
    """A body that ended too soon."""


def replaced(where: str) -> StorageError:
    """The error of a version that is no longer there."""
    expected = "expected the object that was there before, got another in its place"
    return StorageError(f"{expected} - at {where}. Load the dataset again")


def joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What has to be asked for, as (start, stop), so that each range is in one of them."""
    spans: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if spans and start - spans[-1][1] <= GAP and start + length - spans[-1][0] <= PIECE:
            spans[-1] = (spans[-1][0], max(spans[-1][1], start + length))
        elif not spans or start + length > spans[-1][1] or start < spans[-1][0]:
            spans.append((start, start + length))
    return spans


def cut_out(ranges: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]], blocks: Sequence[Any]) -> list[Any]:
    """The ranges, out of the blocks that came for the spans."""
    parts = []
    for start, length in ranges:
        at = next(at for at, (first, last) in enumerate(spans) if first <= start and start + length <= last)
        begin = start - spans[at][0]
        parts.append(blocks[at][begin : begin + length])
    return parts
