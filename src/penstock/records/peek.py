"""A first look at records that come without a schema."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .. import _core
from .._core import Records
from ..errors import CorruptionError, SchemaError
from ..schema import Field, Schema
from .kinds import UNKNOWN, byte_kind

SAMPLE = 100  # records that tell the schema of a file
SAMPLE_BYTES = 64 << 20  # and no more bytes than these

_EXPECTED = "expected tf.Example or tf.SequenceExample records"
_DTYPES = {"int64_list": "int64", "float_list": "float32", "bytes_list": "bytes"}
_MEDIA = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
}


@contextmanager
def opening(path: str | os.PathLike[str]) -> Iterator[None]:
    """Says of a file that does not begin as records do what that means for people: it may be no file of records."""
    try:
        yield
    except CorruptionError as error:
        if error.record != 0 or not is_foreign(str(error)):
            raise
        raise another_kind(path) from error


def is_foreign(problem: str) -> bool:
    """Whether what is wrong with the first bytes of a file is that no record begins there."""
    return problem.startswith("expected the frame's length CRC")


def another_kind(path: str | os.PathLike[str]) -> CorruptionError:
    """The error for a file that begins as none of ours does."""
    got = "one that begins otherwise: another kind of file, or damage from its first byte on"
    return CorruptionError(f"expected a TFRecord, ArrayRecord or tar file, got {got}", os.fspath(path), 0, 0)


def first_records(path: str | os.PathLike[str], count: int) -> tuple[Records, CorruptionError | None]:
    """The first records of a file, up to `count`, and the damage that kept it from being more. Nothing else is read."""
    try:
        return _core.first_records(path, count, SAMPLE_BYTES), None
    except CorruptionError as error:
        try:
            return _core.first_records(path, error.record or 0, SAMPLE_BYTES), error
        except CorruptionError:  # that cannot be opened at all
            return Records([]), error


def image_type(value: bytes) -> str | None:
    """The media type of an image file, None for other bytes."""
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return "image/webp"
    if value[:2] == b"BM" and int.from_bytes(value[2:6], "little") == len(value):
        return "image/bmp"
    return next((name for magic, name in _MEDIA.items() if value.startswith(magic)), None)


@dataclass
class _Seen:
    """What one key held so far."""

    wire: str
    records: int = 0
    counts: set[int] = field(default_factory=set)
    text: bool = True
    images: bool = True

    def settled(self, name: str, records: int) -> Field:
        """The field of that name that holds it all."""
        dtype = _DTYPES[self.wire]
        filled = bool(self.counts - {0})
        if dtype == "bytes" and self.text and filled:
            dtype = "str"
        optional = self.records < records
        if self.counts == {1}:
            image = dtype == "bytes" and self.images
            return Field(name, dtype, optional=optional, kind="image" if image else "tensor")
        if len(self.counts) == 1 and filled:
            return Field(name, dtype, tuple(self.counts), optional=optional)
        if dtype in ("bytes", "str"):
            return Field(name, dtype, levels=1, optional=optional)
        return Field(name, dtype, (None,), optional=optional)


@dataclass
class _SeenSteps:
    """What one feature list of SequenceExamples held so far."""

    wire: str | None = None
    records: int = 0
    single: bool = True  # one value in each step
    text: bool = True

    def settled(self, name: str, records: int) -> Field:
        """The field of that name that holds it all: a list of values, or of lists of values."""
        dtype = _DTYPES[self.wire or "int64_list"]
        if dtype == "bytes" and self.text:
            dtype = "str"
        return Field(name, dtype, levels=1 if self.single else 2, optional=self.records < records)


def infer_schema(records: Iterable[bytes]) -> Schema:
    """The schema that tf.Example and tf.SequenceExample records show by themselves.

    A record knows three kinds of lists, no dtypes and no shapes, so this is the plainest reading: int64, float32, bytes
    (str, where all of them are printable text; images, where all begin as image files do), one size where all agree,
    optional where some records lack the key. A feature list of a SequenceExample is a list with a value for each step,
    or a list of lists where steps have another number of values.
    """
    seen: dict[str, _Seen] = {}
    steps: dict[str, _SeenSteps] = {}
    total = 0
    first = b""  # that holds something
    for number, record in enumerate(records):
        total += 1
        first = first or record
        for name, wire, count, values in _described(record, number):
            known = seen.setdefault(name, _Seen(wire))
            if known.wire != wire:
                raise SchemaError(
                    f"expected a {known.wire} as in the records before, got a {wire}",
                    f"record {number}, {name}",
                    "Say which fields to read, and leave this one out",
                )
            known.records += 1
            known.counts.add(count)
            known.text = known.text and all(map(_is_text, values))
            known.images = known.images and all(image_type(value) is not None for value in values)
        for name, list_wire, lengths, values in _core.describe_steps(record):
            listed = steps.setdefault(name, _SeenSteps())
            if list_wire is not None and listed.wire not in (None, list_wire):
                raise SchemaError(
                    f"expected a {listed.wire} as in the records before, got a {list_wire}",
                    f"record {number}, {name}",
                    "Say which fields to read, and leave this one out",
                )
            listed.wire = listed.wire or list_wire
            listed.records += 1
            listed.single = listed.single and all(length == 1 for length in lengths)
            listed.text = listed.text and all(map(_is_text, values))
    both = next((name for name in steps if name in seen), None)
    if both is not None:
        got = f"{both!r} in the context and in the feature lists"
        raise SchemaError(f"expected each key once in a SequenceExample, got {got}", hint="Read them by SequenceCodec")
    fields = {name: what.settled(name, total) for name, what in seen.items() if name}
    fields |= {name: listed.settled(name, total) for name, listed in steps.items() if name}
    if total and not fields:
        raise foreign_record(first, 0)
    return Schema(fields)


def _described(record: bytes, number: int) -> list[tuple[str, str, int, list[bytes]]]:
    try:
        return _core.describe(record)
    except CorruptionError as error:
        if byte_kind(record).startswith(UNKNOWN):
            raise CorruptionError(str(error), record=number) from None
        raise foreign_record(record, number) from None


def foreign_record(record: bytes, number: int) -> SchemaError:
    """The error for a record that is no tf.Example: it names the kind of bytes that were found."""
    features = "a tf.Example without features" if record in (b"", b"\n\0") else byte_kind(record)
    hint = "Give the fields as schema={...}" if record in (b"", b"\n\0") else "Read the bytes by TFRecordReader(path)"
    return SchemaError(f"{_EXPECTED}, got {features} of {len(record)} bytes", f"record {number}", hint)


def is_foreign_record(error: SchemaError) -> bool:
    """Return True for an error of `foreign_record`."""
    return error.message.startswith(_EXPECTED)


def _is_text(value: bytes) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return all(letter.isprintable() or letter in "\t\n\r" for letter in text)
