"""Records as tuples of tensors, parsed by TensorFlow in its own graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import CorruptionError, NotFoundError
from ...records.codec import Codec
from ...records.peek import first_records
from ...schema import Schema
from ...storage import read_json
from .example import SHAPE, Example, schema_of

FIELDS_FILE = "fields.json"  # beside the records: what they hold


def open_tuples(
    paths: Sequence[str], kind: type[Example] | None, shuffled: int | None, threads: int | None, seed: int | None
) -> Any:
    """The dataset of some files. Where it is shuffled, so are the files, and the records among so many others."""
    from ...frameworks.tensorflow import tf

    schema = _schema_beside(paths) if kind is None else kind.schema()
    ranks = _ranks(paths, schema)
    if shuffled:
        files = tf.data.Dataset.from_tensor_slices(list(paths)).shuffle(len(paths), seed)
        dataset = files.flat_map(tf.data.TFRecordDataset).shuffle(shuffled, seed)
    else:
        dataset = tf.data.TFRecordDataset(list(paths))
    return dataset.map(lambda record: parse(record, schema, ranks), num_parallel_calls=threads)


def parse(record: Any, schema: Schema, ranks: Mapping[str, int] | None = None) -> tuple[Any, ...]:
    """The tensors of a record, by what its fields are; what is missing is 0, False or empty."""
    from ...frameworks.tensorflow import tf

    features = {}
    for field in schema.leaves():
        text = field.shape or field.dtype == "str"
        stored = tf.string if text else tf.float32 if field.dtype == "float32" else tf.int64
        features[field.name] = tf.io.FixedLenFeature([], stored, "" if text else 0)
        if field.shape:
            features[f"{field.name}/shape"] = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    found = tf.io.parse_single_example(record, features)

    def tensor(name: str, dtype: str, array: bool) -> Any:
        if not array:
            return found[name] if dtype == "str" else tf.cast(found[name], dtype)
        flat, rank = tf.io.decode_raw(found[name], dtype), (ranks or {}).get(name)
        if rank == 1:
            return flat
        shape = found[f"{name}/shape"]
        shaped = tf.reshape(flat, shape if rank else tf.cond(tf.size(shape) > 0, lambda: shape, lambda: [-1]))
        return tf.ensure_shape(shaped, [None] * rank) if rank else shaped

    return tuple(tensor(field.name, field.dtype, bool(field.shape)) for field in schema.leaves())


def _ranks(paths: Sequence[str], schema: Schema) -> dict[str, int]:
    """How many dimensions the arrays have: those of the first record, as all records of a folder have as many."""
    arrays = {field.name: f"{field.name}/shape" for field in schema.leaves() if field.shape}
    record = next((record for path in paths for record in first_records(path, 1)[0]), None) if arrays else None
    if record is None:
        return dict.fromkeys(arrays, 1)
    shapes = Codec(Schema(dict.fromkeys(arrays.values(), SHAPE))).decode_example(record)
    return {name: 1 if shapes[beside] is None else len(shapes[beside]) for name, beside in arrays.items()}


def _schema_beside(paths: Sequence[str]) -> Schema:
    beside = Path(os.path.dirname(paths[0]) if paths else ".") / FIELDS_FILE
    if not beside.exists():
        hint = "Say which class the records are of: generate_dataset(paths, example_class)"
        raise NotFoundError(f"expected {FIELDS_FILE} beside the records, got none - at {beside.parent}. {hint}")
    try:
        return schema_of(read_json(beside, "the fields of records", 1 << 20)["fields"])
    except (AttributeError, KeyError, TypeError):
        raise CorruptionError("expected the fields of records, got something else", str(beside)) from None
