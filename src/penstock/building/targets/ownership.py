"""Which files at the destination of a build are Penstock's. Foreign files are never replaced or removed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...dataset.manifest import KEYS_SUFFIX, MANIFEST, Manifest, in_format, shard_file, shard_files, shard_pattern
from ...dataset.tfds import INFO, metadata_files
from ...dataset.tfds_features import FEATURES, LABELS, label_files
from ...errors import BuildError
from ...schema.schema import Schema

if TYPE_CHECKING:
    from .directory import Folder

QUARANTINE = "quarantine.jsonl"
_ENTRY = {"split", "key", "place", "error", "traceback"}  # what a line of the quarantine holds


def metadata_of(place: Folder, manifest: Manifest | None) -> set[str]:
    """The files besides shards that the build of an existing dataset has written."""
    if manifest is None:
        return set()
    files = {MANIFEST, *metadata_files(manifest)}
    if manifest.found.get("bad") and is_quarantine(place.read(QUARANTINE)):
        files.add(QUARANTINE)
    return files


def shards_of(place: Folder, manifest: Manifest | None, name: str, overwrite: bool) -> set[str]:
    """The shards of an existing dataset. Without a manifest, and with `overwrite`, those that have their keys."""
    if manifest is not None:
        return {shard.file for shard in manifest.shards()}
    if not overwrite:
        return set()
    pattern, names = shard_pattern(name), set(place.names())
    found = {file for file in names if pattern.fullmatch(file) and file + KEYS_SUFFIX in names}
    return {file for file in found if _are_keys(place.read(file + KEYS_SUFFIX))}


def planned_files(begun: Mapping[str, Any], plan: Mapping[str, Any]) -> set[str]:
    """The names of all shards of a plan, in every format."""
    formats = [begun["options"]["format"]["name"], *begun["options"]["alternatives"]]
    return {
        in_format(shard_file(begun["name"], split, formats[0], number, count), format)
        for split, count in plan["shards"].items()
        for number in range(count)
        for format in formats
    }


def wanted_metadata(formats: Iterable[Any], schema: Schema | None, policy: str) -> list[str]:
    """The files besides shards that a build writes, as far as they are known."""
    wanted = [MANIFEST]
    if any(not (format.name == "tfrecord" and format.compression) for format in formats):
        labels = label_files(schema or Schema({}))
        wanted += [INFO, FEATURES, *(name for name, text in labels.items() if text is not None)]
    return [*wanted, QUARANTINE] if policy == "quarantine" else wanted


def check_foreign(place: Folder, wanted: Iterable[str], own: set[str], present: set[str] | None = None) -> None:
    """Refuse to build where a file has the name of one that the build writes, and is not Penstock's."""
    present = set(place.names()) if present is None else present
    for name in wanted:
        if name in present and name not in own:
            hint = "Move it away, or build into another directory"
            raise BuildError(
                f"expected a new file, got one that Penstock did not write: {name} - at {place.where}. {hint}"
            )


def is_damaged_manifest(place: Folder) -> bool:
    """Whether penstock.json is a damaged manifest, and not a document of another kind."""
    data = place.read(MANIFEST)
    if data is None or b'"penstock_manifest"' in data:
        return True
    try:
        json.loads(data)
    except ValueError:
        return any(name.endswith(KEYS_SUFFIX) for name in place.names())
    return False


def metadata_of_damaged(place: Folder) -> set[str]:
    """The files besides shards of a dataset whose manifest is damaged. Shards with keys prove that it was a dataset."""
    names = {name for name in place.names() if name in (INFO, FEATURES) or name.endswith(LABELS)}
    return names | ({QUARANTINE} if is_quarantine(place.read(QUARANTINE)) else set())


def is_quarantine(data: bytes | None) -> bool:
    """Whether a file is one that a build keeps bad examples in."""
    try:
        return data is not None and all(set(json.loads(line)) == _ENTRY for line in data.splitlines())
    except (ValueError, TypeError):
        return False


def _are_keys(data: bytes | None) -> bool:
    with suppress(zlib.error, ValueError):
        return data is not None and zlib.decompress(data)[:1] == b"["
    return False


def with_sidecars(files: Iterable[str]) -> set[str]:
    """Shards, and the files beside them."""
    return {name for file in files for name in shard_files(file)}
