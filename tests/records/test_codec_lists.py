"""Lists of Python's own values: the core takes them as the schema would, to the byte and to the word."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps

NUMBERS = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
EDGES = [
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    2**24,
    2**24 + 1,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    10**400,
]

items = st.one_of(
    st.sampled_from(EDGES),
    st.integers(-100, 100),
    st.floats(),
    st.sampled_from([0.1, 1e300, 65504.0, 65520.0, 3.5e38, math.inf, -math.inf, math.nan, -0.0]),
    st.booleans(),
    st.none(),
    st.just("text"),
    st.integers(-100, 100).map(np.int16),
    st.integers(0, 9).map(lambda size: [1] * size),
)
plain = st.one_of(st.integers(-100, 100), st.floats(width=32), st.booleans())
lists = st.one_of(st.lists(plain, max_size=4), st.lists(items, max_size=4))
values = st.one_of(lists, lists.map(tuple), st.lists(lists, max_size=3), st.lists(lists.map(tuple), max_size=3), items)


def told(work: Any) -> tuple[str, Any]:
    """What comes out, or what is said."""
    try:
        return "value", work()
    except ps.SchemaError as error:
        return "error", str(error)


@given(st.sampled_from(NUMBERS), st.sampled_from(["", "[3]", "[?]", "[2,2]", "[0]"]), values)
def test_numbers_are_taken_as_the_schema_fits_them(dtype: str, shape: str, value: Any) -> None:
    codec = ps.Codec({"x": dtype + shape})
    field = codec.schema["x"]
    assert isinstance(field, ps.Field)

    def fitted() -> bytes:
        exact = field.coerce(value, "[1].x")
        return codec.encode_examples([{"x": exact}], threads=1)[0]

    good = codec.encode_examples([{"x": field.coerce(np.zeros([size or 0 for size in field.shape], dtype))}])[0]

    def taken() -> bytes:
        around = codec.decode_example(good)
        records = codec.encode_examples([around, {"x": value}, around], threads=1)
        assert records[0] == records[2] == good  # whatever was tried on the way left nothing behind
        return records[1]

    assert told(taken) == told(fitted)


texts = st.one_of(st.text(), st.binary(), st.just("\ud800"), st.integers(0, 9))


@given(st.sampled_from(["list[str]", "list[bytes]"]), st.one_of(st.lists(texts), st.lists(st.text()).map(tuple), texts))
def test_texts_are_taken_as_the_schema_fits_them(kind: str, value: Any) -> None:
    codec = ps.Codec({"x": kind})
    field = codec.schema["x"]
    assert isinstance(field, ps.Field)
    wanted = told(lambda: [item.decode() if kind == "list[str]" else item for item in field.coerce(value, "[0].x")])
    assert told(lambda: codec.decode_example(codec.encode_examples([{"x": value}])[0])["x"]) == wanted


@pytest.mark.parametrize("value", [[0.1] * 3, (0.1,) * 3, [1, 2, 3]])
def test_a_float_is_rounded_as_numpy_rounds_it(value: Any) -> None:
    codec = ps.Codec({"x": "float32[3]"})
    found = codec.decode_example(codec.encode_examples([{"x": value}])[0])["x"]
    np.testing.assert_array_equal(found, np.array(value, np.float32))
