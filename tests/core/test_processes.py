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

pytestmark = pytest.mark.alone  # measures time, memory, threads or signals

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
    feed = ps.TFRecordReader(shard)._shard.feed(CODEC.plan, (0, ROWS), 100, False, 2)
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
        from tests.core.test_processes import CODEC, total_of
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
    root = Path(__file__).resolve().parents[2]
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


def test_a_child_that_closes_an_inherited_feed_goes_on(shard: Path) -> None:
    """Another thread waits in the feed while the process forks: its lock is held for good in the child."""
    script = """
        import os, sys, threading, time
        import penstock as ps
        ended = threading.Event()
        def bring(path):
            time.sleep(0.02)
            if ended.is_set():
                raise ps.StorageError("no more")
            return False
        from penstock._core import Order, Shards
        codec = ps.Codec({"n": "int64"})
        shards = Shards([(sys.argv[1], 1000, None, None)], bring)
        options = dict(epoch=0, start=0, stop=None, batch=10, drop_remainder=False, threads=2, budget=1 << 20)
        feed = shards.feed(codec.plan, Order.span(0, 1000), **options, images=None, skip=False)
        def wait():
            try:
                next(feed)
            except ps.StorageError:
                pass
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        for attempt in range(10):
            time.sleep(0.013)
            child = os.fork()
            if child == 0:
                feed.close()
                try:
                    feed.stats()
                    os._exit(2)
                except ps.SchemaError as error:
                    assert "Start iterating in the child process" in str(error), error
                try:
                    next(feed)
                    os._exit(3)
                except ps.SchemaError as error:
                    assert "Start iterating in the child process" in str(error), error
                assert feed.rows == 0 and feed.skipped == []
                del feed
                os._exit(0)
            deadline = time.monotonic() + 20
            while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.01)
            if found[0] == 0:
                os.kill(child, 9)
                os.waitpid(child, 0)
                print("hangs")
                break
            assert found[1] == 0, found
        else:
            print("fine")
        ended.set()
        thread.join()
    """
    done = run(script, shard, seconds=90)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.parametrize("kind", ["batch", "prefetch", "map"])
def test_a_child_that_closes_an_inherited_iteration_goes_on(kind: str, tmp_path: Path) -> None:
    script = """
        import os, sys, threading, time
        import numpy as np
        import penstock as ps
        kind, folder = sys.argv[1:]
        ps.build(({"n": n} for n in range(20_000)), folder, shards=2)
        loader = ps.load(folder)["train"].shuffle(seed=1)
        if kind == "prefetch":
            loader = loader.batch(10).map(lambda batch: time.sleep(0.001) or batch).prefetch(2)
        elif kind == "map":
            loader = loader.map(lambda example: time.sleep(0.0002) or example, threads=2).batch(10)
        else:
            loader = loader.batch(10)
        for attempt in range(10):
            iterator = iter(loader)
            next(iterator)
            stop = threading.Event()
            def work():
                for batch in iterator:
                    if stop.is_set():
                        return
            thread = threading.Thread(target=work)
            thread.start()
            time.sleep(0.003 * attempt)
            child = os.fork()
            if child == 0:
                iterator.close()
                iterator.close()
                del iterator
                os._exit(0)
            deadline = time.monotonic() + 20
            while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.01)
            stop.set()
            thread.join()
            iterator.close()
            if found[0] == 0:
                os.kill(child, 9)
                os.waitpid(child, 0)
                print("hangs")
                break
            assert found[1] == 0, found
        else:
            print("fine")
    """
    done = run(script, kind, tmp_path / "d", seconds=100)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


WRITERS = """
    import gc, os, sys, tarfile
    import numpy as np
    import penstock as ps
    kind, path = sys.argv[1:]
    def open_one():
        if kind == "tfrecord":
            return ps.TFRecordWriter(path)
        if kind == "gzip":
            return ps.TFRecordWriter(path, ps.TFRecord(compression="gzip"))
        if kind == "synced":
            return ps.TFRecordWriter(path)
        return ps.ArrayRecordWriter(path)
    writer = open_one()
    large = bytes(1 << 20)
    if kind == "synced":
        writer.native.sync_along()
        for _ in range(40):
            writer.write(large)
    writer.write(b"one")
    child = os.fork()
    if child == 0:
        if os.environ["HOW"] == "drop":
            del writer
            gc.collect()
        elif os.environ["HOW"] == "abandon":
            writer.native.abandon()
        else:
            try:
                writer.close()
                os._exit(3)
            except ps.PenstockError as error:
                assert "process" in str(error), error
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    writer.write(b"two")
    writer.close()
    reader = ps.ArrayRecordReader(path) if kind == "array_record" else ps.TFRecordReader(path)
    assert [bytes(reader[-2]), bytes(reader[-1])] == [b"one", b"two"]
    assert sorted(name for name in os.listdir(os.path.dirname(path)) if name.endswith(".partial")) == []
    print("fine")
"""


@pytest.mark.parametrize("how", ["drop", "abandon", "close"])
@pytest.mark.parametrize("kind", ["tfrecord", "gzip", "array_record", "synced"])
def test_a_child_leaves_an_inherited_writers_file_alone(
    kind: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOW", how)
    done = run(WRITERS, kind, tmp_path / "w")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


# The end of the interpreter


@pytest.mark.parametrize("waits", ["feed", "daemon", "example"])
def test_the_interpreter_ends_while_a_shard_is_waited_for(waits: str, shard: Path) -> None:
    """A thread that comes back into Python after its end would be ended there, in the midst of ours: an abort."""
    script = """
        import sys, threading, time
        import penstock as ps
        from penstock._core import Order, Shards
        def bring(path):
            time.sleep(0.05)
            return False
        shards = Shards([(sys.argv[1], 1000, None, None)], bring)
        plan = ps.Codec({"n": "int64"}).plan
        options = dict(epoch=0, start=0, stop=None, batch=10, drop_remainder=False, threads=8, budget=1 << 20)
        if sys.argv[2] == "example":
            for _ in range(8):
                threading.Thread(target=lambda: shards.example(plan, 3), daemon=True).start()
        else:
            feed = shards.feed(plan, Order.span(0, 1000), **options, images=None, skip=False)
            sys.feed = feed                     # nobody closes it
            if sys.argv[2] == "daemon":
                threading.Thread(target=next, args=(feed,), daemon=True).start()
        time.sleep(0.3)
        print("fine", flush=True)
    """
    for _ in range(3):
        done = run(script, shard, waits)
        assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_a_thread_that_works_ahead_has_ended_when_the_interpreter_ends(tmp_path: Path) -> None:
    """A daemon's thread that is in C++ then, torch's for example, ends the process with an abort."""
    script = """
        import atexit, sys, threading
        def seen():
            names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
            print("left", names, flush=True)
        atexit.register(seen)                   # before Penstock's: it runs after it
        import penstock as ps
        ps.build(({"n": n} for n in range(2000)), sys.argv[1], shards=2)
        loader = ps.load(sys.argv[1])["train"].batch(10).map(lambda batch: batch).prefetch(2)
        iterator = iter(loader)
        next(iterator)
        sys.kept = iterator
    """
    done = run(script, tmp_path / "d")
    assert (done.returncode, done.stdout, done.stderr) == (0, "left []\n", "")


# Ctrl-C


INTERRUPTED = """
    import os, signal, sys, threading, time
    import numpy as np
    import penstock as ps
    from penstock.records.index import write_index
    from penstock.records.shard import verify

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
