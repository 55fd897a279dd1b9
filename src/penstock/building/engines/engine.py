"""What an engine is to a build: it runs a function for each of many items, wherever its workers are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from .local import Local

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")
Advance = Callable[[int, int], None]  # called with the numbers of examples and bytes that were added
Function = Callable[[Shared, Item, Advance], Result]


class Workers(Protocol):
    """The workers of an engine, while a build has them."""

    @property
    def processes(self) -> int:
        """Number of items that are worked on at once."""

    @property
    def worker_memory(self) -> int:
        """Bytes that the examples in flight of one worker may take."""

    @property
    def chunk_bytes(self) -> int:
        """Bytes of examples that a worker collects before it encodes them."""

    @property
    def sync(self) -> bool:
        """True if shards must be on the disk before a dataset is published."""

    @property
    def driver(self) -> Local:
        """Engine for the work that the driver does itself: streams, and loading a sample."""

    @property
    def remote(self) -> bool:
        """True if workers are on other machines: one can become unreachable, and its task may run twice."""

    def map(
        self, function: Function[Shared, Item, Result], shared: Shared, items: Iterable[Item], advance: Advance
    ) -> Generator[tuple[Item, Result], None, None]:
        """Run `function(shared, item, advance)` for each item; yield each result once, as it is ready."""


@runtime_checkable
class Engine(Protocol):
    """What a build runs on: `Local(...)` or `Ray(...)`."""

    @property
    def progress(self) -> Callable[[Progress], None] | None:
        """Function that receives the progress of a build."""

    def start(self, destination: Path | str) -> AbstractContextManager[Workers]:
        """Start workers for a build into a directory or URL. They end with the block."""


@dataclass(frozen=True)
class Progress:
    """The progress of a build.

    total  Number of examples; None for a stream.
    bytes  Size of the records so far.
    """

    stage: str
    examples: int
    total: int | None
    bytes: int


class Meter:
    """Adds up what tasks report, and passes it on to the user's function."""

    def __init__(self, report: Callable[[Progress], None] | None) -> None:
        self._report = report
        self._state = Progress("", 0, None, 0)

    def begin(self, stage: str, total: int | None) -> None:
        """Start a stage at zero."""
        self._state = Progress(stage, 0, total, 0)

    def __call__(self, examples: int, size: int) -> None:
        state = self._state
        self._state = replace(state, examples=state.examples + examples, bytes=state.bytes + size)
        if self._report is not None:
            self._report(self._state)


def ignore_progress(examples: int, size: int) -> None:
    """Report progress to no one."""
