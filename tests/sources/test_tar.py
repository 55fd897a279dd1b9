"""Tar shards as a source: built from, converted, recognised."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import S3
from tests.support.built_datasets import contents, examples
from tests.support.tar_files import npy, sample, shards, write_tar

from penstock import (
    CorruptionError,
    ExampleError,
    Info,
    Local,
    NotFoundError,
    SchemaError,
    Splits,
    build,
    convert,
    load,
    splits,
    tar,
)
from penstock.cli import main
from penstock.sources.detect import recognise
from penstock.storage.open import open_store


def test_a_dataset_of_tars(tmp_path: Path) -> None:
    shards(tmp_path, [7, 5])
    source = tar(f"{tmp_path}/train-{{000..001}}.tar")
    assert isinstance(source, Splits)
    train = source["train"]
    assert len(train) == 12
    first: dict[str, Any] = train[8]
    assert (first["__key__"], first["cls"], first["txt"]) == ("d/00008", 8, "número 8")
    assert train.key(8) == "train-001.tar/d/00008"
    assert train.place(8) == f"{tmp_path}/train-001.tar, sample 'd/00008'"
    built = build(source, tmp_path / "data", shards=3)
    found = examples(tmp_path / "data")
    assert sorted(found) == [f"train-00{n // 7}.tar/d/{n:05}" for n in range(12)]
    for key, example in found.items():
        number = int(key[-5:])
        files = {name.partition(".")[2]: data for name, data in sample(number)}
        assert (example["cls"], example["txt"], example["jpg"]) == (number, f"número {number}", files["jpg"])
        np.testing.assert_array_equal(example["npy"], np.arange(6, dtype=np.float32).reshape(2, 3) + number)
    assert "__key__" not in built.schema


def test_the_bytes_depend_on_neither_workers_nor_wrapping(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    shards(tmp_path / "a", [9, 1, 8])
    shards(tmp_path / "b", [9, 1, 8], name="train-{:03}.tar", mode="w:gz")
    for name, folder, workers in (("one", "a", 1), ("two", "a", 2), ("gzip", "b", 2)):
        build(tar(tmp_path / folder), tmp_path / name / "data", shards=4, engine=Local(workers=workers))
    one, two, gzip = (contents(tmp_path / name / "data") for name in ("one", "two", "gzip"))
    assert one == two
    del one["penstock.json"], gzip["penstock.json"]  # which know what they were made from
    assert one == gzip


def test_a_build_again_writes_only_what_has_changed(tmp_path: Path) -> None:
    paths = shards(tmp_path, [4, 4])
    build(tar(tmp_path), tmp_path / "data", order="source", shards=2)
    assert build(tar(tmp_path), tmp_path / "data", order="source", shards=2).written == 0
    members = [(name, b"99" if name.endswith(".cls") else data) for at in range(4, 8) for name, data in sample(at)]
    write_tar(paths[1], members)
    again = build(tar(tmp_path), tmp_path / "data", order="source", shards=2)
    assert (again.written, again.kept) == (1, 1)
    assert [example["cls"] for example in again["train"]] == [0, 1, 2, 3, 99, 99, 99, 99]


def test_bytes_as_they_are(tmp_path: Path) -> None:
    shards(tmp_path, [2])
    built = build(tar(tmp_path, decode=False), tmp_path / "data")
    assert {str(field) for field in built.schema.leaves()} == {"bytes"}
    assert sorted(example["cls"] for example in built["train"]) == [b"0\n", b"1\n"]


def half(record: dict[str, Any]) -> dict[str, Any]:
    return {"label": int(record["cls"]) // 2, "name": record["__key__"], "size": len(record["jpg"])}


def pair(record: dict[str, Any]) -> tuple[int, int]:
    return len(record["jpg"]), int(record["cls"])


def test_functions_of_records(tmp_path: Path) -> None:
    shards(tmp_path, [3])
    built = build(tar(tmp_path, record_to_example=half), tmp_path / "a", order="source", workers=1)
    assert [(row["label"], row["name"]) for row in built["train"]] == [(0, "d/00000"), (0, "d/00001"), (1, "d/00002")]
    paired = build(tar(tmp_path, record_to_pair=pair), tmp_path / "b", order="source", workers=1)
    assert [row["label"] for row in paired["train"]] == [0, 1, 2]
    assert [row["value"] for row in paired["train"]] == [row["size"] for row in built["train"]]
    with pytest.raises(ExampleError, match=r"expected \(value, label\) from record_to_pair, got dict .*sample 'd/"):
        build(tar(tmp_path, record_to_pair=half), tmp_path / "c", workers=1)
    with pytest.raises(SchemaError, match="expected one of schema, record_to_example and record_to_pair"):
        tar(tmp_path, record_to_pair=pair, record_to_example=half)


def test_a_file_that_only_a_late_sample_has_is_optional(tmp_path: Path) -> None:
    members = [(f"{number:04}.cls", b"1") for number in range(300)]
    path = write_tar(tmp_path / "a.tar", [*members, ("0299.txt", b"late")])
    built = build(tar(path), tmp_path / "data", order="source")
    assert str(built.schema["txt"]) == "str?"
    assert built["train"][299]["txt"] == "late"
    assert built["train"][0]["txt"] is None


def test_what_does_not_fit_stops_the_build_or_is_left_out(tmp_path: Path) -> None:
    arrays = [np.zeros(3 if number != 150 else 4) for number in range(200)]
    path = write_tar(tmp_path / "a.tar", [(f"{n:03}.npy", npy(array)) for n, array in enumerate(arrays)])
    with pytest.raises(ExampleError, match=r"got <f8\[4\].*a.tar, sample '150'"):
        build(tar(path), tmp_path / "data", workers=1)
    built = build(tar(path), tmp_path / "data", on_error="skip", overwrite=True, workers=1)
    assert len(built["train"]) == 199
    assert len(build(tar(path, schema={"npy": "float64[?]"}), tmp_path / "any")["train"]) == 200


def test_lists_and_names_of_splits(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "one.tar", [("a.cls", b"1")])
    two = write_tar(tmp_path / "two.tar", [("a.cls", b"2")])
    source = tar([one, two])
    assert [source.key(0), source.key(1)] == ["one.tar/a", "two.tar/a"]  # type: ignore[union-attr]
    built = build(splits(train=tar(one), eval=tar(two)), tmp_path / "data")
    assert built["eval"][0]["cls"] == 2
    cut = tmp_path / "cut.tar"
    cut.write_bytes(one.read_bytes()[:700])
    with pytest.raises(CorruptionError, match="truncated"):
        tar(cut)


def test_convert_takes_tars(tmp_path: Path) -> None:
    shards(tmp_path, [5, 6], name="val-{}.tar.gz", mode="w:gz")
    built = convert(f"{tmp_path}/val-*.tar.gz", tmp_path / "data", format="array_record")
    assert [example["cls"] for example in built["val"]] == list(range(11))


def test_the_command_line_knows_tars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = shards(tmp_path, [4])
    assert recognise(tmp_path) == ("tar", "it has tar files: train-000.tar")
    assert recognise(f"{tmp_path}/train-*.tar")[0] == "tar"
    unnamed = path.rename(tmp_path / "unnamed")
    assert recognise(unnamed)[0] == "tar"
    path = unnamed.rename(path)
    assert main(["build", str(tmp_path), str(tmp_path / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "tar"
    assert len(load(tmp_path / "data")["train"]) == 4
    for command, says in (("info", "4"), ("verify", "4 records"), ("index", "4 records"), ("head", "d/00000")):
        assert main([command, str(path)]) == 0
        assert says in capsys.readouterr().out


@pytest.mark.parametrize("converted", [False, True])
def test_compressed_tars_that_memory_cannot_hold_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, converted: bool
) -> None:
    shards(tmp_path, [7, 5, 6], name="train-{:03}.tar.gz", mode="w:gz")
    options = {"record_to_example": label_of} if converted else {}
    plain = build(tar(tmp_path, **options), tmp_path / "plain", workers=1, info=Info(name="x"))
    monkeypatch.setattr(sys.modules["penstock.sources.tar"], "MOST_INFLATED", 0)
    stages: list[str] = []
    engine = Local(workers=1, progress=lambda state: stages.append(state.stage))
    spooled = build(tar(tmp_path, **options), tmp_path / "spooled", engine=engine, info=Info(name="x"))
    assert "spooling train" in stages
    assert [path.read_bytes() for path in sorted((tmp_path / "plain").glob("*train*"))] == [
        path.read_bytes() for path in sorted((tmp_path / "spooled").glob("*train*"))
    ]
    assert len(plain["train"]) == len(spooled["train"]) == 18
    stages.clear()
    build(tar(tmp_path, **options), tmp_path / "source", engine=engine, order="source")
    assert "spooling train" not in stages, "in their own order they are read as they stand"


def label_of(record: dict[str, Any]) -> dict[str, Any]:
    return {"label": int(record["cls"])}


def test_a_function_may_make_messages_of_tensorflow(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")

    def message(record: dict[str, Any]) -> Any:
        feature = {
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(record["cls"])])),
            "pair": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 1.5])),
            "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[record["txt"]])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature))

    shards(tmp_path, [3])
    built = build(tar(tmp_path, record_to_example=message), tmp_path / "out", order="source", workers=1)
    example = built["train"][2]
    assert (example["label"], example["pair"].tolist(), example["name"]) == (2, [0.5, 1.5], "número 2".encode())


def test_tars_of_a_store_build_the_same_dataset(
    tmp_path: Path, s3: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tars").mkdir()
    shards(tmp_path / "tars", [7, 5, 6])
    folder = s3_server.root / s3.removeprefix("s3://") / "tars"
    shutil.copytree(tmp_path / "tars", folder)
    (folder / "notes.txt").write_text("no tar")
    here = build(tar(tmp_path / "tars"), tmp_path / "here", info=Info(name="x"), workers=1)
    for number, url in enumerate((f"{s3}/tars/train-{{000..002}}.tar", f"{s3}/tars/", f"{s3}/tars/*.tar")):
        there = build(tar(url), tmp_path / f"there{number}", info=Info(name="x"), workers=2)
        one, other = contents(there.path), contents(here.path)
        for found in (one, other):
            del found["penstock.json"]  # which tells what it was made from
        assert one == other
    source = tar(f"{s3}/tars/")["train"]  # type: ignore[index]
    assert source.key(8) == "train-001.tar/d/00008"
    assert source.place(8) == f"{s3}/tars/train-001.tar, sample 'd/00008'"
    shutil.rmtree(tmp_path / "cache")
    assert source[8]["cls"] == 8, "a tar that the cache has let go of comes again"
    converted = tar(f"{s3}/tars/", record_to_example=label_of)
    assert len(build(converted, tmp_path / "labels", workers=2)["train"]) == 18
    assert main(["build", f"{s3}/tars/train-{{000..002}}.tar", str(tmp_path / "command")]) == 0


def test_a_build_from_a_store_goes_on_and_notices_what_was_replaced(
    tmp_path: Path, s3: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = s3_server.root / s3.removeprefix("s3://")
    shards(folder, [7, 5])
    first = build(tar(f"{s3}/*.tar"), tmp_path / "out", order="source", shards=2, workers=1)
    assert (first.written, first.kept) == (2, 0)
    again = build(tar(f"{s3}/*.tar"), tmp_path / "out", order="source", shards=2, workers=1)
    assert (again.written, again.kept) == (0, 2)
    store, name = open_store(f"{s3}/train-001.tar")
    members = [(name.replace("d/001", "d/000"), data) for at in range(107, 112) for name, data in sample(at)]
    other = write_tar(tmp_path / "other.tar", members)  # the same keys
    store.send(other, name)
    changed = build(tar(f"{s3}/*.tar"), tmp_path / "out", order="source", shards=2, workers=1)
    assert [example["cls"] for example in changed["train"]] == [*range(7), *range(107, 112)]


def test_a_broken_tar_of_a_store_is_named_by_its_url(
    tmp_path: Path, s3: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (path,) = shards(s3_server.root / s3.removeprefix("s3://"), [3])
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(CorruptionError, match=rf"truncated.* - at {s3}/train-000\.tar, offset"):
        tar(f"{s3}/train-000.tar")
    with pytest.raises(NotFoundError, match=f"{s3}/none.tar"):
        tar(f"{s3}/none.tar")
