"""How TensorFlow reads the files of a split, where it reads them by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SchemaError


@dataclass(frozen=True)
class Interleave:
    """Several files of a split at once, a few records of each in turn: `to_tf(graph=Interleave(16, seed=7))`.

    cycle      how many files; -1 leaves it to TensorFlow
    block      how many records of each at a time
    seed       files come in a random order; None: in their own
    reshuffle  in another random order each time
    sort       a function that puts the files into another order, each {"filename": ..., "skip": ..., "take": ...}
    """

    cycle: int = -1
    block: int = 1
    seed: int | None = None
    reshuffle: bool = True
    sort: Callable[[list[dict[str, Any]]], Sequence[dict[str, Any]]] | None = None

    def __post_init__(self) -> None:
        if type(self.cycle) is not int or (self.cycle < 1 and self.cycle != -1):
            raise SchemaError(f"expected cycle to be 1 or more, or -1, got {self.cycle!r}", "Interleave")
        if type(self.block) is not int or self.block < 1:
            raise SchemaError(f"expected block to be 1 or more, got {self.block!r}", "Interleave")
