"""Work ahead on threads, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[tuple[Item, Callable[[], Result]]]:
    """Each item with what gives its result, or raises its error. Threads work on the next ones meanwhile.

    With one thread, it is this one: nothing is done ahead.
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
            pool.shutdown(wait=False, cancel_futures=True)
