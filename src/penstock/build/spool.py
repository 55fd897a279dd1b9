"""Where the number of examples is not known yet: records are spooled to files, then built from like a source.

A stream is read once. Where an example needs a wider schema than those before it, a new file begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import reduce
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .._core import Records
from ..columns import Array
from ..errors import SchemaError
from ..manifest import WORK, read_keys, write_keys
from ..records.codec import Codec
from ..records.tfrecord import TFRecordReader, TFRecordWriter
from ..schema import Schema
from .encoder import FIRST_EXAMPLES, DriftError, Encoder, Job, Outcome
from .inputs import are_plain, stream_key
from .streams import Stream
from .workers import Progress

MOST_OPEN = 32 << 20  # bytes of files that stay open between calls: a reader may hold its file in memory


def spool_name(split: str, number: int) -> str:
    """The file of a spool, in a dataset's directory."""
    return f"{WORK}/{split}.spool-{number:05}"


def spool_file(file: str, schema: Schema, written: Any) -> dict[str, Any]:
    """What the journal says of one file; `written` has its counts."""
    counts = {name: getattr(written, name) for name in ("records", "bytes", "crc32c")}
    return {"file": file, "schema": schema.to_json(), **counts}


def spool_stream(job: Job, stream: Stream, progress: Progress) -> dict[str, dict[str, Any]]:
    """Encode a stream into files, those of each split apart, and tell what they are: plain, for the journal."""
    with ExitStack() as opened:
        spools = {name: opened.enter_context(Spool(job, name, progress)) for name in stream.names}
        number, step = 0, FIRST_EXAMPLES
        while chunk := list(islice(stream.examples, step)):
            for name, (numbers, examples) in stream.by_split(chunk, number).items():
                step = spools[name].add(numbers, examples, step)
            number += len(chunk)
        for name, spool in spools.items():
            if len(spools) > 1 and not spool.seen:
                raise SchemaError("expected examples in every split, got none", name)
    return {name: spool.entry for name, spool in spools.items()}


class Spool:
    """The files of a split's records while its examples come; another begins with each that needs a wider schema."""

    def __init__(self, job: Job, split: str, progress: Progress) -> None:
        self.job = job
        self.split = split
        self.progress = progress
        self.total = Outcome(split, spool_name(split, 0))
        self.seen = 0
        self.files: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        self.keys: list[str] = []
        self.file = spool_name(self.split, len(self.files))
        self.writer = TFRecordWriter(self.job.directory / self.file, index=True, sync=True)

    def _end(self) -> None:
        self.writer.close()
        write_keys(self.writer.path, self.keys)
        self.files.append(spool_file(self.file, self.job.schema, self.writer.summary))

    def add(self, numbers: list[int], examples: list[Any], step: int) -> int:
        """Write examples with their numbers in the stream; returns how many to take next, after `step` of them."""
        self.seen += len(examples)
        while True:
            outcome = Outcome(self.split, self.total.file)
            encoder = Encoder(self.job, self.split, outcome, threads=None)
            try:
                pieces = list(_encoded(encoder, numbers, examples))
                break
            except DriftError as drift:
                self._end()
                self.job = replace(self.job, schema=drift.schema)
                self._begin()
        for records, keys in pieces:
            self.writer.write_records(records)
            self.keys += keys
            step = encoder.next_step(step, records)
            self.progress(len(records), records.nbytes)
        self.total.ignored += outcome.ignored
        self.total.bad += outcome.bad
        return step

    @property
    def entry(self) -> dict[str, Any]:
        """What the journal says of it."""
        counts = {"ignored": self.total.ignored, "bad": self.total.bad}
        return {"file": self.total.file, "split": self.split, "files": self.files, **counts}

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._end()
        else:
            self.writer.__exit__(kind, error, traceback)  # which leaves nothing


def _encoded(encoder: Encoder, numbers: list[int], examples: list[Any]) -> Iterator[tuple[Records, list[str]]]:
    if are_plain(examples):
        with suppress(ValueError, TypeError, AttributeError):  # then one by one, to find the example
            yield encoder.codec.encode_examples(examples, threads=encoder.threads), list(map(str, numbers))
            return
    keys = map(stream_key, examples, numbers)
    by_number = dict(zip(numbers, examples, strict=True))
    yield from encoder.loaded(zip(keys, numbers, strict=True), by_number.__getitem__, "example {}".format)


class Spooled:
    """Files of records as one listed source, under a schema that holds what each of them holds."""

    def __init__(self, files: list[tuple[Path, Schema]]) -> None:
        self.files = files
        self.schema = reduce(Schema.widen, [schema for _, schema in files])
        self._keys: list[str] | None = None
        self._readers: list[TFRecordReader] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_keys": None, "_readers": None}

    @property
    def readers(self) -> list[TFRecordReader]:
        """Opened when needed, in each process by itself."""
        if self._readers is None:
            self._readers = [TFRecordReader(path) for path, _ in self.files]
            self._starts = np.cumsum([0, *map(len, self._readers)])
        return self._readers

    @property
    def nbytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path, _ in self.files)

    def __len__(self) -> int:
        return sum(map(len, self.readers))

    def __getitem__(self, index: int) -> dict[str, Any]:
        readers = self.readers
        at = int(self._file_of(np.array([index]))[0])
        return readers[at].example(Codec(self.files[at][1]), index - int(self._starts[at]))

    @property
    def keys(self) -> list[str]:
        """The keys that the examples had."""
        if self._keys is None:
            self._keys = [key for path, _ in self.files for key in read_keys(path)]
        return self._keys

    @property
    def numbered(self) -> bool:
        """Whether each key is the example's number."""
        return self.keys == list(map(str, range(len(self.keys))))

    def key(self, index: int) -> str:
        """The key that an example had."""
        return self.keys[index]

    def records(self, rows: Array) -> Records:
        """Some records, as if all had been written with the one schema."""
        readers, files = self.readers, self._file_of(rows)
        if len(readers) == 1:
            numbers: list[int] = rows.tolist()
            found = readers[0][numbers]
        else:
            codec = Codec(self.schema)
            each: list[bytes] = [b""] * len(rows)
            for at in np.unique(files).tolist():
                places = np.flatnonzero(files == at)
                some: Iterable[bytes] = readers[at][(rows[places] - self._starts[at]).tolist()]
                if self.files[at][1] != self.schema:
                    own = Codec(self.files[at][1])
                    some = codec.encode_examples([own.decode_example(record) for record in some], threads=1)
                for place, record in zip(places.tolist(), some, strict=True):
                    each[place] = record
            found = Records(each)
        self._close_large()
        return found

    def _close_large(self) -> None:
        if self.nbytes > MOST_OPEN:
            self._readers = None

    def _file_of(self, rows: Array) -> Array:
        return np.searchsorted(self._starts, rows, side="right") - 1
