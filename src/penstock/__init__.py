"""Penstock turns raw data into sharded record datasets once, and feeds them to training at the speed of the machine."""

from __future__ import annotations

from .columns import Bytes, Ragged
from .errors import (
    CorruptionError,
    IndexMismatchError,
    MissingDependencyError,
    NotFoundError,
    PenstockError,
    RecordIndexError,
    SchemaError,
    StorageError,
)
from .field import Field
from .records import Records, __version__, crc32c, masked_crc32c
from .records.codec import Codec
from .records.sequence import SequenceCodec
from .records.tfrecord import TFRecord, TFRecordReader, TFRecordWriter
from .schema import Schema

__all__ = [
    "Bytes",
    "Codec",
    "CorruptionError",
    "Field",
    "IndexMismatchError",
    "MissingDependencyError",
    "NotFoundError",
    "PenstockError",
    "Ragged",
    "RecordIndexError",
    "Records",
    "Schema",
    "SchemaError",
    "SequenceCodec",
    "StorageError",
    "TFRecord",
    "TFRecordReader",
    "TFRecordWriter",
    "__version__",
    "crc32c",
    "masked_crc32c",
]
