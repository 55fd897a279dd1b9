"""The command line: what it prints, what it returns, what it leaves alone."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import penstock as ps
from penstock.cli import cli, main
from penstock.cli import output as show
from penstock.cli.errors import told
from penstock.cli.head import parse_schema
from penstock.errors import StorageError
from penstock.records.inspect import first_records, image_type, infer_schema, shortened, size_text
from penstock.storage.local import publish
from penstock.storage.paths import expand

PNG = b"\x89PNG\r\n\x1a\n" + bytes(83_000)
SCHEMA = {
    "dense": "float32[3]",
    "tokens": "int64[?]",
    "label": "int64",
    "name": "str",
    "image": "bytes",
    "note": "str?",
}


def examples(count: int) -> list[dict[str, Any]]:
    return [
        {
            "dense": np.full(3, number, np.float32),
            "tokens": list(range(number % 5)),
            "label": number,
            "name": f"example [{number}]",
            "image": PNG,
            "note": "odd" if number % 2 else None,
        }
        for number in range(count)
    ]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A shard of 20 records, with its index."""
    path = tmp_path / "part-00.tfrecord"
    with ps.TFRecordWriter(path, index=True) as writer:
        writer.write_examples(ps.Codec(SCHEMA), examples(20))
    return path


@pytest.fixture
def damaged(shard: Path) -> Path:
    """The same with a bit flipped in record 7, and no index."""
    offsets = ps.TFRecordReader(shard).offsets
    data = bytearray(shard.read_bytes())
    data[int(offsets[7]) + 200] ^= 4
    path = shard.with_name("damaged.tfrecord")
    path.write_bytes(data)
    return path


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


# head


def test_head_shows_the_first_examples(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("head", shard, "-n", 2) == 0
    said = capsys.readouterr().out
    assert "record 1 (83.1 KB)" in said
    assert "record 2" not in said
    assert "bytes (image)" in said
    assert "<image/png 83.0 KB>" in said
    assert "'example [1]'" in said
    assert "missing" in said


def test_head_as_json_is_the_examples(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("head", shard, "--json", "--schema", "label: int64, dense: float32[3], note: str?") == 0
    found = lines(capsys.readouterr().out)
    assert found[0] == {"label": 0, "dense": [0, 0, 0], "note": None}
    assert [example["label"] for example in found] == [0, 1, 2, 3, 4]


def test_head_goes_on_over_files(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard.with_name("part-01.tfrecord").write_bytes(shard.read_bytes())
    assert run("head", shard.with_name("part-{00..01}.tfrecord"), "-n", 25, "--json") == 0
    assert [example["label"] for example in lines(capsys.readouterr().out)] == [*range(20), *range(5)]


def test_head_shows_what_comes_before_damage(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("head", damaged, "--json") == 0
    assert run("head", damaged, "-n", 10, "--json") == 1
    said = capsys.readouterr()
    assert len(lines(said.out)) == 5 + 7 + 1
    assert lines(said.out)[-1] == {"file": str(damaged), "error": said.err.removeprefix("penstock: error: ").rstrip()}
    assert f"{damaged}, offset" in said.err
    assert "record 7" in said.err


def test_head_reads_the_head_alone(tmp_path: Path) -> None:
    path = tmp_path / "cut.tfrecord"
    with ps.TFRecordWriter(path) as writer:
        writer.write_records([bytes(1000)] * 200)
    path.write_bytes(path.read_bytes()[:-10])
    assert run("head", path, "-n", 150) == 0


def test_head_shows_records_that_are_no_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "raw.tfrecord"
    with ps.TFRecordWriter(path, ps.TFRecord(compression="gzip")) as writer:
        writer.write_records([b"\xff\xff\xff", b"", b"plain words of some length"])
    assert run("head", path) == 0
    assert "b'\\xff\\xff\\xff'" in capsys.readouterr().out
    assert run("info", path) == 0
    assert "no tf.Example" in capsys.readouterr().out


def test_head_says_that_there_are_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.tfrecord").touch()
    assert run("head", tmp_path / "empty.tfrecord") == 0
    assert capsys.readouterr().out == f"there are no records in {tmp_path / 'empty.tfrecord'}\n"
    assert run("head", tmp_path / "empty.tfrecord", "--json") == 0
    assert capsys.readouterr().out == ""


def test_train_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("eval", "train"):
        with ps.TFRecordWriter(tmp_path / f"{split}-0.tfrecord") as writer:
            writer.write_records([split.encode()])
    assert run("head", tmp_path / "{split}-{0..}.tfrecord", "--json") == 0
    assert [base64.b64decode(line["record"]) for line in lines(capsys.readouterr().out)] == [b"train", b"eval"]


def test_a_file_with_a_schema_has_to_be_there(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("head", shard, "--schema", "nothing.json") == 2
    assert "expected a file with a schema, got nothing at nothing.json - at --schema" in capsys.readouterr().err


def test_head_names_the_record_that_does_not_fit(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("head", shard, "--schema", "dense: float32[3], tokens: int64[0]") == 2
    assert f"at {shard}, record 1, " in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "label: int64, box: float32[2,?]",
        '{"label": "int64", "box": "float32[2,?]"}',
        json.dumps(ps.Schema({"label": "int64", "box": "float32[2,?]"}).to_json()),
    ],
)
def test_schemas_are_given_in_any_form(text: str, tmp_path: Path) -> None:
    assert parse_schema(text) == ps.Schema({"label": "int64", "box": "float32[2,?]"})
    path = tmp_path / "schema.json"
    path.write_text(text)
    if text.startswith("{"):
        assert parse_schema(str(path)) == parse_schema(text)


@pytest.mark.parametrize("text", ["int64", "label: int46", "{", '{"a": 3}', "", "a: int64,"])
def test_schemas_that_make_no_sense_are_refused(text: str, shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("head", shard, "--schema", text)
    assert code == (2 if text else 0)
    assert capsys.readouterr().err.count("\n") == (1 if text else 0)


# info


def test_info_shows_what_files_hold(shard: Path, damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", shard) == 0
    said = capsys.readouterr().out
    for words in ("20", "1.7 MB", "none", "yes", "float32[3]", "int64[?]", "str?"):
        assert words in said
    with ps.TFRecordWriter(damaged.with_name("empty.tfrecord"), ps.TFRecord(compression="gzip")):
        pass
    assert run("info", "--json", shard.with_name("*.tfrecord")) == 0
    found = lines(capsys.readouterr().out)
    assert [entry["records"] for entry in found] == [20, 0, 20]
    assert [entry["index"] for entry in found] == [False, False, True]
    assert ps.Schema.from_json(found[2]["schema"])["image"].kind == "image"  # type: ignore[union-attr]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_names_of_files_stay_whole_on_a_narrow_screen(
    width: int, shard: Path, damaged: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(shard.parent)
    name = "a-name-that-is-rather-long.tfrecord"
    damaged.rename(name)
    assert run("info", shard.name, name) == 0
    said = capsys.readouterr().out
    assert name in said
    assert shard.name in said
    assert "compression" in said
    assert re.search(r"\b40\b", said)
    assert run("verify", name) == 1
    assert capsys.readouterr().out.count(name) == 2
    assert run("head", f"{shard.parent}/{name}", "-n", 1) == 0
    assert f"{shard.parent}/{name}, record 0" in capsys.readouterr().out
    assert run("salvage", name, "saved.tfrecord") == 1
    assert name in capsys.readouterr().out


def test_info_of_a_file_without_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.tfrecord"
    path.write_bytes(b"")
    assert run("info", path) == 0
    said = capsys.readouterr().out
    assert "there are no records" in said
    assert "tf.Example" not in said


def test_keys_are_known_of_datasets(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--key", "x"), ("--record", "train:1")):
        assert run("info", shard, option, value) == 2
        expected = f"expected a dataset, which knows the keys of its records, got a file - at {shard}"
        assert expected in capsys.readouterr().err


# verify


def test_verify_says_that_a_file_is_whole(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", shard) == 0
    assert "whole" in capsys.readouterr().out
    assert run("verify", shard, "--quiet") == 0
    assert capsys.readouterr().out == ""


def test_verify_names_file_offset_and_record(
    shard: Path, damaged: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a worker's temporary folder has a longer path
    offset = int(ps.TFRecordReader(shard).offsets[7])
    assert run("verify", shard, damaged) == 1
    table = capsys.readouterr().out.split("reason")[1].split()
    assert table[:1] + table[1:4:2] == [str(damaged), str(offset), "7"]
    assert run("verify", "--json", damaged, shard) == 1
    bad, good = lines(capsys.readouterr().out)
    assert (bad["whole"], good["whole"]) == (False, True)
    assert [(gap["offset"], gap["record"]) for gap in bad["gaps"]] == [(offset, 7)]
    assert good["indexes"] == [{"file": f"{shard}.index", "fits": True, "problems": []}]


def test_verify_goes_on_after_a_file_that_cannot_be_read(
    shard: Path, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "--json", shard.with_name("none"), damaged, shard) == 2
    said = capsys.readouterr()
    assert ["error" in entry for entry in lines(said.out)] == [True, False, False]
    assert said.err.count("penstock: error:") == 1


def test_verify_looks_at_the_indexes(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("index", "--dali", shard) == 0
    assert run("verify", "--json", shard) == 0
    assert len(lines(capsys.readouterr().out.splitlines()[-1])[0]["indexes"]) == 2

    sidecar = shard.with_name(shard.name + ".index")
    whole = sidecar.read_bytes()
    sidecar.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    assert run("verify", shard) == 1
    assert "does not fit" in capsys.readouterr().out

    with ps.TFRecordWriter(shard, index=True) as writer:
        writer.write(b"another")
    fresh = sidecar.read_bytes()
    sidecar.write_bytes(whole)
    assert run("verify", shard) == 1
    said = capsys.readouterr().out
    assert "expected a shard of" in said
    assert f"{shard}.idx" in said.split("does not fit")[2]

    sidecar.write_bytes(fresh)
    shard.with_name(shard.name + ".idx").unlink()
    assert run("verify", shard) == 0
    shard.write_bytes(shard.read_bytes()[:12] + b"b" + shard.read_bytes()[13:])
    assert run("verify", shard) == 1
    assert "CRC-32C" in capsys.readouterr().out


def test_verify_shows_some_of_many_gaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many.tfrecord"
    with ps.TFRecordWriter(path) as writer:
        writer.write_records([bytes(100)] * 60)
    data = bytearray(path.read_bytes())
    data[50 :: 2 * 116] = b"x" * len(data[50 :: 2 * 116])
    path.write_bytes(data)
    assert run("verify", path) == 1
    assert "and 10 more: --json lists them all" in capsys.readouterr().out
    assert run("verify", path, "--json") == 1
    assert len(lines(capsys.readouterr().out)[0]["gaps"]) == 30


# index


def test_index_writes_what_opens(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar = shard.with_name(shard.name + ".index")
    sidecar.unlink()
    assert run("index", "--dali", "--json", shard) == 0
    entry = lines(capsys.readouterr().out)[0]
    assert entry["written"] == [str(sidecar), f"{shard}.idx"]
    assert entry["crc32c"] == f"{ps.crc32c(shard.read_bytes()):08x}"
    assert len(ps.TFRecordReader(shard, index=sidecar)) == 20
    text = Path(entry["written"][1]).read_text().splitlines()
    assert [int(line.split()[0]) for line in text] == ps.TFRecordReader(shard).offsets[:-1].tolist()


def test_index_leaves_nothing_beside_a_file_that_is_cut(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shard.with_name("cut.tfrecord")
    path.write_bytes(shard.read_bytes()[:-1])
    before = sorted(shard.parent.iterdir())
    assert run("index", path) == 1
    assert "truncated" in capsys.readouterr().err
    assert sorted(shard.parent.iterdir()) == before


def test_indexes_are_not_files_of_their_own(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("index", "--dali", shard) == 0
    assert run("verify", "--json", f"{shard.parent}/*") == 0
    assert run("verify", "--json", *shard.parent.iterdir()) == 0
    assert [entry["file"] for entry in lines("\n".join(capsys.readouterr().out.splitlines()[1:]))] == [str(shard)] * 2


# salvage


def test_salvage_copies_what_is_whole(shard: Path, damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, out = damaged.read_bytes(), damaged.with_name("out.tfrecord")
    assert run("salvage", damaged, out) == 1
    assert "19 records" in capsys.readouterr().out
    reader = ps.TFRecordReader(shard)
    assert list(ps.TFRecordReader(out)) == [*reader[:7], *reader[8:]]
    assert damaged.read_bytes() == before


def test_salvage_into_the_format_that_the_name_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [bytes([n]) * 500 for n in range(9)]
    with ps.ArrayRecordWriter(tmp_path / "a.array_record", ps.ArrayRecord(compression=None)) as writer:
        writer.write_records(records)
    data = bytearray((tmp_path / "a.array_record").read_bytes())
    data[data.index(records[4]) + 7] ^= 1
    (tmp_path / "a.array_record").write_bytes(data)
    assert run("salvage", tmp_path / "a.array_record", tmp_path / "b.array_record", "--compression", "snappy") == 1
    saved = ps.ArrayRecordReader(tmp_path / "b.array_record")
    assert (list(saved), saved.compression) == (records[:4] + records[5:], "snappy")
    assert run("salvage", tmp_path / "a.array_record", tmp_path / "b.tfrecord") == 1
    assert list(ps.TFRecordReader(tmp_path / "b.tfrecord")) == list(saved)
    assert run("salvage", tmp_path / "a.array_record", tmp_path / "c.tfrecord", "--compression", "zstd") == 2
    assert 'expected compression None, "gzip" or "zlib"' in capsys.readouterr().err


def test_salvage_refuses_another_kind_of_file(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, out = tmp_path / "a.png", tmp_path / "out.tfrecord"
    picture.write_bytes(PNG)
    assert run("salvage", picture, out) == 1
    assert "got one that begins otherwise: another kind of file" in capsys.readouterr().err
    assert not out.exists()
    damaged.write_bytes(b"no length" + damaged.read_bytes()[9:])
    assert run("salvage", damaged, out) == 1
    assert capsys.readouterr().out.startswith(f"{out}: 18 records, ")


def test_salvage_of_an_array_record_file_without_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "a.array_record", tmp_path / "saved.array_record"
    with ps.ArrayRecordWriter(path, ps.ArrayRecord(group_size=10, compression=None)) as writer:
        for number in range(3000):
            writer.write(b"%d" % number * 30)
    path.write_bytes(path.read_bytes()[:200_000])
    assert run("salvage", path, out) == 1
    saved = len(ps.ArrayRecordReader(out))
    assert 500 < saved < 3000
    assert capsys.readouterr().out.startswith(f"{out}: {saved:,} records, ")


def test_one_record_is_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = tmp_path / "one.tfrecord"
    with ps.TFRecordWriter(one) as writer:
        writer.write_records([b"record"])
    assert run("index", one) == 0
    assert run("salvage", one, tmp_path / "out.tfrecord") == 0
    indexed, saved = capsys.readouterr().out.splitlines()
    assert indexed == f"{one}.index: 1 record"
    assert ": 1 record, " in saved


def test_a_folder_that_nothing_can_be_written_to(tmp_path: Path) -> None:
    denied = PermissionError(13, "Permission denied", str(tmp_path / ".c-00.tar.partial"))
    assert told(denied) == f"cannot write to the folder {tmp_path}: permission denied"
    denied.filename = str(tmp_path)
    assert told(denied) == f"permission denied - at {tmp_path}"


def test_salvage_of_a_whole_file_loses_nothing(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shard.with_name("out.tfrecord")
    assert run("salvage", shard, out, "--compression", "zlib", "--json") == 0
    assert lines(capsys.readouterr().out)[0]["lost_bytes"] == 0
    assert ps.TFRecordReader(out).compression == "zlib"
    assert list(ps.TFRecordReader(out)) == list(ps.TFRecordReader(shard))


def test_salvage_never_writes_over_anything(shard: Path, damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = shard.read_bytes()
    assert run("salvage", damaged, shard) == 2
    assert run("salvage", damaged, damaged, "--overwrite") == 2
    assert shard.read_bytes() == before
    assert capsys.readouterr().err.count("penstock: error:") == 2
    assert run("salvage", damaged, shard, "--overwrite") == 1
    assert len(ps.TFRecordReader(shard)) == 19


def test_salvage_says_that_the_folder_is_missing(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shard.parent / "no" / "such"
    assert run("salvage", shard, folder / "out.tfrecord") == 2
    assert f"expected a folder to write out.tfrecord to, got none at {folder}. Make it first" in capsys.readouterr().err


# What every command shares


@pytest.mark.parametrize("command", ["head", "info", "verify", "index"])
def test_what_is_not_there_is_one_sentence(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("none.tfrecord", "none-*.tfrecord", "none-{0..3}.tfrecord", ""):
        assert run(command, tmp_path / name) == 2
        said = capsys.readouterr()
        assert said.err.startswith("penstock: error: ")
        assert said.err.count("\n") == 1
        assert said.out == ""


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_what_is_not_there_is_one_object_of_json(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "none.tfrecord")
    more = [tmp_path / "out"] if command in ("build", "convert", "salvage") else []
    assert run(command, missing, *more, "--json") == 2
    said = capsys.readouterr()
    (found,) = lines(said.out)
    assert found == {"file": missing, "error": said.err.removeprefix("penstock: error: ").rstrip()}


def test_a_command_line_that_makes_no_sense_is_one_object_of_json(
    shard: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["head", "--json"],
        ["head", shard, "--json", "--nmber", 3],
        ["info", shard, shard, "--json", "--key", 1],
    ):
        assert run(*words) == 2
        (found,) = lines(capsys.readouterr().out)
        assert found["error"]


def test_unknown_options_and_commands_are_errors(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["head", "--nmber", "3", str(shard)],
        ["hed", str(shard)],
        ["verify"],
        ["head", str(shard), "-n", "x"],
    ):
        assert run(*words) == 2
        said = capsys.readouterr().err
        assert said.startswith("penstock: error: ")
        assert said.rstrip().endswith("--help")


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_help_and_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--help") == 0
    assert "--json" in capsys.readouterr().out
    for parameter in cli.commands[name].params:
        assert not isinstance(parameter, click.Option) or parameter.help


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"penstock {ps.__version__}\n"
    assert run() == 0
    assert "Exit codes" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_reader_that_has_had_enough_is_no_damage(shard: Path, words: list[str]) -> None:
    end, pipe = os.pipe()
    os.close(end)
    with os.fdopen(pipe, "w") as closed:
        command = [sys.executable, "-m", "penstock", "head", str(shard), *words]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("penstock head smal", "file,smal\n"),
        ("penstock verify a.tfrecord b", "file,b\n"),
        ("penstock build a b", "file,b\n"),
        ("penstock head a --schema b", "file,b\n"),
        ("penstock sal", "plain,salvage\n"),
        ("penstock build a b --order h", "plain,hash\n"),
    ],
)
def test_shells_complete_files_and_choices(
    line: str, completed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run()
    assert capsys.readouterr().out == completed


@pytest.mark.alone
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupts_end_at_once_and_leave_no_half_file(tmp_path: Path) -> None:
    path, out = tmp_path / "large.tfrecord", tmp_path / "out.tfrecord"
    with ps.TFRecordWriter(path) as writer:
        writer.write_records([os.urandom(1 << 20)] * 64)
    # Reading from page cache is quick: compressing what is read is not.
    code = "import sys; from penstock.cli import main; print('ready', flush=True); sys.exit(main())"
    command = [sys.executable, "-c", code, "salvage", str(path), str(out), "--compression", "gzip"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 20
        while len(list(tmp_path.iterdir())) == 1 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        process.wait(20)
        assert time.monotonic() - sent < 2
    assert process.returncode == 130
    assert [entry.name for entry in tmp_path.iterdir()] == ["large.tfrecord"]


@pytest.mark.alone
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_while_it_is_imported_says_nothing() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock", "info", "nothing.tfrecord"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:  # each module, when it has been imported
            if "click" in line:  # the first that is only needed by commands
                process.send_signal(signal.SIGINT)
                break
        said = process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "nothing.tfrecord" not in said


# Patterns


def test_patterns_name_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    for name in ("a-08", "a-09", "a-10", "b[1]", "c{1..2}", "sub/a-11", "d-7", "d-8"):
        Path(name).touch()
    assert expand("a-{08..10}") == ["a-08", "a-09", "a-10"]
    assert expand("a-{10..08}") == ["a-10", "a-09", "a-08"]
    assert expand("d-{7..8}") == ["d-7", "d-8"]
    assert expand("a-*") == ["a-08", "a-09", "a-10"]
    assert expand("**/a-*") == ["a-08", "a-09", "a-10", "sub/a-11"]
    assert expand("a-{08..09}*") == ["a-08", "a-09"]
    assert expand("b[1]") == ["b[1]"]
    assert expand("c{1..2}") == ["c{1..2}"]
    assert expand(Path("a-08")) == ["a-08"]
    assert expand("not there") == ["not there"]
    for pattern in ("a-{08..11}", "x*", "x-{1..3}", "a-{08..11}*", "x{0..999999999999}"):
        with pytest.raises(StorageError, match=r"expected .* got"):
            expand(pattern)


def test_small_files_appear_whole(tmp_path: Path) -> None:
    path = tmp_path / "note"
    publish(path, b"one")
    publish(path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["note"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        publish(tmp_path / "folder", b"three")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "note"]


# The first look


def test_records_tell_their_schema() -> None:
    codec = ps.Codec(
        {
            "scalar": "int64", "fixed": "float32[2,2]", "ragged": "int64[?]", "empty": "int64[?]", "text": "str",
            "texts": "list[str]", "three": "str[3]", "image": "bytes", "blob": "bytes", "optional": "int64?",
            "nested": {"value": "float32[?]"},
        }
    )  # fmt: skip
    plain = {
        "scalar": 1, "fixed": [[1, 2], [3, 4]], "ragged": [1], "empty": [], "text": "naïve\n", "texts": ["a"],
        "three": ["a", "b", "c"], "image": PNG, "blob": b"\x00\x01", "optional": None, "nested": {"value": [1.5]},
    }  # fmt: skip
    other = {**plain, "ragged": [1, 2], "texts": [], "optional": 3, "nested": {"value": []}}
    found = infer_schema(codec.encode_examples([plain, other]))
    assert found == ps.Schema(
        {
            "scalar": "int64", "fixed": "float32[4]", "ragged": "int64[?]", "empty": "int64[?]", "text": "str",
            "texts": "list[str]", "three": "str[3]", "image": ps.Field(dtype="bytes", kind="image"), "blob": "bytes",
            "optional": "int64?", "nested/value": "float32[?]",
        }
    )  # fmt: skip
    assert ps.Codec(found).decode_example(codec.encode_examples([plain])[0])["text"] == "naïve\n"


def test_records_that_disagree_have_no_schema() -> None:
    one, two = (ps.Codec({"a": kind}).encode_examples([{"a": 1}])[0] for kind in ("int64", "float32"))
    with pytest.raises(ps.SchemaError, match=r"expected a int64_list .* got a float_list - at record 1, a"):
        infer_schema([one, two])
    with pytest.raises(ps.SchemaError, match=r"expected tf\.Example or tf\.SequenceExample records"):
        infer_schema([b"\xff"])
    with pytest.raises(ps.SchemaError, match=r"got a tf\.Example without features"):
        infer_schema([b""])


def test_first_records_stop_at_damage(damaged: Path) -> None:
    records, damage = first_records(damaged, 5)
    assert (len(records), damage) == (5, None)
    records, damage = first_records(damaged, 100)
    assert len(records) == 7
    assert damage is not None
    assert damage.record == 7


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"), (b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"), (b"BM\x08\0\0\0ab", "image/bmp"), (b"BMW", None), (b"", None),
    ],
)  # fmt: skip
def test_image_types(data: bytes, kind: str | None) -> None:
    assert image_type(data) == kind


def test_values_and_sizes_read_well() -> None:
    assert [size_text(n) for n in (0, 999, 1000, 83_100, 999_960, 5_000_000, 3e12, 3e15)] == [
        "0 B", "999 B", "1.0 KB", "83.1 KB", "1.0 MB", "5.0 MB", "3.0 TB", "3000 TB",
    ]  # fmt: skip
    assert shortened(np.arange(20)) == "[0, 1, 2, 3, 4, 5, 6, 7, … 12 more]"
    assert shortened(np.zeros((2, 3), np.float32)).endswith("(2×3)")
    assert shortened("x" * 100).endswith("…'")
    assert shortened(b"abc") == "b'abc'"
    assert shortened(bytes(2000)) == "<bytes 2.0 KB>"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [30, 45, 60, 80, 200])
def test_a_bar_leaves_out_what_has_no_room(columns: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(show, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    (tmp_path / "part-00.tfrecord").write_bytes(bytes(1000))
    with show.Bar([str(tmp_path / "part-00.tfrecord")]) as bar:
        for _ in bar:
            bar(500)
    said: str = sys.stderr.getvalue()  # type: ignore[attr-defined]
    line = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", said).split("\r")[-2].strip()
    assert len(line) <= columns
    assert "…" not in line
    assert len(re.findall("[━╸╺]", line)) == min(40, columns // 4)
    assert ("0.5/1.0 kB" in line, "-:--:--" in line) == (columns >= 45, columns >= 60)


def test_a_bar_shows_at_a_terminal_and_makes_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    monkeypatch.setenv("TERM", "xterm")
    for patience, shown in ((0.0, True), (60.0, False)):
        monkeypatch.setattr(show, "PATIENCE", patience)
        monkeypatch.setattr(sys, "stderr", Terminal())
        with show.Bar([str(tmp_path / "a")]) as bar:
            for _ in bar:
                bar(500)
                bar.hide()
        said = sys.stderr.getvalue()  # type: ignore[attr-defined]
        assert ("500/1,000" in said or "0.5/1.0" in said) == shown


def test_info_of_a_damaged_first_record_says_what_to_do(shard: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(shard.read_bytes())
    data[14] ^= 255
    shard.write_bytes(data)
    assert main(["info", str(shard)]) == 0
    assert f"or damaged: penstock verify {shard}" in capsys.readouterr().out.replace("\n", "")
