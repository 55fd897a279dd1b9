"""The engine of one machine."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from ...errors import BuildError, PenstockError, SchemaError
from ...records.codec import default_threads
from .engine import Advance, Function, Item, Progress, Result, Shared

if TYPE_CHECKING:
    from ctypes import c_longlong
    from multiprocessing.connection import Connection


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
    progress: Callable[[Progress], None] | None = field(default=None, repr=False, compare=False)

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
    def driver(self) -> Local:
        """The engine itself: its workers are on the machine of the driver."""
        return self

    @property
    def remote(self) -> bool:
        """False: an item is run again only after its worker has ended."""
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
        self, function: Function[Shared, Item, Result], shared: Shared, items: Iterable[Item], advance: Advance
    ) -> Generator[tuple[Item, Result], None, None]:
        """Run `function(shared, item, advance)` for each item; results come as they are ready.

        Items that are a deque may be added to meanwhile; each is taken out of it as it is begun.
        """
        waiting = items if isinstance(items, deque) else deque(items)
        if self.processes > 1:
            yield from map_in_processes(self.processes, function, shared, waiting, advance)
        while waiting:
            item = waiting.popleft()
            yield item, function(shared, item, advance)


def _machine_memory() -> int:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 8 << 30


MOST_CRASHES = 3  # of workers on one item
_current: c_longlong | None = None  # in a worker process: number of the example that it loads


class LostWorkerError(BuildError):
    """Worker processes that ended while they worked on an item.

    number  of the example that the last one was loading, in its source; -1 if it was loading none
    """

    def __init__(self, item: object, number: int, code: int | None) -> None:
        named = str(item).splitlines()
        got = f"{MOST_CRASHES} that ended on it, the last {describe_exit(code)}"
        super().__init__(f"expected a worker process to finish {named[0] if named else 'an item'}, got {got}")
        self.item = item
        self.number = number
        self.code = code


def describe_exit(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None or code >= 0:
        return f"with code {code}"
    with suppress(ValueError):
        memory = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
        return f"by {signal.Signals(-code).name}{memory}"
    return f"by signal {-code}"


def begin_example(number: int) -> None:
    """Note which example this process begins to load: if the process ends, its parent names the example."""
    if _current is not None:
        _current.value = number


def map_in_processes(
    count: int, function: Function[Shared, Item, Result], shared: Shared, items: deque[Item], advance: Advance
) -> Generator[tuple[Item, Result], None, None]:
    """Run `function(shared, item, advance)` for each item; results come as they are ready.

    Items may be added while it runs. An error ends all of it. An item whose worker dies is given to another, up to
    three times.
    """
    from multiprocessing.connection import wait

    crashes: Counter[int] = Counter()
    workers: dict[Connection, _Worker[Item]] = {}
    try:
        while items or workers:
            while items and len(workers) < count:
                worker: _Worker[Item] = _Worker(function, shared)
                workers[worker.connection] = worker
                worker.give(items.popleft())
            ready: Any
            for ready in wait(list(workers)):
                worker = workers[ready]
                try:
                    kind, content = ready.recv()
                except (EOFError, ConnectionError):
                    del workers[ready]
                    code = worker.end()
                    crashes[id(worker.item)] += 1
                    if crashes[id(worker.item)] >= MOST_CRASHES:
                        raise LostWorkerError(worker.item, worker.current.value, code) from None
                    items.appendleft(worker.item)
                    continue
                if kind == "progress":
                    advance(*content)
                elif kind == "error":
                    error, trace = content
                    raise error from WorkerTraceback(trace)
                else:
                    yield worker.item, content
                    if items:
                        worker.give(items.popleft())
                    else:
                        worker.end()
                        del workers[ready]
    finally:
        for worker in workers.values():
            worker.end()


def survives_fork() -> bool:
    """Whether a fork of this process can do what the process can. TensorFlow, once it has run, waits in it forever."""
    eager = sys.modules.get("tensorflow.python.eager.context")
    return sys.platform != "linux" or not getattr(getattr(eager, "_context", None), "_initialized", False)


class _Worker(Generic[Item]):
    """A process that waits for items at the other end of a connection."""

    item: Item  # the one that it works on

    def __init__(self, function: Function[Shared, Item, Result], shared: Shared) -> None:
        import multiprocessing

        # Where forking is usual, it spares pickling; elsewhere the function, and what is shared, are sent.
        context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.connection, theirs = context.Pipe()
        self.current = context.RawValue("q", -1)
        self.process = context.Process(target=_serve, args=(theirs, function, shared, self.current), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, item: Item) -> None:
        self.item = item
        self.current.value = -1
        self.connection.send(item)

    def end(self) -> int | None:
        """At once, in whatever it is doing: all that it leaves behind are temporary files."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        code: int | None = self.process.exitcode
        self.process.close()
        return code


def portable(error: BaseException, item: object) -> BaseException:
    """An error of an item, such that it survives the way to another process."""
    if isinstance(error, (PenstockError, OSError, MemoryError)):
        with suppress(Exception):
            if type(pickle.loads(pickle.dumps(error))) is type(error):  # noqa: S301  # our own
                return error
    return BuildError(f"{type(error).__name__}: {error} - in {item}")


class WorkerTraceback(Exception):  # noqa: N818  # not raised: it shows where an error came from
    """What the worker's traceback was."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _serve(
    connection: Connection, function: Function[Shared, Item, Result], shared: Shared, current: c_longlong
) -> None:
    """A worker's life."""
    global _current  # one for each process
    _current = current
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def advance(examples: int, size: int) -> None:
        connection.send(("progress", (examples, size)))

    while True:
        item = connection.recv()
        try:
            connection.send(("result", function(shared, item, advance)))
        except BaseException as error:  # noqa: BLE001  # the parent raises it
            connection.send(("error", (portable(error, item), traceback.format_exc())))


def _end_with_parent() -> None:
    """However the parent ends, its workers do not outlive it."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
