"""Foreign files at the destination of a build: none is replaced or removed, even by a build that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_datasets import contents

import penstock as ps
from penstock.storage.open import open_store

LABEL = ps.Field(dtype="int64", classes=("a", "b"))
ROWS = [{"x": number, "label": number % 2} for number in range(20)]
SCHEMA = {"x": "int64", "label": LABEL}
NAMES = ("dataset_info.json", "features.json", "label.labels.txt", "quarantine.jsonl", ".build/a.txt", "penstock.json")


class Broken:
    """A source whose last example fails."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> dict[str, int]:
        if number == 19:
            raise ValueError("broken")
        return ROWS[number]


class Labelled(Broken):
    """A source that knows its schema, and has to be asked for it."""

    schema = ps.Schema(SCHEMA)

    def __getitem__(self, number: int) -> dict[str, int]:
        return ROWS[number]


def put(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({"of": "the user"}))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["inferred", "declared"])
def test_a_foreign_file_is_an_error_before_anything_is_written(
    tmp_path: Path, name: str, overwrite: bool, schema: Any
) -> None:
    put(tmp_path / "own", name)
    put(tmp_path / "own", "README.md")
    before = files(tmp_path / "own")
    source: Any = ps.table({"x": [1, 2], "label": [0, 1]}) if schema is None else ROWS
    options: dict[str, Any] = {"overwrite": overwrite, "schema": schema, "workers": 1}
    if schema is None and name == "label.labels.txt":
        source = Labelled()
    with pytest.raises((ps.BuildError, ps.CorruptionError), match=r"foreign|Penstock did not write|a manifest"):
        ps.build(source, tmp_path / "own", on_error="quarantine", **options)
    assert files(tmp_path / "own") == before
    with pytest.raises((ps.BuildError, ps.CorruptionError)):
        ps.build(Broken(), tmp_path / "own", **{**options, "schema": SCHEMA, "on_error": "quarantine"})
    assert files(tmp_path / "own") == before


def test_unrelated_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("README.md", "photos/cat.png", "quarantine.jsonl", ".own-notes.partial", "other.labels.txt",
                 "own-extra.tfrecord-00000-of-00001"):  # fmt: skip
        put(tmp_path / "own", name)
    (tmp_path / "own" / "own-extra.tfrecord-00000-of-00001").unlink()
    before = files(tmp_path / "own")
    ps.build(ROWS, tmp_path / "own", schema=SCHEMA)
    put(tmp_path / "own", "own-extra.tfrecord-00000-of-00001")  # beside a dataset, a shard of another split
    ps.build(ROWS, tmp_path / "own", schema=SCHEMA, shards=3, overwrite=True)
    after = files(tmp_path / "own")
    assert {name: after[name] for name in before} == before
    assert json.loads(after["own-extra.tfrecord-00000-of-00001"]) == {"of": "the user"}
    put(tmp_path / "own", "own-train.tfrecord-00000-of-00005")
    with pytest.raises(ps.BuildError, match=r"Penstock did not write: own-train.tfrecord-00000-of-00005"):
        ps.build(ROWS, tmp_path / "own", schema=SCHEMA, shards=5, overwrite=True)
    assert len(ps.load(tmp_path / "own")["train"]) == 20


def test_metadata_that_a_dataset_has_not_written_stays(tmp_path: Path) -> None:
    """TFDS reads no compressed files: such a dataset has no dataset_info.json, and one beside it is the user's."""
    put(tmp_path / "own", "dataset_info.json")
    put(tmp_path / "own", "features.json")
    zipped = ps.TFRecord(compression="gzip")
    ps.build(ROWS, tmp_path / "own", schema=SCHEMA, format=zipped)
    ps.build(ROWS[1:], tmp_path / "own", schema=SCHEMA, format=zipped, overwrite=True)
    with pytest.raises(ps.BuildError, match=r"Penstock did not write: dataset_info\.json"):
        ps.build(ROWS, tmp_path / "own", schema=SCHEMA, overwrite=True)
    assert json.loads((tmp_path / "own" / "features.json").read_text()) == {"of": "the user"}
    assert len(ps.load(tmp_path / "own")["train"]) == 19


def test_what_an_earlier_build_wrote_is_replaced(tmp_path: Path) -> None:
    ps.build(Broken(), tmp_path / "own", schema=SCHEMA, on_error="quarantine")
    assert (tmp_path / "own" / "quarantine.jsonl").exists()
    ps.build([{"y": 1}], tmp_path / "own", overwrite=True)
    ps.build([{"y": 1}], tmp_path / "fresh" / "own")
    assert contents(tmp_path / "own") == contents(tmp_path / "fresh" / "own")
    (tmp_path / "own" / "penstock.json").unlink()
    (tmp_path / "own" / "dataset_info.json").unlink()
    (tmp_path / "own" / "features.json").unlink()
    ps.build([{"y": 1}], tmp_path / "own", overwrite=True)  # shards with their keys are known without a manifest
    assert contents(tmp_path / "own") == contents(tmp_path / "fresh" / "own")


@pytest.mark.parametrize("left", [(), ("lock",), ("lock", "journal.jsonl"), ("penstock",)])
def test_a_work_folder_that_was_left_behind_is_used(tmp_path: Path, left: tuple[str, ...]) -> None:
    (tmp_path / "own" / ".build").mkdir(parents=True)
    for name in left:
        (tmp_path / "own" / ".build" / name).write_text("123" if name == "lock" else "")
    ps.build(ROWS, tmp_path / "own", schema=SCHEMA)
    assert not (tmp_path / "own" / ".build").exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_store_keeps_foreign_objects(s3: str, name: str, overwrite: bool) -> None:
    store, folder = open_store(f"{s3}/own")
    store.publish(f"{folder}/{name}", b'{"of": "the user"}')
    store.publish(f"{folder}/README.md", b"text")
    options: dict[str, Any] = {"schema": SCHEMA, "workers": 1, "on_error": "quarantine", "overwrite": overwrite}
    for source in (ROWS, Broken()):
        with pytest.raises((ps.BuildError, ps.CorruptionError), match=r"foreign|Penstock did not write|a manifest"):
            ps.build(source, f"{s3}/own", **options)
    assert {entry.name for entry in store.list(folder)} == {f"{folder}/{name}", f"{folder}/README.md"}
    assert store.read(f"{folder}/{name}") == b'{"of": "the user"}'


def test_a_store_sweeps_what_an_abandoned_build_has_sent(s3: str) -> None:
    options: dict[str, Any] = {"schema": SCHEMA, "workers": 1, "order": "source"}
    with pytest.raises(ps.BuildError, match="broken"):
        ps.build(Broken(), f"{s3}/own", shards=4, **options)
    store, folder = open_store(f"{s3}/own")
    assert any("of-00004" in entry.name for entry in store.list(folder))
    store.publish(f"{folder}/own-other.tfrecord-00000-of-00001", b"of the user")
    ps.build(ROWS, f"{s3}/own", shards=2, **options)
    names = {entry.name[len(folder) + 1 :] for entry in store.list(folder)}
    assert not any("of-00004" in name or ".build" in name for name in names)
    assert "own-other.tfrecord-00000-of-00001" in names


def test_a_store_whose_rebuild_failed_goes_on(s3: str) -> None:
    """The manifest of the dataset before is gone by then: its other files are still known."""
    options: dict[str, Any] = {"schema": SCHEMA, "workers": 1, "order": "source", "shards": 4}
    ps.build(ROWS, f"{s3}/own", **options)
    with pytest.raises(ps.BuildError, match="broken"):
        ps.build(Broken(), f"{s3}/own", overwrite=True, **options)
    built = ps.build(ROWS[:18], f"{s3}/own", **options)
    assert len(built["train"]) == len(ps.load(f"{s3}/own")["train"]) == 18
