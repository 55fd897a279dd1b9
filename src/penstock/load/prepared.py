"""A dataset that TFDS prepared, read in place: its shards, and the indexes that they come without."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..errors import CorruptionError
from ..records.codec import default_threads
from ..schema import Schema
from ..tfds.directory import read_prepared
from .files import indexed
from .opening import Opened, PathLike
from .shard_files import ShardFile, ShardFiles


def open_prepared(directory: Path, schema: Schema | None, format: str | None, cache: PathLike | None) -> Opened:
    """The dataset of a directory. Fields that can't be read are left out, and named in a warning."""
    prepared = read_prepared(directory, format)
    for field, reason in prepared.unread.items() if schema is None else ():
        warnings.warn(f"the field {field!r} can't be read: {reason} - at {directory}", stacklevel=4)
    wanted = [(file, records) for files in prepared.splits.values() for file, records in files]
    with ThreadPoolExecutor(default_threads() * 4) as pool:
        shards = pool.map(lambda shard: _opened(os.path.join(directory, shard[0]), shard[1], cache), wanted)
        coming: Iterator[ShardFile] = iter(shards)
        splits = {split: ShardFiles(next(coming) for _ in files) for split, files in prepared.splits.items()}
    return Opened(directory, prepared.name, schema or prepared.schema, splits, prepared=prepared)


def _opened(path: str, records: int, cache: PathLike | None) -> ShardFile:
    found = indexed(path, cache)
    if found.records != records:
        raise CorruptionError(f"expected {records} records, as dataset_info.json says, got {found.records}", path)
    return found
