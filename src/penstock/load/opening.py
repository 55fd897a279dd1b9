"""What a path stands for: a dataset of ours, or record files made by anyone; and the indexes of those."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._core import Shard
from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError
from ..manifest import MANIFEST, Manifest, dataset_name, read_manifest
from ..records.codec import default_threads
from ..records.index import SUFFIX, sidecar_path
from ..schema import Schema
from ..sources.files import files_named
from ..sources.listed import split_order
from ..sources.tfrecords import SUFFIXES, files_in_folder, inferred_schema, split_name

PathLike = str | os.PathLike[str]

_TFDS_NAME = re.compile(r"([A-Za-z]\w*)-([\w-]+)\.tfrecord-\d{5,}-of-\d{5,}")


@dataclass(frozen=True)
class ShardFile:
    """A shard that can be read: its file, what it holds, and the index that says where."""

    path: str
    records: int
    bytes: int
    sidecar: str | None


@dataclass(frozen=True)
class Opened:
    """What a path stands for."""

    path: str
    name: str
    schema: Schema
    splits: dict[str, tuple[ShardFile, ...]]
    manifest: Manifest | None = None


def open_dataset(
    path: PathLike | Sequence[PathLike],
    schema: Schema | Mapping[str, Any] | None,
    format: str | None,
    cache: PathLike | None = None,
) -> Opened:
    """Open a directory with a manifest, or record files: one, a list, a folder, a glob, a range."""
    if format not in (None, "tfrecord"):
        raise SchemaError(f'expected format "tfrecord", or None to find it out, got {format!r}', "load")
    given = None if schema is None else schema if isinstance(schema, Schema) else Schema(schema)
    if isinstance(path, (str, os.PathLike)):
        if os.path.isfile(os.path.join(path, MANIFEST)):
            return _open_manifest(Path(path), given)
        return _open_files(_files(path), given, os.fspath(path), cache)
    files = [file for each in path for file in _files(each)]
    if not files:
        raise SchemaError("expected at least one file, got an empty list", "load")
    return _open_files(files, given, files[0], cache)


def _open_manifest(directory: Path, schema: Schema | None) -> Opened:
    manifest = read_manifest(directory)
    splits = {}
    for split, shards in manifest.splits.items():
        paths = [os.path.join(directory, shard.file) for shard in shards]
        splits[split] = tuple(
            ShardFile(path, shard.records, shard.bytes, path + SUFFIX)
            for path, shard in zip(paths, shards, strict=True)
        )
    return Opened(str(directory), manifest.name, schema or manifest.schema, splits, manifest)


def _files(path: PathLike) -> list[str]:
    if os.path.isdir(path):
        files = files_in_folder(os.fspath(path))
    else:
        files = files_named(path, SUFFIXES)
    for file in files:
        if os.path.isdir(file):
            raise StorageError(f"expected a file, got the folder {file}")
    return files


def _open_files(files: list[str], schema: Schema | None, path: str, cache: PathLike | None) -> Opened:
    splits: dict[str, list[str]] = {}
    for file in files:
        splits.setdefault(_split_of(file), []).append(file)
    if "" in splits:
        splits = {"train": files}
    with ThreadPoolExecutor(min(len(files), default_threads() * 4)) as pool:
        opened = dict(zip(files, pool.map(lambda file: indexed(file, cache), files), strict=True))
    known = schema or inferred_schema(files)
    ordered = {split: tuple(opened[file] for file in splits[split]) for split in sorted(splits, key=split_order)}
    return Opened(path, dataset_name(Path(path)), known, ordered)


def _split_of(path: str) -> str:
    """The split that a file's name tells, or nothing."""
    match = _TFDS_NAME.fullmatch(os.path.basename(path))
    return match[2] if match else split_name(path)


# Indexes of files that came without one


def indexed(path: str, cache: PathLike | None = None) -> ShardFile:
    """A file with its index: the one beside it, the one in the cache, or a new one."""
    beside, cached = sidecar_path(path), cached_index(path, cache)
    size = _size(path)
    for sidecar in (beside, cached):
        if sidecar.exists():
            with suppress(CorruptionError, StorageError):
                return ShardFile(path, len(Shard(path, sidecar, True)), size, str(sidecar))
    index = Shard(path).index()
    for sidecar in (beside, cached):
        with suppress(OSError):
            if sidecar is cached:
                cached.parent.mkdir(parents=True, exist_ok=True)
            index.write(sidecar)
            return ShardFile(path, len(index), size, str(sidecar))
    return ShardFile(path, len(index), size, None)  # nowhere to keep it: made again with each open


def cached_index(path: str, folder: PathLike | None = None) -> Path:
    """Where the index of a file is kept whose directory is not ours to write to."""
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = os.path.join(home, "penstock", "index")
    full = os.path.realpath(path)
    digest = hashlib.blake2b(full.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return Path(folder) / f"{digest}-{os.path.basename(full)}{SUFFIX}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        raise NotFoundError(f"expected a file, got nothing at {path}") from None
