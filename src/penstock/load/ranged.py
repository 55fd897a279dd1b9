"""Examples of shards that are elsewhere, read by themselves: a few small requests, never a whole shard."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from .._core import Images, Plan, Shards
from ..columns import Array
from ..errors import ElsewhereError, StorageError
from ..storage import open_store
from .fetching import Fetcher, bring_index
from .shard_files import ShardFiles

Result = TypeVar("Result")

HEAD = 4096  # bytes at a shard's beginning, which say what it is
TAIL = 1 << 16  # bytes at the end of one that has its table there
LEAST = 4096  # bytes that are asked for where the core misses fewer
KEPT = 64 << 20  # bytes of each shard that are kept once they were read
PARALLEL = 16  # shards that are asked at a time
ROUNDS = 1000


class Ranged:
    """Reads like `Shards`, without having them. Shards that the cache has are read from there.

    Every part that is read is of one version of its object; that this is the one which the manifest speaks of is made
    sure when a shard is first read: a build that replaces shards takes the manifest away before.
    """

    def __init__(self, files: ShardFiles, fetcher: Fetcher) -> None:
        self._files = files
        self._fetcher = fetcher
        self._starts = list(accumulate(files.records, initial=0))
        self._begin()

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The numbers of shards, by where they are."""
        return {place[0]: number for number, place in enumerate(self._files.places(at_source=True))}

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._versions: dict[int, str | None] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._shards = Shards.in_pieces(self._files.places(at_source=True), self._files.sizes)

    def are_here(self, numbers: Array | Sequence[int]) -> bool:
        """Whether all shards of some examples can be read where they are. Those that cannot be read in parts come."""
        if len(numbers) == 1:
            wanted = [bisect_right(self._starts, int(numbers[0])) - 1]
        else:
            wanted = (np.unique(np.searchsorted(self._starts, numbers, side="right")) - 1).tolist()
        away = [self._files[shard] for shard in wanted if not os.path.exists(self._files[shard].path)]
        whole = [file.path for file in away if file.remote is not None and not file.remote.ranged]
        if whole:
            self._fetcher.get(whole)
        return len(whole) == len(away)

    def example(self, plan: Plan, number: int, images: Images | None = None) -> dict[str, Any]:
        """One example, decoded."""
        self._bring([number])
        return self._answered(lambda: self._shards.example(plan, number, images))

    def examples(
        self, plan: Plan, numbers: Array | Sequence[int], images: Images | None = None, threads: int = 1
    ) -> dict[str, Any]:
        """Some examples, decoded into columns."""
        self._bring(numbers)
        return self._answered(lambda: self._shards.examples(plan, numbers, images, threads))

    def _bring(self, numbers: Array | Sequence[int]) -> None:
        """Put here what the examples need."""
        if self._process != os.getpid():
            self._begin()
        shards = {self._shards.shard(int(number))[0] for number in numbers}
        self._each(self._prepare, [(shard,) for shard in shards if shard not in self._versions])
        wanted: dict[int, set[tuple[int, int]]] = {}
        for shard, start, stop in self._answered(lambda: self._shards.places(numbers)):
            wanted.setdefault(shard, set()).add((start, stop - start))
        self._each(self._put, [(shard, sorted(ranges)) for shard, ranges in wanted.items()])

    def _each(self, work: Callable[..., None], items: Sequence[tuple[Any, ...]]) -> None:
        if len(items) <= 1:
            for item in items:
                work(*item)
            return
        with self._lock:
            self._pool = self._pool or ThreadPoolExecutor(PARALLEL, thread_name_prefix="penstock-shards")
        for done in [self._pool.submit(work, *item) for item in items]:
            done.result()

    def _prepare(self, shard: int) -> None:
        """Make sure that a shard is what the manifest says, and have what its reading begins with."""
        file = self._files[shard]
        if file.remote is None or os.path.exists(file.path):
            self._versions[shard] = None
        else:
            store, name = open_store(file.remote.file.url)
            entry = store.entry(name)
            if entry.size != file.bytes:
                got = f"{entry.size}: it was replaced. Load the dataset again"
                raise StorageError(f"expected an object of {file.bytes} bytes, got {got} - at {file.remote.file.url}")
            file.remote.check_manifest()
            if file.sidecar is not None:
                bring_index(file)
            self._versions[shard] = entry.version
        ends = [(0, min(HEAD, file.bytes))]
        if file.sidecar is None and file.bytes > HEAD + TAIL:
            ends.append((file.bytes - TAIL, TAIL))
        self._put(shard, ends)

    def _put(self, shard: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Read parts of a shard."""
        file = self._files[shard]
        parts: Sequence[Any]
        try:
            parts = _read_local(file.path, ranges)
        except FileNotFoundError:
            if file.remote is None:
                raise
            store, name = open_store(file.remote.file.url)
            parts = store.read_ranges(name, ranges, version=self._versions.get(shard))
        most = max(KEPT, 2 * sum(length for _, length in ranges))
        for (start, _), part in zip(ranges, parts, strict=True):
            self._shards.put(shard, start, part, most)

    def _answered(self, ask: Callable[[], Result]) -> Result:
        """What the core says, once it has all that it needs for it."""
        for _ in range(ROUNDS):
            try:
                return ask()
            except ElsewhereError as missing:
                shard = self._numbers[missing.path]
                length = min(max(missing.length, LEAST), self._files[shard].bytes - missing.offset)
                self._put(shard, [(missing.offset, length)])
        raise StorageError(
            f"expected to have a few examples after {ROUNDS} requests, got still less - at {self._files[0].place}"
        )


def _read_local(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    with open(path, "rb", buffering=0) as file:
        return [os.pread(file.fileno(), length, start) for start, length in ranges]
