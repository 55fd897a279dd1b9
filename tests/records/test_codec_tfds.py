"""Records of TFDS's own serializer and ours: the same features for every connector, read alike by both."""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np
import pytest
from tests.support.record_oracle import parse_with_protobuf
from tests.support.tfds_cases import CASES, Case, F, as_list, as_plain, png

import penstock as ps


def ours(case: Case) -> tuple[ps.Codec, bytes]:
    codec = ps.Codec({"x": case.field, "id": "int64"})
    value = case.value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = [{name: as_list(item) for name, item in row.items()} for row in value]
    return codec, codec.encode_examples([{"x": as_list(value), "id": 1}])[0]


def unzipped(features: Any, key: str) -> Any:
    if key:
        kind, values = features[key]
        features[key] = (kind, [zlib.decompress(value) for value in values])
    return features


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
