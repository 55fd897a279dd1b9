"""Threads that work for a caller and end with it: one kind of pool for everything that runs in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from ._core import Stop


@contextmanager
def thread_pool(threads: int, name: str = "penstock") -> Iterator[ThreadPoolExecutor]:
    """Open a pool whose threads end early when its caller does.

    An error cancels what has not begun and waits for the rest. `KeyboardInterrupt` and its like do not wait: they end
    the core's work on these threads within a tenth of a second, and leave requests that are under way to themselves.
    """
    stop = Stop()
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=stop.enter)
    try:
        yield pool
    except Exception:
        pool.shutdown(cancel_futures=True)
        raise
    except BaseException:
        stop.end()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    *,
    stop: Callable[[], object] = lambda: None,
    drain: bool = False,
    pool: ThreadPoolExecutor | None = None,
) -> Generator[tuple[Item, Callable[[], Result]], None, None]:
    """Yield each item, in order, with a function that returns its result or raises its error.

    Threads work on the next items meanwhile. With one thread, no work is done ahead: the caller's thread does it.

    stop   Called when no more results are wanted. Work in flight is waited for then, except in the caller's pool.
    drain  After an error of `items`, yield the items before it first.
    pool   The caller's pool to run in.
    """
    if threads == 1 and pool is None:
        for item in items:
            yield item, partial(function, item)
        return
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    failure: BaseException | None = None
    own = pool or ThreadPoolExecutor(threads)
    try:
        upcoming = iter(items)
        while failure is None:
            try:
                item = next(upcoming)
            except StopIteration:
                break
            except BaseException as error:
                if not drain:
                    raise
                failure = error
                break
            waiting.append((item, own.submit(function, item)))
            while waiting and (len(waiting) > threads or (drain and waiting[0][1].done())):
                first, future = waiting.popleft()
                yield first, future.result
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result
    finally:
        stop()
        if pool is None:
            own.shutdown(cancel_futures=True)
    if failure is not None:
        raise failure
