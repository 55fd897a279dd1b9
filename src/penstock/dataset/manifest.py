"""The manifest of a dataset, which is written last, and the names of the files beside it: see FORMAT.md."""

from __future__ import annotations

import json
import os
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, overload

from .._core import crc32c
from ..errors import CorruptionError, SchemaError, StorageError, name_known
from ..records.formats import FORMATS
from ..records.index import SUFFIX as INDEX
from ..schema.field import is_utf8
from ..schema.schema import Schema
from ..storage.files import beside, read_json
from ..storage.local import publish
from ..storage.store import is_url

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
_MOST_NAME = 200  # letters of the name of a dataset or a split: those of a file have 255 bytes
_NUMBERS = ("records", "bytes", "crc32c")  # what is told of every shard; the rest, where there is something to tell
_LIMITS = {"crc32c": 1 << 32}  # what is not below these is no such number; others must be below 2^63
SEAL = "crc32c"
_SEAL = re.compile(rb',\n "crc32c": (0|[1-9]\d{0,9})\n\}\n\Z')
_FRAME = 16  # bytes around each record of a TFRecord file
_RATIO = 1100  # DEFLATE makes nothing smaller than by 1032


@dataclass(frozen=True, kw_only=True)
class Info:
    """What a dataset says of itself, as TensorFlow Datasets shows it.

    name         what its shards are called; the last part of its path unless told
    version      such as 1.0.0; the part of its path that looks like one unless told
    description  what it is, in a few sentences
    citation     how to cite it, such as BibTeX
    supervised   the fields that are what a model gets and what it should say: ("image", "label")
    tfds         what else TensorFlow Datasets should find: {"info": {...}, "features": {...}}, as `tfds` says it
    """

    name: str | None = None
    version: str | None = None
    description: str = ""
    citation: str = ""
    supervised: tuple[str, str] | None = None
    tfds: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, pattern, like in (("name", r"\w+", "photos_2024"), ("version", r"\d+\.\d+\.\d+", "1.0.0")):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and re.fullmatch(pattern, value)):
                raise SchemaError(f"expected a {name} such as {like}, got {value!r}", "info")
        for name in ("description", "citation"):
            if not is_utf8(getattr(self, name)):
                raise SchemaError(f"expected a text, got {reprlib.repr(getattr(self, name))}", f"info {name}")
        known = isinstance(self.tfds, dict) and self.tfds.keys() <= {"info", "features"}
        if self.tfds is not None and not (known and all(isinstance(part, dict | None) for part in self.tfds.values())):
            raise SchemaError(f"expected a dict of info and features, got {reprlib.repr(self.tfds)}", "info tfds")
        pair = self.supervised
        if pair is not None:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
                raise SchemaError(f"expected the names of two fields, got {pair!r}", "info supervised")
            object.__setattr__(self, "supervised", tuple(pair))

    def over(self, other: Info) -> Info:
        """This, and what the other one says where this says nothing."""
        return Info(**{field.name: getattr(self, field.name) or getattr(other, field.name) for field in fields(self)})

    def check(self, schema: Schema) -> None:
        """That the fields that it names are there."""
        for name in self.supervised or ():
            if name not in schema:
                raise SchemaError(f"no field {name!r}", "info supervised", name_known(name, schema))

    def to_json(self) -> dict[str, Any]:
        """Plain; the name goes elsewhere in a manifest."""
        plain = asdict(self) | {"supervised": None if self.supervised is None else list(self.supervised)}
        del plain["name"]
        return plain

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> Info:
        """The info of `to_json()`."""
        return cls(name=name, **data)


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
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Return the manifest of a file: its checksum and its content are checked here, once."""
        return cls.from_json(parse_sealed(data, "a manifest", where, "checksums"), where)

    @classmethod
    def from_json(cls, data: object, where: str) -> Manifest:
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
    for member in ("penstock_manifest", "name", "format", *_OBJECTS):
        if member not in data:
            raise ValueError(f"one without the member {member!r}")
    version = data["penstock_manifest"]
    if type(version) is not int or version not in (1, VERSION):
        raise ValueError(f"version {reprlib.repr(version)}")
    for member in _OBJECTS:
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
    counts = _record_counts(splits)
    for other, entries in formats.items():
        if _record_counts(entries) != counts:
            raise ValueError(f"other records in {other}")
    schema, info = Schema.from_json(data["schema"]), Info.from_json(name, data["info"])
    told = (options, dict(data["source"]), found, dict(data["made"]), info)
    manifest = Manifest(name, schema, splits, *told, format, formats, files)
    for each, entries in manifest.formats.items():
        _check_sizes(entries, each, compressed=bool(manifest.format_options(each).get("compression")))
    return manifest


_OBJECTS = ("info", "schema", "splits", "alternatives", "options", "source", "found", "made")


def _check_object(value: object, what: str) -> None:
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


def _check_number(value: object, what: str, limit: int = 1 << 63) -> None:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{what} of {reprlib.repr(value)}, not an integer from 0 to {limit - 1}")


def _kind(value: object) -> str:
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
        plain = type(column) is list and set(map(type, column)) <= {int, type(None)}
        if not plain or any(value is not None and not 0 <= value < 1 << 32 for value in column):
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


def _record_counts(splits: ShardEntries) -> dict[str, list[int]]:
    return {split: shard_column(shards, "records") for split, shards in splits.items()}


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


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Publish a dataset."""
    publish(directory / MANIFEST, manifest_bytes(manifest), sync=True)


def manifest_bytes(manifest: Manifest) -> bytes:
    """The file of a manifest."""
    return seal_json(manifest.to_json())


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


# A sealed JSON file has one member per line. The last member is `crc32c`: the checksum of all bytes before its line.
def seal_json(members: Mapping[str, Any]) -> bytes:
    """Return an object as a sealed file."""
    lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in members.items())
    body = ("{\n" + ",\n".join(lines)).encode()
    return body + f',\n "{SEAL}": {crc32c(body)}\n}}\n'.encode()


def parse_sealed(data: bytes, what: str, where: str, also: str = SEAL) -> Any:
    """Parse a JSON file and check its seal. A file without a seal is accepted, except if it has the member `also`.

    Raises CorruptionError for other bytes, for an object with a duplicate name, and for a checksum that does not match.
    """
    try:
        parsed = json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"expected {what}, got broken JSON ({error})", where) from None
    if isinstance(parsed, dict) and (SEAL in parsed or also in parsed):
        found = _SEAL.search(data)
        if found is None:
            raise _unsealed(f"expected {what} that ends with its CRC-32C, got another end", where, {SEAL, also})
        actual = crc32c(data[: found.start()])
        if actual != int(found[1]):
            got = f"{actual:#010x}: the file was changed or damaged"
            raise _unsealed(f"expected {what} with CRC-32C {int(found[1]):#010x}, got {got}", where, {SEAL, also})
        del parsed[SEAL]
    return parsed


def _unsealed(problem: str, where: str, members: set[str]) -> CorruptionError:
    named = " and ".join(f'"{member}"' for member in sorted(members))
    hint = f"Restore the file from a copy. If you edited it on purpose, remove {named} from it"
    error = CorruptionError(f"{problem} - at {where}. {hint}")
    error.path = where
    return error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these pairs. JSON leaves open what a duplicate name means."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name[:100]!r} occurs twice in an object")
        found[name] = value
    return found


parse_manifest = partial(parse_sealed, also="checksums")  # with other checksums, a manifest has one of its own
