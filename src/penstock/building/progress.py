"""X."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Progress:
    """How far a build is: examples of `total`, which a stream does not know, and the bytes of their records."""

    stage: str
    examples: int
    total: int | None
    bytes: int


class Meter:
    """Counts what tasks report, and tells it."""

    def __init__(self, told: Callable[[Progress], None] | None) -> None:
        self._told = told
        self._state = Progress("", 0, None, 0)

    def begin(self, stage: str, total: int | None) -> None:
        """Count from nothing again."""
        self._state = Progress(stage, 0, total, 0)

    def __call__(self, examples: int, size: int) -> None:
        state = self._state
        self._state = replace(state, examples=state.examples + examples, bytes=state.bytes + size)
        if self._told is not None:
            self._told(self._state)
