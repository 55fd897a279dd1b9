"""Datum's `load`: a folder that was exported, here or by Datum itself, as tf.data datasets of its splits."""

from __future__ import annotations

from typing import Any

from ... import frameworks
from ...errors import SchemaError
from ...loading.dataset import load as load_dataset
from ...loading.spec import Interleave
from ...schema.columns import ExampleDict
from ...storage.files import local_path
from ...storage.paths import PathLike
from .configs import DatasetConfigs


class Dataset:
    """An exported dataset. Its methods give a part of it, "train[:80%]" or "train+val", as its configs say then."""

    def __init__(self, path: PathLike, dataset_configs: DatasetConfigs | None = None) -> None:
        if not isinstance(dataset_configs, DatasetConfigs | None):
            raise SchemaError(f"expected DatasetConfigs, got {type(dataset_configs).__name__}", "dataset_configs")
        self._data = load_dataset(path)
        self.dataset_configs = DatasetConfigs() if dataset_configs is None else dataset_configs

    def train_fn(self, instruction: str = "train", repeat: int | None = None, shuffle: bool = True) -> Any:
        """What to train on, so many times, for ever with -1: shuffled, and echoed if the configs say so.

        The second argument is `repeat`, as in Datum's code: train_fn("train", False) of its readme does not repeat, and
        shuffles. Write shuffle=False.
        """
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
        found = self._examples(next(iter(self._data)), shuffle=False).element_spec
        return {name: [None] * spec.shape.rank for name, spec in found.items()}

    def _examples(self, instruction: str, shuffle: bool) -> Any:
        """The examples of a part, by name, features in the shapes that stand beside them."""
        read = self.dataset_configs.read_config
        cycle, block, seed = read.interleave_cycle_length, read.interleave_block_length, read.seed if shuffle else None
        sort, anew = read.experimental_interleave_sort_fn, read.shuffle_reshuffle_each_iteration

        def shaped(example: ExampleDict) -> ExampleDict:
            shapes = {name: example[f"{name}_shape"] for name in example if f"{name}_shape" in example}
            known = {name: frameworks.tf.reshape(example[name], shape) for name, shape in shapes.items()}
            return dict(sorted((example | known).items()))

        graph = self._data[instruction].to_tf(graph=Interleave(cycle, block, seed, anew, sort))
        return graph.map(shaped).with_options(read.options)

    def _read(self, kind: str, instruction: str, repeat: int | None, shuffle: bool) -> Any:
        """Read, cache, call back, shuffle, batch, echo, repeat, call back: in Datum's order."""
        from ...frameworks.tensorflow_graph import batched

        configs, parallel = self.dataset_configs, frameworks.tf.data.AUTOTUNE
        before, after = (getattr(configs, f"{when}_batching_callback_{kind}") for when in ("pre", "post"))
        size, drop, same = (getattr(configs, f"{n}_{kind}") for n in ("batch_size", "drop_remainder", "deterministic"))
        drop = drop and len(self._data[instruction]) >= size  # a lone batch is never dropped
        echoes = configs.echoing if kind == "train" else None
        data = self._examples(instruction, shuffle and configs.shuffle_files)
        if configs.cache_filename:
            local_path(configs.cache_filename, "cache_filename")
        data = data.cache(configs.cache_filename) if configs.cache else data
        data = data.map(before, parallel) if before else data
        data = data.shuffle(configs.buffer_size, configs.seed, configs.reshuffle_each_iteration) if shuffle else data
        if configs.bucket_fn is not None:
            limits, sizes = configs.bucket_op.bucket_boundaries, configs.bucket_op.bucket_batch_sizes
            data = data.bucket_by_sequence_length(configs.bucket_fn, limits, sizes, drop_remainder=drop)
        elif size:
            pad, calls = configs.use_tf_padding or configs.use_datum_padding, configs.num_parallel_calls
            data = batched(data, size, drop_remainder=drop, pad=pad, num_parallel_calls=calls, deterministic=same)
        data = data.flat_map(lambda item: data.from_tensors(item).repeat(echoes)) if echoes else data
        data = data.repeat(repeat) if repeat else data
        data = data.map(after, parallel) if after else data
        return data.get_single_element() if configs.full_dataset else data.prefetch(parallel)


load = Dataset
