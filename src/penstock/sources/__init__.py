"""Sources: each a plain function that lists examples without loading them."""

from __future__ import annotations

from .catalog import csv, json, jsonl
from .classification import image_classification, text_classification
from .coco import coco
from .detect import detect, recognise
from .example_classes import examples
from .image_folder import image_folder
from .images import check_image
from .protocol import Listed
from .record_files import array_records, tfrecords
from .splits import dedupe
from .table import Table, parquet, table
from .tar import tar
from .voc import voc_detection, voc_segmentation

__all__ = [
    "Listed",
    "Table",
    "array_records",
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
