"""Schemas found in examples, and joined: never narrower than the values, never with a loss."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.errors import SchemaError
from penstock.schema.coercion import DTYPES, FLOATS, INTEGERS, TEXTS, common_dtype
from penstock.schema.field import Field
from penstock.schema.inference import infer, widen
from penstock.schema.schema import Schema


def message(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        function(*arguments, **options)
    return str(caught.value)


def inferred(*values: Any) -> str:
    """The type of a field with these values."""
    return str(infer([{"x": value} for value in values])["x"])


class Colour(enum.IntEnum):
    RED = 1


# What one value is


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "bool"),
        (3, "int64"),
        (2**63, "uint64"),
        (-(2**63), "int64"),
        (Colour.RED, "int64"),
        (0.5, "float64"),
        ("a", "str"),
        (b"a", "bytes"),
        (bytearray(b"a"), "bytes"),
        (np.float32(1), "float32"),
        (np.float64(1), "float64"),
        (np.str_("a"), "str"),
        (np.zeros((2, 3), np.uint8), "uint8[2,3]"),
        (np.zeros(2, ">f4"), "float32[2]"),
        (np.array(["a", "b"]), "str[2]"),
        (np.array(["a", "b"], object), "list[str]"),
        ([1, 2], "int64[2]"),
        ([1, 2.5], "float64[2]"),
        ((True, False), "bool[2]"),
        ([1, 2**63], None),
        ([2**63], "uint64[1]"),
        ([[1, 2], [3, 4]], "int64[2,2]"),
        ([[1, 2], [3]], "list[list[int64]]"),
        ([[1, 2], []], "list[list[int64]]"),
        ([[[1], [2]], [[3], [4, 5]]], "list[list[list[int64]]]"),
        ([[[1, 2]], [[3, 4], [5, 6]]], "list[list[int64[2]]]"),
        (["a"], "list[str]"),
        ([["a"], []], "list[list[str]]"),
        ([b"a", b"b"], "list[bytes]"),
        ([np.zeros(2, np.float32), np.zeros(2, np.float32)], "float32[2,2]"),
        ([np.zeros(2, np.float32), np.zeros(3, np.float32)], "list[list[float32]]"),
    ],
    ids=repr,
)
def test_one_value(value: Any, text: str | None) -> None:
    if text is None:
        assert "no type holds both" in message(inferred, value)
    else:
        assert inferred(value) == text


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image"),
        (b"\x89PNG\r\n\x1a\n", "image"),
        (b"GIF89a", "image"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image"),
        (b"BM\x0a\0\0\0\0\0\0\0", "image"),
        (b"BM, as words begin", "tensor"),
        (b"RIFF\0\0\0\0WAVE", "tensor"),
        (b"", "tensor"),
    ],
)
def test_images_are_known_by_their_first_bytes(head: bytes, kind: str) -> None:
    assert infer([{"x": head}])["x"] == Field("x", "bytes", kind=kind)
    assert infer([{"x": [head, head]}])["x"] == Field("x", "bytes", kind=kind, levels=1)
    assert infer([{"x": head}, {"x": b"else"}])["x"] == Field("x", "bytes")


def test_nested() -> None:
    example = {"meta": {"id": 1, "tags": ["a"]}, "objects": [{"box": [0.0] * 4, "parts": [{"name": "wheel"}]}]}
    parts = Schema({"name": "str"}, sequence=True)
    assert infer([example]) == Schema(
        {
            "meta": {"id": "int64", "tags": "list[str]"},
            "objects": Schema({"box": "float64[4]", "parts": parts}, sequence=True),
        }
    )


def test_rows_that_differ_inside_a_sequence_become_lists() -> None:
    schema = infer([{"o": [{"t": [1, 2]}, {"t": [3, 4]}]}, {"o": [{"t": [1]}]}, {"o": []}])
    assert schema == Schema({"o": Schema({"t": "list[int64]"}, sequence=True)})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2**64, "got 65 bits"),
        pytest.param(object(), "got object", id="object"),
        (1j, "got complex"),
        (np.zeros(2, "M8[s]"), 'value.astype("int64")'),
        (np.zeros(2, complex), "got complex128"),
        ([1, None], "expected a value, got None - at examples[0].x[1]"),
        ([1, "a"], "no type holds both int64 and str"),
        ([1, [2]], "no type holds both int64 and int64[1]"),
        ([1, []], "no type holds both int64 and an empty list"),
        ([{"a": 1}, {}], "at examples[0].x.a"),
        ([{"a": 1}, {"a": None}], "at examples[0].x.a"),
        ([[{"a": 1}]], "got a list of such lists"),
        (None, "Declare it"),
        ([], "only empty lists - at x"),
        ({}, "at least one field"),
    ],
    ids=repr,
)
def test_values_without_a_type(value: Any, words: str) -> None:
    assert words in message(infer, [{"x": value}])


def test_depth_is_bounded() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert "within each other" in message(infer, [{"x": value}])


# What many are


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((1, 2.5), "float64"),
        ((True, 3), "int64"),
        ((np.int32(1), 2), "int64"),
        ((np.int8(1), np.uint8(1)), "int16"),
        ((np.float32(1), np.float16(1)), "float32"),
        ((np.int8(1), np.float16(1)), "float64"),
        (([1, 2], [3]), "int64[?]"),
        (([1, 2], []), "int64[?]"),
        (([], [1, 2]), "int64[?]"),
        (([], [[1, 2]], [[1, 2]]), "int64[?,2]"),
        (([[]], [[1, 2]]), "int64[1,?]"),
        ((np.zeros((2, 3, 3)), np.zeros((4, 5, 3))), "float64[?,?,3]"),
        (([[1, 2], [3, 4]], [[1], [2, 3]]), "list[list[int64]]"),
        (([], ["a"]), "list[str]"),
        ((np.array(["a"]), np.array(["b", "c"])), "str[?]"),
        ((np.array(["a"]), ["b", "c"]), "list[str]"),
        ((1, None), "int64?"),
        ((None, 1), "int64?"),
        ((None, [], [1]), "int64[?]?"),
    ],
    ids=repr,
)
def test_many_values(values: tuple[Any, ...], text: str) -> None:
    for order in itertools.permutations(values):
        assert inferred(*order) == text


def test_missing_names_are_optional() -> None:
    schema = infer([{"a": 1}, {"a": 2, "b": {"c": "x", "d": [1]}}, {"a": 3, "b": {"c": "y"}}])
    assert schema == Schema({"a": "int64", "b": {"c": "str?", "d": "int64[1]?"}})


def test_drift_names_the_example_the_field_and_both_types() -> None:
    words = message(infer, [{"x": {"y": 1}}, {"x": {"y": 2}}, {"x": {"y": "3"}}])
    assert words.startswith("no type holds both int64 and str - at examples[2].x.y. ")
    assert "no type holds both int64 and a dict" in message(inferred, 1, {"y": 1})
    assert "no type holds both a list of dicts and int64[1]" in message(inferred, [{"y": 1}], [1])
    assert "no type holds both int64 and uint64" in message(inferred, 1, 2**63)


def test_declared_fields_are_kept_and_checked() -> None:
    declared = {"x": "float32", "y": Field(dtype="int64", classes=("cat", "dog")), "z": "str?"}
    schema = infer([{"n": 1, "x": 0.1, "y": "cat"}, {"n": 2, "x": 3, "y": 1}], schema=declared)
    assert schema == Schema({"n": "int64", **declared})
    assert list(schema) == ["n", "x", "y", "z"]
    assert "unknown class 'cow' - at examples[0].y" in message(infer, [{"x": 1, "y": "cow"}], schema=declared)
    assert "got nothing - at examples[0].x" in message(infer, [{"y": 1}], schema=Schema(declared))


def test_any_iterable_of_dicts() -> None:
    assert Schema.infer({"x": i} for i in range(3)) == Schema({"x": "int64"})
    assert "at least one example" in message(infer, [])
    assert "expected a dict, got int - at examples[1]" in message(infer, [{"x": 1}, 3])


NUMBERS = st.booleans() | st.integers(-(2**53), 2**53) | st.floats()
TEXT = st.text(st.characters(codec="utf-8"), max_size=3)
ARRAYS = hnp.arrays(
    st.sampled_from(["bool", "int8", "uint16", "int64", "float16", "float32", "float64"]),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3),
    elements={"min_value": 0, "max_value": 1},
)
VALUES = st.recursive(
    st.none() | NUMBERS | TEXT | st.binary(max_size=3) | ARRAYS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, min_size=1, max_size=2),
    max_leaves=8,
)


def lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3)


ALIKE = st.sampled_from(
    [NUMBERS, lists(NUMBERS), lists(lists(NUMBERS)), lists(lists(lists(st.integers(0, 9)))), TEXT, lists(TEXT),
     lists(lists(TEXT)), st.binary(), ARRAYS, lists(st.fixed_dictionaries({"a": NUMBERS, "b": lists(NUMBERS)})),
     st.fixed_dictionaries({}, optional={"a": TEXT, "b": lists(NUMBERS)}), VALUES]
)  # fmt: skip


@given(st.data())
def test_every_example_fits_what_was_inferred(data: st.DataObject) -> None:
    kinds = {name: data.draw(ALIKE, name) for name in "xy"}
    row = st.fixed_dictionaries({}, optional={name: st.none() | kind for name, kind in kinds.items()})
    examples = data.draw(st.lists(row, min_size=1, max_size=5), "examples")
    try:
        schema = infer(examples)
    except SchemaError:
        assume(False)
    for example in examples:
        schema.check(example)
    for order in itertools.islice(itertools.permutations(examples), 4):
        assert infer(order) == schema


@given(ALIKE.flatmap(lambda kind: st.lists(kind, min_size=2, max_size=4)), st.integers(1, 3))
def test_inference_in_parts_is_inference_at_once(values: list[Any], cut: int) -> None:
    examples = [{"x": value} for value in values]
    try:
        first, second = infer(examples[:cut]), infer(examples[cut:])
        joined = widen(first, second)
    except SchemaError:
        assume(False)
    assert joined == infer(examples)


# Joins


@st.composite
def joinable(draw: st.DrawFn) -> Schema:
    """Small schemas over few names and dtypes, so that many of them have a join."""
    nodes: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from("ab"), unique=True)):
        dtype = draw(st.sampled_from([*DTYPES, *INTEGERS]))
        rank = draw(st.integers(0, 2))
        levels = draw(st.integers(0, rank))
        sizes: st.SearchStrategy[Any] = st.integers(0, 2) if levels else st.none() | st.integers(0, 2)
        shape = tuple(draw(st.lists(sizes, min_size=rank - levels, max_size=rank - levels)))
        if dtype in TEXTS and shape.count(None) > 1:
            shape = (1, None)
        nodes[name] = Field(dtype=dtype, shape=shape, levels=levels, optional=draw(st.booleans()))
    if nodes and draw(st.booleans()):
        nodes = {"n": nodes}
    return Schema(nodes)


def joined(a: Schema, b: Schema) -> Schema | None:
    try:
        return widen(a, b)
    except SchemaError:
        return None


@given(joinable(), joinable(), joinable())
def test_joins_depend_on_no_order(a: Schema, b: Schema, c: Schema) -> None:
    assert widen(a, a) == a
    ab = joined(a, b)
    assert joined(b, a) == ab
    if ab is None:
        return
    assert widen(ab, a) == ab
    assert widen(ab, b) == ab
    bc = joined(b, c)
    left = joined(ab, c)
    right = None if bc is None else joined(a, bc)
    if left is not None and right is not None:
        assert left == right


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_a_common_dtype_holds_both(a: str, b: str) -> None:
    dtype = common_dtype(a, b)
    assert common_dtype(b, a) == dtype
    if dtype is None:
        assert a in TEXTS or b in TEXTS or "uint64" in (a, b)
        return
    for source in (a, b):
        assert common_dtype(source, dtype) == dtype
        if source in INTEGERS and dtype in INTEGERS:
            narrow, wide = np.iinfo(source), np.iinfo(dtype)
            assert wide.min <= narrow.min
            assert narrow.max <= wide.max
        elif source in FLOATS:
            assert dtype in FLOATS


@given(st.lists(st.sampled_from(DTYPES), min_size=3, max_size=3))
def test_common_dtypes_depend_on_no_order(dtypes: list[str]) -> None:
    found = set()
    for a, b, c in itertools.permutations(dtypes):
        first = common_dtype(a, b)
        if first is not None:
            found.add(common_dtype(first, c))
    found.discard(None)
    assert len(found) <= 1


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        (Field(encoding="zlib"), Field(), Field(encoding="zlib")),
        (Field(encoding="bytes"), Field(encoding="zlib"), Field(encoding="zlib")),
        (Field(dtype="float64", encoding="none"), Field(dtype="float64", encoding="none"), None),
        (Field(dtype="float64", encoding="none"), Field(dtype="int8"), Field(dtype="float64", encoding="bytes")),
        (Field(dtype="int64", default=1), Field(dtype="int64"), Field(dtype="int64", default=1)),
        (Field(dtype="int64", default=1), Field(dtype="float64", default=1), Field(dtype="float64", default=1)),
        (Field(default=float("nan")), Field(default=float("nan"), shape=()), None),
        (Field(dtype="bytes", kind="image"), Field(dtype="bytes"), Field(dtype="bytes")),
        (Field(dtype="int64", classes=("a",)), Field(dtype="int32", classes=("a",)), None),
        (Field(shape=(4,), kind="box", optional=True), Field(shape=(4,), kind="box"), None),
    ],
    ids=repr,
)  # fmt: skip
def test_joins_keep_what_is_said(a: Field, b: Field, both: Field | None) -> None:
    assert Schema({"x": a}).widen(Schema({"x": b})) == Schema({"x": both or a})


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (Schema({"x": "int64"}), Schema({"x": "str"}), "no type holds both int64 and str - at x"),
        (Schema({"x": {"y": "float32"}}), Schema({"x": {"y": "bytes"}}), "float32 and bytes - at x.y"),
        (Schema({"x": "str"}), Schema({"x": "bytes"}), "str and bytes - at x"),
        (Schema({"x": "int64"}), Schema({"x": "int64[3]"}), "int64 and int64[3] - at x"),
        (Schema({"x": Field(dtype="int64", classes=("a",))}), Schema({"x": Field(dtype="int64")}), "classes"),
        (Schema({"x": Field(default=1)}), Schema({"x": Field(default=2)}), "defaults 1.0 and 2.0 - at x"),
        (Schema({"x": "int64"}), Schema({"x": "int64"}, sequence=True), "a dict and a list of dicts"),
    ],
    ids=repr,
)
def test_joins_that_would_lose_something(a: Schema, b: Schema, words: str) -> None:
    assert words in message(widen, a, b)
    message(widen, b, a)
