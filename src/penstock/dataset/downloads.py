"""Shards in a store: downloaded whole into a cache, on threads, or read in ranges of bytes."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import numpy as np

from .._core import Images, Index, Plan, Shards, crc32c
from ..errors import CorruptionError, ElsewhereError, PenstockError, StorageError
from ..records.index import SUFFIX
from ..schema.columns import Array, Columns, ExampleDict, Value
from ..storage.cache import Cache, RemoteFile, checksum_tag
from ..storage.open import open_store
from ..storage.store import join_url
from .manifest import ShardEntry, index_file, shard_column, shard_paths
from .shards import NamedFiles, Remote, ShardFile, ShardFiles, bring_beside

Result = TypeVar("Result")

THREADS = 4  # shards that come at a time
BEAT = 0.05  # seconds that the core waits before it looks whether it is still wanted


class Fetcher:
    """Brings shards when the core asks for them, and before. Threads end when there is nothing to do.

    A process that was forked begins anew.

    here  the shards that were asked for, for all that is known: others may take them away
    kept  files that go last when room is made, the dearest first
    """

    def __init__(self, files: ShardFiles) -> None:
        self._files = files
        self._begin()

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The numbers of shards, by their paths."""
        return {place[0]: number for number, place in enumerate(self._files.places())}

    def _file(self, path: str) -> ShardFile:
        return self._files[self._numbers[path]]

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._queue: deque[str] = deque()
        self._coming: dict[str, _Coming] = {}
        self._threads = 0
        self._generation = 0
        self.here: set[str] = set()
        self.kept: Sequence[Path] = ()

    def bring(self, path: str | os.PathLike[str]) -> bool:
        """Wait a little for a shard; whether it is there. This is what the core calls."""
        file = self._file(os.fspath(path))
        if self.has(file):
            return True
        coming = self.want(file.path, urgent=True)
        if not coming.done.wait(BEAT):
            return False
        self._done(file.path, coming)
        if coming.error is not None and coming.generation == self._generation:
            raise coming.error
        return coming.error is None

    def get(self, paths: Iterable[str]) -> None:
        """Wait for shards."""
        self.retry()
        wanted = list(paths)
        for path in wanted:
            if not self.has(self._file(path)):
                self.want(path)
        for path in wanted:
            while not self.bring(path):
                pass

    def has(self, file: ShardFile) -> bool:
        """Whether a shard can be read; then it counts as used."""
        if self._process != os.getpid():
            self._begin()
        if file.remote is None:
            return True
        if not file.remote.cache.has(file.remote.file) or not (file.sidecar is None or os.path.exists(file.sidecar)):
            return False
        self.here.add(file.path)
        return True

    def want(self, path: str, *, urgent: bool = False) -> _Coming:
        """Let a shard come. One that is urgent comes before all others that have not begun."""
        if self._process != os.getpid():
            self._begin()
        self.here.add(path)
        if urgent and self.kept:
            self.kept = (*paths_of(self._file(path)), *self.kept)
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

    def retry(self) -> None:
        """Forget errors of downloads that began before: the reason may be gone, and whoever asks now tries again."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            self._generation += 1
            self._coming = {path: coming for path, coming in self._coming.items() if coming.error is None}

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
                coming.generation = self._generation
            try:
                bring(self._file(path), lambda: self.kept)
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
        self.generation = 0  # in which it began


def bring(file: ShardFile, kept: Callable[[], Sequence[Path]] = tuple) -> None:
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


def paths_of(file: ShardFile) -> list[Path]:
    """The files of a shard in its cache: itself, and its index."""
    return [Path(path) for path in (file.path, file.sidecar) if path is not None]


def _go_on() -> None:
    if not threading.main_thread().is_alive():
        raise StorageError("stopped: the program ends")


class StoredFiles(NamedFiles):
    """The same, in a folder of a store; they come into a cache. See `Remote`."""

    def __init__(
        self, shards: Sequence[ShardEntry], url: str, cache: Cache, told: RemoteFile | None, ranged: bool
    ) -> None:
        super().__init__(shards, url)
        self._cache = cache
        self._told = told
        self._ranged = ranged

    def _file(self, at: int) -> ShardFile:
        shard = self._shards[at]
        file = RemoteFile(join_url(self._directory, shard.file), shard.bytes, shard.crc32c)
        path = str(self._cache.path(file))
        remote = Remote(file, self._cache, self._told, self._ranged)
        return ShardFile(path, shard.records, shard.bytes, index_file(path), remote=remote)

    def _paths(self) -> list[str]:
        folder = os.path.join(self._cache.place(self._directory.rstrip("/")), "")
        tags, names = shard_column(self._shards, "crc32c"), shard_paths(self._shards, os.sep)
        return [folder + checksum_tag(tag) + name for tag, name in zip(tags, names, strict=True)]

    def _places(self) -> list[str]:
        return shard_paths(self._shards, join_url(self._directory, ""))

    @property
    def elsewhere(self) -> bool:
        """Whether they are in a store."""
        return True


# Single examples
HEAD = 4096  # bytes at a shard's beginning, which say what it is
TAIL = 1 << 16  # bytes at the end of one that has its table there
LEAST = 4096  # bytes that are asked for where the core misses fewer
KEPT = 64 << 20  # bytes of each shard that are kept once they were read
PARALLEL = 16  # shards that are asked at a time
ROUNDS = 1000


class Ranges:
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

    def are_local(self, numbers: Array | Sequence[int]) -> bool:
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

    def example(self, plan: Plan, number: int, images: Images | None = None) -> ExampleDict:
        """One example, decoded."""
        self._bring([number])
        return self._answered(lambda: self._shards.example(plan, number, images))

    def examples(
        self, plan: Plan, numbers: Array | Sequence[int], images: Images | None = None, threads: int = 1
    ) -> Columns:
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

    def _each(self, work: Callable[..., None], items: Sequence[tuple[Value, ...]]) -> None:
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
        parts: Sequence[Value]
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
