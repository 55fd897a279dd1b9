"""Datum's configs: options that are checked when they are set, under all their spellings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ...errors import did_you_mean


class Option:
    """One option: what it may be, and what it is unless told. One that is None unless told may be None again."""

    def __init__(self, kind: Any, default: Any = None) -> None:
        self.kind = kind
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, configs: Any, owner: type) -> Any:
        if configs is None:
            return self
        if self.name not in configs._given:
            configs._given[self.name] = self.default() if callable(self.default) else self.default
        return configs._given[self.name]

    def __set__(self, configs: Any, value: Any) -> None:
        if not isinstance(value, self.kind) and not (value is None and self.default is None):
            kind = getattr(self.kind, "__name__", str(self.kind))
            raise TypeError(f"expected {kind}, got {value!r} - at {type(configs).__name__}.{self.name}")
        configs._given[self.name] = value


class ConfigBase:
    """Options by name; an unknown one is an error."""

    spellings: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        object.__setattr__(self, "_given", {})

    @classmethod
    def names(cls) -> list[str]:
        """The names of all options."""
        return [name for name, value in vars(cls).items() if isinstance(value, Option)]

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.names()
        name = self.spellings.get(name, name)
        if name not in known:
            hint = did_you_mean(name, known)
            raise AttributeError(f"unknown option {name!r} - at {type(self).__name__}{'. ' if hint else ''}{hint}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Only called for what is no option: another spelling of one."""
        if name in type(self).spellings:
            return getattr(self, self.spellings[name])
        raise AttributeError(f"unknown option {name!r} - at {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.names())

    __hash__ = None  # type: ignore[assignment]  # it may change

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._given.items())})"

    def merge(self, other: ConfigBase) -> ConfigBase:
        """What both say; where both say something, and not the same, that is an error."""
        if type(other) is not type(self):
            raise TypeError(f"expected {type(self).__name__}, got {type(other).__name__} - at merge")
        merged, plain = type(self)(), type(self)()
        for name in self.names():
            mine, theirs, default = (getattr(each, name) for each in (self, other, plain))
            if isinstance(mine, ConfigBase):
                setattr(merged, name, mine.merge(theirs))
            elif mine not in (default, theirs) and theirs != default:
                raise ValueError(f"expected one value, got {mine!r} and {theirs!r} - at {type(self).__name__}.{name}")
            elif mine != default or theirs != default:
                setattr(merged, name, theirs if mine == default else mine)
        return merged


class TFRWriteConfigs(ConfigBase):
    """How a dataset is exported.

    splits           {"train": {}, "val": {"extension": ".png"}}: folders and extensions where they are not the usual;
                     `num_examples` may stand there, and need not
    sparse_features  features that are lists of any length; those that differ in length are found out without it
    generator        a class of one's own: called with the input path, then with split=..., yields (key, dict)
    """

    generator = Option(object)
    serializer = Option(object)
    sparse_features = Option(list)
    splits = Option(dict)
    num_train_examples = Option(int)
    num_val_examples = Option(int)
    num_test_examples = Option(int)


def _options() -> Any:
    from ...frameworks.tensorflow import tf

    return tf.data.Options()


class TFRReadConfigs(ConfigBase):
    """How the files of a split are read."""

    experimental_interleave_sort_fn = Option(Callable)
    shuffle_reshuffle_each_iteration = Option(bool, True)
    interleave_cycle_length = Option(int, -1)
    interleave_block_length = Option(int, 1)
    seed = Option(int, 6052020)
    options = Option(object, _options)


class BucketConfigs(ConfigBase):
    """Where buckets end, and how large their batches are."""

    bucket_boundaries = Option(list, lambda: [0])
    bucket_batch_sizes = Option(list, lambda: [32, 32])


class DatasetConfigs(ConfigBase):
    """How a split becomes batches. A callback without a split's name is that of train, as for other options."""

    spellings: ClassVar[dict[str, str]] = {
        "pre_batching_callback": "pre_batching_callback_train",
        "post_batching_callback": "post_batching_callback_train",
        "drop_remainder_train": "drop_remainder",
        "deterministic_train": "deterministic",
    }

    buffer_size = Option(int, 100)
    seed = Option(int, 6052020)
    full_dataset = Option(bool, False)
    drop_remainder = Option(bool, True)
    drop_remainder_val = Option(bool, False)
    drop_remainder_test = Option(bool, False)
    deterministic = Option(bool, False)
    deterministic_val = Option(bool, False)
    deterministic_test = Option(bool, False)
    num_parallel_calls = Option(int, 1)
    batch_size_train = Option(int, 32)
    batch_size_val = Option(int, 32)
    batch_size_test = Option(int, 32)
    echoing = Option(int)
    shuffle_files = Option(bool, True)
    reshuffle_each_iteration = Option(bool, False)
    cache = Option(bool, False)
    cache_filename = Option(str, "")
    bucket_op = Option(BucketConfigs, BucketConfigs)
    bucket_fn = Option(Callable)
    pre_batching_callback_train = Option(Callable)
    post_batching_callback_train = Option(Callable)
    pre_batching_callback_val = Option(Callable)
    post_batching_callback_val = Option(Callable)
    pre_batching_callback_test = Option(Callable)
    post_batching_callback_test = Option(Callable)
    read_config = Option(TFRReadConfigs, TFRReadConfigs)
    use_tf_padding = Option(bool, False)
    use_datum_padding = Option(bool, False)
