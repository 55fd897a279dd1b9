"""Streams: examples that come one after the other, for one split or for several, in one pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import Records
from ..dataset.manifest import WORK
from ..dataset.provenance import read_keys, write_keys
from ..errors import SchemaError
from ..records.codec import Codec
from ..records.tfrecord import TFRecordReader, TFRecordWriter
from ..schema.columns import Array
from ..schema.field import Field
from ..schema.inference import widen
from ..schema.schema import Schema
from ..sources.protocol import StreamSubset, is_listed
from .encode import FIRST_EXAMPLES, DriftError, Encoder, Job, Outcome
from .engines.local import Progress
from .inputs import all_parts, are_plain, open_stream, stream_key
from .sample import Loadable, Named, sample

if TYPE_CHECKING:
    from concurrent.futures import Future


class Stream:
    """A pass over a stream. A rule says which split each example belongs to; without one, all belong to the first."""

    def __init__(self, names: tuple[str, ...], source: Any, rule: Any = None) -> None:
        self.names = names
        self.examples = open_stream(source)
        self.rule = rule
        self._samples: list[Named] | None = None

    def by_split(self, chunk: list[Any], first: int) -> dict[str, tuple[list[int], list[Any]]]:
        """Some examples, of which the first has the number `first`, with their numbers, each for its split."""
        if self.rule is None:
            return {self.names[0]: (list(range(first, first + len(chunk))), chunk)}
        found: dict[str, tuple[list[int], list[Any]]] = {}
        for number, example in enumerate(chunk, first):
            numbers, examples = found.setdefault(self.split_of(number, example), ([], []))
            numbers.append(number)
            examples.append(example)
        return found

    def split_of(self, number: int, example: Any) -> str:
        """The split of an example."""
        if self.rule is None:
            return self.names[0]
        key = stream_key(example, number)
        name: str = self.rule(key, example, key)
        if name not in self.names:
            raise SchemaError(f"expected one of the splits {', '.join(self.names)}, got {name!r}", key)
        return name

    def look(self, on_error: str) -> list[Named]:
        """Some loaded examples from its beginning. It goes on as if nobody had looked."""
        if self._samples is None:
            head: list[Any] = []
            self._samples = sample(self._watched(head), on_error)
            self.examples = chain(head, self.examples)
        return self._samples

    def _watched(self, head: list[Any]) -> Iterator[Loadable]:
        for number, example in enumerate(self.examples):
            head.append(example)
            place, load = partial("example {}".format, number), partial(all_parts, example)
            yield self.split_of(number, example), stream_key(example, number), place, load


def open_streams(sources: Mapping[str, Any]) -> dict[str, Stream]:
    """The streams among the sources of some splits. Splits of one stream share it."""
    passes: dict[tuple[int, Any], list[str]] = {}
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


def spool_name(split: str, number: int) -> str:
    """The file of a spool, in a dataset's directory."""
    return f"{WORK}/{split}.spool-{number:05}"


def spool_file(file: str, schema: Schema, written: Any) -> dict[str, Any]:
    """What the journal says of one file; `written` has its counts."""
    counts = {name: getattr(written, name) for name in ("records", "bytes", "crc32c")}
    return {"file": file, "schema": schema.to_json(), **counts}


def spool_stream(job: Job, stream: Stream, threads: int, progress: Progress) -> dict[str, dict[str, Any]]:
    """Encode a stream into files, those of each split apart, and tell what they are: plain, for the journal."""
    from concurrent.futures import ThreadPoolExecutor  # importing penstock costs nothing

    coming: deque[tuple[Spool, list[int], list[Any], Future[Records | None]]] = deque()
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
            progress(sum(map(len, written)), sum(records.nbytes for records in written))
        for name, spool in spools.items():
            if len(spools) > 1 and not spool.seen:
                raise SchemaError("expected examples in every split, got none", name)
    return {name: spool.entry for name, spool in spools.items()}


class Spool:
    """The files of a split's records while its examples come; another begins with each that needs a wider schema."""

    def __init__(self, job: Job, split: str) -> None:
        self.job = job
        self.split = split
        self.total = Outcome(split, spool_name(split, 0))
        self.seen = 0
        self.written = 0  # records in the files before this one
        self.files: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        self.keys: list[str] | None = None  # as long as each is the number of its record
        self.encoder = Encoder(self.job, self.split, self.total)
        self.file = spool_name(self.split, len(self.files))
        # What a power cut leaves of it is found out by its checksum: the stream is read again then.
        self.writer = TFRecordWriter(self.job.directory / self.file, index=True)

    def _end(self) -> None:
        self.writer.close()
        write_keys(self.writer.path, self.keys or [])
        self.written += len(self.writer)
        self.files.append(spool_file(self.file, self.job.schema, self.writer.summary))

    def widen(self, schema: Schema) -> None:
        """Begin another file."""
        self._end()
        self.job = replace(self.job, schema=schema)
        self._begin()

    def add(self, numbers: list[int], examples: list[Any], encoded: Records | None) -> list[Records]:
        """Write examples with their numbers in the stream; if they could not be encoded at once, one by one."""
        pieces: list[tuple[Records, list[str] | None]]
        if encoded is not None:
            pieces = [(encoded, None if are_plain(examples) else [*map(stream_key, examples, numbers)])]
        else:
            before = self.total.ignored, len(self.total.bad)
            keys = map(stream_key, examples, numbers)
            load = dict(zip(numbers, examples, strict=True)).__getitem__
            try:
                pieces = [*self.encoder.loaded(zip(keys, numbers, strict=True), load, "example {}".format)]
            except DriftError:
                self.total.ignored = before[0]
                del self.total.bad[before[1] :]
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


class Spooled:
    """Files of records as one listed source, under a schema that holds what each of them holds.

    most_held  bytes of files that stay open between calls: a reader may hold its file in memory
    """

    def __init__(self, files: list[tuple[Path, Schema]], most_held: int, *, short_floats: bool = False) -> None:
        self.files = files
        self.most_held = most_held
        self.schema = reduce(partial(widen, short_floats=short_floats), [schema for _, schema in files])
        self._keys: list[str] | None = None
        self._readers: list[TFRecordReader] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_keys": None, "_readers": None}

    @property
    def readers(self) -> list[TFRecordReader]:
        """Opened when needed, in each process by itself."""
        readers = self._readers  # which another thread may let go of meanwhile
        if readers is None:
            readers = [TFRecordReader(path) for path, _ in self.files]
            self._starts = np.cumsum([0, *map(len, readers)])
            self._readers = readers
        return readers

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
            keys: list[str] = []
            for reader in self.readers:
                keys += read_keys(reader.path) or map(str, range(len(keys), len(keys) + len(reader)))
            self._keys = keys
        return self._keys

    @property
    def numbered(self) -> bool:
        """Whether each key is the example's number: then none are kept."""
        return not any(read_keys(path) for path, _ in self.files)

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
                    examples = [self._loosened(own.decode_example(record), own.schema) for record in some]
                    some = codec.encode_examples(examples, threads=1)
                for place, record in zip(places.tolist(), some, strict=True):
                    each[place] = record
            found = Records(each)
        self._close_large()
        return found

    def _loosened(self, example: dict[str, Any], schema: Schema) -> dict[str, Any]:
        """An example whose integers are Python's, where they become float32: those that fit are stored."""
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
