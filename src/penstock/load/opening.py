"""What a path stands for: a dataset of ours, one that TFDS prepared or Datum exported, or record files of anyone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SchemaError, name_known
from ..manifest import MANIFEST, Manifest, index_file, read_manifest
from ..records.formats import FORMATS
from ..records.tar import Rule
from ..schema import Schema
from ..tfds.directory import INFO, Prepared, find_dataset, is_tfds_name

PathLike = str | os.PathLike[str]

READABLE = (*FORMATS, "tar")
MAPPING = "datum_to_type_and_shape_mapping.json"  # beside what Datum has exported


@dataclass(frozen=True)
class ShardFile:
    """A shard that can be read: its file, what it holds, and the index that says where.

    rules       what the files of a tar are read as
    compressed  whether it is a tar that is inflated to be read
    """

    path: str
    records: int
    bytes: int
    sidecar: str | None
    rules: tuple[Rule, ...] | None = None
    compressed: bool = False


@dataclass(frozen=True)
class Opened:
    """What a path stands for; `format` is that of the shards that are read, where a manifest says it."""

    path: Path
    name: str
    schema: Schema
    splits: dict[str, tuple[ShardFile, ...]]
    manifest: Manifest | None = None
    prepared: Prepared | None = None
    format: str | None = None


def open_dataset(
    path: PathLike | Sequence[PathLike],
    schema: Schema | Mapping[str, Any] | None,
    format: str | None,
    cache: PathLike | None = None,
    data_dir: PathLike | None = None,
    *,
    raw: bool = False,
) -> Opened:
    """Open a directory with a manifest or with metadata of TFDS, or record files: one, a list, a folder, a glob.

    raw  the files of a tar stay bytes
    """
    if format not in (None, *READABLE):
        expected = ", ".join(f'"{known}"' for known in READABLE)
        raise SchemaError(f"expected one of the formats {expected}, or None to find it out, got {format!r}", "load")
    if is_tfds_name(path):
        path = find_dataset(str(path), data_dir)
    elif data_dir is not None:
        raise SchemaError('expected data_dir with a name such as "tfds:mnist", got it with a path', "load")
    given = None if schema is None else schema if isinstance(schema, Schema) else Schema(schema)
    if isinstance(path, (str, os.PathLike)) and os.path.isfile(os.path.join(path, MANIFEST)):
        return open_manifest(Path(path), read_manifest(Path(path)), given, format)
    if isinstance(path, (str, os.PathLike)) and os.path.isfile(os.path.join(path, INFO)):
        from .prepared import open_prepared

        return open_prepared(Path(path), given, format, cache)
    if isinstance(path, (str, os.PathLike)) and os.path.isfile(os.path.join(path, MAPPING)):
        from .datum import open_exported

        return open_exported(Path(path), given, cache)
    from .files import open_files  # sources take a while to import, and datasets of ours need none

    paths = [path] if isinstance(path, (str, os.PathLike)) else path
    return open_files(paths, given, cache, format, raw=raw)


def open_manifest(
    directory: Path, manifest: Manifest, schema: Schema | None = None, format: str | None = None
) -> Opened:
    """The dataset of a manifest, in one of the formats that it is there in."""
    chosen = format or manifest.format
    if chosen not in manifest.formats:
        hint = name_known(chosen, manifest.formats, "formats")
        raise SchemaError(f"expected a dataset in the format {chosen!r}, got none", str(directory), hint)
    splits = {}
    for split, shards in manifest.formats[chosen].items():
        paths = [os.path.join(directory, shard.file) for shard in shards]
        splits[split] = tuple(
            ShardFile(path, shard.records, shard.bytes, index_file(path))
            for path, shard in zip(paths, shards, strict=True)
        )
    return Opened(directory, manifest.name, schema or manifest.schema, splits, manifest, format=chosen)
