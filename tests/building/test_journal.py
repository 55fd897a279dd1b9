"""The entries of a journal: their JSON is a format, since an unfinished build may be continued by a later version."""

from __future__ import annotations

import json

import pytest

from penstock.building.entries import (
    BadExample,
    Begin,
    Commit,
    Entry,
    Left,
    Plan,
    RecordFile,
    ShardResult,
    SpoolFile,
    SpoolResult,
    entry_bytes,
    parse_entry,
)

SCHEMA: dict[str, object] = {"penstock_schema": 1, "fields": []}
BAD = BadExample("train", "7", "example 7", "ValueError: no", "Traceback ...")
FORMATS = {"format": {"name": "tfrecord"}, "alternatives": {"array_record": {}}}
# As written by versions before the entries were dataclasses.
LINES: dict[str, tuple[str, Entry]] = {
    "begin": (
        json.dumps({"begin": {"name": "toy", "options": FORMATS, "source": {"train": {"examples": 3}}}}),
        Begin("toy", FORMATS, {"train": {"examples": 3}}),
    ),
    "spool": (
        '{"spool": {"file": ".build/train.spool-00000", "split": "train", "files": [{"file": '
        '".build/train.spool-00000", "schema": {"penstock_schema": 1, "fields": []}, "records": 2, "bytes": 40, '
        '"crc32c": 5}], "ignored": 1, "bad": [{"split": "train", "key": "7", "place": "example 7", "error": '
        '"ValueError: no", "traceback": "Traceback ..."}]}}',
        SpoolResult(
            ".build/train.spool-00000",
            "train",
            (SpoolFile(".build/train.spool-00000", SCHEMA, 2, 40, 5),),
            1,
            (BAD,),
        ),
    ),
    "plan": (
        '{"plan": {"schema": {"penstock_schema": 1, "fields": []}, "shards": {"train": 2}, "firm": true, '
        '"drift": "x was int64, is float64", "floats": ["x"]}}',
        Plan(SCHEMA, {"train": 2}, True, "x was int64, is float64", ("x",)),
    ),
    "plan of a dataset": (
        '{"plan": {"schema": {"penstock_schema": 1, "fields": []}, "shards": {"train": 2}}}',
        Plan(SCHEMA, {"train": 2}),
    ),
    "shard": (
        '{"shard": {"split": "train", "file": "toy-train.tfrecord-00000-of-00001", "records": 2, "bytes": 40, '
        '"crc32c": 5, "inputs": "ab", "ignored": 0, "bad": [], "alternatives": [{"file": '
        '"toy-train.array_record-00000-of-00001", "bytes": 9, "crc32c": 6}], "keys": 7, "images": {"image": ["GIF"]}}}',
        ShardResult(
            "train",
            "toy-train.tfrecord-00000-of-00001",
            2,
            40,
            5,
            "ab",
            0,
            (),
            (RecordFile("toy-train.array_record-00000-of-00001", 9, 6),),
            7,
            {"image": ["GIF"]},
        ),
    ),
    "left": ('{"left": {"files": ["a"], "metadata": ["penstock.json"]}}', Left(("a",), ("penstock.json",))),
    "commit": (
        '{"commit": {"manifest": {"name": "toy"}, "staged": ["a"], "quarantine": [], "replaced": ["b"], "stale": []}}',
        Commit({"name": "toy"}, ("a",), (), ("b",)),
    ),
}


@pytest.mark.parametrize("kind", LINES)
def test_lines_are_read_as_they_were_written_and_written_alike(kind: str) -> None:
    line, entry = LINES[kind]
    assert parse_entry(line.encode()) == entry
    assert parse_entry(entry_bytes(entry)) == entry
    if kind != "plan of a dataset":
        assert entry_bytes(entry).decode() == line


def test_a_shard_without_what_later_versions_know() -> None:
    content = json.loads(LINES["shard"][0])["shard"]
    del content["keys"], content["images"]
    found = parse_entry(json.dumps({"shard": content}).encode())
    assert isinstance(found, ShardResult)
    assert (found.keys, found.images) == (None, {})


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        '{"begin": 3}',
        '{"other": {}}',
        '{"left": {"files": ["../a"], "metadata": []}}',
        '{"plan": {"schema": {}, "shards": {"train": 0}}}',
        '{"plan": {"schema": {}, "shards": {"train": true}}}',
        LINES["shard"][0].replace('"records": 2', '"records": -2'),
        LINES["shard"][0].replace('"records": 2', '"records": true'),
        LINES["shard"][0].replace("toy-train.tfrecord-00000-of-00001", "../x"),
        LINES["shard"][0].replace('"keys"', '"unknown"'),
        LINES["commit"][0].replace('["b"]', '[".."]'),
    ],
)
def test_what_no_build_can_continue_from_is_no_entry(line: str) -> None:
    with pytest.raises(ValueError, match=r"no |Expecting"):
        parse_entry(line.encode())
