"""What tests ask of a dataset that was built."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

from penstock.dataset.manifest import WORK, ShardEntry, read_manifest
from penstock.dataset.provenance import read_keys
from penstock.dataset.shards import ShardFile
from penstock.records.codec import Codec
from penstock.records.shard import open_shard
from penstock.storage.open import open_store


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a dataset; of the manifest all but when it was made, and its own checksum."""
    found = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    manifest = json.loads(found.pop("penstock.json"))
    del manifest["made"], manifest["crc32c"]
    assert not (directory / WORK).exists()
    return found | {"penstock.json": json.dumps(manifest).encode()}


def examples(directory: Path, split: str = "train") -> dict[str, dict[str, Any]]:
    """The examples of a split by key, in the order of their records."""
    manifest = read_manifest(directory)
    codec = Codec(manifest.schema)
    found = {}
    for shard in manifest.splits[split]:
        reader = open_shard(directory / shard.file)
        assert len(reader) == shard.records
        keys = read_keys(directory / shard.file)
        found.update({key: codec.decode_example(record) for key, record in zip(keys, reader, strict=True)})
    return found


def shard_counts(directory: Path) -> dict[str, list[int]]:
    """How many records each shard of each split has."""
    return {name: [shard.records for shard in shards] for name, shards in read_manifest(directory).splits.items()}


def described_shards() -> int:
    """How many objects there are, anywhere, that describe a shard."""
    gc.collect()
    return sum(type(each) in (ShardEntry, ShardFile) for each in gc.get_objects())


def stored_files(place: Path | str) -> dict[str, bytes]:
    """The files of a folder or a URL; of the manifest what does not depend on when it was made."""
    if isinstance(place, Path):
        found = {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    else:
        store, name = open_store(place)
        found = {entry.name.removeprefix(f"{name}/"): store.read(entry.name) for entry in store.list(name)}
    manifest = json.loads(found.pop("penstock.json"))
    return {**found, "penstock.json": json.dumps({**manifest, "made": None, "crc32c": None}).encode()}
