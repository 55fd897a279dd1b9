"""A bounded folder of files that came from a store. Processes share it; the least recently used file is deleted first.

FOLDER/penstock-shards/                                          the cache: a subfolder of the folder that a user gives
  CACHEDIR.TAG                                                   marks it as Penstock's; backup programs skip it
  0f3a…-photos/1c2d3e4f/photos-train.tfrecord-00000-of-00002     a file: whole, its content checked
  0f3a…-photos/1c2d3e4f/.photos-train….partial                   a file being downloaded, with its final size
  .locks/                                                        held while a file is downloaded or deleted

Everything in the subfolder may be deleted at any time, and a process may be killed at any time. Only files two levels
down, below folders of these names, are counted and deleted. A subfolder that holds other files and no mark is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from ..errors import CorruptionError, SchemaError, StorageError, redact
from .local import publish, try_lock, unlock
from .open import open_store
from .store import Buffer, is_url, url_name

MOST = 100 << 30  # bytes, where nobody says how many, and no more than half of the room that there is
PATIENCE = 600.0  # seconds that a file is waited for which another process brings
CREATIONS = 20  # attempts to create a file in a folder that others remove
ATTEMPTS = 3  # to get a file that is what it should be
SUBFOLDER = "penstock-shards"
MARK = "CACHEDIR.TAG"  # see bford.info/cachedir
MARK_TEXT = """Signature: 8a477f597d28d172789f06886806bc55
# This folder is a cache of Penstock: shards of datasets in object stores.
# Penstock deletes files here to make room. You may delete the folder at any time.
"""
LOCKS = ".locks"
_PARTIAL = ".partial"
_PLACE = re.compile(r"[0-9a-f]{12}-[\w.-]*")  # see Cache.place
_TAG = re.compile(r"[0-9a-f]{8}")  # see RemoteFile.tag
Checksum = Callable[[Buffer, int], int]  # of blocks, one after the other: going on from a value


@dataclass(frozen=True)
class RemoteFile:
    """An object, and what it has to be: its size, and its CRC-32C or its version."""

    url: str
    size: int
    crc32c: int | None = None
    version: str | None = None

    def __repr__(self) -> str:
        return f"RemoteFile({redact(self.url)!r}, {self.size}, {self.crc32c}, {self.version!r})"

    @property
    def tag(self) -> str:
        """What tells its content from others that had its name."""
        if self.crc32c is not None:
            return checksum_tag(self.crc32c)
        return blake2b(f"{self.size} {self.version}".encode(), digest_size=4).hexdigest()


def checksum_tag(crc32c: int) -> str:
    """The tag of a file whose CRC-32C is known."""
    return f"{crc32c:08x}"


class Cache:
    """The folder, and how many bytes it may have.

    given   the user's folder, or None for the default one
    folder  the folder that holds the cache and nothing else
    """

    def __init__(self, given: str | os.PathLike[str] | None = None, most: int | None = None) -> None:
        self.given = None if given is None else os.fspath(given)
        self.folder = default_folder() if self.given is None else Path(self.given) / SUBFOLDER
        self._most = most

    def __reduce__(self) -> tuple[object, ...]:
        return Cache, (self.given, self._most)

    def __repr__(self) -> str:
        return f"Cache({str(self.folder)!r}, {self._most})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cache) and (self.folder, self._most) == (other.folder, other._most)

    def __hash__(self) -> int:
        return hash((self.folder, self._most))

    @property
    def most(self) -> int:
        """How many bytes it may have."""
        if self._most is None:
            self.claim()
            free = shutil.disk_usage(self.folder).free
            self._most = min(MOST, (free + sum(size for _, size, _ in self._files())) // 2)
        return self._most

    def claim(self) -> None:
        """Create the folder with its mark. Raise StorageError for a folder that may hold files of someone else."""
        if self._is_marked():
            return
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            if not self.folder.exists():
                self._create()
            foreign = [name for name in sorted(os.listdir(self.folder)) if not _is_cache_name(name)]
            if not foreign:  # made by an earlier version, or deleted in part while it was in use
                publish(self.folder / MARK, MARK_TEXT.encode())
        except OSError as error:
            raise StorageError(f"cannot create the cache: {error} - at {self.folder}") from error
        if not self._is_marked():
            got = f"a folder that holds {foreign[0]} and no {MARK} of Penstock"
            hint = f"Move {self.folder.name} away, or give another folder: cache="
            raise StorageError(f"expected a cache of Penstock or nothing, got {got} - at {self.folder}. {hint}")

    def _is_marked(self) -> bool:
        try:
            text = (self.folder / MARK).read_bytes()
        except OSError:
            return False
        return text.startswith(MARK_TEXT.partition("\n")[0].encode()) and b"Penstock" in text

    def _create(self) -> None:
        """Create the folder and its mark in one step, unless another process is faster."""
        fresh = self.folder.with_name(f".{self.folder.name}-{os.getpid()}-{uuid4().hex[:8]}")
        fresh.mkdir()
        try:
            (fresh / MARK).write_text(MARK_TEXT, encoding="utf-8")
            os.rename(fresh, self.folder)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            if not self.folder.is_dir():
                raise

    def path(self, file: RemoteFile) -> Path:
        """Where a file is, or will be."""
        return self.place(file.url.rpartition("/")[0]) / file.tag / url_name(file.url)

    def place(self, url: str) -> Path:
        """Where the files of a folder are: each below its tag."""
        digest = blake2b(url.encode(), digest_size=6).hexdigest()
        name = re.sub(r"[^\w.-]", "_", url_name(redact(url)))[:60]
        return self.folder / f"{digest}-{name}"

    def has(self, file: RemoteFile) -> bool:
        """Whether a file is there; then it counts as used."""
        try:
            os.utime(self.path(file))
        except OSError:
            return False
        return True

    def get(
        self,
        file: RemoteFile,
        checksum: Checksum,
        kept: Callable[[], Sequence[Path]] = tuple,
        pulse: Callable[[], None] = lambda: None,
    ) -> Path:
        """A file, brought if it is not there.

        kept   those that go last to make room for it, the dearest first
        pulse  called now and then; what it raises ends the waiting
        """
        self.claim()
        path = self.path(file)
        deadline = time.monotonic() + PATIENCE
        while not self.has(file):
            lock = try_lock(self._lock_path(path))
            if lock is None:  # another process brings it
                pulse()
                if time.monotonic() > deadline:
                    got = "one that another process has been bringing for longer"
                    raise StorageError(f"expected a file within {PATIENCE:.0f} s, got {got} - at {path}")
                time.sleep(0.01)
                continue
            try:
                if not path.exists():
                    self._bring(file, path, checksum, kept, pulse)
            finally:
                self._lock_path(path).unlink(missing_ok=True)
                unlock(lock)
        return path

    def _bring(
        self,
        file: RemoteFile,
        path: Path,
        checksum: Checksum,
        kept: Callable[[], Sequence[Path]],
        pulse: Callable[[], None],
    ) -> None:
        store, name = open_store(file.url)
        partial = path.with_name(f".{path.name}{_PARTIAL}")
        for attempt in range(1, ATTEMPTS + 1):
            partial.unlink(missing_ok=True)  # of a process that was killed
            self._make_room(partial, file.size, kept, pulse)
            value = 0

            def told(block: Buffer) -> None:
                nonlocal value
                pulse()
                if file.crc32c is not None:
                    value = checksum(block, value)

            try:
                store.fetch(name, partial, size=file.size, version=file.version, told=told)
                if file.crc32c is None or value == file.crc32c:
                    with self._alone():  # who counts the files meanwhile would miss it
                        os.replace(partial, path)
                    return
                if attempt == ATTEMPTS:
                    got = f"{value:#010x} in {ATTEMPTS} attempts: it was replaced, or is damaged"
                    hint = "Load the dataset again"
                    raise CorruptionError(f"expected CRC-32C {file.crc32c:#010x}, got {got}. {hint}", file.url)
            except OSError as error:
                if isinstance(error, StorageError):
                    raise
                raise StorageError(
                    f"expected room for {file.size} bytes, got an error: {error} - at {partial}"
                ) from None
            finally:
                partial.unlink(missing_ok=True)

    # Room

    def _make_room(
        self, partial: Path, size: int, kept: Callable[[], Sequence[Path]], pulse: Callable[[], None]
    ) -> None:
        """Take room for a file; where files that are coming have all of it, when one of them is there."""
        if size > self.most:
            hint = "Give more: cache_bytes="
            raise StorageError(f"expected a cache of {size} bytes or more, got {self.most} - at {self.folder}. {hint}")
        deadline = time.monotonic() + PATIENCE
        while not self._take_room(partial, size, kept()):
            pulse()
            if time.monotonic() > deadline:
                got = "one full of files that are coming"
                raise StorageError(f"expected room in the cache within {PATIENCE:.0f} s, got {got} - at {self.folder}")
            time.sleep(0.01)

    def _take_room(self, partial: Path, size: int, kept: Sequence[Path]) -> bool:
        """Let go of what was not used for longest, and take the room, if there is any: an empty file of that size."""
        with self._alone():
            dear = {path: len(kept) - at for at, path in enumerate(kept)}
            files = sorted(self._files(), key=lambda found: (dear.get(found[0], 0), found[2]))
            total = sum(size for _, size, _ in files)
            for path, length, _ in files:
                if total + size <= self.most:
                    break
                if path.suffix != _PARTIAL or self._is_left_over(path):
                    path.unlink(missing_ok=True)
                    total -= length
                    with suppress(OSError):
                        path.parent.rmdir()
            if total + size > self.most:
                return False
            with _create(partial) as file:
                file.truncate(size)
            return True

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        """Each file of the cache with its size and the time it was last used; no other file."""
        for place in _folders(self.folder, _PLACE):
            for tag in _folders(place, _TAG):
                with suppress(FileNotFoundError, NotADirectoryError), os.scandir(tag) as entries:
                    for entry in entries:
                        with suppress(FileNotFoundError):
                            if entry.is_file(follow_symlinks=False):
                                about = entry.stat(follow_symlinks=False)
                                yield Path(entry.path), about.st_size, about.st_mtime

    def _is_left_over(self, partial: Path) -> bool:
        """Whether nobody writes a file any more."""
        path = self._lock_path(partial.with_name(partial.name[1 : -len(_PARTIAL)]))
        lock = try_lock(path)
        if lock is None:
            return False
        path.unlink(missing_ok=True)
        unlock(lock)
        return True

    def _lock_path(self, path: Path) -> Path:
        digest = blake2b(str(path).encode(), digest_size=12).hexdigest()
        return self.folder / LOCKS / digest

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other process or thread makes room."""
        deadline = time.monotonic() + PATIENCE
        while (lock := try_lock(self.folder / LOCKS / "room")) is None:
            if time.monotonic() > deadline:
                raise StorageError(f"expected to make room within {PATIENCE:.0f} s, got a lock - at {self.folder}")
            time.sleep(0.002)
        try:
            yield
        finally:
            unlock(lock)


def _create(path: Path) -> BinaryIO:
    """Open a new file in a folder of its own. Another process may remove the empty folder: then it is made again."""
    for attempt in range(CREATIONS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("wb")
        except (FileExistsError, FileNotFoundError):
            if attempt + 1 == CREATIONS:
                raise
    raise AssertionError("unreachable")


def _folders(folder: Path | str, pattern: re.Pattern[str]) -> list[str]:
    """Folders of a folder whose names match, without symbolic links."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return [each.path for each in entries if pattern.fullmatch(each.name) and each.is_dir(follow_symlinks=False)]
    return []


def _is_cache_name(name: str) -> bool:
    """True for a name that the cache uses directly below its folder, besides its mark."""
    return name == LOCKS or _PLACE.fullmatch(name) is not None or name.startswith(f".{MARK}.")


def default_folder() -> Path:
    """The cache where no folder is given: the folder itself, no subfolder of it."""
    return cache_home() / "shards"


def cache_home() -> Path:
    """The folder of all that may be deleted: in $XDG_CACHE_HOME, which has to be on a local disk."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if is_url(home):
        raise SchemaError("expected a local folder in XDG_CACHE_HOME, got a URL", home)
    return Path(home) / "penstock"
