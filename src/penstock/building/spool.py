"""Spools: records that wait on the local disk until the number and the order of all examples are known.

A stream is spooled in one pass. So are examples that become several, or may be left out as duplicates, and those that
are best read file by file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from .._core import Records
from ..dataset.manifest import WORK
from ..dataset.provenance import read_keys, write_keys
from ..errors import SchemaError
from ..records.codec import Codec, default_threads
from ..records.shard import Summary
from ..records.tfrecord import TFRecord, TFRecordReader, TFRecordWriter
from ..schema.columns import Array
from ..schema.field import Field
from ..schema.inference import widen
from ..schema.schema import Schema
from ..sources.adapt import are_plain
from ..sources.protocol import RecordSource
from .encode import FIRST_EXAMPLES, DriftError, Encoder, Job, Rejected
from .engines.engine import Advance, Meter, Workers
from .entries import ShardResult, SpoolFile, SpoolResult
from .journal import Journal
from .listing import Split, Stored, StreamPass, stream_key
from .plan import Task
from .write import undamaged_files

if TYPE_CHECKING:
    from .targets.directory import Directory

SPOOL_TASKS = 64  # tasks of a split whose examples are spooled


def spool_streams(
    job: Job, splits: list[Split], workers: Workers, journal: Journal, meter: Meter
) -> tuple[Job, list[Split], list[SpoolResult]]:
    """Spool the splits that are streams; widen the schema so that it holds what they held."""
    splits, done = list(splits), []
    for names, stream in {split.stream.names: split.stream for split in splits if split.stream is not None}.items():
        earlier = {name: _earlier_spool(job, journal, spool_name(name, 0)) for name in names}
        results = {name: result for name, result in earlier.items() if result is not None}
        if len(results) < len(names):
            meter.begin(f"spooling {', '.join(names)}", None)
            threads = default_threads() if workers.remote else workers.processes
            results = spool_stream(replace(job, firm=job.declared), stream, threads, meter)
            for result in results.values():
                journal.note(result)
        for at, split in enumerate(splits):
            if split.name in names:
                splits[at], spooled = _spooled_split(job, split, [results[split.name]], workers)
                done.append(results[split.name])
                wide = job.schema if job.declared else widen(job.schema, spooled.schema, short_floats=job.short_floats)
                job = replace(job, sources={**job.sources, split.name: spooled}, schema=wide)
    return job, splits, done


def spool_splits(
    job: Job, splits: list[Split], chosen: set[str], target: Directory, workers: Workers, journal: Journal, meter: Meter
) -> tuple[Job, list[Split], list[SpoolResult]]:
    """Spool the chosen splits by tasks, each of a part of the examples, or of the examples of a file."""
    splits, done = list(splits), []
    for at, split in enumerate(splits):
        if split.name not in chosen:
            continue
        parts = split.by_file() or np.array_split(np.arange(len(split.rows)), min(len(split.rows), SPOOL_TASKS))
        tasks = [
            Task(split.name, spool_name(split.name, number), rows, split.keys_of(rows))
            for number, rows in enumerate(parts)
        ]
        results = {task.file: _earlier_spool(job, journal, task.file) for task in tasks}
        meter.begin(f"spooling {split.name}", None)
        missing = [task for task in tasks if results[task.file] is None]
        with closing(target.spool(workers, replace(job, formats=(TFRecord(),)), missing, meter)) as written:
            for task, shard in written:
                files = (spool_file(task.file, job.schema, shard),)
                result = SpoolResult(task.file, split.name, files, shard.ignored, shard.bad)
                journal.note(result)
                results[task.file] = result
        found = [result for result in results.values() if result is not None]
        splits[at], spooled = _spooled_split(job, split, found, workers)
        done += found
        job = replace(job, sources={**job.sources, split.name: spooled})
    return job, splits, done


def _earlier_spool(job: Job, journal: Journal, file: str) -> SpoolResult | None:
    """Return the spool of an earlier run, if its files are undamaged."""
    result = journal.spools.get(file)
    if result is None or len(undamaged_files(job.directory, result.files)) < len(result.files):
        return None
    return result


def _spooled_split(job: Job, split: Split, results: list[SpoolResult], workers: Workers) -> tuple[Split, Spooled]:
    folder = job.directory.absolute()
    files = [(folder / file.file, Schema.from_json(file.schema)) for result in results for file in result.files]
    spooled = Spooled(files, workers.worker_memory // 4, short_floats=job.short_floats)
    return Split(split.name, spooled, split.order, split.seed), spooled


def spool_name(split: str, number: int) -> str:
    """Return the file of a spool in the directory of a build."""
    return f"{WORK}/{split}.spool-{number:05}"


def spool_file(file: str, schema: Schema, written: Summary | ShardResult) -> SpoolFile:
    """Return what the journal keeps of a file."""
    return SpoolFile(file, schema.to_json(), written.records, written.bytes, written.crc32c)


def spool_stream(job: Job, stream: StreamPass, threads: int, advance: Advance) -> dict[str, SpoolResult]:
    """Encode a stream into files; return the result of each split."""

    coming: deque[tuple[Spool, list[int], list[object], Future[Records | None]]] = deque()
    number, step = 0, FIRST_EXAMPLES
    with ExitStack() as opened:
        spools = {name: opened.enter_context(Spool(job, name)) for name in stream.names}
        pool = opened.enter_context(ThreadPoolExecutor(threads))
        opened.callback(pool.shutdown, cancel_futures=True)
        first = spools[stream.names[0]]
        while True:
            while len(coming) <= threads and (chunk := first.encoder.take(stream.examples, step)):
                for name, (numbers, examples) in stream.by_split(chunk, number).items():
                    spool = spools[name]
                    coming.append((spool, numbers, examples, pool.submit(spool.encoder.encode_plain, examples)))
                number += len(chunk)
            if not coming:
                break
            spool, numbers, examples, encoded = coming.popleft()
            try:
                written = spool.add(numbers, examples, encoded.result())
            except DriftError as drift:  # what is encoded by now is so by the narrower schema
                spool.widen(drift.schema)
                coming.appendleft((spool, numbers, examples, encoded))
                for at, (other, numbers, examples, _) in enumerate(coming):
                    if other is spool:
                        coming[at] = (spool, numbers, examples, pool.submit(spool.encoder.encode_plain, examples))
                continue
            step = spool.encoder.next_step(step, written)
            advance(sum(map(len, written)), sum(records.nbytes for records in written))
        for name, spool in spools.items():
            if len(spools) > 1 and not spool.seen:
                raise SchemaError("expected examples in every split, got none", name)
    return {name: spool.result for name, spool in spools.items()}


class Spool:
    """The files of a split's records while its examples come; another begins with each that needs a wider schema."""

    def __init__(self, job: Job, split: str) -> None:
        self.job = job
        self.split = split
        self.rejected = Rejected()
        self.seen = 0
        self.written = 0  # records in the files before this one
        self.files: list[SpoolFile] = []
        self._begin()

    def _begin(self) -> None:
        self.keys: list[str] | None = None  # as long as each is the number of its record
        self.encoder = Encoder(self.job, self.split, self.rejected)
        self.file = spool_name(self.split, len(self.files))
        # What a power cut leaves of it is found out by its checksum: the stream is read again then.
        self.writer = TFRecordWriter(self.job.directory / self.file, index=True)

    def _end(self) -> None:
        self.writer.close()
        write_keys(self.writer.path, self.keys or [])
        self.written += len(self.writer)
        assert self.writer.summary is not None
        self.files.append(spool_file(self.file, self.job.schema, self.writer.summary))

    def widen(self, schema: Schema) -> None:
        """Begin another file."""
        self._end()
        self.job = replace(self.job, schema=schema)
        self._begin()

    def add(self, numbers: list[int], examples: list[object], encoded: Records | None) -> list[Records]:
        """Write examples with their numbers in the stream; if they could not be encoded at once, one by one."""
        pieces: list[tuple[Records, list[str] | None]]
        if encoded is not None:
            pieces = [(encoded, None if are_plain(examples) else [*map(stream_key, examples, numbers)])]
        else:
            before = self.rejected.ignored, len(self.rejected.bad)
            keys = map(stream_key, examples, numbers)
            load = dict(zip(numbers, examples, strict=True)).__getitem__
            try:
                pieces = [*self.encoder.loaded(zip(keys, numbers, strict=True), load, "example {}".format)]
            except DriftError:
                self.rejected.ignored = before[0]
                del self.rejected.bad[before[1] :]
                raise
        for records, their_keys in pieces:
            self._name(numbers, their_keys)
            self.writer.write_records(records)
        self.seen += len(examples)
        return [records for records, _ in pieces]

    def _name(self, numbers: list[int], keys: list[str] | None) -> None:
        """Keep the keys of the next records, unless all of them are the records' numbers."""
        first = self.written + len(self.writer)
        if self.keys is None:
            if keys is None and numbers[0] == first and numbers[-1] == first + len(numbers) - 1:
                return
            self.keys = list(map(str, range(self.written, first)))
        self.keys += map(str, numbers) if keys is None else keys

    @property
    def result(self) -> SpoolResult:
        """What the journal keeps of it."""
        rejected = self.rejected
        file = spool_name(self.split, 0)
        return SpoolResult(file, self.split, tuple(self.files), rejected.ignored, tuple(rejected.bad))

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._end()
        else:
            self.writer.__exit__(kind, error, traceback)  # which leaves nothing


class Spooled(RecordSource):
    """Files of records as one listed source, under a schema that holds what each of them holds.

    most_held  bytes of files that stay open between calls: a reader may hold its file in memory
    """

    def __init__(self, files: list[tuple[Path, Schema]], most_held: int, *, short_floats: bool = False) -> None:
        self.files = files
        self.most_held = most_held
        self.schema = reduce(partial(widen, short_floats=short_floats), [schema for _, schema in files])
        self._keys: list[str] | None = None
        self._readers: list[TFRecordReader] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_keys": None, "_readers": None}

    @property
    def readers(self) -> list[TFRecordReader]:
        """Readers of the files, opened when needed, in each process."""
        readers = self._readers  # which another thread may let go of meanwhile
        if readers is None:
            readers = [TFRecordReader(path) for path, _ in self.files]
            self._starts = np.cumsum([0, *map(len, readers)])
            self._readers = readers
        return readers

    @property
    def nbytes(self) -> int:
        """Size of all files."""
        return sum(path.stat().st_size for path, _ in self.files)

    def __len__(self) -> int:
        return sum(map(len, self.readers))

    def __getitem__(self, index: int) -> Stored:
        readers = self.readers
        at = int(self._file_of(np.array([index]))[0])
        return readers[at].example(Codec(self.files[at][1]), index - int(self._starts[at]))

    def all_keys(self) -> list[str]:
        """Return the keys of the examples."""
        if self._keys is None:
            keys: list[str] = []
            for reader in self.readers:
                keys += read_keys(reader.path) or map(str, range(len(keys), len(keys) + len(reader)))
            self._keys = keys
        return self._keys

    @property
    def numbered(self) -> bool:
        """True if each key is the number of the example: then no keys are kept."""
        return not any(read_keys(path) for path, _ in self.files)

    def key(self, index: int) -> str:
        """Return the key of an example."""
        return self.all_keys()[index]

    def records(self, rows: Array) -> Records:
        """Return records, as if all had been written with the one schema."""
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
                    examples = [self._loosened(own.decode_example(record), own.schema) for record in some]
                    some = codec.encode_examples(examples, threads=1)
                for place, record in zip(places.tolist(), some, strict=True):
                    each[place] = record
            found = Records(each)
        self._close_large()
        return found

    def _loosened(self, example: Stored, schema: Schema) -> Stored:
        """Return an example with Python's integers where they become float32: those that fit are stored."""
        for name, node in schema.items():
            wide = self.schema[name]
            if isinstance(node, Field) and isinstance(wide, Field) and (wide.dtype, node.wire) == ("float32", "int64"):
                example[name] = np.asarray(example[name]).tolist()
        return example

    def _close_large(self) -> None:
        if self.nbytes > self.most_held:
            self._readers = None

    def _file_of(self, rows: Array) -> Array:
        return np.searchsorted(self._starts, rows, side="right") - 1
