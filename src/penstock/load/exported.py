"""A dataset that Datum exported, read in place: its two JSON files say what is in its shards."""

from __future__ import annotations

from pathlib import Path

from ..manifest import dataset_name
from ..records.datum_files import MAPPING, exported_files, read_mapping
from ..schema import Schema
from ..storage import PathLike
from .files import indexed
from .opening import Opened
from .shard_files import ShardFiles


def open_exported(directory: Path, schema: Schema | None, cache: PathLike | None) -> Opened:
    """The dataset of a directory. The shards themselves tell how many records they have: Datum's counts may be old."""
    files = exported_files(directory)
    splits = {split: ShardFiles(indexed(file, cache) for file in files[split]) for split in sorted(files)}
    return Opened(directory, dataset_name(directory), schema or read_mapping(directory / MAPPING), splits)
