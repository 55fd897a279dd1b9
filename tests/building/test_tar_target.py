"""Datasets written as tars that webdataset reads, and builds into one file of records."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.support.tar_files import jpeg, sample, shards

from penstock import SchemaError, StorageError, TFRecordReader, build, convert, image_folder, load, splits, tar
from penstock.cli import main


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A dataset of images in two classes."""
    for number in range(10):
        path = tmp_path / "photos" / ("cat" if number % 2 else "dog") / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    build(image_folder(tmp_path / "photos"), tmp_path / "data", order="source")
    return tmp_path / "data"


def test_the_real_webdataset_reads_what_the_command_writes(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import webdataset

    assert main(["convert", str(photos), f"{tmp_path}/out-{{00000..}}.tar", "--shard-examples", "4", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert files == [f"{tmp_path}/out-0000{number}.tar" for number in range(3)]
    found = list(webdataset.WebDataset(files, shardshuffle=False).decode("rgb8"))
    expected = list(load(photos)["train"])
    assert [(one["__key__"], one["cls"]) for one in found] == [
        (f"{number:09}", example["label"]) for number, example in enumerate(expected)
    ]
    for one, example in zip(found, load(photos, decode=False)["train"], strict=True):
        np.testing.assert_array_equal(one["jpg"], np.asarray(Image.open(io.BytesIO(example["image"]))))
    assert [example["cls"] for example in load(files)["train"]] == [one["cls"] for one in found]


def test_every_kind_of_field_comes_back(tmp_path: Path) -> None:
    rows = [
        {
            "name": f"número {number}",
            "weights": np.arange(4, dtype=np.float32) * number,
            "score": np.float32(number / 2),
            "words": ["a", "b"][: number % 3],
            "raw": bytes([number]),
            "note": None if number == 1 else "x",
        }
        for number in range(4)
    ]
    build(rows, tmp_path / "data", schema={
        "name": "str", "weights": "float32[4]", "score": "float32", "words": "list[str]", "raw": "bytes", "note": "str?"
    }, order="source")  # fmt: skip
    written = convert(tmp_path / "data", tmp_path / "all.tar")
    assert [file.path for file in written.files] == [str(tmp_path / "all.tar")]
    for row, example in zip(rows, written["train"], strict=True):
        assert (example["name.txt"], example["bin"]) == (row["name"], row["raw"])
        assert example["note.txt"] == row["note"]
        assert json.loads(example["json"]) == row["words"]
        np.testing.assert_array_equal(example["weights.npy"], row["weights"])
        assert example["score.npy"] == row["score"]


def test_tars_become_tars_again(tmp_path: Path) -> None:
    (path,) = shards(tmp_path, [5])
    again = convert(path, tmp_path / "again-{0..}.tgz", shards=2)
    assert [Path(file.path).name for file in again.files] == ["again-0.tgz", "again-1.tgz"]
    raw = [load(source, decode=False)["train"] for source in (path, [file.path for file in again.files])]
    for one, other in zip(*raw, strict=True):
        assert other == one


def test_splits_and_files_that_are_there(tmp_path: Path) -> None:
    build(splits(train=[{"x": 1}], val=[{"x": 2}]), tmp_path / "data")
    with pytest.raises(SchemaError, match=r"expected one split, got train, val .*out-\{split\}"):
        convert(tmp_path / "data", tmp_path / "out-{0..}.tar")
    convert(tmp_path / "data", tmp_path / "out-{split}-{0..}.tar")
    assert load(tmp_path / "out-val-0.tar")["val"][0]["cls"] == 2
    with pytest.raises(StorageError, match="expected a new file, got one that is there"):
        convert(tmp_path / "data", tmp_path / "out-{split}-{0..}.tar")
    convert(tmp_path / "data", tmp_path / "out-{split}-{0..}.tar", overwrite=True)
    with pytest.raises(SchemaError, match="another compression"):
        convert(tmp_path / "data", tmp_path / "out-{split}-{0..}.tar.zst")
    assert not list(tmp_path.glob(".*.partial"))


def test_a_second_run_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    build([{"x": number} for number in range(7)], tmp_path / "seven")
    build([{"x": number} for number in range(3)], tmp_path / "three")
    pattern = tmp_path / "out-{00..}.tar"
    assert len(convert(tmp_path / "seven", pattern, shards=7).files) == 7
    (tmp_path / "out-09.tar").write_bytes(b"another's")
    again = convert(tmp_path / "three", pattern, shards=2, overwrite=True)
    left = sorted(path.name for path in tmp_path.glob("out-*"))
    assert left == ["out-00.tar", "out-00.tar.index", "out-01.tar", "out-01.tar.index", "out-09.tar"]
    assert sorted(example["cls"] for example in again["train"]) == [0, 1, 2]
    assert len(load(tmp_path / "out-0[0-8].tar")["train"]) == 3


def test_one_file_of_records(tmp_path: Path) -> None:
    shards(tmp_path, [6, 6])
    built = build(tar(tmp_path), tmp_path / "train.record", order="source")
    assert [example["cls"] for example in built["train"]] == list(range(12))
    reader = TFRecordReader(tmp_path / "train.record")
    assert len(reader) == 12
    assert {path.name for path in tmp_path.iterdir() if "train.record" in path.name} == {
        "train.record",
        "train.record.index",
        "train.record.schema.json",
    }
    example = load(tmp_path / "train.record")["train"][3]
    assert (example["cls"], example["txt"]) == (3, "número 3")
    with pytest.raises(StorageError, match="expected a new file, got one that is there"):
        build(tar(tmp_path), tmp_path / "train.record")
    assert len(build([{"x": 1}], tmp_path / "train.record", overwrite=True)["train"]) == 1
    assert len(build([{"x": 1}], tmp_path / "a.array_record")["train"]) == 1
    with pytest.raises(SchemaError, match="expected one split, got train, val"):
        build(splits(train=[{"x": 1}], val=[{"x": 2}]), tmp_path / "b.record")
    assert dict(sample(3))["d/00003.cls"] == b"3\n"
