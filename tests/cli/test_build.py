"""`penstock build`, and what `info` and `verify` say of a dataset."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.building.api import build
from penstock.cli import main
from penstock.dataset.manifest import read_manifest
from penstock.loading.dataset import load
from penstock.records.tfrecord import TFRecordReader
from penstock.sources.splits import splits


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CSV file, in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.csv"
    path.write_text("id,x,label\n" + "".join(f"{n},{n / 2},{'cat' if n % 2 else 'dog'}\n" for n in range(200)))
    return path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(capsys))
    return found


def test_a_path_is_enough(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "rows.csv", "out"]) == 0
    out = said(capsys)
    assert "rows.csv is taken as csv: rows.csv ends in .csv" in out
    assert re.search(r"train +200 +1 ", out)
    assert re.search(r"label +str", out)
    line = out.splitlines()[-1]
    assert len(eval(line, {"penstock": __import__("penstock")})) == 200  # noqa: S307  # the line that it shows


def test_all_options(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "build rows.csv out --split train=0.8,eval=0.2 --stratify label --seed 3 --shard-examples 50 --as csv"
    words += " --compression gzip --workers 1 --order source --on-error skip --shard-bytes 1M --format tfrecord --json"
    assert main([*words.split(), "--no-sync"]) == 0
    found = answer(capsys)
    assert found["splits"]["train"]["examples"] == 160
    assert found["splits"]["train"]["shards"] == 4
    assert (found["written"], found["kept"], found["bad"], found["source"]) == (5, 0, 0, "csv")
    shard = read_manifest(Path("out")).splits["train"][0].file
    assert TFRecordReader(Path("out") / shard).compression == "gzip"


def test_a_dry_run_writes_nothing(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "rows.csv", "out", "--dry-run", "--shards", "3"]) == 0
    assert re.search(r"train +200 +3", said(capsys))
    assert main(["build", "rows.csv", "out", "--dry-run", "--json"]) == 0
    assert answer(capsys)["splits"] == {"train": {"examples": 200, "shards": 1}}
    assert not Path("out").exists()
    assert main(["build", "rows.csv", "out", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["build", "rows.csv", "out", "--dry-run"]) == 0
    assert "out holds a dataset: it is brought up to date" in capsys.readouterr().out
    assert main(["build", "rows.csv", "out", "--dry-run", "--overwrite"]) == 0
    assert "holds a dataset" not in capsys.readouterr().out


def test_quiet_says_nothing(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "rows.csv", "out", "-q"]) == 0
    assert said(capsys) == ""


def test_what_is_there_is_not_replaced_unless_told(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "rows.csv", "out", "-q", "--shards", "2"]) == 0
    assert main(["build", "rows.csv", "out", "-q", "--shards", "3"]) == 2
    assert "options shards was 2, is 3" in capsys.readouterr().err
    assert main(["build", "rows.csv", "out", "-q", "--shards", "3", "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("build nothing out", "expected a file or a folder, got nothing"),
        ("build rows.csv ./rows.csv", "expected another folder for the dataset, got SOURCE itself"),
        ("build rows.csv out --group id", "--group goes with --split"),
        ("build rows.csv out --split train", "expected ratios such as train=0.8,eval=0.2"),
        ("build rows.csv out --split train=0.5", "expected ratios that sum to 1"),
        ("build rows.csv out --shard-bytes 5Q", "expected a size such as 500000, 64M or 1G"),
        ("build rows.csv out --shards 0", "0 is not in the range"),
        ("build rows.csv out --max-side 8", "--max-side is for a folder of images, and rows.csv is taken as csv"),
        ("build rows.csv out --as jsonl --delimiter ;", "--delimiter is for CSV files, and rows.csv is taken as jsonl"),
    ],
)
def test_nonsense_is_one_sentence(rows: Path, capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    assert main(words.split()) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len(errors.splitlines()) == 1
    assert not Path("out").exists()


@pytest.mark.parametrize(("letter", "given"), [(";", ";"), ("\t", r"\t")])
def test_cells_between_which_no_comma_stands(
    letter: str, given: str, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other.csv").write_text(f"a{letter}b\n1{letter}2\n")
    assert main(["build", "other.csv", "out"]) == 0
    assert f'Is it --delimiter "{given}"?' in said(capsys)
    assert main(["build", "other.csv", "out", "--delimiter", given, "--overwrite"]) == 0
    assert "Is it" not in said(capsys)
    assert dict(load("out")["train"][0]) == {"a": 1, "b": 2}


def test_leaks_and_bad_examples_are_in_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train/cat/1.gif", "eval/cat/2.gif", "train/cat/3.gif"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        broken = b"GIF89a" if name.endswith("3.gif") else b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"
        path.write_bytes(broken)
    assert main(["build", str(tmp_path / "photos"), str(tmp_path / "out"), "--on-error", "quarantine"]) == 0
    out = said(capsys)
    assert "1 bad example was left out: " in out
    assert "1 content stands in two splits: " in out
    assert "3.gif" in (tmp_path / "out" / "quarantine.jsonl").read_text()


def test_info_and_verify_of_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "toy"
    built = build(splits(train=[{"x": n} for n in range(100)], eval=[{"x": 1000}]), directory, shards=3)
    assert main(["info", str(directory)]) == 0
    assert re.search(r"train +100 +3 ", said(capsys))
    assert main(["info", str(directory), "--json"]) == 0
    assert answer(capsys)["splits"]["eval"]["examples"] == 1
    assert main(["verify", str(directory)]) == 0
    assert said(capsys).count("whole") == 4
    first, second, third = (directory / shard.file for shard in built.manifest.splits["train"])
    first.write_bytes(second.read_bytes())  # a whole file, but not this shard
    (directory / (first.name + ".index")).unlink()
    assert main(["verify", str(directory), "-q"]) == 1
    assert "not as it was built" in capsys.readouterr().out
    third.unlink()
    assert main(["verify", str(directory), "-q", "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any("got nothing" in line.get("error", "") for line in lines)
    assert main(["info", str(directory)]) == 1


SLOW = """
import sys, time
from penstock import sources
from penstock.cli import main

class Slow:
    def __len__(self):
        return 3000
    def __getitem__(self, number):
        time.sleep(0.002)
        return {"x": number, "data": bytes(1000)}

sources.csv = lambda path: Slow()
sys.exit(main(["build", "rows.csv", "out", "--as", "csv", "--shards", "30", "--workers", "1"]))
"""


@pytest.mark.alone
def test_what_takes_long_shows_a_bar_and_ctrl_c_says_how_to_go_on(rows: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen([sys.executable, "-c", SLOW], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = ""
        deadline = time.monotonic() + 30
        while "examples" not in shown and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            try:
                shown += os.read(ours, 65536).decode(errors="replace")
            except OSError:
                break
    os.close(ours)
    assert re.search(r"writing .* of 3,000 examples", shown)
    assert "MB/s" in shown or "KB/s" in shown
    assert "finished shards are kept. Build again to go on" in shown
    assert process.returncode == 130
