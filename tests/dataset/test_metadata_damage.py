"""Damage in metadata: `verify` notices every flipped bit in every file that a dataset consists of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli import main
from penstock.dataset.datum import describe
from penstock.dataset.manifest import MANIFEST, read_manifest, write_manifest

SCHEMA = {"x": "int64", "label": ps.Field(dtype="int64", classes=("cat", "dog"))}


def rows(count: int = 6) -> list[dict[str, Any]]:
    return [{"x": number, "label": number % 2} for number in range(count)]


def built(path: Path, **options: Any) -> Path:
    ps.build(rows(), path, schema=SCHEMA, **options)
    return path


def flips(path: Path, step: int = 1) -> Any:
    """Flip one bit of each byte in turn, another one each time; the file is as before at the end."""
    data = path.read_bytes()
    assert data
    for at in range(0, len(data), step):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        yield at
    path.write_bytes(data)


def is_noticed(path: Path) -> bool:
    code = main(["verify", "-q", str(path)])
    assert code in (0, 1)
    return code == 1


@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
def test_verify_notices_every_flip_in_every_file(
    tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "toy"
    examples = [*rows(), {"x": "not a number", "label": 0}]
    ps.build(examples, directory, schema=SCHEMA, shards=2, format=format, on_error="quarantine")
    if format == "tfrecord":
        describe(directory)
    assert not is_noticed(directory)
    files = sorted(path for path in directory.iterdir() if ".array_record-" not in path.name or path.suffix == ".keys")
    expected = {MANIFEST, "features.json", "dataset_info.json", "label.labels.txt", "quarantine.jsonl"}
    assert expected <= {path.name for path in files}
    missed = [(path.name, at) for path in files for at in flips(path) if not is_noticed(directory)]
    capsys.readouterr()
    assert missed == []


def test_verify_notices_every_flip_in_a_schema_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "toy.tfrecord"
    ps.build(rows(), file, schema=SCHEMA)
    schema = tmp_path / "toy.tfrecord.schema.json"
    missed = [at for at in flips(schema) if not is_noticed(file)]
    capsys.readouterr()
    assert missed == []
    for _ in flips(schema, 97):
        with pytest.raises(ps.CorruptionError):
            ps.load(file)
    assert ps.load(file)["train"].schema == ps.Schema(SCHEMA)


def test_a_schema_file_written_by_hand_needs_no_checksum(tmp_path: Path) -> None:
    file = tmp_path / "toy.tfrecord"
    ps.build(rows(), file, schema=SCHEMA)
    (tmp_path / "toy.tfrecord.schema.json").write_text(json.dumps(ps.Schema({"x": "int32"}).to_json(), indent=1))
    assert list(ps.load(file)["train"][0]) == ["x"]


def test_load_refuses_a_manifest_that_was_changed(tmp_path: Path) -> None:
    manifest = built(tmp_path / "toy") / MANIFEST
    manifest.write_text(manifest.read_text().replace('"cat"', '"cow"'))
    with pytest.raises(ps.CorruptionError, match=r"expected a manifest with CRC-32C .* remove \"checksums\" and"):
        ps.load(tmp_path / "toy")
    said = json.loads(manifest.read_text())
    del said["checksums"], said["crc32c"]
    manifest.write_text(json.dumps(said))
    label = ps.load(tmp_path / "toy").schema["label"]
    assert isinstance(label, ps.Field)
    assert label.classes == ("cow", "dog")


def test_older_manifests_without_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = built(tmp_path / "toy")
    said = json.loads((directory / MANIFEST).read_text())
    del said["checksums"], said["crc32c"]
    (directory / MANIFEST).write_text(json.dumps(said))
    assert ps.load(directory)["train"][0]
    assert not is_noticed(directory)
    info = json.loads((directory / "dataset_info.json").read_text())
    (directory / "dataset_info.json").write_text(json.dumps({**info, "splits": []}))
    assert is_noticed(directory)
    assert "dataset_info.json" in capsys.readouterr().out
    (directory / "dataset_info.json").write_text(json.dumps(info))
    (directory / "label.labels.txt").write_text("cat\nbog\n")
    assert is_noticed(directory)
    assert "class names" in capsys.readouterr().out


def test_verify_names_the_class_that_was_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = built(tmp_path / "toy")
    (directory / "label.labels.txt").write_text("cat\nhound\n")
    assert main(["verify", "--json", str(directory)]) == 1
    problem = json.loads(capsys.readouterr().out.splitlines()[0])
    assert problem["file"] == str(directory / "label.labels.txt")
    assert "line 2 is 'hound', the class is 'dog'. Run the same build again" in problem["problems"][0]


def test_the_same_build_again_mends_metadata_and_keys(tmp_path: Path) -> None:
    ps.build(rows(), tmp_path / "source.tfrecord", schema=SCHEMA)
    directory = tmp_path / "toy"

    def again() -> ps.Built:
        return ps.build(ps.tfrecords(tmp_path / "source.tfrecord"), directory, shards=2)

    again()
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != MANIFEST}
    (directory / "label.labels.txt").write_text("cat\nhound\n")
    (directory / "features.json").unlink()
    assert again().written == 0
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.name != MANIFEST} == before
    next(directory.glob("*.keys")).write_bytes(b"damaged")
    assert again().written == 1
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.name != MANIFEST} == before
    assert not is_noticed(directory)


def test_keys_of_another_shard_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = built(tmp_path / "toy", shards=2)
    first, second = sorted(directory.glob("*.keys"))
    shutil.copy(first, second)
    assert is_noticed(directory)
    assert "CRC-32C of toy-train.tfrecord-00001-of-00002.keys" in capsys.readouterr().out


def test_a_manifest_with_unknown_keys_checksums(tmp_path: Path) -> None:
    """Shards that an older version built have no checksum of their keys."""
    directory = built(tmp_path / "toy")
    manifest = read_manifest(directory)
    said = manifest.to_json()
    said["checksums"]["keys"]["train"] = [None] * len(manifest.splits["train"])
    write_manifest(directory, type(manifest).from_json(said, "here"))
    assert not is_noticed(directory)
