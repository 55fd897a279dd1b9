"""Penstock turns raw data into sharded record datasets once, and feeds them to training at the speed of the machine.

Every public name is imported when it is first used: `import penstock` itself imports nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Bound now, so that importing them later can't hide the functions of the same names.
from . import build as _build
from . import load as _load
from . import recipes as recipes
from . import tfds as _tfds

if TYPE_CHECKING:
    from .build.convert import convert
    from .build.local import Local
    from .build.options import Quarantine
    from .build.ray import Ray
    from .build.report import Built
    from .build.run import build
    from .columns import Bytes, Ragged
    from .errors import (
        BuildError,
        CorruptionError,
        ExampleError,
        IndexMismatchError,
        LoadError,
        MissingDependencyError,
        NotFoundError,
        PenstockError,
        RecordIndexError,
        SchemaError,
        StorageError,
    )
    from .example import Array, Example, IgnoreExample, Label, Skip, Text
    from .field import Field
    from .image import Image
    from .info import Info
    from .load.dataset import Dataset, load
    from .load.interleave import Interleave
    from .load.loader import Loader, mix
    from .load.split import Split
    from .provenance import Place, place_of_record, places_of
    from .records import Records, __version__, crc32c, masked_crc32c
    from .records.array_record import ArrayRecord, ArrayRecordReader, ArrayRecordWriter
    from .records.codec import Codec
    from .records.limits import max_row_bytes
    from .records.sequence import SequenceCodec
    from .records.tfrecord import TFRecord, TFRecordReader, TFRecordWriter
    from .schema import Schema
    from .sources.catalog import csv, json, jsonl
    from .sources.coco import coco
    from .sources.dedupe import dedupe
    from .sources.examples import examples
    from .sources.image_classification import image_classification
    from .sources.image_folder import image_folder
    from .sources.record_files import array_records, tfrecords
    from .sources.table import parquet, table
    from .sources.tar import tar
    from .sources.text import text_classification
    from .sources.tfds_builder import tfds
    from .sources.voc import voc_detection, voc_segmentation
    from .splitting import Splits, split, splits

del build, load, tfds, _build, _load, _tfds

_HOMES = {
    "build.convert": "convert",
    "build.local": "Local",
    "build.options": "Quarantine",
    "build.ray": "Ray",
    "build.report": "Built",
    "build.run": "build",
    "columns": "Bytes Ragged",
    "errors": "BuildError CorruptionError ExampleError IndexMismatchError LoadError MissingDependencyError "
    "NotFoundError PenstockError RecordIndexError SchemaError StorageError",
    "example": "Array Example IgnoreExample Label Skip Text",
    "field": "Field",
    "image": "Image",
    "info": "Info",
    "provenance": "Place place_of_record places_of",
    "load.dataset": "Dataset load",
    "load.interleave": "Interleave",
    "load.loader": "Loader mix",
    "load.split": "Split",
    "records": "Records __version__ crc32c masked_crc32c",
    "records.array_record": "ArrayRecord ArrayRecordReader ArrayRecordWriter",
    "records.codec": "Codec",
    "records.limits": "max_row_bytes",
    "records.sequence": "SequenceCodec",
    "records.tfrecord": "TFRecord TFRecordReader TFRecordWriter",
    "schema": "Schema",
    "sources.catalog": "csv json jsonl",
    "sources.coco": "coco",
    "sources.dedupe": "dedupe",
    "sources.examples": "examples",
    "sources.image_classification": "image_classification",
    "sources.image_folder": "image_folder",
    "sources.record_files": "array_records tfrecords",
    "sources.table": "parquet table",
    "sources.tar": "tar",
    "sources.text": "text_classification",
    "sources.tfds_builder": "tfds",
    "sources.voc": "voc_detection voc_segmentation",
    "splitting": "Splits split splits",
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Array",
    "ArrayRecord",
    "ArrayRecordReader",
    "ArrayRecordWriter",
    "BuildError",
    "Built",
    "Bytes",
    "Codec",
    "CorruptionError",
    "Dataset",
    "Example",
    "ExampleError",
    "Field",
    "IgnoreExample",
    "Image",
    "IndexMismatchError",
    "Info",
    "Interleave",
    "Label",
    "LoadError",
    "Loader",
    "Local",
    "MissingDependencyError",
    "NotFoundError",
    "PenstockError",
    "Place",
    "Quarantine",
    "Ragged",
    "Ray",
    "RecordIndexError",
    "Records",
    "Schema",
    "SchemaError",
    "SequenceCodec",
    "Skip",
    "Split",
    "Splits",
    "StorageError",
    "TFRecord",
    "TFRecordReader",
    "TFRecordWriter",
    "Text",
    "__version__",
    "array_records",
    "build",
    "coco",
    "convert",
    "crc32c",
    "csv",
    "dedupe",
    "examples",
    "image_classification",
    "image_folder",
    "json",
    "jsonl",
    "load",
    "masked_crc32c",
    "max_row_bytes",
    "mix",
    "parquet",
    "place_of_record",
    "places_of",
    "split",
    "splits",
    "table",
    "tar",
    "text_classification",
    "tfds",
    "tfrecords",
    "voc_detection",
    "voc_segmentation",
]


def __getattr__(name: str) -> Any:
    """A public name, from the module that it lives in."""
    if name == "ais":  # a room of its own: ais.shuffle, ais.transformed, ais.at
        return import_module(".ais", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
