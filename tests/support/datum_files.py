"""Datasets as Datum 1.12 writes them, and the entries of its metadata."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

tf = pytest.importorskip("tensorflow")


def picture(shade: int = 0, size: tuple[int, int] = (6, 8), format: str = "PNG", mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, (shade,) * 3 if mode == "RGB" else shade).save(buffer, format)
    return buffer.getvalue()


def exported_by_datum(folder: Path, examples: dict[str, list[dict[str, Any]]], mapping: dict[str, Any]) -> Path:
    """The files of Datum 1.12: examples by the MD5 of split and row, one shard for each split, two JSON files."""
    folder.mkdir(parents=True)
    shards = {}
    for split, rows in examples.items():
        name = f"{split}-00000-of-00001.tfrecord"
        hashes = {n: int(hashlib.md5(f"{split}{n}".encode()).hexdigest(), 16) for n in range(len(rows))}
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for number in sorted(hashes, key=hashes.__getitem__):
                writer.write(datum_record(rows[number]))
        shards[split] = {name: len(rows)}
    (folder / "shard_info.json").write_text(json.dumps(shards))
    (folder / "datum_to_type_and_shape_mapping.json").write_text(json.dumps(mapping))
    return folder


def datum_record(values: dict[str, Any]) -> bytes:
    features = {}
    for name, value in values.items():
        flat = np.array(value).flatten()
        if flat.dtype.kind in "bi":
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=flat.astype(int)))
        elif flat.dtype.kind == "f":
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=flat))
        else:
            strings = [
                item.encode() if isinstance(item, str) else bytes(item) for item in np.array(value, object).flatten()
            ]
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=strings))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def type_entry(kind: str, *shape: int, dense: bool = True) -> dict[str, Any]:
    return {"type": kind, "shape": list(shape), "dense": dense}
