"""TFRecord files as a source, and what a path is recognised as."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Codec, CorruptionError, NotFoundError, SchemaError, StorageError, TFRecord, TFRecordWriter, sources
from penstock.sources.detect import recognise
from penstock.sources.image_folder import image_folder
from penstock.sources.record_files import tfrecords

CODEC = Codec({"n": "int64", "x": "float32[3]"})


def shard(path: Path, first: int, count: int, format: TFRecord | None = None) -> Path:
    with TFRecordWriter(path, format) as writer:
        writer.write_examples(CODEC, [{"n": n, "x": np.full(3, n, np.float32)} for n in range(first, first + count)])
    return path


def test_records_of_many_files(tmp_path: Path) -> None:
    shard(tmp_path / "a.tfrecord", 0, 3)
    shard(tmp_path / "b.tfrecord", 3, 0)
    shard(tmp_path / "c.tfrecord", 3, 2, TFRecord(compression="gzip"))
    source = tfrecords(f"{tmp_path}/*.tfrecord")
    assert len(source) == 5
    assert [int(source[i]["n"]) for i in range(-5, 5)] == [0, 1, 2, 3, 4] * 2
    assert str(source.schema["x"]) == "float32[3]"
    assert [source.key(i) for i in (0, 4)] == ["a.tfrecord:0", "c.tfrecord:1"]
    assert source.place(4) == f"{tmp_path}/c.tfrecord, record 1"
    assert source.stamp(0) == source.stamp(1) != source.stamp(4)
    records = source.records([4, 0, 3, 0])
    assert CODEC.decode(records)["n"].tolist() == [4, 0, 3, 0]
    assert CODEC.decode(source.records([2, 1]))["n"].tolist() == [2, 1]
    assert len(source.records([])) == 0
    with pytest.raises(IndexError):
        source.records([5])
    with pytest.raises(IndexError):
        source[5]
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert int(again[3]["n"]) == 3


def test_a_schema_of_ones_own(tmp_path: Path) -> None:
    shard(tmp_path / "a.tfrecord", 0, 3)
    assert list(tfrecords(tmp_path / "a.tfrecord", {"n": "int32"})[1]) == ["n"]


def test_names_of_shards_tell_splits(tmp_path: Path) -> None:
    shard(tmp_path / "train-00000-of-00002.tfrecord", 0, 2)
    shard(tmp_path / "train-00001-of-00002.tfrecord", 2, 2)
    shard(tmp_path / "test-00000-of-00001.tfrecord", 4, 1)
    source = tfrecords(tmp_path)
    assert {name: len(each) for name, each in source.items()} == {"train": 4, "test": 1}
    assert source["train"].key(3) == "train-00001-of-00002.tfrecord:1"
    shard(tmp_path / "mnist-validation.tfrecord-00000-of-00001", 5, 1)
    assert list(tfrecords(tmp_path)) == ["train", "test", "validation"]
    shard(tmp_path / "extra.tfrecord", 5, 1)
    assert len(tfrecords(tmp_path)) == 7


def test_files_that_hold_no_records(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        tfrecords(tmp_path / "a.tfrecord")
    with pytest.raises(StorageError, match="got none"):
        tfrecords(tmp_path)
    shard(tmp_path / "a.tfrecord", 0, 0)
    with pytest.raises(SchemaError, match="records to infer a schema from"):
        tfrecords(tmp_path / "a.tfrecord")
    (tmp_path / "a.tfrecord").write_bytes(b"not a record at all, but long enough")
    with pytest.raises(CorruptionError, match=r"a\.tfrecord"):
        tfrecords(tmp_path / "a.tfrecord")


# Recognition


def place(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"cat/1.jpg": b"", "dog/2.PNG": b""}, "image_folder"),
        ({"train/cat/1.jpg": b"", "test/cat/2.jpg": b"", "README.md": b""}, "image_folder"),
        ({"JPEGImages/1.jpg": b"", "Annotations/1.xml": b"", "ImageSets/train.txt": b""}, "voc_detection"),
        ({"JPEGImages/1.jpg": b"", "SegmentationClass/1.png": b"", "train.txt": b""}, "voc_segmentation"),
        ({"train.csv": b"", "train/1.jpg": b""}, "image_classification"),
        ({"train.json": b'{"1": {"text": "a", "label": {}}}'}, "text_classification"),
        ({"rows.json": b'[{"a": 1}]'}, "json"),
        ({"part-0.csv": b"", "part-1.csv": b""}, "csv"),
        ({"a.jsonl": b""}, "jsonl"),
        ({"a.parquet": b""}, "parquet"),
        ({"train.tfrecord-00000-of-00001": b"", "features.json": b"{}"}, "tfrecords"),
        ({"a.tfrecord": b"", "a.tfrecord.index": b""}, "tfrecords"),
    ],
)
def test_folders_are_recognised(tmp_path: Path, files: dict[str, bytes], name: str) -> None:
    for path, data in files.items():
        place(tmp_path / path, data)
    found, why = recognise(tmp_path)
    assert found == name
    assert why.startswith("it has ")


@pytest.mark.parametrize(
    ("files", "pattern", "name"),
    [
        (["a.csv"], "a.csv", "csv"),
        (["a.TSV"], "a.TSV", "csv"),
        (["a-0.jsonl", "a-1.jsonl"], "a-{0..1}.jsonl", "jsonl"),
        (["a.ndjson"], "*.ndjson", "jsonl"),
        (["a.json"], "a.json", "json"),
        (["a.parquet", "b.parquet"], "*.parquet", "parquet"),
        (["x-00000-of-00002.tfrecord", "x-00001-of-00002.tfrecord"], "x-*.tfrecord", "tfrecords"),
        (["a.tfrecord.gz"], "a.tfrecord.gz", "tfrecords"),
        (["cat/1.jpg", "dog/2.jpg"], "**/*.jpg", "image_folder"),
    ],
)
def test_files_are_recognised(tmp_path: Path, files: list[str], pattern: str, name: str) -> None:
    for file in files:
        place(tmp_path / file)
    assert recognise(f"{tmp_path}/{pattern}")[0] == name


def test_a_record_is_recognised_under_any_name(tmp_path: Path) -> None:
    assert recognise(shard(tmp_path / "data.bin", 0, 2)) == ("tfrecords", "data.bin begins with a record")


def test_recognised_sources_open(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), place(tmp_path / "t" / "a.parquet"))
    name, _ = recognise(tmp_path / "t")
    assert len(getattr(sources, name)(tmp_path / "t")) == 1


@pytest.mark.parametrize(
    ("files", "choices"),
    [
        (["JPEGImages/1.jpg", "Annotations/1.xml", "SegmentationClass/1.png"], ["voc_detection", "voc_segmentation"]),
        (["a.csv", "b.jsonl"], ["csv", "jsonl"]),
        (["cat/1.jpg", "labels.csv"], ["image_folder", "csv"]),
    ],
)
def test_ambiguous_folders_list_the_choices(tmp_path: Path, files: list[str], choices: list[str]) -> None:
    for file in files:
        place(tmp_path / file)
    with pytest.raises(SchemaError, match="Say which it is") as caught:
        recognise(tmp_path)
    for choice in choices:
        assert f"\n  {choice}: " in str(caught.value)


def test_mixed_files_are_ambiguous(tmp_path: Path) -> None:
    place(tmp_path / "a.csv")
    place(tmp_path / "a.json")
    with pytest.raises(SchemaError, match="got 2"):
        recognise(f"{tmp_path}/a.*")


@pytest.mark.parametrize("name", ["notes.txt", "cat/notes.txt"])
def test_nothing_recognised_lists_what_is_understood(tmp_path: Path, name: str) -> None:
    place(tmp_path / name, b"hello")
    with pytest.raises(SchemaError) as caught:
        recognise(tmp_path)
    listed = str(caught.value)
    functions = {name for name, value in vars(sources).items() if inspect.isfunction(value)}
    for function in functions - {"as_source", "check_image", "detect", "recognise", "table", "dedupe", "examples"}:
        assert function in listed
    with pytest.raises(SchemaError):
        recognise(tmp_path / name)


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        recognise(tmp_path / "nothing")
    with pytest.raises(StorageError):
        recognise(f"{tmp_path}/*.csv")


def test_coco_needs_two_paths(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"Call coco\(images, annotations\)"):
        recognise(place(tmp_path / "instances.json", b'{"info": {}, "images": [{"id": 1}]}'))


def test_a_listing_of_many_files_stays_small(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"class{number}").mkdir()
        for image in range(100):
            (tmp_path / f"class{number}" / f"{image}.jpg").touch()
    source = image_folder(tmp_path)
    assert len(source) == 2000
    assert len(pickle.dumps(source)) < 2000 * 40
