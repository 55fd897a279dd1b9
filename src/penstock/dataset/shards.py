"""The shards of a dataset: their files, where each example is among them, and reading examples by number."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

from .._core import Shards
from ..errors import CorruptionError, NotFoundError, PenstockError, SchemaError, StorageError
from ..records.codec import Codec, first_row
from ..records.index import SUFFIX
from ..records.tar import Rule
from ..schema.columns import Array, Columns, ExampleDict, Value
from ..storage.cache import Cache, RemoteFile
from ..storage.local import FileStamp
from ..storage.open import open_store
from .manifest import KEYS_SUFFIX, ShardEntry, index_file, shard_column, shard_paths
from .provenance import read_keys

if TYPE_CHECKING:
    from .downloads import Ranges

ATTEMPTS = 10  # to put a small file into a cache where others make room


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

    def __getitem__(self, at: Value) -> Value:
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


# Examples by number
class Location(NamedTuple):
    """An example: its shard, the number of its record there, and its key, if a build kept it."""

    path: str
    record: int
    key: str | None

    def __str__(self) -> str:
        where = f"{self.path}, record {self.record}"
        return where if self.key is None else f"{where}, key {self.key!r}"


class Locations:
    """The locations of numbered examples. Keys are read when they are asked for, those of one shard at a time."""

    def __init__(self, files: ShardFiles) -> None:
        self._files = files
        self._ends: list[int] = []
        self._read: tuple[str, list[str]] = ("", [])

    def of(self, number: int) -> Location:
        """The location of an example."""
        ends = self._ends = self._ends or list(accumulate(self._files.records))
        shard = bisect_right(ends, number)
        record = number - (ends[shard - 1] if shard else 0)
        path = self._files[shard].place
        return Location(path, record, self._key(path, record))

    def _key(self, path: str, record: int) -> str | None:
        if self._read[0] != path:
            keys: list[str] = []
            with suppress(PenstockError, OSError):
                keys = read_keys(self._with_keys(path))
            self._read = (path, keys)
        keys = self._read[1]
        return keys[record] if 0 <= record < len(keys) else None

    def _with_keys(self, path: str) -> Path:
        """The shard that an error or a location names, with its keys beside it."""
        if not self._files.elsewhere:
            return Path(path)
        file = next((file for file in self._files if path in (file.path, file.place)), None)
        if file is None or file.remote is None:
            return Path(path)
        bring_beside(file, KEYS_SUFFIX)
        return Path(file.path)

    def number(self, error: PenstockError) -> int | None:
        """The number of the example that an error of the core is about."""
        path, record = getattr(error, "path", None), getattr(error, "record", None)
        first = 0
        for file in self._files:
            if path in (file.path, file.place) and record is not None:
                return first + int(record)
            first += file.records
        return None

    def named(self, error: PenstockError) -> PenstockError:
        """An error of the core, with the key of the example that it is about."""
        path, record = getattr(error, "path", None), getattr(error, "record", None)
        key = None if path is None or record is None else self._key(path, record)
        if key is None:
            return error
        if isinstance(error, CorruptionError):
            named = type(error)(f"{error} (key {key!r})")
            named.path, named.offset, named.record = error.path, error.offset, error.record
            return named
        return SchemaError(f"{error} (key {key!r})") if isinstance(error, SchemaError) else error


class ExampleReader:
    """Reads numbered examples of shards, decoded by a codec. Errors name the example by its key.

    ranges  reads single examples of shards that are in a store
    """

    def __init__(self, files: ShardFiles, shards: Shards, codec: Codec, ranges: Ranges | None = None) -> None:
        self.codec = codec
        self._files = files
        self._shards = shards
        self._ranges = ranges
        # Looked up once: `example` is called for every single read.
        self._read, self._plan, self._images = shards.example, codec.plan, codec.images

    @cached_property
    def locations(self) -> Locations:
        """Where each example is."""
        return Locations(self._files)

    def example(self, number: int) -> ExampleDict:
        """Return one example."""
        codec = self.codec
        if not codec.direct_example:
            return first_row(self.examples([number]))
        try:
            read = self._read if self._ranges is None else self._readable([number]).example
            raw = read(self._plan, number, self._images)
        except (CorruptionError, SchemaError) as error:
            raise self.locations.named(error) from None
        return codec.to_example(raw) if codec.nested else raw

    def examples(self, numbers: Array | list[int], threads: int = 1) -> Columns:
        """Return some examples as a batch."""
        codec = self.codec
        try:
            shards = self._readable(numbers)
            return codec.to_batch(shards.examples(codec.plan, numbers, codec.images, threads))
        except (CorruptionError, SchemaError) as error:
            raise self.locations.named(error) from None

    def _readable(self, numbers: Array | list[int]) -> Shards | Ranges:
        """Return the shards if those of some examples are local, else what reads ranges of them."""
        return self._shards if self._ranges is None or self._ranges.are_local(numbers) else self._ranges
