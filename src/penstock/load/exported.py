"""A dataset that Datum exported, read in place: its two JSON files say what is in its shards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..manifest import dataset_name
from ..records.datum_files import MAPPING, exported_files, read_mapping
from ..schema import Schema
from ..storage import PathLike, join_url, url_name
from ..storage.cache import Cache
from .files import indexed
from .opening import Opened
from .shard_files import ShardFiles
from .urls import brought_files


def open_exported(directory: Path, schema: Schema | None, cache: PathLike | None) -> Opened:
    """The dataset of a directory. The shards themselves tell how many records they have: Datum's counts may be old."""
    files = exported_files(directory)
    splits = {split: ShardFiles(indexed(file, cache) for file in files[split]) for split in sorted(files)}
    return Opened(directory, dataset_name(directory), schema or read_mapping(directory / MAPPING), splits)


def open_exported_url(url: str, schema: Schema | None, cache: Cache) -> Opened:
    """The dataset of a folder in a store. Its shards have no index, so all of them are downloaded."""
    files = exported_files(url)
    copies = brought_files([file for some in files.values() for file in some], cache)
    splits = {
        split: ShardFiles(replace(indexed(copies[file][file], cache.folder), stamp=None) for file in files[split])
        for split in sorted(files)
    }
    return Opened(url, dataset_name(Path(url_name(url))), schema or read_mapping(join_url(url, MAPPING)), splits)
