"""Where an example lies, and the key it was built under: for errors, which are rare and may take their time."""

from __future__ import annotations

import bisect
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from ..errors import CorruptionError, PenstockError, SchemaError
from ..manifest import KEYS_SUFFIX, read_keys
from .shard_files import ShardFiles


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
        from .fetching import bring_beside

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
