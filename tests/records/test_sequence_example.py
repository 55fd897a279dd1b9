"""tf.train.SequenceExample, both ways against TensorFlow."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_oracle import entry, field, packed_floats, packed_ints, plain, row_of

import penstock as ps

CODEC = ps.SequenceCodec(
    context={"id": "int64", "speaker": "str?", "scores": "float32[?]"},
    steps={"tokens": "int64[?]", "frame": "float32[2]", "word": "str", "tags": "list[bytes]", "note": "int64?"},
)

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32, allow_nan=False)
EXAMPLES = st.fixed_dictionaries(
    {
        "id": INT64,
        "speaker": st.none() | st.text(max_size=4),
        "scores": st.lists(FLOAT32, max_size=3),
        "tokens": st.lists(st.lists(INT64, max_size=3), max_size=4),
        "frame": st.lists(st.lists(FLOAT32, min_size=2, max_size=2), max_size=3),
        "word": st.lists(st.text(max_size=3), max_size=3),
        "tags": st.lists(st.lists(st.binary(max_size=3), max_size=2), max_size=3),
        "note": st.none() | st.lists(INT64, max_size=3),
    }
)


def feature(values: Any) -> tf.train.Feature:
    """A Feature by the type of its values."""
    values = values if isinstance(values, list) else [values]
    kind = type(values[0]) if values else int
    if kind in (str, bytes):
        strings = [value.encode() if isinstance(value, str) else value for value in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=strings))
    if kind is float:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def write_with_tensorflow(example: dict[str, Any]) -> bytes:
    """The record as TensorFlow's own classes write it."""
    context = {name: feature(example[name]) for name in ("id", "speaker", "scores") if example[name] is not None}
    if not example["scores"]:
        context["scores"] = tf.train.Feature(float_list=tf.train.FloatList())
    lists = {}
    for name in ("tokens", "frame", "word", "tags", "note"):
        if example[name] is not None:
            features = [feature(step) for step in example[name]]
            if name == "tags":
                features = [tf.train.Feature(bytes_list=tf.train.BytesList(value=step)) for step in example[name]]
            lists[name] = tf.train.FeatureList(feature=features)
    return tf.train.SequenceExample(
        context=tf.train.Features(feature=context), feature_lists=tf.train.FeatureLists(feature_list=lists)
    ).SerializeToString(deterministic=True)


def expected(example: dict[str, Any]) -> dict[str, Any]:
    """The example as decoding gives it, in plain values."""
    as_float = {name: np.array(example[name], np.float32) for name in ("scores", "frame")}
    return {name: plain(as_float.get(name, value)) for name, value in example.items()}


@settings(max_examples=150)
@given(st.lists(EXAMPLES, min_size=1, max_size=4))
def test_our_records_are_those_of_tensorflow(examples: list[dict[str, Any]]) -> None:
    records = CODEC.encode_examples(examples)
    assert list(records) == [write_with_tensorflow(example) for example in examples]
    batch = CODEC.decode(records)
    for row, example in enumerate(examples):
        assert row_of(batch, row) == expected(example)
        assert plain(CODEC.decode_example(records[row])) == expected(example)
    assert list(CODEC.encode(batch)) == list(records)
    columns = {name: [example[name] for example in examples] for name in examples[0]}
    assert list(CODEC.encode(columns)) == list(records)


def test_tensorflow_parses_what_we_write() -> None:
    examples = [
        {"id": 1, "scores": [0.5], "tokens": [[1, 2], []], "frame": [[1, 2]], "word": ["a", "é"], "tags": [[b"x"], []]},
        {"id": 2, "scores": [], "tokens": [], "frame": [[3, 4], [5, 6]], "word": [], "tags": []},
    ]
    records = CODEC.encode_examples(examples)
    context, lists, lengths = tf.io.parse_sequence_example(
        list(records),
        context_features={
            "id": tf.io.FixedLenFeature([], tf.int64),
            "speaker": tf.io.VarLenFeature(tf.string),
            "scores": tf.io.RaggedFeature(tf.float32),
        },
        sequence_features={
            "tokens": tf.io.RaggedFeature(tf.int64),
            "frame": tf.io.FixedLenSequenceFeature([2], tf.float32),
            "word": tf.io.FixedLenSequenceFeature([], tf.string),
            "tags": tf.io.RaggedFeature(tf.string),
        },
    )
    assert context["id"].numpy().tolist() == [1, 2]
    assert context["scores"].to_list() == [[0.5], []]
    assert tf.sparse.to_dense(context["speaker"]).shape == (2, 0)
    assert lists["tokens"].to_list() == [[[1, 2], []], []]
    assert lists["tags"].to_list() == [[[b"x"], []], []]
    assert lengths["frame"].numpy().tolist() == [1, 2]
    assert lists["frame"].numpy().tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]
    assert lists["word"].numpy().tolist() == [[b"a", "é".encode()], [b"", b""]]


def test_columns_of_steps_are_ragged() -> None:
    records = CODEC.encode_examples(
        [
            {"id": 1, "scores": [], "tokens": [[1, 2], [3]], "frame": [[1, 2]], "word": ["a"], "tags": [], "note": [7]},
            {"id": 2, "scores": [], "tokens": [[]], "frame": [], "word": [], "tags": [[b"y"]]},
        ]
    )
    batch = CODEC.decode(records)
    tokens = batch["tokens"]
    assert isinstance(tokens, ps.Ragged)
    assert isinstance(tokens.values, ps.Ragged)
    assert tokens.to_list() == [[[1, 2], [3]], [[]]]
    assert batch["frame"].values.shape == (1, 2)
    assert batch["note"].to_list() == [[7], None]
    assert batch["id"].tolist() == [1, 2]
    assert list(batch) == ["id", "speaker", "scores", "tokens", "frame", "word", "tags", "note"]


def test_a_step_without_a_feature_is_masked_where_it_may_be_missing() -> None:
    steps = field(1, field(3, packed_ints(5))) + field(1, b"") + field(1, field(3, packed_ints(7)))
    record = field(2, field(1, field(1, b"n") + field(2, steps)))
    note = ps.SequenceCodec({}, {"n": "int64?"}).decode([record])["n"]
    assert plain(note.values) == [5, None, 7]
    assert note.row_splits.tolist() == [0, 3]
    default = ps.SequenceCodec({}, {"n": ps.Field(dtype="int64", default=-1)}).decode([record])["n"]
    assert default.to_list() == [[5, -1, 7]]
    with pytest.raises(ps.SchemaError, match=r'got no such feature - at record 0, field "n"'):
        ps.SequenceCodec({}, {"n": "int64"}).decode([record])


def test_encoded_arrays_and_nested_dicts_go_both_ways() -> None:
    codec = ps.SequenceCodec(
        context={"camera": {"matrix": "float64[2,2]", "name": "str"}, "sizes": "list[list[int64]]"},
        steps={
            "depth": ps.Field(dtype="float64", shape=(2,), encoding="zlib"),
            "half": "bfloat16[?]",
            "pose": {"angle": "float32", "points": "list[float64[2]]"},
        },
    )
    example = {
        "camera": {"matrix": [[1.5, 0], [0, 1.5]], "name": "left"},
        "sizes": [[1, 2], []],
        "depth": [[0.1, 0.2], [0.3, 1e300]],
        "half": [[1.0], [], [2.0, 0.5]],
        "pose": {"angle": [1.0, 2.0], "points": [[], [[0.5, 0.25]]]},
    }
    records = codec.encode_examples([example, example])
    decoded = codec.decode_example(records[1])
    assert decoded["camera"]["matrix"].tolist() == [[1.5, 0], [0, 1.5]]
    assert decoded["depth"].tolist() == example["depth"]
    assert [row.astype(float).tolist() for row in decoded["half"]] == example["half"]
    assert [row.tolist() for row in decoded["pose"]["points"]] == example["pose"]["points"]
    assert [row.tolist() for row in decoded["sizes"]] == example["sizes"]
    assert list(codec.encode(codec.decode(records))) == list(records)
    assert list(pickle.loads(pickle.dumps(codec)).encode_examples([example])) == [records[0]]  # noqa: S301


def test_protobuf_merges_what_comes_twice() -> None:
    """The last list of a name counts as a whole; the context is a map like any other."""
    first = field(1, field(1, b"n") + field(2, field(1, field(3, packed_ints(1)))))
    second = field(
        1, field(1, b"n") + field(2, field(1, field(3, packed_ints(2))) + field(1, field(3, packed_ints(3))))
    )
    record = field(2, first) + field(1, entry(b"x", field(2, packed_floats(1)))) + field(2, second)
    theirs = tf.train.SequenceExample.FromString(record)
    steps = [step.int64_list.value[0] for step in theirs.feature_lists.feature_list["n"].feature]
    ours = ps.SequenceCodec({"x": "float32"}, {"n": "int64"}).decode_example(record)
    assert ours["n"].tolist() == steps == [2, 3]
    assert ours["x"] == theirs.context.feature["x"].float_list.value[0] == 1


@pytest.mark.parametrize(
    ("context", "steps", "message"),
    [
        ({"a": "int64"}, {"a": "int64"}, "'a' in the context and in the steps"),
        ({}, {"a": "uint8[?,?]"}, r"expected a step that one feature holds, got uint8\[\?,\?\] - at a"),
        ({}, {"a": "list[list[int64]]"}, r"expected a step that one feature holds, got list\[list\[int64\]\] - at a"),
    ],
)
def test_schemas_that_cannot_be_steps_are_refused(context: Any, steps: Any, message: str) -> None:
    with pytest.raises(ps.SchemaError, match=message):
        ps.SequenceCodec(context, steps)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"n": [1], "x": 1.0, "y": 2}, r"unknown field 'y' - at \[0\]"),
        ({"n": [1]}, r"expected float32, got nothing - at \[0\].x"),
        ({"x": 1.0}, r"expected list\[int64\], got nothing - at \[0\].n"),
        ({"n": 1, "x": 1.0}, r"expected list\[int64\], got int - at \[0\].n"),
        ({"n": "12", "x": 1.0}, r"expected list\[int64\], got str - at \[0\].n"),
        ({"n": [1, 2.5], "x": 1.0}, r"expected int64, got float - at \[0\].n\[1\]"),
        ({"n": [1, None], "x": 1.0}, r"expected int64, got nothing - at \[0\].n\[1\]"),
        ([1], r"expected an example as a dict, got list - at \[0\]"),
    ],
)
def test_examples_that_do_not_fit_say_where(example: Any, message: str) -> None:
    codec = ps.SequenceCodec({"x": "float32"}, {"n": "int64"})
    with pytest.raises(ps.SchemaError, match=message):
        codec.encode_examples([example])


def test_columns_that_do_not_fit_say_where() -> None:
    codec = ps.SequenceCodec({"x": "float32"}, {"n": "int64"})
    with pytest.raises(ps.SchemaError, match="expected 1 rows, as other columns have, got 2 - at n"):
        codec.encode({"x": [1.0], "n": [[1], [2]]})
    with pytest.raises(ps.SchemaError, match=r"expected a column of list\[int64\], got nothing - at n"):
        codec.encode({"x": [1.0]})
    with pytest.raises(ps.SchemaError, match="unknown field 'm'"):
        codec.encode({"x": [1.0], "m": [[1]]})
    assert len(ps.SequenceCodec({}, {"n": "int64"}).encode({"n": [[1], [], [2, 3]]})) == 3


def test_records_that_do_not_fit_say_where() -> None:
    codec = ps.SequenceCodec({"x": "float32"}, {"n": "int64"})
    good = codec.encode_examples([{"x": 1.0, "n": [1, 2]}])[0]
    other = ps.SequenceCodec({"x": "float32"}, {"n": "str"}).encode_examples([{"x": 1.0, "n": ["a"]}])[0]
    with pytest.raises(ps.SchemaError, match=r'in a int64_list, got a bytes_list - at record 1, field "n"'):
        codec.decode([good, other])
    with pytest.raises(ps.SchemaError, match=r'expected a feature list, got none - at record 0, field "n"'):
        codec.decode([field(1, entry(b"x", field(2, packed_floats(1))))])
    with pytest.raises(ps.CorruptionError, match="record 1"):
        codec.decode([good, b"\xff\xff"])


def test_a_shard_of_sequences(tmp_path: Any) -> None:
    codec = ps.SequenceCodec({"x": "float32"}, {"n": "int64"})
    with ps.TFRecordWriter(tmp_path / "a") as writer:
        writer.write_records(codec.encode_examples([{"x": float(i), "n": list(range(i))} for i in range(10)]))
    batch = codec.decode(ps.TFRecordReader(tmp_path / "a")[3:5])
    assert batch["n"].to_list() == [[0, 1, 2], [0, 1, 2, 3]]
