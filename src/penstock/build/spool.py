"""Where the number of examples is not known yet: records are spooled to files, then built from like a source.

A stream is read once. Where an example needs a wider schema than those before it, a new file begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from .._core import Records
from ..columns import Array
from ..manifest import WORK, read_keys, write_keys
from ..records.codec import Codec
from ..records.tfrecord import TFRecordReader, TFRecordWriter
from ..schema import Schema
from .encoder import FIRST_EXAMPLES, DriftError, Encoder, Job, Outcome
from .inputs import are_plain, stream_key
from .workers import Progress

MOST_OPEN = 32 << 20  # bytes of files that stay open between calls: a reader may hold its file in memory


def spool_name(split: str, number: int) -> str:
    """The file of a spool, in a dataset's directory."""
    return f"{WORK}/{split}.spool-{number:05}"


def spool_file(file: str, schema: Schema, written: Any) -> dict[str, Any]:
    """What the journal says of one file; `written` has its counts."""
    counts = {name: getattr(written, name) for name in ("records", "bytes", "crc32c")}
    return {"file": file, "schema": schema.to_json(), **counts}


def spool_stream(job: Job, split: str, examples: Iterator[Any], progress: Progress) -> dict[str, Any]:
    """Encode a stream into files, and tell what they are: plain, for the journal."""
    total = Outcome(split, spool_name(split, 0))
    files: list[dict[str, Any]] = []
    number, step = 0, FIRST_EXAMPLES
    chunk = list(islice(examples, step))
    while chunk or not files:
        schema = job.schema
        file = spool_name(split, len(files))
        path = job.directory / file
        keys: list[str] = []
        with TFRecordWriter(path, index=True, sync=True) as writer:
            while chunk:
                outcome = Outcome(split, total.file)
                encoder = Encoder(job, split, outcome, threads=None)
                try:
                    pieces = list(_encoded(encoder, chunk, number))
                except DriftError as drift:
                    job = replace(job, schema=drift.schema)
                    break
                for records, their_keys in pieces:
                    writer.write_records(records)
                    keys += their_keys
                    step = encoder.next_step(step, records)
                    progress(len(records), records.nbytes)
                total.ignored += outcome.ignored
                total.bad += outcome.bad
                number += len(chunk)
                chunk = list(islice(examples, step))
        write_keys(path, keys)
        files.append(spool_file(file, schema, writer.summary))
    return {"file": total.file, "split": split, "files": files, "ignored": total.ignored, "bad": total.bad}


def _encoded(encoder: Encoder, chunk: list[Any], first: int) -> Iterator[tuple[Records, list[str]]]:
    numbers = range(first, first + len(chunk))
    if are_plain(chunk):
        with suppress(ValueError, TypeError, AttributeError):  # then one by one, to find the example
            yield encoder.codec.encode_examples(chunk, threads=encoder.threads), list(map(str, numbers))
            return
    keys = [stream_key(example, number) for example, number in zip(chunk, numbers, strict=True)]
    yield from encoder.loaded(
        zip(keys, numbers, strict=True), lambda number: chunk[number - first], "example {}".format
    )


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
