"""A folder with raw data of every kind that a source reads."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from PIL import Image

import penstock as ps

VOC_XML = """<annotation><size><width>8</width><height>8</height></size><object><name>{name}</name><bndbox>
<xmin>1</xmin><ymin>2</ymin><xmax>5</xmax><ymax>6</ymax></bndbox></object></annotation>"""


def save_image(path: Path, number: int) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (number % 256, 3 * number % 256, 7)).save(path)
    return path.name


def write_raw(root: Path) -> Path:
    """A folder with raw data of every kind."""
    for number in range(24):
        save_image(root / "photos" / ("cat" if number % 2 else "dog") / f"{number}.png", number)
        save_image(
            root / "splits" / ("train" if number < 16 else "test") / f"class{number % 3}" / f"{number}.png", number
        )
        save_image(root / "pictures" / f"{number}.png", number)
    with (root / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["picture", "label", "part"])
        writer.writerows([f"pictures/{n}.png", n % 5, "train" if n < 20 else "test"] for n in range(24))
    rows = [{"picture": f"pictures/{n}.png", "label": n % 5} for n in range(24)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "rows.json").write_text(json.dumps(rows))
    for part in range(3):
        with ps.TFRecordWriter(root / f"part-{part}.tfrecord") as tfrecords:
            codec = ps.Codec({"x": "int64"})
            for number in range(10):
                tfrecords.write(codec.encode_example({"x": 10 * part + number}))
    ps.build([{"x": n} for n in range(30)], root / "one.array_record", workers=1)
    for number in range(6):
        save_image(root / "voc" / "JPEGImages" / f"i{number}.png", number)
        (root / "voc" / "Annotations").mkdir(exist_ok=True)
        (root / "voc" / "Annotations" / f"i{number}.xml").write_text(VOC_XML.format(name="ab"[number % 2]))
        mask = root / "voc" / "SegmentationClass" / f"i{number}.png"
        mask.parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8), number).save(mask)
        save_image(root / "datum" / "train" / f"{number}.png", number)
    (root / "voc" / "ImageSets").mkdir()
    (root / "voc" / "ImageSets" / "train.txt").write_text("i0\ni1\ni2\ni3\n")
    (root / "voc" / "ImageSets" / "val.txt").write_text("i4\ni5\n")
    (root / "datum" / "train.csv").write_text("filename,label\n" + "".join(f"{n},{n % 2}\n" for n in range(6)))
    (root / "texts").mkdir()
    texts = {f"id{n}": {"text": f"text {n}", "label": {"mood": str(n % 2)}} for n in range(6)}
    (root / "texts" / "train.json").write_text(json.dumps(texts))
    coco = {
        "images": [{"id": n, "file_name": f"{n}.png", "width": 8, "height": 8} for n in range(24)],
        "annotations": [{"id": n, "image_id": n, "category_id": 1 + n % 2, "bbox": [1, 1, 4, 4]} for n in range(24)],
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
    }
    (root / "instances.json").write_text(json.dumps(coco))
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for part in range(2):
        pq.write_table(pa.table({"x": list(range(part * 10, part * 10 + 10))}), root / f"rows-{part}.parquet")
    return root
