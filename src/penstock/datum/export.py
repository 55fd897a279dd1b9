"""Sources built as a dataset that Datum's reader opens: with a manifest beside it, or as Datum alone writes it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..build.report import Built
from ..build.run import build
from ..build.staging import staged_folder
from ..errors import SchemaError
from ..load.dataset import load
from ..manifest import MANIFEST, read_manifest
from ..records.datum_files import MAPPING, MOST_BYTES, SHARDS, exported_files, read_mapping
from ..records.index import sidecar_path
from ..records.shard import open_shard
from ..splitting import Splits
from ..storage import PathLike, checked_path, is_file, is_url, join_path, publish, read_json
from .features import as_features
from .writing import describe

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
