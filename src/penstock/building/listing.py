"""The splits of a build: what is known of their examples before any is loaded."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import contains
from typing import Any, TypeGuard, overload

import numpy as np

from .._core import crc32c, hash_keys
from ..errors import NoExamplesError, PenstockError, SchemaError
from ..schema.columns import Array, Bytes, Ragged
from ..schema.example_class import Example
from ..schema.schema import Schema
from ..sources.detect import detect
from ..sources.example_classes import Prepared, check_methods, code_of, kinds_of
from ..sources.files import stamp_of
from ..sources.fingerprint import code_digest, digest
from ..sources.image_folder import ImageFolder
from ..sources.protocol import (
    StreamSubset,
    is_listed,
    is_table,
    key_of,
    options_of,
    own_key,
    place_of,
    stamps_of,
    takes_many,
)
from ..sources.splits import Deduped, Splits
from ..sources.table import table
from ..storage.files import is_below
from .engines.local import begin_example
from .plan import Order, order_rows

KEY = "__key__"
Stored = dict[str, Any]  # the fields of an example, as they are stored


@dataclass(eq=False)
class Split:
    """A split: its source, and its examples by number in the order of their records; a stream has none yet."""

    name: str
    source: Any
    order: Order
    seed: int
    keys: list[str] | int = 0
    rows: Array = field(default_factory=lambda: np.empty(0, np.int64))
    known: Schema | None = None
    stream: Stream | None = None

    def __post_init__(self) -> None:
        if self.stream is not None:
            return
        check_methods(self.source)
        inputs = Inputs(self.source)
        self.keys, self.known = inputs.keys(), inputs.schema
        if not len(inputs):
            raise NoExamplesError("expected examples, got none", self.name)
        self.rows = order_rows(self.name, self.keys, order=self.order, seed=self.seed, place=inputs.place)

    def fingerprint(self) -> dict[str, object]:
        """Return what distinguishes its source from others."""
        keys = self.keys if self.stream is None else None
        found = fingerprint(self.source, keys, ordered=self.order == "source")
        said = {"options": options_of(self.source), "code": code_of(self.source)}
        return found | {name: value for name, value in said.items() if value}

    def by_file(self) -> list[Array] | None:
        """Return the examples of each file by number, if they are best read so and records have another order."""
        return getattr(self.source, "by_file", None) if self.order != "source" else None

    def keys_of(self, rows: Array) -> Sequence[str]:
        """Return the keys of some examples."""
        keys = self.keys
        return Numbers(rows) if isinstance(keys, int) else [keys[row] for row in rows.tolist()]


class Stream:
    """A pass over a stream. A rule decides the split of each example; without one, all belong to the first."""

    def __init__(self, names: tuple[str, ...], source: Any, rule: Any = None) -> None:
        self.names = names
        self.examples = open_stream(source)
        self.rule = rule

    def put_back(self, head: list[object]) -> None:
        """Return examples to the beginning of the stream."""
        self.examples = chain(head, self.examples)

    def by_split(self, chunk: list[object], first: int) -> dict[str, tuple[list[int], list[object]]]:
        """Return examples with their numbers in the stream, by split; the first has the number `first`."""
        if self.rule is None:
            return {self.names[0]: (list(range(first, first + len(chunk))), chunk)}
        found: dict[str, tuple[list[int], list[object]]] = {}
        for number, example in enumerate(chunk, first):
            numbers, examples = found.setdefault(self.split_of(number, example), ([], []))
            numbers.append(number)
            examples.append(example)
        return found

    def split_of(self, number: int, example: object) -> str:
        """Return the split of an example."""
        if self.rule is None:
            return self.names[0]
        key = stream_key(example, number)
        name: str = self.rule(key, example, key)
        if name not in self.names:
            raise SchemaError(f"expected one of the splits {', '.join(self.names)}, got {name!r}", key)
        return name


def list_splits(source: object, order: Order, seed: int) -> list[Split]:
    """Return the splits of a source."""
    sources = as_splits(source.source if isinstance(source, Deduped) else source)
    streams = open_streams(sources)
    return [Split(name, part, order, seed, stream=streams.get(name)) for name, part in sources.items()]


def open_streams(sources: Mapping[str, Any]) -> dict[str, Stream]:
    """The streams among the sources of some splits. Splits of one stream share it."""
    passes: dict[tuple[int, object], list[str]] = {}
    for name, source in sources.items():
        if not is_listed(source):
            shared = (id(source.source), source.rule) if isinstance(source, StreamSubset) else (id(source), name)
            passes.setdefault(shared, []).append(name)
    streams: dict[str, Stream] = {}
    for names in passes.values():
        source = sources[names[0]]
        subset = isinstance(source, StreamSubset)
        whole = Stream(tuple(names), source.source, source.rule) if subset else Stream((names[0],), source)
        streams.update(dict.fromkeys(names, whole))
    return streams


class Numbers(Sequence[str]):
    """The keys of examples whose number is their key: made as they are asked for, sent as an array."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Numbers: ...
    def __getitem__(self, index: int | slice) -> str | Numbers:
        return Numbers(self.rows[index]) if isinstance(index, slice) else str(self.rows[index])

    def __iter__(self) -> Iterator[str]:
        return map(str, self.rows.tolist())


def join_keys(parts: Sequence[Sequence[str]]) -> Sequence[str]:
    """Keys one after the other."""
    if parts and all(isinstance(part, Numbers) for part in parts):
        return Numbers(np.concatenate([part.rows for part in parts if isinstance(part, Numbers)]))
    return [key for part in parts for key in part]


def as_splits(source: object) -> dict[str, Any]:
    """The sources of the splits by name; a source without splits is train."""
    if isinstance(source, Splits):
        return {name: _as_source(part) for name, part in source.items()}
    return {"train": _as_source(source)}


def _as_source(source: Any) -> Any:
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)[:100]
        raise SchemaError(f"expected a source of examples, got the path {path!r}", hint=_source_of(path))
    if isinstance(source, bytes) or inspect.isclass(source):
        got = f"the class {source.__name__}" if inspect.isclass(source) else "bytes"
        raise SchemaError(f"expected a source of examples, got {got}", hint="Such as image_folder(path)")
    if isinstance(source, (Mapping, np.ndarray)) or (hasattr(source, "columns") and not is_table(source)):
        return table(source)
    if not (is_listed(source) or isinstance(source, Iterable) or callable(source)):
        raise SchemaError(f"expected a source of examples, got {type(source).__name__}")
    return source


def _source_of(path: str) -> str:
    """The hint for a path in the place of a source: the one that reads it."""
    code = f"penstock.image_folder({path!r})"
    with suppress(PenstockError, OSError):
        code = detect(path).code
    return f"Such as {code}"


class Inputs:
    """A listed source: what it says of its examples, with what it leaves unsaid filled in."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    @property
    def schema(self) -> Schema | None:
        """The fields that the source is sure of."""
        known = getattr(self.source, "schema", None)
        if known is None and isinstance(self.source, (list, tuple)):
            kinds = set(map(type, self.source))
            known = getattr(kinds.pop(), "schema", None) if len(kinds) == 1 else None
            known = known() if callable(known) else None
        return known if isinstance(known, Schema) else None

    @property
    def are_ours(self) -> bool:
        """Whether no code but ours makes the examples: neither their own, nor that of a source or a function."""
        layer = self.source
        while layer is not None:
            if isinstance(layer, Prepared) or kinds_of(layer):
                return False
            if not isinstance(layer, (list, tuple)):
                known = type(layer).__module__.startswith("penstock.")
                if not known or any(map(callable, getattr(layer, "__dict__", {}).values())):
                    return False
            layer = getattr(layer, "source", None)
        return True

    def keys(self) -> list[str] | int:
        """The key of each example; or how many there are, where each one's number is its key."""
        source = self.source
        if isinstance(source, (list, tuple)):
            numbered = are_plain(source)
        else:
            numbered = getattr(source, "numbered", not hasattr(source, "key"))
        if not numbered and hands_on_records(source):
            return list(source.keys)
        return len(self) if numbered else [key_of(source, number) for number in range(len(self))]

    def place(self, number: int) -> str:
        """Where an example comes from, for people."""
        return place_of(self.source, number)

    def made_from(self, rows: Array, keys: Sequence[str]) -> bytes | None:
        """What some examples are made from; None where the source cannot tell whether they have changed.

        The rows of a table are not looked at one by one: it is as quick to write them.
        """
        if not hasattr(self.source, "stamp") or is_table(self.source):
            return None
        said = []
        for stamp, key in zip(stamps_of(self.source, rows.astype(np.int64)), keys, strict=True):
            if not stamp:
                return None
            said.append(f"{len(key)}:{key}{len(stamp)}:{stamp}")
        return "".join(said).encode("utf-8", "surrogatepass")

    def multiplies(self) -> bool:
        """Whether an example may become many."""
        if is_complete(self.source):
            return False
        if isinstance(self.source, (list, tuple)):
            return any(map(multiplies, set(map(type, self.source))))
        folder = working_directory()
        for number in range(min(len(self), 8)):  # the first that can be had tells
            begin_example(number)
            try:
                return multiplies(type(self.source[number]))
            except (Exception, SystemExit):  # noqa: BLE001  # the build deals with it later
                continue
            finally:
                return_to(folder)
        return False


def origins(source: Any) -> Iterator[Any]:
    """What the splits of a source are made from, without all that was put around it."""
    while hasattr(source, "source"):
        source = source.source
    if isinstance(source, Splits):
        for part in source.values():
            yield from origins(part)
    else:
        yield source


def check_outside(source: object, path: str) -> None:
    """Refuse to build inside of a folder of images: its folders are classes, and so would be the dataset's."""
    for origin in origins(source):
        if isinstance(origin, ImageFolder) and is_below(path, str(origin.root)):
            hint = "Build beside it"
            raise SchemaError("expected a path outside of the images, whose folders are classes", path, hint)


def inputs_digest(made_from: Iterable[bytes | None]) -> str:
    """What all examples of a file are made from, as one value; "" where that is unknown."""
    known = list(made_from)
    return "" if None in known else digest(b"".join(part for part in known if part))


def multiplies(kind: type) -> bool:
    """Whether a class of examples has a `split` of its own, not the one that yields the example as it is."""
    return hasattr(kind, "load") and getattr(kind, "split", Example.split) is not Example.split


def hands_on_records(source: object) -> bool:
    """Whether a source has records that need not be decoded, if its schema is that of the build."""
    return hasattr(source, "records")


def is_complete(source: object) -> bool:
    """Whether a source's own schema says all, so that no example needs to be looked at."""
    return takes_many(source) or hands_on_records(source)


def are_plain(examples: Iterable[object]) -> TypeGuard[Sequence[Stored]]:
    """Whether all are dicts that can be stored as they are."""
    examples = examples if isinstance(examples, (list, tuple)) else list(examples)
    return set(map(type, examples)) <= {dict} and not any(map(contains, examples, repeat(KEY)))


def open_stream(source: Any) -> Iterator[object]:
    """The examples of a stream, from the start; a generator function is called for them."""
    return iter(source() if callable(source) and not isinstance(source, Iterable) else source)


def stream_key(example: object, number: int) -> str:
    """The key of a stream's example: its own, or its number."""
    key = own_key(example)
    return str(number) if key is None else key


def working_directory() -> str:
    """The working directory; nothing if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def return_to(folder: str) -> None:
    """Return to a working directory, if the code of an example has left it: paths may be relative to it."""
    if folder and working_directory() != folder:
        os.chdir(folder)


def parts_of(example: object) -> Iterator[Stored]:
    """The dicts that are stored for an example; an object is asked to load and to split itself first."""
    if isinstance(example, Mapping):
        yield {name: value for name, value in example.items() if name != KEY} if KEY in example else dict(example)
    elif hasattr(example, "load") and hasattr(example, "to_dict"):
        example = copy(example)  # what is loaded goes when its record is made: the source keeps the light one
        example.load()
        for part in example.split() if hasattr(example, "split") else (example,):
            yield dict(part if isinstance(part, Mapping) else part.to_dict())
    else:
        hint = "Files are read by csv(), jsonl(), tar() and others" if isinstance(example, (str, os.PathLike)) else ""
        raise SchemaError(f"expected an example as a dict or an Example, got {type(example).__name__}", "", hint)


def fingerprint(source: Any, keys: list[str] | int | None, ordered: bool) -> dict[str, object]:
    """What tells two sources apart: the keys of a listed one, the bytes of a table, the code of a stream's function."""
    if keys is None:
        while hasattr(source, "source"):
            source = source.source
        name = getattr(source, "__qualname__", type(source).__qualname__)
        return {"stream": name, "code": code_digest(source)}
    if isinstance(keys, int):
        found: dict[str, object] = {"examples": keys}
    else:
        hashes = hash_keys(keys, 0, "")
        found = {"examples": len(keys), "keys": digest((hashes if ordered else np.sort(hashes)).tobytes())}
    if is_table(source):
        columns = getattr(source, "source", source).columns
        found["columns"] = {name: column_checksum(column) for name, column in columns.items()}
    return found


def column_checksum(column: object) -> str | int | None:
    """Of a column's bytes; of a mapped file its size and time of change; None where neither is quick."""
    if isinstance(column, np.memmap):
        return stamp_of(str(column.filename))
    if isinstance(column, np.ndarray):
        # As bytes: dtypes that NumPy does not define, such as bfloat16, have no buffer of their own.
        return crc32c(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data) if column.size else 0
    if isinstance(column, (Ragged, Bytes)):
        return f"{column_checksum(column.values)}-{column_checksum(column.row_splits)}"
    return None
