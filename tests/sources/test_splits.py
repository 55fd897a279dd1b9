"""Splits: every example in one of them, by its key alone; groups, labels, times, columns, folds; views of a source."""

from __future__ import annotations

import datetime
import hashlib
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RecordIndexError, SchemaError
from penstock.schema.columns import Array, Bytes, Ragged
from penstock.schema.example_class import Example, Skip
from penstock.schema.schema import Schema
from penstock.sources.protocol import StreamSubset, Subset, TableSubset
from penstock.sources.splits import Splits, split, splits

RATIOS = {"train": 0.6, "eval": 0.2, "test": 0.2}
KEYS = st.lists(st.text(max_size=8), unique=True, min_size=1, max_size=60)


def keyed(keys: list[str], **columns: list[Any]) -> list[dict[str, Any]]:
    """Examples with these keys, and enough others to leave no split empty."""
    rows = [{"__key__": key, **{name: values[i] for name, values in columns.items()}} for i, key in enumerate(keys)]
    fill = [f"fill {n}" for n in range(60)]
    return rows + [{"__key__": key, **dict.fromkeys(columns, key)} for key in fill]


def where(parts: Splits) -> dict[str, str]:
    """key -> split; each key once."""
    found = [(part.key(i), name) for name, part in parts.items() for i in range(len(part))]
    assert len({key for key, _ in found}) == len(found)
    return dict(found)


class Listing:
    """A source that says all it can."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.schema = Schema({"x": "int64"})
        self.loaded = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.loaded += 1
        return {"x": index, "label": index % 3}

    def key(self, index: int) -> str:
        return f"k{index}"

    def place(self, index: int) -> str:
        return f"rows.csv:{index}"

    def stamp(self, index: int) -> str:
        return f"s{index}"


class Known(Listing):
    """One that knows a column without loading."""

    def column(self, name: str) -> Any:
        return np.arange(self.count) % 3 if name == "label" else None


class Columns:
    """A table."""

    schema = None

    def __init__(self, **columns: Any) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self.columns.items()}

    def key(self, index: int) -> str:
        return f"row {index}"

    def take(self, indices: Array) -> dict[str, Any]:
        return {
            name: column[indices] if isinstance(column, np.ndarray) else [column[i] for i in indices.tolist()]
            for name, column in self.columns.items()
        }


# Ratios


def test_the_rule_is_the_one_that_is_promised() -> None:
    rows = [{"__key__": f"photo/{n}.jpg"} for n in range(100)]
    found = where(split(rows, seed=7, **RATIOS))
    for key, name in found.items():
        digest = hashlib.blake2b(key.encode(), digest_size=8, key=b"7", person=b"penstock split").digest()
        h = int.from_bytes(digest, "little")
        assert name == ("train" if h < 0.6 * 2**64 else "eval" if h < (0.6 + 0.2) * 2**64 else "test")
    known = where(split([{"__key__": key} for key in "abcdefghijklmnopqrst"], **RATIOS))
    assert "".join(known[key][1] for key in sorted(known)) == ("rrvrrrrrrrrrrrrrerer")


@given(KEYS, st.integers(-(2**40), 2**40))
def test_every_example_is_in_one_split(keys: list[str], seed: int) -> None:
    rows = keyed(keys)
    parts = split(rows, seed=seed, **RATIOS)
    indices = np.concatenate([part.indices for part in parts.values()])
    assert sorted(indices.tolist()) == list(range(len(rows)))
    assert all((np.diff(part.indices) > 0).all() for part in parts.values())
    assert list(parts) == list(RATIOS)


@given(KEYS, st.randoms(use_true_random=False))
def test_order_does_not_matter(keys: list[str], random: Any) -> None:
    rows = keyed(keys, label=[f"label {len(key) % 3}" for key in keys])
    shuffled = random.sample(rows, len(rows))
    assert where(split(rows, **RATIOS)) == where(split(shuffled, **RATIOS))
    assert where(split(rows, group="label", **RATIOS)) == where(split(shuffled, group="label", **RATIOS))
    assert where(split(rows, stratify="label", train=0.5, test=0.5)) == where(
        split(shuffled, stratify="label", train=0.5, test=0.5)
    )


@given(KEYS, st.integers(0, 60))
def test_added_data_moves_nothing(keys: list[str], count: int) -> None:
    groups = [key[:1] for key in keys]
    few = keyed(keys[:count], patient=groups[:count])
    many = keyed(keys, patient=groups)
    for options in ({}, {"group": "patient"}):
        before, after = where(split(few, **options, **RATIOS)), where(split(many, **options, **RATIOS))
        assert all(after[key] == name for key, name in before.items())


def test_ratios_are_met_and_seeds_differ() -> None:
    rows = list(range(20_000))
    parts = split(rows, **RATIOS)
    for name, ratio in RATIOS.items():
        assert abs(len(parts[name]) / len(rows) - ratio) < 5 * (ratio * (1 - ratio) / len(rows)) ** 0.5
    other = split(rows, seed=1, **RATIOS)
    shared = len(np.intersect1d(parts["eval"].indices, other["eval"].indices)) / len(parts["eval"])
    assert 0.15 < shared < 0.25


def test_one_split_may_take_all() -> None:
    assert len(split([{}], train=1)["train"]) == 1
    assert len(split([{}] * 9, train=1.0)["train"]) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": 0.8, "eval": 0.3}, r"expected ratios that sum to 1, got train=0\.8, eval=0\.3, the sum 1\.1"),
        ({"train": 80, "eval": 20}, "the sum 100"),
        ({"train": 1.0, "eval": 0.0}, r"expected a ratio above 0, got 0\.0 - at eval"),
        ({"train": 1.5, "eval": -0.5}, "expected a ratio above 0"),
        ({"train": float("nan")}, "expected a ratio above 0"),
        ({"train": float("inf")}, "sum to 1"),
        ({"train": "0.8"}, "expected a ratio above 0"),
        ({"train": True}, "expected a ratio above 0"),
        ({"all": 1.0}, "expected a split's name, got 'all'. \"all\" stands for all splits"),
        ({"a b": 1.0}, "expected a split's name, got 'a b'"),
        ({"a/b": 1.0}, "expected a split's name"),
        ({}, "expected one of ratios .* got none"),
        ({"train": 1.0, "folds": 3}, "got ratios and folds"),
        ({"train": 1.0, "by": "x"}, "got ratios and by"),
        ({"train": 1.0, "group": "x", "stratify": "x"}, "expected one of group and stratify, got both"),
        ({"train": 1.0, "group": 3}, "expected the name of a column, got 3 - at group"),
        ({"cut": 3}, 'expected the column that is cut, got none - at cut. Write by="date"'),
        ({"train": 1.0, "seed": "7"}, "expected an int below .* got '7' - at seed"),
        ({"train": 1.0, "seed": True}, "seed"),
        ({"folds": 1}, "expected 2 folds or more, got 1"),
        ({"train": 0.5, "test": 0.5, "group": "z"}, r"no column 'z' - at example 0\. The columns are: x, label"),
        ({"train": 0.5, "test": 0.5, "stratify": "labl"}, "no column 'labl' - at example 0. Did you mean 'label'"),
        ({"by": "z"}, "no column 'z'"),
    ],
)
def test_options_that_make_no_sense_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        split([{"x": n, "label": n % 2} for n in range(50)], **options)


@pytest.mark.parametrize("ratios", [[0.6, 0.3, 0.1], [0.7, 0.2, 0.1], [0.1] * 10, [1 / 3] * 3])
def test_ratios_that_sum_to_one_but_for_rounding_are_taken(ratios: list[float]) -> None:
    parts = split(list(range(2000)), **{f"s{n}": ratio for n, ratio in enumerate(ratios)})
    assert sum(map(len, parts.values())) == 2000


def test_empty_splits_are_errors() -> None:
    with pytest.raises(SchemaError, match=r"expected examples in every split, got none of 2 - at \w+.*\. Give it more"):
        split([{}, {}], **RATIOS)
    with pytest.raises(SchemaError, match="expected examples to split, got none"):
        split([], train=1.0)
    with pytest.raises(SchemaError, match=r"got none of 9 - at test\. Move the cut"):
        split([{"x": n} for n in range(9)], by="x", cut=100)


def test_what_is_no_source_is_an_error() -> None:
    for source in ("rows.csv", b"rows", 3, None):
        with pytest.raises(SchemaError, match="expected a source of examples, got"):
            split(source, train=1.0)
    with pytest.raises(SchemaError, match="expected a source without splits"):
        split(splits(train=[{}]), train=1.0)


# Groups and labels


@given(st.lists(st.integers(0, 12) | st.sampled_from(["a", "b"]), max_size=60))
def test_no_group_crosses_splits(groups: list[Any]) -> None:
    rows = keyed([f"k{n}" for n in range(len(groups))], patient=groups)
    parts = split(rows, group="patient", **RATIOS)
    homes: dict[Any, set[str]] = {}
    for name, part in parts.items():
        for row in part:
            homes.setdefault(row["patient"], set()).add(name)
    assert all(len(names) == 1 for names in homes.values())


def test_a_group_is_its_value_and_not_its_type() -> None:
    fill = [{"id": f"f{n}"} for n in range(50)]
    for forms in (
        [5, 5.0, np.int8(5), np.float32(5), "5", b"5", np.str_("5"), np.array(5)],
        ["é", "é".encode()],
        [0.1, np.float64(0.1), "0.1"],
        [np.datetime64("2020-01-01"), datetime.date(2020, 1, 1), "2020-01-01"],
        [True, np.True_],
    ):
        rows = [{"id": form} for form in forms] + fill
        parts = split(rows, group="id", **RATIOS)
        assert len({name for name, part in parts.items() if (part.indices < len(forms)).any()}) == 1


@pytest.mark.parametrize("value", [None, float("nan"), np.datetime64("NaT", "s"), np.ma.masked])
def test_a_missing_group_is_an_error(value: Any) -> None:
    with pytest.raises(SchemaError, match="expected a value in 'id', got nothing - at example 1"):
        split([{"id": 1}, {"id": value}], group="id", train=1.0)


def test_a_group_is_one_value() -> None:
    with pytest.raises(SchemaError, match="expected a text or a number, got list - at example 0"):
        split([{"id": [1]}], group="id", train=1.0)


@given(
    st.lists(st.sampled_from(["cat", "dog", None, 3]), min_size=1, max_size=80),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_each_label_is_dealt_out_to_within_one(labels: list[Any], parts_of: list[int]) -> None:
    ratios = {f"s{n}": part / sum(parts_of) for n, part in enumerate(parts_of)}
    rows = [{"label": label} for label in labels] + [{"label": "fill"}] * 40
    parts = split(rows, stratify="label", **ratios)
    assert sum(map(len, parts.values())) == len(rows)
    for label, total in Counter(row["label"] for row in rows).items():
        for name, ratio in ratios.items():
            count = sum(row["label"] == label for row in parts[name])
            assert abs(count - total * ratio) < 1 + 1e-6
            if abs(total * ratio - round(total * ratio)) < 1e-6 and len(ratios) == 2:
                assert count == round(total * ratio)


def test_stratify_is_exact_where_it_can_be() -> None:
    rows = [{"label": n % 10} for n in range(1000)]
    parts = split(rows, stratify="label", train=0.8, eval=0.1, test=0.1)
    for name, count in (("train", 80), ("eval", 10), ("test", 10)):
        assert set(Counter(row["label"] for row in parts[name]).values()) == {count}
    other = split(rows, stratify="label", seed=1, train=0.8, eval=0.1, test=0.1)
    assert other["eval"].indices.tolist() != parts["eval"].indices.tolist()


def test_added_labels_move_only_their_own_neighbours() -> None:
    rows = [{"__key__": f"k{n}", "label": n % 4} for n in range(400)]
    before = where(split(rows, stratify="label", train=0.8, test=0.2))
    after = where(split([*rows, {"__key__": "new", "label": 0}], stratify="label", train=0.8, test=0.2))
    moved = [key for key, name in before.items() if after[key] != name]
    assert len(moved) <= 1
    assert all(int(key[1:]) % 4 == 0 for key in moved)


# Time and columns


def test_a_cut_in_time() -> None:
    rows = [{"date": f"20{year}-12-31"} for year in range(10, 30)]
    parts = split(rows, by="date", cut="2020-01-01")
    assert list(parts) == ["train", "test"]
    assert [row["date"][:4] for row in parts["train"]] == [str(year) for year in range(2010, 2020)]

    three = split(rows, by="date", cut={"eval": "2018", "test": "2020-12-31"})
    assert [row["date"][:4] for row in three["eval"]] == ["2018", "2019"]
    assert three["test"][0]["date"] == "2020-12-31"
    named = split(rows, by="date", cut={"past": None, "future": datetime.date(2020, 1, 1)})
    assert {name: len(part) for name, part in named.items()} == {"past": 10, "future": 10}


@pytest.mark.parametrize(
    ("before", "after", "cut"),
    [
        ("2019-12-31T23:59:59", "2020-01-01 00:00", "2020-01-01"),
        ("2020-01-01T01:59:59.999+02:00", "2019-12-31T23:00-0100", "2020-01-01T00:00Z"),
        (
            np.datetime64("2019-12-31T23:59:59.999999999"),
            np.datetime64("2020-01-01", "ns"),
            np.datetime64("2020-01-01"),
        ),
        (datetime.datetime(2019, 12, 31), datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1)),
        (
            datetime.datetime(2020, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
            datetime.date(2020, 1, 1),
            "2020-01-01",
        ),
        (2019, np.int32(2020), 2020),
        (0.49, np.float32(0.5), 0.5),
        (-float("inf"), float("inf"), np.float64(0)),
    ],
)
def test_times_and_numbers_of_all_kinds(before: Any, after: Any, cut: Any) -> None:
    parts = split([{"at": after}, {"at": before}], by="at", cut=cut)
    assert parts["train"].indices.tolist() == [1]


@pytest.mark.parametrize(
    ("value", "cut", "message"),
    [
        ("soon", "2020", "expected a date, got 'soon' - at example 0. Write it as 2020-01-31"),
        ("20200101", "2020", "expected a date, got '20200101'"),
        ("2020-13-01", "2020", "expected a date"),
        (2019, "2020", "expected a date, got 2019 - at example 0. Give the cut as a number too"),
        (None, "2020", "expected a date, got None"),
        (np.datetime64("NaT", "s"), "2020", "expected a date"),
        ("2019", 2020, "expected a number, as the cut is one, got '2019'"),
        (float("nan"), 2020, "expected a number"),
        (True, 2020, "expected a number"),
        (1, {"eval": 5, "test": 3}, "expected cuts that rise"),
        (1, {"train": 5}, "expected where eval or test begins.* train is before"),
        (1, {}, "expected where eval or test begins"),
        (1, {"past": None}, "expected cuts that rise"),
        (1, {"all": 3}, "expected a split's name"),
        ("2020", "later", "expected a date, got 'later' - at cut"),
    ],
)
def test_cuts_that_make_no_sense_are_errors(value: Any, cut: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        split([{"at": value}], by="at", cut=cut)


def test_a_column_names_the_splits() -> None:
    names = ["test", "train", "eval", "train", b"train", np.str_("eval")]
    parts = split([{"split": name} for name in names], by="split")
    assert {name: part.indices.tolist() for name, part in parts.items()} == {
        "train": [1, 3, 4],
        "eval": [2, 5],
        "test": [0],
    }
    assert list(parts) == ["train", "eval", "test"]
    years = split([{"year": year} for year in (2014, 2013.0, np.int64(2014))], by="year")
    assert {name: len(part) for name, part in years.items()} == {"2013": 1, "2014": 2}
    for bad, message in (("a b", "expected a split's name"), ("", "got nothing"), (None, "got nothing - at example 1")):
        with pytest.raises(SchemaError, match=message):
            split([{"split": "train"}, {"split": bad}], by="split")


# Folds


@pytest.mark.parametrize("options", [{}, {"group": "patient"}, {"stratify": "patient"}])
def test_folds(options: dict[str, str]) -> None:
    rows = [{"patient": n // 4} for n in range(400)]
    folds = split(rows, folds=5, **options)
    assert list(folds) == ["fold-0", "fold-1", "fold-2", "fold-3", "fold-4"]
    assert sorted(np.concatenate([fold.indices for fold in folds.values()]).tolist()) == list(range(400))
    for name in folds:
        turn = folds.leave_out(name)
        assert list(turn) == ["train", "eval"]
        assert turn["eval"] is folds[name]
        assert turn["train"].indices.tolist() == sorted(set(range(400)) - set(folds[name].indices.tolist()))
        if "group" in options:
            assert not {row["patient"] for row in turn["train"]} & {row["patient"] for row in turn["eval"]}


def test_leave_out_needs_splits_of_one_source() -> None:
    for parts in (splits(train=[{}]), splits(train=[{}], eval=[{}])):
        with pytest.raises(SchemaError, match="expected splits of one listed source"):
            parts.leave_out("train")
    with pytest.raises(KeyError, match="no split 'fold-O'"):
        split(list(range(50)), folds=2).leave_out("fold-O")


# Splits and views


def test_splits_are_an_immutable_mapping() -> None:
    parts = splits(train=[{}, {}], eval=[{}], test=lambda: iter(()))
    assert list(parts) == ["train", "eval", "test"]
    assert parts["train"] == [{}, {}]
    assert repr(parts) == "Splits(train: 2, eval: 1, test: ?)"
    assert list(splits(**{"train-2013": [1]})) == ["train-2013"]
    with pytest.raises(KeyError, match=r"no split 'tran'\. Did you mean 'train'"):
        parts["tran"]
    with pytest.raises(TypeError):
        parts["train"] = []  # type: ignore[index]
    for bad in ({}, {"all": []}, {"a b": []}, {"train": 3}, {"train": "rows.csv"}, {"train": parts}, {3: []}):
        with pytest.raises(SchemaError):
            Splits(bad)  # type: ignore[arg-type]


def test_views_keep_what_the_source_knows() -> None:
    source = Listing(50)
    parts = split(source, **RATIOS)
    assert source.loaded == 0
    part = parts["eval"]
    assert type(part) is Subset
    first = int(part.indices[0])
    assert (part.key(0), part.place(0), part.stamp(0)) == (f"k{first}", f"rows.csv:{first}", f"s{first}")
    assert part.schema is source.schema
    assert part[0] == {"x": first, "label": first % 3}
    assert part[-1]["x"] == part.indices[-1]
    assert [row["x"] for row in part] == part.indices.tolist()
    assert repr(part) == f"Subset({len(part)} of 50 examples)"
    for index in (len(part), -len(part) - 1):
        with pytest.raises(RecordIndexError, match="is outside of a split"):
            part[index]
    assert not hasattr(part, "columns")
    copy = pickle.loads(pickle.dumps(parts))  # noqa: S301
    assert copy["eval"].key(0) == part.key(0)
    assert copy["eval"].indices.tolist() == part.indices.tolist()


def test_plain_lists_have_plain_answers() -> None:
    part = split([{"__key__": "a"}, {}], train=1.0)["train"]
    assert [part.key(0), part.key(1)] == ["a", "1"]
    assert [part.place(0), part.place(1)] == ["a", "example 1"]
    assert part.stamp(0) == ""
    assert part.schema is None


def test_a_view_of_a_view_is_one_view() -> None:
    source = Listing(100)
    train = split(source, train=0.5, rest=0.5)["train"]
    inner = split(train, seed=1, a=0.5, b=0.5)
    assert inner["a"].source is train.source
    assert set(where(inner)) == {train.key(i) for i in range(len(train))}
    assert sorted([*inner["a"].indices, *inner["b"].indices]) == train.indices.tolist()


def test_a_column_that_the_source_knows_loads_nothing() -> None:
    source = Known(90)
    parts = split(source, stratify="label", train=0.5, test=0.5)
    assert source.loaded == 0
    inner = split(parts["train"], stratify="label", a=0.5, b=0.5)
    assert source.loaded == 0
    assert sum(map(len, inner.values())) == len(parts["train"])
    split(source, group="x", train=0.5, test=0.5)
    assert source.loaded == 90


def test_views_of_a_table_are_tables() -> None:
    table = Columns(x=np.arange(40), name=[f"n{i}" for i in range(40)], at=np.datetime64("2020-01-01") + np.arange(40))
    parts = split(table, by="at", cut="2020-01-11")
    test = parts["test"]
    assert type(test) is TableSubset
    assert test.columns["x"].tolist() == list(range(10, 40))
    assert list(test.columns) == ["x", "name", "at"]
    assert test.columns["name"][0] == "n10"
    assert test.take([0, 2])["x"].tolist() == [10, 12]
    assert test.take([])["x"].tolist() == []
    assert test.key(0) == "row 10"
    inner = split(test, group="name", a=0.5, b=0.5)
    assert type(inner["a"]) is TableSubset
    assert inner["a"].source is test.source
    with pytest.raises(SchemaError, match=r"no column 'nme'\. Did you mean 'name'\? The columns are: x, name, at"):
        split(table, group="nme", train=1.0)


@pytest.mark.parametrize(
    "column",
    [
        np.array(["a", "b"] * 20),
        np.array(["a", "b"] * 20, dtype=object),
        Bytes.from_list(["a", "b"] * 20),
        Bytes.from_list([b"a", b"b"] * 20),
        ["a", "b"] * 20,
    ],
)
def test_columns_of_all_kinds(column: Any) -> None:
    parts = split(Columns(label=column), stratify="label", train=0.5, test=0.5)
    assert parts["train"].indices.tolist() == split([{"__key__": f"row {i}", "label": "ab"[i % 2]} for i in range(40)],
        stratify="label", train=0.5, test=0.5)["train"].indices.tolist()  # fmt: skip


def test_columns_of_many_values_are_errors() -> None:
    for column in (np.zeros((3, 2)), Ragged.from_rows([[1], [2, 3], []])):
        with pytest.raises(SchemaError, match="expected one value for each example, got"):
            split(Columns(x=column), group="x", train=1.0)


def test_missing_values_of_a_masked_column() -> None:
    column = np.ma.masked_array([1, 2, 3], [False, True, False])
    with pytest.raises(SchemaError, match="got nothing"):
        split(Columns(x=column), group="x", train=1.0)


def test_a_dict_of_arrays_is_a_table() -> None:
    table = pytest.importorskip("penstock.sources.table")
    parts = split({"x": np.arange(100), "label": ["a", "b"] * 50}, stratify="label", train=0.8, test=0.2)
    assert isinstance(parts["train"], TableSubset)
    assert isinstance(parts["train"].source, table.Table)
    assert sorted(parts["test"].take([0, 1])) == ["label", "x"]
    assert len(parts["test"]) == 20


class Scan(Example):
    name: Skip[str]
    patient: Skip[int]
    label: int | None

    def load(self) -> None:
        raise AssertionError("splitting loads nothing")


def test_examples_are_split_before_they_are_loaded() -> None:
    scans = [Scan(name=f"scan-{n}", patient=n // 10) for n in range(300)]
    parts = split(scans, group="patient", **RATIOS)
    assert sum(map(len, parts.values())) == 300
    homes = {name: {scan.patient for scan in part} for name, part in parts.items()}
    assert not homes["train"] & homes["test"]
    assert parts["train"].key(0).startswith("scan-")
    assert where(split(scans, **RATIOS)) == where(split([{"__key__": scan.name} for scan in scans], **RATIOS))
    with pytest.raises(SchemaError, match=r"no column 'patint' - at scan-0\. Did you mean 'patient'"):
        split(scans, group="patint", **RATIOS)


# Streams


def rows_of(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        yield {"__key__": f"k{n}", "patient": n // 5, "at": n, "split": "eval" if n % 4 == 0 else "train"}


def stream() -> Iterator[dict[str, Any]]:
    return rows_of(200)


@pytest.mark.parametrize(
    "options", [RATIOS, {**RATIOS, "group": "patient"}, {"by": "split"}, {"by": "at", "cut": 100}, {"folds": 3}]
)
def test_streams_are_split_as_lists_are(options: dict[str, Any]) -> None:
    listed = split(list(stream()), **options)
    streamed = split(stream, **options)
    assert list(streamed) == list(listed)
    for name in listed:
        assert isinstance(streamed[name], StreamSubset)
        assert list(streamed[name]) == list(listed[name])
        assert list(streamed[name]) == list(listed[name])  # again
    copy = pickle.loads(pickle.dumps(streamed))  # noqa: S301
    assert [list(part) for part in copy.values()] == [list(part) for part in listed.values()]


def test_a_stream_that_runs_once_cannot_be_read_split_by_split() -> None:
    parts = split(rows_of(200), **RATIOS)
    with pytest.raises(SchemaError, match=r"got one that runs once - at train\. Give the generator function itself"):
        list(parts["train"])
    with pytest.raises(SchemaError, match="got one that runs once"):
        split(rows_of(10), by="split")


def test_what_a_stream_cannot_do() -> None:
    with pytest.raises(SchemaError, match="stratify counts examples, and a stream has no length"):
        split(stream, stratify="patient", **RATIOS)
    with pytest.raises(SchemaError, match="expected examples in every split, got none - at test"):
        list(split(stream, by="at", cut=1000)["test"])
    with pytest.raises(SchemaError, match="no column 'z' - at k0"):
        list(split(stream, group="z", **RATIOS)["train"])


@settings(max_examples=20)
@given(st.integers(0, 2**63))
def test_folds_of_many_seeds_are_near_their_share(seed: int) -> None:
    sizes = [len(fold) for fold in split(list(range(1000)), folds=4, seed=seed).values()]
    assert all(abs(size - 250) < 6 * (1000 * 0.25 * 0.75) ** 0.5 for size in sizes)
