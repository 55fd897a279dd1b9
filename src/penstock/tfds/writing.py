"""The files that make a dataset of ours one of TFDS: dataset_info.json, features.json, and the names of classes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import SchemaError
from ..info import Info
from ..manifest import Manifest
from ..storage import is_url, join_path, publish
from .directory import INFO, TEMPLATE, data_directory, is_tfds_name, parse_name
from .features import FEATURES, Json, features_of, is_left_out, label_files, labels_of
from .schemas import schema_of

FIRST_VERSION = "1.0.0"  # where neither the path nor anybody says one


def dataset_directory(path: str | os.PathLike[str], info: Info | None) -> Path | str:
    """Where a dataset is built: at a path or a URL, or, for a name as in "tfds:name", where TFDS looks for it."""
    if not is_tfds_name(path):
        return str(path) if is_url(path) else Path(path)
    name, config, version = parse_name(str(path))
    if config is not None:
        raise SchemaError(f"expected a name without a config, got {path!r}", "build")
    folder = join_path(data_directory(), name, version or (info and info.version) or FIRST_VERSION)
    return folder if is_url(folder) else Path(folder)


def write_metadata(directory: Path, manifest: Manifest, stale: Iterable[str] = ()) -> None:
    """Let TFDS open the dataset, if it can. dataset_info.json comes last.

    stale  files of an earlier dataset in the directory, which are removed
    """
    files = metadata_files(manifest)
    if INFO in files:
        remove_metadata(directory)
    for name in set(stale) - set(files):
        (directory / name).unlink(missing_ok=True)
    for name, data in files.items():
        publish(directory / name, data, sync=name == INFO)


def metadata_files(manifest: Manifest) -> dict[str, bytes]:
    """The files that TFDS reads, with their content; dataset_info.json comes last. None if TFDS can't read a field."""
    if why_closed(manifest):
        return {}
    files = {name: text.encode() for name, text in label_files(manifest.schema).items() if text is not None}
    features, notes = _features(manifest)
    return {**files, FEATURES: _json(features), INFO: _json(_dataset_info(manifest, notes))}


def remove_metadata(directory: Path) -> None:
    """Close the dataset to TFDS, while its shards are replaced."""
    (directory / INFO).unlink(missing_ok=True)


def why_closed(manifest: Manifest) -> str:
    """Why TFDS can't open a dataset at all; nothing if it can."""
    if not _formats(manifest):
        return "TFDS reads no compressed TFRecord files"
    if manifest.schema.sequence or all(map(is_left_out, manifest.schema.leaves())):
        return "TFDS can read none of its fields"
    return ""


def _features(manifest: Manifest) -> tuple[Json, dict[str, str]]:
    """Those of a builder, if they say the same as the schema; else what the schema says."""
    told = (manifest.info.tfds or {}).get("features")
    if told is not None:
        classes = {path: field.classes for path, field in labels_of(manifest.schema)}
        if schema_of(told, classes.get) == (manifest.schema, {}):
            return told, {}
    return features_of(manifest.schema)


def _dataset_info(manifest: Manifest, notes: dict[str, str]) -> Json:
    info = manifest.info
    first, *others = _formats(manifest)
    splits = [
        {
            "name": split,
            "shardLengths": [str(shard.records) for shard in shards],
            "numBytes": str(sum(shard.bytes for shard in shards)),
            "filepathTemplate": TEMPLATE,
        }
        for split, shards in manifest.formats[first].items()
    ]
    said: Json = {
        **((info.tfds or {}).get("info") or {}),
        "name": manifest.name,
        "version": info.version or FIRST_VERSION,
        "description": "\n\n".join(filter(None, [info.description, _said(notes)])),
        "citation": info.citation,
        "fileFormat": first,
        "alternativeFileFormats": others,
        "splits": splits,
    }
    kept = {leaf.name.split("/")[0] for leaf in manifest.schema.leaves() if not is_left_out(leaf)}
    if info.supervised is not None and kept.issuperset(name.split("/")[0] for name in info.supervised):
        said["supervisedKeys"] = {"tuple": {"items": [{"featureKey": name} for name in info.supervised]}}
    if manifest.options.get("order") == "source":
        said["disableShuffling"] = True
    return {key: value for key, value in said.items() if value not in ("", [])}


def _formats(manifest: Manifest) -> list[str]:
    """The formats that TFDS can read, TFRecord first, as it wants it; whole files that are compressed it can't."""
    known = [
        name for name in manifest.formats if name != "tfrecord" or not manifest.format_options(name).get("compression")
    ]
    return sorted(known, key=lambda name: name != "tfrecord")


def _said(notes: dict[str, str]) -> str:
    said = "; ".join(f"{name}: {note}" for name, note in notes.items())
    return f"Fields that penstock.load gives otherwise. {said}." if said else ""


def _json(data: Json) -> bytes:
    return json.dumps(data, indent=1).encode()
