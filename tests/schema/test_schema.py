"""Fields, schemas, their notation and JSON, nested dicts, and the values that fit or do not."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import (
    CorruptionError,
    IndexMismatchError,
    MissingDependencyError,
    PenstockError,
    RecordIndexError,
    SchemaError,
    StorageError,
)
from penstock.schema.coercion import DTYPES, MAX_DEPTH, MAX_ELEMENTS, MAX_RANK, TEXTS
from penstock.schema.field import ENCODINGS, Field
from penstock.schema.schema import Schema

# What there is, for Hypothesis

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=6)
SHAPES = st.lists(st.none() | st.integers(0, 5), max_size=3).map(tuple)


@st.composite
def types(draw: st.DrawFn) -> Field:
    """A field that its notation says in full."""
    dtype = draw(st.sampled_from(DTYPES))
    levels = draw(st.integers(0, 3))
    shape = draw(SHAPES)
    if levels or (dtype in TEXTS and shape.count(None) > 1):
        shape = tuple(size for size in shape if size is not None)
    return Field("x", dtype, shape, levels=levels, optional=draw(st.booleans()))


@st.composite
def fields(draw: st.DrawFn) -> Field:
    """Any field."""
    field = draw(types())
    if field.dtype in TEXTS:
        encodings: tuple[str, ...] = ("none",)
    elif field.dtype == "bfloat16" or field.shape.count(None) > 1:
        encodings = ("bytes", "zlib")
    else:
        encodings = ENCODINGS
    field = replace(field, encoding=draw(st.sampled_from(encodings)))
    if field.dtype == "int64" and draw(st.booleans()):
        names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=4))
        field = replace(field, classes=tuple(names))
    elif field.dtype == "bytes" and not field.shape and draw(st.booleans()):
        field = replace(field, kind="image")
    if not field.levels and not field.shape and draw(st.booleans()):
        defaults: dict[str, st.SearchStrategy[Any]] = {
            "float64": st.floats(),
            "bool": st.booleans(),
            "bytes": st.binary(),
            "str": st.text(st.characters(codec="utf-8")),
        }
        field = replace(field, default=draw(defaults.get(field.dtype, st.integers(0, 0))))
    return field


def schemas(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    """Nested dicts of fields; a sequence only over what fits into one."""

    def extend(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        nested = st.dictionaries(NAMES, leaves | below, min_size=1, max_size=3)
        return st.builds(build, nested, st.booleans())

    def build(nodes: dict[str, Any], sequence: bool) -> Schema:
        try:
            return Schema(nodes, sequence=sequence)
        except SchemaError:
            return Schema(nodes)

    nodes = st.recursive(leaves, extend, max_leaves=6)
    return st.dictionaries(NAMES, nodes, max_size=4).map(Schema)


def short(value: Any) -> str:
    """A name for a test's parameter, however large or strange the parameter is."""
    return value if isinstance(value, str) and len(value) < 60 and value.isascii() else type(value).__name__


EXAMPLE = Schema(
    {
        "dense": "float32[3]",
        "label": Field(dtype="int64", classes=("cat", "dog")),
        "objects": Schema({"box": "float32[4]", "tag": "str", "at": {"x": "int8"}}, sequence=True),
        "weight": "float64?",
    }
)
VALUE = {
    "dense": [1, 2, 3],
    "label": "dog",
    "objects": [{"box": [0, 0, 1, 1], "tag": "a", "at": {"x": 1}}, {"box": [0.5] * 4, "tag": "b", "at": {"x": 2}}],
}


def message(function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        function(*arguments, **options)
    return str(caught.value)


# Errors


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (SchemaError("expected int64, got str", "train[3].x", "Convert it"), ValueError),
        (CorruptionError("bad checksum", path="a.tfrecord", offset=12, record=3), ValueError),
        (IndexMismatchError("made for another shard", path="a.index"), ValueError),
        (RecordIndexError("record 7 of 5"), IndexError),
        (StorageError(2, "no such file", "a"), OSError),
        (MissingDependencyError.needed("ml_dtypes", "bfloat16 fields", "bfloat16"), ImportError),
    ],
    ids=short,
)
def test_errors_are_one_family_and_survive_pickle(error: PenstockError, builtin: type[Exception]) -> None:
    assert isinstance(error, PenstockError)
    assert isinstance(error, builtin)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.args == error.args


def test_errors_say_where() -> None:
    assert str(CorruptionError("bad checksum", "a", 12, 3)) == "bad checksum - at a, offset 12, record 3"
    assert str(CorruptionError("bad checksum", record=0)) == "bad checksum - at record 0"
    assert str(CorruptionError("bad checksum")) == "bad checksum"
    assert str(SchemaError("no", "here", "Do this")) == "no - at here. Do this"
    assert str(SchemaError("no", hint="Do this")) == "no. Do this"
    missing = MissingDependencyError.needed("ml_dtypes", "bfloat16 fields", "bfloat16")
    assert str(missing) == "bfloat16 fields need the package ml_dtypes: pip install penstock-data[bfloat16]"
    assert missing.name == "ml_dtypes"


# The notation


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("int64", Field(dtype="int64")),
        ("float32[4,?]", Field(dtype="float32", shape=(4, None))),
        ("int64[?]?", Field(dtype="int64", shape=(None,), optional=True)),
        ("int64?", Field(dtype="int64", optional=True)),
        ("bfloat16[3]", Field(dtype="bfloat16", shape=(3,), encoding="bytes")),
        ("uint8[?,?,3]", Field(dtype="uint8", shape=(None, None, 3), encoding="bytes")),
        ("list[int64]", Field(dtype="int64", levels=1)),
        ("list[list[float32[3]]]?", Field(dtype="float32", shape=(3,), levels=2, optional=True)),
        ("str", Field(dtype="str", kind="text")),
    ],
)
def test_notation(text: str, field: Field) -> None:
    assert Field.parse(text) == field
    assert str(field) == text


def test_notation_allows_spaces() -> None:
    assert Field.parse("float32[4, ?]") == Field.parse("float32[4,?]")


@given(types())
def test_notation_is_read_as_it_is_written(field: Field) -> None:
    assert Field.parse(str(field), "x") == field
    assert str(Field.parse(str(field))) == str(field)


@given(st.text(st.sampled_from("list[]int64,?0 x"), max_size=20))
def test_notation_rejects_or_keeps(text: str) -> None:
    try:
        field = Field.parse(text)
    except SchemaError:
        return
    assert str(field) == text.replace(" ", "")


@pytest.mark.parametrize(
    "text",
    ["", "int", "int64[", "int64]", "int64[]", "int64[-1]", "int64[04]", "int64[1,]", "list[int64", "list[]", "?",
     "int64??", "int64[٣]", f"int64[{'9' * 5000}]", f"int64[{2**60}]", "list[" * 50 + "int64" + "]" * 50,
     None, 3, b"int64"],
    ids=short,
)  # fmt: skip
def test_notation_that_is_none(text: Any) -> None:
    assert "expected" in message(Field.parse, text)


# Fields


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "flaot32"}, "Did you mean 'float32'?"),
        ({"dtype": np.float32}, "expected dtype to be one of"),
        ({"shape": (-1,)}, "None is unknown"),
        ({"shape": (True,)}, "expected each dimension"),
        ({"shape": 13}, "such as (13,)"),
        ({"shape": (1,) * (MAX_RANK + 1)}, "dimensions"),
        ({"shape": (MAX_ELEMENTS, 2)}, "elements"),
        ({"encoding": "gzip"}, "expected encoding to be one of"),
        ({"shape": (None, None), "encoding": "none"}, "Use encoding 'bytes' or 'zlib'"),
        ({"dtype": "bfloat16", "encoding": "none"}, "Use encoding 'bytes' or 'zlib'"),
        ({"dtype": "str", "encoding": "zlib"}, "expected encoding 'none'"),
        ({"dtype": "str", "shape": (None, None)}, "list[list[...]]"),
        ({"shape": (None,), "levels": 1}, "list[list[int64]]"),
        ({"levels": -1}, "levels"),
        ({"levels": MAX_DEPTH + 1}, "levels"),
        ({"optional": 1}, "True or False"),
        ({"kind": "picture"}, "expected kind to be one of"),
        ({"kind": "image"}, 'Write dtype="bytes"'),
        ({"kind": "text", "dtype": "str", "shape": (2,)}, "levels=1"),
        ({"classes": ("a", "b")}, 'Write dtype="int64"'),
        ({"classes": ("a", "a"), "dtype": "int64"}, "'a' twice"),
        ({"classes": "ab", "dtype": "int64"}, "tuple of str"),
        ({"classes": ("a",), "dtype": "str", "kind": "text"}, "on a label"),
        ({"default": "x"}, "the default of"),
        ({"default": 1e300}, "cannot hold"),
        ({"default": [1, 2], "shape": (3,)}, "expected float32[3]?, got int[2]"),
        ({"default": 1, "levels": 1}, "no default on a list"),
        ({"name": 3}, "name"),
    ],
    ids=short,
)  # fmt: skip
def test_fields_that_cannot_be(options: dict[str, Any], words: str) -> None:
    assert words in message(Field, **options)


def test_what_a_field_implies() -> None:
    assert Field(dtype="int64", classes=["a", "b"]).kind == "label"
    assert Field(dtype="int64", classes=["a", "b"]).classes == ("a", "b")
    assert Field(dtype="str").kind == "text"
    assert Field(dtype="str", shape=(2,)).kind == "tensor"
    assert Field(dtype="float64").encoding == "bytes"
    assert Field(dtype="float64", encoding="none").wire == "float"
    assert Field(default=0).optional
    assert Field(dtype="bytes", kind="image", classes=("sky", "road")).kind == "image"
    assert Field(shape=[np.int64(2), None]).shape == (2, None)


@pytest.mark.parametrize(
    ("text", "wire", "count", "keys"),
    [
        ("float16[2,3]", "float", 6, ("x",)),
        ("uint64", "int64", 1, ("x",)),
        ("bool[?]", "int64", None, ("x",)),
        ("bfloat16[0]", "bytes", 0, ("x",)),
        ("list[str]", "bytes", 1, ("x",)),
        ("int8[?,?]", "bytes", None, ("x/value", "x/shape")),
        ("list[list[int64]]", "int64", 1, ("x/ragged_flat_values", "x/ragged_row_lengths_0")),
        ("list[list[list[str]]]", "bytes", 1,
         ("x/ragged_flat_values", "x/ragged_row_lengths_0", "x/ragged_row_lengths_1")),
    ],
)  # fmt: skip
def test_what_the_codec_asks(text: str, wire: str, count: int | None, keys: tuple[str, ...]) -> None:
    field = Field.parse(text, "x")
    assert (field.wire, field.fixed_count, field.record_keys) == (wire, count, keys)


def test_numpy_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert Field(dtype="bfloat16").numpy_dtype == ml_dtypes.bfloat16
    assert Field(dtype="float16").numpy_dtype == np.float16
    assert Field(dtype="str").numpy_dtype is None


def test_bfloat16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(MissingDependencyError, match=r"pip install penstock-data\[bfloat16\]"):
        _ = Field(dtype="bfloat16").numpy_dtype


@given(fields())
def test_fields_are_values(field: Field) -> None:
    again = pickle.loads(pickle.dumps(field))  # noqa: S301 - our own bytes
    assert again == field
    assert hash(again) == hash(field)
    assert eval(repr(field)) == field  # noqa: S307 - the repr is what is tested
    assert field != str(field)


# Schemas


@given(schemas(fields()))
def test_schemas_are_values(schema: Schema) -> None:
    for again in (
        Schema.from_json(json.loads(json.dumps(schema.to_json()))),
        pickle.loads(pickle.dumps(schema)),  # noqa: S301 - our own bytes
        copy.deepcopy(schema),
        eval(repr(schema)),  # noqa: S307 - the repr is what is tested
        Schema(dict(reversed(list(schema.items()))), sequence=schema.sequence),
    ):
        assert again == schema
        assert hash(again) == hash(schema)
    assert schema.to_json() == json.loads(json.dumps(schema.to_json()))


def test_schemas_are_mappings() -> None:
    assert list(EXAMPLE) == ["dense", "label", "objects", "weight"]
    assert len(EXAMPLE) == 4
    assert EXAMPLE["dense"] == Field("dense", "float32", (3,))
    assert "dens" not in EXAMPLE
    with pytest.raises(KeyError, match="Did you mean 'dense'"):
        EXAMPLE["dens"]
    assert dict(EXAMPLE) != EXAMPLE
    assert Schema({"b": EXAMPLE["dense"]})["b"] == Field("b", "float32", (3,))


def test_leaves() -> None:
    assert [(leaf.name, str(leaf)) for leaf in EXAMPLE.leaves()] == [
        ("dense", "float32[3]"),
        ("label", "int64"),
        ("objects/box", "list[float32[4]]"),
        ("objects/tag", "list[str]"),
        ("objects/at/x", "list[int8]"),
        ("weight", "float64?"),
    ]


def test_select() -> None:
    assert EXAMPLE.select("label", "objects/box") == Schema(
        {"label": EXAMPLE["label"], "objects": Schema({"box": "float32[4]"}, sequence=True)}
    )
    assert EXAMPLE.select("objects") == Schema({"objects": EXAMPLE["objects"]})
    assert list(EXAMPLE.select("weight", "dense")) == ["dense", "weight"]
    assert "Did you mean 'objects/box'" in message(EXAMPLE.select, "objects/bx")
    assert len(EXAMPLE.select()) == 0


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"": "int64"}, "at least one letter"),
        ({"\ud800": "int64"}, "UTF-8"),
        ({3: "int64"}, "got 3"),
        ({"x": 3}, "expected a type, a Field or a dict, got int - at x"),
        ({"x": {}}, "at least one field"),
        ({"x": "int65"}, "Did you mean 'int64'"),
        ({"a/b": "int64", "a": {"b": "int64"}}, "'a/b'"),
        ({"a": "int8[?,?]", "a/shape": "int64"}, "both stored under 'a/shape'"),
        (["int64"], "expected a dict of fields, got list"),
    ],
    ids=short,
)
def test_schemas_that_cannot_be(nodes: Any, words: str) -> None:
    assert words in message(Schema, nodes)


def test_sequences_hold_what_can_be_stored() -> None:
    assert "list[list[int64]]" in message(Schema, {"x": "int64[?]"}, sequence=True)
    assert "no default" in message(Schema, {"x": Field(default=1)}, sequence=True)
    assert "True or False" in message(Schema, {"x": "int64"}, sequence=1)


def nest(depth: int) -> dict[str, Any]:
    nodes: dict[str, Any] = {"x": "int64"}
    for _ in range(depth - 1):
        nodes = {"x": nodes}
    return nodes


def test_depth_is_bounded() -> None:
    assert Schema.from_json(Schema(nest(MAX_DEPTH)).to_json()) == Schema(nest(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 100_000):
        assert "within each other" in message(Schema, nest(depth))
    assert "within each other" in message(Schema, {"x": Schema(nest(MAX_DEPTH))})


# JSON


def deep_json(depth: int) -> dict[str, Any]:
    data: dict[str, Any] = {"type": "int64"}
    for _ in range(depth):
        data = {"fields": {"x": data}}
    return {"penstock_schema": 1, **data}


def deep_list(depth: int) -> list[Any]:
    items: list[Any] = [1]
    for _ in range(depth):
        items = [items]
    return items


@pytest.mark.parametrize(
    "data",
    [
        None, [], "x", {}, {"penstock_schema": 2, "fields": {}}, {"fields": {}},
        {"penstock_schema": 1}, {"penstock_schema": 1, "fields": []}, {"penstock_schema": 1, "fields": {}, "more": 1},
        {"penstock_schema": 1, "fields": {}, "sequence": "yes"},
        deep_json(MAX_DEPTH + 1), deep_json(50_000),
        *({"penstock_schema": 1, "fields": {"x": field}} for field in [
            None, 3, "int64", [], {}, {"type": 3}, {"type": None}, {"type": "int64", "more": 1},
            {"type": "int64", "encoding": None}, {"type": "int64", "kind": 7}, {"type": "int64", "classes": {"a": 1}},
            {"type": "int64", "classes": ["a", 3]}, {"type": "int64", "classes": ["a", "a"]},
            {"type": f"int64[{2**62}]"}, {"type": "list[" * 100_000}, {"type": "int64[" + "1," * 100_000 + "1]"},
            {"type": "int64", "default": "x"}, {"type": "int64", "default": {}}, {"type": "int64", "default": 10**5000},
            {"type": "int64", "default": deep_list(50_000)}, {"type": "float32", "default": "infinity"},
            {"type": "bytes", "default": "not base64!"}, {"type": "bytes", "default": 3}, {"type": "str", "default": 3},
            {"type": "str", "default": "\ud800"}, {"fields": {}},
            {"fields": {"y": {"type": "int64[?]"}}, "sequence": True},
            {"type": "int64", "fields": {"y": {"type": "int64"}}},
        ]),
    ],
    ids=short,
)  # fmt: skip
def test_json_that_is_no_schema(data: Any) -> None:
    assert "expected" in message(Schema.from_json, data)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["int64", "float32[2]", "list[str]", "zlib"]),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["fields", "sequence", "type", "encoding", "kind", "classes", "default", "x"]), below
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["fields", "sequence"]), JSON))
def test_any_json_is_a_schema_or_a_schema_error(data: dict[str, Any]) -> None:
    try:
        schema = Schema.from_json({"penstock_schema": 1, **data})
    except SchemaError:
        return
    assert Schema.from_json(schema.to_json()) == schema


def test_json_of_today_is_read_tomorrow() -> None:
    """The form that is on people's disks. A change of it needs a new version."""
    data = {
        "penstock_schema": 1,
        "fields": {
            "dense": {"type": "float32[3]", "encoding": "none", "kind": "tensor"},
            "label": {"type": "int64", "encoding": "none", "kind": "label", "classes": ["cat", "dog"]},
            "objects": {
                "fields": {
                    "box": {"type": "float32[4]", "encoding": "none", "kind": "tensor"},
                    "tag": {"type": "str", "encoding": "none", "kind": "text"},
                    "at": {"fields": {"x": {"type": "int8", "encoding": "none", "kind": "tensor"}}},
                },
                "sequence": True,
            },
            "weight": {"type": "float64?", "encoding": "bytes", "kind": "tensor"},
        },
    }
    assert EXAMPLE.to_json() == data
    assert Schema.from_json(data) == EXAMPLE


# Nested examples


def test_flatten_takes_a_list_of_dicts_and_a_dict_of_lists() -> None:
    flat = EXAMPLE.flatten(VALUE)
    assert flat == {
        "dense": [1, 2, 3],
        "label": "dog",
        "objects/box": [[0, 0, 1, 1], [0.5] * 4],
        "objects/tag": ["a", "b"],
        "objects/at/x": [1, 2],
        "weight": None,
    }
    nested = EXAMPLE.unflatten(flat)
    assert nested["objects"] == {"box": flat["objects/box"], "tag": ["a", "b"], "at": {"x": [1, 2]}}
    assert EXAMPLE.flatten(nested) == flat
    half = {"box": flat["objects/box"], "tag": ["a", "b"], "at": [{"x": 1}, {"x": 2}]}
    assert EXAMPLE.flatten({**VALUE, "objects": half}) == flat


def test_flatten_sequences_within_sequences() -> None:
    inner = Schema({"y": "int64"}, sequence=True)
    schema = Schema({"a": Schema({"b": inner, "x": "int64"}, sequence=True)})
    flat = {"a/b/y": [[1, 2], []], "a/x": [5, 6]}
    for value in (
        [{"b": [{"y": 1}, {"y": 2}], "x": 5}, {"b": [], "x": 6}],
        [{"b": {"y": [1, 2]}, "x": 5}, {"b": {"y": []}, "x": 6}],
        {"b": [[{"y": 1}, {"y": 2}], []], "x": [5, 6]},
        {"b": [{"y": [1, 2]}, {"y": []}], "x": [5, 6]},
        {"b": {"y": [[1, 2], []]}, "x": [5, 6]},
    ):
        assert schema.flatten({"a": value}) == flat
        schema.check({"a": value})
    assert schema.flatten({"a": []}) == {"a/b/y": [], "a/x": []}
    assert "equal length" in message(schema.check, {"a": {"b": {"y": [[1]]}, "x": [5, 6]}})


@given(schemas(types()), st.data())
def test_unflatten_is_the_inverse_of_flatten(schema: Schema, data: st.DataObject) -> None:
    flat = {leaf.name: data.draw(st.none() | st.integers(), leaf.name) for leaf in schema.leaves()}
    assert schema.flatten(schema.unflatten(flat)) == flat
    some = dict(list(flat.items())[::2])
    assert schema.flatten(schema.unflatten(some)) == dict.fromkeys(flat) | some


def test_unflatten_rejects_unknown_names() -> None:
    assert "Did you mean 'objects/box'" in message(EXAMPLE.unflatten, {"objects/bx": 1})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dens": 1}, "unknown field 'dens' - at train[812]. Did you mean 'dense'? The fields are: dense, label"),
        ({"dense": None}, "expected float32[3], got nothing - at train[812].dense. Give it a value"),
        ({"dense": np.zeros(3)}, 'expected float32[3], got float64[3] - at train[812].dense. Cast it first: value.as'),
        ({"dense": np.zeros(4, np.float32)}, "expected float32[3], got float32[4] - at train[812].dense"),
        ({"label": "dgo"}, "unknown class 'dgo' - at train[812].label. Did you mean 'dog'? The classes are: cat, dog"),
        ({"label": 2}, "expected a label of 2 classes, got 2"),
        ({"objects": 3}, "expected a dict or a list of dicts, got int - at train[812].objects"),
        ({"objects": [3]}, "expected a dict, got int - at train[812].objects[0]"),
        ({"objects": {"box": [[0] * 4] * 2, "tag": ["a"], "at": {"x": [1, 2]}}}, "expected lists of equal length"),
        ({"objects": [{"box": [0] * 4, "tag": "a", "at": {"y": 1}}]}, "unknown field 'y' - at train[812].objects[0]."),
        ({"objects": [{"box": [0] * 4, "tag": "a", "at": {"x": 1}}, {}]}, "train[812].objects/box"),
    ],
    ids=short,
)  # fmt: skip
def test_check_says_what_does_not_fit(change: dict[str, Any], words: str) -> None:
    EXAMPLE.check(VALUE)
    assert words in message(EXAMPLE.check, {**VALUE, **change}, "train[812]")


def test_check_of_no_dict() -> None:
    assert "expected a dict, got list - at train[1]" in message(EXAMPLE.check, [VALUE], "train[1]")


# Values


@pytest.mark.parametrize(
    ("text", "value", "canonical"),
    [
        ("uint8", 255, np.uint8(255)),
        ("int64", True, np.int64(1)),
        ("float32", 1, np.float32(1)),
        ("float32", 0.1, np.float32(0.1)),
        ("float16", math.inf, np.float16(math.inf)),
        ("float64", np.float32(0.5), np.float64(0.5)),
        ("float64", np.int64(2**60), np.float64(2**60)),
        ("int64", np.int32(3), np.int64(3)),
        ("int16", np.uint8(3), np.int16(3)),
        ("int8", np.bool_(True), np.int8(1)),
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("float32[2]", (1, 2.5), np.array([1, 2.5], np.float32)),
        ("float32[2]", [np.float32(1), 2.5], np.array([1, 2.5], np.float32)),
        ("int64[?,2]", [], np.zeros((0, 2), np.int64)),
        ("int64[1,?,2]", [[]], np.zeros((1, 0, 2), np.int64)),
        ("int64[?,2]", [[1, 2], np.array([3, 4])], np.array([[1, 2], [3, 4]])),
        ("int32[?]", np.array([1, 2], ">i4"), np.array([1, 2], np.int32)),
        ("int64[2]", np.array([1, 2], object), np.array([1, 2])),
        ("list[int64]", [1, 2], np.array([1, 2])),
        ("list[int64[2]]", [], np.zeros((0, 2), np.int64)),
        ("bytes", bytearray(b"ab"), b"ab"),
        ("bytes", memoryview(b"abcd")[::2], b"ac"),
        ("bytes", np.bytes_(b"ab"), b"ab"),
        ("str", "hé", "hé".encode()),
        ("str", np.str_("hé"), "hé".encode()),
        ("str[2]", np.array(["a", "b"]), np.array([b"a", b"b"], object)),
        ("list[bytes]", [b"a"], np.array([b"a"], object)),
        ("int64?", None, None),
        ("int64?", np.ma.masked, None),
    ],
    ids=short,
)
def test_values_that_fit(text: str, value: Any, canonical: Any) -> None:
    got = Field.parse(text).coerce(value)
    if isinstance(canonical, (np.ndarray, np.generic)):
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape, got.tolist()) == (canonical.dtype, canonical.shape, canonical.tolist())
        assert got.flags.c_contiguous
        assert got.dtype.isnative
    else:
        assert got == canonical
        assert type(got) is type(canonical)


def test_lists_of_lists_stay_lists() -> None:
    rows = Field.parse("list[list[int16]]").coerce([[1, 2], [], np.array([3], np.int8)])
    assert [row.tolist() for row in rows] == [[1, 2], [], [3]]
    assert all(row.dtype == np.int16 for row in rows)
    assert [row.tolist() for row in Field.parse("list[list[str]]").coerce([["a"], []])] == [[b"a"], []]
    assert len(Field.parse("list[list[int64]]").coerce(np.ones((2, 3), np.int64))) == 2


def test_labels_by_name_and_by_index() -> None:
    label = Field("y", "int8", classes=("cat", "dog"))
    assert label.coerce("dog") == label.coerce(1) == label.coerce(np.int8(1)) == np.int8(1)
    assert label.coerce(-1) == -1
    several = replace(label, shape=(None,))
    assert several.coerce(["dog", "cat", 1]).tolist() == [1, 0, 1]
    assert several.coerce(np.array(["dog"])).tolist() == [1]
    assert several.coerce([]).tolist() == []


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("uint8", 256, "expected uint8, got 256, outside of 0 to 255"),
        ("uint8", -1, "outside of 0 to 255"),
        ("uint64", 2**64, "an int of 65 bits"),
        ("int64", 10**5000, "outside of"),
        ("float32", 10**5000, "too large for any float"),
        ("int64", 1.0, "expected int64, got float"),
        ("bool", 1, "expected bool, got int"),
        ("float32", 2**24 + 1, "which float32 cannot hold"),
        ("float64", 2**53 + 1, "which float64 cannot hold"),
        ("float64", np.uint64(2**53 + 1), "cannot hold exactly"),
        ("float32", 1e39, "which float32 cannot hold"),
        ("float16[2]", [1.0, 1e6], "which float16 cannot hold"),
        ("float32", np.float64(1), 'value.astype("float32")'),
        ("int32", np.int64(1), 'value.astype("int32")'),
        ("int64", np.uint64(1), 'value.astype("int64")'),
        ("int64", np.datetime64("2020-01-01"), "got datetime64"),
        ("int64", "1", "expected int64, got str"),
        ("int64[?]", [1, None], "got a list of NoneType and int"),
        ("int64[?]", {1, 2}, "expected int64[?], got set"),
        ("int64[2,?]", [[1, 2], [3]], "Declare it as a list of lists"),
        ("int64[?]", [1, [2]], "expected int64[?]"),
        ("float32[?]", deep_list(50_000), "dimensions"),
        ("float32[?]", [np.zeros(2, np.float32), np.zeros(3, np.float32)], "arrays that differ in shape"),
        ("float32[2]", np.ma.masked_array([1, 2], [True, False], np.float32), "masked"),
        ("int64[?]", 3, "expected int64[?], got int"),
        ("list[list[int64]]", 3, "expected list[list[int64]], got int"),
        ("str", b"a", "value.decode()"),
        ("str", 3, "expected str, got int"),
        ("str", "\ud800", "not valid Unicode"),
        ("bytes", "a", "value.encode()"),
        ("bytes", np.zeros(3, np.uint8), 'Declare the type that it has: "uint8[3]"'),
        ("bytes", Path("a.jpg"), "value.read_bytes()"),
        ("list[str]", "abc", "expected list[str], got str"),
        ("list[str]", ["a", None], "got a list of NoneType and str"),
    ],
    ids=short,
)  # fmt: skip
def test_values_that_do_not_fit(text: str, value: Any, words: str) -> None:
    got = message(Field.parse(text).coerce, value, "train[7].x")
    assert words in got
    assert " - at train[7].x" in got


def test_importing_it_needs_no_extra() -> None:
    code = "import sys, penstock.schema.schema, penstock.schema.inference; sys.exit('ml_dtypes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
