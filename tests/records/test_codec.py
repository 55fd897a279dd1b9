"""The codec: any schema, any example, both ways, and both ways against TensorFlow."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_oracle import entry, example, field, packed_ints, plain, row_of
from tests.support.schema_strategies import examples_of, fields, schemas_with_examples

import penstock as ps
from penstock.recipes.tornet_sample import storms
from penstock.schema.coercion import FLOATS, TEXTS


def is_missing(schema: ps.Schema, value: dict[str, Any]) -> bool:
    """Whether a value is missing that has a default."""
    flat = schema.flatten(value)
    return any(flat[leaf.name] is None and leaf.default is not None for leaf in schema.leaves())


def expected(schema: ps.Schema, value: dict[str, Any]) -> dict[str, Any]:
    """The example as decoding gives it, in plain values: defaults filled in, dicts of lists."""
    flat = schema.flatten(value)
    for leaf in schema.leaves():
        if flat[leaf.name] is None and leaf.default is not None:
            default = leaf.default
            flat[leaf.name] = default if leaf.dtype in TEXTS else np.array(default, leaf.numpy_dtype)
    return {name: plain(item) for name, item in flat.items()}


def flat_plain(schema: ps.Schema, value: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(item) for name, item in schema.flatten(value).items()}


# What TensorFlow's own classes would hold, written without a look at ours


def leaf_items(value: Any, levels: int) -> list[Any]:
    """The arrays inside of the lists."""
    return [value] if not levels else [item for row in value for item in leaf_items(row, levels - 1)]


def numbers_in(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind in "OSU" or (array.size == 0 and not isinstance(value, np.ndarray)):
        return np.asarray(value, dtype=object).ravel().tolist()
    return array.ravel()


def encoded(leaf: ps.Field, array: Any) -> bytes:
    data = np.asarray(array).tobytes()
    return zlib.compress(data) if leaf.encoding == "zlib" else data


def tensorflow_features(leaf: ps.Field, value: Any) -> dict[str, tf.train.Feature]:
    """A field's features, as section 4 of the format facts has them."""
    ints = lambda items: tf.train.Feature(int64_list=tf.train.Int64List(value=items))  # noqa: E731
    strings = lambda items: tf.train.Feature(bytes_list=tf.train.BytesList(value=items))  # noqa: E731
    items = leaf_items(value, leaf.levels)
    if leaf.encoding != "none":
        feature = strings([encoded(leaf, item) for item in items])
    elif leaf.dtype in TEXTS:
        texts = [text for item in items for text in numbers_in(item)]
        feature = strings([text.encode() if isinstance(text, str) else text for text in texts])
    elif leaf.dtype in FLOATS:
        floats = [float(number) for item in items for number in numbers_in(item)]
        feature = tf.train.Feature(float_list=tf.train.FloatList(value=floats))
    else:
        signed = [
            int(np.uint64(n).view(np.int64)) if leaf.dtype == "uint64" else int(n) for i in items for n in numbers_in(i)
        ]
        feature = ints(signed)
    if leaf.shape.count(None) > 1:
        return {f"{leaf.name}/value": feature, f"{leaf.name}/shape": ints(np.shape(value))}
    if leaf.levels < 2:
        return {leaf.name: feature}
    features = {f"{leaf.name}/ragged_flat_values": feature}
    for level in range(leaf.levels - 1):
        lengths = [len(row) for row in leaf_items(value, level + 1)]
        features[f"{leaf.name}/ragged_row_lengths_{level}"] = ints(lengths)
    return features


def write_with_tensorflow(schema: ps.Schema, value: dict[str, Any], *, backwards: bool = False) -> tf.train.Example:
    features: dict[str, tf.train.Feature] = {}
    for leaf in schema.leaves():
        item = schema.flatten(value)[leaf.name]
        if item is not None:
            features |= tensorflow_features(leaf, item)
    if backwards:
        features = dict(reversed(features.items()))
    return tf.train.Example(features=tf.train.Features(feature=features))


def inflated(record: bytes, schema: ps.Schema) -> tf.train.Example:
    """The record's message, zlib undone: two compressors write different bytes."""
    message = tf.train.Example.FromString(record)
    for leaf in schema.leaves():
        key = leaf.record_keys[0]
        if leaf.encoding == "zlib" and key in message.features.feature:
            values = message.features.feature[key].bytes_list.value
            values[:] = [zlib.decompress(item) for item in values]
    return message


@settings(max_examples=250)
@given(schemas_with_examples())
def test_any_example_goes_both_ways(case: tuple[ps.Schema, list[dict[str, Any]]]) -> None:
    schema, examples = case
    codec = ps.Codec(schema)
    records = codec.encode_examples(examples, threads=1)
    batch = codec.decode(records)
    wanted = [expected(schema, value) for value in examples]
    for row, value in enumerate(wanted):
        assert schema.flatten(row_of(batch, row)) == value
        assert flat_plain(schema, codec.decode_example(records[row])) == value
    # Columns of any rows, and the columns that decoding gave, make the same records.
    columns = {leaf.name: [schema.flatten(value)[leaf.name] for value in examples] for leaf in schema.leaves()}
    assert list(codec.encode(schema.unflatten(columns))) == list(records)
    if not any(is_missing(schema, value) for value in examples):
        assert list(codec.encode(batch)) == list(records)
    decoded = [codec.decode_example(record) for record in records]
    again = codec.decode(codec.encode_examples(decoded))
    assert [schema.flatten(row_of(again, row)) for row in range(len(examples))] == wanted


@settings(max_examples=150)
@given(schemas_with_examples())
def test_tensorflow_and_we_read_each_other(case: tuple[ps.Schema, list[dict[str, Any]]]) -> None:
    schema, examples = case
    codec = ps.Codec(schema)
    records = codec.encode_examples(examples)
    for value, record in zip(examples, records, strict=True):
        theirs = write_with_tensorflow(schema, value)
        # What we write is what TensorFlow writes, byte for byte where no compressor is involved, with the keys sorted.
        read = tf.train.Example.FromString(record).features.feature
        keys = sorted(read, key=str.encode)
        assert example(*(entry(key.encode(), read[key].SerializeToString()) for key in keys)) == record
        assert inflated(record, schema) == inflated(theirs.SerializeToString(), schema)
        wanted = expected(schema, value)
        backwards = write_with_tensorflow(schema, value, backwards=True)
        for written in (
            theirs.SerializeToString(deterministic=True),
            theirs.SerializeToString(),
            backwards.SerializeToString(),
        ):
            assert schema.flatten(row_of(codec.decode([written]), 0)) == wanted
            assert flat_plain(schema, codec.decode_example(written)) == wanted


WIRE = {"int64": tf.int64, "float": tf.float32, "bytes": tf.string}


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        fields(simple=True),
        min_size=1,
    ),
    st.data(),
)
def test_tensorflows_parser_reads_what_we_write(nodes: dict[str, ps.Field], data: st.DataObject) -> None:
    schema = ps.Schema(nodes)
    examples = data.draw(st.lists(examples_of(schema), min_size=1, max_size=3))
    records = ps.Codec(schema).encode_examples(examples)
    features: dict[str, Any] = {}
    for leaf in schema.leaves():
        dtype = WIRE[leaf.wire]
        fixed = not leaf.levels and None not in leaf.shape
        features[leaf.name] = tf.io.FixedLenFeature(leaf.shape, dtype) if fixed else tf.io.RaggedFeature(dtype)
    parsed = tf.io.parse_example(list(records), features)
    for row, value in enumerate(examples):
        for leaf in schema.leaves():
            theirs = np.asarray(parsed[leaf.name][row]).ravel()
            wanted = [n for item in leaf_items(value[leaf.name], leaf.levels) for n in numbers_in(item)]
            if leaf.dtype in TEXTS:
                assert theirs.tolist() == [text.encode() if isinstance(text, str) else text for text in wanted]
            elif leaf.dtype in FLOATS:
                np.testing.assert_array_equal(theirs, np.array(wanted, np.float64).astype(np.float32))
            else:
                numbers = np.array([int(number) for number in wanted], object)
                assert theirs.tolist() == [n - 2**64 if n >= 2**63 else n for n in numbers.tolist()]


@settings(max_examples=40)
@given(schemas_with_examples(), st.data())
def test_some_fields_are_read_as_all_are(case: tuple[ps.Schema, list[dict[str, Any]]], data: st.DataObject) -> None:
    schema, examples = case
    codec = ps.Codec(schema)
    records = codec.encode_examples(examples)
    names = data.draw(st.lists(st.sampled_from([leaf.name for leaf in schema.leaves()]), min_size=1, unique=True))
    chosen = codec.select(*names)
    assert {leaf.name for leaf in chosen.schema.leaves()} >= set(names)
    whole, part = codec.decode(records), chosen.decode(records)
    for row in range(len(examples)):
        flat = schema.flatten(row_of(whole, row))
        assert chosen.schema.flatten(row_of(part, row)) == {f.name: flat[f.name] for f in chosen.schema.leaves()}


# Threads and sizes


@pytest.mark.parametrize("rows", [0, 1, 20_000])
def test_the_number_of_threads_does_not_change_a_byte(rows: int) -> None:
    chance = np.random.default_rng(5)
    codec = ps.Codec(
        {"n": "int64[?]", "x": "float32[3]", "s": "str", "z": ps.Field(dtype="int64", shape=(4,), encoding="zlib")}
    )
    lengths = chance.integers(0, 30, rows)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    columns = {
        "n": ps.Ragged(chance.integers(-(2**40), 2**40, splits[-1]), splits),
        "x": chance.random((rows, 3), np.float32),
        "s": [f"text {number}" for number in range(rows)],
        "z": chance.integers(0, 9, (rows, 4)),
    }
    one = list(codec.encode(columns, threads=1))
    assert len(one) == rows
    for threads in (2, 8):
        assert list(codec.encode(columns, threads=threads)) == one
    examples = [{name: columns[name][row] for name in columns} for row in range(rows)]
    for threads in (1, 8):
        assert list(codec.encode_examples(examples, threads=threads)) == one


def test_the_fast_path_hands_over_what_the_core_made(tmp_path: Any) -> None:
    """A flat schema of fixed arrays costs nothing in Python: the batch is the very dict of the core."""
    codec = ps.Codec({"dense": "float32[13]", "label": "int64"})
    raw = {"dense": np.zeros((1, 13), np.float32), "label": np.zeros(1, np.int64)}
    assert codec.to_batch(raw) is raw
    rows = [{"dense": np.zeros(13, np.float32), "label": 1}]
    assert codec.to_rows(rows)[0] is rows


def test_arrays_of_a_batch_may_be_written() -> None:
    codec = ps.Codec({"n": "int64", "r": "int64[?]"})
    batch = codec.decode(codec.encode({"n": [1, 2], "r": [[1], [2, 3]]}))
    batch["n"] += 1
    batch["r"].values += 1
    assert (batch["n"].tolist(), batch["r"].to_list()) == ([2, 3], [[2], [3, 4]])


def test_an_empty_batch_has_all_columns() -> None:
    codec = ps.Codec({"n": "int64", "r": "float32[?,2]", "s": "str", "l": "list[list[int64]]", "m": "uint8[?,?]"})
    for records in ([], codec.encode_examples([]), codec.encode({name: [] for name in codec.schema})):
        assert {name: len(column) for name, column in codec.decode(records).items()} == dict.fromkeys("nrslm", 0)


def test_columns_that_no_one_asks_for_are_skipped() -> None:
    """Their bytes are not even looked at: damage in them is no one's business."""
    broken = field(3, field(1, b"\xff" * 20))
    record = example(entry(b"a", field(3, packed_ints(7))), entry(b"b", broken))
    assert ps.Codec({"a": "int64"}).decode([record])["a"].tolist() == [7]
    with pytest.raises(ps.CorruptionError):
        ps.Codec({"a": "int64", "b": "int64[?]"}).decode([record])


def test_codecs_and_records_are_pickled() -> None:
    codec = ps.Codec({"n": "int64", "s": ps.Schema({"x": "str"}, sequence=True)})
    records = codec.encode_examples([{"n": 1, "s": [{"x": "a"}]}, {"n": 2, "s": []}])
    again = pickle.loads(pickle.dumps(codec))  # noqa: S301
    assert again.schema == codec.schema
    assert list(pickle.loads(pickle.dumps(records))) == list(records)  # noqa: S301
    assert plain(again.decode(records)) == plain(codec.decode(records))


def test_defaults_fill_in_for_what_is_missing() -> None:
    codec = ps.Codec(
        {
            "n": ps.Field(dtype="int64", default=5),
            "v": ps.Field(dtype="float32", shape=(2,), default=[1, 2]),
            "r": ps.Field(dtype="int64", shape=(None,), default=[7, 8]),
            "s": ps.Field(dtype="str", default="né"),
            "t": ps.Field(dtype="str", shape=(2,), default=["x", "y"]),
            "u": ps.Field(dtype="bytes", shape=(None,), default=[b"x"]),
            "m": ps.Field(dtype="uint8", shape=(None, None), default=[[1, 2]]),
        }
    )
    wanted = {"n": 5, "v": [1.0, 2.0], "r": [7, 8], "s": "né", "t": ["x", "y"], "u": [b"x"], "m": [[1, 2]]}
    given_values = {"n": 1, "v": [0, 0], "r": [], "s": "", "t": ["", ""], "u": [], "m": [[9]]}
    records = codec.encode_examples([{}, given_values])
    assert records[0] == example()
    batch = codec.decode(records)
    for row, values in enumerate((wanted, given_values)):
        got = {name: np.asarray(item).tolist() for name, item in codec.decode_example(records[row]).items()}
        assert got == values
        assert {name: np.asarray(column[row]).tolist() for name, column in batch.items()} == values
    assert batch["n"].tolist() == [5, 1]
    assert not isinstance(batch["n"], np.ma.MaskedArray)


def test_columns_of_optional_fields_may_be_left_out() -> None:
    codec = ps.Codec({"a": "int64?", "b": "int64", "c": "list[list[str]]?", "d": ps.Field(dtype="str", default="x")})
    records = codec.encode({"b": [1, 2]})
    assert list(records) == list(codec.encode_examples([{"b": 1}, {"b": 2}]))
    assert plain(codec.decode(records)) == {"a": [None, None], "b": [1, 2], "c": [None, None], "d": ["x", "x"]}
    assert list(codec.encode({"a": [1, None], "b": [1, 2]})) == list(
        codec.encode_examples([{"a": 1, "b": 1}, {"b": 2}])
    )


# bfloat16


def test_bfloat16_is_that_of_ml_dtypes() -> None:
    codec = ps.Codec({"x": "bfloat16[2]", "r": "bfloat16[?]", "s": "bfloat16"})
    values = np.array([[1.5, -2], [0, 3e38]], ml_dtypes.bfloat16)
    batch = codec.decode(codec.encode({"x": values, "r": [[1.0], []], "s": values[0]}))
    assert batch["x"].dtype == ml_dtypes.bfloat16
    assert batch["x"].tobytes() == values.tobytes()
    for value in (ml_dtypes.bfloat16(-2.5), np.array(-2.5, ml_dtypes.bfloat16), -2.5):
        record = codec.encode_examples([{"x": values[0], "r": values[1], "s": value}])[0]
        assert codec.decode_example(record)["s"] == ml_dtypes.bfloat16(-2.5)
    record = codec.encode_examples([{"x": [1, 2], "r": [0.5], "s": 1.0}])[0]
    assert codec.decode_example(record)["s"] == ml_dtypes.bfloat16(1)
    assert isinstance(codec.decode_example(record)["s"], ml_dtypes.bfloat16)


def test_bfloat16_without_ml_dtypes_is_one_sentence_with_the_pip_line() -> None:
    code = textwrap.dedent("""
        import sys
        sys.modules["ml_dtypes"] = None
        import penstock as ps
        assert ps.Codec({"x": "float32"}).encode({"x": [1.0]})
        try:
            ps.Codec({"x": "bfloat16"})
        except ps.MissingDependencyError as error:
            assert isinstance(error, ImportError)
            print(error)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "bfloat16 fields need the package ml_dtypes: pip install penstock-data[bfloat16]\n", (
        done.stderr
    )


# zlib


def stored(array: Any) -> bytes:
    """An array as a zlib field has it."""
    codec = ps.Codec({"x": ps.Field(dtype=array.dtype.name, shape=array.shape, encoding="zlib")})
    message = tf.train.Example.FromString(codec.encode({"x": array[None]})[0])
    return bytes(message.features.feature["x"].bytes_list.value[0])


@given(st.data())
def test_any_zlib_reads_what_is_stored(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "int32", "uint32", "int16", "float64"]))
    few = data.draw(st.lists(st.integers(0, 2**16), min_size=1, max_size=40))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    parts = [
        random.choice(few, data.draw(st.integers(0, 9000))),
        np.repeat(random.choice(few, 3), data.draw(st.integers(0, 500))),
        random.integers(0, 2**31, data.draw(st.integers(1, 3000))),
    ]
    array = np.concatenate(parts).astype(np.int64).astype(dtype)
    assert zlib.decompress(stored(array)) == array.tobytes()


def test_zlib_is_at_most_a_tenth_larger_than_at_its_default_level() -> None:
    random = np.random.default_rng(3)
    radar = storms(random, 3)
    arrays = [*radar, radar[0] * np.float32(7 / 80), random.integers(0, 50_000, 100_000, np.int32)]
    arrays += [np.round(np.cumsum(random.normal(size=100_000)) * 2) / 2, random.integers(0, 9, 100_000, np.int16)]
    for array in arrays:
        assert len(stored(array)) < 1.1 * len(zlib.compress(array.tobytes()))
