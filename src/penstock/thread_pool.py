"""Threads that work for a caller and end with it: one kind of pool for everything that runs in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, stop: Callable[[], object] = lambda: None
) -> Generator[tuple[Item, Callable[[], Result]], None, None]:
    """Each item with what gives its result, or raises its error. Threads work on the next ones meanwhile.

    With one thread, it is this one: nothing is done ahead. `stop` is called when no more results are wanted; what is
    under way then is waited for.
    """
    if threads == 1:
        for item in items:
            yield item, partial(function, item)
        return
    from concurrent.futures import Future, ThreadPoolExecutor  # importing penstock costs nothing

    coming: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                coming.append((item, pool.submit(function, item)))
                if len(coming) > threads:
                    first, future = coming.popleft()
                    yield first, future.result
            while coming:
                first, future = coming.popleft()
                yield first, future.result
        finally:
            stop()
            pool.shutdown(wait=False, cancel_futures=True)
