"""Sources built as a dataset that Datum's reader opens: with a manifest beside it, or as Datum alone writes it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from ...building.api import Built, build
from ...building.targets.file_commit import staged_folder
from ...dataset.datum import MAPPING, MOST_BYTES, SHARDS, describe, exported_files, read_mapping
from ...dataset.manifest import MANIFEST, read_manifest
from ...errors import SchemaError, name_known
from ...loading.dataset import load
from ...records.index import sidecar_path
from ...records.shard import open_shard
from ...schema.columns import ExampleDict
from ...schema.field import Field
from ...schema.inference import infer
from ...schema.schema import Schema
from ...sources.rows import Mapped
from ...sources.splits import Splits
from ...storage.files import checked_path, is_file, join_path, read_json
from ...storage.local import publish
from ...storage.paths import PathLike
from ...storage.store import is_url

_SHARD = re.compile(r".+-\d{5}-of-\d{5}\.tfrecord(\.index)?")
PARTIAL = ".datum-export"  # the folder of an export that is under way


def export(sources: Mapping[str, Any], path: PathLike, *, sparse: Sequence[str] = (), numbered: bool = False) -> Built:
    """Build listed sources, one for each split, in Datum's features and order, with Datum's two JSON files beside them.

    Splits that are there already and are not named stay as they are.

    sparse    features that are lists of any length; those that differ in length are found out without it
    numbered  whether the keys of examples are their numbers
    """
    features, schema = as_features(sources, sparse, numbered=numbered)
    directory = checked_path(path, "output_path")
    there = any(is_file(join_path(directory, name)) for name in (MANIFEST, MAPPING))
    kept = load(directory, decode=False) if there else {}
    built = build(Splits({**kept, **features}), directory, schema=schema, order="tfds", overwrite=True)
    describe(directory)
    return built


def export_plain(
    sources: Mapping[str, Any], path: PathLike, *, sparse: Sequence[str] = (), numbered: bool = False
) -> None:
    """The same as Datum itself writes it: `train-00000-of-00001.tfrecord`, and its two JSON files, and nothing else.

    The files of splits that are there already and are not named stay as they are. In a folder that holds a dataset with
    a manifest, that dataset is exported again in place.
    """
    place = checked_path(path, "output_path")
    if is_file(join_path(place, MANIFEST)):
        export(sources, place, sparse=sparse, numbered=numbered)
        return
    if is_url(place):
        _export_to_store(sources, place, sparse, numbered=numbered)
        return
    directory = Path(place)
    features, schema = as_features(sources, sparse, numbered=numbered)
    before = exported_files(directory) if (directory / MAPPING).exists() else {}
    kept = {split: files for split, files in before.items() if split not in features}
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / PARTIAL
    try:
        build(Splits(features), partial, schema=schema, order="tfds", overwrite=True)
        describe(partial)
        mapping = json.loads((partial / MAPPING).read_bytes())
        if kept:
            read_mapping(directory / MAPPING)  # it makes sense, or is an error
            mapping = _merged(json.loads((directory / MAPPING).read_bytes()), mapping, directory)
        shards = {
            split: {os.path.basename(file): len(open_shard(file)) for file in files} for split, files in kept.items()
        }
        stale = [Path(file) for split, files in before.items() if split not in kept for file in files]
        _publish_plain(partial, directory, mapping, shards, stale)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _export_to_store(sources: Mapping[str, Any], url: str, sparse: Sequence[str], *, numbered: bool) -> None:
    """Export to a local folder first and send its files. All splits of an earlier export must be exported again."""
    if is_file(join_path(url, SHARDS)):
        before = read_json(join_path(url, SHARDS), "a list of Datum's shards", MOST_BYTES)
        others = sorted(set(before) - set(sources)) if isinstance(before, dict) else []
        if others:
            hint = "Export all splits together, or into another folder"
            raise SchemaError(f"expected all splits of the export, got none of {', '.join(others)}", url, hint)
    with staged_folder(url, replaces=lambda name: _SHARD.fullmatch(name) is not None) as local:
        export_plain(sources, local, sparse=sparse, numbered=numbered)


def _publish_plain(
    partial: Path, directory: Path, mapping: Mapping[str, Any], shards: dict[str, dict[str, int]], stale: Sequence[Path]
) -> None:
    """Move the shards of a finished build under Datum's names. Without `shard_info.json` a folder is no dataset."""
    (directory / SHARDS).unlink(missing_ok=True)
    for old in stale:
        old.unlink(missing_ok=True)
        sidecar_path(old).unlink(missing_ok=True)
    for split, entries in read_manifest(partial).splits.items():
        for number, entry in enumerate(entries):
            name = f"{split}-{number:05}-of-{len(entries):05}.tfrecord"
            shards.setdefault(split, {})[name] = entry.records
            sidecar_path(directory / name).unlink(missing_ok=True)
            os.replace(partial / entry.file, directory / name)
    publish(directory / MAPPING, json.dumps(mapping).encode())
    publish(directory / SHARDS, json.dumps(shards).encode())


def _merged(known: Mapping[str, Any], new: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """One mapping for the existing splits and the new ones: a feature that differs in length is not dense."""
    types = [{name: said["type"] for name, said in mapping.items()} for mapping in (known, new)]
    if types[0] != types[1]:
        hint = "Export all splits together, or into another folder"
        raise SchemaError(
            f"expected the features of the other splits, {types[0]}, got {types[1]}", str(directory), hint
        )
    merged = {}
    for name, said in new.items():
        dense = said["dense"] and known[name]["dense"]
        image = said["type"] == "string" and len(said["shape"]) > 1
        merged[name] = {**said, "dense": dense and (image or said["shape"] == known[name]["shape"])}
    return merged


_NAMES = {"label": "labels", "is_difficult": "labels_difficult"}  # of what an object has; other names stay
_BOX = ("ymin", "xmin", "ymax", "xmax")


def as_features(
    sources: Mapping[str, Any], sparse: Sequence[str] = (), *, numbered: bool = False
) -> tuple[dict[str, Mapped], Schema]:
    """The sources of some splits in Datum's features, and the schema that these have in common.

    sparse    features that are lists of any length; those that differ in length are found out without it
    numbered  whether keys are the numbers of examples
    """
    schemas = [_known(source) for source in sources.values()]
    functions = [Features(schema) for schema in schemas]
    schema = _stored(reduce(Schema.widen, (function.schema for function in functions)), sparse)
    found = {}
    for (split, source), function in zip(sources.items(), functions, strict=True):
        function.schema = schema
        found[split] = Mapped(source, function, schema, numbered=numbered)
    return found, schema


def _known(source: Any) -> Schema:
    """What all examples of a source hold: known, or looked at."""
    known: Schema | None = source.schema
    return infer(source[number] for number in range(len(source))) if known is None else known


class Features:
    """Makes Datum's features of examples. Objects become a list for each of their fields, and a mask is the label."""

    def __init__(self, schema: Schema) -> None:
        mask = schema.get("mask")
        self.names = {"mask": "label"} if isinstance(mask, Field) and mask.kind == "image" else {}
        fields: dict[str, Any] = {}
        for name, node in schema.items():
            if name == "objects" and isinstance(node, Schema) and "bbox" in node:
                fields |= dict.fromkeys((*_BOX, "area"), Field(dtype="float32", shape=(None,)))
                fields |= {_NAMES.get(inner.name, inner.name): _listed(inner) for inner in _others(node)}
            else:
                fields[self.names.get(name, name)] = node
        self.objects = "xmin" in fields and "objects" in schema
        self.schema = Schema(fields)

    def __call__(self, example: Mapping[str, Any]) -> ExampleDict:
        found = {self.names.get(name, name): value for name, value in example.items()}
        if self.objects:
            found |= _lists(found.pop("objects"))
        for field in self.schema.leaves():
            if field.dtype in ("float32", "int64") and field.name in found:
                found[field.name] = np.asarray(found[field.name], field.dtype)
            beside = f"{field.name}_shape"
            if beside in self.schema and beside not in found:
                found[beside] = np.array(np.shape(found[field.name]), np.int64)
                found[field.name] = np.reshape(found[field.name], -1)
        return found


def _others(objects: Schema) -> list[Field]:
    return [node for name, node in objects.items() if name != "bbox" and isinstance(node, Field)]


def _listed(field: Field) -> Field:
    return Field(dtype=field.dtype, shape=(None,))


def _lists(objects: Mapping[str, Any]) -> ExampleDict:
    """Objects as Datum has them: boxes by their sides, classes from 1, words in small letters."""
    lists: ExampleDict = dict(zip(_BOX, objects["bbox"].T, strict=True))
    lists["area"] = (lists["xmax"] - lists["xmin"]) * (lists["ymax"] - lists["ymin"])
    for name, values in objects.items():
        if name == "label":
            lists["labels"] = [label + 1 for label in values]
        elif name not in ("bbox", "area"):  # COCO's areas are those of outlines, in pixels
            lists[_NAMES.get(name, name)] = [value.lower() if isinstance(value, str) else value for value in values]
    return lists


def _stored(schema: Schema, sparse: Sequence[str]) -> Schema:
    """The schema in Datum's types; of features with several dimensions of any size the shape stands beside them."""
    for name in sparse:
        if name not in schema:
            raise SchemaError(f"no feature {name!r}", "sparse_features", name_known(name, schema, "features"))
    fields: dict[str, Field] = {}
    for field in schema.leaves():
        name, rank = field.name, field.levels + len(field.shape)
        if field.optional:
            raise SchemaError("expected a value in every example, got none in some", name)
        dtype = "str" if field.dtype in ("str", "bytes") else "float32" if field.dtype.startswith("f") else "int64"
        if field.kind == "image":
            fields[name] = field
        elif field.levels or None in field.shape or name in sparse:
            fields[name] = Field(dtype=dtype, shape=(None,))
            if rank > 1:
                fields[f"{name}_shape"] = Field(dtype="int64", shape=(rank,))
        else:
            fields[name] = Field(dtype=dtype, shape=field.shape)
    return Schema(fields)
