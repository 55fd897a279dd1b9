"""What stores share: which ranges are requested together, and how often a request is repeated."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..errors import StorageError

PIECE = 8 << 20  # bytes of a large object that are requested at a time
GAP = 1 << 14  # bytes between two ranges that are read along
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two attempts
Result = TypeVar("Result")


class ShortError(Exception):
    """A body that ended too soon."""


@dataclass(frozen=True)
class Temporary:
    """An error that may pass.

    late      Error to raise when the deadline has passed.
    patience  Seconds from the first attempt to the deadline.
    otherwise Error to raise before the deadline, in place of another attempt.
    """

    late: StorageError
    patience: float
    otherwise: Exception | None = None


def retry(
    attempt: Callable[[], Result], judge: Callable[[Exception], Temporary], *, since: float | None = None
) -> Result:
    """Return the result of an attempt, which is repeated after temporary errors until a deadline.

    judge  Raises the error for a failure that does not pass; returns what to do after any other.
    since  When the first attempt began; default: now.
    """
    began = time.monotonic() if since is None else since
    pause = FIRST_PAUSE
    while True:
        try:
            return attempt()
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001  # `judge` raises those that it does not know
            found = judge(error)
        if time.monotonic() + pause > began + found.patience or not threading.main_thread().is_alive():
            raise found.late
        if found.otherwise is not None:
            raise found.otherwise
        time.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, LONGEST_PAUSE)


def replaced(where: str) -> StorageError:
    """Return the error for an object that was replaced while it was read."""
    expected = "expected the object that was there before, got another in its place"
    return StorageError(f"{expected} - at {where}. Load the dataset again")


def joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans to request, as (start, stop), so that each range is in one of them."""
    spans: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if spans and start - spans[-1][1] <= GAP and start + length - spans[-1][0] <= PIECE:
            spans[-1] = (spans[-1][0], max(spans[-1][1], start + length))
        elif not spans or start + length > spans[-1][1] or start < spans[-1][0]:
            spans.append((start, start + length))
    return spans


def cut_out(
    ranges: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]], blocks: Sequence[memoryview]
) -> list[memoryview]:
    """Return the ranges, cut out of the blocks of the spans."""
    parts = []
    for start, length in ranges:
        at = next(at for at, (first, last) in enumerate(spans) if first <= start and start + length <= last)
        begin = start - spans[at][0]
        parts.append(blocks[at][begin : begin + length])
    return parts
