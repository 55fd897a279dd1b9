"""Record files made by anyone, as a dataset: their splits, their schema, and the indexes that they come without."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from .._core import Shard
from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError
from ..manifest import MANIFEST, dataset_name
from ..records.codec import default_threads
from ..records.datum_files import MAPPING
from ..records.index import SUFFIX, is_foreign, sidecar_path
from ..records.peek import opening
from ..records.tar import checked_schema, rules_of, sampled_schema
from ..schema import Schema
from ..sources.listed import split_order
from ..sources.record_files import files_of, files_of_splits, format_named, schema_of
from ..storage import FileStamp, PathLike, file_stamp
from ..storage.cache import cache_home
from ..tfds.directory import INFO
from ..thread_pool import thread_pool
from .opening import Opened
from .shard_files import ShardFile, ShardFiles

_MOST_NAMED = 5  # datasets, where there are some below a folder that is none
_MOST_LOOKED_AT = 100


def record_formats(folder: PathLike) -> list[str | None]:
    """The formats of the record files in a folder; [None] where there are none."""
    return list(dict.fromkeys(filter(None, map(format_named, sorted(os.listdir(folder)))))) or [None]


def record_files(path: PathLike, format: str | None = None) -> list[str]:
    """The record files that a path names, or that are in a folder."""
    if os.path.isdir(path) and not any(format_named(name) for name in os.listdir(path)):
        inside = list(map(str, _datasets_below(Path(path))))
        if inside:
            named = ", ".join(inside[:_MOST_NAMED]) + (" ..." if len(inside) > _MOST_NAMED else "")
            raise NotFoundError(f"expected a dataset, got a folder of them - at {path}. Take one: {named}")
        raise NotFoundError(f"expected a dataset, or files (.tfrecord, .array_record, .tar), got neither - at {path}")
    files = files_of(path, format)
    for file in files:
        if os.path.isdir(file):
            raise StorageError(f"expected a file, got the folder {file}")
    return files


def open_files(
    paths: Sequence[str],
    schema: Schema | None,
    cache: PathLike | None,
    format: str | None,
    *,
    raw: bool = False,
    cached: Path | None = None,
    brought: Mapping[str, list[str]] | None = None,
) -> Opened:
    """Record files as a dataset.

    cached   a cache: files below it may be deleted and downloaded again, with the same content
    brought  the local files of each pattern of a store
    """
    path = Path(paths[0]) if brought is None else next(Path(file) for files in brought.values() for file in files)
    found = files_of_splits(paths, partial(record_files, format=format), brought or {})
    splits = {split or "train": files for split, files in found.items()}
    files = [file for some in splits.values() for file in some]
    with thread_pool(min(len(files), default_threads() * 4)) as pool:
        opened = dict(zip(files, pool.map(lambda file: indexed(file, cache), files), strict=True))
    if cached is not None:
        for file in files:
            if cached in Path(file).parents:
                opened[file] = replace(opened[file], stamp=None)
    tars = [file for file in files if opened[file].rules is not None]
    if tars and len(tars) < len(files):
        other = next(file for file in files if opened[file].rules is None)
        raise SchemaError(f"expected files of one kind, got the tar {tars[0]} and {other}", "load")
    if tars:
        known = sampled_schema(files, raw=raw) if schema is None else checked_schema(schema)
        rules = tuple(rules_of(known))
        opened = {file: replace(shard, rules=rules) for file, shard in opened.items()}
    else:
        known = schema or schema_of(files)
    ordered = {split: ShardFiles(opened[file] for file in splits[split]) for split in sorted(splits, key=split_order)}
    return Opened(path, dataset_name(path), known, ordered)


def _datasets_below(folder: Path) -> list[Path]:
    """Some datasets in the folders of a folder; those of TFDS are in name/config/version."""
    found: list[Path] = []
    for depth in range(1, 4):
        for beside in (MANIFEST, INFO, MAPPING):
            found += [path.parent for path in itertools.islice(folder.glob("*/" * depth + beside), _MOST_LOOKED_AT)]
    return sorted(set(found))


# Indexes of files that came without one


def indexed(path: str, cache: PathLike | None = None) -> ShardFile:
    """A file with its index: the one beside it, the one in the cache, or a new one."""
    beside, cached = sidecar_path(path), cached_index(path, cache)
    stamp = _stamp(path)
    for sidecar in (beside, cached):
        if sidecar.exists():
            with suppress(CorruptionError, StorageError):
                return _described(Shard(path, sidecar, True), stamp, str(sidecar))
    with opening(path):
        shard = Shard(path)
    if shard.format[0] == "array_record":
        return ShardFile(path, len(shard), stamp[2], None, stamp=stamp)  # its footer is its index
    if not len(shard):
        return _described(shard, stamp, None)
    index = shard.index()
    for sidecar in (beside, cached):
        if is_foreign(sidecar):
            continue
        with suppress(OSError):
            if sidecar is cached:
                cached.parent.mkdir(parents=True, exist_ok=True)
            index.write(sidecar)
            return _described(shard, stamp, str(sidecar))
    return _described(shard, stamp, None)  # nowhere to keep it: made again with each open


def _described(shard: Shard, stamp: FileStamp, sidecar: str | None) -> ShardFile:
    path, _, size, _ = stamp
    if shard.format[0] != "tar":
        return ShardFile(path, len(shard), size, sidecar, stamp=stamp)
    return ShardFile(path, len(shard), size, sidecar, rules=(), inflated=shard.inflated, stamp=stamp)


def cached_index(path: str, folder: PathLike | None = None) -> Path:
    """Where the index of a file is kept whose directory is not ours to write to."""
    if folder is None:
        folder = cache_home() / "index"
    full = os.path.realpath(path)
    digest = hashlib.blake2b(full.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return Path(folder) / f"{digest}-{os.path.basename(full)}{SUFFIX}"


def _stamp(path: str) -> FileStamp:
    try:
        return file_stamp(path)
    except FileNotFoundError:
        raise NotFoundError(f"expected a file, got nothing at {path}") from None
