"""Shards of a store that an epoch needs next, downloaded before it reads them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from .._core import Order, Shards
from ..dataset.downloads import Fetcher, paths_of
from ..dataset.shards import ShardFile
from ..errors import StorageError

AHEAD = 1 << 30  # bytes of shards, or a few of them, that are brought before they are needed
AT_LEAST = 4  # shards
AT_ONCE = 1 << 16  # positions of a step, at most
FORESEEN = 1 << 14  # steps that are known before they are needed, at most
AT_FIRST = 1 << 10  # steps that are looked at before an epoch begins: a tenth of a second, or less
PACE = 16  # steps that are looked at for each that has passed


class Schedule:
    """Which shards an epoch needs in which of its steps, as far ahead as was looked.

    steps  where each ends, and its shards in the order in which they are needed
    """

    def __init__(self, order: Order, epoch: int, first: int, records: Sequence[int]) -> None:
        self._order, self._epoch, self._next = order, epoch, first
        self._starts = np.cumsum([0, *records])
        self.step = max(1, min(AT_ONCE, max(records) // 4))
        self.steps: deque[tuple[int, list[int]]] = deque()
        self._uses: dict[int, deque[int]] = {}  # the ends of the steps that need a shard

    def look(self, steps: int) -> None:
        """Look so many steps further, if the epoch has as many, and they are not too many to remember."""
        length = self._order.length
        for _ in range(min(steps, FORESEEN - len(self.steps))):
            stop = self._next + self.step if length is None else min(self._next + self.step, length)
            if stop <= self._next:
                return
            numbers = self._order.numbers(self._epoch, self._next, stop)
            found, at = np.unique(np.searchsorted(self._starts, numbers, side="right") - 1, return_index=True)
            shards = found[np.argsort(at)].tolist()
            self.steps.append((stop, shards))
            for shard in shards:
                self._uses.setdefault(shard, deque()).append(stop)
            self._next = stop

    def take(self) -> tuple[int, list[int]]:
        """The first step, which is ahead no longer."""
        stop, shards = self.steps.popleft()
        for shard in shards:
            uses = self._uses[shard]
            uses.popleft()
            if not uses:
                del self._uses[shard]
        return stop, shards

    def next_use(self, shard: int) -> int | None:
        """Where the first step ends that needs a shard; None if none does as far as was looked."""
        uses = self._uses.get(shard)
        return None if uses is None else uses[0]


class Prefetch:
    """Brings the shards of the next steps. What later ones need again goes last, that of the latest first.

    Windows of a shuffle share the shards at their borders, and may come at any distance from each other. With room for
    those that wait for their other window, each shard is brought once.
    """

    def __init__(
        self, fetcher: Fetcher, shards: Shards, files: Sequence[ShardFile], order: Order, epoch: int, first: int
    ) -> None:
        fetcher.retry()
        files = tuple(files)  # each is described once
        self._fetcher, self._shards, self._files = fetcher, shards, files
        self._numbers = {file.path: shard for shard, file in enumerate(files)}
        self._room = min(file.remote.cache.most for file in files if file.remote is not None)
        self._sizes = [0 if file.remote is None else file.bytes + _index_bytes(file) for file in files]
        self._all_fit = sum(self._sizes) <= self._room
        self._ahead = min(self._room, max(AHEAD, AT_LEAST * max(self._sizes)))
        self._steps: deque[tuple[int, list[int]]] = deque()  # those that are under way
        self._schedule = Schedule(order, epoch, first, [file.records for file in files])
        if not self._all_fit:
            self._schedule.look(min(AT_FIRST, AT_ONCE * PACE // self._schedule.step))
            fetcher.here = {file.path for file in files if file.remote is not None and os.path.exists(file.path)}
        self._extend()

    def within(self, budget: int) -> int:
        """The memory that a feed may take: what it reads ahead, a third of it, may not outrun what is brought."""
        return budget if self._all_fit else min(budget, 3 * self._room // 8)

    def passed(self, position: int) -> None:
        """All before a position was read: what only that needed may go, and more may come."""
        if not self._steps or self._steps[0][0] > position:
            return
        gone: set[int] = set()
        while self._steps and self._steps[0][0] <= position:
            gone.update(self._steps.popleft()[1])
            if not self._all_fit:
                self._schedule.look(PACE)
        self._extend()
        for shard in gone.difference(*(shards for _, shards in self._steps)):
            self._shards.rest(shard)

    def close(self) -> None:
        """Nothing more is needed."""
        self._fetcher.forget()
        self._fetcher.kept = ()

    def _extend(self) -> None:
        needed = {shard for _, shards in self._steps for shard in shards}
        while True:
            if not self._schedule.steps:
                self._schedule.look(1)
            if not self._schedule.steps or not self._has_room(needed.union(self._schedule.steps[0][1])):
                break
            self._steps.append(self._schedule.take())
            coming = [shard for shard in self._steps[-1][1] if shard not in needed]
            needed.update(coming)
            self._keep(needed)
            for file in (self._files[shard] for shard in coming):
                if not self._fetcher.has(file):
                    self._fetcher.want(file.path)

    def _has_room(self, needed: set[int]) -> bool:
        """Whether some shards may be here at a time: the next step's have to, more only beside what is needed again."""
        size = self._size(needed)
        if not self._steps:
            if size > self._room:
                raise _too_little(size, self._room)
            return True
        if size > self._ahead:
            return False
        return self._all_fit or size <= self._room // 2 or size + self._size(self._waiting(needed)) <= self._room

    def _waiting(self, needed: set[int]) -> list[int]:
        """The shards that are here for a later step, the next one's first."""
        if self._all_fit:
            return []
        here = (self._numbers[path] for path in tuple(self._fetcher.here) if path in self._numbers)
        uses = [(use, shard) for shard in here if shard not in needed and (use := self._schedule.next_use(shard))]
        return [shard for _, shard in sorted(uses)]

    def _keep(self, needed: set[int]) -> None:
        """Say what is dear: what is needed now, then as much of what is needed again as there is room for."""
        kept, left = list(needed), self._room - self._size(needed)
        for shard in self._waiting(needed):
            left -= self._sizes[shard]
            if left < 0:
                self._fetcher.here.discard(self._files[shard].path)
            else:
                kept.append(shard)
        self._fetcher.kept = tuple(path for shard in kept for path in paths_of(self._files[shard]))

    def _size(self, shards: Iterable[int]) -> int:
        return sum(self._sizes[shard] for shard in shards)


def _index_bytes(file: ShardFile) -> int:
    """About what an index takes in the cache."""
    return 0 if file.sidecar is None else 8 * file.records + 256


def _too_little(size: int, room: int) -> StorageError:
    expected = f"expected a cache of {size} bytes or more for the shards that are read at the same time, got {room}"
    return StorageError(f"{expected}. Give cache_bytes=, or shuffle within a window: shuffle(window=...)")
