"""A dataset of ours, told to Datum's reader: its two JSON files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import SchemaError
from ..field import Field
from ..image import Image
from ..manifest import MANIFEST, manifest_bytes, read_manifest
from ..records import crc32c
from ..records.codec import Codec
from ..records.datum_files import MAPPING, SHARDS
from ..records.shard import open_shard
from ..storage import PathLike, checked_path, join_path, local_copies, publish_document


def describe(path: PathLike) -> None:
    """Write what Datum reads a dataset by beside one of ours: its shards, the types and shapes of its features."""
    directory = checked_path(path)
    manifest = read_manifest(directory)
    if manifest.format != "tfrecord" or manifest.format_options("tfrecord").get("compression"):
        raise SchemaError("expected plain TFRecord files, as Datum reads them, got others", str(directory))
    first = next(iter(manifest.splits.values()))[0]
    (copy,) = local_copies([join_path(directory, first.file)])
    example = open_shard(copy.bring()).example(Codec(manifest.schema), 0)
    mapping = {field.name: _said(field, example) for field in manifest.schema.leaves()}
    shards = {split: {each.file: each.records for each in files} for split, files in manifest.splits.items()}
    files = {name: json.dumps(data).encode() for name, data in ((SHARDS, shards), (MAPPING, mapping))}
    for name, data in files.items():
        publish_document(join_path(directory, name), data)
    checksums = {name: crc32c(data) for name, data in files.items()}
    covered = replace(manifest, files={**(manifest.files or {}), **checksums})
    publish_document(join_path(directory, MANIFEST), manifest_bytes(covered))


def _said(field: Field, example: Mapping[str, Any]) -> dict[str, Any]:
    """Type and shape of a feature. Of an image, and of a list of any length, the number of dimensions alone counts."""
    name, shape = field.name, list(field.shape)
    loose = len(shape) > 1 and None in shape
    if name not in example or field.optional or field.encoding != "none" or field.levels or loose:
        hint = "Leave it out, or store it in another type"
        raise SchemaError(f"expected a type that Datum reads, got {field}", name, hint)
    if field.kind == "image":
        grey = (field.decoded or "").endswith(",1]")
        shape = [*Image(channels=1 if grey else 3).decode(example[name]).shape[: 2 if grey else 3]]
    elif None in shape:
        beside = example.get(f"{name}_shape")
        shape = [len(example[name])] if beside is None else beside.tolist()
    kind = "string" if field.dtype in ("str", "bytes") else "float" if "float" in field.dtype else "int"
    return {"type": kind, "shape": shape, "dense": None not in field.shape}
