"""Many shards as one sequence, and the feed over them in any order."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock._core import Feed, Order, Shards

CODEC = ps.Codec({"n": "int64", "text": "str", "x": "float32[?]"})
COUNTS = (700, 0, 1, 299, 2000)
TOTAL = sum(COUNTS)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"n": n, "text": f"example {n}", "x": np.arange(n % 5, dtype=np.float32)} for n in range(first, first + count)
    ]


def written(folder: Path, counts: tuple[int, ...], compression: str | None = None, index: bool = True) -> Any:
    """Shards of so many records, numbered through: what `Shards` takes."""
    sources, first = [], 0
    for shard, count in enumerate(counts):
        path = folder / f"{shard}.tfrecord"
        with ps.TFRecordWriter(path, ps.TFRecord(compression=compression), index=index) as writer:
            writer.write_examples(CODEC, rows(first, count))
        sources.append((str(path), count, f"{path}.index" if index else None, None))
        first += count
    return sources


@pytest.fixture(scope="module", params=[None, "gzip"])
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return Shards(written(tmp_path_factory.mktemp("shards"), COUNTS, request.param))


def feed(shards: Shards, order: Order, **options: Any) -> Feed:
    usual = {"epoch": 0, "start": 0, "stop": None, "batch": 64, "drop_remainder": False, "threads": 2}
    usual |= {"budget": 1 << 22, "images": None, "skip": False}
    return shards.feed(CODEC.plan, order, **(usual | options))


def numbers(batches: Feed) -> Iterator[list[int]]:
    for raw in batches:
        batch = CODEC.to_batch(raw)
        assert len(batch["n"]) == batches.rows
        assert list(batch["text"]) == [f"example {n}" for n in batch["n"]]
        assert np.diff(batch["x"].row_splits).tolist() == [n % 5 for n in batch["n"]]
        yield batch["n"].tolist()


# Shards


def test_any_record_by_its_number(shards: Shards) -> None:
    assert len(shards) == TOTAL
    for number in (0, 699, 700, 701, 999, 1000, TOTAL - 1):
        assert shards.example(CODEC.plan, number)["n"] == number
        assert CODEC.decode([shards.read(number)])["n"].tolist() == [number]
    assert [shards.shard(number) for number in (0, 699, 700, 701, 1000)] == [(0, 0), (0, 699), (2, 0), (3, 0), (4, 0)]
    for read in (shards.read, shards.shard, lambda number: shards.example(CODEC.plan, number)):
        with pytest.raises(ps.RecordIndexError, match=f"expected a record number below {TOTAL}, got {TOTAL}"):
            read(TOTAL)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_some_records_as_a_batch(shards: Shards, threads: int) -> None:
    for chosen in (np.random.default_rng(1).integers(0, TOTAL, 20_000), np.arange(5), np.array([], np.int64)):
        for asked in (chosen, chosen.tolist()):
            batch = CODEC.to_batch(shards.examples(CODEC.plan, asked, threads=threads))
            assert (batch["n"] == chosen).all()
            assert list(batch["text"]) == [f"example {n}" for n in chosen]
            assert (np.diff(batch["x"].row_splits) == chosen % 5).all()
    for wrong in ([TOTAL], np.array([-1])):
        with pytest.raises(ps.RecordIndexError):
            shards.examples(CODEC.plan, wrong)
    with pytest.raises(TypeError, match="expected record numbers"):
        shards.examples(CODEC.plan, ["a"])  # type: ignore[list-item]


def test_a_shard_of_another_length_than_was_said_is_refused_when_it_is_needed(tmp_path: Path) -> None:
    (first, *_), (second, *_) = written(tmp_path, (5, 6))
    shards = Shards([(first, 5, None, None), (second, 7, None, None), (str(tmp_path / "missing"), 3, None, None)])
    assert shards.example(CODEC.plan, 4)["n"] == 4
    with pytest.raises(ps.CorruptionError, match=r"expected a shard of 7 records, got 6 - at .*1\.tfrecord"):
        shards.read(5)
    with pytest.raises(ps.NotFoundError, match="missing"):
        shards.read(12)
    with pytest.raises(ps.CorruptionError, match="got 6"):
        list(feed(shards, Order.span(0, 6)))


def test_an_index_that_does_not_fit_is_not_used(tmp_path: Path) -> None:
    sources = written(tmp_path, (5, 6))
    os.replace(sources[0][2], sources[1][2])
    assert Shards(sources).example(CODEC.plan, 10)["n"] == 10


@pytest.mark.alone
def test_thousands_of_shards_need_few_files(tmp_path: Path) -> None:
    sources = written(tmp_path, (2,) * 700)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(used + 240, hard), hard))
    try:
        shards = Shards(sources)
        order = Order.span(0, 1400).shuffle(1)
        for epoch in range(3):
            assert sorted(itertools.chain.from_iterable(numbers(feed(shards, order, epoch=epoch, threads=4)))) == list(
                range(1400)
            )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# The feed


ORDERS = st.sampled_from(
    [
        Order.span(0, TOTAL),
        Order.span(0, TOTAL).shuffle(1),
        Order.span(0, TOTAL).shuffle(2, 50),
        Order.span(500, 1500).shuffle(3).repeat(3).slice(1, None, 3),
        Order.mix([Order.span(0, 700).shuffle(4), Order.span(1000, TOTAL)], [2, 1], 5).echo(2),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    ORDERS,
    st.integers(0, 9),
    st.integers(1, 700),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from([0, 5000, 1 << 24]),
    st.data(),
)
def test_batches_are_runs_of_the_order(
    shards: Shards, order: Order, epoch: int, size: int, drop: bool, threads: int, budget: int, data: st.DataObject
) -> None:
    assert order.length is not None
    start = data.draw(st.integers(0, order.length))
    stop = data.draw(st.one_of(st.none(), st.integers(start, order.length)))
    expected = order.numbers(epoch, start, order.length if stop is None else stop).tolist()
    batches = [expected[first : first + size] for first in range(0, len(expected), size)]
    if drop and batches and len(batches[-1]) < size:
        batches.pop()
    options = {"epoch": epoch, "start": start, "stop": stop, "batch": size, "drop_remainder": drop}
    assert list(numbers(feed(shards, order, threads=threads, budget=budget, **options))) == batches


def test_a_feed_without_end_goes_on(shards: Shards) -> None:
    order = Order.span(0, TOTAL).shuffle(1).repeat(None)
    batches = numbers(feed(shards, order, epoch=4, batch=1000))
    found = list(itertools.chain.from_iterable(next(batches) for _ in range(9)))
    assert found == order.numbers(4, 0, 9000).tolist()


def test_options_that_make_no_sense(shards: Shards) -> None:
    for options in ({"batch": 0}, {"threads": 0}, {"start": 7}, {"stop": 7}, {"start": 3, "stop": 2}):
        with pytest.raises(ps.SchemaError, match="expected"):
            feed(shards, Order.span(0, 6), **options)
    with pytest.raises(ps.RecordIndexError, match=f"below {TOTAL}"):
        list(feed(shards, Order.span(TOTAL, TOTAL + 1)))


def test_an_error_names_file_offset_record_and_field(shards: Shards) -> None:
    other = ps.Codec({"n": "int64", "text": "int64"})
    with pytest.raises(ps.SchemaError, match=r"3\.tfrecord, offset \d+, record 4, field \"text\""):
        list(
            shards.feed(
                other.plan, Order.span(705, 800), epoch=0, start=0, stop=None, batch=8, drop_remainder=False,
                threads=2, budget=1 << 20, images=None, skip=False,
            )
        )  # fmt: skip


@pytest.fixture
def damaged(tmp_path: Path) -> Shards:
    """Records 3, 20 and 21 are damaged."""
    sources = written(tmp_path, (10, 90))
    for shard, record in ((0, 3), (1, 10), (1, 11)):
        path = Path(sources[shard][0])
        data = bytearray(path.read_bytes())
        data[int(ps.TFRecordReader(path).offsets[record]) + 14] ^= 1
        path.write_bytes(data)
    return Shards(sources)


def test_bad_records_end_a_feed_or_are_left_out_and_reported(damaged: Shards) -> None:
    with pytest.raises(ps.CorruptionError) as caught:
        list(feed(damaged, Order.span(5, 100), batch=4))
    assert (caught.value.record, caught.value.offset is not None) == (10, True)
    order = Order.span(0, 100).shuffle(2).echo(2)
    for size, threads in ((1, 2), (7, 1), (7, 3), (500, 2)):
        batches = feed(damaged, order, batch=size, threads=threads, start=1, skip=True)
        found, skipped = [], []
        for raw in batches:
            found += CODEC.to_batch(raw)["n"].tolist()
            skipped += batches.skipped
        expected = order.numbers(0, 1, 200)
        bad = [(1 + at, number) for at, number in enumerate(expected.tolist()) if number in (3, 20, 21)]
        assert found == [number for number in expected.tolist() if number not in (3, 20, 21)]
        assert [(position, number) for position, number, _ in skipped] == bad
        assert all(
            "expected the record's data CRC" in message and ".tfrecord, offset" in message for *_, message in skipped
        )
        assert batches.stats()["records"] == len(found)


def test_a_file_that_changed_while_it_was_not_open_is_an_error(tmp_path: Path) -> None:
    ((path, *_),) = written(tmp_path, (5,))
    script = """
        import sys
        from penstock._core import Shards
        from penstock import errors
        path, folder = sys.argv[1:]
        shards = Shards([(path, 5, None, None)] + [(f"{folder}/{n}.tfrecord", 1, None, None) for n in range(400)])
        shards.read(0)
        for number in range(5, 405):
            shards.read(number)
        open(path, "ab").write(b"more")
        try:
            shards.read(1)
        except errors.LoadError as error:
            print(error)
    """
    (tmp_path / "many").mkdir()
    written(tmp_path / "many", (1,) * 400, index=False)
    command = [sys.executable, "-c", textwrap.dedent(script), path, str(tmp_path / "many")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "Call ps.load again" in done.stdout, done.stdout + done.stderr


def test_stats_say_where_the_time_went(shards: Shards) -> None:
    batches = feed(shards, Order.span(0, TOTAL), batch=100, budget=0)
    next(batches)
    time.sleep(0.05)
    list(batches)
    stats = batches.stats()
    assert set(stats) == {"read", "check", "decode", "image", "full", "empty", "records", "bytes", "batches"}
    assert (stats["records"], stats["batches"]) == (TOTAL, 30)
    assert stats["bytes"] > 50 * TOTAL
    assert min(stats[stage] for stage in ("read", "check", "decode", "empty")) > 0
    assert stats["full"] > 0.02, "a thread waited for room"
    batches.close()
    ended = batches.stats()
    assert ended == pytest.approx(stats, abs=0.05)  # a thread that waited for room may note it only now
    assert all(ended[stage] >= stats[stage] for stage in stats)
    assert batches.stats() == ended
    assert list(batches) == []


@pytest.mark.alone
def test_what_waits_stays_within_the_budget(tmp_path: Path) -> None:
    """Batches of 4 MB each, and a consumer that sleeps: memory holds the budget, not the epoch."""
    codec = ps.Codec({"x": "bytes"})
    path = tmp_path / "large.tfrecord"
    with ps.TFRecordWriter(path, index=True) as writer:
        for _ in range(60):
            writer.write_examples(codec, [{"x": bytes(1 << 20)}] * 4)
    script = """
        import sys, time
        import penstock as ps
        from penstock._core import Order, Shards
        def most():  # not ru_maxrss, which begins with what the parent process had when it forked
            return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
        path = sys.argv[1]
        codec = ps.Codec({"x": "bytes"})
        shards = Shards([(path, 240, path + ".index", None)])
        shards.read(0)
        before = most()
        feed = shards.feed(codec.plan, Order.span(0, 240).shuffle(1), epoch=0, start=0, stop=None, batch=4,
            drop_remainder=False, threads=2, budget=24 << 20, images=None, skip=False)
        rows = 0
        for raw in feed:
            if not rows:
                time.sleep(0.5)
            rows += feed.rows
        assert rows == 240
        print((most() - before) // 1024)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 80


def test_a_fork_while_shards_are_opened_harms_no_one(tmp_path: Path) -> None:
    sources = written(tmp_path, (20,) * 60)
    script = """
        import os, sys
        from penstock._core import Order, Shards
        import penstock as ps
        codec = ps.Codec({"n": "int64"})
        sources = eval(sys.argv[1])
        options = dict(epoch=0, start=0, stop=None, batch=16, drop_remainder=False, threads=2)
        options |= dict(budget=1 << 20, images=None, skip=False)
        for attempt in range(30):
            shards = Shards(sources)
            feed = shards.feed(codec.plan, Order.span(0, 1200).shuffle(attempt), **options)
            next(feed)
            child = os.fork()
            if child == 0:
                again = shards.feed(codec.plan, Order.span(0, 1200), **options)
                os._exit(0 if sum(len(batch["n"]) for batch in again) == 1200 else 1)
            assert sum(len(batch["n"]) for batch in feed) == 1200 - 16
            assert os.waitpid(child, 0)[1] == 0
        print("fine")
    """
    command = [sys.executable, "-c", textwrap.dedent(script), repr(sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "fine\n", done.stderr
