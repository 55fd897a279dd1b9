"""From the examples of a split to records: loaded, checked against the schema, the bad ones dealt with as asked."""

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

from .._core import Records
from ..errors import ArgumentError, CorruptionError, ExampleError, PenstockError, SchemaError, StorageError, redact
from ..records.codec import Codec
from ..records.formats import Format
from ..schema.coercion import is_picture
from ..schema.columns import Array
from ..schema.example_class import IgnoreExample
from ..schema.field import Field
from ..schema.inference import cover
from ..schema.schema import Schema
from ..sources.protocol import Subset, TableSubset, is_table, takes_many
from ..storage.files import FETCHES
from ..thread_pool import ahead
from .engines.local import LostWorkerError, begin_example, describe_exit
from .inputs import Inputs, are_plain, hands_on_records, multiplies, parts_of, return_to, working_directory

FIRST_EXAMPLES = 16  # that are encoded at a time before their size is known
MOST_EXAMPLES = 8192  # that are, however small they are
LONGEST = 0.5  # seconds until what is there goes on: someone watches the progress
Row = tuple[str, int, dict[str, Any]]  # key, number in the source, what is stored


@dataclass(frozen=True)
class Target:
    """The folder of a store that workers of other machines send to, as long as the build is under way.

    begun, version  the object that stands in it until the build is over
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
    target    where shards are sent, if it is not a directory that they go to

    short_floats  inferred Python floats are float32
    """

    directory: Path
    sources: dict[str, Any]
    known: dict[str, Schema | None]
    schema: Schema
    declared: bool
    firm: bool
    formats: tuple[Format, ...]
    on_error: str
    chunk_bytes: int
    sync: bool = True
    target: Target | None = None
    short_floats: bool = False


@dataclass
class Outcome:
    """What became of a task: small and plain, for the journal and for the way home from another machine.

    alternatives  the same records in other formats: file, bytes and crc32c of each
    keys          CRC-32C of the file of keys, which is the same in all formats; None when that is unknown
    images        image fields with formats that TFDS fails on: {"image": ["GIF"]}
    """

    split: str
    file: str
    records: int = 0
    bytes: int = 0
    crc32c: int = 0
    inputs: str = ""
    ignored: int = 0
    bad: list[dict[str, str]] = field(default_factory=list)
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    keys: int | None = None
    images: dict[str, list[str]] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """What it wrote, in all formats."""
        return [self.file, *(other["file"] for other in self.alternatives)]


class DriftError(PenstockError):
    """An example that does not fit the inferred schema, but would fit this wider one."""

    def __init__(self, message: str, schema: Schema) -> None:
        super().__init__(message, schema)
        self.schema = schema

    def __str__(self) -> str:
        return str(self.args[0])


class Encoder:
    """Makes records of examples, so many at a time that memory stays bounded."""

    def __init__(self, job: Job, split: str, outcome: Outcome, threads: int = 1) -> None:
        self.job = job
        self.split = split
        self.outcome = outcome
        self.threads = threads
        self.codec = Codec(job.schema)
        sizes = {name: _fixed_bytes(node) for name, node in job.schema.items()}
        self._heavy = [name for name, size in sizes.items() if size is None]
        self._fixed_bytes = sum(size for size in sizes.values() if size is not None)
        self._most = max(1, min(MOST_EXAMPLES, job.chunk_bytes // (1 + self._fixed_bytes)))

    def listed(self, inputs: Inputs, rows: Array, keys: Sequence[str]) -> Iterator[tuple[Records, Sequence[str]]]:
        """Some examples of a listed source, with their keys.

        Many at once where the source has columns, records or plain dicts; one by one elsewhere, and to find a bad one.
        """
        at_once = self._at_once(inputs.source, rows)
        step = min(FIRST_EXAMPLES, self._most, _downloads(inputs.source, self.job.chunk_bytes) or FIRST_EXAMPLES)
        step = step if at_once else len(rows)

        def cut() -> Iterator[Array]:
            first = 0
            while first < len(rows):
                yield rows[first : (first := first + step)]

        done = 0
        for some, made in ahead(at_once or _nothing, cut(), self.threads if at_once else 1):
            their_keys = keys[done : (done := done + len(some))]
            try:
                records = made()
            except (ArgumentError, SchemaError, CorruptionError, StorageError):
                records = None  # of a bad one among them: taken one by one, it meets its fate by name
            if records is not None:
                yield records, their_keys
                step = self.next_step(step, [records])
            else:
                named = zip(their_keys, some.tolist(), strict=True)
                threads = _downloads(inputs.source, self.job.chunk_bytes) or 1
                with closing(ahead(inputs.source.__getitem__, some.tolist(), threads)) as loads:
                    yield from self.loaded(named, partial(_next_load, loads), inputs.place)

    def _at_once(self, source: Any, rows: Array) -> Callable[[Array], Records] | None:
        if hands_on_records(source) and source.schema == self.job.schema:
            return lambda some: source.records(some)
        if takes_many(source):
            return lambda some: self._taken(source, some)
        if isinstance(source, list) and len(rows) and are_plain([source[rows[0]]]):
            return lambda some: self.codec.encode_examples([source[r] for r in some.tolist()], threads=1)
        return None

    def _taken(self, source: Any, some: Array) -> Records:
        """The rows of a table: those of columns that can be encoded where they lie, or taken out of them."""
        records = None
        if is_table(source):
            part = isinstance(source, TableSubset)
            columns, rows = (source.source.columns, source.indices[some]) if part else (source.columns, some)
            records = self.codec.encode_rows(columns, rows, threads=1)
        return self.codec.encode(source.take(some), threads=1) if records is None else records

    def next_step(self, step: int, done: list[Records]) -> int:
        """How many examples to take at once, after so many have become these records."""
        records = sum(map(len, done))
        each = sum(some.nbytes for some in done) // max(1, records)
        return max(1, min(self.job.chunk_bytes // (4 * (1 + each)), 4 * step, self._most))

    def take(self, examples: Iterator[Any], most: int) -> list[Any]:
        """The next examples of a stream, no more than fit into memory."""
        some = islice(examples, min(most, self._most))
        if not self._heavy:
            return list(some)
        taken: list[Any] = []
        room = self.job.chunk_bytes
        for example in some:
            taken.append(example)
            values = getattr(example, "values", None) if getattr(example, "on_threads", False) else example
            if isinstance(values, dict):
                room -= self._fixed_bytes + sum(weigh(values.get(name)) for name in self._heavy)
            if room < 0:
                break
        return taken

    def encode_plain(self, examples: list[Any]) -> Records | None:
        """All of the examples at once, if each is a dict that fits; else someone has to look at them one by one.

        This runs on any thread, so of the examples that load themselves only those are loaded that say they can.
        """
        try:
            plain = examples if are_plain(examples) else [_alone(example) for example in examples]
            return self.codec.encode_examples(plain, threads=self.threads)
        except (Exception, SystemExit):  # noqa: BLE001  # it comes again where the examples are looked at one by one
            return None

    def loaded(
        self, examples: Iterable[tuple[str, int]], load: Callable[[int], Any], place: Callable[[int], str]
    ) -> Iterator[tuple[Records, list[str]]]:
        """Examples by key and number, loaded one by one. What one becomes many of has the keys key/0, key/1 ..."""
        rows: list[Row] = []
        size, deadline = 0, time.monotonic() + LONGEST
        folder = working_directory()
        for key, number in examples:
            begin_example(number)
            try:
                example = load(number)
                parts = list(parts_of(example))
            except IgnoreExample:
                self.outcome.ignored += 1
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
        """All of the examples at once; one by one only to find the one that does not fit."""
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

    def _told(self, part: dict[str, Any]) -> dict[str, Any]:
        """Without the fields that an inferred schema does not have yet, as long as there is no value for them."""
        return {name: value for name, value in part.items() if name in self.job.schema or tells(value)}

    def _drift(self, key: str, place: str, part: dict[str, Any]) -> SchemaError | None:
        """Raises a DriftError where a wider schema holds the example; else says why there is none."""
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
        entry = {"split": self.split, "key": key, "place": redact(place)}
        entry["error"] = redact(f"{type(error).__name__}: {error}")
        self.outcome.bad.append({**entry, "traceback": redact("".join(traceback.format_exception(error)))})


def _downloads(source: Any, room: int) -> int:
    """How many examples of a store are downloaded at a time, within so many bytes; 0 for local files."""
    while isinstance(source, Subset):
        source = source.source
    largest = getattr(source, "largest_download", 0)
    return max(1, min(FETCHES, room // largest)) if largest else 0


def _next_load(loads: Iterator[tuple[int, Callable[[], Any]]], number: int) -> Any:
    """The next example, which is that of the number."""
    return next(loads)[1]()


def _nothing(rows: Array) -> None:
    """What can be made of examples at once, where that is none."""


def example_error(error: Exception | SystemExit, split: str, key: str, place: str) -> ExampleError:
    """The error that names the example."""
    said = f"{type(error).__name__}: {error} - in example {key!r} of {split}"
    if redact(place) not in redact(said):
        said += f", from {place}"
    return ExampleError(said, split=split, key=key, place=place)


def lost_example(lost: LostWorkerError, split: str, key: str, place: str) -> ExampleError:
    """The error that names the example on which worker processes end."""
    got = f"a worker process that ended {describe_exit(lost.code)}"
    said = f"expected to load an example, got {got} - in example {key!r} of {split}, from {place}"
    return ExampleError(said, split=split, key=key, place=place)


def tells(value: Any) -> bool:
    """Whether a value shows a type."""
    return value is not None and not (isinstance(value, (list, tuple)) and not value)


def weigh(value: Any) -> int:
    """About how many bytes a value takes in memory."""
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
    """How the types of fields differ, in words."""
    old, new = ({leaf.name: str(leaf) for leaf in schema.leaves()} for schema in (before, now))
    names = [name for name in new if old.get(name) != new[name]]
    return ", ".join(f"{name} was {old.get(name, 'unknown')}, is {new[name]}" for name in names)


def _fixed_bytes(node: Field | Schema) -> int | None:
    """What a value takes in memory, where each takes the same."""
    if not isinstance(node, Field) or node.levels or node.fixed_count is None or node.numpy_dtype is None:
        return None
    return node.fixed_count * node.numpy_dtype.itemsize


def _alone(example: Any) -> dict[str, Any]:
    """The one dict that is stored for an example."""
    if not isinstance(example, dict) and not getattr(example, "on_threads", False):
        raise TypeError(f"expected a dict, got {type(example).__name__}")
    (stored,) = parts_of(example)
    return stored
