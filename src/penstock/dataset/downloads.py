"""Shards of a store on their way into the cache: on threads, those first that someone waits for."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

from .._core import Index, crc32c
from ..errors import CorruptionError, PenstockError, StorageError
from ..records.index import SUFFIX
from ..storage.open import open_store
from .shards import ShardFile, ShardFiles

THREADS = 4  # shards that come at a time
ATTEMPTS = 10  # to put a small file where others make room
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


def bring_beside(file: ShardFile, suffix: str, check: Callable[[Path], object] = lambda path: None) -> Path:
    """Bring a small file that stands beside a shard into its cache; nobody sees it there before it was checked."""
    assert file.remote is not None
    path = Path(file.path + suffix)
    if path.exists():
        return path
    file.remote.cache.claim()
    store, name = open_store(file.remote.file.url + suffix)
    data = store.read(name)
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    for _ in range(ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            check(fresh)
            os.replace(fresh, path)
            return path
        except (FileExistsError, FileNotFoundError):  # another process makes room, and removes the folder
            continue
        finally:
            fresh.unlink(missing_ok=True)
    raise StorageError(f"expected a file to stay where it was put, got nothing there {ATTEMPTS} times - at {path}")


def paths_of(file: ShardFile) -> list[Path]:
    """The files of a shard in its cache: itself, and its index."""
    return [Path(path) for path in (file.path, file.sidecar) if path is not None]


def _go_on() -> None:
    if not threading.main_thread().is_alive():
        raise StorageError("stopped: the program ends")
