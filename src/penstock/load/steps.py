"""The steps of a loader, as plain values: those that change the order of examples, and those that change examples.

Steps on the order (shuffle, repeat, take, skip, echo) are arithmetic on positions: nothing is read for them. The others
see what was read; each has a `run` in the module that carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any

from .._core import Order

Mark = tuple[int, ...]
"""How far a host is when an item leaves: positions taken, then a number for each step that keeps one."""
Items = Iterator[tuple[Any, Mark]]

MOST_LETTERS = 60


@dataclass(frozen=True)
class Shuffle:
    """A permutation of the whole, another each epoch; with a window, of the examples within it. Lanes take turns."""

    seed: int = 0
    window: int | None = None
    lanes: int | None = None

    def apply(self, order: Order) -> Order:
        shuffled = order.shuffle(self.seed, self.window)
        return shuffled if self.lanes is None else shuffled.lanes(self.lanes)


@dataclass(frozen=True)
class Repeat:
    """Several epochs as one, or for ever."""

    count: int | None = None

    def apply(self, order: Order) -> Order:
        return order.repeat(self.count)


@dataclass(frozen=True)
class Take:
    """The first ones."""

    count: int

    def apply(self, order: Order) -> Order:
        return order.slice(0, self.count)

    def run(self, items: Items, slot: int, start: Mark) -> Items:
        passed = start[slot]
        while passed < self.count:
            found = next(items, None)
            if found is None:
                return
            passed += 1
            yield found[0], with_slot(found[1], slot, passed)


@dataclass(frozen=True)
class Skip:
    """All but the first ones."""

    count: int

    def apply(self, order: Order) -> Order:
        return order.slice(self.count, None)

    def run(self, items: Items, slot: int, start: Mark) -> Items:
        passed = start[slot]
        for item, mark in items:
            if passed < self.count:
                passed += 1
            else:
                yield item, with_slot(mark, slot, passed)


@dataclass(frozen=True)
class Echo:
    """Each one several times in a row."""

    times: int

    def apply(self, order: Order) -> Order:
        return order.echo(self.times)

    def run(self, items: Items, slot: int, start: Mark) -> Items:
        """A copy that is not the last leaves with the mark from before its item: resuming makes the item again."""
        before, given = start, start[slot]
        for item, mark in items:
            for copy in range(given, self.times - 1):
                yield item, with_slot(before, slot, copy + 1)
            before, given = with_slot(mark, slot, 0), 0
            yield item, before


@dataclass(frozen=True)
class Map:
    """A function of each example, or of each batch."""

    function: Callable[..., Any]
    seed: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Filter:
    """Only those for which a function says so."""

    function: Callable[[Any], Any]


@dataclass(frozen=True)
class Cache:
    """Examples kept once they are made, within a budget."""

    store: Any


@dataclass(frozen=True)
class Batch:
    """So many examples as one dict of columns."""

    size: int
    drop_remainder: bool = False
    pad: Any = None


@dataclass(frozen=True)
class Bucket:
    """Examples of about the same length in a batch."""

    by: str | Callable[[Any], int]
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    drop_remainder: bool = False
    pad: Any = None


@dataclass(frozen=True)
class Pack:
    """Rows of one length, cut out of the examples one after the other."""

    length: int
    drop_remainder: bool = False
    pad: Any = 0
    segments: bool = False


@dataclass(frozen=True)
class Pick:
    """A function for `map`: some fields of what came before it."""

    names: tuple[str, ...]

    def __call__(self, item: Mapping[str, Any]) -> dict[str, Any]:
        return {name: item[name] for name in self.names}


OrderStep = Shuffle | Repeat | Take | Skip | Echo
Step = Map | Filter | Cache | Batch | Bucket | Pack | Take | Skip | Echo
STATEFUL = (Take, Skip, Echo, Pack, Bucket)  # those with a number in a mark


def with_slot(mark: Mark, slot: int, value: int) -> Mark:
    """A mark with one of its numbers changed."""
    return (*mark[:slot], value, *mark[slot + 1 :])


def describe(step: Any) -> str:
    """A step as it is written: shuffle(seed=7). What has its default is left out, a function goes by its name."""
    told = []
    for field in fields(step):
        value = getattr(step, field.name)
        if field.name != "threads" and (field.default is MISSING or value != field.default):
            told.append(_told(value) if field.default is MISSING else f"{field.name}={_told(value)}")
    return f"{type(step).__name__.lower()}({', '.join(told)})"


def _told(value: Any) -> str:
    if isinstance(value, Pick):
        return " ".join(value.names)
    text = function_name(value) if callable(value) else repr(value)
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


def function_name(function: Any) -> str:
    """What a function is called."""
    if isinstance(function, partial):
        return function_name(function.func)
    return getattr(function, "__qualname__", type(function).__qualname__).replace("<locals>.", "")
