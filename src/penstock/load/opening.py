"""What a path stands for: a dataset of ours, one that TFDS prepared or Datum exported, or record files of anyone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CorruptionError, NotFoundError, SchemaError, name_known
from ..manifest import MANIFEST, WORK, Manifest, ShardEntries, read_manifest, shard_column
from ..records.datum_files import MAPPING
from ..records.formats import FORMATS
from ..records.shard import open_shard
from ..records.tar import SUFFIXES as TARS
from ..schema import Schema
from ..storage import FileStamp, PathLike, Paths, beside, file_stamp, is_glob, is_url, local_path, path_list
from ..storage.cache import Cache, RemoteFile
from ..tfds.directory import INFO, Prepared, find_dataset, is_tfds_name, read_prepared
from .shard_files import NamedFiles, ShardFiles, StoredFiles

READABLE = (*FORMATS, "tar")
RECORD_SUFFIXES = (".tfrecord", ".tfrecords", ".record", ".tfr", ".tfrec", ".array_record", ".arrayrecord")
FILE_SUFFIXES = (*RECORD_SUFFIXES, ".gz", ".zst", ".bz2", ".xz", *TARS)


@dataclass(frozen=True)
class Opened:
    """What a path or a URL stands for; `format` is that of the shards that are read, where a manifest says it."""

    path: Path | str
    name: str
    schema: Schema
    splits: Mapping[str, ShardFiles]
    manifest: Manifest | None = None
    prepared: Prepared | None = None
    format: str | None = None
    cache: Cache | None = None


def open_dataset(
    path: Paths,
    schema: Schema | Mapping[str, Any] | None,
    format: str | None,
    cache: PathLike | None = None,
    data_dir: PathLike | None = None,
    *,
    cache_bytes: int | None = None,
    raw: bool = False,
) -> Opened:
    """Open a directory with a manifest or with metadata of TFDS, or record files: one, a list, a folder, a glob.

    Any of them may be in an object store.

    raw  the files of a tar stay bytes
    """
    if cache is not None:
        local_path(cache, "cache")
    if format not in (None, *READABLE):
        expected = ", ".join(f'"{known}"' for known in READABLE)
        raise SchemaError(f"expected one of the formats {expected}, or None to find it out, got {format!r}", "load")
    paths = path_list(path)
    if len(paths) == 1:
        path = paths[0]
    if is_tfds_name(path):
        path = find_dataset(str(path), data_dir)
        paths = [str(path)]
    elif data_dir is not None:
        raise SchemaError('expected data_dir with a name such as "tfds:mnist", got it with a path', "load")
    remote = any(map(is_url, paths))
    if cache_bytes is not None and not remote:
        raise SchemaError("expected cache_bytes with a URL, got it with a path", "load")
    given = None if schema is None else schema if isinstance(schema, Schema) else Schema(schema)
    directory = Path(path) if isinstance(path, (str, os.PathLike)) and os.path.isdir(path) else None
    if directory is not None:
        if (directory / MANIFEST).is_file():
            stamp = file_stamp(directory / MANIFEST)  # before it is read
            return open_manifest(directory, read_manifest(directory), given, format, stamp=stamp)
        if (directory / INFO).is_file():
            from .prepared import open_prepared

            return open_prepared(directory, given, format, cache)
        if (directory / MAPPING).is_file():
            from .exported import open_exported

            return open_exported(directory, given, cache)
        _check_finished(directory)
    from .files import open_files  # sources take a while to import, and datasets of ours need none

    if remote:
        from .urls import brought_files, known_schema, open_url

        shared = Cache(cache, cache_bytes)
        if is_url(path) and not names_files(str(path)):
            return open_url(str(path), given, format, shared)
        brought = brought_files(paths, shared)
        given = given or known_schema(url for files in brought.values() for url in files)
        local = {text: list(files.values()) for text, files in brought.items()}
        return open_files(paths, given, cache, format, raw=raw, cached=shared.folder, brought=local)
    return open_files(paths, given, cache, format, raw=raw)


def _check_finished(directory: Path) -> None:
    """Refuse a folder in which a build has begun, and no dataset is yet."""
    if (directory / WORK).is_dir():
        hint = "Build it again: it goes on from there"
        raise NotFoundError(f"expected a dataset, got one whose build was cut off - at {directory}. {hint}")


def files_without_manifest(path: str) -> dict[str, int | None]:
    """The shards of a folder that TFDS, Datum or anyone has made, unopened; with their records, if TFDS says them.

    A URL is of one that TFDS prepared.
    """
    directory = Path(path)
    if is_url(path) or (directory / INFO).is_file():
        splits = read_prepared(path).splits.values()
        return {str(beside(path, file)): records for files in splits for file, records in files}
    if (directory / MAPPING).is_file():
        from ..records.datum_files import exported_files

        return dict.fromkeys(file for files in exported_files(directory).values() for file in files)
    _check_finished(directory)
    from .files import record_files, record_formats

    return dict.fromkeys(file for format in record_formats(directory) for file in record_files(directory, format))


def names_files(url: str) -> bool:
    """Whether a URL stands for files of records, and not for the folder of a dataset."""
    return is_glob(url) or "{" in url or os.path.splitext(url)[1].lower() in FILE_SUFFIXES


def _check_empty_shards(directory: str, splits: ShardEntries, format: str) -> None:
    """That shards without records have none: no reader would open them later. The sizes of others tell it."""
    if format != "array_record":
        return
    for shards in splits.values():
        for shard in [shard for shard in shards if not shard.records] if 0 in shard_column(shards, "records") else ():
            path = os.path.join(directory, shard.file)
            if found := len(open_shard(path)):
                hint = "Build the dataset again, or open the file by itself"
                raise CorruptionError(f"expected a shard of 0 records, got {found} - at {path}. {hint}")


def open_manifest(
    directory: Path | str,
    manifest: Manifest,
    schema: Schema | None = None,
    format: str | None = None,
    cache: Cache | None = None,
    told: RemoteFile | None = None,
    stamp: FileStamp | None = None,
) -> Opened:
    """The dataset of a manifest, in one of the formats that it is there in.

    cache, told  of a dataset in a store: where its shards come, and the object that the manifest was read from
    stamp        of a dataset on this machine: the file that the manifest was read from
    """
    chosen = format or manifest.format
    if chosen not in manifest.formats:
        hint = name_known(chosen, manifest.formats, "formats")
        raise SchemaError(f"expected a dataset in the format {chosen!r}, got none", str(directory), hint)
    ranged = chosen != "tfrecord" or not manifest.format_options(chosen).get("compression")
    shards = manifest.formats[chosen]
    if cache is None:
        _check_empty_shards(str(directory), shards, chosen)
        splits = {split: NamedFiles(entries, str(directory), stamp) for split, entries in shards.items()}
    else:
        where = (str(directory), cache, told, ranged)
        splits = {split: StoredFiles(entries, *where) for split, entries in shards.items()}
    return Opened(directory, manifest.name, schema or manifest.schema, splits, manifest, format=chosen, cache=cache)
