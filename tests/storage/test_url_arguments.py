"""Every path that a user can give knows stores: real success there, or an error; never a local folder `s3:`."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.tar_files import write_tar

import penstock as ps
from penstock.cli import cli, main
from penstock.compat.datum.configs import TFRWriteConfigs
from penstock.compat.datum.export.export import export_to_tfrecord
from penstock.compat.datum.problem.types import TEXT_CLF
from penstock.compat.tar2tf import AisDataset
from penstock.compat.tfrecorder import factory
from penstock.compat.tfrecorder.example import Example, tfrecordable
from penstock.recipes import tornet
from penstock.storage.files import list_objects
from penstock.storage.open import open_store


class Toy(Example):
    """An example of TFRecorder."""

    def __init__(self, number: int) -> None:
        self.number = number

    @tfrecordable(dtype=Example.Field.TYPE_INT64)
    def value(self) -> int:
        return self.number

    def load(self, **kwargs: Any) -> None:
        """There is nothing to load."""

    def to_csv_row(self) -> list[str]:
        return [str(self.number)]

    @classmethod
    def from_csv_row(cls, row: list[str], **options: Any) -> Toy:
        return cls(int(row[0]))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a test: nothing is in it, and nothing called after a store is in it afterwards."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return folder


def names(url: str) -> list[str]:
    return [each.removeprefix(f"{url}/") for each in list_objects(url)]


# What writes


def local(tmp_path: Path) -> str:
    """A local dataset to convert."""
    ps.build([{"x": n} for n in range(10)], tmp_path / "made", workers=1)
    return str(tmp_path / "made")


def test_tfds_names_with_a_data_dir_in_a_store(s3: str, monkeypatch: pytest.MonkeyPatch, empty_folder: Path) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", f"{s3}/tfds")
    built = ps.build([{"x": n} for n in range(3)], "tfds:toy:1.0.0", workers=1)
    assert built.path == f"{s3}/tfds/toy/1.0.0"
    assert "penstock.json" in names(f"{s3}/tfds/toy/1.0.0")
    assert len(ps.load("tfds:toy")["train"]) == 3
    assert len(ps.load("tfds:toy:1.0.0", data_dir=f"{s3}/tfds")["train"]) == 3
    assert os.listdir(empty_folder) == []


@pytest.mark.parametrize("destination", ["one.tfrecord", "part-{000..}.tfrecord", "a/{split}-{0..}.array_record"])
def test_plain_files_are_written_to_a_store(s3: str, tmp_path: Path, destination: str, empty_folder: Path) -> None:
    rows = [{"x": n, "b": bytes([n]) * 100} for n in range(50)]
    source = ps.splits(train=rows[:40], fold=rows[40:]) if "{split}" in destination else rows
    kind = ps.ArrayRecord if destination.endswith("array_record") else ps.TFRecord
    format = kind(shard_examples=12) if "{0" in destination else kind()
    built = ps.build(source, f"{s3}/deep/{destination}", format=format, workers=2)
    ps.build(source, tmp_path / "deep" / destination, format=format, workers=1)
    expected = {
        path.relative_to(tmp_path / "deep").as_posix(): path.read_bytes()
        for path in (tmp_path / "deep").rglob("*")
        if path.is_file()
    }
    store, _ = open_store(s3)
    assert {name: store.read(f"deep/{name}") for name in names(f"{s3}/deep")} == expected
    assert built.path == f"{s3}/deep/{destination}"
    assert sorted(int(row["x"]) for split in built.values() for row in split) == list(range(50))
    loaded = ps.load(f"{s3}/deep/{destination}")
    assert list(loaded) == list(built)
    assert loaded.schema == built.schema
    with pytest.raises(ps.StorageError, match=rf"expected a new file, got one that exists - at {s3}/deep/"):
        ps.build(source, f"{s3}/deep/{destination}", format=format)
    if "{000..}" in destination:
        fewer = ps.build(rows[:20], f"{s3}/deep/{destination}", format=format, overwrite=True, workers=1)
        assert len(fewer["train"]) == 20
        assert [name for name in names(f"{s3}/deep") if name.endswith(".tfrecord")] == [
            "part-000.tfrecord",
            "part-001.tfrecord",
        ]
        with pytest.raises(ps.SchemaError, match="expected other files to write, got those of the source"):
            ps.build(ps.tfrecords(f"{s3}/deep/part-*.tfrecord"), f"{s3}/deep/{destination}", overwrite=True)
    assert os.listdir(empty_folder) == []
    assert not list((tmp_path / "home" / "penstock" / "builds").iterdir())


@pytest.mark.parametrize("destination", ["out-{000..}.tar", "out-{split}.tar.gz", "out-{000..}.tfrecord"])
def test_convert_writes_tars_and_files_to_a_store(
    s3: str, tmp_path: Path, destination: str, empty_folder: Path
) -> None:
    made = local(tmp_path)
    converted = ps.convert(made, f"{s3}/c/{destination}")
    assert names(f"{s3}/c")
    field = "cls" if ".tar" in destination else "x"
    assert sorted(int(row[field]) for row in converted["train"]) == list(range(10))
    pattern = f"{s3}/c/{destination}"
    assert sorted(int(row[field]) for row in ps.load(pattern)["train"]) == list(range(10))
    with pytest.raises(ps.StorageError, match="expected a new file"):
        ps.convert(made, pattern)
    assert os.listdir(empty_folder) == []


def test_tar2tf_writes_its_file_to_a_store(s3: str, tmp_path: Path, empty_folder: Path) -> None:
    members = [(f"{n}.cls", str(n).encode()) for n in range(4)]
    store, _ = open_store(s3)
    store.send(write_tar(tmp_path / "t.tar", members), "tars/t-0.tar")
    written = AisDataset("tars", s3).load_from_tar(
        "t-{0..0}.tar", path=f"{s3}/out/all.record", record_to_example=lambda record: {"n": int(record["cls"])}
    )
    assert written == [f"{s3}/out/all.record"]
    assert names(f"{s3}/out") == ["all.record"]
    assert sorted(int(row["n"]) for row in ps.load(f"{s3}/out/all.record")["train"]) == [0, 1, 2, 3]
    assert os.listdir(empty_folder) == []


def test_datum_exports_to_a_store_and_from_one(s3: str, empty_folder: Path) -> None:
    store, _ = open_store(s3)
    texts = {f"id{n}": {"text": f"text {n}", "label": {"mood": str(n)}} for n in range(4)}
    store.publish("in/train.json", json.dumps(texts).encode())
    configs = TFRWriteConfigs()
    configs.splits = {"train": {}}
    export_to_tfrecord(f"{s3}/in", f"{s3}/out", TEXT_CLF, configs)
    found = names(f"{s3}/out")
    assert "shard_info.json" in found
    assert "datum_to_type_and_shape_mapping.json" in found
    assert sorted(int(row["mood"]) for row in ps.load(f"{s3}/out")["train"]) == [0, 1, 2, 3]
    assert os.listdir(empty_folder) == []


def test_tfrecorder_writes_folders_to_a_store(s3: str, empty_folder: Path) -> None:
    store, _ = open_store(s3)
    store.publish("lists/all.csv", b"0\n1\n2\n3\n")
    counts = factory.generate_and_save_train_eval_test_tfrecords_files(
        f"{s3}/out", Toy, f"{s3}/lists/all.csv", 0.5, examples_tfrecord_file_max_size_in_bytes=40
    )
    assert counts == {"train": 2, "eval": 2}
    assert {"train/0.tfr", "train/1.tfr", "train/examples.csv", "eval/0.tfr", "tfrecord_files_config.txt"} <= set(
        names(f"{s3}/out")
    )
    assert factory.get_tfrecord_filepaths(f"{s3}/out/train") == [f"{s3}/out/train/{n}.tfr" for n in range(2)]
    assert factory.get_examples_list_filepaths(f"{s3}/out/train") == f"{s3}/out/train/examples.csv"
    factory.generate_and_save_tfrecords_files_for_examples(f"{s3}/out/train", [Toy(7)])
    assert factory.get_tfrecord_filepaths(f"{s3}/out/train") == [f"{s3}/out/train/0.tfr"], "the old files are gone"
    assert [int(row["value"]) for row in ps.load(f"{s3}/out/train/0.tfr")["train"]] == [7]
    assert "eval/0.tfr" in names(f"{s3}/out")
    pytest.importorskip("tensorflow")
    dataset = factory.generate_dataset(factory.get_tfrecord_filepaths(f"{s3}/out/train"), Toy)
    assert [int(value) for (value,) in dataset] == [7]
    assert os.listdir(empty_folder) == []


def test_tornet_builds_from_a_store_into_a_store(s3: str, tmp_path: Path, empty_folder: Path) -> None:
    pytest.importorskip("h5py")
    sample = tornet.write_sample(tmp_path / "sample", files=2)
    store, _ = open_store(s3)
    for path in sample.rglob("*"):
        if path.is_file():
            store.send(path, f"tornet/{path.relative_to(sample).as_posix()}")
    built = tornet.build(f"{s3}/tornet", f"{s3}/out", workers=1)
    expected = tornet.build(sample, tmp_path / "out", workers=1)
    assert {name: len(split) for name, split in built.items()} == {n: len(s) for n, s in expected.items()}
    for name in built:
        np.testing.assert_equal(built[name][0], expected[name][0])
    assert os.listdir(empty_folder) == []


# What may be given a URL at all: each call succeeds in the store, or is one of our errors


CALLS: dict[str, Callable[[str, str], Any]] = {
    "ArrayRecordReader": lambda url, made: ps.ArrayRecordReader(f"{url}/a.array_record"),
    "ArrayRecordWriter": lambda url, made: ps.ArrayRecordWriter(f"{url}/a.array_record"),
    "TFRecordReader": lambda url, made: ps.TFRecordReader(f"{url}/a.tfrecord"),
    "TFRecordWriter": lambda url, made: ps.TFRecordWriter(f"{url}/a.tfrecord"),
    "array_records": lambda url, made: ps.array_records(f"{url}/a.array_record"),
    "build": lambda url, made: ps.build([{"x": 1}], f"{url}/built", workers=1),
    "coco": lambda url, made: ps.coco(f"{url}/images", f"{url}/a.json"),
    "convert": lambda url, made: ps.convert(made, f"{url}/converted"),
    "csv": lambda url, made: ps.csv(f"{url}/a.csv"),
    "image_classification": lambda url, made: ps.image_classification(url),
    "image_folder": lambda url, made: ps.image_folder(url),
    "json": lambda url, made: ps.json(f"{url}/a.json"),
    "jsonl": lambda url, made: ps.jsonl(f"{url}/a.jsonl"),
    "load": lambda url, made: ps.load(url),
    "parquet": lambda url, made: ps.parquet(f"{url}/a.parquet"),
    "place_of_record": lambda url, made: ps.place_of_record(url, "train", 0),
    "places_of": lambda url, made: ps.places_of(url, "0"),
    "tar": lambda url, made: ps.tar(f"{url}/a.tar"),
    "text_classification": lambda url, made: ps.text_classification(url),
    "tfrecords": lambda url, made: ps.tfrecords(f"{url}/a.tfrecord"),
    "voc_detection": lambda url, made: ps.voc_detection(url),
    "voc_segmentation": lambda url, made: ps.voc_segmentation(url),
}
MORE_CALLS: dict[str, Callable[[str, str], Any]] = {
    "build file": lambda url, made: ps.build([{"x": 1}], f"{url}/a.tfrecord", workers=1),
    "build a pathlib path": lambda url, made: ps.build([{"x": 1}], Path(f"{url}/built"), workers=1),
    "csv a pathlib path": lambda url, made: ps.csv(Path(f"{url}/a.csv")),
    "csv root": lambda url, made: ps.csv(f"{made}/../a.csv", image="file", root=url),
    "load a pathlib path": lambda url, made: ps.load(Path(url)),
    "load cache": lambda url, made: ps.load(made, cache=url),
    "load data_dir": lambda url, made: ps.load("tfds:toy", data_dir=url),
    "loader cache": lambda url, made: list(ps.load(made)["train"].cache(folder=url)),
    "convert tar": lambda url, made: ps.convert(made, f"{url}/{{0..}}.tar"),
    "tornet sample": lambda url, made: tornet.write_sample(url),
    "tornet root": lambda url, made: tornet.build(url, f"{url}/out"),
    "tfrecorder log": lambda url, made: Toy.to_csv_file(f"{url}/examples.csv", [Toy(1)]),
    "tfrecorder list": lambda url, made: Toy.from_csv_file(f"{url}/examples.csv"),
}
COMMANDS: dict[str, Callable[[str, str], list[str]]] = {
    "bench": lambda url, made: ["bench", url],
    "build": lambda url, made: ["build", url, f"{url}/out"],
    "convert": lambda url, made: ["convert", made, f"{url}/out"],
    "head": lambda url, made: ["head", url],
    "index": lambda url, made: ["index", f"{url}/a.tfrecord"],
    "info": lambda url, made: ["info", url],
    "salvage": lambda url, made: ["salvage", f"{made}/made-train.tfrecord-00000-of-00001", f"{url}/a.tfrecord"],
    "verify": lambda url, made: ["verify", url],
}


def takes_a_path(function: Any) -> bool:
    """Whether one of a function's parameters is a path of a user."""
    words = ("path", "paths", "pattern", "root", "images", "annotations", "folder")
    return callable(function) and any(name in words for name in inspect.signature(function).parameters)


def test_every_public_function_and_command_is_tried() -> None:
    public = {name: getattr(ps, name) for name in ps.__all__}
    functions = {name for name, value in public.items() if inspect.isroutine(value) and takes_a_path(value)}
    classes = {"ArrayRecordReader", "ArrayRecordWriter", "TFRecordReader", "TFRecordWriter"}
    assert functions | classes == set(CALLS)
    assert set(cli.commands) == set(COMMANDS)


@pytest.mark.parametrize("name", [*CALLS, *MORE_CALLS])
@pytest.mark.parametrize("there", ["nothing", "other files"])
def test_no_call_makes_a_local_folder_of_a_url(
    name: str, there: str, s3: str, tmp_path: Path, empty_folder: Path
) -> None:
    made = local(tmp_path)
    (tmp_path / "a.csv").write_text("file\na.png\n")
    url = f"{s3}/some/place"
    if there == "other files":
        open_store(s3)[0].publish("some/place/notes.txt", b"notes")
    before = set(names(s3))
    try:
        (CALLS | MORE_CALLS)[name](url, made)
        succeeded = True
    except ps.PenstockError:
        succeeded = False
    assert os.listdir(empty_folder) == []
    writes = name.startswith(("build", "convert")) and "pathlib" not in name
    assert succeeded == (writes or name == "csv root"), "a URL without data is an error, and a build is in the store"
    if writes:
        assert set(names(s3)) > before


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_makes_a_local_folder_of_a_url(command: str, s3: str, tmp_path: Path, empty_folder: Path) -> None:
    made = local(tmp_path)
    store, _ = open_store(s3)
    store.publish("some/place/a.tfrecord", (Path(made) / "made-train.tfrecord-00000-of-00001").read_bytes())
    before = set(names(s3))
    code = main(COMMANDS[command](f"{s3}/some/place", made))
    assert os.listdir(empty_folder) == []
    if command in ("build", "convert"):
        assert code == 0
        assert any(each.endswith("penstock.json") for each in set(names(s3)) - before)
    else:
        assert code == 2
        assert set(names(s3)) == before


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "TORNET_ROOT"])
def test_environment_variables_with_urls(
    variable: str, s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_folder: Path
) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    open_store(s3)[0].send(tmp_path / "a.png", "photos/a/a.png")
    monkeypatch.setenv(variable, f"{s3}/place")
    if variable == "XDG_CACHE_HOME":
        with pytest.raises(ps.SchemaError, match="expected a local folder in XDG_CACHE_HOME, got a URL"):
            ps.build(ps.image_folder(f"{s3}/photos"), f"{s3}/out")
    else:
        with pytest.raises(ps.NotFoundError, match=f"got nothing at {s3}/place/catalog.csv"):
            tornet.build(None, tmp_path / "out")
    assert os.listdir(empty_folder) == []
