"""The engine of one machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import SchemaError
from ..records.codec import default_threads
from .report import Progress as State
from .workers import Function, Item, Progress, Result, Shared, map_in_processes


@dataclass(frozen=True, kw_only=True)
class Local:
    """Builds on this machine, in worker processes; with one worker, in the process that asks.

    workers     processes; one for each core unless told
    max_memory  bytes that examples may take while they are on their way; a quarter of the machine's unless told
    sync        wait until shards are on the disk before they are published, so that a power cut can't harm them; else
                a build ends sooner, and `verify` tells what a power cut in the next half minute has damaged
    progress    a function that is told now and then how far a build is: its stage, examples, total and bytes
    """

    workers: int | None = None
    max_memory: int | None = None
    sync: bool = True
    progress: Callable[[State], None] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("workers", "max_memory"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise SchemaError(f"expected {name} to be 1 or more, got {value!r}")
        if type(self.sync) is not bool:
            raise SchemaError(f"expected sync to be True or False, got {self.sync!r}")

    @contextmanager
    def start(self, destination: Path | str) -> Iterator[Local]:
        """Itself: processes begin and end with the work."""
        yield self

    @property
    def here(self) -> Local:
        """Itself: all is done here."""
        return self

    @property
    def apart(self) -> bool:
        """Never: a worker whose item is given to another has ended."""
        return False

    @property
    def processes(self) -> int:
        """How many workers there are at most."""
        return self.workers or default_threads()

    @property
    def worker_memory(self) -> int:
        """The share of a worker."""
        return (self.max_memory or _machine_memory() // 4) // self.processes

    @property
    def chunk_bytes(self) -> int:
        """What a worker gathers before it encodes: decoded, encoded and written copies share the budget."""
        return max(1 << 16, min(1 << 22, self.worker_memory // 8))

    def map(
        self, function: Function[Shared, Item, Result], shared: Shared, items: Iterable[Item], progress: Progress
    ) -> Generator[tuple[Item, Result], None, None]:
        """Run `function(shared, item, progress)` for each item; results come as they are ready.

        Items that are a deque may be added to meanwhile; each is taken out of it as it is begun.
        """
        waiting = items if isinstance(items, deque) else deque(items)
        if self.processes > 1:
            yield from map_in_processes(self.processes, function, shared, waiting, progress)
        while waiting:
            item = waiting.popleft()
            yield item, function(shared, item, progress)


def _machine_memory() -> int:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 8 << 30
