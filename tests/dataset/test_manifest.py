"""The manifest: what it says comes back, and what others may have put into it does no harm."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataset.manifest import (
    MANIFEST,
    Info,
    Manifest,
    ShardEntry,
    ShardTable,
    all_shard_files,
    dataset_name,
    read_manifest,
    shard_column,
    shard_file,
    shard_pattern,
    write_manifest,
)
from penstock.dataset.provenance import read_keys, write_keys
from penstock.errors import CorruptionError, NotFoundError
from penstock.schema.schema import Schema

SHARDS = {"train": (ShardEntry("toy-train.tfrecord-00000-of-00001", 3, 60, 7, "abc"),)}
TOY = Manifest(
    "toy", Schema({"x": "int64"}), SHARDS, {"seed": 0}, {"train": {"examples": 3}}, {"bad": 0}, {"time": "now"},
    Info(name="toy", version="1.0.0", description="A toy", supervised=("x", "x")),
)  # fmt: skip


def test_a_manifest_comes_back(tmp_path: Path) -> None:
    write_manifest(tmp_path, TOY)
    assert read_manifest(tmp_path) == TOY
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=30), start=st.integers(-40, 40), stop=st.integers(-40, 40)
)
def test_shards_in_columns_are_as_good_as_a_list(counts: list[int], start: int, stop: int) -> None:
    entries = tuple(
        ShardEntry(shard_file("toy", "train", "tfrecord", number, len(counts)), *(count, 20 * count, 3), ignored=count)
        for number, count in enumerate(counts)
    )
    plain = replace(TOY, splits={"train": entries})
    table = Manifest.from_json(json.loads(json.dumps(plain.to_json())), "here").splits["train"]
    assert isinstance(table, ShardTable)
    assert table == entries
    assert entries == table
    assert len(table) == len(entries)
    assert [*table] == [*entries]
    assert table[start:stop] == entries[start:stop]
    for part in ShardEntry._fields:
        assert shard_column(table, part) == shard_column(entries, part)
    if -len(entries) <= start < len(entries):
        assert table[start] == entries[start]
    else:
        with pytest.raises(IndexError):
            table[start]
    assert table != (*entries, TOY.splits["train"][0])


@pytest.mark.parametrize("count", [0, 1, 7, 999, 1000, 1001, 2500, 99_999, 100_001])
def test_all_names_at_once_are_the_names(count: int) -> None:
    names = [shard_file("toy", "train", "tfrecord", number, count) for number in range(count)]
    assert list(all_shard_files("toy", "train", "tfrecord", count)) == names


def test_a_directory_without_one_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"expected a dataset, got no penstock.json"):
        read_manifest(tmp_path)


def change(**changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(TOY.to_json())), **changes}


def shard(**changes: Any) -> dict[str, Any]:
    return {"file": "a", "records": 1, "bytes": 1, "crc32c": 1, "inputs": "", "ignored": 0, "bad": 0, **changes}


def first(**changes: Any) -> dict[str, Any]:
    """A manifest of version 1."""
    return change(penstock_manifest=1, **changes)


def columns(**changes: Any) -> dict[str, Any]:
    return {"records": [1], "bytes": [1], "crc32c": [1], **changes}


def test_the_first_version_is_read() -> None:
    shards = [{**shard(), "file": SHARDS["train"][0].file, "records": 3, "bytes": 60, "crc32c": 7, "inputs": "abc"}]
    assert Manifest.from_json(first(splits={"train": shards}), "somewhere") == TOY


def test_names_follow_from_numbers_and_what_is_empty_is_left_out() -> None:
    told = TOY.to_json()["splits"]
    assert told == {"train": {"records": [3], "bytes": [60], "crc32c": [7], "inputs": ["abc"]}}


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        7,
        {},
        change(penstock_manifest=3),
        change(name="../toy"),
        change(schema={}),
        change(splits=[]),
        first(splits={"../train": []}),
        first(splits={"train": [shard(file="../../etc/passwd")]}),
        first(splits={"train": [shard(file="/etc/passwd")]}),
        first(splits={"train": [shard(file="..")]}),
        first(splits={"train": [shard(records=-1)]}),
        first(splits={"train": [shard(bytes=1.5)]}),
        first(splits={"train": [shard(crc32c=True)]}),
        first(splits={"train": [shard(more=1)]}),
        first(splits={"train": [{"file": "a"}]}),
        first(splits={"train": [shard(bad=-1)]}),
        change(splits={"../train": columns()}),
        change(splits={"train": []}),
        change(splits={"train": columns(records=[-1])}),
        change(splits={"train": columns(bytes=[1.5])}),
        change(splits={"train": columns(crc32c=[True])}),
        change(splits={"train": columns(bytes=[1, 2])}),
        change(splits={"train": columns(records="7")}),
        change(splits={"train": columns(inputs=[7])}),
        change(splits={"train": columns(more=[1])}),
        change(splits={"train": columns(file=["../../etc/passwd"])}),
        change(splits={"train": {"records": [1]}}),
        change(format="../tfrecord"),
        change(options=7),
        change(info=7),
        change(info={"version": "one"}),
        change(info={"supervised": ["x"]}),
        change(info={"more": 1}),
    ],
    ids=repr,
)
def test_what_is_no_manifest(tmp_path: Path, data: Any) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(CorruptionError, match="expected a manifest") as error:
        read_manifest(tmp_path)
    assert MANIFEST in str(error.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_broken_json(tmp_path: Path, data: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(data)
    with pytest.raises(CorruptionError):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/photos", "photos"),
        ("data/photos/1.0.0", "photos"),
        ("my photos!", "my_photos"),
        ("data/café", "café"),
        ("a-b", "a_b"),
    ],
)
def test_the_path_gives_the_name(path: str, name: str) -> None:
    assert dataset_name(Path(path)) == name


def test_names_of_shards() -> None:
    assert shard_file("toy", "train", "tfrecord", 3, 12) == "toy-train.tfrecord-00003-of-00012"
    assert shard_file("toy", "a-b", "tfrecord", 3, 1234567) == "toy-a-b.tfrecord-0000003-of-1234567"
    pattern = shard_pattern("toy")
    assert pattern.fullmatch("toy-train.tfrecord-00003-of-00012.keys")
    assert not pattern.fullmatch("toys-train.tfrecord-00003-of-00012")
    assert not pattern.fullmatch("toy-train.tfrecord-00003-of-00012.txt")


def test_keys_come_back(tmp_path: Path) -> None:
    keys = ["a/1.jpg", "ü", "", "0"]
    write_keys(tmp_path / "shard", keys)
    assert read_keys(tmp_path / "shard") == keys


@pytest.mark.parametrize("data", [b"", b"not zlib", b"x\x9c\xabV\n\x05"])
def test_broken_keys(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "shard.keys").write_bytes(data)
    with pytest.raises(CorruptionError, match="expected the keys"):
        read_keys(tmp_path / "shard")
