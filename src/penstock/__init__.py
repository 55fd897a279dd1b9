"""Penstock turns raw data into sharded record datasets once, and feeds them to training at the speed of the machine."""

from __future__ import annotations

from importlib import metadata as _metadata

from ._core import Records, crc32c, masked_crc32c
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
from .records.codec import Codec
from .records.sequence import SequenceCodec
from .records.tfrecord import TFRecord, TFRecordReader, TFRecordWriter
from .schema import Field, Schema

__version__ = _metadata.version("penstock")

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
