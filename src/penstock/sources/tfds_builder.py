"""An existing builder of TFDS as a source: its code gives the examples, our engine stores them."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..dataset.manifest import Info
from ..dataset.tfds import read_features
from ..errors import SchemaError
from ..schema.columns import ExampleDict, Value
from ..schema.schema import Schema
from .fingerprint import code_digest
from .protocol import Stream
from .splits import Splits

# What a build says of a dataset by itself, and in other words.
_OURS = (
    "name",
    "version",
    "description",
    "citation",
    "splits",
    "fileFormat",
    "disableShuffling",
    "sizeInBytes",
    "features",
)


def tfds(builder: Any, *, download_dir: Any = None, download_config: Any = None) -> GeneratedSplits:
    """The examples of a TFDS builder: its `_split_generators` and `_generate_examples` run, without Beam.

        builder = MyDataset(data_dir="data")
        build(tfds(builder), builder.data_dir)

    What is built there is to TFDS what the builder would have prepared: its features, its name, version and config, and
    its splits. download_dir, download_config: as `builder.download_and_prepare` takes them.
    """
    if not hasattr(builder, "_split_generators") or not hasattr(builder, "_generate_examples"):
        hint = "Give one that has _split_generators and _generate_examples"
        raise SchemaError(f"expected a builder of TFDS, got {type(builder).__name__}", "tfds", hint)
    with tempfile.TemporaryDirectory() as folder:
        builder.info.features.save_config(folder)
        features, schema, unread = read_features(Path(folder))
    for field, reason in unread.items():
        raise SchemaError(f"the field {field!r} can't be stored: {reason}", f"tfds({type(builder).__name__})")
    run = _Run(builder, download_dir, download_config)
    return GeneratedSplits({split: GeneratedSplit(run, split) for split in run.names}, schema, _info(builder, features))


def _info(builder: Any, features: Mapping[str, Any]) -> Info:
    said = json.loads(builder.info.as_json)
    pair = builder.info.supervised_keys
    plain = isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair)
    return Info(
        name=builder.name,
        version=str(builder.version),
        description=builder.info.description or "",
        citation=builder.info.citation or "",
        supervised=pair if plain else None,
        tfds={"info": {key: value for key, value in said.items() if key not in _OURS}, "features": features},
    )


class GeneratedSplits(Splits):
    """The splits of a builder, and what it says of them."""

    __slots__ = ("info", "schema")

    def __init__(self, sources: Mapping[str, Any], schema: Schema, info: Info) -> None:
        super().__init__(sources)
        self.schema = schema
        self.info = info


class _Run:
    """The generators of a builder. Each runs once: they are made anew for a second pass."""

    def __init__(self, builder: Any, download_dir: Any, download_config: Any) -> None:
        self.builder = builder
        self.told = (download_dir, download_config)
        self._fresh = self._generators()
        self.names = list(self._fresh)

    def open(self, split: str) -> Iterator[tuple[Any, Any]]:
        """The examples of a split with their keys, from the start."""
        if split not in self._fresh:
            self._fresh = self._generators()
        return iter(self._fresh.pop(split))

    def _generators(self) -> dict[str, Iterable[tuple[Any, Any]]]:
        import tensorflow_datasets  # type: ignore[import-not-found]

        builder, (download_dir, download_config) = self.builder, self.told
        where = f"tfds({type(builder).__name__})"
        if "pipeline" in inspect.signature(builder._split_generators).parameters:
            raise SchemaError("expected generators of examples, got a pipeline of Beam", where)
        manager = builder._make_download_manager(
            download_dir=download_dir, download_config=download_config or tensorflow_datasets.download.DownloadConfig()
        )
        found = builder._split_generators(manager)
        if not isinstance(found, Mapping):  # as it was written before there were dicts of them
            found = {str(each.name): builder._generate_examples(**each.gen_kwargs) for each in found}
        for split, generator in found.items():
            if not isinstance(generator, Iterable):
                got = (
                    f"{type(generator).__name__}, which needs Beam" if _is_beam(generator) else type(generator).__name__
                )
                raise SchemaError(f"expected a generator of examples, got {got}", f"{where}, split {split!r}")
        return {str(split): generator for split, generator in found.items()}


def _is_beam(generator: object) -> bool:
    return any(kind.__module__.startswith("apache_beam") for kind in type(generator).__mro__)


class GeneratedSplit(Stream):
    """A split that a builder generates: a stream of examples with the builder's keys."""

    def __init__(self, run: _Run, split: str) -> None:
        self._run = run
        self._split = split

    @property
    def options(self) -> dict[str, object]:
        """What tells the builder from others."""
        builder = self._run.builder
        return {"builder": builder.info.full_name, "code": code_digest(type(builder)._generate_examples)}

    def __iter__(self) -> Iterator[Generated]:
        features = self._run.builder.info.features
        for key, example in self._run.open(self._split):
            yield Generated(_key(key), features, example)


def _key(key: object) -> str:
    """The text that TFDS hashes for a key: of bytes the text, of an array that is a number the number."""
    key = key.item() if isinstance(key, np.ndarray) and key.size == 1 else key
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)


class Generated:
    """An example of a builder; `load` makes of it what its features store."""

    __slots__ = ("features", "key", "values")
    on_threads = True

    def __init__(self, key: str, features: Any, values: Value) -> None:
        self.key = key
        self.features = features
        self.values = values

    def load(self) -> None:
        """Read the files that it names, encode its images, turn class names into numbers."""
        self.values = stored(self.features, self.values)

    def to_dict(self) -> ExampleDict:
        """What is stored."""
        return dict(self.values)


def stored(feature: Any, value: Value) -> Any:
    """What a feature stores of a value, but for arrays, which we encode ourselves."""
    kind = type(feature).__name__
    if value is None:
        return None
    if kind in ("FeaturesDict", "Translation"):
        return {name: stored(feature[name], part) if name in feature else part for name, part in value.items()}
    if kind in ("Sequence", "Dataset"):
        return _sequence(feature.feature, value)
    if kind in ("Tensor", "Scalar"):
        return _array(feature, value)
    encoded = _strings(feature.encode_example(value))
    return _array(feature, encoded) if kind == "Audio" and not isinstance(encoded, bytes) else encoded


def _strings(encoded: Any) -> Any:
    """What TFDS has encoded, with strings as such, where it has arrays of one."""
    if isinstance(encoded, dict):
        return {name: _strings(part) for name, part in encoded.items()}
    if isinstance(encoded, list):
        return [_strings(part) for part in encoded]
    is_string = isinstance(encoded, np.ndarray) and encoded.dtype == object and not encoded.ndim
    return encoded.item() if is_string else encoded


def _sequence(feature: Any, rows: Any) -> Any:
    """A list; of dicts, a dict of lists."""
    if type(feature).__name__ in ("FeaturesDict", "Translation"):
        named = isinstance(rows, Mapping)
        columns = {name: rows[name] if named else [row[name] for row in rows] for name in feature}
        return {name: _sequence(feature[name], column) for name, column in columns.items()}
    if type(feature).__name__ in ("Tensor", "Scalar") and isinstance(rows, np.ndarray):
        return _array(feature, rows)
    return [stored(feature, row) for row in rows]


def _array(feature: Any, value: Value) -> Any:
    """As TFDS does it: an array must have the dtype, anything else is cast to it; a text is bytes."""
    dtype = np.dtype(feature.np_dtype)
    if dtype.kind in "OSU":
        return _bytes(value)
    return value if isinstance(value, np.ndarray) else np.asarray(value, dtype)


def _bytes(value: object) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_bytes(item) for item in value]
    return value.encode() if isinstance(value, str) else value
