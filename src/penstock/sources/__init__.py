"""Sources: each a plain function that lists examples without loading them."""

from __future__ import annotations

from .catalog import csv as csv
from .catalog import json as json
from .catalog import jsonl as jsonl
from .coco import coco as coco
from .dedupe import dedupe as dedupe
from .examples import examples as examples
from .image_classification import image_classification as image_classification
from .image_folder import image_folder as image_folder
from .images import check_image as check_image
from .listed import Listed as Listed
from .recognise import detect as detect
from .recognise import recognise as recognise
from .record_files import array_records as array_records
from .record_files import tfrecords as tfrecords
from .table import Table as Table
from .table import parquet as parquet
from .table import table as table
from .tar import tar as tar
from .text import text_classification as text_classification
from .voc import voc_detection as voc_detection
from .voc import voc_segmentation as voc_segmentation
