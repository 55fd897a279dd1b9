"""What the tests of records share: frames and protobuf written by hand, and what the real peers make of bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock import Bytes, Ragged, masked_crc32c

Read = tuple[list[bytes], str | None]


# TFRecord


def frame(record: bytes) -> bytes:
    """A TFRecord frame, put together by hand."""
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<I", masked_crc32c(length)) + record + struct.pack("<I", masked_crc32c(record))


def framed(records: Iterable[bytes]) -> bytes:
    """A TFRecord file."""
    return b"".join(map(frame, records))


def gzip_member(data: bytes, *, trailer: bool = True) -> bytes:
    """One gzip member, with its trailer or without."""
    stream = zlib.compressobj(6, zlib.DEFLATED, 31)
    whole = stream.compress(data) + stream.flush()
    return whole if trailer else whole[:-8]


def read_with_tensorflow(path: Path, compression: str = "") -> Read:
    """The records that tf.data delivers, and the error that ends them."""
    import tensorflow as tf

    records: list[bytes] = []
    try:
        for record in tf.data.TFRecordDataset([str(path)], compression_type=compression):
            records.append(record.numpy())  # noqa: PERF401 (what came before an error counts)
    except tf.errors.DataLossError as error:
        return records, error.message
    return records, None


# Protobuf


def varint(number: int) -> bytes:
    """A protobuf varint; negative numbers as int64 has them."""
    number &= 2**64 - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, body: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def entry(key: bytes, feature: bytes) -> bytes:
    """A map entry: key, then value."""
    return field(1, field(1, key) + field(2, feature))


def example(*entries: bytes) -> bytes:
    """A tf.train.Example of map entries."""
    return field(1, b"".join(entries))


def packed_ints(*numbers: int) -> bytes:
    """The chunk of a packed int64 list."""
    return field(1, b"".join(map(varint, numbers)))


def packed_floats(*numbers: float) -> bytes:
    """The chunk of a packed float list."""
    return field(1, struct.pack(f"<{len(numbers)}f", *numbers))


KINDS = {"bytes_list": "bytes", "float_list": "float32", "int64_list": "int64"}


def feature_values(feature: Any) -> tuple[str, list[Any]] | None:
    """The kind and the values of a protobuf Feature, as `plain` has them; None when it is unset."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    values = getattr(feature, kind).value
    return kind, plain(np.array(values, np.float32)) if kind == "float_list" else list(values)


def parse_with_protobuf(record: bytes) -> dict[str, tuple[str, list[Any]]] | None:
    """What protobuf reads from a tf.train.Example: kind and values by key; None if it refuses the bytes."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return None
    read = {key: feature_values(features[key]) for key in features}
    return {key: values for key, values in read.items() if values is not None}


# Values


def plain(value: Any) -> Any:
    """A value as nested lists of plain Python objects, floats as their bits: what can be compared with ==."""
    if isinstance(value, (Ragged, Bytes)):
        return [plain(row) for row in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(value)
        return [None if m.any() else plain(row) for m, row in zip(masked, value.data, strict=True)]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        value = np.asarray(value)
        if value.dtype.kind in "fV":  # V: bfloat16
            value = np.where(value != value, value.dtype.type("nan"), value).view(f"u{value.dtype.itemsize}")
        return value.tolist()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    return value


def row_of(batch: Mapping[str, Any], row: int) -> dict[str, Any]:
    """One row of a batch, as plain values."""
    return {
        name: row_of(column, row) if isinstance(column, dict) else plain(column)[row] for name, column in batch.items()
    }
