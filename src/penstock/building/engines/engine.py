"""What an engine is to a build: something that runs a function for each of many items, wherever its workers are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..progress import Progress as State
from .local import Function, Item, Progress, Result, Shared

if TYPE_CHECKING:
    from .local import Local


class Workers(Protocol):
    """The workers of an engine, while a build has them."""

    @property
    def processes(self) -> int:
        """How many there are."""

    @property
    def worker_memory(self) -> int:
        """Bytes that the examples of a worker may take while they are on their way."""

    @property
    def chunk_bytes(self) -> int:
        """What a worker gathers before it encodes."""

    @property
    def sync(self) -> bool:
        """Whether shards are to be on the disk before a dataset is published."""

    @property
    def here(self) -> Local:
        """For what is done where the build runs, whoever does the rest: streams, and a look at some examples."""

    @property
    def apart(self) -> bool:
        """Whether workers may lose touch, so that an item is given to another while the first still works on it."""

    def map(
        self, function: Function[Shared, Item, Result], shared: Shared, items: Iterable[Item], progress: Progress
    ) -> Generator[tuple[Item, Result], None, None]:
        """Run `function(shared, item, progress)` for each item; results come as they are ready, each item's once."""


@runtime_checkable
class Engine(Protocol):
    """What a build is given to run on: `Local(...)` or `Ray(...)`."""

    @property
    def progress(self) -> Callable[[State], None] | None:
        """A function that is told how far the build is."""

    def start(self, destination: Path | str) -> AbstractContextManager[Workers]:
        """Workers for a build into a directory, or into a URL. They end with it."""
