"""Sources: each a plain function that lists examples without loading them."""

from __future__ import annotations

from .adapt import as_source
from .catalog import csv, json, jsonl
from .classification import image_classification, text_classification
from .coco import coco
from .detect import detect, recognise
from .example_classes import examples
from .image_folder import image_folder
from .images import check_image
from .protocol import BatchSource, RecordSource, Source, Stream
from .record_files import array_records, tfrecords
from .splits import dedupe
from .table import Table, parquet, table
from .tar import tar
from .voc import voc_detection, voc_segmentation

__all__ = [
    "BatchSource",
    "RecordSource",
    "Source",
    "Stream",
    "Table",
    "array_records",
    "as_source",
    "check_image",
    "coco",
    "csv",
    "dedupe",
    "detect",
    "examples",
    "image_classification",
    "image_folder",
    "json",
    "jsonl",
    "parquet",
    "recognise",
    "table",
    "tar",
    "text_classification",
    "tfrecords",
    "voc_detection",
    "voc_segmentation",
]
