"""Datum's configs: its options, what they are unless told, and all their spellings."""

from __future__ import annotations

from ... import frameworks
from ..options import Checked as ConfigBase
from ..options import made, maybe


class TFRWriteConfigs(ConfigBase):
    """How a dataset is exported. A generator is called with the path, then with split=..., and yields (key, dict)."""

    splits, sparse_features = maybe(dict), maybe(list)
    generator = serializer = maybe(object)
    num_train_examples = num_val_examples = num_test_examples = maybe(int)


class TFRReadConfigs(ConfigBase):
    """How the files of a split are read."""

    interleave_cycle_length, interleave_block_length, seed = -1, 1, 6052020
    shuffle_reshuffle_each_iteration, experimental_interleave_sort_fn = True, maybe()
    options = made(lambda: frameworks.tf.data.Options())


class BucketConfigs(ConfigBase):
    """Where buckets end, and how large their batches are."""

    bucket_boundaries, bucket_batch_sizes = [0], [32, 32]


class DatasetConfigs(ConfigBase):
    """How a split becomes batches. A callback without a split's name is that of train, as for other options."""

    _spellings = {f"{name}_train": name for name in ("drop_remainder", "deterministic")} | {
        name: f"{name}_train" for name in ("pre_batching_callback", "post_batching_callback")
    }
    batch_size_train = batch_size_val = batch_size_test = 32
    drop_remainder, drop_remainder_val, drop_remainder_test = True, False, False
    deterministic = deterministic_val = deterministic_test = False
    pre_batching_callback_train = pre_batching_callback_val = pre_batching_callback_test = maybe()
    post_batching_callback_train = post_batching_callback_val = post_batching_callback_test = maybe()
    buffer_size, seed, num_parallel_calls, echoing = 100, 6052020, 1, maybe(int)
    shuffle_files, reshuffle_each_iteration, full_dataset = True, False, False
    cache, cache_filename, use_tf_padding, use_datum_padding = False, "", False, False
    bucket_op, bucket_fn, read_config = BucketConfigs(), maybe(), TFRReadConfigs()
