"""penstock bench: it runs over datasets and files, and names the bottleneck."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = {"id": np.arange(500), "x": np.zeros((500, 8), np.float32)}
    ps.build(ps.split(rows, train=0.8, test=0.2), tmp_path / "toy")
    return tmp_path / "toy"


def test_it_names_the_bottleneck(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(folder), "--shuffle", "--batch", "32", "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert "examples/s" in text
    assert "bottleneck: " in text


def test_it_tells_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(folder), "--split", "test+train[:10]", "--fields", "id", "--no-decode", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bottleneck"] in told["stages"]
    assert told["examples"] == len(ps.load(folder)["test"]) + 10


def test_files_of_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = min(folder.glob("toy-train.tfrecord-?????-of-?????"))
    assert main(["bench", str(shard), "--seconds", "0"]) == 0
    assert "examples/s" in capsys.readouterr().out


def test_files_without_records(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = folder.with_name("empty.tfrecord")
    empty.touch()
    assert main(["bench", str(empty)]) == 2
    assert capsys.readouterr().err.endswith(f"expected records to infer a schema from, got none - at {empty}\n")


def test_no_time_is_negative(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(folder), "--seconds", "-1"]) == 2
    assert "-1.0 is not in the range" in capsys.readouterr().err


def test_what_is_not_there_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(folder), "--split", "tran"]) == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err
    assert main(["bench", str(folder / "nothing")]) == 2
    assert "got nothing at" in capsys.readouterr().err
