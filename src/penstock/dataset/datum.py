"""The two JSON files of a dataset that Datum exported: its shards, and the types and shapes of its features."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._core import crc32c
from ..errors import CorruptionError, SchemaError
from ..records.codec import Codec
from ..records.shard import open_shard
from ..schema.field import Field, Image, is_utf8
from ..schema.schema import Schema
from ..storage.files import beside, checked_path, join_path, local_copies, publish_document, read_json
from ..storage.paths import PathLike
from .manifest import MANIFEST, manifest_bytes, read_manifest

MAPPING = "datum_to_type_and_shape_mapping.json"
SHARDS = "shard_info.json"
MOST_BYTES = 64 << 20
_SPLIT = re.compile(r"[\w-]{1,200}")
_DTYPES = {"int": "int64", "float": "float32", "string": "str"}


def exported_files(directory: Path | str) -> dict[str, list[str]]:
    """The shards of each split of a directory, which may be a URL."""
    path = beside(directory, SHARDS)
    shards = read_json(path, "a list of Datum's shards", MOST_BYTES)
    if not isinstance(shards, dict) or not all(files and isinstance(files, dict) for files in shards.values()):
        raise CorruptionError("expected the files of each split, got something else", str(path))
    if not shards:
        raise CorruptionError("expected the files of each split, got no split", str(path))
    for split in shards:
        if not _SPLIT.fullmatch(split):
            got = reprlib.repr(split)
            raise CorruptionError(f"expected a split named by letters, digits, _ and -, got {got}", str(path))
    for file in (file for files in shards.values() for file in files):
        if Path(file).name != file or not is_utf8(file) or "\0" in file:
            raise CorruptionError(f"expected files of this folder, got {file!r}", str(path))
    return {split: [join_path(str(directory), file) for file in files] for split, files in shards.items()}


def read_mapping(path: Path | str) -> Schema:
    """The schema that Datum's mapping of types and shapes stands for."""
    mapping = read_json(path, "a mapping of Datum's types and shapes", MOST_BYTES)
    try:
        if not mapping:
            raise SchemaError("no feature")
        return Schema({name: _field(said) for name, said in mapping.items()})
    except (AttributeError, KeyError, TypeError, OverflowError, SchemaError) as error:
        raise CorruptionError(
            f"expected types and shapes as Datum writes them, got others ({error})", str(path)
        ) from None


def _field(said: dict[str, Any]) -> Field:
    """A string with a shape is an image: of two dimensions a grey one, of three in colour."""
    dtype, shape = _DTYPES[said["type"]], tuple(said["shape"])
    if dtype == "str" and len(shape) in (2, 3):
        return Field(dtype="bytes", kind="image", decoded=f"uint8[?,?,{1 if len(shape) == 2 else 3}]")
    if not said["dense"]:
        return Field(dtype=dtype, shape=(None,))
    return Field(dtype=dtype, shape=() if dtype == "str" else shape)


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
