"""Threads, forks, signals: feeds end at once, whoever holds them and however they end."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

ROWS = 800_000  # more bytes than a feed of three threads reads ahead
CODEC = ps.Codec({"n": "int64", "x": "float32[13]"})


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("processes") / "a.tfrecord"
    with ps.TFRecordWriter(path) as writer:
        writer.write_columns(CODEC, {"n": np.arange(ROWS), "x": np.zeros((ROWS, 13), np.float32)})
    return path


def feed_threads() -> int:
    """How many threads of ours run in this process."""
    names = [task / "comm" for task in Path("/proc/self/task").iterdir()]
    found = 0
    for name in names:
        try:
            found += name.read_text().startswith("penstock")
        except OSError:  # it ended meanwhile
            continue
    return found


def wait_for_threads(count: int) -> None:
    """A thread takes its name only once it runs."""
    deadline = time.monotonic() + 5
    while feed_threads() != count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert feed_threads() == count


@pytest.fixture(autouse=True)
def no_threads_before_and_after() -> Iterator[None]:
    gc.collect()
    wait_for_threads(0)
    yield
    gc.collect()
    wait_for_threads(0)


def run(script: str, *arguments: object, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own, which must end by itself."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


# How a feed ends


def test_a_feed_has_threads_while_it_runs_and_none_when_it_is_through(shard: Path) -> None:
    batches = ps.TFRecordReader(shard).batches(CODEC, 100, threads=3)
    next(batches)
    wait_for_threads(3)
    assert sum(len(batch["n"]) for batch in batches) == ROWS - 100
    assert feed_threads() == 0


def test_breaking_out_ends_the_threads_at_once(shard: Path) -> None:
    for batch in ps.TFRecordReader(shard).batches(CODEC, 100, threads=3):
        assert len(batch["n"]) == 100
        wait_for_threads(3)
        break
    gc.collect()
    assert feed_threads() == 0


def test_closing_the_generator_ends_the_threads_at_once(shard: Path) -> None:
    batches: Any = ps.TFRecordReader(shard).batches(CODEC, 100, threads=3)
    next(batches)
    wait_for_threads(3)
    batches.close()
    assert feed_threads() == 0
    assert list(batches) == []


def test_an_exception_in_the_consumer_ends_the_threads_at_once(shard: Path) -> None:
    def consume() -> None:
        for batch in ps.TFRecordReader(shard).batches(CODEC, 100, threads=3):
            raise RuntimeError(len(batch["n"]))

    with pytest.raises(RuntimeError, match="100"):
        consume()
    gc.collect()
    assert feed_threads() == 0


def test_a_feed_that_no_one_holds_any_more_ends(shard: Path) -> None:
    for taken in (0, 1, 5):
        batches = ps.TFRecordReader(shard).batches(CODEC, 100, threads=3)
        for _ in range(taken):
            next(batches)
        wait_for_threads(3)
        del batches
        gc.collect()
        assert feed_threads() == 0


def test_a_feed_that_fails_ends(shard: Path) -> None:
    batches = ps.TFRecordReader(shard).batches(ps.Codec({"other": "int64"}), 100, threads=3)
    with pytest.raises(ps.SchemaError, match="record 0"):
        next(batches)
    assert list(batches) == []
    assert feed_threads() == 0


def test_a_slow_consumer_is_waited_for(shard: Path) -> None:
    """What is decoded ahead is bounded: a consumer that sleeps finds some batches, not all of them."""
    reader = ps.TFRecordReader(shard)
    batches = reader.batches(CODEC, 10, threads=2)
    next(batches)
    before = memory()
    time.sleep(0.3)
    assert memory() - before < 64 << 20
    assert [batch["n"][0] for batch in batches] == list(range(10, ROWS, 10))


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Threads


def test_many_threads_read_through_one_reader(shard: Path) -> None:
    reader = ps.TFRecordReader(shard)

    def work(seed: int) -> bool:
        chance = np.random.default_rng(seed)
        for number in chance.integers(0, ROWS, 300).tolist():
            assert reader.example(CODEC, number)["n"] == number
        chosen = chance.integers(0, ROWS, 500)
        assert (reader.examples(CODEC, chosen)["n"] == chosen).all()
        assert CODEC.decode(reader[seed * 10 : seed * 10 + 10])["n"].tolist() == list(range(seed * 10, seed * 10 + 10))
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_many_threads_run_feeds_of_one_reader(shard: Path) -> None:
    reader = ps.TFRecordReader(shard)

    def work(threads: int) -> int:
        return sum(int(batch["n"].sum()) for batch in reader.batches(CODEC, 1000, threads=threads))

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(work, [1, 2, 3, 4])) == {ROWS * (ROWS - 1) // 2}


def test_many_threads_take_from_one_feed_and_share_its_batches(shard: Path) -> None:
    feed = ps.TFRecordReader(shard)._shard.feed(CODEC._plan, (0, ROWS), 100, False, 2)
    seen: list[int] = []

    def work() -> None:
        for batch in feed:
            seen.append(int(batch["n"][0]))  # noqa: PERF401 (other threads append too)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert sorted(seen) == list(range(0, ROWS, 100))


def test_other_python_threads_run_while_the_core_works(tmp_path: Path) -> None:
    """The GIL is released: a thread goes on counting while another one encodes."""
    codec = ps.Codec({"z": ps.Field(dtype="float64", shape=(1000,), encoding="zlib")})
    columns = {"z": np.random.default_rng(1).random((3000, 1000))}
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    began = time.monotonic()
    codec.encode(columns, threads=1)
    took = time.monotonic() - began
    done.set()
    thread.join()
    assert counted > took / 0.001 / 20


# Processes


def test_pickles_of_readers_codecs_and_records_open_anew(shard: Path) -> None:
    reader = ps.TFRecordReader(shard)
    again, codec, records = pickle.loads(pickle.dumps((reader, CODEC, reader[:3])))  # noqa: S301
    assert (len(again), again.path) == (ROWS, reader.path)
    assert codec.decode(records)["n"].tolist() == [0, 1, 2]
    assert again.example(codec, -1)["n"] == ROWS - 1


def total_of(job: tuple[ps.TFRecordReader, ps.Codec, ps.Records, int]) -> int:
    """What a process of a pool does: a part of an epoch."""
    reader, codec, records, start = job
    assert len(codec.decode(records)["n"]) == 5
    return sum(int(batch["n"].sum()) for batch in reader.batches(codec, 64, start=start, stop=start + 1000))


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_any_kind_take_pickled_readers(method: str, shard: Path) -> None:
    if method == "fork":
        script = """
            import multiprocessing, sys
            import penstock as ps
            reader = ps.TFRecordReader(sys.argv[1])
            codec = ps.Codec({"n": "int64"})
            def total(start):
                return sum(int(batch["n"].sum()) for batch in reader.batches(codec, 64, start=start, stop=start + 1000))
            next(reader.batches(codec, 10))     # its threads are not there in the children
            with multiprocessing.get_context("fork").Pool(2) as pool:
                found = pool.map(total, [0, 5000])
            assert found == [sum(range(1000)), sum(range(5000, 6000))], found
            print("fine")
        """
        done = run(script, shard)
        assert done.stdout == "fine\n", done.stderr
        return
    reader = ps.TFRecordReader(shard)
    script = """
        import multiprocessing, sys
        sys.path.insert(0, sys.argv[2])
        from tests.test_processes import CODEC, total_of
        import penstock as ps
        if __name__ == "__main__":
            reader = ps.TFRecordReader(sys.argv[1])
            with multiprocessing.get_context(sys.argv[3]).Pool(2) as pool:
                found = pool.map(total_of, [(reader, CODEC, reader[:5], start) for start in (0, 5000)])
            assert found == [sum(range(1000)), sum(range(5000, 6000))], found
            print("fine")
    """
    assert len(reader) == ROWS
    file = shard.with_name(f"{method}.py")
    file.write_text(textwrap.dedent(script))
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, str(file), str(shard), str(root), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "fine\n", done.stderr


def test_a_fork_while_a_feed_runs_harms_no_one(shard: Path) -> None:
    """The child cannot go on with the parent's feed and is told so; it can start one, and drop what it inherited."""
    script = """
        import gc, os, sys
        import penstock as ps
        reader = ps.TFRecordReader(sys.argv[1])
        codec = ps.Codec({"n": "int64"})
        for attempt in range(20):
            batches = reader.batches(codec, 100, threads=2)
            first = next(batches)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    try:
                        for batch in batches:
                            pass
                    except ps.SchemaError as error:
                        assert "Start iterating in the child process" in str(error), error
                        status = 2
                    del batches
                    gc.collect()
                    rows = sum(len(batch["n"]) for batch in reader.batches(codec, 1000))
                    assert rows == len(reader)
                    assert reader[5]
                    status = 0 if status == 2 else status
                finally:
                    os._exit(status)
            rest = sum(len(batch["n"]) for batch in batches)
            assert rest == len(reader) - 100, rest
            _, status = os.waitpid(child, 0)
            assert status == 0, status
        print("fine")
    """
    done = run(script, shard, seconds=90)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


# Ctrl-C


INTERRUPTED = """
    import os, signal, sys, threading, time
    import numpy as np
    import penstock as ps
    from penstock.records.index import write_index
    from penstock.records.tfrecord import verify

    path, job = sys.argv[1:]

    def interrupt():
        time.sleep(0.3)
        print(time.monotonic(), flush=True)
        os.kill(os.getpid(), signal.SIGINT)

    def wait_for_the_feed():
        # A pipe's worth of batches is taken over and over: the feed is always at work.
        reader = ps.TFRecordReader(path)
        codec = ps.Codec({"x": "float32[?]"})
        while True:
            for batch in reader.batches(codec, 64):
                pass

    def verify_it():
        while True:
            verify(path)

    def index_it():
        while True:
            write_index(path)

    def open_it():
        while True:
            ps.TFRecordReader(path, index=False)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        {"batches": wait_for_the_feed, "verify": verify_it, "index": index_it, "open": open_it}[job]()
    except KeyboardInterrupt:
        print(time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("job", ["batches", "verify", "index", "open"])
def test_ctrl_c_ends_long_work_at_once(job: str, tmp_path: Path) -> None:
    path = tmp_path / "large.tfrecord"
    codec = ps.Codec({"x": "float32[?]"})
    rows = ps.Ragged(np.zeros(20_000_000, np.float32), np.arange(0, 20_000_001, 2000))
    with ps.TFRecordWriter(path, ps.TFRecord(compression="gzip", level=1) if job == "open" else None) as writer:
        writer.write_columns(codec, {"x": rows})
    done = run(INTERRUPTED, path, job)
    assert done.returncode == 0, done.stderr
    sent, ended = map(float, done.stdout.split())
    assert ended - sent < 2


def test_sigint_by_its_default_ends_the_process(shard: Path) -> None:
    script = """
        import sys
        import penstock as ps
        codec = ps.Codec({"n": "int64"})
        print("ready", flush=True)
        while True:
            for batch in ps.TFRecordReader(sys.argv[1]).batches(codec, 10):
                pass
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(shard)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert time.monotonic() - began < 2
        assert process.returncode != 0
        assert process.stderr is not None
        assert "KeyboardInterrupt" in process.stderr.read()
