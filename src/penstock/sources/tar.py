"""Tar shards as a source: the samples of other people's WebDatasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

import numpy as np

from .._core import Records, Shards, list_tar
from ..dataset.plain_files import check_complete
from ..dataset.record_files import split_name, split_order, without_side_files
from ..errors import NotFoundError, SchemaError
from ..records.codec import Codec, default_threads, first_row
from ..records.index import existing_sidecar
from ..records.tar import (
    KEY,
    SUFFIXES,
    checked_schema,
    exact_schema,
    merged_schema,
    rules_of,
    sampled_schema,
    without_key,
)
from ..schema.columns import Array, ExampleDict, Value
from ..schema.schema import Fields, Schema
from ..storage.files import LocalCopy, fit_cache, local_copies, named_by_url
from ..storage.paths import Paths, files_named, path_list
from ..thread_pool import thread_pool
from .files import short_names, stamp_of
from .fingerprint import described
from .protocol import RecordSource, position
from .rows import Mapped
from .splits import Splits

MOST_INFLATED = 512 << 20  # bytes of compressed tars that the core keeps in memory
RecordFunction = Callable[[ExampleDict], Value]


class Caller(Protocol):
    """What runs a function of each item, elsewhere; the results come in the order of the items."""

    def call(self, function: Callable[[Any], Any], items: Sequence[Value]) -> list[Value]:
        """Run it."""


class TarSamples(RecordSource):
    """The samples of some tar files. `source[i]` decodes one, `records` gives them as records; nothing is unpacked.

    inflated  bytes that compressed ones among them have in all
    """

    def __init__(
        self,
        tars: Sequence[LocalCopy],
        names: Sequence[str],
        keys: Sequence[Sequence[str]],
        schema: Schema,
        inflated: int = 0,
    ) -> None:
        self.tars = list(tars)
        self.files = [str(each) for each in tars]
        self.names = list(names)
        self.schema = schema
        self.inflated = inflated
        self.nbytes: int | None = None  # about how many bytes they have, where none are read here to find out
        self._keys = list(chain.from_iterable(keys))
        self.starts = np.cumsum([0, *map(len, keys)])
        self._reading: tuple[Shards, Codec] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_reading": None}

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"TarSamples({len(self)} samples of {len(self.files)} files)"

    def __getitem__(self, index: int) -> ExampleDict:
        number = position(index, len(self))
        shards, codec = self._read
        return {KEY: self._keys[number], **first_row(codec.to_batch(shards.examples(codec.plan, [number])))}

    def records(self, indices: Sequence[int] | Array) -> Records:
        """These samples, as records."""
        return self._read[0].records(np.asarray(indices, dtype=np.int64))

    @property
    def _read(self) -> tuple[Shards, Codec]:
        if self._reading is None:
            rules = rules_of(self.schema)
            counts = np.diff(self.starts).tolist()
            paths = [each.path for each in self.tars]
            shards = [(path, n, existing_sidecar(path), rules) for path, n in zip(paths, counts, strict=True)]
            remote = any(each.remote is not None for each in self.tars)
            self._reading = Shards(shards, self._bring if remote else None), Codec(self.schema)
        return self._reading

    def _bring(self, path: str | os.PathLike[str]) -> bool:
        """Bring a tar that is elsewhere, or that a cache has let go of. This is what the core calls."""
        for each in self.tars:
            if each.path == os.fspath(path):
                each.bring()
        return True

    @property
    def by_file(self) -> list[Array] | None:
        """The samples of each tar by number, where they are best read tar by tar.

        That is where all of them go neither into memory, inflated, nor into the cache.
        """
        if self.inflated <= MOST_INFLATED and fit_cache(self.tars):
            return None
        return np.split(np.arange(len(self)), self.starts[1:-1])

    def key(self, index: int) -> str:
        """The name of the tar, and the sample's key in it."""
        number = position(index, len(self))
        return f"{self.names[self._file_of(number)]}/{self._keys[number]}"

    def all_keys(self) -> list[str]:
        """Return the keys of all samples."""
        counts = np.diff(self.starts).tolist()
        names = chain.from_iterable([name] * count for name, count in zip(self.names, counts, strict=True))
        return [f"{name}/{key}" for name, key in zip(names, self._keys, strict=True)]

    def place(self, index: int) -> str:
        """The tar, and the sample's key in it."""
        number = position(index, len(self))
        return f"{self.files[self._file_of(number)]}, sample {self._keys[number]!r}"

    def stamp(self, index: int) -> str:
        """That of the tar."""
        return _stamp(self.tars[self._file_of(position(index, len(self)))])

    def stamps(self, indices: Array) -> list[str]:
        """Those of some samples' tars; each is looked at once."""
        files, places = np.unique(np.searchsorted(self.starts, indices, side="right") - 1, return_inverse=True)
        told = [_stamp(self.tars[at]) for at in files.tolist()]
        return [told[place] for place in places.tolist()]

    def _file_of(self, number: int) -> int:
        return int(np.searchsorted(self.starts, number, side="right")) - 1


class Converted(Mapped):
    """The samples of tar files, each made an example by a function of its files' bytes."""

    def __init__(self, samples: TarSamples, function: RecordFunction, pair: bool) -> None:
        super().__init__(samples, function)
        self.pair = pair

    def __getitem__(self, index: int) -> Mapping[str, Value]:
        record = {name: value for name, value in self.source[index].items() if value is not None}
        example = self.function(record)
        if self.pair:
            if not isinstance(example, (tuple, list)) or len(example) != 2:
                got = type(example).__name__
                raise SchemaError(f"expected (value, label) from record_to_pair, got {got}", self.place(index))
            return {"value": example[0], "label": example[1]}
        if hasattr(example, "SerializeToString"):
            return values_of_message(example)
        if not isinstance(example, Mapping):
            got = type(example).__name__
            raise SchemaError(f"expected a dict from record_to_example, got {got}", self.place(index))
        return example

    @property
    def options(self) -> dict[str, object]:
        """What tells the function from another one."""
        return {"record_to_pair" if self.pair else "record_to_example": described(self.function, "tar")}


def values_of_message(message: Any) -> ExampleDict:
    """What a tf.train.Example holds: a list that has one value is that value."""
    values: ExampleDict = {}
    for name, feature in message.features.feature.items():
        kind = feature.WhichOneof("kind")
        found = list(getattr(feature, kind).value) if kind else []
        listed = np.array(found, np.float32) if kind == "float_list" else found
        values[name] = listed[0] if len(listed) == 1 else listed
    return values


def tar(
    pattern: Paths,
    *,
    schema: Schema | Fields | None = None,
    decode: bool = True,
    record_to_example: RecordFunction | None = None,
    record_to_pair: RecordFunction | None = None,
    engine: Caller | None = None,
) -> TarSamples | Converted | Splits:
    """The samples of tar files, as WebDataset writes them: the files of one key, each extension a field.

    tar("train-{000..146}.tar")            # {"__key__": "0001", "jpg": b"...", "cls": 7}
    tar("shards/", schema={"jpg": Field(dtype="bytes", kind="image"), "cls": "int64"})

    pattern            a file, a folder, a glob, a range, a URL, or a list of them; plain, or in gzip, zstd, bzip2 or xz
    schema             what the files of a sample are, by extension; found out unless told
    decode             False leaves every file as its bytes
    record_to_example  a function from {"__key__": ..., extension: bytes} to an example: a dict, or a tf.train.Example
    record_to_pair     the same to (value, label), which become the fields value and label
    engine             Ray(...): the machines of a cluster list the tars of a store, so that none comes to this one

    The files of a sample may be anywhere in a tar: they are grouped by key, and samples come in the order of their
    first files. Tars called train-000.tar, val-000.tar and so on keep their splits.
    """
    functions = [function for function in (record_to_example, record_to_pair) if function is not None]
    if len(functions) > 1 or (functions and schema is not None):
        raise SchemaError("expected one of schema, record_to_example and record_to_pair, got two", "tar")
    samples = samples_of(tar_files(pattern), schema, raw=not decode or bool(functions), engine=engine)
    sources: dict[str, TarSamples | Converted] = {
        name: Converted(part, functions[0], record_to_pair is not None) if functions else part
        for name, part in samples.items()
    }
    return sources[""] if "" in sources else Splits(sources)


def tar_files(pattern: Paths) -> list[LocalCopy]:
    """The files, or objects of a store, that a pattern or a list of them names."""
    files = without_side_files([file for each in path_list(pattern) for file in files_named(each, SUFFIXES)])
    if not files:
        raise NotFoundError(f"expected tar files, got none - at {pattern}")
    check_complete(files)
    return local_copies(files)


def _stamp(file: LocalCopy) -> str:
    """What changes with a tar's content."""
    return stamp_of(file.path) if file.remote is None else file.remote.tag


def _size(file: LocalCopy) -> int:
    """How many bytes a tar has."""
    return os.path.getsize(file.path) if file.remote is None else file.remote.size


def samples_of(
    tars: Sequence[LocalCopy],
    schema: Schema | Fields | None = None,
    *,
    raw: bool = False,
    splits: bool = True,
    engine: Caller | None = None,
) -> dict[str, TarSamples]:
    """The samples of tar files by split; under "" where the names tell none, or none are wanted."""
    if engine is None:
        with thread_pool(min(len(tars), default_threads())) as pool:
            listed = list(pool.map(_listed, tars))
    else:
        described = engine.call(partial(_described, raw=raw, count=len(tars)), tars)
        listed = [found[:3] for found in described]
    samples = sum(len(keys) for keys, *_ in listed)
    if schema is None:
        if engine is None:
            sampled = sampled_schema([each.path for each in tars], raw=raw)
        else:
            sampled = merged_schema([Schema.from_json(found[3]) for found in described if found[3]])
        whole = without_key(exact_schema(sampled, samples, [found for _, found, _ in listed], raw=raw))
    else:
        whole = without_key(checked_schema(schema))
    names = short_names([str(each) for each in tars])
    parts: dict[str, list[int]] = {}
    for number, each in enumerate(tars):
        parts.setdefault(split_name(str(each)) if splits else "", []).append(number)
    if "" in parts:
        parts = {"": list(range(len(tars)))}
    made = {
        split: TarSamples(
            [tars[n] for n in parts[split]],
            [names[n] for n in parts[split]],
            [listed[n][0] for n in parts[split]],
            whole,
            sum(listed[n][2] for n in parts[split]),
        )
        for split in sorted(parts, key=split_order)
    }
    if engine is not None:
        for split, part in made.items():
            part.nbytes = sum(max(_size(tars[n]), listed[n][2]) for n in parts[split])
    return made


def _described(file: LocalCopy, raw: bool, count: int) -> tuple[list[str], dict[str, int], int, Any]:
    """What `_listed` gives, and the schema that the first samples show: on the machine that reads the tar."""
    listed = _listed(file)
    return *listed, sampled_schema([file.path], raw=raw, count=count).to_json() if listed[0] else None


def _listed(file: LocalCopy) -> tuple[list[str], dict[str, int], int]:
    """The keys of a tar, its extensions, and its size once inflated."""
    with named_by_url([file]):
        return list_tar(file.bring())
