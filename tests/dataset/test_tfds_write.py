"""What we build, opened by the real TFDS with none of our code: values, splits, labels, names and versions."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tests.support.tfds_cases import CASES, as_list, as_plain, picture, plain_tensors, png

import penstock as ps


def example_of(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [{name: as_list(item) for name, item in row.items()} for row in value]
    return as_list(value)


IMAGE = ps.Field(dtype="bytes", kind="image")
# Fields that have no case of their own among the connectors.
MORE: dict[str, tuple[Any, Any]] = {
    "image": (IMAGE, png()),
    "images": (ps.Field(dtype="bytes", kind="image", levels=1), [png(), png()]),
    "small image": (ps.Field(dtype="bytes", kind="image", decoded="uint8[2,3,3]"), png()),
    "grey image": (ps.Field(dtype="bytes", kind="image", decoded="uint8[?,?,1]"), png(1)),
    "mask": (ps.Field(dtype="bytes", kind="image", classes=tuple("abcdef")), png(1)),
    "video": (ps.Field(dtype="bytes", kind="video", levels=1), [png()] * 3),
    "three frames": (ps.Field("", "bytes", (3,), kind="video", decoded="uint8[2,3,3]"), [png()] * 3),
    "sound": (ps.Field("", "int64", (None,), kind="audio"), np.arange(5)),
    "stereo": (ps.Field("", "float32", (None, 2), kind="audio"), np.ones((3, 2), np.float32)),
    "wave": (ps.Field(dtype="bytes", kind="audio"), b"RIFF"),
    "bytes": ("bytes", b"\xff\x00"),
    "half": ("bfloat16[2]", [1.5, 2]),
    "number": ("float64", 1e300),
    "doubles": ("list[float64]", [0.1, 1e300]),
    "pairs": ("list[float64[2]]", [[0.1, 1e300]]),
    "packed": (ps.Field("", "float32", (2,), levels=1, encoding="zlib"), [[1, 2], [3, 4]]),
    "labels": (ps.Field(dtype="int64", classes=("a", "b"), levels=1), [1, 0]),
    "some labels": (ps.Field("", "int64", (None,), classes=("a", "b")), [1, 0]),
    "two labels": (ps.Field("", "int64", (2,), classes=("a", "b")), [1, 0]),
    "four labels": (ps.Field("", "int64", (2, 2), classes=("a", "b")), [[1, 0], [0, 1]]),
    "small label": (ps.Field(dtype="uint8", classes=("a", "b")), 1),
    "path/of a name": ("int64", 5),
    "none, maybe": ("str?", None),
    "text, maybe": ("str?", "é"),
    "vector, maybe": ("float32[2]?", [1, 2]),
    "label, maybe": (ps.Field(dtype="int64", classes=("a", "b"), optional=True), 1),
    "dicts in dicts": (
        ps.Schema({"inner": ps.Schema({"n": "int64"}, sequence=True), "t": "str"}, sequence=True),
        [{"inner": [{"n": 1}, {"n": 2}], "t": "a"}, {"inner": [], "t": "b"}],
    ),
    "boxes": (ps.Field(dtype="float32", shape=(4,), kind="box", levels=1), [[0, 0, 0.5, 1]]),
    "grid": ("int64[2,?]", [[1, 2, 3], [4, 5, 6]]),
    "cells": ("str[2,?]", [["a", "b"], ["c", "d"]]),
}
LEFT_OUT: dict[str, tuple[Any, Any]] = {
    "list, maybe": ("list[int64]?", None),
    "image, maybe": (ps.Field(dtype="bytes", kind="image", optional=True), None),
    "row, maybe": ("int64[?]?", None),
    "double, maybe": ("float64?", None),
}
AS_BYTES: dict[str, tuple[Any, Any]] = {
    "lists of doubles": ("list[list[float64]]", [[0.1], []]),
    "lists of images": (ps.Field(dtype="bytes", kind="image", levels=2), [[png()], []]),
}
FRAMES = ("images", "video", "three frames")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ps.Built:
    cases = {case.name: (case.field, case.value) for case in CASES} | MORE | LEFT_OUT | AS_BYTES
    schema = {"id": "int64", **{name: field for name, (field, _) in cases.items()}}
    values = {name: example_of(value) for name, (_, value) in cases.items()}
    rows = [{"id": n, **values} for n in range(4)]
    folder = tmp_path_factory.mktemp("data") / "toy_set" / "1.2.3"
    return ps.build(ps.splits(train=rows, test=rows[:1]), folder, schema=schema, shards=1)


def expected(ds: ps.Dataset, split: str) -> list[dict[str, Any]]:
    """Our own reading, images decoded, without what TFDS can't read."""
    found = []
    for example in ds[split]:
        kept = {name: value for name, value in example.items() if name not in LEFT_OUT}
        for name in FRAMES:
            kept[name] = [ps.Image().decode(file) for file in kept[name]]
        kept["lists of doubles"] = [[value.tobytes() for value in row] for row in kept["lists of doubles"]]
        found.append(kept)
    return found


def test_tensorflow_reads_every_field(built: ps.Built) -> None:
    builder = tfds.builder_from_directory(built.path)
    assert builder.info.features["mask"].names == list("abcdef")
    theirs = [plain_tensors(example) for example in builder.as_dataset("train")]
    ours = expected(built, "train")
    assert len(theirs) == len(ours)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for name, value in mine.items():
            if value is None:
                assert other[name] in (np.iinfo(np.int64).min, b"")
            else:
                assert as_plain(other[name]) == as_plain(value), name


def test_numpy_reads_every_field(built: ps.Built) -> None:
    """The way of data_source, which the records go through there."""
    features = tfds.builder_from_directory(built.path).info.features
    records = list(ps.TFRecordReader(next(built.path.glob("*train*of-00001"))))
    for mine, record in zip(expected(built, "train"), records, strict=True):
        other = features.deserialize_example_np(record)
        assert mine.keys() == other.keys()
        for name, value in mine.items():
            assert as_plain(other[name]) == as_plain(value), name


def test_what_tfds_cannot_read_is_said(built: ps.Built) -> None:
    notes = built.tfds_notes
    assert {name for name, note in notes.items() if note.startswith("left out, for it may be missing")} == set(LEFT_OUT)
    assert {name for name, note in notes.items() if note.startswith("given as the bytes")} == set(AS_BYTES)
    said = tfds.builder_from_directory(built.path).info.description
    assert all(f"{name}: {note}" in said for name, note in notes.items())
    assert built["train"][0]["lists of doubles"][0].tolist() == [0.1]


def test_by_name_with_splits_supervised_keys_and_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"x": n, "label": ("cat", "dog")[n % 2]} for n in range(40)]
    schema = {"x": "int64", "label": ps.Field(dtype="int64", classes=("cat", "dog"))}
    info = ps.Info(description="Cats and dogs.", citation="@misc{x}", supervised=("x", "label"))
    source = ps.splits(**{"train-2013": rows[:30], "train-2014": rows[30:]})
    ds = ps.build(source, tmp_path / "pets" / "2.0.1", schema=schema, shards=3, info=info)
    ps.build(source, tmp_path / "pets" / "1.0.0", schema=schema)
    (loaded, more), said = tfds.load(
        "pets",
        split=["train-2013[5:25]", "train-2013[80%:]+train-2014"],
        data_dir=tmp_path,
        with_info=True,
        as_supervised=True,
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )
    ours = [(int(e["x"]), int(e["label"])) for e in ds["train-2013[5:25]"]]
    assert [(int(x), int(label)) for x, label in loaded] == ours
    assert [int(x) for x, _ in more] == [int(e["x"]) for e in ds["train-2013[80%:]+train-2014"]]
    assert (str(said.version), said.description, said.citation) == ("2.0.1", "Cats and dogs.", "@misc{x}")
    assert said.supervised_keys == ("x", "label")
    assert said.features["label"].names == ["cat", "dog"]
    assert said.splits["train-2013"].shard_lengths == [10, 10, 10]
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert ps.load("tfds:pets:1.0.0").path == tmp_path / "pets" / "1.0.0"
    assert list(ps.load("tfds:pets")) == ["train-2013", "train-2014"]


def test_a_name_builds_where_tfds_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert ps.build([{"x": 1}], "tfds:some_set").path == tmp_path / "some_set" / "1.0.0"
    assert ps.build([{"x": 2}], "tfds:some_set:1.1.0").path == tmp_path / "some_set" / "1.1.0"
    assert ps.build([{"x": 3}], "tfds:some_set", info=ps.Info(version="2.0.0")).path.name == "2.0.0"
    assert [int(e["x"]) for e in tfds.load("some_set:1.1.0", split="train", data_dir=tmp_path)] == [2]
    assert ps.load("tfds:some_set")["train"][0] == {"x": 3}
    with pytest.raises(ps.ArgumentError, match="expected a name without a config"):
        ps.build([{"x": 1}], "tfds:some_set/large")


def test_a_dataset_without_a_version_is_the_first(tmp_path: Path) -> None:
    ps.build([{"x": 1}], tmp_path / "toy", info=ps.Info(name="other"))
    said = tfds.builder_from_directory(tmp_path / "toy").info
    assert (said.name, str(said.version)) == ("other", "1.0.0")


def test_the_order_of_the_source_is_kept(tmp_path: Path) -> None:
    ds = ps.build([{"x": n} for n in range(100)], tmp_path / "toy", order="source", shards=20)
    read = tfds.builder_from_directory(ds.path).as_dataset("train")
    assert [int(example["x"]) for example in read] == list(range(100))


def test_names_that_tfds_would_read_otherwise_are_not_written(tmp_path: Path) -> None:
    schema = {"a": ps.Field(dtype="int64", classes=("x ", "y")), "b": ps.Field(dtype="int64", classes=("x", ""))}
    ps.build([{"a": 1, "b": 0}], tmp_path / "toy", schema=schema)
    features = tfds.builder_from_directory(tmp_path / "toy").info.features
    assert (features["a"].num_classes, features["b"].num_classes) == (2, 2)
    assert not list((tmp_path / "toy").glob("*.labels.txt"))


def test_another_build_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    label = ps.Field(dtype="int64", classes=("a", "b"))
    ps.build([{"x": 0}], folder, schema={"x": label})
    assert (folder / "x.labels.txt").read_text() == "a\nb\n"
    ps.build([{"x": 0}], folder, schema={"x": label}, format=ps.TFRecord(compression="gzip"), overwrite=True)
    left = {path.name for path in folder.iterdir()}
    assert not left & {"dataset_info.json", "features.json", "x.labels.txt"}  # TFDS reads no compressed files


def test_metadata_needs_no_tensorflow(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["tensorflow"] = sys.modules["tensorflow_datasets"] = None
import penstock as ps
ps.build([{{"x": 1}}], {str(tmp_path / "toy")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert json.loads((tmp_path / "toy" / "dataset_info.json").read_bytes())["name"] == "toy"
    assert tfds.builder_from_directory(tmp_path / "toy").info.splits["train"].num_examples == 1


def test_a_shape_of_an_image_is_kept(tmp_path: Path) -> None:
    field = ps.Field(dtype="bytes", kind="image", decoded="uint8[2,3,3]")
    built = ps.build([{"image": png()}], tmp_path / "toy", schema={"image": field})
    assert tfds.builder_from_directory(built.path).info.features["image"].shape == (2, 3, 3)
    assert ps.Schema.from_json(built.schema.to_json()) == built.schema
    assert built["train"][0]["image"].tolist() == picture(2, 3, 3).tolist()


# ArrayRecord


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> ps.Built:
    """The same examples in both formats, in one directory. Without TensorFlow, TFDS knows no bfloat16."""
    cases = {case.name: (case.field, case.value) for case in CASES} | MORE
    del cases["half"]
    schema = {"id": "int64", **{name: field for name, (field, _) in cases.items()}}
    rows = [{"id": n, **{name: example_of(value) for name, (_, value) in cases.items()}} for n in range(6)]
    folder = tmp_path_factory.mktemp("data") / "toy_set" / "1.0.0"
    source = ps.splits(**{"train-2013": rows[:4], "train-2014": rows[4:]})
    return ps.build(source, folder, schema=schema, shards=2, format=["tfrecord", "array_record"])


def test_a_directory_with_both_formats_serves_both_ways(both: ps.Built) -> None:
    folder = both.path.parent.parent
    read_config = tfds.ReadConfig(interleave_cycle_length=1)
    loaded = tfds.load("toy_set", split="train-2013", data_dir=folder, read_config=read_config)
    source = tfds.data_source("toy_set", split="train-2013", data_dir=folder)
    ours = [int(example["id"]) for example in both["train-2013"]]
    assert [int(example["id"]) for example in loaded] == ours
    assert [source[n]["id"] for n in range(len(source))] == ours
    info = tfds.builder_from_directory(both.path).info
    assert info.file_format.value == "tfrecord"
    assert [format.value for format in info.alternative_file_formats] == ["array_record"]


def test_data_source_reads_every_field_without_tensorflow(both: ps.Built) -> None:
    code = f"""
import pickle, sys
from importlib.machinery import PathFinder
found = PathFinder.find_spec  # from now on, it finds no TensorFlow
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] == "tensorflow" else found(name, *rest)
import tensorflow_datasets as tfds
folder = {str(both.path.parent.parent)!r}
source = tfds.data_source("toy_set", split="train-2013[1:]+train-2014", data_dir=folder)
examples = [source[n] for n in range(len(source))]
assert "tensorflow" not in sys.modules
sys.stdout.buffer.write(pickle.dumps(examples))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr.decode()
    theirs = pickle.loads(done.stdout)  # noqa: S301
    ours = list(both["train-2013[1:]+train-2014"])
    assert len(theirs) == len(ours) == 5
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for name, value in mine.items():
            expected = [ps.Image().decode(file) for file in value] if name in FRAMES else value
            assert as_plain(other[name]) == as_plain(expected), name


def test_array_record_alone_opens_in_tfds(tmp_path: Path) -> None:
    rows = [{"x": n} for n in range(50)]
    built = ps.build(rows, tmp_path / "toy_set" / "1.0.0", shards=3, format=ps.ArrayRecord(group_size=8))
    source = tfds.data_source("toy_set", split="train", data_dir=tmp_path)
    assert [example["x"] for example in source] == [int(example["x"]) for example in built["train"]]
