"""Worker processes: one item at a time each, ended at once, missed when they die."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import BuildError, PenstockError

if TYPE_CHECKING:  # where it is needed, it is imported then: importing penstock costs nothing
    from multiprocessing.connection import Connection

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # so many more examples, so many more bytes
Function = Callable[[Shared, Item, Progress], Result]

MOST_CRASHES = 3  # of workers on one item


def silent(examples: int, size: int) -> None:
    """Progress that nobody is told of."""


def map_in_processes(
    count: int, function: Function[Shared, Item, Result], shared: Shared, items: deque[Item], progress: Progress
) -> Generator[tuple[Item, Result], None, None]:
    """Run `function(shared, item, progress)` for each item; results come as they are ready.

    Items may be added while it runs. An error ends all of it. An item whose worker dies is given to another, up to
    three times.
    """
    from multiprocessing.connection import wait

    crashes: Counter[int] = Counter()
    workers: dict[Connection, _Worker] = {}
    try:
        while items or workers:
            while items and len(workers) < count:
                worker = _Worker(function, shared)
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
                        got = f"{MOST_CRASHES} that ended on it, the last with code {code}"
                        raise BuildError(f"expected a worker process to finish {worker.item}, got {got}") from None
                    items.appendleft(worker.item)
                    continue
                if kind == "progress":
                    progress(*content)
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


class _Worker:
    """A process that waits for items at the other end of a connection."""

    def __init__(self, function: Function[Any, Any, Any], shared: Any) -> None:
        import multiprocessing

        # Where forking is usual, it spares pickling; elsewhere the function, and what is shared, are sent.
        context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.item: Any = None
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, function, shared), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, item: Any) -> None:
        self.item = item
        self.connection.send(item)

    def end(self) -> int | None:
        """At once, in whatever it is doing: all that it leaves behind are temporary files."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        code: int | None = self.process.exitcode
        self.process.close()
        return code


def portable(error: BaseException, item: Any) -> BaseException:
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


def _serve(connection: Connection, function: Function[Any, Any, Any], shared: Any) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def progress(examples: int, size: int) -> None:
        connection.send(("progress", (examples, size)))

    while True:
        item = connection.recv()
        try:
            connection.send(("result", function(shared, item, progress)))
        except BaseException as error:  # noqa: BLE001  # the parent raises it
            connection.send(("error", (portable(error, item), traceback.format_exc())))


def _end_with_parent() -> None:
    """However the parent ends, its workers do not outlive it."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
