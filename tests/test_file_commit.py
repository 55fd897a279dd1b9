"""Plain files whose overwrite is killed at every step of its commit: readers refuse them, the next run finishes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli import main
from penstock.records.interrupted import FOLDER

# Runs a build, or a conversion, and kills itself before a given change of the file system after the commit has begun.
RUN = """
import os, signal, sys
import penstock as ps

folder, pattern, kind, step = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
os.chdir(folder)
seen, began = 0, False

def hook(event, arguments):
    global seen, began
    if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
        began = began or any(".penstock-commit" in str(each) for each in arguments)
        if began:
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

sys.addaudithook(hook)
if kind == "build":
    ps.build([{"x": n, "v": 2} for n in range(50)], pattern, shards=None if "{0" not in pattern else 2,
             overwrite=True, workers=1, schema={"x": "int64", "v": "int64"})
else:
    ps.convert("new", pattern, shards=None if "{0" not in pattern else 2, overwrite=True, workers=1)
print(seen)
"""


def values(path: Any) -> Counter[int]:
    return Counter(int(row["v" if "v" in row else "v.cls"]) for row in ps.load(path)["train"])


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("build", "p-{000..}.tfrecord"),
        ("build", "{split}/p-{000..}.tfrecord"),
        ("build", "one.tfrecord"),
        ("convert", "p-{000..}.tfrecord"),
        ("convert", "p-{000..}.tar"),
    ],
)
def test_killed_at_every_step_of_the_commit(tmp_path: Path, kind: str, pattern: str) -> None:
    old = tmp_path / "old"
    rows = [{"x": n, "v": 1} for n in range(80)]
    single = None if "{0" not in pattern else 4
    ps.build([{"x": n, "v": 2} for n in range(50)], old / "new")
    ps.build(rows, old / "first")
    if pattern.endswith(".tar"):
        ps.convert(old / "first", old / pattern, shards=single)
    else:
        ps.build(rows, old / pattern, shards=single)
    assert values(old / pattern) == {1: 80}
    refused, steps = 0, 0
    for step in range(1000):
        shutil.copytree(old, tmp_path / "at")
        run = [sys.executable, "-c", RUN, str(tmp_path / "at"), pattern, kind]
        done = subprocess.run([*run, str(step)], capture_output=True, text=True, check=False)
        target = tmp_path / "at" / pattern
        if done.returncode == 0:
            steps = int(done.stdout)
            assert values(target) == {2: 50}
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        try:
            found = values(target)
        except (ps.CorruptionError, ps.StorageError) as error:
            refused += "an overwrite that was interrupted" in str(error)
            shown = [str(path) for path in (tmp_path / "at").rglob(f"*{Path(pattern).suffix}") if path.name[0] != "."]
            assert "new" in str(shown) or main(["verify", *shown]) != 0
        else:
            assert found in ({1: 80}, {2: 50}), f"step {step}: files of two builds"
        again = subprocess.run([*run, "-1"], capture_output=True, text=True, check=False)
        assert again.returncode == 0, again.stderr
        assert values(target) == {2: 50}, f"step {step}"
        left = [path.name for path in target.parent.rglob("*") if path.name.startswith(".")]
        assert not left, f"step {step}: {left}"
        shutil.rmtree(tmp_path / "at")
    assert steps > 3
    assert refused >= 1


def test_verify_and_sources_refuse_an_interrupted_overwrite(tmp_path: Path) -> None:
    ps.build([{"x": 1, "v": 1}] * 8, tmp_path / "p-{000..}.tfrecord", shards=8)
    run = [sys.executable, "-c", RUN, str(tmp_path), "p-{000..}.tfrecord", "build", "8"]
    assert subprocess.run(run, check=False).returncode == -signal.SIGKILL
    for read in (ps.load, ps.tfrecords):
        for path in (tmp_path, tmp_path / "p-{000..}.tfrecord", tmp_path / "p-000.tfrecord"):
            with pytest.raises(
                ps.CorruptionError, match=r"an overwrite that was interrupted - at .*Run the same build"
            ):
                read(path)  # type: ignore[operator]
    assert main(["verify", *map(str, sorted(tmp_path.glob("*.tfrecord")))]) == 1
    ps.build([{"x": 1}], tmp_path / "other-{0..}.tfrecord")  # other names have nothing to do with it
    assert len(ps.load(tmp_path / "other-{0..}.tfrecord")["train"]) == 1
    with pytest.raises((ps.StorageError, ps.BuildError), match=r"got another one|expected a new file"):
        ps.build([{"x": 3, "v": 3}] * 5, tmp_path / "p-{000..}.tfrecord")  # another build, without overwrite
    assert values(tmp_path / "p-{000..}.tfrecord") == {2: 50}  # which was finished first
    assert not (tmp_path / FOLDER).exists()


def test_a_record_cannot_reach_outside_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "precious.tfrecord").write_text("data")
    (tmp_path / "in" / FOLDER).mkdir(parents=True)
    record = {"penstock_commit": 1, "begun": "", "moves": [], "removes": ["../precious.tfrecord"], "texts": {}}
    (tmp_path / "in" / FOLDER / "one.tfrecord.json").write_text(json.dumps(record))
    with pytest.raises(ps.BuildError, match="expected the record of an interrupted commit, got other content"):
        ps.build([{"x": 1}], tmp_path / "in" / "one.tfrecord")
    assert (tmp_path / "precious.tfrecord").read_text() == "data"


@pytest.mark.parametrize("name", ["one.tfrecord.index", "one.tfrecord.schema.json", "one.tfrecord.quarantine.jsonl"])
def test_foreign_files_beside_plain_files_are_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"of": "the user"}')
    for overwrite in (False, True):
        with pytest.raises(ps.BuildError, match="got one that Penstock did not write"):
            ps.build([{"x": 1}], tmp_path / "one.tfrecord", overwrite=overwrite)
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_text() == '{"of": "the user"}'


def test_a_foreign_hidden_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".one.tfrecord.build").mkdir()
    (tmp_path / ".one.tfrecord.build" / "mine").write_text("text")
    with pytest.raises(ps.BuildError, match="got a foreign one"):
        ps.build([{"x": 1}], tmp_path / "one.tfrecord")
    assert (tmp_path / ".one.tfrecord.build" / "mine").read_text() == "text"
