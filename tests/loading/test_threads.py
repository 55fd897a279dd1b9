"""Threads of a running loader: they end with it, whatever ends it, and at once."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

pytestmark = pytest.mark.alone  # measures time, memory, threads or signals

COUNT = 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "toy"
    ps.build({"id": np.arange(COUNT), "x": np.zeros((COUNT, 100), np.float32)}, path, shards=4)
    return path


def threads() -> int:
    """All threads of this process, those of the core included."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()


def settles(before: int, seconds: float = 2.0) -> bool:
    """Whether no more threads are left than before, soon."""
    end = time.monotonic() + seconds
    while threads() > before:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def slow(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.005)
    return row


def loaders(train: ps.Split) -> dict[str, Any]:
    return {
        "native": train.shuffle(1).repeat().batch(8).prefetch(memory=1 << 20),
        "map": train.repeat().map(slow).batch(8),
        "rows": train.repeat().map(slow).filter(lambda row: True),
        "batch map": train.repeat().batch(4).map(slow),
        "prefetch": train.repeat().map(slow).batch(4).prefetch(3),
        "cache": train.map(slow).cache().batch(8),
        "two maps": train.repeat().map(slow).filter(lambda row: True).take(10**9).map(slow).batch(8).map(slow),
    }


def fail_in(loader: Any) -> None:
    for _ in loader:
        1 / 0  # noqa: B018


KINDS = ["native", "map", "rows", "batch map", "prefetch", "cache", "two maps"]
INTERRUPTED = ["native", "map", "prefetch"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["close", "break", "garbage", "error", "with"])
def test_threads_end_with_their_iterator(folder: Path, kind: str, how: str) -> None:
    before = threads()
    loader = loaders(ps.load(folder)["train"])[kind]
    began = time.monotonic()
    if how == "break":
        for _ in loader:
            break
    elif how == "with":
        with iter(loader) as iterator:
            next(iterator)
    elif how == "error":
        with pytest.raises(ZeroDivisionError):
            fail_in(loader)
    else:
        iterator = iter(loader)
        next(iterator)
        if how == "close":
            iterator.close()
            with pytest.raises(StopIteration):
                next(iterator)
        else:
            ring: list[Any] = [iterator]
            ring.append(ring)
            del iterator, ring
            gc.collect()
    assert settles(before)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_that_never_began_leaves_nothing(folder: Path, kind: str) -> None:
    before = threads()
    iterator = iter(loaders(ps.load(folder)["train"])[kind])
    iterator.state()
    del iterator
    assert settles(before)


def test_an_error_in_a_map_ends_the_others(folder: Path) -> None:
    before = threads()

    def broken(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] % 100 == 5:
            raise ValueError("no")
        return slow(row)

    for loader in (
        ps.load(folder)["train"].map(broken).batch(8),
        ps.load(folder)["train"].map(broken).batch(8).prefetch(2),
    ):
        with pytest.raises(ps.LoadError, match="ValueError: no"):
            list(loader)
        assert settles(before)


def test_many_epochs_leave_no_threads_and_no_files(folder: Path) -> None:
    loader = ps.load(folder)["train"].shuffle(1).batch(500)
    list(loader)
    before, files = threads(), len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        list(loader)
        next(iter(loader))
    assert settles(before)
    if files:
        assert len(os.listdir("/proc/self/fd")) <= files


@pytest.mark.parametrize("kind", INTERRUPTED)
def test_ctrl_c_ends_it_at_once(folder: Path, kind: str) -> None:
    program = textwrap.dedent(f"""
        import sys, threading, time
        sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
        import penstock as ps
        from tests.loading.test_threads import loaders
        began = False
        try:
            for batch in loaders(ps.load({str(folder)!r})["train"])[{kind!r}].epoch(0):
                if not began:
                    began = True
                    print("began", flush=True)
                time.sleep(0.001)
            time.sleep(60)
        except KeyboardInterrupt:
            print("stopped", flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "began\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert child.wait(timeout=10) == 0
    assert child.stdout.readline() == "stopped\n"
    assert time.monotonic() - began < 3


def _child(loader: Any, results: Any) -> None:
    results.put([int(i) for batch in loader for i in batch["id"]])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loaders_work_in_other_processes(folder: Path, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    context = multiprocessing.get_context(method)
    loader = ps.load(folder)["train"].shuffle(3).batch(64)
    running = iter(loader)
    next(running)  # threads of the parent are no concern of the child
    results = context.Queue()
    process = context.Process(target=_child, args=(loader.epoch(0), results))
    process.start()
    found = results.get(timeout=60)
    process.join(timeout=30)
    assert process.exitcode == 0
    assert found == [int(i) for batch in loader.epoch(0) for i in batch["id"]]
    running.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_an_iteration_does_not_outlive_a_fork(folder: Path) -> None:
    iterator = iter(ps.load(folder)["train"].batch(8))
    next(iterator)
    child = os.fork()
    if not child:
        code = 1
        try:
            next(iterator)
        except ps.PenstockError as error:
            code = 0 if "before a fork" in str(error) else 2
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    next(iterator)
    iterator.close()


def test_several_iterators_run_side_by_side(folder: Path) -> None:
    loader = ps.load(folder)["train"].shuffle(1).batch(100)
    a, b = iter(loader.epoch(0)), iter(loader.epoch(0))
    for one, other in zip(a, b, strict=True):
        assert (one["id"] == other["id"]).all()


def test_several_threads_share_a_split(folder: Path) -> None:
    train = ps.load(folder)["train"]
    want = train[:]["id"].tolist()
    found: dict[int, list[int]] = {}

    def read(number: int) -> None:
        found[number] = [int(train[i]["id"]) for i in range(0, COUNT, 7)]

    workers = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert list(found.values()) == [want[::7]] * 4


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is told by /proc")
def test_an_epoch_stays_within_its_memory(tmp_path: Path) -> None:
    rows = ({"id": i, "x": np.full(16000, i % 256, np.uint8)} for i in range(5000))
    ps.build(rows, tmp_path / "large", shards=4)
    program = textwrap.dedent(f"""
        import penstock as ps
        def peak():
            return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
        train = ps.load({str(tmp_path / "large")!r})["train"].prefetch(memory=4 << 20)
        for loader in (train.batch(16), train.map(dict).batch(16)):
            list(loader.take(2))
            before = peak()
            for batch in loader:
                pass
            print(round(peak() - before))
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert all(int(growth) < 16 for growth in done.stdout.split()), done.stdout  # MiB, of 80
