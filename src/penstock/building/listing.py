"""The splits of a build: what is known of their examples before the work begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .._core import Records
from ..errors import BuildError, NoExamplesError, PenstockError
from ..records.codec import Codec
from ..records.formats import Format
from ..schema.columns import Array
from ..schema.schema import Schema
from ..sources.example_classes import check_methods, code_of
from ..sources.protocol import options_of
from ..sources.splits import Deduped
from ..sources.tar import TarSamples
from .encode import lost_example
from .engines.engine import Workers
from .engines.local import LostWorkerError, Progress, silent
from .inputs import Inputs, Numbers, as_splits, fingerprint, hands_on_records, is_complete
from .plan import count_shards, order_rows
from .sample import Named, Parts, infer_all, loaded, sample
from .spool import Spooled, Stream, open_streams

FRAME = 16  # bytes that a shard adds to each record


@dataclass(eq=False)
class Split:
    """A split: its source, and its examples by number in the order of their records; a stream has none yet."""

    name: str
    source: Any
    order: str
    seed: int
    keys: list[str] | int = 0
    rows: Array = field(default_factory=lambda: np.empty(0, np.int64))
    known: Schema | None = None
    stream: Stream | None = None
    samples: list[Named] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.stream is not None:
            return
        check_methods(self.source)
        inputs = Inputs(self.source)
        self.keys, self.known = inputs.keys(), inputs.schema
        if not len(inputs):
            raise NoExamplesError("expected examples, got none", self.name)
        self.rows = order_rows(self.name, self.keys, order=self.order, seed=self.seed, place=inputs.place)

    def fingerprint(self) -> dict[str, Any]:
        """What tells its source from others."""
        keys = self.keys if self.stream is None else None
        found = fingerprint(self.source, keys, ordered=self.order == "source")
        said = {"options": options_of(self.source), "code": code_of(self.source)}
        return found | {name: value for name, value in said.items() if value}

    def multiplies(self, workers: Workers) -> bool:
        """Whether one example may become many."""
        inputs = Inputs(self.source)
        if self.stream is not None or workers.apart or inputs.are_ours:
            return self.stream is None and inputs.multiplies()
        try:
            with closing(workers.map(_multiplies, self.source, [0], silent)) as results:
                return any(result for _, result in results)
        except LostWorkerError as lost:
            raise self.lost(lost) from None

    def by_file(self) -> list[Array] | None:
        """The examples of each file by number, where that is how to read them, and not the order of their records."""
        return getattr(self.source, "by_file", None) if self.order != "source" else None

    def keys_of(self, rows: Array) -> Sequence[str]:
        """The keys of some examples."""
        keys = self.keys
        return Numbers(rows) if isinstance(keys, int) else [keys[row] for row in rows.tolist()]

    def look(self, on_error: str, workers: Workers) -> None:
        """Load a sample. A stream goes on after it as if nobody had looked."""
        if self.stream is not None:
            first = self.stream.names[0]  # which stands for all that share the stream
            self.samples = self.stream.look(on_error) if self.name == first else []
        elif not is_complete(self.source):
            # By hash, whatever the order of the records is: the same examples wherever they stand in the source.
            hashed = self.order == "hash"
            rows = self.rows if hashed else order_rows(self.name, self.keys, order="hash", seed=self.seed)
            inputs = Inputs(self.source)
            some = ((self.keys_of(rows[at : at + 1])[0], int(rows[at])) for at in range(len(rows)))
            with closing(loaded(workers.here, self.source, rows, here=workers.apart or inputs.are_ours)) as coming:
                load = partial(_next_parts, coming)
                named = ((self.name, key, partial(inputs.place, row), load) for key, row in some)
                try:
                    self.samples = sample(named, on_error)
                except LostWorkerError as lost:
                    raise self.lost(lost) from None

    def lost(self, error: LostWorkerError) -> BuildError:
        """The error that names the example on which worker processes end, if it is known."""
        if self.stream is not None or not 0 <= error.number < len(Inputs(self.source)):
            return error
        key = self.keys_of(np.array([error.number]))[0]
        return lost_example(error, self.name, key, Inputs(self.source).place(error.number))

    def record_bytes(self, schema: Schema) -> float:
        """About how many bytes a record takes in a shard."""
        size = getattr(self.source, "nbytes", None) if isinstance(self.source, (Spooled, TarSamples)) else None
        if size is not None:
            return float(size / max(1, len(self.source)))
        records = self._some_records(Codec(schema))
        return records.nbytes / max(1, len(records)) + FRAME

    def _some_records(self, codec: Codec) -> Records:
        def encoded(rows: Array) -> Records:
            return self.source.records(rows) if hands_on_records(self.source) else codec.encode(self.source.take(rows))

        if not is_complete(self.source):
            return _fitting(lambda named: codec.encode_examples([named[1]], threads=1), self.samples)
        rows = self.rows[:: max(1, len(self.rows) // 64)].astype(np.int64)
        try:
            return encoded(rows)
        except PenstockError:  # of a bad one among them
            return _fitting(encoded, np.split(rows, len(rows)))

    def count_shards(self, schema: Schema, shards: int | None, format: Format) -> int:
        """How many shards it gets."""
        by_size = shards is None and format.shard_examples is None
        size = self.record_bytes(schema) if by_size else 0.0
        return count_shards(
            len(self.rows), size, shards=shards, shard_bytes=format.shard_bytes, shard_examples=format.shard_examples
        )


def _next_parts(coming: Iterator[Parts | Exception]) -> Parts:
    found = next(coming)
    if isinstance(found, Exception):
        raise found
    return found


def _multiplies(source: Any, item: int, progress: Progress) -> bool:
    return Inputs(source).multiplies()


def _fitting(encode: Callable[[Any], Records], examples: Iterable[Any]) -> Records:
    """The records of those that can be had."""
    records = []
    for example in examples:
        try:
            records += list(encode(example))
        except (PenstockError, ValueError, TypeError, AttributeError):
            continue  # the build will deal with it
    return Records(records)


def list_splits(source: Any, order: str, seed: int) -> list[Split]:
    """The splits of a source."""
    sources = as_splits(source.source if isinstance(source, Deduped) else source)
    streams = open_streams(sources)
    return [Split(name, part, order, seed, stream=streams.get(name)) for name, part in sources.items()]


def infer_schema(splits: Iterable[Split], on_error: str, *, short_floats: bool = False) -> Schema:
    """The schema that the splits share, as far as their samples show it."""
    samples, known = {}, {}
    for split in splits:
        samples[split.name], known[split.name] = split.samples, split.known
    return infer_all(samples, known, on_error, short_floats=short_floats)
