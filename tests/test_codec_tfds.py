"""Records of TFDS's own serializer and ours: the same features for every connector, read alike by both."""

from __future__ import annotations

import io
import zlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image
from tests.records_oracle import parse_with_protobuf

import penstock as ps

F = tfds.features


def png() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)).save(out, "PNG")
    return out.getvalue()


class Case(NamedTuple):
    """A connector of TFDS, our field, and a value. Two compressors write what `zlib_key` holds differently."""

    name: str
    connector: Any
    field: Any
    value: Any
    zlib_key: str = ""


def tensor(shape: tuple[int | None, ...], dtype: Any, encoding: str = "none") -> Any:
    return F.Tensor(shape=shape, dtype=dtype, encoding=encoding)


CUBE = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
CASES = [
    Case("Scalar int64", F.Scalar(np.int64), "int64", -5),
    Case("Scalar uint8", F.Scalar(np.uint8), "uint8", 255),
    Case("Scalar bool", F.Scalar(np.bool_), "bool", True),
    Case("Scalar float16", F.Scalar(np.float16), "float16", np.float16(0.1)),
    Case("Scalar float32", F.Scalar(np.float32), "float32", 0.1),
    Case("Scalar uint64 beyond int64", F.Scalar(np.uint64), "uint64", np.uint64(2**63 + 5)),
    Case("Scalar float64", F.Scalar(np.float64), ps.Field(dtype="float64", encoding="none"), 0.5),
    Case("Tensor", tensor((2, 2, 3), np.float32), "float32[2,2,3]", CUBE),
    Case("Tensor with one unknown dimension", tensor((None, 3), np.int32), "int32[?,3]", np.ones((4, 3), np.int32)),
    Case("Tensor with a later unknown dimension", tensor((2, None), np.int64), "int64[2,?]", np.ones((2, 5), np.int64)),
    Case(
        "Tensor bytes",
        tensor((2, 2, 3), np.float32, "bytes"),
        ps.Field(dtype="float32", shape=(2, 2, 3), encoding="bytes"),
        CUBE,
    ),
    Case(
        "Tensor zlib",
        tensor((2, 2, 3), np.float32, "zlib"),
        ps.Field(dtype="float32", shape=(2, 2, 3), encoding="zlib"),
        CUBE,
        "x",
    ),
    Case("Tensor float64 bytes", tensor((2,), np.float64, "bytes"), "float64[2]", np.array([0.1, 1e300])),
    Case(
        "Tensor bool bytes",
        tensor((3,), np.bool_, "bytes"),
        ps.Field(dtype="bool", shape=(3,), encoding="bytes"),
        np.array([True, False, True]),
    ),
    Case(
        "Tensor with two unknown dimensions",
        tensor((None, None, 3), np.uint8, "bytes"),
        "uint8[?,?,3]",
        np.arange(18, dtype=np.uint8).reshape(2, 3, 3),
    ),
    Case(
        "Tensor with two unknown dimensions, zlib",
        tensor((None, None), np.int16, "zlib"),
        ps.Field(dtype="int16", shape=(None, None), encoding="zlib"),
        np.ones((2, 3), np.int16),
        "x/value",
    ),
    Case("Tensor of strings", tensor((2,), np.str_), "str[2]", ["a", "é"]),
    Case("Text", F.Text(), "str", "grüße"),
    Case("ClassLabel", F.ClassLabel(names=["cat", "dog"]), ps.Field(dtype="int64", classes=("cat", "dog")), "dog"),
    Case("ClassLabel of none", F.ClassLabel(num_classes=2), ps.Field(dtype="int64", kind="label"), -1),
    Case("BBox", F.BBoxFeature(), ps.Field(dtype="float32", shape=(4,), kind="box"), F.BBox(0.1, 0.2, 0.3, 0.4)),
    Case("Sequence of scalars", F.Sequence(np.int64), "list[int64]", [1, 2, 3]),
    Case("empty Sequence", F.Sequence(np.float32), "list[float32]", []),
    Case("Sequence of tensors", F.Sequence(tensor((2,), np.float32)), "list[float32[2]]", [[1, 2], [3, 4], [5, 6]]),
    Case("Sequence of texts", F.Sequence(F.Text()), "list[str]", ["a", "", "ß"]),
    Case("Sequence of a known length", F.Sequence(np.int64, length=3), "int64[3]", [1, 2, 3]),
    Case("Sequence of Sequences", F.Sequence(F.Sequence(np.int64)), "list[list[int64]]", [[1, 2], [], [3]]),
    Case("Sequence of Sequences of texts", F.Sequence(F.Sequence(F.Text())), "list[list[str]]", [["a"], [], ["b"]]),
    Case(
        "three Sequences",
        F.Sequence(F.Sequence(F.Sequence(np.int64))),
        "list[list[list[int64]]]",
        [[[1], [2, 3]], [], [[], [4]]],
    ),
    Case(
        "FeaturesDict",
        F.FeaturesDict({"y": np.int64, "z": {"t": F.Text()}}),
        {"y": "int64", "z": {"t": "str"}},
        {"y": 1, "z": {"t": "u"}},
    ),
    Case(
        "Sequence of dicts",
        F.Sequence({"box": F.BBoxFeature(), "name": F.Text()}),
        ps.Schema({"box": ps.Field(dtype="float32", shape=(4,), kind="box"), "name": "str"}, sequence=True),
        [{"box": F.BBox(0.0, 0.0, 0.5, 1.0), "name": "a"}, {"box": F.BBox(0.0, 0.25, 1.0, 1.0), "name": "b"}],
    ),
    Case(
        "Sequence in a Sequence of dicts",
        F.Sequence({"n": F.Sequence(np.int64)}),
        ps.Schema({"n": "list[int64]"}, sequence=True),
        [{"n": [1, 2]}, {"n": []}],
    ),
    Case("Translation", F.Translation(["en", "fr"]), {"en": "str", "fr": "str"}, {"en": "yes", "fr": "oui"}),
    Case("optional, there", F.Scalar(np.int64, optional=True), "int64?", 7),
    Case("optional, missing", F.Scalar(np.int64, optional=True), "int64?", None),
]  # fmt: skip


def ours(case: Case) -> tuple[ps.Codec, bytes]:
    codec = ps.Codec({"x": case.field, "id": "int64"})
    value = case.value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = [{name: as_list(item) for name, item in row.items()} for row in value]
    return codec, codec.encode_examples([{"x": as_list(value), "id": 1}])[0]


def as_list(value: Any) -> Any:
    """A box as the four numbers that it is."""
    return list(value) if isinstance(value, F.BBox) else value


def unzipped(features: Any, key: str) -> Any:
    if key:
        kind, values = features[key]
        features[key] = (kind, [zlib.decompress(value) for value in values])
    return features


def as_plain(value: Any) -> Any:
    """Both sides as plain Python values. TFDS leaves texts as bytes."""
    if isinstance(value, dict):
        return {name: as_plain(item) for name, item in value.items()}
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [as_plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_features_are_those_of_tfds(case: Case) -> None:
    features = F.FeaturesDict({"x": case.connector, "id": np.int64})
    theirs = features.serialize_example({"x": case.value, "id": 1})
    codec, record = ours(case)
    assert unzipped(parse_with_protobuf(record), case.zlib_key) == unzipped(parse_with_protobuf(theirs), case.zlib_key)
    # Each reads the other's record, and its own, alike.
    values = as_plain(codec.decode_example(record))
    assert as_plain(codec.decode_example(theirs)) == values
    assert as_plain(features.deserialize_example_np(record)) == values
    assert as_plain(features.deserialize_example_np(theirs)) == values
    assert values["id"] == 1


def test_an_image_is_its_files_bytes() -> None:
    features = F.FeaturesDict({"image": F.Image(shape=(None, None, 3), encoding_format="png")})
    codec = ps.Codec({"image": ps.Field(dtype="bytes", kind="image")})
    theirs = features.serialize_example({"image": io.BytesIO(png())})
    record = codec.encode_examples([{"image": png()}])[0]
    assert record == theirs
    assert codec.decode_example(theirs) == {"image": png()}
    assert features.deserialize_example_np(record)["image"].tolist() == np.arange(18).reshape(2, 3, 3).tolist()


def test_what_tfds_loses_we_refuse() -> None:
    """TFDS stores a float64 in a float_list and rounds it, or makes it infinite, without a word."""
    features = F.FeaturesDict({"x": F.Scalar(np.float64)})
    stored = features.deserialize_example_np(features.serialize_example({"x": 1e300}))["x"]
    assert np.isinf(stored)
    with pytest.raises(ps.SchemaError, match="float_list"):
        ps.Codec({"x": ps.Field(dtype="float64", encoding="none")}).encode_examples([{"x": 1e300}])


def test_a_batch_of_all_connectors_is_each_of_them() -> None:
    """Side by side in one schema, in one batch: nothing reaches over into its neighbour."""
    chosen = [case for case in CASES if case.value is not None]
    codec = ps.Codec({f"f{number}": case.field for number, case in enumerate(chosen)})
    features = F.FeaturesDict({f"f{number}": case.connector for number, case in enumerate(chosen)})
    theirs = features.serialize_example({f"f{number}": case.value for number, case in enumerate(chosen)})
    batch = codec.decode([theirs] * 3)
    assert list(codec.encode(batch)) == [codec.encode(batch)[0]] * 3
    expected = as_plain(features.deserialize_example_np(theirs))
    assert as_plain(codec.decode_example(codec.encode(batch)[2])) == expected
