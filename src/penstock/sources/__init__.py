"""Sources: each a plain function that lists examples without loading them."""

from __future__ import annotations

from .catalog import csv, json, jsonl
from .coco import coco
from .dedupe import dedupe
from .examples import examples
from .image_classification import image_classification
from .image_folder import image_folder
from .images import check_image
from .listed import Listed
from .recognise import recognise
from .table import Table, parquet, table
from .text import text_classification
from .tfrecords import tfrecords
from .voc import voc_detection, voc_segmentation

__all__ = [
    "Listed",
    "Table",
    "check_image",
    "coco",
    "csv",
    "dedupe",
    "examples",
    "image_classification",
    "image_folder",
    "json",
    "jsonl",
    "parquet",
    "recognise",
    "table",
    "text_classification",
    "tfrecords",
    "voc_detection",
    "voc_segmentation",
]
