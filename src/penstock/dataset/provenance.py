"""What a dataset was made from: the keys beside each shard, and the files whose checksums the manifest has."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .._core import crc32c
from ..errors import ArgumentError, CorruptionError, NotFoundError, RecordIndexError, did_you_mean, name_known
from ..storage.files import beside, checked_path, read_bytes
from ..storage.local import publish
from .manifest import KEYS_SUFFIX, Manifest, ShardEntry, read_manifest

_MOST_KEYS_BYTES = 1 << 30  # of one shard


def write_keys(path: Path, keys: Iterable[str]) -> int:
    """Keep the keys of a shard's records beside it. Returns the CRC-32C of the file."""
    data = zlib.compress(json.dumps(list(keys)).encode(), 1)
    publish(path.with_name(path.name + KEYS_SUFFIX), data, sync=True)
    return crc32c(data)


def read_keys(path: Path | str) -> list[str]:
    """The keys of a shard's records; the shard may be an object of a store."""
    file = str(path) + KEYS_SUFFIX
    try:
        packed = zlib.decompressobj()
        data = packed.decompress(read_bytes(file), _MOST_KEYS_BYTES)
        if not packed.eof:
            raise ValueError("cut off, or too many")
        keys = json.loads(data)
    except FileNotFoundError:
        raise NotFoundError(f"expected the keys of a shard, got nothing at {file}") from None
    except (zlib.error, ValueError, RecursionError) as error:
        raise CorruptionError(f"expected the keys of a shard, got broken bytes ({error})", file) from None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise CorruptionError("expected a list of keys, got something else", file)
    return keys


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
        raise ArgumentError(f"no record was made from {key!r}", str(directory), hint)
    return exact or parts


def place_of_record(path: str | Path, split: str, number: int) -> Place:
    """Where a record of a split stands, and the key of the example that it was made from."""
    directory = checked_path(path)
    manifest = read_manifest(directory)
    if split not in manifest.splits:
        raise ArgumentError(f"no split {split!r}", str(directory), name_known(split, manifest.splits, "splits"))
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


def file_problems(directory: Path | str, manifest: Manifest) -> dict[str, str]:
    """What is wrong with each metadata file whose checksum the manifest has. The directory may be a URL."""
    problems = {}
    for name, expected in (manifest.files or {}).items():
        path = beside(directory, name)
        try:
            found = crc32c(read_bytes(path))
        except FileNotFoundError:
            problems[name] = "expected the file that was built, got nothing"
            continue
        if found != expected:
            problems[name] = f"expected CRC-32C {expected:#010x} as in the manifest, got {found:#010x}"
    return problems
