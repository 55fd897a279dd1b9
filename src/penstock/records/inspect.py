"""A first look at records that come without a schema."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from .. import _core
from .._core import Records
from ..errors import CorruptionError, SchemaError
from ..schema.columns import Bytes, Ragged, Value
from ..schema.field import Field, image_type
from ..schema.schema import Schema

SAMPLE = 100  # records that tell the schema of a file
SAMPLE_BYTES = 64 << 20  # and no more bytes than these
_EXPECTED = "expected tf.Example or tf.SequenceExample records"
_DTYPES = {"int64_list": "int64", "float_list": "float32", "bytes_list": "bytes"}


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


_IMAGES = {"jpeg": "JPEG", "png": "PNG", "gif": "GIF", "tiff": "TIFF", "webp": "WebP", "bmp": "BMP"}
_MAGIC = {
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a ZIP archive (.zip, .npz, .pt)",
    b"\x1f\x8b\x08": "gzip data",
    b"(\xb5/\xfd": "Zstandard data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\0": "xz data",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"%PDF-": "a PDF file",
    b"fLaC": "FLAC audio",
    b"OggS": "Ogg audio",
    b"ID3": "MP3 audio",
}
UNKNOWN = "bytes of an unknown kind"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_FIELDS = 1000  # of a protobuf message that are looked at
_DEPTH = 32
_MOST_LOOKED_AT = 1 << 20


def byte_kind(data: bytes) -> str:
    """Return a description of bytes, such as "a JPEG image" or "JSON"."""
    if not data:
        return "no bytes"
    image = image_type(data)
    if image is not None:
        return f"a {_IMAGES[image.removeprefix('image/')]} image"
    if data[:4] == b"RIFF":
        return "WAV audio" if data[8:12] == b"WAVE" else "a RIFF file"
    if data[4:8] == b"ftyp":
        return "an MP4 file"
    for magic, name in _MAGIC.items():
        if data.startswith(magic):
            return name
    if _PICKLE.match(data) and data.endswith(b"."):
        return "a Python pickle"
    if _is_json(data):
        return "JSON"
    if _is_printable(data):
        return "plain text"
    if data[0] >= 0x80 and len(data) <= _MOST_LOOKED_AT and _msgpack_end(data, 0, 0) == len(data):
        return "MessagePack"
    if _is_protobuf(data):
        return "a protobuf message of another type"
    shown = data[:16].hex(" ")
    return f"{UNKNOWN} ({shown}{' ...' if len(data) > 16 else ''})"


def _is_printable(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(letter.isprintable() or letter in "\t\n\r" for letter in text)


def _is_json(data: bytes) -> bool:
    if data.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _varint(data: bytes, at: int) -> tuple[int, int] | None:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return None
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    return None


def _is_protobuf(data: bytes) -> bool:
    """True if the bytes are fields of protobuf from the first to the last, as far as they are looked at."""
    at = 0
    for _ in range(_FIELDS):
        if at == len(data):
            return True
        tag = _varint(data, at)
        if tag is None or not tag[0] >> 3 or tag[0] >> 3 > (1 << 29) - 1:
            return False
        wire, at = tag[0] & 7, tag[1]
        if wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire in (0, 2):
            found = _varint(data, at)
            if found is None:
                return False
            at = found[1] + (found[0] if wire == 2 else 0)
        else:
            return False
        if at > len(data):
            return False
    return True


def _msgpack_end(data: bytes, at: int, depth: int) -> int:
    """Return where the MessagePack value at a position ends, -1 if there is none."""
    if at >= len(data) or depth > _DEPTH:
        return -1
    first, at = data[at], at + 1
    if first < 0x80 or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
        return at
    sizes = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
    fixed = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17} | sizes
    if first in fixed:
        return at + fixed[first] if at + fixed[first] <= len(data) else -1
    lengths = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
    if first in lengths or 0xA0 <= first < 0xC0:
        width = lengths.get(first, 0)
        length = int.from_bytes(data[at : at + width], "big") if width else first & 0x1F
        end = at + width + length + (1 if first in (0xC7, 0xC8, 0xC9) else 0)
        return end if end <= len(data) else -1
    counts = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    if first not in counts and first >= 0xA0:
        return -1
    width = counts.get(first, 0)
    count = int.from_bytes(data[at : at + width], "big") if width else first & 0x0F
    is_map = first < 0x90 or first in (0xDE, 0xDF)
    at += width
    for _ in range(count * (2 if is_map else 1)):
        at = _msgpack_end(data, at, depth + 1)
        if at < 0:
            return -1
    return at


MOST_VALUES = 8
MOST_LETTERS = 70


def size_text(count: float) -> str:
    """A number of bytes as people say it: 83 KB."""
    units = ["B", "KB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    unit = units[0]
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"


def counted(number: int, noun: str) -> str:
    """So many of something: 1 record, 1,000 records."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shortened(value: object) -> str:
    """A value in one short line."""
    if value is None or value is np.ma.masked:
        return "missing"
    if isinstance(value, bytes):
        kind = image_type(value)
        if kind or len(value) > 16:
            return f"<{kind or 'bytes'} {size_text(len(value))}>"
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= MOST_LETTERS else value[: MOST_LETTERS - 1] + "…")
    if isinstance(value, (Ragged, Bytes)):
        value = list(value)
    if isinstance(value, np.ndarray) and value.ndim > 1:
        shape = "×".join(map(str, value.shape))
        return f"{_row(value.ravel())} ({shape})"
    if isinstance(value, (list, tuple, np.ndarray)):
        return _row(value)
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    return str(value)


def _row(values: Value) -> str:
    shown = ", ".join(shortened(item) for item in values[:MOST_VALUES])
    more = f", … {len(values) - MOST_VALUES:,} more" if len(values) > MOST_VALUES else ""
    return f"[{shown}{more}]"
