"""Records as tuples of tensors, parsed by TensorFlow in its own graph."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import NotFoundError
from ...records.codec import Codec
from ...records.peek import first_records
from ...storage import read_json
from .example import ARRAYS, TYPES, Example

FIELDS = "fields.json"  # beside the records: what they hold


def write_fields(folder: Path, kind: type[Example]) -> None:
    """Note what the records of a folder hold, so that nobody has to say it again."""
    said = {"class": kind.__name__, "fields": kind.get_tfrecordable_ordered_dict()}
    (folder / FIELDS).write_text(json.dumps(said), encoding="utf-8")


def open_tuples(
    paths: Sequence[str], kind: type[Example] | None, shuffled: int | None, threads: int | None, seed: int | None
) -> Any:
    """The dataset of some files. Where it is shuffled, so are the files, and the records among so many others."""
    from ...frameworks.tensorflow import tf

    fields = _fields_beside(paths) if kind is None else kind.get_tfrecordable_ordered_dict()
    ranks = _ranks(paths, fields)
    if shuffled:
        files = tf.data.Dataset.from_tensor_slices(list(paths)).shuffle(len(paths), seed)
        dataset = files.flat_map(tf.data.TFRecordDataset).shuffle(shuffled, seed)
    else:
        dataset = tf.data.TFRecordDataset(list(paths))
    return dataset.map(lambda record: parse(record, fields, ranks), num_parallel_calls=threads)


def parse(record: Any, fields: Mapping[str, int], ranks: Mapping[str, int] | None = None) -> tuple[Any, ...]:
    """The tensors of a record, by what its fields are; what is missing is 0, False or empty."""
    from ...frameworks.tensorflow import tf

    stored = {"str": (tf.string, ""), "float32": (tf.float32, 0.0)}
    features = {}
    for name, dtype in fields.items():
        kind, default = stored.get(TYPES.get(dtype, "str"), (tf.int64, 0))
        features[name] = tf.io.FixedLenFeature([], kind, default)
        if dtype in ARRAYS:
            features[f"{name}/shape"] = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    found = tf.io.parse_single_example(record, features)

    def tensor(name: str, dtype: int) -> Any:
        if dtype not in ARRAYS:
            return found[name] if TYPES[dtype] == "str" else tf.cast(found[name], TYPES[dtype])
        flat = tf.io.decode_raw(found[name], ARRAYS[dtype])
        rank = (ranks or {}).get(name)
        if rank == 1:
            return flat
        shape = found[f"{name}/shape"]
        shaped = tf.reshape(flat, shape if rank else tf.cond(tf.size(shape) > 0, lambda: shape, lambda: [-1]))
        return tf.ensure_shape(shaped, [None] * rank) if rank else shaped

    return tuple(tensor(name, dtype) for name, dtype in fields.items())


def _ranks(paths: Sequence[str], fields: Mapping[str, int]) -> dict[str, int]:
    """How many dimensions the arrays have: those of the first record, as all records of a folder have as many."""
    arrays = [name for name, dtype in fields.items() if dtype in ARRAYS]
    if not arrays:
        return {}
    codec = Codec({f"{name}/shape": "int64[?]?" for name in arrays})
    for path in paths:
        for record in first_records(path, 1)[0]:
            shapes = codec.decode_example(record)
            return {name: 1 if (shape := shapes[f"{name}/shape"]) is None else len(shape) for name in arrays}
    return dict.fromkeys(arrays, 1)


def _fields_beside(paths: Sequence[str]) -> dict[str, int]:
    beside = Path(os.path.dirname(paths[0]) if paths else ".") / FIELDS
    if not beside.exists():
        hint = "Say which class the records are of: generate_dataset(paths, example_class)"
        raise NotFoundError(f"expected {FIELDS} beside the records, got none - at {beside.parent}. {hint}")
    fields: dict[str, int] = read_json(beside, "the fields of records", 1 << 20)["fields"]
    return fields
