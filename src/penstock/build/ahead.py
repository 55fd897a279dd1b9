"""Work ahead on threads, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar

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
