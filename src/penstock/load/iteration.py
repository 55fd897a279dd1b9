"""A running epoch: an iterator that knows where it is, and that ends its threads when it is closed or dropped."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import PenstockError
from .state import Position
from .steps import Items

if TYPE_CHECKING:
    from .pipeline import Run
    from .profile import Profile

MOST_REPORTS = 20  # damaged records that are logged one by one
MOST_KEPT = 1000  # and that are kept


class Skipped(NamedTuple):
    """A damaged record that was left out: what is wrong with it and where, and its key, if that is known."""

    message: str
    key: str | None


class SkippedRecords(list[Skipped]):
    """What was left out, the first thousand of it; `total` tells all."""

    total = 0

    def report(self, message: str, key: str | None) -> None:
        """Count one more, and say so while there are few."""
        import logging  # for the rare case

        log = logging.getLogger("penstock.load")
        self.total += 1
        told = message if key is None or f"key {key!r}" in message else f"{message} (key {key!r})"
        if len(self) < MOST_KEPT:
            self.append(Skipped(told, key))
        if self.total <= MOST_REPORTS:
            log.warning("skipped a record: %s", told)
        if self.total == MOST_REPORTS:
            log.warning("more skipped records are only counted: see the iterator's `skipped`")


class Iteration:
    """One epoch of a loader, under way.

    iterator = iter(loader)
    for batch in iterator:
        ...
        checkpoint = iterator.state()      # goes on after this batch: loader.resume(checkpoint)

    skipped  damaged records that were left out (on_error="skip")
    """

    def __init__(self, run: Run, items: Items) -> None:
        self._run = run
        self._items = items
        self._mark = run.start
        self._ended = self._closed = False
        self._process = os.getpid()
        self.skipped = run.skipped

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        if self._process != os.getpid():
            raise PenstockError(
                "expected an iteration of this process, got one that began before a fork. Call iter(loader) here"
            )
        try:
            item, self._mark = next(self._items)
        except StopIteration:
            self._ended = self._ended or not self._closed
            raise
        return item

    def __repr__(self) -> str:
        place = "at its end" if self._ended else f"after {self._mark[0]} examples"
        return f"Iteration(epoch {self._run.position.epoch}, {place})"

    def state(self) -> dict[str, Any]:
        """Where it is, in a small dict of plain values: `loader.resume(state)` goes on with the next item."""
        run = self._run
        position = run.position
        if self._ended:
            position = Position(epoch=position.epoch + 1, slots=tuple(0 for _ in position.slots))
        else:
            taken, *slots = self._mark
            position = Position(position.epoch, position.base, position.past, taken, tuple(slots))
        return position.to_state(run.recipe.host, run.recipe.dataset, run.recipe.pipeline)

    def profile(self) -> Profile:
        """What has taken how long so far, the wait for whoever takes the items included."""
        from .profile import measured

        return measured(self._run)

    def close(self) -> None:
        """End its threads. Nothing comes after it; `state` stays what it is."""
        self._closed = True
        if self._process != os.getpid():  # its threads, and their locks, are those of another process
            return
        self._items.close()  # type: ignore[attr-defined]
        self._run.close()

    def __enter__(self) -> Iteration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
