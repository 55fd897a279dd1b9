"""tf.train.Example byte by byte: protobuf's semantics in every corner, beside what TensorFlow's fast parser does."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_oracle import (
    KINDS,
    entry,
    example,
    field,
    packed_floats,
    packed_ints,
    parse_with_protobuf,
    plain,
    varint,
)

import penstock as ps
from penstock import _core

ERROR = "error"
INTS, FLOATS, BYTES = "int64", "float32", "bytes"


def ints(*numbers: int) -> bytes:
    return field(3, packed_ints(*numbers))


def unpacked_ints(*numbers: int) -> bytes:
    return b"".join(b"\x08" + varint(number) for number in numbers)


def floats(*numbers: float) -> bytes:
    return field(2, packed_floats(*numbers))


def strings(*values: bytes) -> bytes:
    return field(1, b"".join(field(1, value) for value in values))


UNKNOWN = field(9, b"later") + b"\x50\x01"  # fields 9 and 10 of no message


class Case(NamedTuple):
    """Bytes, and what protobuf (and so we) and tf.io.parse_single_example make of feature "a": its values, None when it
    is unset, or ERROR."""

    name: str
    record: bytes
    protobuf: Any
    tensorflow: Any
    kind: str = INTS


CASES = [
    Case("packed", example(entry(b"a", ints(1, -1))), [1, -1], [1, -1]),
    Case("packed floats", example(entry(b"a", floats(0.5, -2))), [0.5, -2], [0.5, -2], FLOATS),
    Case("byte strings", example(entry(b"a", strings(b"x", b""))), [b"x", b""], [b"x", b""], BYTES),
    Case("fully unpacked", example(entry(b"a", field(3, unpacked_ints(1, 2)))), [1, 2], [1, 2]),
    Case(
        "fully unpacked floats",
        example(entry(b"a", field(2, b"\x0d" + struct.pack("<f", 0.5) + b"\x0d" + struct.pack("<f", 2)))),
        [0.5, 2],
        [0.5, 2],
        FLOATS,
    ),
    Case(
        "several packed chunks", example(entry(b"a", field(3, packed_ints(1, 2) + packed_ints(3)))), [1, 2, 3], [1, 2]
    ),
    Case(
        "several packed chunks of floats",
        example(entry(b"a", field(2, packed_floats(1, 2) + packed_floats(3)))),
        [1, 2, 3],
        [1, 2],
        FLOATS,
    ),
    Case("packed, then unpacked", example(entry(b"a", field(3, packed_ints(1) + unpacked_ints(2)))), [1, 2], [1]),
    Case("unpacked, then packed", example(entry(b"a", field(3, unpacked_ints(1) + packed_ints(2)))), [1, 2], ERROR),
    Case("packed floats of 5 bytes", example(entry(b"a", field(2, field(1, bytes(5))))), ERROR, [0.0], FLOATS),
    Case("duplicate key", example(entry(b"a", ints(1, 2)), entry(b"a", ints(3))), [3], [3]),
    Case(
        "two Features messages",
        example(entry(b"a", ints(1)), entry(b"b", ints(9))) + example(entry(b"a", ints(2))),
        [2],
        [2],
    ),
    Case("entry without a value", example(field(1, field(1, b"a"))), None, ERROR),
    Case("empty Feature", example(entry(b"a", b"")), None, None),
    Case("empty list", example(entry(b"a", field(3, b""))), [], []),
    Case("one of: int, then float", example(entry(b"a", ints(1) + floats(2))), [2.0], ERROR, FLOATS),
    Case("one of: int, then float, read as int", example(entry(b"a", ints(1) + floats(2))), ERROR, [1], INTS),
    Case("the same kind twice", example(entry(b"a", ints(1) + ints(2))), [1, 2], [1]),
    Case("value before key", example(field(1, field(2, ints(7)) + field(1, b"a"))), [7], [7]),
    Case("unknown field in Example", UNKNOWN + example(entry(b"a", ints(7))) + UNKNOWN, [7], [7]),
    Case("unknown field after the list in Feature", example(entry(b"a", ints(7) + UNKNOWN)), [7], [7]),
    Case("unknown field before the list in Feature", example(entry(b"a", UNKNOWN + ints(7))), [7], ERROR),
    Case("unknown field in Features", example(UNKNOWN, entry(b"a", ints(7))), [7], ERROR),
    Case("unknown field in the list", example(entry(b"a", field(3, UNKNOWN + packed_ints(7)))), [7], ERROR),
    Case(
        "unknown field in the map entry", example(field(1, field(1, b"a") + field(2, ints(7)) + UNKNOWN)), None, ERROR
    ),
    Case("a varint of 11 bytes", example(entry(b"a", field(3, field(1, b"\xff" * 10 + b"\x01")))), ERROR, ERROR),
    Case("a key that is not UTF-8", example(entry(b"\xff", ints(1)), entry(b"a", ints(7))), ERROR, [7]),
    Case("two keys", example(field(1, field(1, b"b") + field(1, b"a") + field(2, ints(7)))), [7], ERROR),
    Case(
        "two keys, one not UTF-8",
        example(field(1, field(1, b"\xff") + field(1, b"a") + field(2, ints(7)))),
        ERROR,
        ERROR,
    ),
]


def read_with_tensorflow(record: bytes, kind: str) -> Any:
    """What tf.io.parse_single_example reads as feature "a": its values, None when it has none, or ERROR.

    A feature of any length tells nothing from no value, so one of a fixed length is asked beside it.
    """
    dtype = {INTS: tf.int64, FLOATS: tf.float32, BYTES: tf.string}[kind]
    try:
        values = tf.io.parse_single_example(record, {"a": tf.io.VarLenFeature(dtype)})["a"].values.numpy().tolist()
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # it may fail to show what it refuses
        return ERROR
    if values:
        return values
    try:
        default = tf.zeros([1], dtype) if kind != BYTES else [b""]
        tf.io.parse_single_example(record, {"a": tf.io.FixedLenFeature([1], dtype, default_value=default)})
    except tf.errors.InvalidArgumentError:
        return []  # there is a list, and it has not one value
    return None


def read_with_protobuf(record: bytes, kind: str) -> Any:
    read = parse_with_protobuf(record)
    if read is None:
        return ERROR
    if "a" not in read:
        return None
    found, values = read["a"]
    if KINDS[found] != kind:
        return ERROR
    return np.array(values, np.uint32).view(np.float32).tolist() if kind == FLOATS else values


def batch_of_one(record: bytes, kind: str) -> Any:
    row = ps.Codec({"a": f"{kind}[?]?"}).decode([record])["a"][0]
    return row.tolist() if isinstance(row, np.ndarray) else row


def one_example(record: bytes, kind: str) -> Any:
    value = ps.Codec({"a": f"{kind}[?]?"}).decode_example(record)["a"]
    return value.tolist() if isinstance(value, np.ndarray) else value


def within_a_batch(record: bytes, kind: str) -> Any:
    """Between records of the usual shape, whose keys the walk has learned."""
    usual = ps.Codec({"a": f"{kind}[?]?"}).encode_examples([{"a": None}])[0]
    row = ps.Codec({"a": f"{kind}[?]?"}).decode([usual, record, usual])["a"][1]
    return row.tolist() if isinstance(row, np.ndarray) else row


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_protobuf_and_tensorflow_do_what_the_table_says(case: Case) -> None:
    assert read_with_protobuf(case.record, case.kind) == case.protobuf
    assert read_with_tensorflow(case.record, case.kind) == case.tensorflow


@pytest.mark.parametrize("read", [batch_of_one, one_example, within_a_batch])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_we_do_what_protobuf_does(case: Case, read: Callable[[bytes, str], Any]) -> None:
    if case.protobuf == ERROR:
        with pytest.raises((ps.CorruptionError, ps.SchemaError)):
            read(case.record, case.kind)
    else:
        assert read(case.record, case.kind) == case.protobuf


def test_a_kind_that_does_not_fit_is_an_error_even_for_an_empty_list() -> None:
    for feature in (ints(1), field(3, b"")):
        record = example(entry(b"a", feature))
        assert read_with_tensorflow(record, FLOATS) == ERROR
        with pytest.raises(ps.SchemaError, match=r'float_list, got a int64_list.*record 0, field "a"'):
            ps.Codec({"a": "float32[?]"}).decode([record])


def test_an_empty_list_is_no_missing_value_even_where_there_is_a_default() -> None:
    record = example(entry(b"a", field(3, b"")))
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_single_example(record, {"a": tf.io.FixedLenFeature([], tf.int64, default_value=5)})
    with pytest.raises(ps.SchemaError, match="expected one int64 value, got 0"):
        ps.Codec({"a": ps.Field(dtype="int64", default=5)}).decode([record])
    assert ps.Codec({"a": ps.Field(dtype="int64", default=5)}).decode([example()])["a"].tolist() == [5]


def test_records_are_written_in_the_one_shape_that_every_reader_takes() -> None:
    """One entry per key, key before value, one packed chunk, keys sorted; an empty list keeps its kind."""
    codec = ps.Codec({"b": "int64[?]", "a": "float32", "c": "bytes"})
    written = codec.encode_examples([{"b": [1, -1], "a": 0.5, "c": b"x"}, {"b": [], "a": 2, "c": b""}])
    assert written[0] == example(entry(b"a", floats(0.5)), entry(b"b", ints(1, -1)), entry(b"c", strings(b"x")))
    assert written[1] == example(entry(b"a", floats(2)), entry(b"b", field(3, b"")), entry(b"c", strings(b"")))
    assert bytes.fromhex("ff" * 9 + "01") in written[0]


# Any bytes


def read_with_penstock(record: bytes) -> dict[str, tuple[str, list[Any]]] | None:
    """The same as `parse_with_protobuf`: what is there by our whole parser, the values by the decoder of batches."""
    try:
        described = _core.describe(record)
    except ps.CorruptionError:
        return None
    kinds = {key: kind for key, kind, _, _ in described if key}
    codec = ps.Codec({key: f"{KINDS[kind]}[?]" for key, kind in kinds.items()})
    batch = codec.decode([record, record])
    return {key: (kinds[key], plain(batch[key])[1]) for key in kinds}


def assert_agreement(record: bytes) -> None:
    expected = parse_with_protobuf(record)
    if expected is not None:
        expected.pop("", None)  # a name that no field may have
    assert read_with_penstock(record) == expected, record.hex()


NUMBERS = st.integers(-(2**63), 2**63 - 1)
KEYS = st.sampled_from([b"a", b"b", b"a", b"", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80"])
JUNK = st.one_of(
    st.just(b""),
    st.binary(max_size=4),
    st.builds(lambda n, b: field(n, b), st.integers(1, 20), st.binary(max_size=6)),
    st.builds(lambda n, v: varint(n << 3) + varint(v), st.integers(1, 2**29 - 1), NUMBERS),
    st.builds(lambda n, b: varint(n << 3 | 1) + b, st.integers(1, 9), st.binary(min_size=8, max_size=8)),
    st.builds(lambda n, b: varint(n << 3 | 5) + b, st.integers(1, 9), st.binary(min_size=4, max_size=4)),
    st.builds(lambda n, b: varint(n << 3 | 3) + b + varint(n << 3 | 4), st.integers(1, 9), st.binary(max_size=4)),
    st.sampled_from(
        [b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x7f", b"\x00\x00", b"\x80\x00", b"\x8a\x00\x00", b"\x0b\x0c"]
    ),
)


def some(*parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """A message of such parts, mostly a few of the right ones."""
    return st.lists(st.one_of(*parts), max_size=3).map(b"".join)


INT_LIST = some(
    st.lists(NUMBERS, max_size=4).map(lambda numbers: packed_ints(*numbers)),
    NUMBERS.map(unpacked_ints),
    st.binary(max_size=9).map(lambda raw: field(1, raw)),
    JUNK,
)
FLOAT_LIST = some(
    st.lists(st.floats(width=32), max_size=4).map(lambda numbers: packed_floats(*numbers)),
    st.floats(width=32).map(lambda number: b"\x0d" + struct.pack("<f", number)),
    st.binary(max_size=9).map(lambda raw: field(1, raw)),
    JUNK,
)
BYTES_LIST = some(st.binary(max_size=5).map(lambda value: field(1, value)), JUNK)
FEATURE = some(
    BYTES_LIST.map(lambda body: field(1, body)),
    FLOAT_LIST.map(lambda body: field(2, body)),
    INT_LIST.map(lambda body: field(3, body)),
    JUNK,
)
ENTRY = st.one_of(
    st.builds(entry, KEYS, FEATURE),
    st.builds(entry, KEYS, FEATURE),
    some(KEYS.map(lambda key: field(1, key)), FEATURE.map(lambda body: field(2, body)), JUNK).map(
        lambda b: field(1, b)
    ),
)
SOUP = some(some(ENTRY, ENTRY, ENTRY, JUNK).map(lambda body: field(1, body)), JUNK)

VALUES = st.one_of(
    st.lists(NUMBERS, max_size=4).map(lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=v))),
    st.lists(st.floats(width=32), max_size=4).map(lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v))),
    st.lists(st.binary(max_size=6), max_size=4).map(lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=v))),
)
VALID = st.dictionaries(st.sampled_from(["a", "b", "c/d", "é"]), VALUES, max_size=4).map(
    lambda features: tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
)


@settings(max_examples=1500)
@given(SOUP)
def test_we_read_what_protobuf_reads_from_any_message(record: bytes) -> None:
    assert_agreement(record)


@settings(max_examples=1500)
@given(VALID, st.data())
def test_we_read_what_protobuf_reads_from_damaged_messages(record: bytes, data: st.DataObject) -> None:
    damaged = bytearray(record)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(damaged)))
        match data.draw(st.sampled_from(["change", "insert", "remove", "cut"])):
            case "change" if place < len(damaged):
                damaged[place] = data.draw(st.integers(0, 255))
            case "insert":
                damaged[place:place] = data.draw(st.binary(max_size=3))
            case "remove":
                del damaged[place : place + data.draw(st.integers(1, 3))]
            case "cut":
                del damaged[place:]
    assert_agreement(bytes(damaged))


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_we_read_what_protobuf_reads_from_any_bytes(record: bytes) -> None:
    assert_agreement(record)


def test_groups_are_skipped_about_as_deep_as_protobuf_goes() -> None:
    """Protobuf counts the messages around them too; nobody nests groups a hundred deep."""
    for depth in (1, 2, 50, 90, 101, 200, 5000):
        assert_agreement(b"\x4b" * depth + b"\x4c" * depth)
        assert_agreement(example(entry(b"a", ints(7) + b"\x4b" * depth + b"\x4c" * depth)))
