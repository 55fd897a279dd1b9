"""Penstock turns raw data into sharded record datasets once, and feeds them to training at the speed of the machine."""

from __future__ import annotations

from .build import Built, Local, Quarantine, build
from .columns import Bytes, Ragged
from .errors import (
    BuildError,
    CorruptionError,
    ExampleError,
    IndexMismatchError,
    MissingDependencyError,
    NotFoundError,
    PenstockError,
    RecordIndexError,
    SchemaError,
    StorageError,
)
from .example import Array, Example, IgnoreExample, Image, Label, Skip, Text
from .field import Field
from .records import Records, __version__, crc32c, masked_crc32c
from .records.codec import Codec
from .records.sequence import SequenceCodec
from .records.tfrecord import TFRecord, TFRecordReader, TFRecordWriter
from .schema import Schema
from .sources import (
    coco,
    csv,
    image_classification,
    image_folder,
    json,
    jsonl,
    parquet,
    table,
    text_classification,
    tfrecords,
    voc_detection,
    voc_segmentation,
)
from .splits import Splits, split, splits

__all__ = [
    "Array",
    "BuildError",
    "Built",
    "Bytes",
    "Codec",
    "CorruptionError",
    "Example",
    "ExampleError",
    "Field",
    "IgnoreExample",
    "Image",
    "IndexMismatchError",
    "Label",
    "Local",
    "MissingDependencyError",
    "NotFoundError",
    "PenstockError",
    "Quarantine",
    "Ragged",
    "RecordIndexError",
    "Records",
    "Schema",
    "SchemaError",
    "SequenceCodec",
    "Skip",
    "Splits",
    "StorageError",
    "TFRecord",
    "TFRecordReader",
    "TFRecordWriter",
    "Text",
    "__version__",
    "build",
    "coco",
    "crc32c",
    "csv",
    "image_classification",
    "image_folder",
    "json",
    "jsonl",
    "masked_crc32c",
    "parquet",
    "split",
    "splits",
    "table",
    "text_classification",
    "tfrecords",
    "voc_detection",
    "voc_segmentation",
]
