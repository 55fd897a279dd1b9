"""Datum's door: its documented code runs, its datasets open, its options work, its faults are gone."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.datum_files import datum_record, exported_by_datum, picture, type_entry

import penstock as ps
import penstock.compat.datum as datum
from penstock.compat.datum.configs import BucketConfigs, DatasetConfigs, TFRReadConfigs, TFRWriteConfigs
from penstock.compat.datum.export.export import export_to_tfrecord
from penstock.compat.datum.problem.types import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF
from penstock.compat.datum.reader import load

tf = pytest.importorskip("tensorflow")

ORDER = [6, 5, 4, 0, 8, 3, 1, 9, 7, 2]  # of ten rows of train, by the MD5 of "train0", "train1" ...


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def configs(*splits: str, **options: Any) -> TFRWriteConfigs:
    made = TFRWriteConfigs()
    made.splits = {split: {} for split in splits}
    for name, value in options.items():
        setattr(made, name, value)
    return made


def plain(**options: Any) -> DatasetConfigs:
    """Configs without what hides the order: examples one by one, unless told."""
    made = DatasetConfigs()
    for name, value in {"batch_size_train": 0, "batch_size_val": 0, **options}.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten images to train on, three to validate with; the header is written as Datum's documents have it."""
    for split, count in (("train", 10), ("val", 3)):
        rows = [f"{number}, {number}, 0.5, 'name {number}'" for number in range(count)]
        write(tmp_path / "photos" / f"{split}.csv", "\n".join(["filename, label, score, name", *rows, ""]))
        for number in range(count):
            write(tmp_path / "photos" / split / f"{number}.png", picture(number))
    return tmp_path / "photos"


def test_the_documented_code_runs(photos: Path, tmp_path: Path) -> None:
    input_path, output_path = str(photos), str(tmp_path / "records")
    IMG_SIZE = (4, 4)  # noqa: N806

    write_configs = datum.configs.TFRWriteConfigs()
    write_configs.splits = {"train": {"num_examples": 10}, "val": {"num_examples": 3}}
    datum.export.export_to_tfrecord(input_path, output_path, datum.problem.IMAGE_CLF, write_configs)

    dataset = datum.load(output_path)
    train_dataset = dataset.train_fn("train", shuffle=True)
    val_dataset = dataset.val_fn("val", shuffle=False)

    def augment_image(example):
        image = tf.image.resize(example["image"], IMG_SIZE)
        image = tf.image.random_flip_left_right(image)
        image = tf.image.random_flip_up_down(image)
        example.update({"image": image})
        return example

    (batch,) = train_dataset  # fewer than a batch: there, nothing came at all
    assert batch["image"].shape == (10, 8, 6, 3)
    assert batch["image"].dtype == tf.uint8
    assert sorted(batch["label"].numpy()) == list(range(10))
    np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], batch["label"])
    (batch,) = val_dataset
    assert sorted(batch) == ["image", "label", "name", "score"]
    assert batch["label"].dtype == tf.int64
    assert batch["score"].dtype == tf.float32

    dataset_configs = dataset.dataset_configs
    dataset_configs.pre_batching_callback = lambda example: augment_image(example)
    train_dataset = dataset.train_fn("train", shuffle=True)
    (batch,) = train_dataset
    assert batch["image"].shape == (10, 4, 4, 3)


# What Datum itself writes


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    rows = [{"image": picture(n), "label": n, "score": 0.5, "name": f"name {n}"} for n in range(10)]
    mapping = {
        "image": type_entry("string", 8, 6, 3),
        "label": type_entry("int"),
        "score": type_entry("float"),
        "name": type_entry("string"),
    }
    return exported_by_datum(tmp_path / "theirs", {"val": rows[:3], "train": rows}, mapping)


def test_their_datasets_open(theirs: Path) -> None:
    found = list(load(str(theirs), plain()).train_fn("train", shuffle=False))
    assert [int(example["label"]) for example in found] == ORDER
    assert sorted(found[0]) == ["image", "label", "name", "score"]
    assert found[0]["image"].shape == (8, 6, 3)
    assert found[0]["name"].numpy() == b"name 6"
    ds = ps.load(theirs)
    assert list(ds) == ["train", "val"]
    assert ds["train"][0]["image"].shape == (8, 6, 3)
    assert ds["train"][1]["name"] == "name 5"
    assert ds["train"][1]["score"] == np.float32(0.5)


def test_an_export_beside_theirs_keeps_the_other_splits(photos: Path, theirs: Path) -> None:
    export_to_tfrecord(photos, theirs, IMAGE_CLF, configs("val"))
    found = load(str(theirs), plain())
    kept = [int(example["label"]) for example in found.train_fn("train", shuffle=False)]
    assert kept == ORDER  # the files stay as they are
    assert len(list(found.val_fn("val"))) == 3


def test_a_subclass_of_the_configs(theirs: Path) -> None:
    class Mine(datum.configs.DatasetConfigs):
        pass

    mine = Mine()
    mine.batch_size_train = 4
    assert mine.echoing is None
    assert len(list(load(str(theirs), mine).train_fn("train", shuffle=False))) == 2  # the rest is dropped


def test_an_export_is_read_as_theirs_is(photos: Path, theirs: Path, tmp_path: Path) -> None:
    """The same examples in the same order, to the byte; and what Datum's reader goes by says the same."""
    export_to_tfrecord(photos, tmp_path / "ours", IMAGE_CLF, configs("train", "val"))
    shards = json.loads((tmp_path / "ours" / "shard_info.json").read_text())
    for split in ("train", "val"):
        (name,) = shards[split]
        ours = [tf.train.Example.FromString(record) for record in ps.TFRecordReader(tmp_path / "ours" / name)]
        records = ps.TFRecordReader(theirs / f"{split}-00000-of-00001.tfrecord")
        assert ours == [tf.train.Example.FromString(record) for record in records]
        assert shards[split][name] == len(ours)
    file = "datum_to_type_and_shape_mapping.json"
    assert json.loads((tmp_path / "ours" / file).read_text()) == json.loads((theirs / file).read_text())
    ours, original = (list(load(path, plain()).train_fn(shuffle=False)) for path in (tmp_path / "ours", theirs))
    assert [example["image"].numpy().tolist() for example in ours] == [e["image"].numpy().tolist() for e in original]


@pytest.mark.parametrize("problem", [IMAGE_CLF, IMAGE_DET, IMAGE_SEG])
def test_an_export_is_the_files_of_datum_and_nothing_else(problem: str, photos: Path, tmp_path: Path) -> None:
    """What Datum's own export tests look at: with the import changed they pass."""
    root = photos
    if problem != IMAGE_CLF:
        root = tmp_path / "voc"
        write(root / "classes.names", "cat\n")
        for split in ("train", "val"):
            write(root / "JPEGImages" / f"{split}.jpg", picture(format="JPEG"))
            write(root / "SegmentationClass" / f"{split}.png", picture())
            write(root / "Annotations" / f"{split}.xml", VOC)
            write(root / "ImageSets" / f"{split}.txt", split)
            write(root / f"{split}.txt", split)
    made = configs()
    made.splits = {"train": {"num_examples": 1}, "val": {"num_examples": 1}}
    for _ in range(2):  # and again
        export_to_tfrecord(root, tmp_path / "out", problem, made)
        assert sorted(os.listdir(tmp_path / "out")) == [
            "datum_to_type_and_shape_mapping.json",
            "shard_info.json",
            "train-00000-of-00001.tfrecord",
            "val-00000-of-00001.tfrecord",
        ]
    assert len(list(load(tmp_path / "out", plain()).train_fn())) == (10 if problem == IMAGE_CLF else 1)
    write(root / "train.csv", "filename,label\nmissing,1\n")
    if problem == IMAGE_CLF:
        with pytest.raises(ps.PenstockError, match="missing"):
            export_to_tfrecord(root, tmp_path / "out", problem, made)
        assert len(list(load(tmp_path / "out", plain()).train_fn())) == 10, "an export that fails leaves what was there"


VOC = (
    "<annotation><size><width>6</width><height>8</height></size><object><name>cat</name><pose>Left</pose>"
    "<truncated>0</truncated><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>4</ymax>"
    "</bndbox></object></annotation>"
)


def test_splits_of_other_features_are_exported_together(photos: Path, tmp_path: Path) -> None:
    export_to_tfrecord(photos, tmp_path / "out", IMAGE_CLF, configs("train"))
    write(photos / "val.csv", "filename,label,other\n0,1,2\n")
    with pytest.raises(ps.SchemaError, match="expected the features of the other splits"):
        export_to_tfrecord(photos, tmp_path / "out", IMAGE_CLF, configs("val"))
    assert len(list(load(tmp_path / "out", plain()).train_fn())) == 10


def test_old_counts_do_not_matter(theirs: Path) -> None:
    """Datum keeps the old count of a split that is exported again, and then fails to read it."""
    file = theirs / "shard_info.json"
    file.write_text(
        file.read_text().replace('"train-00000-of-00001.tfrecord": 10', '"train-00000-of-00001.tfrecord": 4')
    )
    assert len(list(load(theirs, plain()).train_fn())) == 10


@pytest.mark.parametrize(
    ("shards", "mapping", "message"),
    [
        ({"train": {"../other.tfrecord": 3}}, {}, "expected files of this folder, got '../other.tfrecord'"),
        ({"train": ["a.tfrecord"]}, {}, "expected the files of each split, got something else"),
        ({}, {}, "expected the files of each split, got no split"),
        (None, {"x": {"type": "complex", "shape": [], "dense": True}}, "as Datum writes them, got others"),
        (None, [], "as Datum writes them, got others"),
    ],
)
def test_metadata_that_make_no_sense(theirs: Path, shards: Any, mapping: Any, message: str) -> None:
    if shards is not None:
        (theirs / "shard_info.json").write_text(json.dumps(shards))
    (theirs / "datum_to_type_and_shape_mapping.json").write_text(json.dumps(mapping))
    with pytest.raises(ps.CorruptionError, match=message):
        load(theirs)


# Exports


def voc(root: Path) -> Path:
    pose = "<pose>Left</pose><truncated>1</truncated><difficult>0</difficult>"
    corners = "<bndbox><xmin>174</xmin><ymin>101</ymin><xmax>349</xmax><ymax>351</ymax></bndbox>"
    thing = f"<object><name>Dog</name>{pose}{corners}<part><name>head</name></part></object>"
    size = "<size><width>486</width><height>500</height><depth>3</depth></size>"
    for name, count in (("a", 1), ("b", 3), ("c", 0)):
        write(root / "JPEGImages" / f"{name}.jpeg", picture(9, (486, 500), "JPEG"))
        write(root / "Annotations" / f"{name}.xml", f"<annotation>{size}{thing * count}</annotation>")
    write(root / "ImageSets" / "train.txt", "a\nb\nc\n")
    write(root / "classes.names", "cat\ndog\n")
    return root


def test_detection(tmp_path: Path) -> None:
    """Objects differ in number: there, that exported and could not be read, unless all features were named sparse."""
    export_to_tfrecord(voc(tmp_path / "voc"), tmp_path / "out", IMAGE_DET, configs("train"))
    (batch,) = load(tmp_path / "out").train_fn(shuffle=False)
    row = {count: index for index, count in enumerate((batch["labels"] > 0).numpy().sum(axis=1))}
    assert batch["labels"].numpy()[row[3]].tolist() == [2, 2, 2]
    assert batch["labels"].numpy()[row[1]].tolist() == [2, 0, 0]  # padded
    found = {name: float(batch[name][row[1], 0]) for name in ("xmin", "xmax", "ymin", "ymax", "area")}
    expected = {"xmin": 0.35802, "xmax": 0.71811, "ymin": 0.202, "ymax": 0.702, "area": 0.18004}
    assert found == pytest.approx(expected, abs=1e-5)
    assert batch["pose"][row[1], 0].numpy() == b"left"
    assert batch["is_truncated"].numpy()[row[3]].tolist() == [1, 1, 1]
    assert batch["labels_difficult"].numpy().max() == 0
    assert batch["image"].shape == (3, 500, 486, 3)
    mapping = json.loads((tmp_path / "out" / "datum_to_type_and_shape_mapping.json").read_text())
    assert mapping["xmin"]["dense"] is False
    assert mapping["image"] == {"type": "string", "shape": [500, 486, 3], "dense": True}


def test_segmentation_of_palettes(tmp_path: Path) -> None:
    """Masks with a palette hold the numbers of classes: there, the levels of its colours came back."""
    root = tmp_path / "seg"
    mask = Image.fromarray(np.array([[0, 1, 255], [1, 1, 0]], np.uint8), "P")
    mask.putpalette([value for n in range(256) for value in (n, 255 - n, n // 2)])
    buffer = io.BytesIO()
    mask.save(buffer, "PNG", transparency=0)
    grey = picture(7, (3, 2), mode="L")
    for name, data in (("a", buffer.getvalue()), ("b", grey)):
        write(root / "JPEGImages" / f"{name}.jpg", picture(3, (3, 2), "JPEG", "L"))
        write(root / "SegmentationClass" / f"{name}.png", data)
    write(root / "train.txt", "a\nb\n")
    export_to_tfrecord(root, tmp_path / "out", IMAGE_SEG, configs("train"))
    examples = list(load(tmp_path / "out", plain()).train_fn(shuffle=False))
    labels = sorted(example["label"][..., 0].numpy().tolist() for example in examples)
    assert labels == [[[0, 1, 255], [1, 1, 0]], [[7, 7, 7], [7, 7, 7]]]
    assert {tuple(example["image"].shape) for example in examples} == {(2, 3, 3)}
    assert {tuple(example["label"].shape) for example in examples} == {(2, 3, 1)}
    made = configs("train")
    made.splits["train"] = {"image_extension": ".JPG", "label_extension": ".PNG"}
    export_to_tfrecord(root, tmp_path / "capitals", IMAGE_SEG, made)
    assert len(ps.load(tmp_path / "capitals")["train"]) == 2


def test_text(tmp_path: Path) -> None:
    def texts(*ids: str) -> str:
        return json.dumps({i: {"text": f"text {i}.jpg", "label": {"polarity": "7", "score": 1.5}} for i in ids})

    root = tmp_path / "texts"
    write(root / "train.json", texts("a", "b"))
    write(root / "train_2.json", texts("c"))
    write(root / "other.json", texts("d"))
    made = configs("train")
    made.splits["val"] = {"json_path": "other.json", "num_examples": 1}
    export_to_tfrecord(root, tmp_path / "out", TEXT_CLF, made)
    data = load(tmp_path / "out")
    (batch,) = data.train_fn()
    assert sorted(batch["text"].numpy()) == [b"text a.jpg", b"text b.jpg", b"text c.jpg"]  # no image is looked for
    assert batch["polarity"].numpy().tolist() == [7, 7, 7]
    assert batch["score"].dtype == tf.float32
    (batch,) = data.val_fn()
    assert batch["text"].numpy().tolist() == [b"text d.jpg"]
    with pytest.raises(ps.StorageError, match=r"expected files, got none that match .*test\*\.json"):
        export_to_tfrecord(root, tmp_path / "out", TEXT_CLF, configs("test"))


def test_folders_of_other_names(tmp_path: Path) -> None:
    root = tmp_path / "in"
    write(root / "lists" / "some.csv", "filename,label\nx,1\nx,2\n")  # one image twice
    write(root / "pictures" / "x.PNG", picture())
    write(root / "pictures" / "x.jpg", picture(format="JPEG"))
    made = configs()
    made.splits = {"train": {"csv_path": "lists/some.csv", "image_dir": "pictures", "extension": ".png"}}
    export_to_tfrecord(root, tmp_path / "out", IMAGE_CLF, made)
    assert len(list(load(tmp_path / "out", plain()).train_fn())) == 2
    made.splits = {"train": {"csv_pth": "lists/some.csv"}}
    with pytest.raises(ps.SchemaError, match=r"unknown option 'csv_pth' - at splits\['train'\]. Did you mean"):
        export_to_tfrecord(root, tmp_path / "out", IMAGE_CLF, made)


def test_splits_can_be_exported_one_by_one(photos: Path, tmp_path: Path) -> None:
    for split in ("train", "val", "val"):
        export_to_tfrecord(photos, tmp_path / "out", IMAGE_CLF, configs(split))
    write(photos / "train.csv", "filename,label,score,name\n3,33,0.5,'x'\n")
    export_to_tfrecord(photos, tmp_path / "out", IMAGE_CLF, configs("train"))
    data = load(tmp_path / "out", plain())
    assert [int(example["label"]) for example in data.train_fn()] == [33]
    assert sorted(int(example["label"]) for example in data.val_fn()) == [0, 1, 2]
    shards = json.loads((tmp_path / "out" / "shard_info.json").read_text())
    assert {split: sum(files.values()) for split, files in shards.items()} == {"train": 1, "val": 3}


class Own:
    """A generator of one's own. There, it could not be set at all."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, split: str, count: int = 4) -> Any:
        for n in range(count):
            yield f"id{n}", {"image": f"{self.path}/{n}.png", "v": list(range(n)), "m": [[1, 2], [3, 4]], "k": True}


def test_a_generator_of_ones_own_and_sparse_features(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / "in" / f"{number}.png", picture(number))
    made = configs(generator=Own, sparse_features=["m"])
    made.splits = {"train": {"count": 3}}
    export_to_tfrecord(tmp_path / "in", tmp_path / "out", IMAGE_CLF, made)
    (batch,) = load(tmp_path / "out").train_fn(shuffle=False)
    assert batch["m"].numpy().tolist() == [[[1, 2], [3, 4]]] * 3
    assert batch["m_shape"].numpy().tolist() == [[2, 2]] * 3
    assert sorted(batch["v"].numpy().tolist()) == [[0, 0], [0, 0], [0, 1]]
    assert batch["k"].numpy().tolist() == [1, 1, 1]
    mapping = json.loads((tmp_path / "out" / "datum_to_type_and_shape_mapping.json").read_text())
    assert mapping["m"] == {"type": "int", "shape": [2, 2], "dense": False}
    assert mapping["m_shape"] == {"type": "int", "shape": [2], "dense": True}
    (file,) = json.loads((tmp_path / "out" / "shard_info.json").read_text())["train"]
    record = tf.train.Example.FromString(ps.TFRecordReader(tmp_path / "out" / file)[0])
    assert list(record.features.feature["m"].int64_list.value) == [1, 2, 3, 4]
    assert load(tmp_path / "out").padded_shapes["m"] == [None, None]


def test_their_sparse_features_come_back(tmp_path: Path) -> None:
    rows = [{"v": [1, 2, 3], "m": [[1, 2], [3, 4]], "m_shape": [2, 2]}, {"v": [4], "m": [[5, 6]], "m_shape": [1, 2]}]
    mapping = {
        "v": type_entry("int", 1, dense=False),
        "m": type_entry("int", 1, 2, dense=False),
        "m_shape": type_entry("int", 2),
    }
    folder = exported_by_datum(tmp_path / "theirs", {"train": rows}, mapping)
    (batch,) = load(folder, plain(batch_size_train=2, use_datum_padding=True)).train_fn(shuffle=False)
    assert sorted(batch["v"].numpy().tolist()) == [[1, 2, 3], [4, 0, 0]]
    assert sorted(batch["m"].numpy().tolist()) == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (IMAGE_CLF, {"splits": None}, "expected the splits to export, got none"),
        ("image_cls", {}, "unknown problem 'image_cls'.*Did you mean 'image_clf'"),
        (IMAGE_CLF, {"serializer": str}, "expected no serializer"),
        (IMAGE_CLF, {"sparse_features": ["labels"]}, "no feature 'labels'.*Did you mean 'label'"),
    ],
)
def test_exports_that_cannot_be(photos: Path, tmp_path: Path, problem: str, options: Any, message: str) -> None:
    with pytest.raises(ps.SchemaError, match=message):
        export_to_tfrecord(photos, tmp_path / "out", problem, configs("train", **options))
    with pytest.raises(ps.NotFoundError, match="expected a folder"):
        export_to_tfrecord(photos / "nowhere", tmp_path / "out", IMAGE_CLF, configs("train"))


# Reading


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Ten examples to train on and four to validate with, by Datum, in the order of their hashes."""
    rows = [{"x": n, "v": list(range(n + 1))} for n in range(10)]
    mapping = {"x": type_entry("int"), "v": type_entry("int", 3, dense=False)}
    return exported_by_datum(tmp_path / "numbers", {"train": rows, "val": rows[:4]}, mapping)


def xs(dataset: Any) -> list[Any]:
    return [item["x"].numpy().tolist() for item in dataset]


def test_instructions(numbers: Path) -> None:
    data = load(numbers, plain())
    assert xs(data.train_fn("train[2:5]", shuffle=False)) == ORDER[2:5]
    assert xs(data.train_fn("train[-3:]", shuffle=False)) == ORDER[-3:]
    assert xs(data.val_fn("train[:33%]")) == ORDER[:3]
    assert len(xs(data.train_fn("train[:10%]+val[1:]"))) == 4
    with pytest.raises(KeyError, match="no split 'tran'"):
        data.train_fn("tran")


def test_shuffles(numbers: Path) -> None:
    data = load(numbers, plain())
    first = xs(data.train_fn())
    assert sorted(first) == list(range(10))
    assert first != ORDER
    assert xs(data.train_fn()) == first
    # Its readme means shuffle=False; in its code, and here, the second argument is `repeat`.
    assert xs(data.train_fn("train", False)) == xs(data.train_fn("train", repeat=None, shuffle=True)) != ORDER
    assert xs(data.train_fn("train", True)) == xs(data.train_fn("train", 1))
    data.dataset_configs = plain(seed=1)
    assert xs(data.train_fn()) != first
    data.dataset_configs = plain(reshuffle_each_iteration=True)
    again = data.train_fn()
    assert xs(again) != xs(again)


def test_batches(numbers: Path) -> None:
    data = load(numbers, plain(batch_size_train=4, batch_size_val=3))
    assert [len(batch) for batch in xs(data.train_fn())] == [4, 4]
    assert [len(batch) for batch in xs(data.val_fn())] == [3, 1]
    data.dataset_configs.drop_remainder = False
    assert [len(batch) for batch in xs(data.train_fn(repeat=2))] == [4, 4, 2] * 2
    assert len(xs(data.train_fn(repeat=-1).take(20))) == 20
    assert [len(batch) for batch in xs(data.test_fn("val"))] == [4]


@pytest.mark.parametrize("option", ["use_tf_padding", "use_datum_padding"])
def test_padding(numbers: Path, option: str) -> None:
    (batch,) = load(numbers, plain(batch_size_val=4, **{option: True})).val_fn()
    assert batch["v"].shape == (4, 4)
    assert batch["v"].numpy().sum() == 0 + 1 + 3 + 6


def test_buckets(numbers: Path) -> None:
    buckets = BucketConfigs()
    buckets.bucket_boundaries, buckets.bucket_batch_sizes = [4, 8], [2, 2, 1]
    options = {"bucket_op": buckets, "bucket_fn": lambda example: tf.size(example["v"]), "drop_remainder": False}
    batches = xs(load(numbers, plain(**options)).train_fn())
    assert sorted(number for batch in batches for number in batch) == list(range(10))
    assert all(len({(n + 1 >= 4) + (n + 1 >= 8) for n in batch}) == 1 for batch in batches)


def test_caches(numbers: Path, tmp_path: Path) -> None:
    for cache in ("", str(tmp_path / "cache")):
        dataset = load(numbers, plain(cache=True, cache_filename=cache)).train_fn(shuffle=False)
        assert xs(dataset) == xs(dataset) == ORDER
    assert list(tmp_path.glob("cache*"))


def test_echoes_and_callbacks(numbers: Path) -> None:
    def tenfold(example: Any) -> Any:
        return {"x": example["x"] * 10}

    def negative(batch: Any) -> Any:
        return {"x": -batch["x"]}

    data = load(numbers, plain(echoing=2, pre_batching_callback_train=tenfold, post_batching_callback_val=negative))
    assert xs(data.train_fn(shuffle=False))[:4] == [60, 60, 50, 50]
    assert sorted(xs(data.val_fn())) == [-3, -2, -1, 0]
    data.dataset_configs.echoing = None  # there, None could not be set again
    data.dataset_configs.post_batching_callback = negative
    assert xs(data.train_fn(shuffle=False)) == [-10 * n for n in ORDER]
    assert data.dataset_configs.post_batching_callback is negative


def test_full_dataset(numbers: Path) -> None:
    batch = load(numbers, plain(batch_size_val=4, full_dataset=True)).val_fn()
    assert sorted(batch["x"].numpy()) == [0, 1, 2, 3]


def test_read_configs(tmp_path: Path) -> None:
    """Files in the order that was asked for, and as many at once."""
    rows = [[{"x": 10 * shard + n} for n in range(3)] for shard in range(3)]
    folder = exported_by_datum(tmp_path / "three", {"a": rows[0]}, {"x": type_entry("int")})
    files = {}
    for number, shard in enumerate(rows):
        name = f"train-0000{number}-of-00003.tfrecord"
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for row in shard:
                writer.write(datum_record(row))
        files[name] = 3
    (folder / "shard_info.json").write_text(json.dumps({"train": files}))
    read = TFRReadConfigs()
    read.interleave_cycle_length = 3
    data = load(folder, plain(read_config=read))
    assert xs(data.train_fn(shuffle=False)) == [0, 10, 20, 1, 11, 21, 2, 12, 22]
    read.interleave_block_length = 2
    assert xs(data.train_fn(shuffle=False)) == [0, 1, 10, 11, 20, 21, 2, 12, 22]
    read.interleave_cycle_length = 1
    read.experimental_interleave_sort_fn = lambda files: files[::-1]
    assert xs(data.train_fn("train[1:7]", shuffle=False)) == [20, 10, 11, 12, 1, 2]
    options = tf.data.Options()
    options.deterministic = True
    read.options = options
    assert data.train_fn().options().deterministic
    data.dataset_configs.buffer_size = 1
    orders = {tuple(xs(data.train_fn())) for read.seed in range(8)}
    assert len(orders) > 1  # files are shuffled, by their seed
    assert all(order[0] % 10 == 0 and order[:3] == (order[0], order[0] + 1, order[0] + 2) for order in orders)


# Configs


def test_configs_are_checked() -> None:
    made = DatasetConfigs()
    with pytest.raises(TypeError, match=r"expected int, got '32' - at DatasetConfigs.batch_size_train"):
        made.batch_size_train = "32"
    with pytest.raises(AttributeError, match=r"unknown option 'batch_size' - at DatasetConfigs. Did you mean"):
        made.batch_size = 32
    with pytest.raises(TypeError, match=r"expected dict"):
        TFRWriteConfigs().splits = ["train"]
    assert made == DatasetConfigs()
    made.buffer_size = 5
    assert made != DatasetConfigs()
    assert repr(made).startswith("DatasetConfigs(")


def test_configs_merge() -> None:
    one, two = plain(seed=1, echoing=3), DatasetConfigs()
    two.cache = True
    two.read_config.seed = 9
    merged = one.merge(two)
    assert (merged.seed, merged.echoing, merged.cache, merged.read_config.seed) == (1, 3, True, 9)
    assert merged.batch_size_train == 0
    two.seed = 2
    with pytest.raises(ValueError, match=r"expected one value, got 1 and 2 - at DatasetConfigs.seed"):
        one.merge(two)
    with pytest.raises(TypeError, match="expected DatasetConfigs, got BucketConfigs"):
        one.merge(BucketConfigs())


def test_the_door_imports_no_tensorflow(tmp_path: Path) -> None:
    code = "import sys; import penstock.compat.datum as datum; assert 'tensorflow' not in sys.modules, 'imported'"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_parts_without_examples_and_configs_of_others_are_told(photos: Path, tmp_path: Path) -> None:
    configs = datum.configs.TFRWriteConfigs()
    configs.splits = {"train": {}, "val": {}}
    datum.export.export_to_tfrecord(photos, tmp_path / "records", datum.problem.IMAGE_CLF, configs)
    with pytest.raises(ps.SchemaError, match="expected examples, got none - at to_tf"):
        datum.load(tmp_path / "records").val_fn("val[:10%]")
    with pytest.raises(ps.SchemaError, match="expected DatasetConfigs, got dict - at dataset_configs"):
        datum.load(tmp_path / "records", {"batch_size_train": 3})
