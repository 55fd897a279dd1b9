"""What the codec refuses, and how it says so: expected, got, where, what to do."""

from __future__ import annotations

import math
import re
import zlib
from typing import Any

import numpy as np
import pytest
from tests.support.record_oracle import entry, example, field, packed_ints, plain

import penstock as ps


def int_record(**features: bytes) -> bytes:
    return example(*(entry(name.encode(), feature) for name, feature in features.items()))


ONE = field(3, packed_ints(1))


@pytest.mark.parametrize(
    ("type_", "record", "message"),
    [
        ("int64", int_record(), 'expected one int64 value, got no such feature - at record 1, field "a". Mark'),
        ("float32", int_record(a=ONE), 'one float32 value in a float_list, got a int64_list - at record 1, field "a"'),
        ("str", int_record(a=ONE), 'in a bytes_list, got a int64_list - at record 1, field "a"'),
        ("int64[2]", int_record(a=ONE), 'expected 2 int64 values, got 1 - at record 1, field "a". Declare an unknown'),
        ("int64", int_record(a=field(3, packed_ints(1, 2))), 'one int64 value, got 2 - at record 1, field "a"'),
        ("uint8", int_record(a=field(3, packed_ints(256))), "got 256, which uint8 can't hold - at record 1, field"),
        ("int8[?]", int_record(a=field(3, packed_ints(1, -129))), "got -129, which int8 can't hold - at record 1"),
        ("bool", int_record(a=field(3, packed_ints(2))), "got 2, which bool can't hold - at record 1"),
        ("float64", int_record(a=field(1, field(1, bytes(7)))), 'bytes each, got 7 bytes - at record 1, field "a"'),
        ("float32[?,2]", int_record(a=field(2, field(1, bytes(12)))), 'got 3 values - at record 1, field "a"'),
        ("list[float64[2]]", int_record(a=field(1, field(1, bytes(15)))), 'got 15 bytes for an element of 16'),
    ],
)  # fmt: skip
def test_a_record_that_does_not_fit_says_what_and_where(type_: str, record: bytes, message: str) -> None:
    codec = ps.Codec({"a": type_})
    value: Any = {"str": "x", "int64[2]": [1, 2], "int8[?]": [1], "bool": True}.get(type_, [] if "[" in type_ else 1)
    good = codec.encode_examples([{"a": value}])[0]
    with pytest.raises(ps.SchemaError, match=re.escape(message)):
        codec.decode([good, record])
    with pytest.raises(ps.SchemaError, match=re.escape(message.replace("record 1", "record 0"))):
        codec.decode_example(record)


def test_shapes_and_lengths_that_do_not_add_up_are_refused() -> None:
    shaped = ps.Codec({"a": "uint8[?,?]"})
    for shape in ([2, 2], [-1, -5], [1, 5, 1], [2**62, 0], [5]):
        record = int_record(**{"a/value": field(1, field(1, bytes(5))), "a/shape": field(3, packed_ints(*shape))})
        with pytest.raises(ps.SchemaError, match='field "a'):
            shaped.decode([record])
    nested = ps.Codec({"a": "list[list[int64]]"})
    for lengths in ([1, 1], [4], [-1, 4], []):
        values = {
            "a/ragged_flat_values": field(3, packed_ints(1, 2, 3)),
            "a/ragged_row_lengths_0": field(3, packed_ints(*lengths)),
        }
        with pytest.raises(ps.SchemaError, match="lengths that do not add up"):
            nested.decode([int_record(**values)])
    assert plain(
        nested.decode([int_record(**(values | {"a/ragged_row_lengths_0": field(3, packed_ints(2, 0, 1))}))])
    ) == {"a": [[[1, 2], [], [3]]]}


def test_zlib_that_is_broken_too_long_or_too_short_is_refused() -> None:
    def record(data: bytes) -> bytes:
        return int_record(a=field(1, field(1, data)))

    good = zlib.compress(bytes(16))
    for type_, levels in (((2,), 0), ((2,), 1), ((None,), 0)):
        codec = ps.Codec({"a": ps.Field(dtype="int64", shape=type_, levels=levels, encoding="zlib")})
        assert plain(codec.decode([record(good)])["a"])[0] in ([0, 0], [[0, 0]])
        bad = [b"", b"junk", good[:-5], good[:-1] + b"\0"]
        bad += [zlib.compress(bytes(17))] if type_ == (None,) else [zlib.compress(bytes(n)) for n in (8, 24, 10**7)]
        for data in bad:
            with pytest.raises((ps.SchemaError, ps.CorruptionError), match='field "a"'):
                codec.decode([record(data)])


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("int64", None, "expected int64, got nothing - at [1].a"),
        ("int64", "one", "expected int64, got str - at [1].a"),
        ("int64", 1.0, "expected int64, got float - at [1].a"),
        ("int64", 2**63, "outside of"),
        ("uint8", 256, "256, outside of 0 to 255 - at [1].a"),
        ("int32", np.int64(1), "expected int32, got int64 - at [1].a. Cast it first"),
        ("float32", np.float64(1), "expected float32, got float64 - at [1].a. Cast it first"),
        ("float32[2]", np.zeros(2), "expected float32[2], got float64[2] - at [1].a. Cast it first"),
        ("float32[2]", [1.0], "expected float32[2], got float[1] - at [1].a"),
        ("str", b"x", "expected str, got bytes - at [1].a. Convert it: value.decode()"),
        ("str", "\ud800", "not valid Unicode"),
        ("str[?]", [b"x"], "expected str[?], got bytes[1] - at [1].a"),
        ("bytes", "x", "expected bytes, got str - at [1].a. Convert it: value.encode()"),
        ("list[int64]", [[1]], "expected list[int64]"),
        ("list[list[int64]]", [1], "expected list[list[int64]]"),
    ],
)
def test_an_example_that_does_not_fit_says_what_and_where(type_: str, value: Any, message: str) -> None:
    codec = ps.Codec({"a": type_})
    good: Any = {"str": "x", "bytes": b"x", "float32[2]": [1, 2]}.get(type_, [] if "[" in type_ else 1)
    with pytest.raises(ps.SchemaError, match=re.escape(message)):
        codec.encode_examples([{"a": good}, {"a": value}])


@pytest.mark.parametrize(
    ("type_", "column", "message"),
    [
        ("int64", None, "expected a column of int64, got nothing - at a"),
        ("int64", 5, "expected a column of int64, got int - at a"),
        ("str", "abc", "expected a column of str, got str - at a"),
        ("int64", np.array(5), "expected a column of int64, got ndarray - at a"),
        ("int64", [1, 2, 3], "expected 2 rows, as other columns have, got 3 - at a"),
        ("float32", np.zeros(2), "expected float32[2], got float64[2] - at a. Cast it first"),
        ("float32[3]", np.zeros((2, 4), np.float32), "expected float32[2,3], got float32[2,4] - at a"),
        ("int64", [1, None], "expected int64[2]"),
        ("int64", np.ma.array([1, 2], mask=[0, 1]), "got an array with masked elements"),
        ("float32[2]?", np.ma.array(np.zeros((2, 2), np.float32), mask=[[0, 1], [0, 0]]), "got a mask within a row"),
        ("float32[?]", ps.Ragged(np.zeros(3), [0, 1, 3]), "expected float32[3], got float64[3] - at a. Cast it first"),
        ("int64[?]", ps.Ragged(np.zeros((3, 2), np.int64), [0, 1, 3]), 'got rows of 2 dimensions - at field "a"'),
        ("int64[?,2]", ps.Ragged(np.zeros((3, 3), np.int64), [0, 1, 3]), "expected int64[?,2], got shape [1, 3]"),
        ("int64[?]", ps.Ragged.from_rows([["x"], []]), "expected int64[?], got Ragged"),
        ("list[str]", ps.Ragged.from_rows([[b"x"], []]), "expected list[str], got Bytes"),
        ("uint8[?,?]", ps.Ragged(np.zeros(3, np.uint16), [0, 1, 3], shapes=[[1, 1], [2, 1]]), "got uint16[3] - at a"),
        ("list[float64[2]]", ps.Ragged(np.zeros((3, 3)), [0, 1, 3]), "expected list[float64[2]], got shape [1, 3]"),
        ("list[list[int64]]", ps.Ragged(np.zeros(3, np.int64), [0, 1, 3]), "expected list[list[int64]], got Ragged"),
        ("str", ps.Bytes.from_list([b"x", b"y"]), "expected str, got Bytes"),
        ("str", ps.Bytes(np.array([255, 255], np.uint8), [0, 1, 2], text=True), "not UTF-8 - at row 0"),
        ("bytes[2]", ps.Bytes.from_list([b"x", b"y"]), "expected bytes[2], got Bytes"),
        ("int64", ps.Ragged(np.zeros(3, np.int64), [0, 1, 3]), "expected int64"),
    ],
)  # fmt: skip
def test_a_column_that_does_not_fit_says_what_and_where(type_: str, column: Any, message: str) -> None:
    codec = ps.Codec({"b": "int64", "a": type_})
    with pytest.raises(ps.SchemaError, match=re.escape(message)):
        codec.encode({"b": [1, 2], "a": column})


def test_narrower_arrays_are_taken_as_they_lose_nothing() -> None:
    codec = ps.Codec({"n": "int64", "x": "float64", "r": "float32[?]"})
    ragged = ps.Ragged(np.array([1, 2], np.float16), [0, 1, 2])
    batch = codec.decode(codec.encode({"n": np.array([1, 255], np.uint8), "x": np.float32([1, 2]), "r": ragged}))
    assert (batch["n"].tolist(), batch["x"].tolist(), batch["r"].to_list()) == ([1, 255], [1, 2], [[1], [2]])
    assert (batch["n"].dtype, batch["x"].dtype, batch["r"].dtype) == (np.int64, np.float64, np.float32)


def test_a_float64_that_a_float_list_cannot_hold_is_refused_not_rounded() -> None:
    codec = ps.Codec({"x": ps.Field(dtype="float64", encoding="none")})
    assert codec.decode(codec.encode({"x": [0.5, math.inf]}))["x"].tolist() == [0.5, math.inf]
    for value in (0.1, 1e-50):
        with pytest.raises(ps.SchemaError, match=rf'got {value}.*record 1, field "x".*encoding "bytes"'):
            codec.encode({"x": [0.5, value]})


def test_unknown_fields_are_named_with_what_there_is() -> None:
    codec = ps.Codec({"label": "int64", "text": "str?"})
    with pytest.raises(ps.SchemaError, match=r"unknown field 'labl' - at \[1\]. Did you mean 'label'\?"):
        codec.encode_examples([{"label": 1}, {"label": 1, "labl": 2}])
    with pytest.raises(ps.SchemaError, match=r"unknown field 'labl'\. Did you mean 'label'"):
        codec.encode({"label": [1], "labl": [2]})
    with pytest.raises(ps.SchemaError, match="expected an example as a dict, got list"):
        codec.encode_examples([[1]])  # type: ignore[list-item]
    with pytest.raises(ps.SchemaError, match="no field 'labl'"):
        codec.select("labl")


def test_text_that_is_not_utf8_is_told_when_it_is_looked_at() -> None:
    record = int_record(a=field(1, field(1, b"\xff")))
    codec = ps.Codec({"a": "str"})
    assert ps.Codec({"a": "bytes"}).decode_example(record) == {"a": b"\xff"}
    with pytest.raises(
        ps.SchemaError, match=r'got bytes that are not UTF-8 - at field "a"\. Declare the field as bytes'
    ):
        codec.decode_example(record)
    with pytest.raises(ps.SchemaError, match="got bytes that are not UTF-8 - at row 1"):
        codec.decode([codec.encode_examples([{"a": "x"}])[0], record])["a"].to_list()


def test_labels_are_those_of_a_class() -> None:
    codec = ps.Codec({"label": ps.Field(dtype="int64", classes=("cat", "dog"))})
    assert codec.decode(codec.encode_examples([{"label": "dog"}, {"label": 0}, {"label": -1}]))["label"].tolist() == [
        1,
        0,
        -1,
    ]
    assert codec.decode(codec.encode({"label": ["dog", "cat"]}))["label"].tolist() == [1, 0]
    for value in (2, np.int64(-2), "bird"):
        with pytest.raises(ps.SchemaError, match=r"\[1\].label"):
            codec.encode_examples([{"label": 0}, {"label": value}])
    with pytest.raises(ps.SchemaError, match="expected a label of 2 classes, got 2 - at label"):
        codec.encode({"label": np.array([0, 2])})


def test_the_lists_of_a_sequence_are_equally_long() -> None:
    codec = ps.Codec({"objects": ps.Schema({"box": "float32[4]", "name": "str"}, sequence=True)})
    boxes = np.zeros((2, 4), np.float32)
    assert len(codec.encode({"objects": {"box": [boxes], "name": [["a", "b"]]}})) == 1
    with pytest.raises(ps.SchemaError, match="expected lists of equal length in a sequence"):
        codec.encode({"objects": {"box": [boxes], "name": [["a"]]}})
    with pytest.raises(ps.SchemaError, match=r"expected lists of equal length in a sequence.*\[0\]"):
        codec.encode_examples([{"objects": {"box": boxes, "name": ["a"]}}])


@pytest.mark.parametrize("type_", ["float32[?,0]", "list[int64[0]]", "bytes[0]", "list[list[str[2,0]]]"])
def test_rows_of_nothing_are_refused_since_their_number_would_be_lost(type_: str) -> None:
    with pytest.raises(ps.SchemaError, match="expected rows that hold something"):
        ps.Codec({"a": type_})


def test_arrays_of_nothing_keep_their_shape() -> None:
    codec = ps.Codec({"a": "float32[2,0]", "b": "list[float64[0]]", "c": "uint8[?,?]"})
    record = codec.encode_examples(
        [{"a": np.zeros((2, 0), np.float32), "b": [[], []], "c": np.zeros((0, 3), np.uint8)}]
    )[0]
    shapes = {name: value.shape for name, value in codec.decode_example(record).items()}
    assert shapes == {"a": (2, 0), "b": (2, 0), "c": (0, 3)}


@pytest.mark.parametrize("schema", [{"a": "int64"}, {"a": "int64", "b": {"c": "str?"}}])
def test_a_single_example_has_no_number_in_its_errors(schema: dict[str, Any]) -> None:
    codec = ps.Codec(schema)
    record = codec.encode_example({"a": 7})
    assert isinstance(record, bytes)
    assert record == codec.encode_examples([{"a": 7}])[0]
    for value, place in (({"a": "x"}, "a"), ({}, "a"), ({"a": 1, "d": 2}, "")):
        with pytest.raises(ps.SchemaError) as found:
            codec.encode_example(value)
        assert found.value.where == place
        assert "[0]" not in str(found.value)
        with pytest.raises(ps.SchemaError) as found:
            codec.encode_example(value, "Toy 'n1'")
        assert found.value.where == ("Toy 'n1'.a" if place else "Toy 'n1'")
