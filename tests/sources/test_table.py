"""Tables from arrays, memory maps, pandas, Arrow and Parquet."""

from __future__ import annotations

import datetime
import pickle
import sys
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import (
    Bytes,
    CorruptionError,
    Field,
    MissingDependencyError,
    NotFoundError,
    Ragged,
    RecordIndexError,
    SchemaError,
)
from penstock.records.codec import Codec
from penstock.schema.columns import gather_rows
from penstock.sources.table import Table, parquet, table


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def check_rows(source: Table, expected: dict[str, list[Any]]) -> None:
    """The rows one by one, some of them as columns, and all of them through records."""
    rows = len(next(iter(expected.values())))
    assert len(source) == rows
    for index in range(rows):
        assert {name: plain(value) for name, value in source[index].items()} == {
            n: v[index] for n, v in expected.items()
        }
    order = [*range(rows - 1, -1, -1), 0]
    again = Table(source.take(order))
    for index, row in enumerate(order):
        assert {name: plain(v) for name, v in again[index].items()} == {n: plain(v) for n, v in source[row].items()}
    codec = Codec(source.schema)
    assert list(codec.encode(source.columns)) == list(codec.encode_examples([source[i] for i in range(rows)]))


def test_a_dict_of_arrays() -> None:
    columns = {
        "a": np.arange(3, dtype=np.int16),
        "b": np.ones((3, 2, 2), np.float32),
        "c": ["x", "yy", ""],
        "d": [1, None, 3],
        "e": np.array(["p", "q", "r"]),
        "f": [[1, 2], [3], [4, 5]],
        "g": Ragged.from_rows([[1.5], [], [2.5, 3.5]]),
        "h": [True, False, True],
    }
    source = table(columns)
    types = {"a": "int16", "b": "float32[2,2]", "c": "str", "d": "int64?", "e": "str", "f": "int64[?]",
             "g": "float64[?]", "h": "bool"}  # fmt: skip
    assert {name: str(field) for name, field in source.schema.items()} == types
    expected = {**columns, "a": [0, 1, 2], "b": [[[1.0, 1.0], [1.0, 1.0]]] * 3, "e": ["p", "q", "r"]}
    check_rows(source, {**expected, "g": [[1.5], [], [2.5, 3.5]]})
    assert source.key(2) == "2"
    assert source.place(2) == "row 2"
    assert table(source) is source


def test_keys_name_rows() -> None:
    source = table({"id": ["a", "b"], "n": [1, 2]}, key=["id", "n"])
    assert source.key(1) == "b/2"


def test_structured_arrays() -> None:
    source = table(np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")]))
    check_rows(source, {"a": [1, 3], "b": [2.5, 4.5]})


def test_image_bytes_are_images() -> None:
    source = table({"image": [b"\x89PNG\r\n\x1a\n..", b"GIF89a.."], "other": [b"GIF89a..", b"no"]})
    assert source.schema["image"].kind == "image"
    assert source.schema["other"].kind == "tensor"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 2)), 'Give the array a name: {"data": array}'),
        (7, "got int"),
        ({"a": [1, 2], "b": [1]}, "columns of equal length, got a of 2, b of 1"),
        ({"a": np.zeros(2, "datetime64[s]")}, "Store times as integers"),
        ({"a": np.zeros(2, complex)}, "got complex128"),
        ({1: [1]}, "expected columns with names"),
        ({"a": np.float32(1)}, "expected a column, got a single value"),
        ({"a": "text"}, "expected a column, got str"),
        ({"a": [1, "x"]}, "no type holds both"),
        ({"a": [None, None]}, "expected a value in at least one"),
    ],
)
def test_what_is_no_table(data: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        table(data)
    assert message in str(caught.value)


def test_memory_maps_travel_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(2_000_000, dtype=np.float32).reshape(1000, 2000))
    np.save(tmp_path / "f.npy", np.asfortranarray(np.arange(12).reshape(4, 3).repeat(250, 0)))
    source = table({"x": np.load(tmp_path / "x.npy", mmap_mode="r"), "f": np.load(tmp_path / "f.npy", mmap_mode="r")})
    sent = pickle.dumps(source)
    assert len(sent) < 5000
    again = pickle.loads(sent)  # noqa: S301
    assert isinstance(again.columns["x"], np.memmap)
    for row in (0, 999):
        assert again[row]["x"].tolist() == source[row]["x"].tolist()
        assert again[row]["f"].tolist() == source[row]["f"].tolist()
    part = pickle.loads(pickle.dumps(table({"x": source.columns["x"][5:7]})))  # noqa: S301
    assert part.columns["x"].tolist() == source.columns["x"][5:7].tolist()
    assert source.stamp(0) == again.stamp(0)


def test_rows_that_are_not_there() -> None:
    source = table({"a": [1, 2]})
    assert source[-1] == {"a": 2}
    with pytest.raises(IndexError):
        source[2]
    with pytest.raises(SchemaError, match="rows of 0 to 1"):
        source.take([2])
    assert len(source.take([])["a"]) == 0


@hypothesis.given(st.lists(st.one_of(st.none(), st.lists(st.integers(-5, 5), max_size=4)), min_size=1), st.data())
def test_gather_takes_what_a_loop_takes(rows: list[Any], data: st.DataObject) -> None:
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9))
    numbers = np.array(picks, dtype=np.int64)
    ragged = Ragged.from_rows(rows, dtype=np.int64)
    assert gather_rows(ragged, numbers).to_list() == [rows[pick] for pick in picks]
    words = [None if row is None else "ä" * len(row) for row in rows]
    assert gather_rows(Bytes.from_list(words, text=True), numbers).to_list() == [words[pick] for pick in picks]
    nested = [[] if row is None else [row, row] for row in rows]
    assert gather_rows(Ragged.from_rows([[[1]], *nested]), numbers + 1).to_list() == [nested[pick] for pick in picks]


# pandas


def test_a_dataframe() -> None:
    frame = pd.DataFrame(
        {
            "a": [1, 2, 3],
            "b": [0.5, np.nan, 1.5],
            "c": ["x", None, "z"],
            "d": pd.array([1, None, 3], dtype="Int32"),
            "e": pd.array([True, None, False], dtype="boolean"),
            "f": pd.Categorical(["u", "v", "u"]),
            "g": [[1, 2], [3], []],
            "h": [b"1", b"22", b""],
        },
        index=[7, 8, 9],
    )
    source = table(frame)
    types = {"a": "int64", "b": "float64", "c": "str?", "d": "int32?", "e": "bool?", "f": "str", "g": "int64[?]",
             "h": "bytes"}  # fmt: skip
    assert {name: str(field) for name, field in source.schema.items()} == types
    assert np.isnan(source[1]["b"])
    expected = {"a": [1, 2, 3], "c": ["x", None, "z"], "d": [1, None, 3], "e": [True, None, False],
                "f": ["u", "v", "u"], "g": [[1, 2], [3], []], "h": [b"1", b"22", b""]}  # fmt: skip
    check_rows(table(frame.drop(columns="b")), expected)


def test_dataframes_that_are_no_tables() -> None:
    with pytest.raises(SchemaError, match="Store times as integers"):
        table(pd.DataFrame({"t": pd.to_datetime(["2020-01-01"])}))
    with pytest.raises(SchemaError, match="each column once"):
        table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(SchemaError, match="columns with names"):
        table(pd.DataFrame([[1, 2]]))


# Arrow and Parquet

COLUMNS: dict[str, Any] = {
    "int": pa.array([1, None, 3], pa.int32()),
    "float": pa.array([0.5, 1.5, 2.5], pa.float32()),
    "bool": pa.array([True, None, False]),
    "text": pa.array(["x", None, "äö"]),
    "bytes": pa.array([b"1", b"", b"333"]),
    "fixed": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
    "words": pa.array([["a", "b"], [], ["c"]]),
    "list": pa.array([[1, 2], None, [3]]),
    "nested": pa.array([[[1], [2, 3]], [], [[4]]]),
    "vector": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
    "gaps": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
    "label": pa.array(["u", "v", "u"]).dictionary_encode(),
}
TYPES = {
    "int": "int32?", "float": "float32", "bool": "bool?", "text": "str?", "bytes": "bytes", "fixed": "bytes",
    "words": "list[str]", "list": "int64[?]?", "nested": "list[list[int64]]", "vector": "float32[2]",
    "gaps": "int64[2]?", "label": "str",
}  # fmt: skip


def test_an_arrow_table() -> None:
    arrow = pa.table(COLUMNS)
    source = table(arrow)
    assert {name: str(field) for name, field in source.schema.items()} == TYPES
    check_rows(source, arrow.to_pydict())


def test_a_table_in_chunks_and_a_slice_of_one() -> None:
    arrow = pa.concat_tables([pa.table(COLUMNS), pa.table(COLUMNS)])
    check_rows(table(arrow), arrow.to_pydict())
    check_rows(table(arrow.slice(1, 4)), arrow.slice(1, 4).to_pydict())
    check_rows(table(arrow.to_batches()[0].slice(1)), pa.table(COLUMNS).slice(1).to_pydict())
    assert len(table(arrow.slice(0, 0))) == 0


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([datetime.date(2020, 1, 1)]), "Cast it to int64"),
        (pa.array([{"a": 1}]), "expected numbers, strings or lists, got struct"),
        (pa.array([[1, None]]), "null inside of a list"),
        (pa.array([None]), "got null"),
    ],
)
def test_arrow_types_that_have_no_place(column: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        table(pa.table({"x": column}))


def test_parquet_files(tmp_path: Path) -> None:
    arrow = pa.table(COLUMNS)
    pq.write_table(arrow, tmp_path / "part-0.parquet", row_group_size=2)
    pq.write_table(arrow.select(arrow.column_names[::-1]), tmp_path / "part-1.parquet")
    source = parquet(f"{tmp_path}/part-{{0..1}}.parquet")
    check_rows(source, pa.concat_tables([arrow, arrow]).to_pydict())
    assert source.key(4) == "part-1.parquet:1"
    assert source.place(4) == f"{tmp_path}/part-1.parquet, row 1"
    assert len(parquet(tmp_path)) == 6
    pq.write_table(pa.table({"a": [1]}), tmp_path / "part-2.parquet")
    with pytest.raises(SchemaError, match=r"expected the columns .*, got a - at .*part-2"):
        parquet(tmp_path)


def test_parquet_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(CorruptionError, match=r"expected a Parquet file.*x\.parquet"):
        parquet(tmp_path)
    with pytest.raises(NotFoundError):
        parquet(tmp_path / "y.parquet")


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install penstock-data\[parquet\]"):
        parquet(tmp_path / "x.parquet")


def test_rows_are_encoded_where_they_lie() -> None:
    columns = {
        "number": np.arange(5),
        "matrix": np.arange(30, dtype=np.float32).reshape(5, 2, 3),
        "flag": np.array([True, False, True, True, False]),
        "some": np.ma.MaskedArray(np.arange(5.0), [False, True, False, False, True]),
        "text": ["a", "", "ß", "dd", "e"],
        "gaps": ["a", None, "b", None, "c"],
    }
    source = table(columns)
    codec, rows = Codec(source.schema), np.array([3, 0, 0, 4, 1])
    found = codec.encode_rows(source.columns, rows)
    assert found is not None
    assert list(found) == list(codec.encode(source.take(rows)))
    assert list(codec.encode_rows(source.columns, rows[:0]) or ()) == []
    for wrong in (5, -1):
        with pytest.raises(RecordIndexError):
            Codec({"x": "int64"}).encode_rows({"x": np.arange(5)}, np.array([0, wrong]))


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        (np.arange(5, dtype=np.int32), "int64"),
        (np.arange(10)[::2], "int64"),
        ([[1], [], [2, 3], [], []], "int64[?]"),
        (np.array([0, 1, 2, 1, 0]), Field(dtype="int64", kind="label", classes=("a", "b"))),
    ],
)
def test_rows_that_need_a_closer_look_are_taken_out_first(column: Any, declared: Any) -> None:
    assert Codec({"x": declared}).encode_rows(table({"x": column}).columns, np.array([0])) is None


def test_texts_that_are_none_are_found_where_they_lie() -> None:
    broken = Bytes(np.frombuffer(b"a\xffb", np.uint8), [0, 1, 2, 3], text=True)
    codec = Codec({"x": "str"})
    assert list(codec.encode_rows({"x": broken}, np.array([2, 0])) or ()) == list(codec.encode({"x": ["b", "a"]}))
    with pytest.raises(SchemaError, match='not UTF-8 - at field "x"'):
        codec.encode_rows({"x": broken}, np.array([0, 1]))
