"""Builds: the same bytes whatever the workers and the order of the input, nothing lost, nothing mixed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from penstock.build import Local, build
from penstock.errors import SchemaError
from penstock.example import Example
from penstock.manifest import WORK, read_keys, read_manifest
from penstock.records.codec import Codec
from penstock.records.tfrecord import TFRecord, TFRecordReader
from penstock.splits import split

ROWS = [{"__key__": f"k{n}", "x": n, "text": "a" * (n % 7)} for n in range(500)]


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a dataset but the manifest's time of making."""
    found = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    manifest = json.loads(found.pop("penstock.json"))
    del manifest["made"]
    return found | {"penstock.json": json.dumps(manifest).encode()}


def examples(directory: Path, split: str = "train") -> dict[str, dict[str, Any]]:
    """The examples of a split by key, in the order of their records."""
    manifest = read_manifest(directory)
    codec = Codec(manifest.schema)
    found = {}
    for shard in manifest.splits[split]:
        reader = TFRecordReader(directory / shard.file)
        assert len(reader) == shard.records
        keys = read_keys(directory / shard.file)
        found.update({key: codec.decode_example(record) for key, record in zip(keys, reader, strict=True)})
    return found


def shard_counts(directory: Path) -> dict[str, list[int]]:
    return {name: [shard.records for shard in shards] for name, shards in read_manifest(directory).splits.items()}


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


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_bytes_do_not_depend_on_workers_nor_on_the_input_order(tmp_path: Path, workers: int) -> None:
    build(ROWS, tmp_path / "a" / "toy", shards=5, workers=1)
    shuffled = random.Random(workers).sample(ROWS, len(ROWS))
    build(shuffled, tmp_path / "b" / "toy", shards=5, workers=workers)
    assert contents(tmp_path / "a" / "toy") == contents(tmp_path / "b" / "toy")


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


@pytest.mark.parametrize("source", ["photos/", 7, Example, None])
def test_what_is_no_source(tmp_path: Path, source: Any) -> None:
    with pytest.raises(SchemaError, match="expected a source of examples"):
        build(source, tmp_path / "toy")
    assert not (tmp_path / "toy").exists()


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
    assert names == {"penstock.json", *(name + suffix for name in shards for suffix in ("", ".index", ".keys"))}


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"shards": 3}, [167, 166, 167]),
        ({"shards": 1000}, [1] * 500),
        ({"format": TFRecord(shard_examples=200)}, [167, 166, 167]),
        ({"format": TFRecord(shard_examples=500)}, [500]),
        ({"format": TFRecord(shard_bytes=10**9)}, [500]),
    ],
)
def test_the_number_of_shards(tmp_path: Path, options: dict[str, Any], counts: list[int]) -> None:
    build(ROWS, tmp_path / "toy", workers=1, **options)
    assert shard_counts(tmp_path / "toy") == {"train": counts}


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
        ({"order": "random"}, "expected order to be 'hash' or 'source', got 'random'"),
        ({"format": "parquet"}, "expected format to be 'tfrecord', got 'parquet'"),
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
    with pytest.raises(SchemaError, match="to be 1 or more"):
        TFRecord(**options)


def test_duplicate_keys_name_both_places(tmp_path: Path) -> None:
    rows = [{"__key__": "a", "x": 1}, {"__key__": "b", "x": 2}, {"__key__": "a", "x": 3}]
    with pytest.raises(
        SchemaError, match="expected each key once, got 'a' twice, from example 0 and from example 2 - at train"
    ):
        build(rows, tmp_path / "toy")
    with pytest.raises(SchemaError, match="'a' twice, from example 0 and from example 2"):
        build(lambda: iter(rows), tmp_path / "stream")
