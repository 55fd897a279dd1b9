"""Encode the examples of a split: load them, check them against the schema, and reject invalid ones."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from .._core import Records
from ..errors import (
    ArgumentError,
    BuildError,
    CorruptionError,
    ExampleError,
    PenstockError,
    SchemaError,
    StorageError,
    redact,
)
from ..records.codec import Codec
from ..records.formats import Format
from ..schema.coercion import is_picture
from ..schema.columns import Array
from ..schema.example_class import IgnoreExample
from ..schema.field import Field
from ..schema.inference import cover
from ..schema.schema import Schema
from ..sources.adapt import ExampleList, are_plain
from ..sources.protocol import BatchSource, RecordSource, Source, TableSource, TableSubset
from ..storage.files import FETCHES
from ..thread_pool import ordered_map
from .engines.local import LostWorkerError, begin_example, describe_exit
from .entries import BadExample
from .listing import (
    Split,
    Stored,
    multiplies,
    parts_of,
    return_to,
    working_directory,
)
from .plan import OnError

FIRST_EXAMPLES = 16  # that are encoded at a time before their size is known
MOST_EXAMPLES = 8192  # that are, however small they are
LONGEST = 0.5  # seconds until what is there goes on: someone watches the progress
Row = tuple[str, int, Stored]  # key, number in the source, what is stored


@dataclass(frozen=True)
class Upload:
    """The folder of a store that workers on other machines send shards to, as long as the build is under way.

    begun, version  The object that exists in it until the build is over.
    """

    url: str
    begun: str
    version: str | None


@dataclass(frozen=True)
class Job:
    """What all tasks of a build share.

    declared  the schema is the user's
    firm      it is not widened any more: it was declared, or every example was looked at
    sync      a shard counts as written when it is on the disk
    upload    where workers on other machines send shards, if they do not share the directory

    short_floats  inferred Python floats are float32
    """

    directory: Path
    sources: dict[str, Source]
    known: dict[str, Schema | None]
    schema: Schema
    declared: bool
    firm: bool
    formats: tuple[Format, ...]
    on_error: OnError
    chunk_bytes: int
    sync: bool = True
    upload: Upload | None = None
    short_floats: bool = False


@dataclass
class Rejected:
    """The examples that a task has left out so far: those that asked for it, and those that could not be stored."""

    ignored: int = 0
    bad: list[BadExample] = field(default_factory=list)


class DriftError(PenstockError):
    """An example that does not fit the inferred schema, but would fit this wider one."""

    def __init__(self, message: str, schema: Schema) -> None:
        super().__init__(message, schema)
        self.schema = schema

    def __str__(self) -> str:
        return str(self.args[0])


class Encoder:
    """Makes records of examples, so many at a time that memory stays bounded."""

    def __init__(self, job: Job, split: str, rejected: Rejected, threads: int = 1) -> None:
        self.job = job
        self.split = split
        self.rejected = rejected
        self.threads = threads
        self.codec = Codec(job.schema)
        sizes = {name: _fixed_bytes(node) for name, node in job.schema.items()}
        self._heavy = [name for name, size in sizes.items() if size is None]
        self._fixed_bytes = sum(size for size in sizes.values() if size is not None)
        self._most = max(1, min(MOST_EXAMPLES, job.chunk_bytes // (1 + self._fixed_bytes)))

    def listed(self, source: Source, rows: Array, keys: Sequence[str]) -> Iterator[tuple[Records, Sequence[str]]]:
        """Encode examples of a source; yield records with their keys.

        Many at once where the source has columns, records or plain dicts; one by one elsewhere, and to find a bad one.
        """
        at_once = self._at_once(source, rows)
        if at_once is None:
            yield from self._one_by_one(source, rows, keys)
            return
        step = min(FIRST_EXAMPLES, self._most, _downloads(source, self.job.chunk_bytes) or FIRST_EXAMPLES)

        def cut() -> Iterator[Array]:
            first = 0
            while first < len(rows):
                yield rows[first : (first := first + step)]

        done = 0
        chunks = ((some, partial(at_once, some)) for some in cut())
        for some, encode in ordered_map(at_once, cut(), self.threads) if self.threads > 1 else chunks:
            their_keys = keys[done : (done := done + len(some))]
            try:
                records = encode()
            except (ArgumentError, SchemaError, CorruptionError, StorageError):
                yield from self._one_by_one(source, some, their_keys)  # to name the invalid one among them
            else:
                yield records, their_keys
                step = self.next_step(step, [records])

    def _one_by_one(self, source: Source, rows: Array, keys: Sequence[str]) -> Iterator[tuple[Records, Sequence[str]]]:
        """Load examples of a listed source one by one; those of a store are downloaded in parallel."""
        threads = _downloads(source, self.job.chunk_bytes) or 1
        with closing(ordered_map(source.__getitem__, rows.tolist(), threads)) as loads:
            named = zip(keys, rows.tolist(), strict=True)
            yield from self.loaded(named, partial(_next_load, loads), source.place)

    def _at_once(self, source: Source, rows: Array) -> Callable[[Array], Records] | None:
        if isinstance(source, RecordSource) and source.schema == self.job.schema:
            return source.records
        if isinstance(source, BatchSource):
            return partial(self._taken, source)
        if isinstance(source, ExampleList) and len(rows) and are_plain([source[rows[0]]]):
            return lambda some: self.codec.encode_examples([source[r] for r in some.tolist()], threads=1)
        return None

    def _taken(self, source: BatchSource, some: Array) -> Records:
        """Encode rows of a table: in place if its columns allow it, else after taking them out."""
        records = None
        if isinstance(source, TableSource):
            columns, rows = source.columns, some
            if isinstance(source, TableSubset):
                columns, rows = source.source.columns, source.indices[some]
            records = self.codec.encode_rows(columns, rows, threads=1)
        return self.codec.encode(source.take(some), threads=1) if records is None else records

    def next_step(self, step: int, done: list[Records]) -> int:
        """Return the number of examples to encode next, given the records of the last ones."""
        records = sum(map(len, done))
        each = sum(some.nbytes for some in done) // max(1, records)
        return max(1, min(self.job.chunk_bytes // (4 * (1 + each)), 4 * step, self._most))

    def take(self, examples: Iterator[object], most: int) -> list[object]:
        """Return the next examples of a stream, no more than fit into memory."""
        some = islice(examples, min(most, self._most))
        if not self._heavy:
            return list(some)
        taken: list[object] = []
        room = self.job.chunk_bytes
        for example in some:
            taken.append(example)
            values = getattr(example, "values", None) if getattr(example, "on_threads", False) else example
            if isinstance(values, dict):
                room -= self._fixed_bytes + sum(weigh(values.get(name)) for name in self._heavy)
            if room < 0:
                break
        return taken

    def encode_plain(self, examples: list[object]) -> Records | None:
        """Encode all examples at once; None if one of them is no dict that fits.

        This runs on any thread, so of the examples that load themselves only those are loaded that say they can.
        """
        try:
            plain = examples if are_plain(examples) else [_alone(example) for example in examples]
            return self.codec.encode_examples(plain, threads=self.threads)
        except (Exception, SystemExit):  # noqa: BLE001  # it comes again where the examples are looked at one by one
            return None

    def loaded(
        self, examples: Iterable[tuple[str, int]], load: Callable[[int], object], place: Callable[[int], str]
    ) -> Iterator[tuple[Records, list[str]]]:
        """Load and encode examples one by one. An example that becomes several has the keys key/0, key/1 ..."""
        rows: list[Row] = []
        size, deadline = 0, time.monotonic() + LONGEST
        folder = working_directory()
        for key, number in examples:
            begin_example(number)
            try:
                example = load(number)
                parts = list(parts_of(example))
            except IgnoreExample:
                self.rejected.ignored += 1
                continue
            except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever load() may raise is the example's error
                return_to(folder)
                self._bad(key, place(number), error)
                continue
            finally:
                return_to(folder)
            if multiplies(type(example)):
                rows += [(f"{key}/{at}", number, part) for at, part in enumerate(parts)]
            else:
                rows += [(key, number, part) for part in parts]
            size += sum(self._fixed_bytes + sum(weigh(part.get(name)) for name in self._heavy) for part in parts)
            late = time.monotonic() > deadline
            if rows and (late or size >= self.job.chunk_bytes or len(rows) >= MOST_EXAMPLES):
                yield self._encoded(rows, place)
                rows, size, deadline = [], 0, time.monotonic() + LONGEST
        if rows:
            yield self._encoded(rows, place)

    def _encoded(self, rows: list[Row], place: Callable[[int], str]) -> tuple[Records, list[str]]:
        """Encode examples at once; one by one only to find the one that does not fit."""
        try:
            return self.codec.encode_examples([row[2] for row in rows], threads=self.threads), [row[0] for row in rows]
        except (PenstockError, TypeError, ValueError, AttributeError):
            records, keys = [], []
            for key, number, whole in rows:
                part = whole if self.job.declared else self._told(whole)
                try:
                    records.append(self.codec.encode_example(part))
                    keys.append(key)
                except (PenstockError, TypeError, ValueError, AttributeError) as error:
                    self._bad(key, place(number), self._drift(key, place(number), part) or error)
            return Records(records), keys

    def _told(self, part: Stored) -> Stored:
        """Return an example without fields that have no value, and are not in the inferred schema yet."""
        return {name: value for name, value in part.items() if name in self.job.schema or tells(value)}

    def _drift(self, key: str, place: str, part: Stored) -> SchemaError | None:
        """Raise DriftError if a wider schema holds the example; else return the reason."""
        if self.job.firm:
            return None
        try:
            where = f"{self.split}[{key!r}]"
            known, short = self.job.known.get(self.split), self.job.short_floats
            wider = cover(self.job.schema, part, where, declared=known, short_floats=short)
        except SchemaError as error:
            return error
        if wider != self.job.schema:
            changed = changed_types(self.job.schema, wider)
            raise DriftError(f"{changed} - in example {key!r} of {self.split}, from {place}", wider)
        return None

    def _bad(self, key: str, place: str, error: Exception | SystemExit) -> None:
        if self.job.on_error == "raise":
            raise example_error(error, self.split, key, place) from error
        reason, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
        self.rejected.bad.append(BadExample(self.split, key, redact(place), redact(reason), redact(trace)))


def _downloads(source: Source, room: int) -> int:
    """Return the number of examples of a store that are downloaded at a time; 0 for local files."""
    largest = source.largest_download
    return max(1, min(FETCHES, room // largest)) if largest else 0


def _next_load(loads: Iterator[tuple[int, Callable[[], object]]], number: int) -> object:
    """Return the next example, which is that of the number."""
    return next(loads)[1]()


def example_error(error: Exception | SystemExit, split: str, key: str, place: str) -> ExampleError:
    """Return the error that names the example."""
    said = f"{type(error).__name__}: {error} - in example {key!r} of {split}"
    if redact(place) not in redact(said):
        said += f", from {place}"
    return ExampleError(said, split=split, key=key, place=place)


def lost_example(split: Split, error: LostWorkerError) -> BuildError:
    """Return the error that names the example on which worker processes end, if it is known."""
    if split.stream is not None or not 0 <= error.number < len(split.listed):
        return error
    key, place = split.keys_of(np.array([error.number]))[0], split.listed.place(error.number)
    got = f"a worker process that ended {describe_exit(error.code)}"
    said = f"expected to load an example, got {got} - in example {key!r} of {split.name}, from {place}"
    return ExampleError(said, split=split.name, key=key, place=place)


def tells(value: object) -> bool:
    """Return True if a value shows a type."""
    return value is not None and not (isinstance(value, (list, tuple)) and not value)


def weigh(value: Any) -> int:
    """Estimate the bytes that a value takes in memory."""
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, dict):
        return sum(map(weigh, value.values()))
    if isinstance(value, (list, tuple)):
        return len(value) * (8 + weigh(value[0])) if value else 0
    if is_picture(value):
        return int(value.width * value.height * len(value.getbands()))
    return int(getattr(value, "nbytes", 8))


def changed_types(before: Schema, now: Schema) -> str:
    """Describe how the types of fields differ."""
    old, new = ({leaf.name: str(leaf) for leaf in schema.leaves()} for schema in (before, now))
    names = [name for name in new if old.get(name) != new[name]]
    return ", ".join(f"{name} was {old.get(name, 'unknown')}, is {new[name]}" for name in names)


def _fixed_bytes(node: Field | Schema) -> int | None:
    """Return the bytes of a value in memory; None if they differ between values."""
    if not isinstance(node, Field) or node.levels or node.fixed_count is None or node.numpy_dtype is None:
        return None
    return node.fixed_count * node.numpy_dtype.itemsize


def _alone(example: object) -> Stored:
    """Return the one dict that is stored for an example."""
    if not isinstance(example, dict) and not getattr(example, "on_threads", False):
        raise TypeError(f"expected a dict, got {type(example).__name__}")
    (stored,) = parts_of(example)
    return stored
