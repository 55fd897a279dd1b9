"""`convert`: the same records, keys and words in another format, compression or number of shards."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from array_record.python.array_record_module import ArrayRecordWriter as TheirWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.built_datasets import contents, examples

import penstock as ps
from penstock.building import convert as converting
from penstock.cli import main
from penstock.dataset.manifest import WORK, read_manifest
from penstock.dataset.provenance import read_keys

ROWS = [{"x": n, "label": n % 3, "data": bytes([n % 256]) * (n % 50), "__key__": f"row{n}"} for n in range(400)]
SCHEMA = {"x": "int64", "label": ps.Field("label", "int64", classes=("ant", "bee", "cat")), "data": "bytes"}
INFO = ps.Info(name="toy", version="1.2.3", description="numbers", citation="me", supervised=("data", "label"))
FORMATS = {
    "tfrecord": ps.TFRecord(),
    "gzip": ps.TFRecord(compression="gzip"),
    "array_record": ps.ArrayRecord(),
    "groups": ps.ArrayRecord(group_size=32, compression="brotli"),
}


def build(path: Path, format: Any = "tfrecord", **options: Any) -> ps.Built:
    source = ps.split(ROWS, train=0.8, eval=0.2)
    return ps.build(source, path, format=format, schema=SCHEMA, info=INFO, **options)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    build(folder / "toy", shards=3)
    return folder / "toy"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shards", [1, 5])
def test_it_is_what_a_build_in_that_format_is(source: Path, tmp_path: Path, name: str, shards: int) -> None:
    built = ps.convert(source, tmp_path / "converted", format=FORMATS[name], shards=shards, workers=2)
    build(tmp_path / "toy", FORMATS[name], shards=shards)
    found, expected = contents(tmp_path / "converted"), contents(tmp_path / "toy")
    del found["penstock.json"], expected["penstock.json"]
    assert found == expected
    manifest, before = read_manifest(tmp_path / "converted"), read_manifest(source)
    assert (manifest.schema, manifest.info, manifest.name) == (before.schema, before.info, "toy")
    assert list(manifest.splits) == list(before.splits)
    assert built["train"].schema["label"].classes == ("ant", "bee", "cat")
    assert list(examples(tmp_path / "converted")) == list(examples(source))


def test_the_order_of_tfds_is_kept_as_such(tmp_path: Path) -> None:
    build(tmp_path / "toy", order="tfds")
    built = ps.convert(tmp_path / "toy", tmp_path / "converted", format="array_record", shards=2)
    assert list(examples(tmp_path / "converted")) == list(examples(tmp_path / "toy"))
    assert built.manifest.options["order"] == "tfds"


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    way=st.lists(st.sampled_from(sorted(FORMATS)), min_size=1, max_size=4),
    shards=st.integers(1, 6),
)
def test_there_and_back_again(
    source: Path, tmp_path_factory: pytest.TempPathFactory, way: list[str], shards: int
) -> None:
    folder, at = tmp_path_factory.mktemp("way"), source
    for number, name in enumerate(way):
        ps.convert(at, folder / str(number), format=FORMATS[name], shards=shards, workers=1)
        at = folder / str(number)
    ps.convert(at, folder / "toy", shards=3, workers=1)
    found, expected = contents(folder / "toy"), contents(source)
    del found["penstock.json"], expected["penstock.json"]
    assert found == expected


def test_files_of_others(tmp_path: Path) -> None:
    codec = ps.Codec({"x": "int64"})
    records = list(codec.encode_examples([{"x": n} for n in range(30)]))
    for split in ("train", "test"):
        writer = TheirWriter(str(tmp_path / f"theirs-{split}.array_record-00000-of-00001"), "group_size:1")
        for record in records:
            writer.write(record)
        writer.close()
    built = ps.convert(tmp_path, tmp_path / "toy")
    assert list(built) == ["train", "test"]
    assert [example["x"] for example in built["test"]] == list(range(30))
    keys = read_keys(tmp_path / "toy" / "toy-test.tfrecord-00000-of-00001")
    assert keys[3] == "theirs-test.array_record-00000-of-00001:3"
    given = ps.convert(tmp_path, tmp_path / "given" / "toy", schema={"x": "int32"}, format="array_record")
    assert given["train"][4]["x"].dtype == "int32"
    assert sum(1 for _ in ps.build(ps.array_records(tmp_path), tmp_path / "anew")["train"]) == 30


def test_what_tfds_prepared(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "prepared")
    (tmp_path / "prepared" / "penstock.json").unlink()
    ps.convert(tmp_path / "prepared", tmp_path / "toy", format="array_record", shards=2)
    manifest, before = read_manifest(tmp_path / "toy"), read_manifest(source)
    assert (manifest.info, dict(manifest.schema)) == (before.info, dict(before.schema))
    assert [e["x"] for e in ps.load(tmp_path / "toy")["eval"]] == [e["x"] for e in ps.load(source)["eval"]]


def test_again_is_nothing_to_write_and_a_changed_source_is(tmp_path: Path) -> None:
    build(tmp_path / "toy", shards=4)
    first = ps.convert(tmp_path / "toy", tmp_path / "other", format="array_record", shards=4)
    again = ps.convert(tmp_path / "toy", tmp_path / "other", format="array_record", shards=4)
    assert (first.written, again.written, again.kept) == (8, 0, 8)
    with pytest.raises(ps.BuildError, match="group_size was 1, is 2"):
        ps.convert(tmp_path / "toy", tmp_path / "other", format=ps.ArrayRecord(group_size=2), shards=4)
    ps.convert(tmp_path / "toy", tmp_path / "other", format=ps.ArrayRecord(group_size=2), shards=4, overwrite=True)


def test_into_itself(source: Path) -> None:
    with pytest.raises(ps.SchemaError, match="expected another directory to convert into"):
        ps.convert(source, source, format="array_record", overwrite=True)
    with pytest.raises(ps.SchemaError, match="expected another directory to convert into"):
        ps.convert(source / "toy-train.tfrecord-*-of-00003", source, overwrite=True)
    with pytest.raises(ps.SchemaError, match="expected workers or an engine, got both"):
        ps.convert(source, source / "other", workers=1, engine=ps.Local())


def test_a_damaged_source_is_an_error_and_no_dataset(tmp_path: Path) -> None:
    build(tmp_path / "toy", shards=1)
    path = tmp_path / "toy" / "toy-eval.tfrecord-00000-of-00001"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(ps.PenstockError, match=r"CRC.*toy-eval.tfrecord-00000-of-00001.*record"):
        ps.convert(tmp_path / "toy", tmp_path / "other", format="array_record")
    assert not (tmp_path / "other" / "penstock.json").exists()


def test_what_is_not_the_same_is_no_dataset(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that another one took the place of, in a shard that is whole by itself."""
    build_dataset = converting.build

    def build_other(*args: Any, **options: Any) -> ps.Built:
        built = build_dataset(*args, **options)
        shard = built.path / built.manifest.splits["eval"][0].file
        records = list(ps.ArrayRecordReader(shard))
        records[7], records[8] = records[8], records[7]
        with ps.ArrayRecordWriter(shard) as writer:
            writer.write_records(records)
        return built

    monkeypatch.setattr(converting, "build", build_other)
    with pytest.raises(ps.CorruptionError, match=r"expected the record of the source, got another one.*record 7"):
        ps.convert(source, tmp_path / "toy", format="array_record")
    assert not {path.name for path in (tmp_path / "toy").iterdir()} & {"penstock.json", "dataset_info.json"}


def test_killed_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    rows = [{"data": random.Random(n).randbytes(20_000)} for n in range(240)]
    ps.build(rows, tmp_path / "toy", shards=4)
    code = "import sys, penstock as ps; ps.convert(*sys.argv[1:], format='array_record', shards=24, workers=2)"
    arguments = [sys.executable, "-c", code, str(tmp_path / "toy")]
    subprocess.run([*arguments, str(tmp_path / "whole")], check=True)
    cut, rng = tmp_path / "cut", random.Random(1)
    for _ in range(3):
        process = subprocess.Popen([*arguments, str(cut)])
        journal = cut / WORK / "journal.jsonl"
        wanted = (journal.stat().st_size if journal.exists() else 0) + rng.randrange(200, 2000)
        while process.poll() is None and (not journal.exists() or journal.stat().st_size < wanted):
            time.sleep(0.001)
            if (cut / "penstock.json").exists():  # it compares now
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*arguments, str(cut)], check=True)
    assert contents(cut) == contents(tmp_path / "whole")


def test_on_the_command_line(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["--format", "array_record", "--group-size", "16", "--shard-examples", "100", "--json"]
    assert main(["convert", str(source), str(tmp_path / "toy"), *said]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["splits"]["train"]["examples"] == len(ps.load(source)["train"])
    assert told["splits"]["train"]["shards"] == 4
    assert main(["verify", "-q", str(tmp_path / "toy")]) == 0
    assert main(["convert", str(source), str(tmp_path / "toy"), "--format", "tfrecord"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    pattern = str(tmp_path / "toy" / "*train.array_record-*-of-00004")
    assert main(["convert", pattern, str(tmp_path / "back"), "--schema", "x: int32", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert ps.load(tmp_path / "back").schema == ps.Schema({"x": "int32"})
