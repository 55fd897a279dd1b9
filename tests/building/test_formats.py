"""Builds in ArrayRecord, and in two formats at once: the same examples, keys and order as in TFRecord."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grain.python as grain
import numpy as np
import pytest
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordReader as TheirReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.built_datasets import contents, examples, shard_counts

import penstock as ps
from penstock.cli import main
from penstock.dataset.manifest import WORK, Manifest, read_manifest

ROWS = [
    {"x": number, "text": f"number {number}", "v": np.arange(number % 4, dtype=np.float32), "__key__": f"row{number}"}
    for number in range(300)
]
SPLIT = {"train": 0.8, "eval": 0.2}
BOTH = [ps.TFRecord(), ps.ArrayRecord(group_size=7)]

# A build of 20 shards in each format that takes long enough to be killed in the middle.
SLOW = """
import sys, time
import penstock as ps

class Slow:
    def __len__(self):
        return 200
    def __getitem__(self, number):
        time.sleep(0.001)
        return {"x": number, "data": bytes([number % 256]) * 2000}

ps.build(Slow(), sys.argv[1], format=["array_record", ps.TFRecord()], shards=20, workers=2)
"""


def build(path: Path, format: Any, **options: Any) -> ps.Built:
    return ps.build(ps.split(ROWS, **SPLIT), path, format=format, shards=3, **options)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same dataset in three ways."""
    folder = tmp_path_factory.mktemp("built")
    formats: dict[str, Any] = {"tfrecord": "tfrecord", "array_record": ps.ArrayRecord(), "both": BOTH}
    for name, format in formats.items():
        build(folder / name / "toy", format)
    return {name: folder / name / "toy" for name in formats}


def epoch(dataset: ps.Dataset, stop: int | None = None) -> tuple[list[Any], dict[str, Any]]:
    """The texts of an epoch, or of its beginning, and its state then."""
    loader = dataset["train"].shuffle(seed=5).batch(7)
    iterator = iter(loader)
    found = [batch["text"].to_list() for _, batch in zip(range(stop or 10**6), iterator, strict=False)]
    return found, iterator.state()


def test_files_are_named_as_tfds_names_them(built: dict[str, Path]) -> None:
    names = {path.name for path in built["array_record"].iterdir()}
    shards = {f"toy-{split}.array_record-{n:05}-of-00003" for split in SPLIT for n in range(3)}
    metadata = {"penstock.json", "dataset_info.json", "features.json"}
    assert names == metadata | shards | {f"{name}.keys" for name in shards}
    both = {path.name for path in built["both"].iterdir()}
    assert both == names | {path.name for path in built["tfrecord"].iterdir()}


@pytest.mark.parametrize(("name", "format"), [("array_record", None), ("both", None), ("both", "array_record")])
def test_an_epoch_is_that_of_the_tfrecord_build(built: dict[str, Path], name: str, format: str | None) -> None:
    expected, other = ps.load(built["tfrecord"]), ps.load(built[name], format=format)
    values, state = epoch(expected)
    found, reached = epoch(other)
    assert found == values
    assert {**reached, "dataset": None} == {**state, "dataset": None}
    assert [other["eval"].key(n) for n in range(20)] == [expected["eval"].key(n) for n in range(20)]
    assert other["train"][17]["text"] == expected["train"][17]["text"]

    begun, reached = epoch(other, 11)
    loader = other["train"].shuffle(seed=5).batch(7)
    assert begun + [batch["text"].to_list() for batch in loader.resume(reached)] == values
    assert [batch["text"].to_list() for batch in pickle.loads(pickle.dumps(loader))] == values  # noqa: S301


def test_a_state_goes_on_in_the_other_format(built: dict[str, Path]) -> None:
    begun, state = epoch(ps.load(built["both"]), 11)
    other = ps.load(built["both"], format="array_record")
    rest = [batch["text"].to_list() for batch in other["train"].shuffle(seed=5).batch(7).resume(state)]
    assert begun + rest == epoch(ps.load(built["tfrecord"]))[0]


def test_both_formats_at_once_are_each_as_if_alone(built: dict[str, Path], tmp_path: Path) -> None:
    both, alone = contents(built["both"]), contents(built["tfrecord"])
    build(tmp_path / "toy", BOTH[1])
    alone |= contents(tmp_path / "toy")
    assert both.keys() == alone.keys()
    assert {name for name in both if both[name] != alone[name]} == {"penstock.json", "dataset_info.json"}
    manifest = read_manifest(built["both"])
    assert (manifest.format, list(manifest.alternatives)) == ("tfrecord", ["array_record"])
    assert manifest.splits == read_manifest(built["tfrecord"]).splits
    assert manifest.alternatives["array_record"] == read_manifest(tmp_path / "toy").splits


@pytest.mark.parametrize("name", ["array_record", "both"])
def test_the_library_and_grain_read_it(built: dict[str, Path], name: str) -> None:
    codec = ps.Codec(read_manifest(built[name]).schema)
    expected = [example["text"] for example in examples(built["tfrecord"]).values()]
    paths = sorted(map(str, built[name].glob("toy-train.array_record-*-of-00003")))
    texts = []
    for path in paths:
        reader = TheirReader(path)
        assert reader.ok()
        texts += [codec.decode_example(record)["text"] for record in reader.read_all()]
    assert texts == expected
    with grain.ArrayRecordDataSource(paths) as source:
        assert [codec.decode_example(source[n])["text"] for n in range(len(source))] == expected


def test_tfds_reads_both_formats_of_one_directory(built: dict[str, Path]) -> None:
    expected = [example["text"] for example in examples(built["tfrecord"]).values()]
    for name, formats in {"array_record": ["array_record"], "both": ["tfrecord", "array_record"]}.items():
        for format in formats:
            builder = tfds.builder_from_directory(built[name])
            source = builder.as_data_source("train") if format == "array_record" else None
            in_order = tfds.ReadConfig(interleave_cycle_length=1)
            found = source or builder.as_dataset("train", read_config=in_order).as_numpy_iterator()
            assert [example["text"].decode() for example in found] == expected
    assert json.loads((built["both"] / "dataset_info.json").read_text())["alternativeFileFormats"] == ["array_record"]


def test_tfds_reads_the_one_that_is_not_compressed(tmp_path: Path) -> None:
    build(tmp_path / "toy", [ps.TFRecord(compression="gzip"), "array_record"])
    builder = tfds.builder_from_directory(tmp_path / "toy")
    assert len(builder.as_data_source("eval")) == builder.info.splits["eval"].num_examples > 0


@pytest.mark.alone
def test_a_build_that_is_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SLOW, str(tmp_path / "whole" / "toy")], check=True)
    rng, cut = random.Random(2), tmp_path / "cut" / "toy"
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", SLOW, str(cut)])
        deadline, wanted = time.monotonic() + 30, _finished(cut) + rng.randrange(1, 5)
        while _finished(cut) < wanted and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([sys.executable, "-c", SLOW, str(cut)], check=True)
    assert contents(cut) == contents(tmp_path / "whole" / "toy")


def _finished(directory: Path) -> int:
    journal = directory / WORK / "journal.jsonl"
    return journal.read_bytes().count(b'{"shard"') if journal.exists() else 0


@pytest.mark.parametrize("broken", ["tfrecord-00001-of-00004", "array_record-00001-of-00004"])
def test_only_changed_shards_are_written_anew(tmp_path: Path, broken: str) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(40):
        (files / f"{number}.json").write_text(json.dumps({"id": number}))

    class Files:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, number: int) -> dict[str, Any]:
            return json.loads((files / f"{number}.json").read_text())

        def stamp(self, number: int) -> str:
            return str(os.stat(files / f"{number}.json").st_size)

    first = ps.build(Files(), tmp_path / "toy", format=BOTH, shards=4)
    again = ps.build(Files(), tmp_path / "toy", format=BOTH, shards=4)
    assert (first.written, again.written, again.kept) == (4, 0, 4)
    before = contents(tmp_path / "toy")
    (files / "3.json").write_text(json.dumps({"id": 3000}))
    changed = ps.build(Files(), tmp_path / "toy", format=BOTH, shards=4)
    assert (changed.written, changed.kept) == (1, 3)
    (files / "3.json").write_text(json.dumps({"id": 3}))
    (tmp_path / "toy" / f"toy-train.{broken}").write_bytes(b"broken")
    assert ps.build(Files(), tmp_path / "toy", format=BOTH, shards=4).written in (1, 2)
    assert contents(tmp_path / "toy") == before


def test_another_format_is_another_build(tmp_path: Path) -> None:
    build(tmp_path / "toy", "tfrecord")
    with pytest.raises(ps.BuildError, match="format name was 'tfrecord', is 'array_record'"):
        build(tmp_path / "toy", "array_record")
    with pytest.raises(ps.BuildError, match="alternatives array_record is new"):
        build(tmp_path / "toy", BOTH)
    build(tmp_path / "toy", "array_record", overwrite=True)
    assert not list(tmp_path.glob("toy/*.tfrecord-*"))


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ([], "expected each format once, got none"),
        (["tfrecord", ps.TFRecord(compression="gzip")], "expected each format once, got tfrecord and tfrecord"),
        (["tfrecord", ps.ArrayRecord(shard_examples=5)], "expected shards of one size in all formats"),
        (["tfrecord", "csv"], "expected format to be 'tfrecord' or 'array_record', got 'csv'"),
        (3, "expected format to be 'tfrecord' or 'array_record', got 3"),
    ],
)
def test_formats_that_make_no_sense(tmp_path: Path, format: Any, message: str) -> None:
    with pytest.raises(ps.SchemaError, match=message):
        ps.build(ROWS, tmp_path / "toy", format=format)
    assert not (tmp_path / "toy").exists()


def test_a_format_that_is_not_there(built: dict[str, Path]) -> None:
    with pytest.raises(ps.ArgumentError, match="expected a dataset in the format 'array_record', got none"):
        ps.load(built["tfrecord"], format="array_record")
    with pytest.raises(ps.ArgumentError, match='expected one of the formats "tfrecord", "array_record"'):
        ps.load(built["tfrecord"], format="csv")


def test_manifests_whose_formats_differ_are_refused(built: dict[str, Path]) -> None:
    plain = read_manifest(built["both"]).to_json()
    for change in (
        {"format": "csv"},
        {"format": "array_record"},
        {"alternatives": {"csv": plain["splits"]}},
        {"alternatives": {"array_record": {"train": plain["splits"]["train"]}}},
        {"alternatives": {"array_record": {**plain["splits"], "eval": plain["splits"]["train"]}}},
    ):
        with pytest.raises(ps.CorruptionError, match="expected a manifest of version 2"):
            Manifest.from_json({**plain, **change}, "somewhere")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    group_size=st.sampled_from([1, 3, 100]),
    compression=st.sampled_from([None, "zstd", "brotli", "snappy"]),
    shards=st.integers(1, 4),
)
def test_any_examples_come_back(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], group_size: int, compression: str | None, shards: int
) -> None:
    folder = tmp_path_factory.mktemp("any") / "toy"
    rows = [{"data": random.Random(size).randbytes(size)} for size in sizes]
    format = ps.ArrayRecord(group_size=group_size, compression=compression)
    dataset = ps.build(rows, folder, format=[format, "tfrecord"], shards=shards, order="source", workers=1)
    assert [example["data"] for example in dataset["train"]] == [row["data"] for row in rows]
    assert [example["data"] for example in ps.load(folder, format="tfrecord")["train"]] == [r["data"] for r in rows]
    assert sum(shard_counts(folder)["train"]) == len(rows)


# The command line


def test_the_commands_over_both_formats(built: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(built["both"])]) == 0
    assert "also in array_record" in capsys.readouterr().out
    assert main(["info", "--json", str(built["both"])]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "tfrecord"
    counts = {split: told["splits"][split]["examples"] for split in SPLIT}
    assert {split: told["alternatives"]["array_record"][split]["examples"] for split in SPLIT} == counts
    for name in ("array_record", "both"):
        assert main(["head", "-n", "2", "--json", str(built[name])]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["text"] for line in lines] == [ps.load(built[name])["train"][n]["text"] for n in range(2)]
        assert main(["verify", str(built[name])]) == 0
        said = capsys.readouterr().out
        assert said.count("whole ") == (6 if name == "array_record" else 12)


def test_info_and_head_of_a_file(built: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = next(built["array_record"].glob("toy-train.array_record-*0-of-00003"))
    assert main(["info", "--json", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["compression"], told["index"]) == ("array_record", "zstd", False)
    assert told["records"] == read_manifest(built["array_record"]).splits["train"][0].records
    assert main(["head", "-n", "1", str(path)]) == 0
    assert "number" in capsys.readouterr().out


def test_verify_finds_a_flipped_bit_in_either_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path / "toy", BOTH)
    for name in ("tfrecord", "array_record"):
        path = next((tmp_path / "toy").glob(f"toy-eval.{name}-00001-of-00003"))
        data = bytearray(path.read_bytes())
        data[300] ^= 1
        path.write_bytes(data)
        assert main(["verify", "-q", str(tmp_path / "toy")]) == 1
        assert f"damaged  {path}" in capsys.readouterr().out
        data[300] ^= 1
        path.write_bytes(data)
    assert main(["verify", "-q", str(tmp_path / "toy")]) == 0


def test_build_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{n},{n * n}\n" for n in range(50)))
    said = ["--format", "array_record,tfrecord", "--group-size", "8", "--compression", "snappy", "--shards", "2"]
    assert main(["build", str(tmp_path / "rows.csv"), str(tmp_path / "toy"), *said]) == 0
    manifest = read_manifest(tmp_path / "toy")
    assert (manifest.format, list(manifest.alternatives)) == ("array_record", ["tfrecord"])
    reader = ps.ArrayRecordReader(tmp_path / "toy" / manifest.splits["train"][0].file)
    assert (reader.group_size, reader.compression) == (8, "snappy")
    for wrong in (["--group-size", "8"], ["--compression", "zstd"], ["--format", "csv"]):
        assert main(["build", str(tmp_path / "rows.csv"), str(tmp_path / "other"), *wrong]) == 2
    assert "array_record" in capsys.readouterr().err
