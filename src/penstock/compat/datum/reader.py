"""Datum's `load`: a folder that was exported, here or by Datum itself, as tf.data datasets of its splits."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...load.dataset import load as load_dataset
from ...schema import Field, Schema
from .configs import DatasetConfigs, TFRReadConfigs


def load(path: str | os.PathLike[str], dataset_configs: DatasetConfigs | None = None) -> Dataset:
    """Open an exported dataset."""
    return Dataset(path, dataset_configs)


class Dataset:
    """An exported dataset. `train_fn`, `val_fn` and `test_fn` give a part of it, as its configs say at that time.

    instruction  a split, or "train[:80%]", "train+val"
    repeat       so many times, for ever with -1
    """

    def __init__(self, path: str | os.PathLike[str], dataset_configs: DatasetConfigs | None = None) -> None:
        self._data = load_dataset(path, decode=False)
        self.dataset_configs = DatasetConfigs() if dataset_configs is None else dataset_configs

    def train_fn(self, instruction: str = "train", repeat: int | None = None, shuffle: bool = True) -> Any:
        """What to train on: shuffled, and echoed if the configs say so."""
        return self._read("train", instruction, repeat, shuffle)

    def val_fn(self, instruction: str = "val", repeat: int | None = None, shuffle: bool = False) -> Any:
        """What to validate with."""
        return self._read("val", instruction, repeat, shuffle)

    def test_fn(self, instruction: str = "test", repeat: int | None = 1, shuffle: bool = False) -> Any:
        """What to test with."""
        return self._read("test", instruction, repeat, shuffle)

    @property
    def padded_shapes(self) -> dict[str, list[None]]:
        """What batches are padded to: every dimension to the largest."""
        return {field.name: [None] * _rank(field, self._data.schema) for field in self._data.schema.leaves()}

    def _read(self, kind: str, instruction: str, repeat: int | None, shuffle: bool) -> Any:
        """Read, cache, call back, shuffle, batch, echo, repeat, call back: in Datum's order."""
        from ...frameworks.tensorflow import tf
        from ...frameworks.tensorflow_graph import graph_dataset

        if isinstance(repeat, bool):  # train_fn("train", False), as its readme has it
            shuffle = repeat
            repeat = None
        configs = self.dataset_configs
        part = self._data[instruction]
        read = _reading(configs.read_config, configs.shuffle_files and shuffle)
        dataset = graph_dataset(part, read).map(_shaper(self._data.schema), tf.data.AUTOTUNE)
        dataset = dataset.with_options(configs.read_config.options)
        if configs.cache:
            dataset = dataset.cache(configs.cache_filename)
        if before := getattr(configs, f"pre_batching_callback_{kind}"):
            dataset = dataset.map(before, tf.data.AUTOTUNE)
        if shuffle:
            dataset = dataset.shuffle(configs.buffer_size, configs.seed, configs.reshuffle_each_iteration)
        dataset = self._batched(dataset, kind, len(part))
        if configs.echoing and kind == "train":
            dataset = dataset.flat_map(lambda item: tf.data.Dataset.from_tensors(item).repeat(configs.echoing))
        if repeat:
            dataset = dataset.repeat(repeat)
        if after := getattr(configs, f"post_batching_callback_{kind}"):
            dataset = dataset.map(after, tf.data.AUTOTUNE)
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
        return dataset.get_single_element() if configs.full_dataset else dataset

    def _batched(self, dataset: Any, kind: str, count: int) -> Any:
        """Batches: by length, padded where sizes may differ, or as they are. A lone batch is never dropped."""
        from ...frameworks.tensorflow import tf

        configs = self.dataset_configs
        size: int = getattr(configs, f"batch_size_{kind}")
        drop = getattr(configs, f"drop_remainder_{kind}") and count >= size
        shapes = tf.nest.map_structure(lambda spec: spec.shape, dataset.element_spec)
        if configs.bucket_fn is not None:
            buckets = configs.bucket_op
            return dataset.bucket_by_sequence_length(
                configs.bucket_fn, buckets.bucket_boundaries, buckets.bucket_batch_sizes, shapes, drop_remainder=drop
            )
        if not size:
            return dataset
        ranked = all(shape.rank is not None for shape in tf.nest.flatten(shapes))
        loose = ranked and not all(shape.is_fully_defined() for shape in tf.nest.flatten(shapes))
        if configs.use_tf_padding or configs.use_datum_padding or loose:
            return dataset.padded_batch(size, shapes, drop_remainder=drop)
        deterministic = getattr(configs, f"deterministic_{kind}")
        return dataset.batch(size, drop, num_parallel_calls=configs.num_parallel_calls, deterministic=deterministic)


def _reading(configs: TFRReadConfigs, shuffle: bool) -> Any:
    """What makes a dataset of records out of parts of files."""
    from ...frameworks.tensorflow import tf

    def read(parts: list[tuple[str, int, int]]) -> Any:
        files = [{"filename": path, "skip": skip, "take": take} for path, skip, take in parts]
        if configs.experimental_interleave_sort_fn is not None:
            files = configs.experimental_interleave_sort_fn(files)
        columns: dict[str, Any] = {"filename": [file["filename"] for file in files]}
        columns |= {name: np.array([file[name] for file in files], np.int64) for name in ("skip", "take")}
        dataset = tf.data.Dataset.from_tensor_slices(columns)
        if shuffle:
            dataset = dataset.shuffle(len(files), configs.seed, configs.shuffle_reshuffle_each_iteration)
        return dataset.interleave(
            lambda file: tf.data.TFRecordDataset(file["filename"]).skip(file["skip"]).take(file["take"]),
            configs.interleave_cycle_length,
            configs.interleave_block_length,
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    return read


def _shaper(schema: Schema) -> Any:
    """What gives parsed examples their pixels and shapes."""
    from ...frameworks.tensorflow import tf

    fields = {field.name: field for field in schema.leaves()}

    def shape(example: dict[str, Any]) -> dict[str, Any]:
        return {name: value(example, name) for name in sorted(example)}

    def value(example: dict[str, Any], name: str) -> Any:
        field, found = fields[name], example[name]
        if field.kind == "image":
            channels = 1 if (field.decoded or "").endswith(",1]") else 3
            return tf.io.decode_jpeg(found, channels, dct_method="INTEGER_ACCURATE")
        if f"{name}_shape" in fields:
            return tf.ensure_shape(tf.reshape(found, example[f"{name}_shape"]), [None] * _rank(field, schema))
        return found

    return shape


def _rank(field: Field, schema: Schema) -> int:
    if field.kind == "image":
        return 3
    beside = schema.get(f"{field.name}_shape")
    return int(beside.shape[0] or 1) if isinstance(beside, Field) and beside.shape else len(field.shape) + field.levels
