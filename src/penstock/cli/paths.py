"""What a path on the command line names: files, a dataset, or a pattern of files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..dataset.manifest import (
    MANIFEST,
    Manifest,
    ShardEntry,
    read_manifest,
)
from ..dataset.open import brought_files, files_without_manifest, names_files, remote_manifest
from ..dataset.record_files import split_order, without_side_files
from ..errors import NotFoundError
from ..storage.cache import Cache
from ..storage.paths import SPLIT, expand, split_patterns
from ..storage.store import is_url, join_url


def check_there(path: str) -> None:
    """Raises what a path that leads nowhere should say, in place of what the system says of it."""
    if not is_url(path) and not os.path.lexists(path):
        raise NotFoundError(f"expected a file or a folder, got nothing at {path}")


def expand_all(patterns: Iterable[str]) -> list[str]:
    """The files of all patterns, each once. What goes with one of them, such as its index, is left out.

    Files of a store are brought; a dataset there stays the URL that it is.
    """
    return without_side_files(list(dict.fromkeys(path for pattern in patterns for path in _expanded(pattern))))


def _expanded(pattern: str) -> list[str]:
    if is_url(pattern) and names_files(pattern):
        return [path for files in brought_files([pattern], Cache()).values() for path in files.values()]
    if is_url(pattern):
        return [pattern]
    if SPLIT not in pattern or os.path.lexists(pattern):
        return expand(pattern)
    splits = split_patterns(pattern)
    return [path for split in sorted(splits, key=split_order) for path in expand(splits[split])]


Told = ShardEntry | int | None  # of a shard: what our manifest says, how many records TFDS says that it has, or nothing


def is_dataset(path: str) -> bool:
    """Whether a path is a directory, or a URL of what should be one."""
    return not names_files(path) if is_url(path) else os.path.isdir(path)


def manifest_of(path: str) -> Manifest | None:
    """The manifest of a dataset; one of TFDS, of Datum, or of files alone has none."""
    if is_url(path):
        return remote_manifest(path)
    return read_manifest(Path(path)) if os.path.isfile(os.path.join(path, MANIFEST)) else None


def shards_of(path: str) -> dict[str, Told]:
    """The shards of a dataset in all its formats, by path or URL."""
    manifest = manifest_of(path)
    return dict(files_without_manifest(path) if manifest is None else shard_entries(path, manifest))


def shard_entries(path: str, manifest: Manifest) -> dict[str, ShardEntry]:
    """The shards that a manifest names, by path or URL."""
    join = join_url if is_url(path) else os.path.join
    return {join(path, shard.file): shard for shard in manifest.shards()}
