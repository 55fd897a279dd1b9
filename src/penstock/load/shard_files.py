"""The shards of a dataset, to read from. There may be 100,000: each is described when it is looked at."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import Any, overload

from ..manifest import ShardEntry, ShardTable, index_file, shard_column
from ..records.index import SUFFIX
from ..records.tar import Rule
from .remote import Remote

Place = tuple[str, int, str | None, tuple[Rule, ...] | None]  # of a shard, for the core: path, records, sidecar, rules


@dataclass(frozen=True)
class ShardFile:
    """A shard that can be read: its file, what it holds, and the index that says where.

    rules       what the files of a tar are read as
    inflated    the bytes of a compressed tar once it is inflated to be read; 0 of all others
    remote      where it comes from, if the path is that of a cache
    """

    path: str
    records: int
    bytes: int
    sidecar: str | None
    rules: tuple[Rule, ...] | None = None
    inflated: int = 0
    remote: Remote | None = None

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

    @property
    def places(self) -> Sequence[Place]:
        """What the core must know of each."""
        return _Places(self)

    def describe(self) -> Iterator[Place]:
        """The same, one after the other."""
        return ((file.path, file.records, file.sidecar, file.rules) for file in self)

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

    def __init__(self, files: ShardFiles) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]

    def __iter__(self) -> Iterator[Place]:
        return self._files.describe()


class NamedFiles(ShardFiles):
    """The shards of a split that a manifest names.

    remote  tells where one comes from, if they are in a store
    """

    def __init__(
        self,
        shards: Sequence[ShardEntry],
        directory: Path | str,
        remote: Callable[[ShardEntry], Remote] | None = None,
    ) -> None:
        self._shards = shards
        self._directory = directory
        self._remote = remote

    def __len__(self) -> int:
        return len(self._shards)

    def _file(self, at: int) -> ShardFile:
        shard = self._shards[at]
        remote = None if self._remote is None else self._remote(shard)
        path = os.path.join(self._directory, shard.file) if remote is None else str(remote.cache.path(remote.file))
        return ShardFile(path, shard.records, shard.bytes, index_file(path), remote=remote)

    @property
    def records(self) -> list[int]:
        """How many records each has."""
        return shard_column(self._shards, "records")

    @property
    def sizes(self) -> list[int]:
        """How many bytes each has."""
        return shard_column(self._shards, "bytes")

    def describe(self) -> Iterator[Place]:
        """What the core must know of each."""
        if self._remote is not None or not isinstance(self._shards, ShardTable):
            return super().describe()
        paths = list(self._shards.paths(os.path.join(self._directory, "")))
        indexed = bool(paths) and index_file(paths[0]) is not None  # or none: they are of one format
        sidecars = (path + SUFFIX for path in paths) if indexed else repeat(None)
        return zip(paths, self.records, sidecars, repeat(None))

    @property
    def elsewhere(self) -> bool:
        """Whether they are in a store."""
        return self._remote is not None

    @property
    def inflated(self) -> list[ShardFile]:
        """None: they are no tars."""
        return []


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

    def describe(self) -> Iterator[Place]:
        """What the core must know of each."""
        return chain.from_iterable(part.describe() for part in self._parts)

    @property
    def elsewhere(self) -> bool:
        """Whether some are in a store."""
        return any(part.elsewhere for part in self._parts)

    @property
    def inflated(self) -> list[ShardFile]:
        """Those that are inflated to be read."""
        return [*chain.from_iterable(part.inflated for part in self._parts)]
