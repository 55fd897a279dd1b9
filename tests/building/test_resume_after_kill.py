"""Builds that are cut off: killed, interrupted, out of space, crashed. They go on, and end with the same bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_datasets import contents

from penstock.building.api import build
from penstock.building.engines.local import Local
from penstock.building.journal import Journal
from penstock.dataset.manifest import WORK, read_manifest
from penstock.errors import BuildError
from penstock.records.tfrecord import TFRecord

# A build of 40 shards that takes long enough to be killed in the middle.
LISTED = """
import sys, time
import penstock as ps

class Slow:
    def __len__(self):
        return 400
    def __getitem__(self, number):
        time.sleep(0.001)
        return {"x": number, "data": bytes([number % 256]) * 2000}

ps.build(Slow(), sys.argv[1], shards=40, workers=2)
"""
STREAM = """
import sys, time
import penstock as ps

def stream():
    for number in range(400):
        time.sleep(0.0005)
        yield {"x": number if number != 300 else 0.5, "data": bytes([number % 256]) * 2000}

ps.build(stream, sys.argv[1], shards=20, workers=2)
"""
MANY = """
import sys, time
import numpy as np
import penstock as ps

class Recording(ps.Example):
    name: ps.Skip[str]
    data: ps.Array[np.float32, None]
    def load(self):
        time.sleep(0.005)
        self.data = np.arange(50, dtype=np.float32)
    def split(self):
        for first in range(0, 50, 10):
            yield self.replace(data=self.data[first : first + 10])

ps.build([Recording(name=str(number)) for number in range(100)], sys.argv[1], shards=20, workers=2)
"""


def start(code: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(code: str, directory: Path) -> None:
    process = start(code, directory)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.mark.parametrize(("code", "kills"), [(LISTED, 10), (STREAM, 5), (MANY, 5)], ids=["listed", "stream", "many"])
def test_killed_at_random_points(tmp_path: Path, code: str, kills: int) -> None:
    """Each kill comes at another point of the same build; in between, nothing looks like a dataset."""
    finish(code, tmp_path / "whole" / "toy")
    expected = contents(tmp_path / "whole" / "toy")
    directory = tmp_path / "killed" / "toy"
    points = random.Random(7)
    killed = 0
    journal = directory / WORK / "journal.jsonl"
    while killed < kills:
        before = size_of(journal)
        process = start(code, directory)
        while process.poll() is None and size_of(journal) == before:
            time.sleep(0.002)
        time.sleep(points.random() * 0.04)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        killed += 1
        if process.returncode == 0:  # it was quicker
            assert contents(directory) == expected
            shutil.rmtree(directory)
        else:
            assert (
                not (directory / "penstock.json").exists() or contents_manifest(directory) == expected["penstock.json"]
            )
    finish(code, directory)
    assert contents(directory) == expected


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def contents_manifest(directory: Path) -> bytes:
    manifest = json.loads((directory / "penstock.json").read_bytes())
    del manifest["made"], manifest["crc32c"]
    return json.dumps(manifest).encode()


def happens(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


@pytest.mark.alone
def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    process = start(LISTED, tmp_path / "toy")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("this system does not list the children of a process")
    assert happens(lambda: len(children.read_text().split()) == 2, 30)
    workers = [int(child) for child in children.read_text().split()]
    process.kill()
    process.communicate()
    assert happens(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 5)


def test_only_what_is_missing_is_done_again(tmp_path: Path) -> None:
    loaded: list[int] = []

    class Breaks:
        broken = True

        def __len__(self) -> int:
            return 100

        def __getitem__(self, number: int) -> dict[str, int]:
            loaded.append(number)
            if self.broken and len(loaded) > 150:
                raise KeyboardInterrupt
            return {"x": number}

    source = Breaks()
    options: dict[str, Any] = {"shards": 10, "workers": 1, "schema": {"x": "int64"}}
    loaded.extend(range(100))
    with pytest.raises(KeyboardInterrupt, match=r"stopped: \d finished shards are kept. Build again to go on"):
        build(source, tmp_path / "toy", **options)
    assert not (tmp_path / "toy" / "penstock.json").exists()
    finished = len(list((tmp_path / "toy" / WORK).glob("*.keys")))
    assert 0 < finished < 10
    source.broken = False
    loaded.clear()
    built = build(source, tmp_path / "toy", **options)
    assert (built.kept, built.written) == (finished, 10 - finished)
    assert len(loaded) - 1 <= 10 * (10 - finished) + 110 - 100  # one look at what an example is


def test_a_finished_shard_that_was_changed_is_written_again(tmp_path: Path) -> None:
    class Stops:
        stop = True

        def __len__(self) -> int:
            return 100

        def __getitem__(self, number: int) -> dict[str, int]:
            if self.stop and number == 99:
                raise OSError("gone")
            return {"x": number}

    source = Stops()
    options: dict[str, Any] = {"shards": 10, "workers": 1, "order": "source", "schema": {"x": "int64"}}
    with pytest.raises(BuildError, match="gone"):
        build(source, tmp_path / "toy", **options)
    first, second, third, *_ = sorted(path for path in (tmp_path / "toy" / WORK).glob("*-of-00010"))
    data = bytearray(first.read_bytes())
    data[20] ^= 1
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-1])
    third.with_name(third.name + ".keys").unlink()
    source.stop = False
    built = build(source, tmp_path / "toy", **options)
    assert (built.kept, built.written) == (6, 4)
    source.stop = True
    build([{"x": n} for n in range(100)], tmp_path / "other" / "toy", shards=10, order="source")
    shards = [name for name in contents(tmp_path / "toy") if name != "penstock.json"]
    a, b = contents(tmp_path / "toy"), contents(tmp_path / "other" / "toy")
    assert all(a[name] == b[name] for name in shards)


@pytest.mark.alone
def test_ctrl_c_ends_the_workers_at_once(tmp_path: Path) -> None:
    code = LISTED.replace("time.sleep(0.001)", "time.sleep(30 if number == 7 else 0)")
    code = code.replace("workers=2)", 'workers=2, schema={"x": "int64", "data": "bytes"})')
    code = code.replace("number == 7", "number > 300")
    with start(code, tmp_path / "toy") as process:
        journal = tmp_path / "toy" / WORK / "journal.jsonl"
        try:
            assert happens(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2, 30)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            started = time.monotonic()
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert time.monotonic() - started < 3
    assert "Build again to go on" in errors
    assert "KeyboardInterrupt" in errors


class Crashes:
    """A source whose example 7 ends its worker, so many times."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder = folder
        self.times = times

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> dict[str, int]:
        seen = len(list(self.folder.iterdir()))
        if number == 7 and seen < self.times:
            (self.folder / str(seen)).touch()
            os._exit(3)
        return {"x": number}


@pytest.mark.parametrize("times", [1, 2])
def test_a_crashed_worker_is_replaced(tmp_path: Path, times: int) -> None:
    (tmp_path / "crashes").mkdir()
    source = Crashes(tmp_path / "crashes", times)
    built = build(source, tmp_path / "toy", shards=5, workers=2, schema={"x": "int64"})
    assert sum(shard.records for shard in built.manifest.splits["train"]) == 20
    assert len(list((tmp_path / "crashes").iterdir())) == times


def test_a_worker_that_crashes_always_is_an_error_that_names_the_example(tmp_path: Path) -> None:
    (tmp_path / "crashes").mkdir()
    source = Crashes(tmp_path / "crashes", 100)
    with pytest.raises(BuildError, match=r"that ended with code 3 - in example '7' of train, from example 7"):
        build(source, tmp_path / "toy", shards=5, workers=2, schema={"x": "int64"}, order="source")


def test_two_builds_into_one_directory(tmp_path: Path) -> None:
    rows = [{"x": 1}, {"x": 2}]
    with (
        Journal(tmp_path / "toy" / WORK),
        pytest.raises(
            BuildError, match=f"expected to build here alone, got process {os.getpid()} that builds here too"
        ),
    ):
        build(rows, tmp_path / "toy")
    build(rows, tmp_path / "toy")


class Numbers:
    """Numbers that are stamped by what they are, of which one may be broken."""

    def __init__(self, factor: int, broken: int = -1) -> None:
        self.factor = factor
        self.broken = broken

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> dict[str, int]:
        if number == self.broken:
            raise OSError("broken")
        return {"x": number * self.factor}

    def stamp(self, number: int) -> str:
        return f"{number * self.factor}"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_rebuild_that_fails_leaves_the_dataset_as_it_was(tmp_path: Path, overwrite: bool) -> None:
    options: dict[str, Any] = {"shards": 4, "schema": {"x": "int64"}, "order": "source", "workers": 1}
    build(Numbers(1), tmp_path / "toy", **options)
    before = contents(tmp_path / "toy")
    with pytest.raises(BuildError, match="broken"):
        build(Numbers(2, broken=35), tmp_path / "toy", overwrite=overwrite, **options)
    shutil.copytree(tmp_path / "toy", tmp_path / "seen", ignore=shutil.ignore_patterns(WORK))
    assert contents(tmp_path / "seen") == before
    built = build(Numbers(2), tmp_path / "toy", **options)
    assert (built.kept, built.written) == (3, 1)
    build(Numbers(2), tmp_path / "other" / "toy", **options)
    assert contents(tmp_path / "toy") == contents(tmp_path / "other" / "toy")


def test_a_failed_attempt_at_another_dataset_is_given_up_for_the_one_that_stands(tmp_path: Path) -> None:
    options: dict[str, Any] = {"shards": 4, "schema": {"x": "int64"}, "workers": 1}
    build(Numbers(1), tmp_path / "toy", **options)
    before = contents(tmp_path / "toy")
    with pytest.raises(BuildError, match="broken"):
        build(Numbers(1, broken=35), tmp_path / "toy", seed=1, overwrite=True, **options)
    assert build(Numbers(1), tmp_path / "toy", **options).written == 0
    assert contents(tmp_path / "toy") == before


@pytest.mark.parametrize(
    ("same", "format", "files"),
    [(True, "tfrecord", 3), (False, "tfrecord", 3), (True, ["array_record", "tfrecord"], 2 + 3)],
    ids=["the same build", "another build", "in two formats"],
)
def test_cut_off_at_any_step_of_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool, format: Any, files: int
) -> None:
    """All shards are replaced: what can be read is the old dataset or the new one, or there is none."""
    options: dict[str, Any] = {"shards": 4, "schema": {"x": "int64"}, "workers": 1, "format": format}
    build(Numbers(1), tmp_path / "old" / "toy", **options)
    build(Numbers(2), tmp_path / "new" / "toy", **options)
    old, new = contents(tmp_path / "old" / "toy"), contents(tmp_path / "new" / "toy")
    replaced, real = 4 * files, os.replace
    for step in range(replaced + 1):
        directory = tmp_path / f"{step}" / "toy"
        shutil.copytree(tmp_path / "old" / "toy", directory)
        moves = iter(range(replaced + 1))

        def replace(source: Any, target: Any, step: int = step, moves: Any = moves) -> None:
            moved_in = Path(source).parent.name == WORK and Path(target).parent.name != WORK
            if (moved_in or Path(target).name == "penstock.json") and next(moves) == step:
                raise KeyboardInterrupt
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            build(Numbers(2), directory, **options)
        monkeypatch.setattr(os, "replace", real)
        assert not (directory / "penstock.json").exists()
        if same:
            assert build(Numbers(2), directory, **options).written == 0
        else:
            with pytest.raises(BuildError, match="bring this dataset up to date, got another one: options seed was 0"):
                build(Numbers(2), directory, seed=3, **options)
        assert contents(directory) == new
    assert old != new


def test_a_dataset_stays_until_the_next_one_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of other names need no room made for them: then there is a dataset at every moment."""
    build(Numbers(1), tmp_path / "toy", shards=4)
    real, seen = os.replace, []

    def replace(source: Any, target: Any) -> None:
        seen.append((tmp_path / "toy" / "penstock.json").exists())
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    build(Numbers(1), tmp_path / "toy", shards=3, overwrite=True)
    assert len(seen) >= 9
    assert all(seen)
    assert len(read_manifest(tmp_path / "toy").splits["train"]) == 3


def test_leftovers_are_swept_and_other_files_left_alone(tmp_path: Path) -> None:
    rows = [{"x": number} for number in range(20)]
    directory = tmp_path / "toy"
    build(rows, directory, shards=4)
    (directory / "README.txt").write_text("mine")
    (directory / ".toy-train.tfrecord-00000-of-00004.99-0.partial").write_text("half")
    build(rows, directory, shards=2, overwrite=True)
    names = {path.name for path in directory.iterdir()}
    shards = {f"toy-train.tfrecord-0000{n}-of-00002" for n in range(2)}
    about = ("README.txt", "penstock.json", "dataset_info.json", "features.json")
    assert names == {*about, *(name + s for name in shards for s in ("", ".index", ".keys"))}


def test_shards_of_others_are_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "toy"
    directory.mkdir()
    foreign = directory / "toy-train.tfrecord-00000-of-00001"
    foreign.write_text("precious")
    with pytest.raises(BuildError, match="expected a directory without shards, got toy-train"):
        build([{"x": 1}], directory)
    assert foreign.read_text() == "precious"
    assert [path.name for path in directory.iterdir()] == [foreign.name]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting a small filesystem needs rights: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=False)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_full_disk_is_an_error_and_the_build_goes_on_with_more_room(
    small_disk: Path, tmp_path: Path, workers: int, on_error: str
) -> None:
    rows = [{"x": number, "data": random.Random(number).randbytes(10_000)} for number in range(300)]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    options: dict[str, Any] = {"workers": workers, "format": TFRecord(shard_examples=20), "on_error": on_error}
    with pytest.raises(OSError, match="No space left on device"):
        build(rows, small_disk / "toy", **options)
    assert not (small_disk / "toy" / "penstock.json").exists()
    finished = len(list((small_disk / "toy" / WORK).glob("*.keys")))
    assert finished > 0
    ballast.unlink()
    built = build(rows, small_disk / "toy", **options)
    assert built.kept > 0
    build(rows, tmp_path / "whole" / "toy", **options)
    assert contents(small_disk / "toy") == contents(tmp_path / "whole" / "toy")


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(OSError, match="expected a directory to build in"):
        build([{"x": 1}], tmp_path / "file" / "toy")


def test_memory_of_workers_is_the_engine_s(tmp_path: Path) -> None:
    assert Local(workers=2, max_memory=64 << 20).chunk_bytes == 4 << 20
    assert read_manifest(build([{"x": 1}], tmp_path / "toy", engine=Local(workers=1)).path).name == "toy"
