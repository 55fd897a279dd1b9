"""Shards of a store on their way into the cache: on threads, those first that someone waits for."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from .._core import Index, Order, Shards, crc32c
from ..errors import CorruptionError, PenstockError, StorageError
from ..records.index import SUFFIX
from ..storage import open_store
from .opening import ShardFile

THREADS = 4  # shards that come at a time
BEAT = 0.05  # seconds that the core waits before it looks whether it is still wanted
AHEAD = 1 << 30  # bytes of shards, or a few of them, that are brought before they are needed
AT_LEAST = 4  # shards


class Fetcher:
    """Brings shards when the core asks for them, and before. Threads end when there is nothing to do.

    A process that was forked begins anew.
    """

    def __init__(self, files: Iterable[ShardFile]) -> None:
        self._files = {file.path: file for file in files if file.remote is not None}
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._queue: deque[str] = deque()
        self._coming: dict[str, _Coming] = {}
        self._threads = 0
        self.kept: Collection[Path] = frozenset()

    def bring(self, path: str | os.PathLike[str]) -> bool:
        """Wait a little for a shard; whether it is there. This is what the core calls."""
        file = self._files.get(os.fspath(path))
        if file is None or file.remote is None or _is_here(file):
            return True
        coming = self.want(file.path, urgent=True)
        if not coming.done.wait(BEAT):
            return False
        self._done(file.path, coming)
        if coming.error is not None:
            raise coming.error
        return True

    def get(self, paths: Iterable[str]) -> None:
        """Wait for shards."""
        wanted = list(paths)
        for path in wanted:
            if not _is_here(self._files[path]):
                self.want(path)
        for path in wanted:
            while not self.bring(path):
                pass

    def want(self, path: str, *, urgent: bool = False) -> _Coming:
        """Let a shard come. One that is urgent comes before all others that have not begun."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            coming = self._coming.get(path)
            if coming is None:
                coming = self._coming[path] = _Coming()
                self._queue.append(path)
            if urgent and path in self._queue and self._queue[0] != path:
                self._queue.remove(path)
                self._queue.appendleft(path)
            begin = self._threads < THREADS and bool(self._queue)
            self._threads += begin
        if begin:
            threading.Thread(target=self._work, name="penstock-fetch").start()
        return coming

    def forget(self) -> None:
        """Leave what has not begun."""
        if self._process == os.getpid():
            with self._lock:
                for path in self._queue:
                    self._coming.pop(path).done.set()
                self._queue.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue or not threading.main_thread().is_alive():
                    self._threads -= 1
                    return
                path = self._queue.popleft()
                coming = self._coming[path]
            try:
                bring(self._files[path], lambda: self.kept)
            except (PenstockError, OSError, ValueError) as error:
                coming.error = error
            coming.done.set()
            if coming.error is None:
                self._done(path, coming)

    def _done(self, path: str, coming: _Coming) -> None:
        """A shard comes no longer; it may have gone meanwhile, and come once more."""
        with self._lock:
            if self._coming.get(path) is coming:
                del self._coming[path]


class _Coming:
    """A shard that comes."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: Exception | None = None


def bring(file: ShardFile, kept: Callable[[], Collection[Path]] = frozenset) -> None:
    """Bring a shard into its cache, and its index."""
    remote = file.remote
    assert remote is not None
    if file.sidecar is not None:
        bring_index(file)
    remote.cache.get(remote.file, crc32c, kept, _go_on)


def bring_index(file: ShardFile) -> None:
    """Bring the index of a shard into its cache. It has to be the index of that shard."""
    assert file.remote is not None
    wanted = file.remote.file

    def check(path: Path) -> None:
        index = Index.read(path)
        if (index.shard_size, index.shard_crc32c) != (wanted.size, wanted.crc32c):
            got = "that of another: the dataset was built again. Load it again"
            raise CorruptionError(f"expected the index of the shard that the manifest names, got {got}", wanted.url)

    bring_beside(file, SUFFIX, check)


def bring_beside(file: ShardFile, suffix: str, check: Callable[[Path], object] = lambda path: None) -> Path:
    """Bring a small file that stands beside a shard into its cache; nobody sees it there before it was checked."""
    assert file.remote is not None
    path = Path(file.path + suffix)
    if not path.exists():
        store, name = open_store(file.remote.file.url + suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            fresh.write_bytes(store.read(name))
            check(fresh)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    return path


def _is_here(file: ShardFile) -> bool:
    assert file.remote is not None
    here = file.remote.cache.has(file.remote.file)
    return here and (file.sidecar is None or os.path.exists(file.sidecar))


def _go_on() -> None:
    if not threading.main_thread().is_alive():
        raise StorageError("stopped: the program ends")


class Prefetch:
    """The shards of an epoch, brought some way ahead in reading order; those that are needed now stay."""

    def __init__(
        self, fetcher: Fetcher, shards: Shards, files: Sequence[ShardFile], order: Order, epoch: int, first: int
    ) -> None:
        self._fetcher, self._shards, self._files = fetcher, shards, files
        self._order, self._epoch, self._next = order, epoch, first
        self._starts = np.cumsum([0, *(file.records for file in files)])
        caches = {file.remote.cache for file in files if file.remote is not None}
        self._room = min(cache.most for cache in caches)
        largest = max(file.bytes for file in files)
        self._ahead = min(self._room, max(AHEAD, AT_LEAST * largest))
        self._step = max(1, min(1 << 16, max(file.records for file in files) // 4))
        self._steps: deque[tuple[int, list[int]]] = deque()  # where each ends, and the shards it needs
        self._extend()

    def passed(self, position: int) -> None:
        """All before a position was read: what only that needed may go, and more may come."""
        if not self._steps or self._steps[0][0] > position:
            return
        gone: set[int] = set()
        while self._steps and self._steps[0][0] <= position:
            gone.update(self._steps.popleft()[1])
        self._extend()
        for shard in gone.difference(*(shards for _, shards in self._steps)):
            self._shards.rest(shard)

    def close(self) -> None:
        """Nothing more is needed."""
        self._fetcher.forget()
        self._fetcher.kept = frozenset()

    def _extend(self) -> None:
        needed = {shard for _, shards in self._steps for shard in shards}
        length = self._order.length
        while length is None or self._next < length:
            stop = self._next + self._step if length is None else min(self._next + self._step, length)
            shards = self._needed(self._next, stop)
            size = sum(self._files[shard].bytes for shard in needed.union(shards))
            if size > self._ahead and (self._steps or size > self._room):
                if not self._steps:
                    raise _too_little(size, self._room)
                break
            self._steps.append((stop, shards))
            self._next = stop
            coming = [self._files[shard] for shard in shards if shard not in needed]
            needed.update(shards)
            self._keep(needed)
            for file in coming:
                if file.remote is not None and not _is_here(file):
                    self._fetcher.want(file.path)

    def _keep(self, needed: Iterable[int]) -> None:
        files = [self._files[shard] for shard in needed]
        beside = [Path(file.sidecar) for file in files if file.sidecar is not None]
        self._fetcher.kept = frozenset([*(Path(file.path) for file in files), *beside])

    def _needed(self, first: int, last: int) -> list[int]:
        """The shards of some positions, in the order in which they are needed."""
        shards = np.searchsorted(self._starts, self._order.numbers(self._epoch, first, last), side="right") - 1
        found, at = np.unique(shards, return_index=True)
        return [int(shard) for shard in found[np.argsort(at)]]


def _too_little(size: int, room: int) -> StorageError:
    expected = f"expected a cache of {size} bytes or more for the shards that are read at the same time, got {room}"
    return StorageError(f"{expected}. Give cache_bytes=, or shuffle within a window: shuffle(window=...)")
