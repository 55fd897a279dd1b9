"""What a build publishes: the manifest, the metadata beside it, and the quarantine of bad examples."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .._core import __version__, crc32c
from ..dataset.info import Info
from ..dataset.manifest import MANIFEST, Manifest, ShardEntries, ShardEntry, shard_files
from ..dataset.tfds import INFO, metadata_files
from ..dataset.tfds_features import FEATURES, label_files
from ..records.formats import Format
from ..schema.schema import Schema
from .entries import BadExample, Begin, Commit, ShardResult
from .plan import OnError

QUARANTINE = "quarantine.jsonl"
_ENTRY = {"split", "key", "place", "error", "traceback"}  # members of a line of the quarantine


@dataclass(frozen=True)
class Finished:
    """What a build has made.

    shards  Of all splits, in order.
    bad     Examples that could not be stored.
    found   What the manifest reports: numbers of bad, ignored and duplicate examples, and notes by field.
    """

    schema: Schema
    shards: list[ShardResult]
    bad: list[BadExample]
    found: Mapping[str, object]


def describe_dataset(info: Info, begun: Begin, formats: Sequence[Format], finished: Finished) -> Manifest:
    """Return the manifest of what was built."""
    names = [format.name for format in formats]
    first, *others = (_entries(finished.shards, at) for at in range(len(names)))
    made = {"penstock": __version__, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    asked = (dict(begun.options), dict(begun.source))
    alternatives = dict(zip(names[1:], others, strict=True))
    found = dict(finished.found)
    return Manifest(begun.name, finished.schema, first, *asked, found, made, info, names[0], alternatives, files={})


def _entries(shards: list[ShardResult], format: int) -> ShardEntries:
    """Return the shards of each split in one of the formats, by its number."""
    splits: dict[str, list[ShardEntry]] = {}
    for shard in shards:
        written, bad = shard.formats[format], len(shard.bad)
        counts = (shard.records, written.bytes, written.crc32c, shard.inputs, shard.ignored, bad, shard.keys)
        splits.setdefault(shard.split, []).append(ShardEntry(written.file, *counts))
    return {split: tuple(entries) for split, entries in splits.items()}


def committed_manifest(commit: Commit, where: str) -> Manifest:
    """Return the manifest of a commit, with the checksums of the files that are published beside it."""
    manifest = Manifest.from_json(commit.manifest, where)
    files = metadata_files(manifest)
    if commit.quarantine:
        files[QUARANTINE] = quarantine_bytes(commit.quarantine)
    return replace(manifest, files={name: crc32c(data) for name, data in files.items()})


def quarantine_bytes(bad: Iterable[BadExample]) -> bytes:
    """Return the file of bad examples: a line for each."""
    return "".join(json.dumps(example.to_json()) + "\n" for example in bad).encode()


def is_quarantine(data: bytes | None) -> bool:
    """Return True if a file is one that a build keeps bad examples in."""
    try:
        return data is not None and all(set(json.loads(line)) == _ENTRY for line in data.splitlines())
    except (ValueError, TypeError):
        return False


def wanted_metadata(formats: Iterable[Format], schema: Schema | None, on_error: OnError) -> list[str]:
    """Return the files besides shards that a build writes, as far as they are known."""
    wanted = [MANIFEST]
    if any(not (format.name == "tfrecord" and getattr(format, "compression", None)) for format in formats):
        labels = label_files(schema or Schema({}))
        wanted += [INFO, FEATURES, *(name for name, text in labels.items() if text is not None)]
    return [*wanted, QUARANTINE] if on_error == "quarantine" else wanted


def with_sidecars(files: Iterable[str]) -> set[str]:
    """Return shards, and the files beside them."""
    return {name for file in files for name in shard_files(file)}
