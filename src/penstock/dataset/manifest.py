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
import reprlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

from .._core import crc32c
from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError
from ..records.formats import FORMATS
from ..records.index import SUFFIX as INDEX
from ..schema.coercion import is_utf8
from ..schema.schema import Schema
from ..storage.files import beside, read_bytes, read_json
from ..storage.local import publish
from ..storage.store import is_url
from .checksummed_json import parse_sealed, seal_json
from .info import Info

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
_MOST_NAME = 200  # letters of the name of a dataset or a split: those of a file have 255 bytes
_NUMBERS = ("records", "bytes", "crc32c")  # what is told of every shard; the rest, where there is something to tell
_LIMITS = {"crc32c": 1 << 32}  # what is not below these is no such number; others must be below 2^63
_FRAME = 16  # bytes around each record of a TFRecord file
_RATIO = 1100  # DEFLATE makes nothing smaller than by 1032


class ShardEntry(NamedTuple):
    """A published shard: its file and what it holds.

    inputs        a digest of what it was made from, "" when that is unknown
    ignored, bad  how many examples it was made without
    keys          CRC-32C of its file of keys, None when that is unknown
    """

    file: str
    records: int
    bytes: int
    crc32c: int
    inputs: str = ""
    ignored: int = 0
    bad: int = 0
    keys: int | None = None


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
    files            CRC-32C of each metadata file beside the manifest; None for a manifest of an older version
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
    files: dict[str, int] | None = None

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

    def format_options(self, format: str) -> Mapping[str, Any]:
        """What the build was asked for in a format; nothing where the manifest does not say it."""
        said = self.options if format == self.format else self.options.get("alternatives", {})
        found: Mapping[str, Any] = said.get("format" if format == self.format else format, {})
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        plain = {
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
        if self.files is not None:
            keys = {split: shard_column(shards, "keys") for split, shards in self.splits.items()}
            plain["checksums"] = {"files": self.files, "keys": keys}
        return plain

    @classmethod
    def from_json(cls, data: Any, where: str) -> Manifest:
        """The manifest of `to_json()`, checked as a whole; anything else is a CorruptionError."""
        try:
            return _checked_manifest(data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            problem = str(error) if type(error) in (ValueError, SchemaError) else f"{type(error).__name__}: {error}"
            hint = "Restore the file from a copy, or build the dataset again"
            wrong = CorruptionError(f"expected a manifest of version {VERSION}, got {problem} - at {where}. {hint}")
            wrong.path = where
            raise wrong from error


# Whether it is one
def _checked_manifest(data: Any) -> Manifest:
    """The one place that believes what a manifest holds. Whatever is odd is an error here, and nowhere later."""
    _check_object(data, "the manifest")
    for member in _MEMBERS:
        if member not in data:
            raise ValueError(f"one without the member {member!r}")
    version = data["penstock_manifest"]
    if type(version) is not int or version not in (1, VERSION):
        raise ValueError(f"version {reprlib.repr(version)}")
    for member in ("info", "schema", "splits", "alternatives", "options", "source", "found", "made"):
        _check_object(data[member], member)
    name, format = _checked(_FILE, data["name"], "name"), data["format"]
    for known in (format, *data["alternatives"]):
        if not isinstance(known, str) or known not in FORMATS:
            raise ValueError(f"the format {reprlib.repr(known)}")
    if format in data["alternatives"]:
        raise ValueError(f"the format {format} twice")
    files, keys = _checksums(data)
    options, found = dict(data["options"]), dict(data["found"])
    _check_options(options)
    for finding, value in found.items():
        if finding in ("floats", "images"):
            _check_by_field(value, finding)
        else:
            _check_number(value, f"found {finding}")
    formats = {}
    for each, splits in {format: data["splits"], **data["alternatives"]}.items():
        _check_object(splits, f"splits of {each}")
        formats[each] = _entries(splits) if version == 1 else _from_columns(name, each, splits, keys)
    splits = formats.pop(format)
    if not splits:
        raise ValueError("one without splits")
    for split, shards in splits.items():
        if not len(shards):
            raise ValueError(f"the split {split} without shards")
    shards_of = {split: len(shards) for split, shards in splits.items()}
    if keys is not None and {split: len(column) for split, column in keys.items()} != shards_of:
        raise ValueError("checksums of the keys of other shards")
    _check_alternatives(splits, formats)
    schema, info = Schema.from_json(data["schema"]), Info.from_json(name, data["info"])
    told = (options, dict(data["source"]), found, dict(data["made"]), info)
    manifest = Manifest(name, schema, splits, *told, format, formats, files)
    for each, entries in manifest.formats.items():
        _check_sizes(entries, each, compressed=bool(manifest.format_options(each).get("compression")))
    return manifest


_MEMBERS = (
    "penstock_manifest", "name", "info", "schema", "format", "splits", "alternatives", "options", "source",
    "found", "made",
)  # fmt: skip


def _check_object(value: Any, what: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{_kind(value)} where an object is expected: {what}")
    for name in value:
        if not is_utf8(name):
            raise ValueError(f"a name that is no text in {what}")


def _check_by_field(value: Any, finding: str) -> None:
    """A finding that is no count: a word, or a list of words, for each field."""
    _check_object(value, f"found {finding}")
    for words in value.values():
        listed = words if finding == "images" else [words]
        if not isinstance(listed, list) or not all(is_utf8(word) for word in listed):
            raise ValueError(f"found {finding} of {reprlib.repr(words)}")


def _check_number(value: Any, what: str, limit: int = 1 << 63) -> None:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{what} of {reprlib.repr(value)}, not an integer from 0 to {limit - 1}")


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a text", type(None): "null"}.get(type(value), reprlib.repr(value))


def _check_options(options: Mapping[str, Any]) -> None:
    """Those that readers look at: how the formats are written, and the order."""
    _check_object(options.get("format", {}), "options format")
    _check_object(options.get("alternatives", {}), "options alternatives")
    for name, said in options.get("alternatives", {}).items():
        _check_object(said, f"options alternatives {name}")
    for said in (options.get("format", {}), *options.get("alternatives", {}).values()):
        if not isinstance(said.get("compression"), str | None):
            raise ValueError(f"the compression {reprlib.repr(said['compression'])}")
    if not isinstance(options.get("order", ""), str):
        raise ValueError(f"the order {reprlib.repr(options['order'])}")
    _check_number(options.get("seed", 0), "a seed", 1 << 64)


def _checksums(data: Mapping[str, Any]) -> tuple[dict[str, int] | None, dict[str, list[int | None]] | None]:
    """Checksums of the files beside the manifest, and of the keys of each split; None for older manifests."""
    if "checksums" not in data:
        return None, None
    told = data["checksums"]
    _check_object(told, "checksums")
    if set(told) != {"files", "keys"}:
        raise ValueError(f"checksums of {reprlib.repr(sorted(told))}, not of files and keys")
    _check_object(told["files"], "checksums files")
    _check_object(told["keys"], "checksums keys")
    for file, value in told["files"].items():
        if not file or "/" in file or "\0" in file or file in (".", ".."):
            raise ValueError(f"the file {reprlib.repr(file)}")
        _check_number(value, f"a checksum of {file}", 1 << 32)
    for split, column in told["keys"].items():
        if type(column) is not list or not set(map(type, column)) <= {int, type(None)}:
            raise ValueError(f"odd checksums of the keys of {split}")
        if any(value is not None and not 0 <= value < 1 << 32 for value in column):
            raise ValueError(f"odd checksums of the keys of {split}")
    return dict(told["files"]), dict(told["keys"])


def _check_sizes(splits: ShardEntries, format: str, *, compressed: bool) -> None:
    """That a shard can hold its records: one without records has no bytes, each record takes some."""
    for split, shards in splits.items():
        records, sizes = shard_column(shards, "records"), shard_column(shards, "bytes")
        for number, (count, size) in enumerate(zip(records, sizes, strict=True)):
            if format == "tfrecord":
                fits = bool(count) == bool(size) and count * _FRAME <= size * (_RATIO if compressed else 1)
            else:
                fits = size > 0 and count <= size * _RATIO
            if not fits:
                raise ValueError(f"shard {number} of {split} with {count} records in {size} bytes")
    total = sum(sum(shard_column(shards, "records")) for shards in splits.values())
    _check_number(total, "a number of records")


def _columns(splits: ShardEntries) -> dict[str, dict[str, list[Any]]]:
    """Shards column by column, which is quick to read; their names follow from their numbers."""
    told = {}
    for split, shards in splits.items():
        columns = {name: shard_column(shards, name) for name in _COLUMNS}
        told[split] = {name: column for name, column in columns.items() if name in _NUMBERS or any(column)}
    return told


def _from_columns(
    name: str, format: str, data: Mapping[str, Any], keys: Mapping[str, list[int | None]] | None
) -> ShardEntries:
    """The shards of `_columns`."""
    splits = {}
    for split, told in data.items():
        _checked(_SPLIT, split, "split")
        _check_object(told, f"the shards of {split}")
        unknown = set(told) - set(_COLUMNS)
        if unknown or not told.keys() >= set(_NUMBERS):
            raise ValueError(f"shards with the columns {reprlib.repr(sorted(told))}")
        count = len(told["records"]) if isinstance(told["records"], list) else 0
        for part, column in told.items():
            kind = str if part == "inputs" else int
            if type(column) is not list or len(column) != count or not set(map(type, column)) <= {kind}:
                raise ValueError(f"odd {part} of the shards of {split}")
            if kind is int and column and not (min(column) >= 0 and max(column) < _LIMITS.get(part, 1 << 63)):
                raise ValueError(f"{part} of the shards of {split} out of range")
        own = {"keys": keys[split]} if keys is not None and len(keys.get(split, ())) == count else {}
        splits[split] = ShardTable(name, split, format, {**told, **own})
    return splits


_COLUMNS = ShardEntry._fields[1:-1]


def _entries(data: Mapping[str, Any]) -> ShardEntries:
    """The shards of version 1, one by one."""
    named: set[str] = set()
    splits = {}
    for split, shards in data.items():
        _checked(_SPLIT, split, "split")
        if not isinstance(shards, list):
            raise ValueError(f"{_kind(shards)} where a list is expected: the shards of {split}")
        splits[split] = tuple(_entry(shard, named) for shard in shards)
    return splits


def _entry(data: Any, named: set[str]) -> ShardEntry:
    _check_object(data, "a shard")
    known = set(ShardEntry._fields[:-1])
    if set(data) != known:
        raise ValueError(f"a shard with {reprlib.repr(sorted(set(data) ^ known))}")
    entry = ShardEntry(**data)
    _checked(_FILE, entry.file, "file", 255)
    if entry.file in named:
        raise ValueError(f"the file {entry.file} twice")
    named.add(entry.file)
    if not isinstance(entry.inputs, str):
        raise ValueError(f"odd inputs of the shard {entry.file}")
    for part in ("records", "bytes", "crc32c", "ignored", "bad"):
        _check_number(getattr(entry, part), f"{part} of the shard {entry.file}", _LIMITS.get(part, 1 << 63))
    return entry


def _check_alternatives(splits: ShardEntries, alternatives: Mapping[str, ShardEntries]) -> None:
    """That all formats hold the same."""
    counts = {split: shard_column(shards, "records") for split, shards in splits.items()}
    for name, other in alternatives.items():
        if {split: shard_column(shards, "records") for split, shards in other.items()} != counts:
            raise ValueError(f"other records in {name}")


def _checked(pattern: re.Pattern[str], text: Any, what: str, most: int = _MOST_NAME) -> str:
    """A name that stays within the directory."""
    if not isinstance(text, str) or len(text) > most or not pattern.fullmatch(text) or text in (".", ".."):
        raise ValueError(f"the {what} {reprlib.repr(text)}")
    return text


# Files
def read_manifest(directory: Path | str) -> Manifest:
    """The manifest of a dataset, whose directory may be a URL."""
    if not is_url(directory) and os.path.isfile(directory):
        raise StorageError(f"expected the directory of a dataset, got a file - at {directory}")
    path = beside(directory, MANIFEST)
    return Manifest.from_json(read_json(path, "a manifest", MOST_MANIFEST_BYTES, parse_manifest), str(path))


def parse_manifest(data: bytes, what: str, where: str) -> Any:
    """The JSON of a manifest, once its own checksum is checked. A manifest that has other checksums must have one."""
    return parse_sealed(data, what, where, "checksums")


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Publish a dataset."""
    publish(directory / MANIFEST, manifest_bytes(manifest), sync=True)


def manifest_bytes(manifest: Manifest) -> bytes:
    """The file of a manifest."""
    return seal_json(manifest.to_json())


def file_problems(directory: Path | str, manifest: Manifest) -> dict[str, str]:
    """What is wrong with each metadata file whose checksum the manifest has. The directory may be a URL."""
    problems = {}
    for name, expected in (manifest.files or {}).items():
        path = beside(directory, name)
        try:
            found = crc32c(read_bytes(path))
        except FileNotFoundError:
            problems[name] = "expected the file that was built, got nothing"
            continue
        if found != expected:
            problems[name] = f"expected CRC-32C {expected:#010x} as in the manifest, got {found:#010x}"
    return problems


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


def write_keys(path: Path, keys: Iterable[str]) -> int:
    """Keep the keys of a shard's records beside it. Returns the CRC-32C of the file."""
    data = zlib.compress(json.dumps(list(keys)).encode(), 1)
    publish(path.with_name(path.name + KEYS_SUFFIX), data, sync=True)
    return crc32c(data)


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
    except (zlib.error, ValueError, RecursionError) as error:
        raise CorruptionError(f"expected the keys of a shard, got broken bytes ({error})", file) from None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise CorruptionError("expected a list of keys, got something else", file)
    return keys
