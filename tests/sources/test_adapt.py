"""Whatever a user gives becomes a source, once: lists, dicts, sequences, tables, streams, and splits of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.sources.adapt import ExampleList, UserBatchSource, UserSource, UserStream, UserTable, as_source
from penstock.sources.protocol import BatchSource, RecordSource, Source, Stream, TableSource
from penstock.sources.splits import as_splits
from penstock.sources.table import Table

ROWS = [{"x": n} for n in range(6)]


class Plain:
    """A length and an index, and nothing else."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"x": index}


class Talkative(Plain):
    """All that a user's class may say."""

    schema = ps.Schema({"x": "int64"})
    options = {"version": 2}  # noqa: RUF012

    def key(self, index: int) -> str:
        """Return a key."""
        return f"k{index}"

    def place(self, index: int) -> str:
        """Return a place."""
        return f"here:{index}"

    def stamp(self, index: int) -> str:
        """Return a stamp."""
        return f"s{index}"

    def column(self, name: str) -> list[int] | None:
        """Return a column."""
        return list(range(6)) if name == "x" else None


class Batches(Talkative):
    """One that loads many at once."""

    def take(self, rows: Any) -> dict[str, Any]:
        """Return columns."""
        return {"x": np.asarray(rows, np.int64)}


class Frame(Batches):
    """One that has columns."""

    columns = {"x": np.arange(6)}  # noqa: RUF012


def numbers() -> Iterator[dict[str, int]]:
    """A generator function."""
    return iter(ROWS)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (ROWS, ExampleList),
        (tuple(ROWS), ExampleList),
        (Plain(), UserSource),
        (Talkative(), UserSource),
        (Batches(), UserBatchSource),
        (Frame(), UserTable),
        ({"x": np.arange(6)}, Table),
        (np.array([(1,)], dtype=[("x", "i8")]), Table),
        (numbers, UserStream),
        (numbers(), UserStream),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_object_becomes_a_source(given: Any, kind: type) -> None:
    source = as_source(given)
    assert type(source) is kind
    assert as_source(source) is source
    if isinstance(source, Source) and kind is not Table:
        assert [source[n]["x"] for n in range(len(source))] == list(range(6))


@pytest.mark.parametrize("given", ["photos", Path("photos"), b"bytes", dict, 7, None])
def test_what_is_no_source_is_named(given: Any) -> None:
    with pytest.raises(ps.SchemaError, match="expected a source of examples, got"):
        as_source(given)


def test_what_an_object_leaves_out_has_defaults() -> None:
    source = as_source(Plain())
    assert isinstance(source, UserSource)
    assert (source.key(3), source.place(3), source.stamp(3)) == ("3", "example 3", "")
    assert (source.numbered, source.schema, source.options, source.column("x")) == (True, None, {}, None)
    assert list(source.all_keys()) == [str(n) for n in range(6)]


def test_what_an_object_says_is_used() -> None:
    source = as_source(Talkative())
    assert isinstance(source, UserSource)
    assert (source.key(3), source.place(3), source.stamp(3)) == ("k3", "here:3", "s3")
    assert (source.numbered, source.options) == (False, {"version": 2})
    assert source.schema == Talkative.schema
    assert list(source.stamps(np.array([1, 2]))) == ["s1", "s2"]
    assert source.column("x") == list(range(6))
    assert source.runs_user_code
    assert pickle.loads(pickle.dumps(source)).key(2) == "k2"  # noqa: S301  # our own


def test_our_own_sources_have_their_kind(tmp_path: Path) -> None:
    ps.build(ROWS, tmp_path / "x.tfrecord", workers=1)
    assert isinstance(ps.tfrecords(tmp_path / "x.tfrecord"), RecordSource)
    assert isinstance(ps.table({"x": [1, 2]}), TableSource)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    assert isinstance(ps.csv(tmp_path / "rows.csv"), BatchSource)
    assert isinstance(ps.examples(ROWS), Source)
    assert isinstance(ps.examples(numbers), Stream)


def test_streams_know_whether_they_start_again() -> None:
    again, once = as_source(numbers), as_source(numbers())
    assert isinstance(again, Stream)
    assert isinstance(once, Stream)
    assert (again.restarts, once.restarts) == (True, False)
    assert list(again) == list(again) == ROWS


def test_a_dict_of_lists_of_examples_is_splits(tmp_path: Path) -> None:
    built = ps.build({"train": ROWS, "test": ROWS[:2]}, tmp_path / "d", workers=1)
    assert {name: len(built[name]) for name in built} == {"train": 6, "test": 2}
    files = ps.build({"train": ROWS, "test": Plain()}, tmp_path / "{split}.tfrecord", workers=1)
    assert {name: len(files[name]) for name in files} == {"train": 6, "test": 6}


def test_a_dict_of_sources_is_splits(tmp_path: Path) -> None:
    given = {"train": Talkative(), "eval": numbers, "test": ps.table({"x": np.arange(3)})}
    built = ps.build(given, tmp_path / "d", workers=1)
    assert {name: len(built[name]) for name in built} == {"train": 6, "eval": 6, "test": 3}


@pytest.mark.parametrize(
    "columns",
    [{"x": [1, 2, 3], "y": ["a", "b", "c"]}, {"x": np.arange(3), "y": (1, 2, 3)}, {"train": [1, 2], "test": [3, 4]}],
)
def test_a_dict_of_columns_is_a_table(columns: dict[str, Any]) -> None:
    (source,) = as_splits(columns).values()
    assert isinstance(source, Table)
    assert list(source.columns) == list(columns)


def test_a_dict_of_both_is_an_error_that_says_how_to_choose() -> None:
    with pytest.raises(ps.SchemaError) as caught:
        as_splits({"train": ROWS, "x": [1, 2, 3]})
    said = str(caught.value)
    assert "expected a dict of columns or a dict of splits, got both: 'train' is a source, 'x' is a column" in said
    assert "Write splits(train=..., test=...) for splits, table({...}) for columns" in said


def test_columns_of_other_lengths_are_an_error() -> None:
    with pytest.raises(ps.SchemaError, match="expected columns of equal length, got train of 2, test of 1"):
        as_splits({"train": [1, 2], "test": [3]})


def test_splits_need_names_that_can_be_split_names() -> None:
    with pytest.raises(ps.SchemaError, match="expected a split's name, got 'a/b'"):
        as_splits({"a/b": ROWS})


def test_a_split_of_a_dataset_is_a_source(tmp_path: Path) -> None:
    """Its `take(count)` is not the `take(rows)` of a source."""
    ps.build(ROWS, tmp_path / "first", workers=1)
    split = ps.load(tmp_path / "first")["train"]
    assert type(as_source(split)) is UserSource
    built = ps.build(split, tmp_path / "second", workers=1)
    assert sorted(int(example["x"]) for example in built["train"]) == list(range(6))
