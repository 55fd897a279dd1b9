"""Files of records, whatever their format: written whole or not at all, read in any order, checked always."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, TypeVar, overload

import numpy as np

from .._core import Feed, Index, Shard, Writer, salvage
from .._core import Records as Records
from ..errors import ArgumentError, SchemaError, check_type
from ..schema.columns import Columns, ExampleDict, Value
from ..storage.paths import PathLike
from .codec import Codec, default_threads, first_row
from .index import existing_sidecar, is_foreign, sidecar_path

CODEC = "Codec(schema) says what is written: write_examples(Codec(schema), examples)"
_COMPRESSIONS = ("gzip", "zlib", "zstd", "bzip2", "xz", "brotli", "snappy")
Progress = Callable[[int], object] | None
Writing = TypeVar("Writing", bound="ShardWriter")


@dataclass(frozen=True, kw_only=True)
class ShardFormat:
    """What the formats of shards have in common: how large a build makes a shard, and who writes it."""

    name: ClassVar[str]
    frame: ClassVar[int] = 0  # bytes that a file has besides each record, where these are known
    shard_bytes: int = 128 << 20
    shard_examples: int | None = None

    def __post_init__(self) -> None:
        self._check_counts("shard_bytes")
        if self.shard_examples is not None:
            self._check_counts("shard_examples")

    def _check_counts(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ArgumentError(f"expected {name} to be 1 or more, got {value!r}")

    def open_writer(self, path: PathLike, *, sync: bool = False, threads: int | None = None) -> ShardWriter:
        """What writes a shard of this format, with all that stands beside it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Summary:
    """What a written shard holds."""

    path: str
    records: int
    bytes: int
    crc32c: int


class ShardWriter:
    """Writes a file of records. It is seen under its name only once it is closed; an error leaves nothing behind."""

    def __init__(
        self, path: PathLike, writer: Writer, *, sync: bool, threads: int, sidecar: bool | None = None
    ) -> None:
        """Write a file through a writer of the core.

        sidecar  Whether an index is kept beside the file; None where the format has an index of its own.
        """
        self.path = Path(path)
        self.summary: Summary | None = None
        self.native = writer
        self._sync = sync
        if sync:
            writer.sync_along()
        self._threads = threads
        self._sidecar = sidecar

    def __len__(self) -> int:
        return self.summary.records if self.summary else len(self.native)

    def write(self, record: bytes) -> None:
        """Append one record."""
        self.native.write(record)

    def write_records(self, records: Records | Iterable[bytes]) -> None:
        """Append records."""
        self.native.write_records(records if isinstance(records, Records) else Records(records))

    def write_columns(self, codec: Codec, columns: Mapping[str, Value]) -> None:
        """Append a batch of columns; other threads encode while this one writes."""
        check_type(codec, Codec, "a codec", "write_columns", CODEC)
        parts, rows = codec.to_parts(columns)
        self.native.write_columns(codec.plan, parts, rows, self._threads)

    def write_examples(self, codec: Codec, examples: Iterable[Mapping[str, Value]]) -> None:
        """Append examples."""
        check_type(codec, Codec, "a codec", "write_examples", CODEC)
        rows, coerce = codec.to_rows(examples)
        self.native.write_examples(codec.plan, rows, coerce, self._threads)

    def close(self) -> None:
        """Publish the file."""
        if self.summary is None:
            records, size, crc32c, index = self.native.finish(self._sync)
            self.summary = Summary(str(self.path), records, size, crc32c)
            if self._sidecar is not None:
                self._publish_index(index)

    def _publish_index(self, index: Index | None) -> None:
        """Write the index beside the file, or remove the one of an earlier file."""
        sidecar = sidecar_path(self.path)
        if index is not None and self._sidecar:
            index.write(sidecar)
        elif not is_foreign(sidecar):
            sidecar.unlink(missing_ok=True)

    def __enter__(self: Writing) -> Writing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.native.abandon()


@dataclass(frozen=True)
class Gap:
    """Bytes of a file that hold no whole record: where, how many, how many records were whole before, and why."""

    offset: int
    bytes: int
    record: int
    reason: str


@dataclass(frozen=True)
class Report:
    """What a look at every byte of a file found."""

    path: str
    records: int
    record_bytes: int
    gaps: tuple[Gap, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.gaps


class ShardReader:
    """A file as a sequence of records: `reader[5]`, `reader[-1]`, `reader[10:20]`, `reader[[5, 900]]`."""

    def __init__(self, path: PathLike, shard: Shard, format: str | None = None) -> None:
        self.path = Path(path)
        self._shard = shard
        if format not in (None, self.format):
            found = {"tfrecord": "a TFRecord", "array_record": "an ArrayRecord", "tar": "a tar"}
            raise SchemaError(f"expected {found[format]} file, got {found[self.format]} file", str(path))

    def __reduce__(self) -> tuple[object, ...]:
        return (open_shard, (self.path,))

    @property
    def format(self) -> str:
        """What the file is: "tfrecord", "array_record" or "tar"."""
        return self._shard.format[0]

    @property
    def compression(self) -> str | None:
        """Of a whole file, or of an ArrayRecord file's chunks as its writer says; None where there is none."""
        words = re.split("[,:]", self._shard.format[1])
        return next((word for word in words if word in _COMPRESSIONS), None)

    @property
    def offsets(self) -> np.ndarray[Value, np.dtype[np.uint64]]:
        """Where each frame, chunk or sample begins in the uncompressed file, and where the last one ends."""
        return self._shard.offsets

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}: {len(self)} records, {self._shard.size} bytes)"

    def __len__(self) -> int:
        return len(self._shard)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int]) -> Records: ...
    def __getitem__(self, index: int | slice | Sequence[int]) -> bytes | Records:
        if isinstance(index, (slice, Sequence, np.ndarray)):
            return self._shard.read_many(self._numbers(index))
        return self._shard.read(index)

    def __iter__(self) -> Iterator[bytes]:
        step = 1024
        for first in range(0, len(self), step):
            yield from self[first : first + step]

    def example(self, codec: Codec, index: int) -> ExampleDict:
        """One record, decoded."""
        if codec.direct_example:
            return codec.to_example(self._shard.example(codec.plan, index))
        return first_row(self.examples(codec, [index]))

    def examples(self, codec: Codec, indices: slice | Sequence[int]) -> Columns:
        """Some records, decoded as a batch."""
        return codec.to_batch(self._shard.examples(codec.plan, self._numbers(indices)))

    def batches(
        self,
        codec: Codec,
        size: int,
        *,
        start: int = 0,
        stop: int | None = None,
        drop_remainder: bool = False,
        threads: int | None = None,
    ) -> Iterator[Columns]:
        """The records in order, decoded in batches of `size`, ahead of the caller on `threads` threads."""
        first, last, _ = slice(start, stop).indices(len(self))
        span = (first, max(first, last))
        return _batches(codec, self._shard.feed(codec.plan, span, size, drop_remainder, threads or default_threads()))

    def verify(self, *, progress: Progress = None) -> Report:
        """Look at every byte of the file."""
        return verify(self.path, progress=progress)

    def _numbers(self, indices: slice | Sequence[int]) -> list[int]:
        return list(range(*indices.indices(len(self))) if isinstance(indices, slice) else indices)


def _batches(codec: Codec, feed: Feed) -> Iterator[Columns]:
    try:
        for raw in feed:
            yield codec.to_batch(raw)
    finally:
        feed.close()


def open_shard(path: PathLike, *, progress: Progress = None) -> ShardReader:
    """A file of records, whatever its format is; by the index beside it, if there is one that fits."""
    return ShardReader(path, Shard(path, existing_sidecar(path), False, progress))


def verify(path: PathLike, *, progress: Progress = None) -> Report:
    """Look at every byte of a file, and report what is not a whole record."""
    return _report(path, salvage(path, None, progress))


def salvage_into(writer: ShardWriter, path: PathLike, *, progress: Progress = None) -> Report:
    """Append the whole records of a damaged file, and report what was skipped."""
    return _report(path, salvage(path, writer.native, progress))


def _report(path: PathLike, found: tuple[int, int, list[tuple[int, int, int, str]]]) -> Report:
    records, record_bytes, gaps = found
    return Report(str(path), records, record_bytes, tuple(Gap(*gap) for gap in gaps))
