"""Sources that read stores: the same datasets as from local files, fetched in parallel, resumed, and checked again."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from services import Nginx
from tests.test_build_urls import files

import penstock as ps
from penstock.storage import open_store

VOC_XML = """<annotation><size><width>8</width><height>8</height></size><object><name>{name}</name><bndbox>
<xmin>1</xmin><ymin>2</ymin><xmax>5</xmax><ymax>6</ymax></bndbox></object></annotation>"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a working directory of this test."""
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


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


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_raw(tmp_path_factory.mktemp("raw"))


def upload(folder: Path, url: str) -> str:
    """Copy a folder into a store."""
    store, name = open_store(url)

    def put(path: Path) -> None:
        below = path.relative_to(folder).as_posix()
        store.publish(f"{name}/{below}" if name else below, path.read_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, (path for path in sorted(folder.rglob("*")) if path.is_file())))
    return url


Sources = dict[str, Callable[[str], Any]]
LISTED: Sources = {
    "image_folder": lambda root: ps.image_folder(f"{root}/photos"),
    "image_folder_slash": lambda root: ps.image_folder(f"{root}/photos/"),
    "image_folder_splits": lambda root: ps.image_folder(f"{root}/splits"),
    "image_folder_glob": lambda root: ps.image_folder(f"{root}/photos/**/*.png"),
    "image_folder_resized": lambda root: ps.image_folder(f"{root}/photos", resize=ps.Image(max_side=4)),
    "jsonl_images": lambda root: ps.jsonl(f"{root}/rows.jsonl", image="picture"),
    "csv_glob": lambda root: ps.csv(f"{root}/row*.csv"),
    "csv_images_load": lambda root: ps.csv(f"{root}/rows.csv", image="picture", load=dict),
    "tfrecords_glob": lambda root: ps.tfrecords(f"{root}/part-*.tfrecord"),
    "tfrecords_numbers": lambda root: ps.tfrecords(f"{root}/part-{{0..}}.tfrecord"),
    "parquet_glob": lambda root: ps.parquet(f"{root}/rows-*.parquet"),
    "voc_detection": lambda root: ps.voc_detection(f"{root}/voc"),
    "voc_segmentation": lambda root: ps.voc_segmentation(f"{root}/voc"),
    "image_classification": lambda root: ps.image_classification(f"{root}/datum"),
    "text_classification": lambda root: ps.text_classification(f"{root}/texts"),
    "coco": lambda root: ps.coco(f"{root}/pictures", f"{root}/instances.json"),
}
NAMED: Sources = {  # without a listing, as web servers have none
    "csv": lambda root: ps.csv(f"{root}/rows.csv"),
    "csv_images": lambda root: ps.csv(f"{root}/rows.csv", image="picture", split="part"),
    "jsonl": lambda root: ps.jsonl(f"{root}/rows.jsonl"),
    "json": lambda root: ps.json(f"{root}/rows.json"),
    "json_images": lambda root: ps.json(f"{root}/rows.json", image="picture"),
    "parquet": lambda root: ps.parquet([f"{root}/rows-0.parquet", f"{root}/rows-1.parquet"]),
    "tfrecords": lambda root: ps.tfrecords(f"{root}/part-{{0..2}}.tfrecord"),
    "array_records": lambda root: ps.array_records(f"{root}/one.array_record"),
}


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a dataset, without what the examples were made from: that is another place."""
    found = files(folder)
    manifest = json.loads(found.pop("penstock.json"))
    for split in manifest["splits"].values():
        split.pop("inputs", None)
    return {**found, "penstock.json": json.dumps(manifest).encode()}


def same_build(make: Callable[[str], Any], url: str, raw: Path, tmp_path: Path, workers: int = 2) -> ps.Built:
    built = ps.build(make(url), tmp_path / "out" / "data", shards=3, workers=workers)
    ps.build(make(str(raw)), tmp_path / "expected" / "data", shards=3, workers=1)
    assert contents(tmp_path / "out" / "data") == contents(tmp_path / "expected" / "data")
    return built


@pytest.mark.parametrize("name", [*LISTED, *NAMED])
def test_a_source_in_s3_builds_the_bytes_of_local_files(name: str, s3: str, raw: Path, tmp_path: Path) -> None:
    make = (LISTED | NAMED)[name]
    url = upload(raw, f"{s3}/deep/raw")
    same_build(make, url, raw, tmp_path)
    again = ps.build(make(url), tmp_path / "out" / "data", shards=3, workers=2)
    assert again.written == 0 or ps.build(make(str(raw)), tmp_path / "expected" / "data", shards=3, workers=1).written


@pytest.mark.parametrize("name", ["image_folder", "csv_images", "tfrecords_glob", "coco", "json_images"])
def test_a_source_in_aistore_builds_the_bytes_of_local_files(name: str, ais: str, raw: Path, tmp_path: Path) -> None:
    same_build((LISTED | NAMED)[name], upload(raw, f"{ais}/raw"), raw, tmp_path)


@pytest.mark.parametrize("name", NAMED)
def test_a_source_on_a_web_server_builds_the_bytes_of_local_files(
    name: str, http_server: Nginx, raw: Path, tmp_path: Path
) -> None:
    shutil.copytree(raw, http_server.root / "raw", dirs_exist_ok=True)
    same_build(NAMED[name], f"{http_server.endpoint}/raw", raw, tmp_path)
