"""TensorFlow by itself: the same examples through TFRecordDataset and parse_example, so that all of it is one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]

from ..errors import ArgumentError, SchemaError
from ..loading.loader import Loader
from ..loading.spec import Batch, FileSlice, Interleave, LoadSpec, Part, Repeat, Shuffle, Skip, Take
from ..records.shard import open_shard
from ..schema.coercion import TEXTS
from ..schema.columns import Value
from ..schema.field import Field, Image, image_options
from ..schema.schema import Schema
from .conversion import Tensor

TfDataset: TypeAlias = Tensor
"""A tf.data.Dataset."""
BUFFER = 10_000  # examples among which TensorFlow shuffles, where no window is given
ANYHOW = "Use to_tf() without graph=True: it takes everything"
STORED = {"float32": tf.float32, "bytes": tf.string, "str": tf.string}


def graph_dataset(loader: Loader, interleave: Interleave | None = None) -> TfDataset:
    """The dataset of a loader whose steps TensorFlow has too: files one after the other, or interleaved."""
    spec = loader.spec
    if not isinstance(spec.root, Part):
        raise ArgumentError("expected a split, got a mix", "to_tf(graph=True)", ANYHOW)
    batch = _only_batch(spec)
    schema = spec.schema
    single = batch is None or batch.pad is not None
    parse = record_parser(schema) if single else _parser(schema)
    dataset = _records(spec) if interleave is None else _interleaved(spec, interleave)
    for step in spec.order_steps:
        dataset = _ordered(dataset, step)
    if spec.host.count > 1:
        if spec.host.even is not None:
            raise ArgumentError("expected a shard() without even=, got one with it", "to_tf(graph=True)", ANYHOW)
        dataset = dataset.shard(spec.host.count, spec.host.index)
    if batch is not None and not single:
        dataset = dataset.batch(batch.size, drop_remainder=batch.drop_remainder)
    dataset = dataset.map(parse, tf.data.AUTOTUNE)
    if single:
        dataset = dataset.map(_image_decoder(spec), tf.data.AUTOTUNE)
    if batch is not None and single:
        dataset = batched(dataset, batch.size, drop_remainder=batch.drop_remainder, pad=True)
    return dataset.prefetch(tf.data.AUTOTUNE)


def batched(
    dataset: TfDataset, size: int, *, drop_remainder: bool = False, pad: bool = False, **parallel: Tensor
) -> TfDataset:
    """Batches of a dataset of examples: padded to the largest where these differ in size, or where told."""
    shapes = tf.nest.flatten(tf.nest.map_structure(lambda spec: spec.shape, dataset.element_spec))
    ranked = all(shape.rank is not None for shape in shapes)
    if pad or (ranked and not all(shape.is_fully_defined() for shape in shapes)):
        return dataset.padded_batch(size, drop_remainder=drop_remainder)
    return dataset.batch(size, drop_remainder, **parallel)


def record_parser(schema: Schema) -> Callable[[Tensor], dict[str, Tensor]]:
    """What makes the tensors of one record, by operations of TensorFlow: a function to map over a TFRecordDataset."""
    parse = _parser(schema, single=True)

    def parse_one(record: object) -> dict[str, Tensor]:
        return {name: column[0] for name, column in parse(tf.expand_dims(record, 0)).items()}

    return parse_one


def _only_batch(spec: LoadSpec) -> Batch | None:
    """The batch step, if that is the only step on examples."""
    steps = spec.steps
    if not steps:
        return None
    if len(steps) == 1 and isinstance(steps[0], Batch):
        if steps[0].pad is not None and (type(steps[0].pad) is not int or steps[0].pad):
            raise ArgumentError(f"expected pad=0, got {steps[0].pad!r}", "to_tf(graph=True)", ANYHOW)
        return steps[0]
    raise ArgumentError(
        "expected no step in Python but batch(), got others", "to_tf(graph=True)", "Map on the tf.data.Dataset instead"
    )


def _records(spec: LoadSpec) -> TfDataset:
    """The records of the split, file by file in their order; several files are read at once."""
    assert isinstance(spec.root, Part)
    _bring(spec)
    parts = []
    for first, last in spec.root.spans:
        before, paths, start = 0, [], None
        for file in spec.files:
            if before < last and before + file.records > first:
                start = before if start is None else start
                paths.append(file.path)
            before += file.records
        skipped = first - (start or 0)
        found = tf.data.TFRecordDataset(paths, compression_type=_compression(paths[0]), buffer_size=1 << 20)
        parts.append(found.skip(skipped).take(last - first))
    dataset = parts[0]
    for part in parts[1:]:
        dataset = dataset.concatenate(part)
    return dataset


def _bring(spec: LoadSpec) -> None:
    """TensorFlow opens files by itself: those of a store have to be here."""
    if spec.access.fetcher is not None:
        spec.access.fetcher.get(file.path for file in spec.files)


def _interleaved(spec: LoadSpec, interleave: Interleave) -> TfDataset:
    """The records of the split, some of each file in turn."""
    _bring(spec)
    files = _file_parts(spec)
    if not files:
        raise SchemaError("expected examples, got none", "to_tf", "Take a larger part of the split")
    compression = _compression(files[0]["filename"])
    if interleave.sort is not None:
        files = list(interleave.sort(files))
    columns: dict[str, Tensor] = {"filename": [file["filename"] for file in files]}
    columns |= {name: np.array([file[name] for file in files], np.int64) for name in ("skip", "take")}
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    if interleave.seed is not None:
        dataset = dataset.shuffle(len(files), interleave.seed, interleave.reshuffle)
    return dataset.interleave(
        lambda file: tf.data.TFRecordDataset(file["filename"], compression).skip(file["skip"]).take(file["take"]),
        interleave.cycle,
        interleave.block,
        num_parallel_calls=tf.data.AUTOTUNE,
    )


def _file_parts(spec: LoadSpec) -> list[FileSlice]:
    """The files of the split, each with the records that belong to it."""
    assert isinstance(spec.root, Part)
    parts: list[FileSlice] = []
    for first, last in spec.root.spans:
        start = 0
        for file in spec.files:
            begin, end = max(first, start), min(last, start + file.records)
            if begin < end:
                parts.append({"filename": file.path, "skip": begin - start, "take": end - begin})
            start += file.records
    return parts


def _compression(path: str) -> str:
    reader = open_shard(path)
    if reader.format != "tfrecord":
        got = "an ArrayRecord file" if reader.format == "array_record" else "a tar file"
        raise ArgumentError(f"expected TFRecord files, got {got}", "to_tf(graph=True)", ANYHOW)
    return (reader.compression or "").upper()


def _ordered(dataset: TfDataset, step: Tensor) -> TfDataset:
    if isinstance(step, Shuffle):
        return dataset.shuffle(step.window or BUFFER, seed=step.seed, reshuffle_each_iteration=True)
    if isinstance(step, Repeat):
        return dataset.repeat(step.count)
    if isinstance(step, Take):
        return dataset.take(step.count)
    if isinstance(step, Skip):
        return dataset.skip(step.count)
    raise ArgumentError(f"expected a step that TensorFlow has, got {type(step).__name__.lower()}", "to_tf", ANYHOW)


# Fields


def _image_decoder(spec: LoadSpec) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """What makes pixels of the image files of an example, where the loader decodes them."""
    images = image_options(spec.schema.leaves(), spec.decode)
    for name, image in images.items():
        if image not in (Image(), Image(channels=1), Image(channels=None)):
            raise SchemaError(
                f"expected images as they are, got {image}", name, "Resize on the tf.data.Dataset instead"
            )

    def decode(example: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: pixels(images[name], value) if name in images else value for name, value in example.items()}

    def pixels(image: Image, data: object) -> Tensor:  # of PNG, GIF and JPEG alike, whatever its name
        return tf.io.decode_jpeg(data, image.channels or 0, dct_method="INTEGER_ACCURATE")

    return decode


def _parser(schema: Schema, *, single: bool = False) -> Callable[[Tensor], Tensor]:
    """What parses a batch of records; a single one may have an array of any length that is stored as bytes."""
    fields = list(schema.leaves())
    features = {field.name: _feature(field, single) for field in fields}
    nested = any(isinstance(node, Schema) for node in schema.values())
    if nested:
        raise SchemaError("expected plain fields, got nested ones", "to_tf(graph=True)", ANYHOW)

    def parse(records: object) -> Tensor:
        parsed = tf.io.parse_example(records, features)
        return {field.name: _decoded(field, parsed[field.name]) for field in fields}

    return parse


def _feature(field: Field, single: bool) -> Tensor:
    stored = STORED.get(field.dtype, tf.int64) if field.encoding == "none" else tf.string
    unknown = field.shape.count(None)
    plain = field.encoding == "none"
    missing = field.optional and field.default is None
    packed = unknown and not plain and not single
    if missing or field.levels > 1 or unknown > 1 or packed or (field.levels and field.shape):
        raise SchemaError(f"expected a plain type, got {field}", field.name, ANYHOW)
    if plain and (unknown or field.levels):
        if field.shape[1:] or field.default:
            raise SchemaError(f"expected rows of numbers or strings, got {field}", field.name, ANYHOW)
        return tf.io.RaggedFeature(stored, row_splits_dtype=tf.int64)
    default = field.default
    if default is not None and not plain:
        default = np.asarray(default, field.numpy_dtype).tobytes()
    return tf.io.FixedLenFeature(field.shape if plain else (), stored, default)


def _decoded(field: Field, value: Value) -> Tensor:
    if field.dtype in TEXTS:
        return value
    dtype = tf.as_dtype(field.dtype)
    if field.encoding == "none":
        return value if value.dtype == dtype else tf.cast(value, dtype)
    if field.encoding == "zlib":
        value = tf.io.decode_compressed(value, "ZLIB")
    raw = tf.io.decode_raw(value, tf.uint8 if dtype == tf.bool else dtype)
    shape = [-1 if size is None else size for size in field.shape]
    shaped = tf.reshape(raw, [1 if None in field.shape else -1, *shape])
    return tf.cast(shaped, dtype) if dtype == tf.bool else shaped
