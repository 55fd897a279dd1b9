"""Ragged and Bytes: rows in one buffer, slices that share it, padding against a naive oracle."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.errors import RecordIndexError, SchemaError
from penstock.schema.columns import Bytes, Ragged

NUMBERS = st.lists(st.integers(-9, 9), max_size=4)
TEXT = st.text(st.characters(codec="utf-8"), max_size=4)


def pad(rows: list[Any], depth: int, sizes: list[int], value: Any) -> Any:
    """The naive oracle: nested lists cut and filled up to `sizes`."""
    if depth == 0:
        return rows
    items = [pad(row, depth - 1, sizes[1:], value) for row in (rows or [])[: sizes[0]]]
    while len(items) < sizes[0]:
        items.append(pad([], depth - 1, sizes[1:], value) if depth > 1 else value)
    return items


def longest(rows: list[Any], depth: int) -> list[int]:
    """The size of each dimension of the padded rows."""
    rows = [row for row in rows if row is not None]
    below = [item for row in rows for item in row]
    return [max(map(len, rows), default=0), *(longest(below, depth - 1) if depth > 1 else [])]


# Ragged


@given(st.lists(st.none() | NUMBERS))
def test_rows_of_numbers_come_back(rows: list[list[int] | None]) -> None:
    column = Ragged.from_rows(rows, dtype=np.int64)
    assert len(column) == len(rows)
    assert column.to_list() == rows
    assert [None if row is None else row.tolist() for row in column] == rows
    assert column.row_lengths().tolist() == [len(row or []) for row in rows]
    assert column.dtype == np.int64
    again = pickle.loads(pickle.dumps(column))  # noqa: S301 - our own bytes
    assert again.to_list() == rows
    checked = Ragged(column.values, column.row_splits, present=column.present)
    assert checked.to_list() == rows


@given(st.lists(st.none() | st.lists(NUMBERS, max_size=3)))
def test_rows_of_rows_come_back(rows: list[Any]) -> None:
    column = Ragged.from_rows(rows, dtype=np.int64)
    assert column.to_list() == rows
    for row, got in zip(rows, column, strict=True):
        assert (got is None) == (row is None)
        assert row is None or [list(inner) for inner in got] == row


@given(st.lists(st.none() | st.lists(TEXT, max_size=3)))
def test_rows_of_texts_come_back(rows: list[Any]) -> None:
    column = Ragged.from_rows(rows)
    assert column.to_list() == rows
    assert all(list(column[i]) == row for i, row in enumerate(rows) if row is not None)


@given(st.lists(st.none() | st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_rows_of_their_own_shapes_come_back(shapes: list[tuple[int, int] | None]) -> None:
    rows = [None if s is None else np.arange(s[0] * s[1], dtype=np.float32).reshape(s) + 1 for s in shapes]
    column = Ragged.from_rows(rows, dtype=np.float32)
    for row, got in zip(rows, column, strict=True):
        assert (got is None) == (row is None)
        if row is not None:
            assert got.shape == row.shape
            assert (got == row).all()
    present = [row for row in rows if row is not None]
    padded = column.to_padded(value=-1)
    if present:
        naive = np.full((len(rows), *np.max([row.shape for row in present], axis=0)), -1, np.float32)
        for i, row in enumerate(rows):
            if row is not None:
                naive[i, : row.shape[0], : row.shape[1]] = row
        assert padded.shape == naive.shape
        assert (padded == naive).all()


@given(st.lists(st.none() | NUMBERS), st.none() | st.integers(0, 6), st.integers(-3, 3))
def test_padding(rows: list[Any], length: int | None, value: int) -> None:
    padded = Ragged.from_rows(rows, dtype=np.int16).to_padded(length, value)
    size = longest(rows, 1)[0] if length is None else length
    assert padded.dtype == np.int16
    assert padded.shape == (len(rows), size)
    assert padded.tolist() == [pad(row, 1, [size], value) for row in rows]


@given(st.lists(st.none() | st.lists(NUMBERS, max_size=3)), st.tuples(*[st.none() | st.integers(0, 4)] * 2))
def test_padding_rows_of_rows(rows: list[Any], lengths: tuple[int | None, int | None]) -> None:
    column = Ragged.from_rows(rows, dtype=np.int64)
    if isinstance(column.values, Ragged):
        sizes = [given or got if given is None else given for given, got in zip(lengths, longest(rows, 2), strict=True)]
        assert column.to_padded(lengths, 7).tolist() == [pad(row, 2, sizes, 7) for row in rows]
        assert column.to_padded().shape == (len(rows), *longest(rows, 2))


@given(st.lists(st.integers(0, 3)), st.integers(0, 3))
def test_padding_keeps_inner_dimensions(lengths: list[int], inner: int) -> None:
    rows = [np.ones((length, inner), np.uint8) for length in lengths]
    column = Ragged(np.ones((sum(lengths), inner), np.uint8), np.cumsum([0, *lengths]))
    assert [row.tolist() for row in column] == [row.tolist() for row in rows]
    padded = column.to_padded()
    assert padded.shape == (len(rows), max(lengths, default=0), inner)
    assert padded.sum() == sum(lengths) * inner


def test_empty_lists_leave_the_dtype_alone() -> None:
    assert Ragged.from_rows([[], [1, 2], None]).dtype == np.int64
    assert Ragged.from_rows([[], np.ones((1, 2), np.int8)]).to_list() == [[], [[1, 1]]]
    assert Ragged.from_rows([[[]], [[1]]]).dtype == np.int64


def test_padding_strings() -> None:
    column = Ragged.from_rows([["a", "bc"], [], ["d"]])
    assert column.to_padded().tolist() == [["a", "bc"], ["", ""], ["d", ""]]
    assert column.to_padded(1, "-").tolist() == [["a"], ["-"], ["d"]]
    assert Ragged.from_rows([[b"a"], []]).to_padded().tolist() == [[b"a"], [b""]]


@pytest.mark.parametrize(("dtype", "value"), [("int8", 300), ("int64", 1.5), ("uint8", -1), ("int32", float("nan"))])
def test_padding_that_the_dtype_cannot_hold(dtype: str, value: Any) -> None:
    with pytest.raises(SchemaError, match=f"expected a padding that {dtype} can hold"):
        Ragged.from_rows([[1], []], dtype=dtype).to_padded(value=value)


def test_padding_with_too_many_lengths() -> None:
    with pytest.raises(SchemaError, match="at most 1 lengths, got 2"):
        Ragged.from_rows([[1]]).to_padded((1, 2))


@given(st.lists(st.none() | NUMBERS, max_size=6), st.integers(-8, 8), st.integers(-8, 8), st.integers(-8, 8))
def test_slices_are_slices_of_the_rows(rows: list[Any], a: int, b: int, c: int) -> None:
    column = Ragged.from_rows(rows, dtype=np.int64)
    assert column[a:b].to_list() == rows[a:b]
    assert column[a:b][c:].to_list() == rows[a:b][c:]
    texts = Bytes.from_list([None if row is None else str(row) for row in rows], text=True)
    assert texts[a:b][c:].to_list() == texts.to_list()[a:b][c:]


def test_slices_share_memory() -> None:
    numbers = Ragged.from_rows([[1, 2], [3], [4, 5, 6]])
    assert np.shares_memory(numbers[1:].values, numbers.values)
    assert np.shares_memory(numbers[2], numbers.values)
    assert numbers[1:].row_splits.tolist() == [0, 1, 4]
    nested = Ragged.from_rows([[[1, 2], [3]], [[4]]])
    assert np.shares_memory(nested[1:].values.values, nested.values.values)
    strings = Bytes.from_list([b"ab", b"c"])
    assert np.shares_memory(strings[1:].values, strings.values)
    own = Ragged.from_rows([np.ones((2, 3)), np.ones((1, 2))])
    assert np.shares_memory(own[1:].values, own.values)
    assert own[1:][0].shape == (1, 2)


@pytest.mark.parametrize(
    "column", [Ragged.from_rows([[1], [2, 3]]), Bytes.from_list([b"a", b"b"])], ids=["Ragged", "Bytes"]
)
def test_positions(column: Ragged | Bytes) -> None:
    assert column[-1:].to_list() == [column.to_list()[1]]
    assert list(column[np.int64(-1)]) == list(column[1])
    for position in (2, -3):
        with pytest.raises(RecordIndexError, match=f"row {position} is outside of a column of 2 rows"):
            column[position]
    with pytest.raises(RecordIndexError, match="step 1"):
        column[::2]
    with pytest.raises(TypeError):
        column["a"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ragged(np.zeros(3), [0, 1]),
        lambda: Ragged(np.zeros(3), [1, 3]),
        lambda: Ragged(np.zeros(3), [0, 2, 1, 3]),
        lambda: Ragged(np.zeros(3), []),
        lambda: Ragged(np.zeros(3), [[0, 3]]),
        lambda: Ragged(np.zeros(3), [0.0, 3.0]),
        lambda: Ragged(np.float32(3), [0]),
        lambda: Ragged(np.zeros(3), [0, 3], present=[True, False]),
        lambda: Ragged(np.zeros(3), [0, 3], present=[1]),
        lambda: Ragged(np.zeros(6), [0, 6], shapes=[[2, 2]]),
        lambda: Ragged(np.zeros(6), [0, 6], shapes=[[-2, -3]]),
        lambda: Ragged(np.zeros(0), [0, 0], shapes=[[2**32, 2**32]]),
        lambda: Ragged(np.zeros(6), [0, 6], shapes=[[2, 3], [0, 0]]),
        lambda: Ragged(np.zeros((6, 1)), [0, 6], shapes=[[2, 3]]),
        lambda: Ragged.from_rows([np.zeros(2), np.zeros((2, 2))]),
        lambda: Ragged.from_rows([np.float32(1)]),
        lambda: Bytes(np.zeros(3), [0, 3]),
        lambda: Bytes(np.zeros(3, np.uint8), [0, 4]),
        lambda: Bytes(np.zeros(3, np.uint8), [0, 1, 2, 3], shape=(2,)),
        lambda: Bytes(np.zeros(0, np.uint8), [0], shape=(0,)),
        lambda: Bytes.from_list([b"a", "b"]),
        lambda: Bytes.from_list([3]),  # type: ignore[list-item]
    ],
)
def test_parts_that_do_not_fit(make: Callable[[], Any]) -> None:
    with pytest.raises(SchemaError):
        make()


def test_reprs_are_short() -> None:
    assert repr(Ragged.from_rows([[1, 2], None, []])) == "Ragged(3 rows of 0 to 2 int64, 1 missing)"
    assert repr(Ragged.from_rows([], dtype="int8")) == "Ragged(0 rows int8)"
    assert repr(Ragged.from_rows([["a"]])) == "Ragged(1 rows of 1 to 1 Bytes(1 rows of str, 1 bytes))"
    assert repr(Bytes.from_list([b"ab", None])) == "Bytes(2 rows of bytes, 2 bytes, 1 missing)"


@given(hnp.arrays(np.float32, st.integers(0, 20)), st.lists(st.integers(0, 20), max_size=5))
def test_any_splits_cut_values_as_numpy_does(values: np.ndarray[Any, Any], cuts: list[int]) -> None:
    inside = sorted(cut for cut in cuts if cut <= len(values))
    column = Ragged(values, [0, *inside, len(values)])
    for row, expected in zip(column, np.split(values, inside), strict=True):
        np.testing.assert_array_equal(row, expected)


# Bytes


@given(st.lists(st.none() | st.binary(max_size=4)))
def test_byte_strings_come_back(items: list[bytes | None]) -> None:
    column = Bytes.from_list(items)
    assert column.to_list() == list(column) == column.to_numpy().tolist() == items
    assert [column[i] for i in range(len(column))] == items
    assert column.values.dtype == np.uint8


@given(st.lists(st.none() | TEXT))
def test_texts_come_back(items: list[str | None]) -> None:
    column = Bytes.from_list(items, text=True)
    assert column.text
    assert column.to_list() == list(column) == items


def test_rows_of_several_strings() -> None:
    column = Bytes(np.frombuffer(b"abcdef", np.uint8), range(7), shape=(3,), present=[True, False])
    assert len(column) == 2
    assert column[0].tolist() == [b"a", b"b", b"c"]
    assert column[1] is None
    assert column.to_list() == [[b"a", b"b", b"c"], None]
    assert column[1:].to_list() == [None]
    assert column.to_numpy().shape == (2, 3)
    assert [row.tolist() for row in column[:1]] == [[b"a", b"b", b"c"]]


def test_text_that_is_none() -> None:
    column = Bytes(np.frombuffer(b"ok\xff", np.uint8), [0, 2, 3], text=True)
    assert column[0] == "ok"
    for read in (lambda: column[1], column.to_list, column.to_numpy):
        with pytest.raises(SchemaError, match=r"not UTF-8 - at row 1\. Read it as bytes"):
            read()
