"""Plain files whose overwrite is killed at every step of its commit: readers refuse them, the next run finishes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli import main
from penstock.dataset.plain_files import FOLDER

ROWS = [{"x": n, "v": 2} for n in range(50)]


def run(folder: Path, pattern: str, kind: str) -> None:
    """Write 50 rows over the files of a pattern, by a build or by a conversion."""
    options: dict[str, Any] = {"shards": 2 if "{0" in pattern else None, "overwrite": kind != "first build"}
    options["engine"] = ps.Local(workers=1, sync=False)
    if kind.endswith("build"):
        ps.build(ROWS, folder / pattern, schema={"x": "int64", "v": "int64"}, **options)
    else:
        ps.convert(folder / "new", folder / pattern, **options)


def run_killed(folder: Path, pattern: str, kind: str, step: int) -> bool:
    """Do the same in another process, which is killed before a change of the file system after the commit has begun.

    Tells whether it was killed: it makes fewer changes else.
    """
    process = os.fork()
    if process == 0:
        seen, began = 0, False

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen, began
            if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
                began = began or any(FOLDER in str(each) for each in arguments)
                if began:
                    if seen == step:
                        os.kill(os.getpid(), signal.SIGKILL)
                    seen += 1

        try:
            sys.addaudithook(hook)
            run(folder, pattern, kind)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL)
    return code != 0


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
def test_killed_at_every_step_of_the_commit(
    tmp_path: Path, kind: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("penstock.building.targets.plain_files"), "PARTS", 2)
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
    refused = step = 0
    at = tmp_path / "at"
    while True:
        shutil.copytree(old, at)
        killed = run_killed(at, pattern, kind, step)
        if not killed:
            assert values(at / pattern) == {2: 50}
            break
        try:
            found = values(at / pattern)
        except (ps.CorruptionError, ps.StorageError) as error:
            refused += "an overwrite that was interrupted" in str(error)
            shown = [str(path) for path in (at / pattern).parent.parent.rglob(f"*{Path(pattern).suffix}")]
            assert main(["verify", *(path for path in shown if "/at/" in path and "/." not in path)]) != 0
        else:
            assert found in ({1: 80}, {2: 50}), f"step {step}: files of two builds"
        run(at, pattern, kind)
        assert values(at / pattern) == {2: 50}, f"step {step}"
        left = [path.name for path in at.rglob("*") if path.name.startswith(".")]
        assert not left, f"step {step}: {left}"
        shutil.rmtree(at)
        step += 1
    assert step > 5
    assert refused > 2


def contents(folder: Path) -> dict[str, bytes | None]:
    """The files and folders below a folder."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {name: path.read_bytes() if path.is_file() else None for name, path in found.items()}


@pytest.mark.parametrize("pattern", ["p-{000..}.tfrecord", "one.tfrecord"])
def test_a_first_build_that_is_killed_in_its_commit_is_finished_by_the_next(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again, without overwrite. Its own files are refused once only the clean-up is left."""
    monkeypatch.setattr(import_module("penstock.building.targets.plain_files"), "PARTS", 2)
    whole, at = tmp_path / "whole", tmp_path / "at"
    run(whole, pattern, "first build")
    expected = contents(whole)
    finished = step = 0
    at.mkdir()
    while run_killed(at, pattern, "first build", step):
        with suppress(ps.StorageError):  # only the removal of an empty hidden folder was left
            run(at, pattern, "first build")
            finished += 1
        assert contents(at) == expected, f"step {step}"
        shutil.rmtree(at)
        at.mkdir()
        step += 1
    assert finished > 5
    assert step - finished <= 5


def test_verify_and_sources_refuse_an_interrupted_overwrite(tmp_path: Path) -> None:
    ps.build([{"x": 1, "v": 1}] * 8, tmp_path / "p-{000..}.tfrecord", shards=8)
    assert run_killed(tmp_path, "p-{000..}.tfrecord", "build", 8)
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
