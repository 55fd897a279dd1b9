"""Open a path or URL: a dataset of Penstock, of TFDS or of Datum, or record files and tars of any program."""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .._core import Shard, Shards
from ..errors import ArgumentError, CorruptionError, LoadError, NotFoundError, SchemaError, StorageError, name_known
from ..records.codec import Codec, default_threads
from ..records.formats import FORMATS
from ..records.index import SUFFIX, is_foreign, sidecar_path
from ..records.inspect import opening
from ..records.shard import open_shard
from ..records.tar import SUFFIXES as TARS
from ..records.tar import checked_schema, rules_of, sampled_schema
from ..schema.field import Decode, check_decode, image_options
from ..schema.schema import Fields, Schema
from ..storage.cache import Cache, RemoteFile, cache_home
from ..storage.files import beside, checked_path, local_path, read_json_object
from ..storage.local import FileStamp, file_stamp
from ..storage.open import open_store
from ..storage.paths import RECORD_SUFFIXES, SPLIT, PathLike, Paths, expand, is_glob, path_list, split_patterns
from ..storage.store import is_url, join_url, url_name
from ..thread_pool import thread_pool
from .datum import MAPPING, exported_files, read_mapping
from .downloads import Fetcher, Ranges, StoredFiles
from .manifest import (
    MANIFEST,
    MOST_MANIFEST_BYTES,
    WORK,
    Manifest,
    ShardEntries,
    dataset_name,
    parse_manifest,
    shard_column,
)
from .record_files import files_of, files_of_splits, format_named, schema_of, split_order
from .shards import ExampleReader, JoinedFiles, NamedFiles, Remote, ShardFile, ShardFiles
from .tfds import INFO, SCHEME, Prepared, find_dataset, read_prepared

Format: TypeAlias = Literal["tfrecord", "array_record", "tar"]
READABLE = (*FORMATS, "tar")
FILE_SUFFIXES = (*RECORD_SUFFIXES, ".gz", ".zst", ".bz2", ".xz", *TARS)


class ShardAccess:
    """Reads shards. Each is opened when it is first needed; those of a store are downloaded, or read in ranges."""

    def __init__(self, files: ShardFiles) -> None:
        self.files = files

    @cached_property
    def fetcher(self) -> Fetcher | None:
        """Downloads shards that are in a store; None if none is."""
        return Fetcher(self.files) if self.files.elsewhere else None

    @cached_property
    def shards(self) -> Shards:
        """The shards, for the core."""
        return Shards(self.files.places(), None if self.fetcher is None else self.fetcher.bring, self.files.stamps)

    def reader(self, schema: Schema, decode: Decode, *, narrow: bool = False) -> ExampleReader:
        """Return a reader of single examples, decoded by a schema; `narrow` as in Codec."""
        codec = Codec(schema, narrow=narrow, images=image_options(schema.leaves(), decode))
        ranges = None if self.fetcher is None else Ranges(self.files, self.fetcher)
        return ExampleReader(self.files, self.shards, codec, ranges)


@dataclass(frozen=True, eq=False)
class Opened:
    """A dataset that was opened: its schema, and the shards of each split.

    format  that of the shards that are read, where a manifest has it
    """

    path: Path | str
    name: str
    schema: Schema
    splits: Mapping[str, ShardFiles]
    manifest: Manifest | None = None
    prepared: Prepared | None = None
    format: str | None = None
    cache: Cache | None = None

    @cached_property
    def files(self) -> ShardFiles:
        """All shards, split by split: examples are numbered through them."""
        return JoinedFiles(list(self.splits.values()))

    @cached_property
    def access(self) -> ShardAccess:
        """Reads the shards."""
        return ShardAccess(self.files)

    def reader(self, fields: Sequence[str] | None, decode: Decode) -> ExampleReader:
        """Return a reader of single examples, with all fields or some."""
        return self.access.reader(self.schema if fields is None else self.schema.select(*fields), decode)

    @cached_property
    def records(self) -> dict[str, list[int]]:
        """The number of records in each shard of every split."""
        return {split: files.records for split, files in self.splits.items()}

    @property
    def has_fields(self) -> bool:
        """Whether there is a field to read."""
        return bool(self.schema.leaves())

    @property
    def unread(self) -> dict[str, str]:
        """Fields that TFDS stored and that Penstock cannot read, each with the reason."""
        return {} if self.prepared is None else self.prepared.unread

    def fingerprint(self, spans: Sequence[tuple[int, int]] | None = None) -> str:
        """Return a digest of the shards that hold some examples, wherever they are, and of which examples it is.

        A dataset in several formats has the digest of the first: all hold the same.
        """
        digest = hashlib.blake2b(digest_size=8)
        first = 0
        for name, records, size, checksum in self._contents:
            last = first + records
            inside = [(max(a, first) - first, min(b, last) - first) for a, b in spans or [(first, last)]]
            inside = [(a, b) for a, b in inside if a < b]
            if inside:
                digest.update(repr((name, records, size, checksum, inside)).encode())
            first = last
        return digest.hexdigest()

    @cached_property
    def _contents(self) -> list[tuple[str, int, int, int | None]]:
        """Names, records and bytes of the shards, and their CRC-32C where a manifest has them."""
        if self.manifest is None:
            return [(os.path.basename(file.path), file.records, file.bytes, None) for file in self.files]
        shards = itertools.chain.from_iterable(self.manifest.splits.values())
        return [(shard.file, shard.records, shard.bytes, shard.crc32c) for shard in shards]

    def __reduce__(self) -> tuple[Callable[..., Opened], tuple[object, ...]]:
        """Pickle the path alone where a manifest names the shards: the other process opens the dataset again."""
        if self.manifest is None:
            return _restore, ({each.name: getattr(self, each.name) for each in fields(self)}, platform.node())
        schema = None if self.schema == self.manifest.schema else self.schema.to_json()
        return _reopen, (str(self.path), schema, self.format, self.cache, self.fingerprint())


def _reopen(path: str, schema: object, format: Format | None, cache: Cache | None, fingerprint: str) -> Opened:
    given = None if schema is None else Schema.from_json(schema)
    folder, most = (None, None) if cache is None else (cache.given, cache.most)
    opened = open_dataset(path, given, format, folder, cache_bytes=most)
    if opened.fingerprint() != fingerprint:
        raise SchemaError("expected the dataset that was pickled, got another one in its place", path, "Load it again")
    return opened


def _restore(values: dict[str, Any], host: str) -> Opened:
    opened = Opened(**values)
    if host == platform.node():
        return opened
    # Another host may have copies of the files: those count from now on.
    splits = {split: ShardFiles(map(_stamped, files)) for split, files in opened.splits.items()}
    return replace(opened, splits=splits)


def _stamped(file: ShardFile) -> ShardFile:
    if file.stamp is None:
        return file
    stamp = file_stamp(file.path)
    if stamp[2] != file.bytes:
        problem = f"expected the file of {file.bytes} bytes that was pickled, got {stamp[2]} bytes"
        raise LoadError(f"{problem} - at {file.path}. Call ps.load again", path=file.path)
    return replace(file, stamp=stamp)


def open_dataset(
    path: Paths,
    schema: Schema | Fields | None,
    format: str | None,
    cache: PathLike | None = None,
    data_dir: PathLike | None = None,
    *,
    cache_bytes: int | None = None,
    decode: Decode = True,
) -> Opened:
    """Open a directory with a manifest or with metadata of TFDS, or record files: one, a list, a folder, a glob.

    Any of them may be in an object store.

    decode  which images are decoded; False leaves all files of a tar as bytes
    """
    opened = _open(path, schema, format, cache, data_dir, cache_bytes=cache_bytes, raw=decode is False)
    check_decode(opened.schema.leaves(), decode)
    return opened


def _open(
    path: Paths,
    schema: Schema | Fields | None,
    format: str | None,
    cache: PathLike | None,
    data_dir: PathLike | None,
    *,
    cache_bytes: int | None,
    raw: bool,
) -> Opened:
    if cache is not None:
        local_path(cache, "cache")
    if format not in (None, *READABLE):
        expected = ", ".join(f'"{known}"' for known in READABLE)
        raise ArgumentError(f"expected one of the formats {expected}, or None to find it out, got {format!r}", "load")
    paths = [checked_path(path)] if isinstance(path, (str, os.PathLike)) else path_list(path)
    if len(paths) == 1:
        path = paths[0]
    if isinstance(path, str) and path.startswith(SCHEME):
        path = find_dataset(path, data_dir)
        paths = [str(path)]
    elif data_dir is not None:
        raise ArgumentError('expected data_dir with a name such as "tfds:mnist", got it with a path', "load")
    if cache_bytes is not None and not any(map(is_url, paths)):
        raise ArgumentError("expected cache_bytes with a URL, got it with a path", "load")
    given = None if schema is None else schema if isinstance(schema, Schema) else Schema(schema)
    directory = Path(path) if isinstance(path, (str, os.PathLike)) and os.path.isdir(path) else None
    if directory is not None:
        if (directory / MANIFEST).is_file():
            return open_local_manifest(directory, given, format)
        if (directory / INFO).is_file():
            return open_prepared(directory, given, format, cache)
        if (directory / MAPPING).is_file():
            return open_exported(directory, given, cache)
        _check_finished(directory)

    if any(map(is_url, paths)):
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
        from .datum import exported_files

        return dict.fromkeys(file for files in exported_files(directory).values() for file in files)
    _check_finished(directory)

    return dict.fromkeys(file for format in record_formats(directory) for file in record_files(directory, format))


def names_files(url: str) -> bool:
    """Whether a URL stands for files of records, and not for the folder of a dataset."""
    return is_glob(url) or "{" in url or os.path.splitext(url)[1].lower() in FILE_SUFFIXES


def open_local_manifest(directory: Path, schema: Schema | None, format: str | None) -> Opened:
    """Open a dataset that `build` wrote, on local disk."""
    path = directory / MANIFEST
    with open(path, "rb") as file:
        about = os.fstat(file.fileno())  # of the very file that is read
        if about.st_size > MOST_MANIFEST_BYTES:
            raise CorruptionError(f"expected a manifest of at most {MOST_MANIFEST_BYTES} bytes, got more", str(path))
        data = file.read()
    stamp = (str(path), about.st_ino, about.st_size, about.st_mtime_ns)
    return open_manifest(directory, Manifest.from_bytes(data, str(path)), schema, format, stamp=stamp)


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
        raise ArgumentError(f"expected a dataset in the format {chosen!r}, got none", str(directory), hint)
    ranged = chosen != "tfrecord" or not manifest.format_options(chosen).get("compression")
    shards = manifest.formats[chosen]
    if cache is None:
        _check_empty_shards(str(directory), shards, chosen)
        splits = {split: NamedFiles(entries, str(directory), stamp) for split, entries in shards.items()}
    else:
        where = (str(directory), cache, told, ranged)
        splits = {split: StoredFiles(entries, *where) for split, entries in shards.items()}
    return Opened(directory, manifest.name, schema or manifest.schema, splits, manifest, format=chosen, cache=cache)


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
        raise ArgumentError(f"expected files of one kind, got the tar {tars[0]} and {other}", "load")
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
        for name in (MANIFEST, INFO, MAPPING):
            found += [path.parent for path in itertools.islice(folder.glob("*/" * depth + name), _MOST_LOOKED_AT)]
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


def read_remote_manifest(url: str) -> tuple[Manifest, RemoteFile]:
    """The manifest of a dataset, and the object that it was read from."""
    where = join_url(url, MANIFEST)
    said, entry = read_json_object(where, "a manifest", MOST_MANIFEST_BYTES, parse_manifest)
    return Manifest.from_json(said, where), RemoteFile(where, entry.size, version=entry.version)


def remote_manifest(url: str) -> Manifest | None:
    """The manifest of a dataset; None of one that TFDS prepared, which has none."""
    try:
        return read_remote_manifest(url)[0]
    except NotFoundError:
        if not _has(url, INFO):
            raise
        return None


def open_url(url: str, schema: Schema | None, format: str | None, cache: Cache) -> Opened:
    """A dataset that `build` made, TFDS prepared or Datum exported, by its metadata."""
    try:
        manifest, told = read_remote_manifest(url)
    except NotFoundError:
        if _has(url, INFO):
            return open_prepared_url(url, schema, format, cache)
        if _has(url, MAPPING):
            return open_exported_url(url, schema, cache)
        raise
    return open_manifest(url, manifest, schema, format, cache, told)


def _has(url: str, name: str) -> bool:
    store, where = open_store(join_url(url, name))
    try:
        store.entry(where)
    except NotFoundError:
        return False
    return True


def brought_files(patterns: Sequence[str], cache: Cache) -> dict[str, dict[str, str]]:
    """Local copies of files that come without a manifest, by URL, for each pattern.

    All of them are brought, for nothing says what is in them.
    """
    from .record_files import without_side_files

    texts = [each for text in patterns for each in (split_patterns(text).values() if SPLIT in text else [text])]
    found = {text: without_side_files(expand(text)) for text in texts if is_url(text)}
    files = {}
    for url in dict.fromkeys(url for urls in found.values() for url in urls):
        store, name = open_store(url)
        entry = store.entry(name)
        remote = Remote(RemoteFile(url, entry.size, version=entry.version), cache)
        files[url] = ShardFile(str(cache.path(remote.file)), 0, entry.size, None, remote=remote)
    Fetcher(ShardFiles(files.values())).get(file.path for file in files.values())
    return {text: {url: files[url].path for url in urls} for text, urls in found.items()}


def known_schema(urls: Iterable[str]) -> Schema | None:
    """The schema that lies beside files of a store, as `build` writes it; tars have none."""
    from .record_files import format_named, schema_beside

    records = [url for url in urls if format_named(url_name(url)) != "tar"]
    return schema_beside(records) if records else None
