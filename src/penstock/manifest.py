"""The directory of a dataset: the names of its files, and the manifest. No manifest, no dataset.

data/photos/
  penstock.json                                   the manifest: written last
  photos-train.tfrecord-00000-of-00002 ...        the shards, named as TFDS names them
  photos-train.tfrecord-00000-of-00002.index      where each record begins
  photos-train.tfrecord-00000-of-00002.keys       which example each record was
  photos-train.array_record-00000-of-00002 ...    the same shards in another format, if both were asked for
  .build/                                         a build that is under way, or was cut off
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

from .errors import CorruptionError, NotFoundError, StorageError
from .info import Info
from .records.formats import FORMATS
from .records.index import SUFFIX as INDEX
from .schema import Schema
from .storage import beside, is_url, publish, read_bytes, read_json

MANIFEST = "penstock.json"
WORK = ".build"
VERSION = 2
KEYS_SUFFIX = ".keys"
HASHES_SUFFIX = ".hashes.npy"
ATTEMPT = "attempt-"  # what the files of a task are called until it is known which attempt at it counts

_FORMAT = "|".join(FORMATS)
_ARRAY_RECORD = re.compile(r"\.array_record-\d+-of-\d+$")
_SPLIT = re.compile(r"[\w-]+")
_FILE = re.compile(r"[\w.-]+")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
MOST_MANIFEST_BYTES = 1 << 30
_MOST_KEYS_BYTES = 1 << 30  # of one shard
_NUMBERS = ("records", "bytes", "crc32c")  # what is told of every shard; the rest, where there is something to tell


class ShardEntry(NamedTuple):
    """A published shard: its file and what it holds.

    inputs        a digest of what it was made from, "" when that is unknown
    ignored, bad  how many examples it was made without
    """

    file: str
    records: int
    bytes: int
    crc32c: int
    inputs: str = ""
    ignored: int = 0
    bad: int = 0


class ShardTable(Sequence[ShardEntry]):
    """The shards of a split as a manifest has them, in columns. An entry is made when it is looked at."""

    def __init__(self, name: str, split: str, format: str, columns: Mapping[str, list[Any]]) -> None:
        self._named = (name, split, format)
        self._columns = columns
        self._count = len(columns["records"])

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> ShardEntry: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[ShardEntry, ...]: ...
    def __getitem__(self, at: int | slice) -> ShardEntry | tuple[ShardEntry, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        number = range(self._count)[at]
        told = {part: column[number] for part, column in self._columns.items()}
        return ShardEntry(file=shard_file(*self._named, number, self._count), **told)

    def __iter__(self) -> Iterator[ShardEntry]:
        return map(ShardEntry._make, zip(*map(self.column, ShardEntry._fields), strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # lists are in it

    def paths(self, folder: str) -> Iterator[str]:
        """Their files, in a folder."""
        return all_shard_files(*self._named, self._count, folder)

    def column(self, part: str) -> list[Any]:
        """What all entries say of one thing."""
        if part == "file":
            return list(self.paths(""))
        if part in self._columns:
            return self._columns[part]
        return [ShardEntry._field_defaults[part]] * self._count


def shard_column(shards: Sequence[ShardEntry], part: str) -> list[Any]:
    """What all shards say of one thing."""
    return shards.column(part) if isinstance(shards, ShardTable) else [getattr(shard, part) for shard in shards]


def shard_paths(shards: Sequence[ShardEntry], folder: str = "") -> list[str]:
    """The files of all shards, in a folder."""
    if isinstance(shards, ShardTable):
        return list(shards.paths(folder))
    return [folder + shard.file for shard in shards]


ShardEntries = Mapping[str, Sequence[ShardEntry]]  # of each split


@dataclass(frozen=True)
class Manifest:
    """What a dataset is: everything that a reader must know before it opens a shard, and what it was built from.

    splits, format   the shards, and the format that they have
    alternatives     the same shards in other formats, by format: as many, with the same records
    options, source  what the build was asked for, and what tells its source apart
    found            what it found: bad and ignored examples, content that stands in two splits
    info             what people should know of it
    made             when, and by which version: the only part that differs between two equal builds
    """

    name: str
    schema: Schema
    splits: ShardEntries
    options: dict[str, Any]
    source: dict[str, Any]
    found: dict[str, Any]
    made: dict[str, Any]
    info: Info
    format: str = "tfrecord"
    alternatives: dict[str, ShardEntries] = field(default_factory=dict)

    @property
    def formats(self) -> dict[str, ShardEntries]:
        """The shards of each split in every format; the first is what a reader takes unless told."""
        return {self.format: self.splits, **self.alternatives}

    def shards(self) -> Iterator[ShardEntry]:
        """Every shard, in every format."""
        for splits in self.formats.values():
            for shards in splits.values():
                yield from shards

    @property
    def begun(self) -> dict[str, Any]:
        """What was asked for."""
        return {"name": self.name, "options": self.options, "source": self.source}

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return {
            "penstock_manifest": VERSION,
            "name": self.name,
            "info": self.info.to_json(),
            "schema": self.schema.to_json(),
            "format": self.format,
            "splits": _columns(self.splits),
            "alternatives": {format: _columns(splits) for format, splits in self.alternatives.items()},
            "options": self.options,
            "source": self.source,
            "found": self.found,
            "made": self.made,
        }

    @classmethod
    def from_json(cls, data: Any, where: str) -> Manifest:
        """The manifest of `to_json()`; anything else is a CorruptionError."""
        try:
            if data["penstock_manifest"] not in (1, VERSION):
                raise ValueError(f"version {data['penstock_manifest']!r}")
            name, format = _checked(_FILE, data["name"]), data["format"]
            told = {format: data["splits"], **data["alternatives"]}
            if data["penstock_manifest"] == 1:
                formats = {each: _entries(splits) for each, splits in told.items()}
            else:
                formats = {each: _from_columns(name, each, splits) for each, splits in told.items()}
            splits = formats.pop(format)
            alternatives = {each: formats[each] for each in data["alternatives"]}
            _check_alternatives(splits, format, alternatives)
            options, source, found, made = (dict(data[part]) for part in ("options", "source", "found", "made"))
            info = Info.from_json(name, data["info"])
            schema = Schema.from_json(data["schema"])
            return cls(name, schema, splits, options, source, found, made, info, format, alternatives)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            got = f"something else ({type(error).__name__}: {error})"
            raise CorruptionError(f"expected a manifest of version {VERSION}, got {got}", where) from error


def _columns(splits: ShardEntries) -> dict[str, dict[str, list[Any]]]:
    """Shards column by column, which is quick to read; their names follow from their numbers."""
    told = {}
    for split, shards in splits.items():
        columns = {name: shard_column(shards, name) for name in ShardEntry._fields[1:]}
        told[split] = {name: column for name, column in columns.items() if name in _NUMBERS or any(column)}
    return told


def _from_columns(name: str, format: str, data: Mapping[str, Any]) -> ShardEntries:
    """The shards of `_columns`."""
    splits = {}
    for split, told in data.items():
        unknown = set(told) - set(ShardEntry._fields[1:])
        if unknown:
            raise ValueError(f"shards with {sorted(unknown)}")
        count = len(told["records"])
        for part in {*_NUMBERS, *told}:
            kind = str if part == "inputs" else int
            column = told[part]
            if type(column) is not list or len(column) != count or not set(map(type, column)) <= {kind}:
                raise ValueError(f"odd {part} of the shards of {split}")
            if kind is int and min(column, default=0) < 0:
                raise ValueError(f"negative {part} of the shards of {split}")
        splits[split] = ShardTable(name, _checked(_SPLIT, split), format, dict(told))
    return splits


def _entries(data: Mapping[str, Any]) -> ShardEntries:
    return {_checked(_SPLIT, split): tuple(_entry(shard) for shard in shards) for split, shards in data.items()}


def _check_alternatives(splits: ShardEntries, format: str, alternatives: Mapping[str, ShardEntries]) -> None:
    """That all formats are known, and hold the same."""
    for name in (format, *alternatives):
        if name not in FORMATS:
            raise ValueError(f"the format {name!r}")
    counts = {split: shard_column(shards, "records") for split, shards in splits.items()}
    for name, other in alternatives.items():
        if name == format or {split: shard_column(shards, "records") for split, shards in other.items()} != counts:
            raise ValueError(f"other records in {name}")


def _entry(data: Mapping[str, Any]) -> ShardEntry:
    known = set(ShardEntry._fields)
    if set(data) != known:
        raise ValueError(f"a shard with {sorted(set(data) ^ known)}")
    entry = ShardEntry(**data)
    _checked(_FILE, entry.file)
    numbers = (entry.records, entry.bytes, entry.crc32c, entry.ignored, entry.bad)
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError(f"a shard with odd numbers: {entry.file}")
    return entry


def _checked(pattern: re.Pattern[str], text: Any) -> str:
    """A name that stays within the directory."""
    if not isinstance(text, str) or not pattern.fullmatch(text) or text in (".", ".."):
        raise ValueError(f"the name {text!r}")
    return text


def read_manifest(directory: Path | str) -> Manifest:
    """The manifest of a dataset, whose directory may be a URL."""
    if not is_url(directory) and os.path.isfile(directory):
        raise StorageError(f"expected the directory of a dataset, got a file - at {directory}")
    path = beside(directory, MANIFEST)
    data = read_json(path, "a manifest", MOST_MANIFEST_BYTES)
    return Manifest.from_json(data, str(path))


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Publish a dataset."""
    publish(directory / MANIFEST, manifest_bytes(manifest), sync=True)


def manifest_bytes(manifest: Manifest) -> bytes:
    """The file of a manifest."""
    members = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in manifest.to_json().items())
    return ("{\n" + ",\n".join(members) + "\n}\n").encode()


def dataset_name(directory: Path) -> str:
    """The name that a path gives a dataset: its last part that is not a version, fit for file names."""
    parts = [part for part in directory.absolute().parts if not _VERSION.fullmatch(part)]
    return re.sub(r"\W+", "_", parts[-1] if parts else "").strip("_") or "dataset"


def dataset_version(directory: Path) -> str | None:
    """The version that a path gives a dataset: its last part, if it looks like one."""
    last = directory.absolute().name
    return last if _VERSION.fullmatch(last) else None


def shard_file(name: str, split: str, suffix: str, number: int, count: int) -> str:
    """The name of a shard, as TFDS has it."""
    digits = max(5, len(str(count)))
    return f"{name}-{split}.{suffix}-{number:0{digits}}-of-{count:0{digits}}"


def all_shard_files(name: str, split: str, suffix: str, count: int, folder: str = "") -> Iterator[str]:
    """The names of all shards of a split, or their paths: a thousand at a time, for there may be many thousands."""
    digits = max(5, len(str(count)))
    ends = [f"{number:03}-of-{count:0{digits}}" for number in range(min(count, 1000))]
    for first in range(0, count, 1000):
        begin = f"{folder}{name}-{split}.{suffix}-{first // 1000:0{digits - 3}}"
        yield from [begin + end for end in ends[: count - first]]


def shard_pattern(name: str) -> re.Pattern[str]:
    """What the names of a dataset's shards match, and those of the files beside them."""
    return re.compile(re.escape(name) + rf"-[\w-]+\.({_FORMAT})-\d{{5,}}-of-\d{{5,}}(\.index|\.keys)?")


def in_format(file: str, format: str) -> str:
    """The name that a shard has in a format."""
    return re.sub(rf"\.({_FORMAT})(?=-\d+-of-\d+$)", f".{format}", file)


def shard_files(file: str) -> tuple[str, ...]:
    """A shard's file, and those beside it."""
    index = index_file(file)
    return (file, file + KEYS_SUFFIX) if index is None else (file, index, file + KEYS_SUFFIX)


def index_file(file: str) -> str | None:
    """The file that says where a shard's records begin; one of ArrayRecord says it by itself."""
    return None if _ARRAY_RECORD.search(file) else file + INDEX


def hashes_path(path: Path) -> Path:
    """Where a build keeps the hashes of a shard's records, while it is under way."""
    folder = path.parent if path.parent.name == WORK else path.parent / WORK
    return folder / (path.name + HASHES_SUFFIX)


def write_keys(path: Path, keys: Iterable[str]) -> None:
    """Keep the keys of a shard's records beside it."""
    publish(path.with_name(path.name + KEYS_SUFFIX), zlib.compress(json.dumps(list(keys)).encode(), 1), sync=True)


def read_keys(path: Path | str) -> list[str]:
    """The keys of a shard's records; the shard may be an object of a store."""
    file = str(path) + KEYS_SUFFIX
    try:
        packed = zlib.decompressobj()
        data = packed.decompress(read_bytes(file), _MOST_KEYS_BYTES)
        if not packed.eof:
            raise ValueError("cut off, or too many")
        keys = json.loads(data)
    except FileNotFoundError:
        raise NotFoundError(f"expected the keys of a shard, got nothing at {file}") from None
    except (zlib.error, ValueError) as error:
        raise CorruptionError(f"expected the keys of a shard, got broken bytes ({error})", file) from None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise CorruptionError("expected a list of keys, got something else", file)
    return keys
