"""Builds: the same bytes whatever the workers and the order of the input, nothing lost, nothing mixed."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import pickle
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from tests.support.built_datasets import contents, examples, shard_counts

from penstock.building.api import Quarantine, build
from penstock.building.engines.local import Local
from penstock.dataset.manifest import WORK, read_manifest
from penstock.errors import ArgumentError, BuildError, CorruptionError, ExampleError, SchemaError
from penstock.records.codec import Codec
from penstock.records.tfrecord import TFRecord, TFRecordReader
from penstock.schema.example_class import Array as ArrayOf
from penstock.schema.example_class import Example, IgnoreExample, Skip
from penstock.schema.field import Field
from penstock.schema.schema import Schema
from penstock.sources.splits import split, splits

ROWS = [{"__key__": f"k{n}", "x": n, "text": "a" * (n % 7)} for n in range(500)]


class Files:
    """A listed source of text files, one number in each."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.txt"))
        self.schema = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"value": int(self.paths[index].read_text())}

    def key(self, index: int) -> str:
        return self.paths[index].name

    def place(self, index: int) -> str:
        return str(self.paths[index])

    def stamp(self, index: int) -> str:
        status = self.paths[index].stat()
        return f"{status.st_size}-{status.st_mtime_ns}"


@pytest.fixture
def files(tmp_path: Path) -> Callable[[int], Files]:
    def make(count: int) -> Files:
        folder = tmp_path / "files"
        folder.mkdir(exist_ok=True)
        for number in range(count):
            (folder / f"{number:04}.txt").write_text(str(number))
        return Files(folder)

    return make


# Sources


def test_rows_come_back(tmp_path: Path) -> None:
    built = build(ROWS, tmp_path / "toy")
    found = examples(tmp_path / "toy")
    assert {key: (int(e["x"]), e["text"]) for key, e in found.items()} == {
        row["__key__"]: (row["x"], row["text"]) for row in ROWS
    }
    assert repr(built) == f"Built({str(tmp_path / 'toy')!r}: train 500 in 1)"
    assert not (tmp_path / "toy" / WORK).exists()


def test_the_order_is_not_that_of_the_input(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "toy")
    assert list(examples(tmp_path / "toy")) != [row["__key__"] for row in ROWS]
    build(ROWS, tmp_path / "same", order="source")
    assert list(examples(tmp_path / "same")) == [row["__key__"] for row in ROWS]


def test_the_order_of_tfds(tmp_path: Path) -> None:
    """By the MD5 of split and key, whatever the seed; keys that are numbers are their digits."""

    def expected(keys: list[str]) -> list[str]:
        return sorted(keys, key=lambda key: hashlib.md5(f"train{key}".encode()).hexdigest())

    build(ROWS, tmp_path / "toy", order="tfds", seed=5)
    assert list(examples(tmp_path / "toy")) == expected([row["__key__"] for row in ROWS])
    numbers = build({"x": np.arange(100)}, tmp_path / "numbers", order="tfds", shards=3)
    assert [str(example["x"]) for example in numbers["train"]] == expected([str(n) for n in range(100)])
    with pytest.raises(SchemaError, match="expected each key once, got 'a' twice"):
        build([{"__key__": "a", "x": 1}] * 2, tmp_path / "twice", order="tfds")


@pytest.mark.parametrize("order", ["hash", "tfds"])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_bytes_do_not_depend_on_workers_nor_on_the_input_order(tmp_path: Path, workers: int, order: str) -> None:
    build(ROWS, tmp_path / "a" / "toy", shards=5, workers=1, order=order)
    shuffled = random.Random(workers).sample(ROWS, len(ROWS))
    build(shuffled, tmp_path / "b" / "toy", shards=5, workers=workers, order=order)
    assert contents(tmp_path / "a" / "toy") == contents(tmp_path / "b" / "toy")


@pytest.mark.parametrize("sync", [True, False])
def test_the_disk_is_waited_for_unless_told(tmp_path: Path, sync: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, opened = [], TFRecord.open_writer

    def spied(self: TFRecord, path: Path, **options: Any) -> Any:
        asked.append(options.get("sync"))
        return opened(self, path, **options)

    monkeypatch.setattr(TFRecord, "open_writer", spied)
    build(ROWS, tmp_path / "a" / "toy", shards=2, engine=Local(workers=1, sync=sync))
    assert asked == [sync, sync]
    build(ROWS, tmp_path / "b" / "toy", shards=2, workers=1)
    assert contents(tmp_path / "a" / "toy") == contents(tmp_path / "b" / "toy")


def test_whether_to_wait_is_a_yes_or_a_no() -> None:
    with pytest.raises(SchemaError, match="expected sync to be True or False, got 'no'"):
        Local(sync="no")  # type: ignore[arg-type]


@hypothesis.given(
    st.lists(
        st.tuples(st.text("abc/é", min_size=1, max_size=4), st.integers(-5, 5)), min_size=1, unique_by=lambda p: p[0]
    ),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
    st.integers(0, 3),
)
@hypothesis.settings(max_examples=25)
def test_any_order_of_any_keys_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[tuple[str, int]],
    any_order: random.Random,
    shards: int,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("order")
    rows = [{"__key__": key, "x": value} for key, value in pairs]
    build(rows, folder / "a" / "toy", shards=shards, seed=seed, workers=1)
    any_order.shuffle(rows)
    build(rows, folder / "b" / "toy", shards=shards, seed=seed, workers=1)
    assert contents(folder / "a" / "toy") == contents(folder / "b" / "toy")


def test_another_seed_is_another_order(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "a", seed=1)
    build(ROWS, tmp_path / "b", seed=2)
    a, b = examples(tmp_path / "a"), examples(tmp_path / "b")
    assert set(a) == set(b)
    assert list(a) != list(b)


def numbers() -> Iterator[dict[str, Any]]:
    for number in range(3000):
        yield {"x": number, "values": np.arange(number % 5, dtype=np.float32)}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_generator_function_is_a_source(tmp_path: Path, workers: int) -> None:
    build(numbers, tmp_path / "a" / "toy", workers=workers, shards=3)
    found = examples(tmp_path / "a" / "toy")
    assert sorted(int(example["x"]) for example in found.values()) == list(range(3000))
    assert list(found["7"]["values"]) == [0, 1]
    build(list(numbers()), tmp_path / "b" / "toy", shards=3)
    shards = [name for name in contents(tmp_path / "a" / "toy") if name != "penstock.json"]
    a, b = contents(tmp_path / "a" / "toy"), contents(tmp_path / "b" / "toy")
    assert all(a[name] == b[name] for name in shards)


def test_an_iterator_is_a_source_and_is_read_once(tmp_path: Path) -> None:
    build(numbers(), tmp_path / "toy", schema={"x": "int64", "values": "float32[?]"})
    assert len(examples(tmp_path / "toy")) == 3000
    build(iter([{"x": 1}, {"x": 2}]), tmp_path / "inferred")
    assert len(examples(tmp_path / "inferred")) == 2


def test_a_stream_may_give_keys(tmp_path: Path) -> None:
    build(lambda: iter(ROWS), tmp_path / "a" / "toy", shards=2)
    build(ROWS, tmp_path / "b" / "toy", shards=2)
    a, b = contents(tmp_path / "a" / "toy"), contents(tmp_path / "b" / "toy")
    assert a.keys() == b.keys()
    assert all(a[name] == b[name] for name in a if name != "penstock.json")


def test_columns_are_a_source(tmp_path: Path) -> None:
    columns = {"x": np.arange(1000), "y": np.random.default_rng(0).random((1000, 3), np.float32), "t": ["a"] * 1000}
    build(columns, tmp_path / "a" / "toy", shards=4)
    rows = [{"x": columns["x"][n], "y": columns["y"][n], "t": "a"} for n in range(1000)]
    build(rows, tmp_path / "b" / "toy", shards=4)
    a, b = contents(tmp_path / "a" / "toy"), contents(tmp_path / "b" / "toy")
    assert all(a[name] == b[name] for name in a if name != "penstock.json")


def test_splits_are_built_side_by_side(tmp_path: Path) -> None:
    built = build(split(ROWS, train=0.8, eval=0.2), tmp_path / "toy", shards=2)
    train, evaluation = examples(tmp_path / "toy"), examples(tmp_path / "toy", "eval")
    assert not train.keys() & evaluation.keys()
    assert len(train) + len(evaluation) == 500
    assert "train" in repr(built)
    assert "eval" in repr(built)


def test_splits_of_a_table_and_of_a_stream(tmp_path: Path) -> None:
    build(split({"x": np.arange(300)}, train=0.5, eval=0.5), tmp_path / "table")
    build(split(numbers, train=0.5, eval=0.5), tmp_path / "stream")
    for name, total in (("table", 300), ("stream", 3000)):
        counts = shard_counts(tmp_path / name)
        assert sum(map(sum, counts.values())) == total
        assert counts.keys() == {"train", "eval"}


@pytest.mark.parametrize("options", [{"train": 0.8, "test": 0.2}, {"by": "x", "cut": 300}])
def test_a_stream_is_read_once_for_all_of_its_splits(tmp_path: Path, options: dict[str, Any]) -> None:
    runs = []

    def stream() -> Iterator[dict[str, Any]]:
        runs.append(1)
        yield from ({"x": n if n < 400 else n + 0.5} for n in range(500))  # wider late in the stream

    def once() -> Iterator[dict[str, Any]]:
        yield from stream()

    rows = list(stream())
    runs.clear()
    build(split(stream, **options), tmp_path / "a" / "toy", shards=3)
    assert len(runs) == 1
    build(split(once(), **options), tmp_path / "b" / "toy", shards=3)
    build(split(rows, **options), tmp_path / "c" / "toy", shards=3)
    a, b, c = (contents(tmp_path / each / "toy") for each in "abc")
    assert all(a[name] == b[name] == c[name] for name in a if name != "penstock.json")
    assert a.keys() == c.keys()


def test_a_split_of_a_stream_that_stays_empty_is_an_error(tmp_path: Path) -> None:
    rows = ({"x": n} for n in range(500))
    with pytest.raises(SchemaError, match="expected examples in every split, got none - at test"):
        build(split(rows, by="x", cut=1000), tmp_path / "toy")
    assert not (tmp_path / "toy" / "penstock.json").exists()


def test_other_ratios_of_a_stream_are_another_source(tmp_path: Path) -> None:
    def stream() -> Iterator[dict[str, Any]]:
        yield from ({"x": n} for n in range(100))

    build(split(stream, train=0.8, test=0.2), tmp_path / "toy")
    with pytest.raises(BuildError, match="source test options rule bounds is another"):
        build(split(stream, train=0.7, test=0.3), tmp_path / "toy")


@pytest.mark.parametrize("source", ["photos/", 7, Example, None])
def test_what_is_no_source(tmp_path: Path, source: Any) -> None:
    with pytest.raises(SchemaError, match="expected a source of examples"):
        build(source, tmp_path / "toy")
    assert not (tmp_path / "toy").exists()


def test_a_path_is_told_which_source_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    for source in (path, str(path)):
        with pytest.raises(SchemaError, match=rf"got the path '{path}'. Such as penstock.csv\('{path}'\)"):
            build(source, tmp_path / "toy")


def test_an_empty_source_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="expected examples, got none"):
        build([], tmp_path / "toy")
    with pytest.raises(SchemaError, match="expected examples, got none"):
        build(lambda: iter([]), tmp_path / "toy")
    assert not (tmp_path / "toy" / "penstock.json").exists()


# Shards


def test_shards_are_named_as_tfds_names_them(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "my photos" / "1.0.0", shards=2)
    names = {path.name for path in (tmp_path / "my photos" / "1.0.0").iterdir()}
    shards = {f"my_photos-train.tfrecord-0000{n}-of-00002" for n in range(2)}
    assert names == {
        "penstock.json",
        "dataset_info.json",
        "features.json",
        *(name + suffix for name in shards for suffix in ("", ".index", ".keys")),
    }


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"shards": 3}, [167, 166, 167]),
        ({"format": TFRecord(shard_examples=200)}, [167, 166, 167]),
        ({"format": TFRecord(shard_examples=500)}, [500]),
        ({"format": TFRecord(shard_bytes=10**9)}, [500]),
    ],
)
def test_the_number_of_shards(tmp_path: Path, options: dict[str, Any], counts: list[int]) -> None:
    build(ROWS, tmp_path / "toy", workers=1, **options)
    assert shard_counts(tmp_path / "toy") == {"train": counts}


def test_no_shard_is_empty(tmp_path: Path) -> None:
    build(ROWS[:7], tmp_path / "toy", workers=1, shards=1000)
    assert shard_counts(tmp_path / "toy") == {"train": [1] * 7}


def test_shards_have_about_the_size_that_was_asked_for(tmp_path: Path) -> None:
    rows = [{"data": bytes(1000)} for _ in range(1000)]
    build(rows, tmp_path / "toy", format=TFRecord(shard_bytes=100_000))
    sizes = [shard.bytes for shard in read_manifest(tmp_path / "toy").splits["train"]]
    assert len(sizes) >= 10
    assert max(sizes) < 110_000


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_shards(tmp_path: Path, compression: str) -> None:
    build(ROWS, tmp_path / "toy", format=TFRecord(compression=compression), shards=2)
    assert TFRecordReader(tmp_path / "toy" / "toy-train.tfrecord-00000-of-00002").compression == compression
    assert len(examples(tmp_path / "toy")) == 500


def test_tensorflow_reads_the_shards(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    build(ROWS, tmp_path / "toy", shards=3)
    files = [str(tmp_path / "toy" / shard.file) for shard in read_manifest(tmp_path / "toy").splits["train"]]
    ours = [record for file in files for record in TFRecordReader(file)]
    assert [record.numpy() for record in tf.data.TFRecordDataset(files)] == ours
    parsed = tf.io.parse_single_example(ours[0], {"x": tf.io.FixedLenFeature([], tf.int64)})
    assert parsed["x"].numpy() == next(iter(examples(tmp_path / "toy").values()))["x"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "expected shards to be 1 or more, got 0"),
        ({"order": "random"}, "expected order to be 'hash' or 'source' or 'tfds', got 'random'"),
        ({"format": "parquet"}, "expected format to be 'tfrecord' or 'array_record', got 'parquet'"),
        ({"on_error": "Skip"}, "expected on_error to be 'raise' or 'skip' or 'quarantine', got 'Skip'"),
        ({"seed": -1}, "expected a seed"),
        ({"schema": "all"}, 'expected a schema or "full"'),
        ({"workers": 0}, "expected workers to be 1 or more"),
        ({"workers": 1, "engine": Local()}, "expected workers or an engine, got both"),
    ],
)
def test_options_are_checked_before_anything_is_done(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        build(ROWS, tmp_path / "toy", **options)
    assert not (tmp_path / "toy").exists()


@pytest.mark.parametrize(
    "options", [{"shard_bytes": 0}, {"shard_examples": 0}, {"shard_bytes": None}, {"shard_bytes": 1.5}]
)
def test_sizes_of_shards_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="to be 1 or more"):
        TFRecord(**options)


def test_duplicate_keys_name_both_places(tmp_path: Path) -> None:
    rows = [{"__key__": "a", "x": 1}, {"__key__": "b", "x": 2}, {"__key__": "a", "x": 3}]
    with pytest.raises(
        SchemaError, match="expected each key once, got 'a' twice, from example 0 and from example 2 - at train"
    ):
        build(rows, tmp_path / "toy")
    with pytest.raises(SchemaError, match="'a' twice, from example 0 and from example 2"):
        build(lambda: iter(rows), tmp_path / "stream")


# Bad examples


class Sometimes:
    """A source of numbers; some of its examples cannot be loaded, some do not want to be."""

    def __init__(self, bad: set[int], ignored: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.bad = bad
        self.ignored = ignored

    def __len__(self) -> int:
        return 50

    def __getitem__(self, number: int) -> dict[str, int]:
        if number in self.bad:
            raise ValueError(f"no number {number}")
        if number in self.ignored:
            raise IgnoreExample
        return {"x": number}

    def place(self, number: int) -> str:
        return f"somewhere.txt:{number}"


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_names_the_example(tmp_path: Path, workers: int) -> None:
    schema = {"x": "int64"}
    with pytest.raises(
        ExampleError, match=r"ValueError: no number 7 - in example '7' of train, from somewhere.txt:7"
    ) as e:
        build(Sometimes({7}), tmp_path / "toy", workers=workers, schema=schema, shards=2)
    assert (e.value.split, e.value.key, e.value.place) == ("train", "7", "somewhere.txt:7")
    assert "no number 7" in "".join(traceback.format_exception(e.value.__cause__))


def test_a_bad_example_in_the_sample_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match=r"no number 7 - in example '7' of train, from somewhere.txt:7"):
        build(Sometimes({7}), tmp_path / "toy")


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_examples_are_skipped_and_counted(tmp_path: Path, workers: int) -> None:
    built = build(Sometimes({3, 7}, {4}), tmp_path / "toy", on_error="skip", workers=workers)
    assert (built.bad, built.ignored) == (2, 1)
    assert examples(tmp_path / "toy").keys() == {str(n) for n in range(50)} - {"3", "4", "7"}
    assert not (tmp_path / "toy" / "quarantine.jsonl").exists()
    assert "2 bad, 1 ignored" in repr(built)


def test_quarantine_keeps_what_is_needed_to_mend_it(tmp_path: Path) -> None:
    build(Sometimes({3, 7}), tmp_path / "toy", on_error="quarantine")
    lines = [json.loads(line) for line in (tmp_path / "toy" / "quarantine.jsonl").read_text().splitlines()]
    assert {line["key"] for line in lines} == {"3", "7"}
    assert lines[0].keys() == {"split", "key", "place", "error", "traceback"}
    assert all("in __getitem__" in line["traceback"] for line in lines)
    built = build(Sometimes(set()), tmp_path / "toy", on_error="quarantine")  # mended: tried once more
    assert (built.bad, len(examples(tmp_path / "toy"))) == (0, 50)
    assert not (tmp_path / "toy" / "quarantine.jsonl").exists()


def test_a_quarantine_has_room_for_so_many(tmp_path: Path) -> None:
    assert build(Sometimes({3, 7}), tmp_path / "two", on_error=Quarantine(max_errors=2)).bad == 2
    with pytest.raises(BuildError, match="expected at most 1 bad examples, got 2: the last is ValueError: no number"):
        build(Sometimes({3, 7}), tmp_path / "one", on_error=Quarantine(max_errors=1))
    assert not (tmp_path / "one" / "penstock.json").exists()


def test_an_error_ends_all_workers(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as error:
        build(Sometimes({3}), tmp_path / "toy", on_error=Quarantine(max_errors=0), workers=2, shards=10)
    assert multiprocessing.active_children() == []
    assert error.traceback


def test_a_build_that_failed_goes_on_with_another_policy(tmp_path: Path) -> None:
    options: dict[str, Any] = {"schema": {"x": "int64"}, "shards": 5, "workers": 1, "order": "source"}
    with pytest.raises(ExampleError):
        build(Sometimes({49}), tmp_path / "toy", **options)
    built = build(Sometimes({49}), tmp_path / "toy", on_error="skip", **options)
    assert (built.kept, built.written, built.bad) == (4, 1, 1)


def test_a_build_of_nothing_but_bad_examples(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="expected examples, got none that could be stored"):
        build(Sometimes(set(range(50))), tmp_path / "toy", on_error="skip", schema={"x": "int64"})


# Schemas


def test_a_schema_is_widened_by_an_example_that_the_sample_has_not_seen(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"x": 1, "v": [1, 2]} for _ in range(2000)]
    rows[1500] = {"x": 0.5, "v": [1, 2, 3], "new": "text"}
    wide = build(rows, tmp_path / "a" / "toy", shards=4, workers=2)
    assert {name: str(field) for name, field in wide.manifest.schema.items()} == {
        "x": "float64",
        "v": "int64[?]",
        "new": "str?",
    }
    assert "x was int64, is float64" in wide.drift
    assert "in example '1500' of train" in wide.drift
    found = examples(tmp_path / "a" / "toy")
    assert (found["1500"]["x"], list(found["1500"]["v"]), found["1500"]["new"]) == (0.5, [1, 2, 3], "text")
    assert found["3"]["new"] is None
    full = build(rows, tmp_path / "b" / "toy", shards=4, schema="full")
    assert full.drift == ""
    assert contents(tmp_path / "a" / "toy") == contents(tmp_path / "b" / "toy")


def test_a_widened_schema_stays_when_the_build_is_run_again(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"x": 1} for _ in range(2000)]
    rows[1500] = {"x": 0.5}
    build(rows, tmp_path / "toy", shards=2)
    before = contents(tmp_path / "toy")
    build(rows, tmp_path / "toy", shards=2)
    assert contents(tmp_path / "toy") == before


def test_a_stream_is_widened_while_it_runs(tmp_path: Path) -> None:
    def stream() -> Iterator[dict[str, Any]]:
        for number in range(2000):
            yield {"x": number if number != 1500 else 0.5, **({"new": "text"} if number == 1700 else {})}

    build(stream, tmp_path / "a" / "toy", shards=3)
    build(list(stream()), tmp_path / "b" / "toy", shards=3)
    a, b = contents(tmp_path / "a" / "toy"), contents(tmp_path / "b" / "toy")
    assert all(a[name] == b[name] for name in a if name != "penstock.json")
    assert examples(tmp_path / "a" / "toy")["1500"]["x"] == 0.5


def test_a_field_that_the_sample_has_no_value_for(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"x": 1, "rare": None, "tags": []} for _ in range(2000)]
    rows[1999] |= {"rare": 7, "tags": ["a"]}
    build(rows, tmp_path / "toy")
    found = examples(tmp_path / "toy")
    assert found["1999"]["rare"] == 7
    assert found["1999"]["tags"] == ["a"]
    assert found["0"]["rare"] is None
    build(lambda: iter(rows), tmp_path / "stream")
    assert examples(tmp_path / "stream")["1999"]["rare"] == 7


def test_a_field_that_no_example_has_a_value_for_is_left_out(tmp_path: Path) -> None:
    built = build([{"x": 1, "never": None}] * 10, tmp_path / "toy")
    assert set(built.manifest.schema) == {"x"}


@pytest.mark.parametrize("at", [0, 1500])
def test_what_no_type_holds_names_example_field_and_types(tmp_path: Path, at: int) -> None:
    rows: list[dict[str, Any]] = [{"x": 1} for _ in range(2000)]
    rows[at] = {"x": "one"}
    with pytest.raises((SchemaError, ExampleError), match=r"no type holds both .* - at train\['\d+'\].x"):
        build(rows, tmp_path / "raise", workers=1)
    built = build(rows, tmp_path / "skip", on_error="skip")
    assert built.bad in (1, 1999)  # by which of them the sample has seen first


def test_a_declared_schema_is_never_widened(tmp_path: Path) -> None:
    rows = [{"x": 1}, {"x": 0.5}]
    with pytest.raises(ExampleError, match=r"SchemaError: expected int64, got float.* - in example '1' of train"):
        build(rows, tmp_path / "toy", schema={"x": "int64"})
    built = build(rows, tmp_path / "skip", schema={"x": "int64"}, on_error="skip")
    assert (built.bad, str(built.manifest.schema["x"])) == (1, "int64")


def test_what_a_source_is_sure_of_is_kept(tmp_path: Path) -> None:
    class Labelled(Sometimes):
        schema = Schema({"label": Field(dtype="int64", kind="label", classes=("cat", "dog"))})

        def __getitem__(self, number: int) -> dict[str, Any]:
            return {"label": number % 2, "size": number}

    built = build(Labelled(set()), tmp_path / "toy")
    field = built.manifest.schema["label"]
    assert isinstance(field, Field)
    assert field.classes == ("cat", "dog")
    assert str(built.manifest.schema["size"]) == "int64"


# Datasets that are there


def test_what_has_changed_is_said_and_refused(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "toy", shards=2)
    before = contents(tmp_path / "toy")
    for source, options, message in (
        (ROWS, {"shards": 3}, "options shards was 2, is 3"),
        (ROWS, {"shards": 2, "seed": 1}, "options seed was 0, is 1"),
        (ROWS, {"shards": 2, "format": TFRecord(compression="gzip")}, "compression was not said, is 'gzip'"),
        (ROWS[1:], {"shards": 2}, "source train examples was 500, is 499"),
        (
            ROWS,
            {"shards": 2, "schema": {"x": "int64", "text": "str"}},
            "options schema is new",
        ),
        (splits(train=ROWS, eval=ROWS), {"shards": 2}, "source eval is new"),
        ({"x": np.arange(3), "y": np.arange(3)}, {"shards": 2}, "source train columns is new"),
    ):
        with pytest.raises(BuildError, match=message) as error:
            build(source, tmp_path / "toy", **options)  # type: ignore[arg-type]
        assert "overwrite=True" in str(error.value)
        assert contents(tmp_path / "toy") == before
    build(ROWS[1:], tmp_path / "toy", shards=3, overwrite=True)
    assert shard_counts(tmp_path / "toy") == {"train": [166, 167, 166]}


def test_only_affected_shards_are_written_again(tmp_path: Path, files: Callable[[int], Files]) -> None:
    source = files(200)
    built = build(source, tmp_path / "toy", shards=20)
    assert (built.written, built.kept) == (20, 0)
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "toy").iterdir()}
    again = build(source, tmp_path / "toy", shards=20)
    assert (again.written, again.kept) == (0, 20)
    assert {path.name: path.stat().st_ino for path in (tmp_path / "toy").iterdir()} == inodes
    source.paths[17].write_text("1234567")
    changed = build(source, tmp_path / "toy", shards=20)
    assert (changed.written, changed.kept) == (1, 19)
    assert examples(tmp_path / "toy")["0017.txt"]["value"] == 1234567
    build(source, tmp_path / "fresh" / "toy", shards=20)
    assert contents(tmp_path / "toy") == contents(tmp_path / "fresh" / "toy")


def test_a_broken_manifest_is_replaced_when_told(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "toy")
    (tmp_path / "toy" / "penstock.json").write_text("{")
    with pytest.raises(CorruptionError, match="expected a manifest"):
        build(ROWS, tmp_path / "toy")
    assert build(ROWS, tmp_path / "toy", overwrite=True).written == 1


def test_sources_are_never_touched(tmp_path: Path, files: Callable[[int], Files]) -> None:
    source = files(20)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.paths}
    build(source, tmp_path / "files", shards=4)  # into the very folder
    build(source, tmp_path / "files", shards=2, overwrite=True)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.paths} == before


def test_a_damaged_shard_of_a_dataset_is_written_again(tmp_path: Path, files: Callable[[int], Files]) -> None:
    source = files(20)
    build(source, tmp_path / "toy", shards=4)
    before = contents(tmp_path / "toy")
    shard = tmp_path / "toy" / "toy-train.tfrecord-00002-of-00004"
    shard.write_bytes(shard.read_bytes()[:-3] + b"abc")
    assert build(source, tmp_path / "toy", shards=4).written == 1
    assert contents(tmp_path / "toy") == before


def test_other_code_of_a_generator_is_another_source(tmp_path: Path) -> None:
    def one() -> Iterator[dict[str, int]]:
        yield {"x": 1}

    def two() -> Iterator[dict[str, int]]:
        yield {"x": 2}

    build(one, tmp_path / "toy")
    build(one, tmp_path / "toy")
    with pytest.raises(BuildError, match="source train code is other code"):
        build(two, tmp_path / "toy")


def test_a_stream_that_has_grown_gets_more_shards(tmp_path: Path) -> None:
    count = 10

    def stream() -> Iterator[dict[str, bytes]]:
        for _ in range(count):
            yield {"data": bytes(1000)}

    build(stream, tmp_path / "toy", format=TFRecord(shard_bytes=20_000))
    assert len(shard_counts(tmp_path / "toy")["train"]) == 1
    count = 100
    build(stream, tmp_path / "toy", format=TFRecord(shard_bytes=20_000))
    assert len(shard_counts(tmp_path / "toy")["train"]) > 4
    assert len(examples(tmp_path / "toy")) == 100


def test_other_values_of_a_table_are_another_source(tmp_path: Path) -> None:
    build({"x": np.arange(10)}, tmp_path / "toy")
    build({"x": np.arange(10)}, tmp_path / "toy")
    with pytest.raises(BuildError, match="source train columns x is another"):
        build({"x": np.arange(10) + 1}, tmp_path / "toy")


# Leakage


def test_content_in_two_splits_is_reported(tmp_path: Path) -> None:
    train = [{"__key__": f"t{n}", "x": n} for n in range(100)]
    evaluation = [{"__key__": f"e{n}", "x": n} for n in range(95, 120)]
    built = build(splits(train=train, eval=evaluation), tmp_path / "toy", shards=3)
    assert built.leaks == 5
    assert {str(leak) for leak in built.leaking} == {f"train['t{n}'] = eval['e{n}']" for n in range(95, 100)}
    assert built.manifest.found["leaks"] == 5
    again = build(splits(train=train, eval=evaluation), tmp_path / "toy", shards=3, overwrite=True)
    assert again.leaks == 5


def test_the_same_content_within_one_split_is_no_leak(tmp_path: Path) -> None:
    built = build(splits(train=[{"x": 1}] * 5, eval=[{"x": 2}]), tmp_path / "toy")
    assert (built.leaks, built.leaking) == (0, ())


# One becomes many


class Recording(Example):
    name: Skip[str]
    label: int
    data: ArrayOf[np.float32, None]

    def load(self) -> None:
        if self.label == 13:
            raise IgnoreExample
        self.data = np.arange(self.label, dtype=np.float32)

    def split(self) -> Iterator[Recording]:
        for start in range(0, len(self.data), 4):
            yield self.replace(data=self.data[start : start + 4])


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_one_example_becomes_many(tmp_path: Path, workers: int) -> None:
    recordings = [Recording(name=f"r{n}", label=n) for n in range(40)]
    built = build(random.Random(workers).sample(recordings, 40), tmp_path / "a" / "toy", shards=3, workers=workers)
    assert built.ignored == 1
    found = examples(tmp_path / "a" / "toy")
    assert found.keys() == {f"r{n}/{at}" for n in range(40) if n != 13 for at in range(-(-n // 4))}
    assert list(found["r9/2"]["data"]) == [8]
    build(recordings, tmp_path / "b" / "toy", shards=3, workers=1)
    a, b = contents(tmp_path / "a" / "toy"), contents(tmp_path / "b" / "toy")
    assert a == b


def test_a_stream_of_examples_that_become_many(tmp_path: Path) -> None:
    build(lambda: (Recording(name=f"r{n}", label=n) for n in range(40)), tmp_path / "a" / "toy", shards=3)
    build([Recording(name=f"r{n}", label=n) for n in range(40)], tmp_path / "b" / "toy", shards=3)
    a, b = contents(tmp_path / "a" / "toy"), contents(tmp_path / "b" / "toy")
    assert all(a[name] == b[name] for name in a if name != "penstock.json")


# Processes


def test_tasks_travel(tmp_path: Path) -> None:
    """What an engine of another machine would send: nothing holds a handle."""
    from penstock.building.encode import Job
    from penstock.building.plan import Task
    from penstock.building.write import write_shard
    from penstock.sources.adapt import as_source

    (tmp_path / WORK).mkdir()
    schema = Schema({"x": "int64"})
    sources = {"train": as_source(Sometimes(set()))}
    job = Job(tmp_path, sources, {"train": None}, schema, True, True, (TFRecord(),), "raise", 1 << 20)
    task = Task("train", "shard", np.arange(5), [str(n) for n in range(5)])
    job, task = pickle.loads(pickle.dumps((job, task)))  # noqa: S301  # our own
    assert pickle.loads(pickle.dumps(write_shard(job, task, lambda *_: None))).records == 5  # noqa: S301  # our own


def test_a_build_next_to_other_threads(tmp_path: Path) -> None:
    """Workers are forked while threads of the parent hold locks and decode batches."""
    build(ROWS, tmp_path / "before", workers=1)
    stop = threading.Event()
    reader = TFRecordReader(tmp_path / "before" / "before-train.tfrecord-00000-of-00001")
    codec = Codec(read_manifest(tmp_path / "before").schema)

    def busy() -> None:
        while not stop.is_set():
            list(reader.batches(codec, 64))

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(3):
            build(ROWS, tmp_path / f"toy{number}", workers=2, shards=4)
            assert len(examples(tmp_path / f"toy{number}")) == 500
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_builds_in_a_forked_child(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "parent", workers=2)
    process = multiprocessing.get_context("fork").Process(target=build, args=(ROWS, tmp_path / "child"))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert len(examples(tmp_path / "child")) == 500


MEMORY = """
import resource, sys
from pathlib import Path
import numpy as np
import penstock as ps

class Big:
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, number):
        return {"data": np.full(1 << 18, number, np.float32), "number": number}

class Many(ps.Example):
    name: ps.Skip[str]
    number: int
    data: ps.Array[np.float32, 1 << 18]
    def split(self):
        for number in range(2):
            yield self.replace(number=number, data=np.full(1 << 18, number, np.float32))

def build(count, path):
    listed = Big(count)
    many = [Many(name=str(number)) for number in range(count // 2)]
    stream = lambda: (listed[number] for number in range(count))
    source = {"stream": stream, "listed": listed, "many": many}[sys.argv[2]]
    schema = {"data": "float32[262144]", "number": "int64"}
    ps.build(source, path, schema=schema, shards=8, engine=ps.Local(workers=2, max_memory=32 << 20))

def most():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

build(8, sys.argv[1] + "-small")  # what is imported, and lies around afterwards, is not what is asked for
Path("/proc/self/clear_refs").write_text("5")  # forgets the most that there was so far
before = most()
build(640, sys.argv[1])
print(most() - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize("kind", ["listed", "stream", "many"])
def test_memory_stays_within_the_budget(tmp_path: Path, kind: str) -> None:
    """640 MB of examples, 20 times the budget of 32 MB: what the processes take beyond their start stays within it.

    Within a quarter more, to be exact: the allocator keeps some of what it is given back.
    """
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "toy"), kind], capture_output=True, text=True, check=True
    )
    own, largest = map(int, done.stdout.split())
    assert max(own, 2 * largest) < 40 << 10, done.stdout  # in KB
