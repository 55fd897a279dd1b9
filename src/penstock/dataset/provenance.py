"""From a record of a dataset to the example that it was made from, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import RecordIndexError, SchemaError, did_you_mean, name_known
from ..storage.files import beside, checked_path
from .manifest import Manifest, ShardEntry, read_keys, read_manifest


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
