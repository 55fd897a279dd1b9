"""Functions of Python, on threads and in order; what they raise names the example."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from ...errors import LoadError
from ...schema.columns import ExampleDict, Value
from ..spec import Echo, Filter, Items, Map, Mark, describe

if TYPE_CHECKING:
    from ..epoch import Run

T = TypeVar("T")
_EXIT_SECONDS = 10.0  # that the interpreter's exit waits for a thread that works ahead
_ABOVE_ZERO = 1 << 62  # the first copies of an echo come before position 0


class Stopped(Exception):  # noqa: N818  # nobody sees it
    """Work that nobody waits for any more."""


class Done(list[tuple[Value, Mark]]):
    """Items, and the error that kept there from being more of them."""

    error: LoadError | None = None

    def whole(self) -> Done:
        """All items, or the error."""
        if self.error is not None:
            raise self.error
        return self


class Program:
    """Maps and filters, one after the other, of one item at a time."""

    def __init__(self, steps: Sequence[Map | Filter], run: Run, batches: bool, slots: int) -> None:
        self._steps: list[tuple[Callable[..., Value], str, bool, int | None]] = [
            (step.function, describe(step), isinstance(step, Filter), getattr(step, "seed", None)) for step in steps
        ]
        self._run = run
        self._batches = batches
        self._slots = slots  # of the steps before this one
        self.stop = threading.Event()
        self.filters = any(isinstance(step, Filter) for step in steps)
        wanted = [step.threads for step in steps if isinstance(step, Map)]
        #: 0: in the caller's thread. Filters alone are not worth others.
        self.threads = max((run.threads if count is None else count for count in wanted), default=0)
        self.shaped: set[str] = set()  # fields that have a shape for each row, and that no map has touched
        self._touched: set[str] = set()

    def watch(self, names: Sequence[str]) -> None:
        """Look whether maps touch these fields."""
        self.shaped.update(name for name in names if name not in self._touched)

    def __call__(self, items: Sequence[tuple[Value, Mark]]) -> Done:
        """What is left of the items, up to the first that fails."""
        began = time.perf_counter()
        done = Done()
        for item, mark in items:
            if self.stop.is_set():
                raise Stopped
            before = {name: item.get(name) for name in self.shaped} if self.shaped and isinstance(item, dict) else {}
            try:
                result = self._apply(item, mark)
            except LoadError as error:
                done.error = error
                break
            if result is not None:
                done.append((result, mark))
                if before:
                    self._look(result, before)
        self._run.meter.add("map", time.perf_counter() - began)
        return done

    def _apply(self, item: object, mark: Mark) -> Value:
        for function, text, filters, seed in self._steps:
            try:
                if filters:
                    if not function(item):
                        return None
                    continue
                item = function(item) if seed is None else function(item, self._generator(seed, mark))
            except Exception as error:
                raise self._blamed(error, text, mark) from error
            if item is None:
                raise self._blamed(TypeError("it returned None"), text, mark)
        return item

    def _look(self, result: object, before: ExampleDict) -> None:
        """Which fields are not what they were: maps may return the very dict that they got."""
        for name, value in before.items():
            if not isinstance(result, dict) or result.get(name) is not value:
                self.shaped.discard(name)
                self._touched.add(name)

    def _generator(self, seed: int, mark: Mark) -> np.random.Generator:
        position = self._run.global_position(mark[0] - 1) + _ABOVE_ZERO
        return np.random.default_rng([seed, self._run.position.epoch, position, *mark[1 : 1 + self._slots]])

    def _blamed(self, error: Exception, text: str, mark: Mark) -> LoadError:
        echoed = any(mark[self._run.spec.slot(step)] for step in self._run.spec.steps if isinstance(step, Echo))
        place = self._run.place(mark[0] - (not echoed))  # a copy leaves with the mark from before its item
        where = f"{'the batch whose last example is ' * self._batches}{place}"
        return LoadError(f"{text} failed: {type(error).__name__}: {error} - at {where}", key=place.key, path=place.path)


def ordered(tasks: Iterator[T], function: Callable[[T], Value], threads: int, stop: threading.Event) -> Iterator[Value]:
    """function(task) of each, in order, on threads and a few ahead; ends at once when it is closed."""
    if not threads:
        yield from map(function, tasks)
        return
    waiting: deque[Future[Value]] = deque()
    pool, process = ThreadPoolExecutor(threads, thread_name_prefix="penstock-map"), os.getpid()
    failure: Exception | None = None
    try:
        while True:
            try:
                waiting.append(pool.submit(function, next(tasks)))
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001  # raised when all that came before it has been handed out
                failure = error
                break
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if failure is not None:
            raise failure
    except BaseException:  # closed, or an error: what is under way ends after the example at hand
        stop.set()
        raise
    finally:
        if process == os.getpid():  # a fork may find its locks taken for good
            pool.shutdown(wait=False, cancel_futures=True)


def begun(items: Items, count: int) -> Items:
    """Items, so many of them made before they are asked for: what a device does with them goes on meanwhile."""
    waiting: deque[tuple[Value, Mark]] = deque()
    error = None
    try:
        for item in items:
            waiting.append(item)
            if len(waiting) > count:
                yield waiting.popleft()
    except Exception as caught:  # noqa: BLE001  # those before it come first
        error = caught
    while waiting:
        yield waiting.popleft()
    if error is not None:
        raise error


_AHEAD: WeakKeyDictionary[threading.Thread, threading.Event] = WeakKeyDictionary()


@atexit.register
def _end_threads() -> None:
    """End the threads that work ahead before the interpreter does.

    CPython ends a daemon thread that comes back to it later by unwinding its stack: in the midst of C++ code, such as
    torch's, that aborts the process. Threads that are no daemons would keep the interpreter from its end.
    """
    running = list(_AHEAD.items())
    for _, done in running:
        done.set()
    for worker, _ in running:
        worker.join(_EXIT_SECONDS)


def prefetched(items: Items, count: int) -> Items:
    """Items, made ahead in a thread of their own."""
    ready: queue.Queue[tuple[str, Value]] = queue.Queue(count)
    done = threading.Event()
    worker = threading.Thread(target=_pump, args=(items, ready, done), name="penstock-prefetch", daemon=True)
    worker.start()
    _AHEAD[worker] = done
    try:
        while True:
            kind, value = _get(ready, worker)
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        done.set()


def _get(ready: queue.Queue[tuple[str, Value]], worker: threading.Thread) -> tuple[str, Value]:
    while True:
        try:
            return ready.get(timeout=1.0)
        except queue.Empty:
            if not worker.is_alive() and ready.empty():
                raise RuntimeError(f"the thread that works ahead is gone (process {os.getpid()})") from None


def _pump(items: Value, ready: queue.Queue[tuple[str, Value]], done: threading.Event) -> None:
    try:
        try:
            for item in items:
                if not _put(ready, ("item", item), done):
                    return
            _put(ready, ("end", None), done)
        finally:
            items.close()
    except BaseException as error:  # noqa: BLE001  # handed on to whoever waits
        _put(ready, ("error", error), done)


def _put(ready: queue.Queue[tuple[str, Value]], entry: tuple[str, Value], done: threading.Event) -> bool:
    while not done.is_set():
        try:
            ready.put(entry, timeout=0.05)
        except queue.Full:
            continue
        return True
    return False
