"""Threads that work for a caller and end with it: one kind of pool for everything that runs in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

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
