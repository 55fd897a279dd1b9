"""What a shard is that lies in a store: its object, and the cache that it comes into."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, repeat
from typing import Any, overload

from ..errors import NotFoundError, StorageError
from ..records.index import SUFFIX
from ..records.tar import Rule
from ..storage.cache import Cache, RemoteFile, checksum_tag
from ..storage.local import FileStamp
from ..storage.open import open_store
from ..storage.store import join_url
from .manifest import ShardEntry, index_file, shard_column, shard_paths


@dataclass(frozen=True)
class Remote:
    """A shard in a store.

    manifest  the object that says what the shard is, if there is one
    ranged    whether a record can be read by itself: not where the whole is compressed
    """

    file: RemoteFile
    cache: Cache
    manifest: RemoteFile | None = None
    ranged: bool = False

    def check_manifest(self) -> None:
        """Make sure that the dataset is still the one that was opened."""
        if self.manifest is None:
            return
        store, name = open_store(self.manifest.url)
        try:
            version = store.entry(name).version
        except NotFoundError:
            version = None
        if version != self.manifest.version:
            expected = "expected the dataset that was opened, got one that was built again"
            raise StorageError(f"{expected} - at {self.manifest.url}. Load it again")


Place = tuple[str, int, str | None, tuple[Rule, ...] | None]  # of a shard, for the core: path, records, sidecar, rules


@dataclass(frozen=True)
class ShardFile:
    """A shard that can be read: its file, what it holds, and the index that says where.

    rules       what the files of a tar are read as
    inflated    the bytes of a compressed tar once it is inflated to be read; 0 of all others
    remote      where it comes from, if the path is that of a cache
    stamp       the file that must be unchanged when it is opened: itself
    """

    path: str
    records: int
    bytes: int
    sidecar: str | None
    rules: tuple[Rule, ...] | None = None
    inflated: int = 0
    remote: Remote | None = None
    stamp: FileStamp | None = None

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.path if self.remote is None else self.remote.file.url


class ShardFiles(Sequence[ShardFile]):
    """Shards one after the other. What is asked of all of them comes in lists."""

    def __init__(self, files: Iterable[ShardFile]) -> None:
        self._files = tuple(files)

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, at: int) -> ShardFile: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[ShardFile, ...]: ...
    def __getitem__(self, at: int | slice) -> ShardFile | tuple[ShardFile, ...]:
        if isinstance(at, slice):
            return tuple(self._file(each) for each in range(len(self))[at])
        return self._file(range(len(self))[at])

    def _file(self, at: int) -> ShardFile:
        return self._files[at]

    @property
    def records(self) -> list[int]:
        """How many records each has."""
        return [file.records for file in self]

    @property
    def sizes(self) -> list[int]:
        """How many bytes each has."""
        return [file.bytes for file in self]

    def places(self, *, at_source: bool = False) -> Sequence[Place]:
        """What the core must know of each. `at_source`: by the URLs of those that are in a store."""
        return _Places(self, at_source)

    def describe(self, at_source: bool) -> Iterator[Place]:
        """The same, one after the other."""
        return ((file.place if at_source else file.path, file.records, file.sidecar, file.rules) for file in self)

    @property
    def stamps(self) -> list[FileStamp | None]:
        """For each the file that must be unchanged when it is opened."""
        return [file.stamp for file in self]

    @property
    def elsewhere(self) -> bool:
        """Whether some are in a store."""
        return any(file.remote is not None for file in self)

    @property
    def inflated(self) -> list[ShardFile]:
        """Those that are inflated to be read."""
        return [file for file in self if file.inflated]


class _Places(Sequence[Place]):
    """What the core must know of shards, made while it reads it: as a list, it takes longer to keep than to make."""

    def __init__(self, files: ShardFiles, at_source: bool) -> None:
        self._files = files
        self._at_source = at_source

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]

    def __iter__(self) -> Iterator[Place]:
        return self._files.describe(self._at_source)


class NamedFiles(ShardFiles):
    """The shards of a split that a manifest names, in their directory.

    stamp  the manifest: a build removes it before it replaces a shard
    """

    def __init__(self, shards: Sequence[ShardEntry], directory: str, stamp: FileStamp | None = None) -> None:
        self._shards = shards
        self._directory = directory
        self._stamp = stamp

    def __len__(self) -> int:
        return len(self._shards)

    def _file(self, at: int) -> ShardFile:
        shard = self._shards[at]
        path = os.path.join(self._directory, shard.file)
        return ShardFile(path, shard.records, shard.bytes, index_file(path), stamp=self._stamp)

    @property
    def stamps(self) -> list[FileStamp | None]:
        """For each the file that must be unchanged when it is opened."""
        return [self._stamp] * len(self)

    @property
    def records(self) -> list[int]:
        """How many records each has."""
        return shard_column(self._shards, "records")

    @property
    def sizes(self) -> list[int]:
        """How many bytes each has."""
        return shard_column(self._shards, "bytes")

    def describe(self, at_source: bool) -> Iterator[Place]:
        """What the core must know of each."""
        paths = self._paths()
        indexed = bool(paths) and index_file(paths[0]) is not None  # or none: they are of one format
        sidecars = (path + SUFFIX for path in paths) if indexed else repeat(None)
        return zip(self._places() if at_source else paths, self.records, sidecars, repeat(None))

    def _paths(self) -> list[str]:
        return shard_paths(self._shards, os.path.join(self._directory, ""))

    def _places(self) -> list[str]:
        return self._paths()

    @property
    def elsewhere(self) -> bool:
        """Whether they are in a store."""
        return False

    @property
    def inflated(self) -> list[ShardFile]:
        """None: they are no tars."""
        return []


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


class JoinedFiles(ShardFiles):
    """The shards of several, as one."""

    def __init__(self, parts: Iterable[ShardFiles]) -> None:
        self._parts = list(parts)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self._parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._parts else 0

    def _file(self, at: int) -> ShardFile:
        part = bisect_right(self._ends, at)
        return self._parts[part][at - self._ends[part] + len(self._parts[part])]

    @property
    def records(self) -> list[int]:
        """How many records each has."""
        return [*chain.from_iterable(part.records for part in self._parts)]

    @property
    def sizes(self) -> list[int]:
        """How many bytes each has."""
        return [*chain.from_iterable(part.sizes for part in self._parts)]

    @property
    def stamps(self) -> list[FileStamp | None]:
        """For each the file that must be unchanged when it is opened."""
        return [*chain.from_iterable(part.stamps for part in self._parts)]

    def describe(self, at_source: bool) -> Iterator[Place]:
        """What the core must know of each."""
        return chain.from_iterable(part.describe(at_source) for part in self._parts)

    @property
    def elsewhere(self) -> bool:
        """Whether some are in a store."""
        return any(part.elsewhere for part in self._parts)

    @property
    def inflated(self) -> list[ShardFile]:
        """Those that are inflated to be read."""
        return [*chain.from_iterable(part.inflated for part in self._parts)]
