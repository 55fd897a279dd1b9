"""A dataset that TFDS prepared, read in place or from a store: its shards, and the indexes that they come without."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..errors import CorruptionError
from ..records.codec import default_threads
from ..schema import Schema
from ..storage import PathLike, join_url, open_store
from ..storage.cache import Cache, RemoteFile
from ..tfds.directory import Prepared, read_prepared
from ..thread_pool import thread_pool
from .files import indexed
from .opening import Opened
from .remote import Remote
from .shard_files import ShardFile, ShardFiles

AT_ONCE = 16  # objects whose size is asked for


def open_prepared(directory: Path, schema: Schema | None, format: str | None, cache: PathLike | None) -> Opened:
    """The dataset of a directory. Fields that can't be read are left out, and named in a warning."""
    prepared = read_prepared(directory, format)
    if schema is None:
        _warn(prepared, directory, 5)
    wanted = [(file, records) for files in prepared.splits.values() for file, records in files]
    with thread_pool(default_threads() * 4) as pool:
        shards = pool.map(lambda shard: _opened(os.path.join(directory, shard[0]), shard[1], cache), wanted)
        coming: Iterator[ShardFile] = iter(shards)
        splits = {split: ShardFiles(next(coming) for _ in files) for split, files in prepared.splits.items()}
    return Opened(directory, prepared.name, schema or prepared.schema, splits, prepared=prepared)


def open_prepared_url(url: str, schema: Schema | None, format: str | None, cache: Cache) -> Opened:
    """The dataset of a directory in a store. Shards come when they are needed; those without an index are scanned."""
    prepared = read_prepared(url, format)
    if schema is None:
        _warn(prepared, url, 6)
    store, folder = open_store(url)

    def shard_file(shard: tuple[str, int]) -> ShardFile:
        name, records = shard
        entry = store.entry(f"{folder}/{name}")
        file = RemoteFile(join_url(url, name), entry.size, version=entry.version)
        remote = Remote(file, cache, ranged=prepared.format == "array_record")  # its footer is its index
        return ShardFile(str(cache.path(file)), records, entry.size, None, remote=remote)

    with thread_pool(AT_ONCE) as pool:
        splits = {split: ShardFiles(pool.map(shard_file, files)) for split, files in prepared.splits.items()}
    return Opened(url, prepared.name, schema or prepared.schema, splits, prepared=prepared, cache=cache)


def _warn(prepared: Prepared, where: Path | str, level: int) -> None:
    for field, reason in prepared.unread.items():
        warnings.warn(f"the field {field!r} can't be read: {reason} - at {where}", stacklevel=level)


def _opened(path: str, records: int, cache: PathLike | None) -> ShardFile:
    found = indexed(path, cache)
    if found.records != records:
        raise CorruptionError(f"expected {records} records, as dataset_info.json says, got {found.records}", path)
    return found
