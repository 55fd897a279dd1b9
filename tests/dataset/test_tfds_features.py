"""Any schema as features of TFDS, and back: both read the same values from the same records. Any JSON as features."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.support.schema_strategies import schemas_with_examples
from tests.support.tfds_cases import as_plain

import penstock as ps
from penstock.dataset.tfds import read_features
from penstock.dataset.tfds_features import features_of, schema_of


def readable(schema: ps.Schema) -> ps.Schema:
    """Without the fields that TFDS can't read, or not as we do."""
    noted = features_of(schema)[1]
    kept = [leaf.name for leaf in schema.leaves() if leaf.name not in noted]
    assume(kept)
    return schema.select(*kept)


def values_in(schema: ps.Schema, example: dict[str, Any]) -> dict[str, str]:
    """The values by name, as text: so a nan is a nan."""
    return {name: repr(as_plain(value)) for name, value in schema.flatten(example).items()}


@settings(max_examples=80)
@given(schemas_with_examples())
def test_tfds_and_a_schema_of_its_features_read_what_ours_reads(drawn: tuple[ps.Schema, list[dict[str, Any]]]) -> None:
    whole, examples = drawn
    schema = readable(whole)
    features, _ = features_of(schema)
    back, unread = schema_of(features, lambda path: None)
    assert unread == {}
    theirs = tfds.features.FeatureConnector.from_json(features)
    codec = ps.Codec(schema)
    for example in examples:
        flat = whole.flatten(example)
        record = codec.encode_examples([schema.unflatten({leaf.name: flat[leaf.name] for leaf in schema.leaves()})])[0]
        stored = ps.Codec(back).decode_example(record)
        ours = codec.decode_example(record)
        for leaf in schema.leaves():
            if leaf.default is not None and flat[leaf.name] is None:
                assert back.flatten(stored)[leaf.name] is None  # TFDS knows no defaults
                ours = schema.unflatten(schema.flatten(ours) | {leaf.name: None})
        assert values_in(back, stored) == values_in(schema, ours)
        if any(leaf.shape.count(None) > 1 and np.size(flat[leaf.name]) == 0 for leaf in schema.leaves()):
            continue  # TFDS reads no such array without TensorFlow, not even of its own writing
        assert values_in(schema, theirs.deserialize_example_np(record)) == values_in(schema, ours)


WORDS = [
    "pythonClassName",
    "type",
    "content",
    "featuresDict",
    "features",
    "sequence",
    "feature",
    "length",
    "tensor",
    "shape",
    "dimensions",
    "dtype",
    "encoding",
    "image",
    "classLabel",
    "numClasses",
    "languages",
    "translation",
    "video",
]
NAMES = [
    "FeaturesDict",
    "Sequence",
    "Tensor",
    "Image",
    "Video",
    "ClassLabel",
    "LabeledImage",
    "Translation",
    "Text",
    "Audio",
    "BBoxFeature",
]
CLASSES = [f"tensorflow_datasets.core.features.{name}" for name in NAMES]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(CLASSES)
JSON = st.recursive(
    LEAVES | st.sampled_from(["-1", "int64", "uint8", "zlib", "string"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner),
    max_leaves=25,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(WORDS), JSON) | JSON, st.sampled_from(CLASSES))
def test_no_metadata_is_more_than_an_error(tmp_path: Path, data: Any, name: str) -> None:
    """Whatever stands there: a schema, or an error of ours."""
    if isinstance(data, dict):
        data |= {"pythonClassName": name}
    inner = {"featuresDict": {"features": {"x": data}}, "pythonClassName": CLASSES[0]}
    for features in (data, inner):
        (tmp_path / "features.json").write_text(json.dumps(features))
        with suppress(ps.PenstockError):
            read_features(tmp_path)
    with suppress(ps.PenstockError):
        (tmp_path / "dataset_info.json").write_text(json.dumps({"name": "x", "splits": data}))
        ps.load(tmp_path)
