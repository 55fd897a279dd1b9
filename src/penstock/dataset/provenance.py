"""From a record of a dataset to the example that it was made from, and back."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from ..errors import (
    CorruptionError,
    PenstockError,
    RecordIndexError,
    SchemaError,
    did_you_mean,
    name_known,
)
from ..storage.files import beside, checked_path
from .manifest import KEYS_SUFFIX, Manifest, ShardEntry, read_keys, read_manifest
from .shards import ShardFiles


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
        shard = bisect.bisect_right(ends, number)
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
        from .downloads import bring_beside

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


@dataclass(frozen=True)
class Place:
    """Where a record stands, and the key of the example that it was made from.

    number  in its split
    record  in its shard, the file
    """

    split: str
    number: int
    file: str
    record: int
    key: str

    def __str__(self) -> str:
        return f"{self.split}[{self.number}] is record {self.record} of {self.file}, made from {self.key!r}"


def places_of(path: str | Path, key: str) -> list[Place]:
    """The records that were made from the example of a key; of one that became many, all of them.

    An example may stand in several splits. A key that no record has is an error.
    """
    directory = checked_path(path)
    pieces = re.compile(re.escape(key) + r"/\d+")
    exact: list[Place] = []
    parts: list[Place] = []
    seen = ""
    for split, start, shard in _shards(read_manifest(directory)):
        for record, found in enumerate(read_keys(beside(directory, shard.file))):
            if found == key or pieces.fullmatch(found):
                place = Place(split, start + record, shard.file, record, found)
                (exact if found == key else parts).append(place)
            seen = seen or found
    if not (exact or parts):
        hint = did_you_mean(key, [seen]) or f"Keys of this dataset are such as {seen!r}"
        raise SchemaError(f"no record was made from {key!r}", str(directory), hint)
    return exact or parts


def place_of_record(path: str | Path, split: str, number: int) -> Place:
    """Where a record of a split stands, and the key of the example that it was made from."""
    directory = checked_path(path)
    manifest = read_manifest(directory)
    if split not in manifest.splits:
        raise SchemaError(f"no split {split!r}", str(directory), name_known(split, manifest.splits, "splits"))
    count = sum(shard.records for shard in manifest.splits[split])
    if not -count <= number < count:
        raise RecordIndexError(f"record {number} is outside of {split}, which has {count} - at {directory}")
    number %= count
    for name, start, shard in _shards(manifest):
        if name == split and start <= number < start + shard.records:
            record = number - start
            return Place(split, number, shard.file, record, read_keys(beside(directory, shard.file))[record])
    raise AssertionError("a record below the count is in one of the shards")


def _shards(manifest: Manifest) -> Iterator[tuple[str, int, ShardEntry]]:
    """Each shard with its split, and the number of its first record in it."""
    for split, shards in manifest.splits.items():
        start = 0
        for shard in shards:
            yield split, start, shard
            start += shard.records
