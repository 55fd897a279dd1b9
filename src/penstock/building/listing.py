"""The splits of a build: what is known of their examples before any is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, overload

import numpy as np

from .._core import crc32c, hash_keys
from ..errors import NoExamplesError, PenstockError, SchemaError
from ..schema.columns import Array, Bytes, ExampleDict, Ragged
from ..schema.example_class import Example
from ..schema.schema import Schema
from ..sources.adapt import ExampleList, UserSource, UserStream
from ..sources.detect import detect
from ..sources.example_classes import Prepared, PreparedStream, check_methods, code_of
from ..sources.files import stamp_of
from ..sources.fingerprint import code_digest, digest
from ..sources.image_folder import ImageFolder
from ..sources.protocol import (
    KEY,
    BatchSource,
    RecordSource,
    Rule,
    Source,
    Stream,
    StreamSubset,
    Subset,
    TableSource,
    TableSubset,
    own_key,
)
from ..sources.rows import Mapped
from ..sources.splits import Deduped, as_splits
from ..storage.files import is_below
from .engines.local import begin_example
from .plan import Order, order_rows

# Sources around others, which they call `source`.
WRAPPERS = (Subset, StreamSubset, Prepared, PreparedStream, Mapped, UserSource, UserStream, Deduped)
Stored = ExampleDict  # the fields of an example, as they are stored


@dataclass(eq=False)
class Split:
    """A split: its source, and its examples by number in the order of their records; a stream has none yet."""

    name: str
    source: Source | Stream
    order: Order
    seed: int
    keys: list[str] | int = 0
    rows: Array = field(default_factory=lambda: np.empty(0, np.int64))
    known: Schema | None = None
    stream: StreamPass | None = None

    def __post_init__(self) -> None:
        if self.stream is not None:
            return
        source = self.listed
        check_methods(source)
        self.keys, self.known = len(source) if source.numbered else list(source.all_keys()), source.schema
        if not len(source):
            raise NoExamplesError("expected examples, got none", self.name)
        self.rows = order_rows(self.name, self.keys, order=self.order, seed=self.seed, place=source.place)

    @property
    def listed(self) -> Source:
        """The source of a split that is no stream."""
        if not isinstance(self.source, Source):
            raise TypeError(f"{self.name} is a stream")
        return self.source

    def fingerprint(self) -> dict[str, object]:
        """Return what distinguishes a source: keys of a listed one, bytes of a table, code of a stream's function."""
        keys = self.keys if self.stream is None else None
        found = fingerprint(self.source, keys, ordered=self.order == "source")
        code = code_of(self.source) if isinstance(self.source, Source) else {}
        said = {"options": self.source.options, "code": code}
        return found | {name: value for name, value in said.items() if value}

    def by_file(self) -> list[Array] | None:
        """Return the examples of each file by number, if they are best read so and records have another order."""
        return self.listed.by_file if self.order != "source" else None

    def keys_of(self, rows: Array) -> Sequence[str]:
        """Return the keys of some examples."""
        keys = self.keys
        return Numbers(rows) if isinstance(keys, int) else [keys[row] for row in rows.tolist()]


class StreamPass:
    """A pass over a stream. A rule decides the split of each example; without one, all belong to the first."""

    def __init__(self, names: tuple[str, ...], source: Stream, rule: Rule | None = None) -> None:
        self.names = names
        self.examples = iter(source)
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
    given = source.source if isinstance(source, Deduped) else source
    _check_path(given)
    sources = as_splits(given)
    streams = open_streams(sources)
    return [Split(name, part, order, seed, stream=streams.get(name)) for name, part in sources.items()]


def open_streams(sources: Mapping[str, Source | Stream]) -> dict[str, StreamPass]:
    """Return the streams among the sources of some splits. Splits of one stream share it."""
    passes: dict[tuple[int, object], list[str]] = {}
    for name, source in sources.items():
        if isinstance(source, Stream):
            shared = (id(source.source), source.rule) if isinstance(source, StreamSubset) else (id(source), name)
            passes.setdefault(shared, []).append(name)
    streams: dict[str, StreamPass] = {}
    for names in passes.values():
        source = sources[names[0]]
        if isinstance(source, StreamSubset):
            streams.update(dict.fromkeys(names, StreamPass(tuple(names), source.source, source.rule)))
        elif isinstance(source, Stream):
            streams[names[0]] = StreamPass((names[0],), source)
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
    """Concatenate keys."""
    if parts and all(isinstance(part, Numbers) for part in parts):
        return Numbers(np.concatenate([part.rows for part in parts if isinstance(part, Numbers)]))
    return [key for part in parts for key in part]


def _check_path(given: object) -> None:
    """Refuse a path in the place of a source, and name the source that reads it."""
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)[:100]
        code = f"penstock.image_folder({path!r})"
        with suppress(PenstockError, OSError):
            code = detect(path).code
        raise SchemaError(f"expected a source of examples, got the path {path!r}", hint=f"Such as {code}")


def made_from(source: Source, rows: Array, keys: Sequence[str]) -> bytes | None:
    """Return what some examples are made from; None if the source cannot tell whether they have changed.

    The rows of a table are not looked at one by one: it is as quick to write them.
    """
    if isinstance(source, TableSource):
        return None
    said = []
    for stamp, key in zip(source.stamps(rows.astype(np.int64)), keys, strict=True):
        if not stamp:
            return None
        said.append(f"{len(key)}:{key}{len(stamp)}:{stamp}")
    return "".join(said).encode("utf-8", "surrogatepass")


def examples_multiply(source: Source) -> bool:
    """Return True if an example may become many."""
    if is_complete(source):
        return False
    if isinstance(source, ExampleList):
        return any(map(multiplies, source.example_classes))
    folder = working_directory()
    for number in range(min(len(source), 8)):  # the first that can be had tells
        begin_example(number)
        try:
            return multiplies(type(source[number]))
        except (Exception, SystemExit):  # noqa: BLE001  # the build deals with it later
            continue
        finally:
            return_to(folder)
    return False


def origins(source: Any) -> Iterator[Any]:
    """Yield the sources that the splits of a source were made from, without their wrappers."""
    while isinstance(source, WRAPPERS):
        source = source.source
    if isinstance(source, Mapping):
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
    """Return a digest of what all examples of a file are made from; empty if that is unknown."""
    known = list(made_from)
    return "" if None in known else digest(b"".join(part for part in known if part))


def multiplies(kind: type) -> bool:
    """Return True if a class of examples overrides `split`, so that an example may become several."""
    return hasattr(kind, "load") and getattr(kind, "split", Example.split) is not Example.split


def is_complete(source: Source) -> bool:
    """Return True if the schema of a source is complete, so that no example needs to be loaded for it."""
    return isinstance(source, (BatchSource, RecordSource))


def stream_key(example: object, number: int) -> str:
    """Return the key of a stream's example: its own, or its number."""
    key = own_key(example)
    return str(number) if key is None else key


def working_directory() -> str:
    """Return the working directory; empty if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def return_to(folder: str) -> None:
    """Return to a working directory, if the code of an example has left it: paths may be relative to it."""
    if folder and working_directory() != folder:
        os.chdir(folder)


def parts_of(example: object) -> Iterator[Stored]:
    """Yield the dicts that are stored for an example; an object loads and splits itself first."""
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
    """Return what distinguishes a source: keys of a listed one, bytes of a table, code of a stream's function."""
    if keys is None:
        while isinstance(source, WRAPPERS):
            source = source.source
        name = getattr(source, "__qualname__", type(source).__qualname__)
        return {"stream": name, "code": code_digest(source)}
    if isinstance(keys, int):
        found: dict[str, object] = {"examples": keys}
    else:
        hashes = hash_keys(keys, 0, "")
        found = {"examples": len(keys), "keys": digest((hashes if ordered else np.sort(hashes)).tobytes())}
    if isinstance(source, TableSource):
        columns = (source.source if isinstance(source, TableSubset) else source).columns
        found["columns"] = {name: column_checksum(column) for name, column in columns.items()}
    return found


def column_checksum(column: object) -> str | int | None:
    """Return a checksum of a column; of a mapped file its size and time; None if neither is quick."""
    if isinstance(column, np.memmap):
        return stamp_of(str(column.filename))
    if isinstance(column, np.ndarray):
        # As bytes: dtypes that NumPy does not define, such as bfloat16, have no buffer of their own.
        return crc32c(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data) if column.size else 0
    if isinstance(column, (Ragged, Bytes)):
        return f"{column_checksum(column.values)}-{column_checksum(column.row_splits)}"
    return None
