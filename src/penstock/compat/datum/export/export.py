"""`export_to_tfrecord`: Datum's four problems, built as datasets that Datum, TFDS and Penstock open alike."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from ....build.run import build
from ....errors import NotFoundError, SchemaError, name_known
from ....field import Field
from ....load.dataset import load
from ....load.datum import SHARDS
from ....load.opening import MAPPING
from ....manifest import MANIFEST
from ....schema import Schema
from ....sources.images import check_image
from ....splitting import Splits
from ....storage import publish
from ..configs import TFRWriteConfigs
from .problems import OPTIONS, Datums, find_datums, find_own

_TYPES = {"int64": "int", "float32": "float", "str": "string", "bytes": "string"}


def export_to_tfrecord(
    input_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    problem_type: str,
    write_configs: TFRWriteConfigs,
) -> None:
    """Build the splits that the configs name. Splits that are there already and are not named stay as they are."""
    splits = write_configs.splits
    if not splits:
        hint = 'write_configs.splits = {"train": {}, "val": {}}'
        raise SchemaError("expected the splits to export, got none", "write_configs", hint)
    if problem_type not in OPTIONS:
        raise SchemaError(f"unknown problem {problem_type!r}", "export", name_known(problem_type, OPTIONS, "problems"))
    if write_configs.serializer is not None:
        raise SchemaError("expected no serializer: records are tf.Example", "write_configs", "Change what is generated")
    root = os.fspath(input_path)
    if not os.path.isdir(root):
        raise NotFoundError(f"expected a folder, got nothing at {root}")
    found: dict[str, Datums] = {}
    for split, options in splits.items():
        if write_configs.generator is not None:
            found[split] = find_own(write_configs.generator(root), problem_type, split, options)
        else:
            found[split] = find_datums(root, problem_type, split, options)
    directory = Path(output_path)
    kept = load(directory, decode=False) if (directory / MANIFEST).exists() else {}
    schema, shaped = _stored(reduce(Schema.widen, (each.schema for each in found.values())), write_configs)
    for datums in found.values():
        datums.store(schema, shaped)
    sources = {**{name: split for name, split in kept.items() if name not in found}, **found}
    built = build(Splits(sources), directory, schema=schema, order="source", overwrite=True)
    shards = {split: {each.file: each.records for each in files} for split, files in built.manifest.splits.items()}
    _publish(directory / SHARDS, shards)
    _publish(directory / MAPPING, _mapping(schema, shaped, next(iter(found.values()))))


def _stored(schema: Schema, configs: TFRWriteConfigs) -> tuple[Schema, dict[str, int]]:
    """The schema in Datum's types, and the dimensions of those features whose shape stands beside them."""
    sparse = configs.sparse_features or []
    for name in sparse:
        if name not in schema:
            raise SchemaError(f"no feature {name!r}", "sparse_features", name_known(name, schema, "features"))
    fields: dict[str, Field] = {}
    shaped: dict[str, int] = {}
    for field in schema.leaves():
        name, rank = field.name, field.levels + len(field.shape)
        if field.optional:
            raise SchemaError("expected a value in every example, got none in some", name)
        if field.kind == "image":
            fields[name] = field
            continue
        dtype = "str" if field.dtype in ("str", "bytes") else "float32" if field.dtype.startswith("f") else "int64"
        if field.levels or None in field.shape or name in sparse:
            fields[name] = Field(dtype=dtype, shape=(None,))
            if rank > 1:
                fields[f"{name}_shape"] = Field(dtype="int64", shape=(rank,))
                shaped[name] = rank
        else:
            fields[name] = Field(dtype=dtype, shape=field.shape)
    return Schema(fields), shaped


def _mapping(schema: Schema, shaped: Mapping[str, int], datums: Datums) -> dict[str, Any]:
    """What Datum's reader goes by. Of an image and of a sparse feature it needs the number of dimensions alone."""
    first = datums[0]
    told = {}
    for field in schema.leaves():
        shape: list[Any] = list(field.shape)
        if field.kind == "image":
            header = check_image(first[field.name], datums.place(0))
            shape = [header.height, header.width, 3][: 2 if (field.decoded or "").endswith(",1]") else 3]
        elif None in shape:
            shape = first[f"{field.name}_shape"].tolist() if field.name in shaped else [len(first[field.name])]
        told[field.name] = {"type": _TYPES[field.dtype], "shape": shape, "dense": None not in field.shape}
    return told


def _publish(path: Path, data: Any) -> None:
    publish(path, json.dumps(data).encode())
