"""The entries of a build's journal, as values. The same dataclasses describe the results of tasks.

`from_json` raises ValueError for anything that a build can't continue from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from ..dataset.manifest import in_format, shard_file

Json = dict[str, object]
Kind = TypeVar("Kind")
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Begin:
    """What is being built: the name, the options that decide what is written, and the sources by split."""

    kind: ClassVar = "begin"
    name: str
    options: Mapping[str, object]
    source: Mapping[str, object]

    def to_json(self) -> Json:
        """Return the content of the entry."""
        return {"name": self.name, "options": self.options, "source": self.source}

    @classmethod
    def from_json(cls, content: Json) -> Begin:
        """Check the content of an entry."""
        return cls(_get(content, "name", str), _get(content, "options", dict), _get(content, "source", dict))

    def shard_names(self, counts: Mapping[str, int]) -> set[str]:
        """Return the names of all shards, in every format; `counts` has the number of shards of each split."""
        first, others = self.options["format"], self.options["alternatives"]
        assert isinstance(first, dict)
        assert isinstance(others, dict)
        formats = [str(first["name"]), *map(str, others)]
        return {
            in_format(shard_file(self.name, split, formats[0], number, count), format)
            for split, count in counts.items()
            for number in range(count)
            for format in formats
        }


@dataclass(frozen=True)
class BadExample:
    """An example that could not be stored, as a line of the quarantine."""

    split: str
    key: str
    place: str
    error: str
    traceback: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the line of the quarantine."""
        return {
            "split": self.split,
            "key": self.key,
            "place": self.place,
            "error": self.error,
            "traceback": self.traceback,
        }

    @classmethod
    def from_json(cls, content: object) -> BadExample:
        """Check a line of the quarantine."""
        if not isinstance(content, dict) or not all(isinstance(text, str) for text in content.values()):
            raise ValueError("no bad example")
        try:
            return cls(**content)
        except TypeError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True)
class RecordFile:
    """A file of records: its name, size and checksum."""

    file: str
    bytes: int
    crc32c: int

    def to_json(self) -> Json:
        """Return the file as a part of an entry."""
        return {"file": self.file, "bytes": self.bytes, "crc32c": self.crc32c}

    @classmethod
    def from_json(cls, content: object) -> RecordFile:
        """Check the part of an entry."""
        if not isinstance(content, dict) or set(content) != {"file", "bytes", "crc32c"}:
            raise ValueError("no file of records")
        if type(content["bytes"]) is not int or type(content["crc32c"]) is not int:
            raise ValueError("no file of records")
        return cls(_file_name(content["file"]), content["bytes"], content["crc32c"])


@dataclass(frozen=True)
class SpoolFile:
    """A file of spooled records, with the schema that they were encoded by."""

    file: str
    schema: Json
    records: int
    bytes: int
    crc32c: int

    def to_json(self) -> Json:
        """Return the file as a part of an entry."""
        counts = {"records": self.records, "bytes": self.bytes, "crc32c": self.crc32c}
        return {"file": self.file, "schema": self.schema, **counts}

    @classmethod
    def from_json(cls, content: object) -> SpoolFile:
        """Check the part of an entry."""
        if not isinstance(content, dict):
            raise ValueError("no spooled file")
        counts = (_get(content, name, int) for name in ("records", "bytes", "crc32c"))
        return cls(_get(content, "file", str), _get(content, "schema", dict), *counts)


@dataclass(frozen=True)
class SpoolResult:
    """Records that wait to be cut into shards, and the examples that were left out of them."""

    kind: ClassVar = "spool"
    file: str
    split: str
    files: tuple[SpoolFile, ...]
    ignored: int = 0
    bad: tuple[BadExample, ...] = ()

    def to_json(self) -> Json:
        """Return the content of the entry."""
        counts = {"ignored": self.ignored, "bad": [each.to_json() for each in self.bad]}
        return {"file": self.file, "split": self.split, "files": [each.to_json() for each in self.files], **counts}

    @classmethod
    def from_json(cls, content: Json) -> SpoolResult:
        """Check the content of an entry."""
        files = tuple(map(SpoolFile.from_json, _get(content, "files", list)))
        bad = tuple(map(BadExample.from_json, _get(content, "bad", list)))
        return cls(_get(content, "file", str), _get(content, "split", str), files, _get(content, "ignored", int), bad)


@dataclass(frozen=True)
class Plan:
    """The schema, and the number of shards of each split. Shards before it are void.

    firm    The schema is not widened any more.
    drift   How the schema was widened after the sample, and for which example.
    floats  Fields of Python floats.
    """

    kind: ClassVar = "plan"
    schema: Json
    shards: Mapping[str, int]
    firm: bool = False
    drift: str = ""
    floats: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Return the content of the entry."""
        inferred = {"firm": self.firm, "drift": self.drift, "floats": list(self.floats)}
        return {"schema": self.schema, "shards": dict(self.shards), **inferred}

    @classmethod
    def from_json(cls, content: Json) -> Plan:
        """Check the content of an entry."""
        shards = _get(content, "shards", dict)
        if not all(type(count) is int and 0 < count < 1 << 31 for count in shards.values()):
            raise ValueError("no numbers of shards")
        floats = content.get("floats", [])
        if not isinstance(floats, list) or not all(isinstance(name, str) for name in floats):
            raise ValueError("no names of fields")
        drift = content.get("drift", "")
        if not isinstance(drift, str):
            raise ValueError("no text")
        return cls(_get(content, "schema", dict), shards, bool(content.get("firm")), drift, tuple(floats))


@dataclass(frozen=True)
class ShardResult:
    """A finished shard.

    inputs        Digest of what it was made from; empty when that is unknown.
    alternatives  The same records in other formats.
    keys          CRC-32C of the file of keys, which is the same in all formats; None when that is unknown.
    images        Image fields with formats that TFDS fails on: {"image": ["GIF"]}.
    """

    kind: ClassVar = "shard"
    split: str
    file: str
    records: int = 0
    bytes: int = 0
    crc32c: int = 0
    inputs: str = ""
    ignored: int = 0
    bad: tuple[BadExample, ...] = ()
    alternatives: tuple[RecordFile, ...] = ()
    keys: int | None = None
    images: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def formats(self) -> list[RecordFile]:
        """The files of the shard, one for each format."""
        return [RecordFile(self.file, self.bytes, self.crc32c), *self.alternatives]

    @property
    def files(self) -> list[str]:
        """Names of the files of the shard, one for each format."""
        return [each.file for each in self.formats]

    def to_json(self) -> Json:
        """Return the content of the entry."""
        return {
            "split": self.split,
            "file": self.file,
            "records": self.records,
            "bytes": self.bytes,
            "crc32c": self.crc32c,
            "inputs": self.inputs,
            "ignored": self.ignored,
            "bad": [each.to_json() for each in self.bad],
            "alternatives": [each.to_json() for each in self.alternatives],
            "keys": self.keys,
            "images": dict(self.images),
        }

    @classmethod
    def from_json(cls, content: Json) -> ShardResult:
        """Check the content of an entry."""
        unknown = set(content) - {each for each in cls.__dataclass_fields__ if each != "kind"}
        records, size, crc32c, ignored = (
            _get(content, name, int) for name in ("records", "bytes", "crc32c", "ignored")
        )
        keys, images = content.get("keys"), content.get("images", {})
        checked = [records, size, crc32c, ignored, 0 if keys is None else keys]
        if unknown or not all(type(number) is int and 0 <= number < 1 << 63 for number in checked):
            raise ValueError("no shard")
        if not isinstance(images, dict) or not all(isinstance(formats, list) for formats in images.values()):
            raise ValueError("no formats of images")
        return cls(
            _get(content, "split", str),
            _file_name(content.get("file")),
            records,
            size,
            crc32c,
            _get(content, "inputs", str),
            ignored,
            tuple(map(BadExample.from_json, _get(content, "bad", list))),
            tuple(map(RecordFile.from_json, _get(content, "alternatives", list))),
            keys if isinstance(keys, int) else None,
            images,
        )


@dataclass(frozen=True)
class Left:
    """Shards and metadata of the existing dataset, or sent by an abandoned build, which the commit replaces."""

    kind: ClassVar = "left"
    files: tuple[str, ...]
    metadata: tuple[str, ...]

    def to_json(self) -> Json:
        """Return the content of the entry."""
        return {"files": list(self.files), "metadata": list(self.metadata)}

    @classmethod
    def from_json(cls, content: Json) -> Left:
        """Check the content of an entry."""
        return cls(_plain_names(content.get("files")), _plain_names(content.get("metadata")))


@dataclass(frozen=True)
class Commit:
    """All shards are finished: they are to be moved into place and published.

    staged    Shards that wait in the work folder.
    replaced  Shards of earlier datasets.
    stale     Metadata files of an earlier dataset.
    """

    kind: ClassVar = "commit"
    manifest: Json
    staged: tuple[str, ...]
    quarantine: tuple[BadExample, ...]
    replaced: tuple[str, ...]
    stale: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Return the content of the entry."""
        return {
            "manifest": self.manifest,
            "staged": list(self.staged),
            "quarantine": [each.to_json() for each in self.quarantine],
            "replaced": list(self.replaced),
            "stale": list(self.stale),
        }

    @classmethod
    def from_json(cls, content: Json) -> Commit:
        """Check the content of an entry."""
        return cls(
            _get(content, "manifest", dict),
            tuple(map(_file_name, _get(content, "staged", list))),
            tuple(map(BadExample.from_json, _get(content, "quarantine", list))),
            tuple(map(_file_name, _get(content, "replaced", list))),
            _plain_names(content.get("stale", [])),
        )


Entry = Begin | SpoolResult | Plan | ShardResult | Left | Commit
_ENTRIES: tuple[type[Entry], ...] = (Begin, SpoolResult, Plan, ShardResult, Left, Commit)


def _get(content: Json, member: str, kind: type[Kind]) -> Kind:
    value = content.get(member)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"no {member}")
    return value


def _file_name(name: object) -> str:
    """Check the name of a shard: it stays in its directory."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.strip("."):
        raise ValueError("no name of a file")
    return name


def _plain_names(names: object) -> tuple[str, ...]:
    """Check names of files that are directly in a directory."""
    if not isinstance(names, list):
        raise ValueError("no names of files")
    for name in names:
        if not isinstance(name, str) or "/" in name or "\0" in name:
            raise ValueError("no names of files")
    return tuple(names)


def parse_entry(data: bytes) -> Entry:
    """Return the entry of a line; ValueError for anything else."""
    try:
        ((kind, content),) = json.loads(data).items()
    except (AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    found = next((entry for entry in _ENTRIES if entry.kind == kind), None)
    if found is None or not isinstance(content, dict):
        raise ValueError("no entry")
    return found.from_json(content)


def entry_bytes(entry: Entry) -> bytes:
    """Return the line of an entry, without its end."""
    return json.dumps({entry.kind: entry.to_json()}).encode()
