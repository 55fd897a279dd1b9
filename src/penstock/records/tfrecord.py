"""TFRecord files: written whole or not at all, read in any order, checked always."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, overload

import numpy as np

from .._core import Feed, Index, Records, Shard, Writer, salvage
from ..errors import SchemaError
from .codec import Codec, default_threads, first_row
from .index import sidecar_path

PathLike = str | os.PathLike[str]
Progress = Callable[[int], object] | None


@dataclass(frozen=True, kw_only=True)
class TFRecord:
    """The TFRecord format and its options.

    compression     None, "gzip" or "zlib": the whole file, as TensorFlow has it
    level           1 (fast) to 9 (small)
    shard_bytes     about how large a build makes a shard
    shard_examples  how many examples it puts into one at most, whatever their size
    """

    compression: str | None = None
    level: int = 6
    shard_bytes: int = 128 << 20
    shard_examples: int | None = None

    def __post_init__(self) -> None:
        if self.compression not in (None, "gzip", "zlib"):
            raise SchemaError(f'expected compression None, "gzip" or "zlib", got {self.compression!r}')
        if not 1 <= self.level <= 9:
            raise SchemaError(f"expected a level from 1 to 9, got {self.level!r}")
        for name in ("shard_bytes", "shard_examples"):
            value = getattr(self, name)
            if (value is not None or name == "shard_bytes") and (type(value) is not int or value < 1):
                raise SchemaError(f"expected {name} to be 1 or more, got {value!r}")


@dataclass(frozen=True)
class Summary:
    """What a written shard holds."""

    path: str
    records: int
    bytes: int
    crc32c: int


class TFRecordWriter:
    """Writes a TFRecord file. It is seen under its name only once it is closed; an error leaves nothing behind.

    with TFRecordWriter("train.tfrecord") as writer:
        writer.write(b"any bytes")
        writer.write_columns(codec, {"label": labels})
        writer.write_examples(codec, [{"label": 3}])

    With index=True an index is kept beside it; with sync=True closing waits for the disk.
    """

    def __init__(
        self,
        path: PathLike,
        format: TFRecord | None = None,
        *,
        index: bool = False,
        sync: bool = False,
        threads: int | None = None,
    ) -> None:
        self.path = Path(path)
        self.format = format or TFRecord()
        self.summary: Summary | None = None
        self._index = index
        self._sync = sync
        self._threads = threads or default_threads()
        self._writer = Writer(self.path, self.format.compression or "none", self.format.level)

    def __len__(self) -> int:
        return self.summary.records if self.summary else len(self._writer)

    def write(self, record: bytes) -> None:
        """Append one record."""
        self._writer.write(record)

    def write_records(self, records: Records | Iterable[bytes]) -> None:
        """Append records."""
        self._writer.write_records(records if isinstance(records, Records) else Records(records))

    def write_columns(self, codec: Codec, columns: Mapping[str, Any]) -> None:
        """Append a batch of columns; other threads encode while this one writes."""
        parts, rows = codec._parts(columns)
        self._writer.write_columns(codec._plan, parts, rows, self._threads)

    def write_examples(self, codec: Codec, examples: Iterable[Mapping[str, Any]]) -> None:
        """Append examples."""
        rows, coerce = codec._rows(examples)
        self._writer.write_examples(codec._plan, rows, coerce, self._threads)

    def close(self) -> None:
        """Publish the file."""
        if self.summary is None:
            index = self._writer.finish(self._sync)
            self.summary = Summary(str(self.path), len(index), index.shard_size, index.shard_crc32c)
            sidecar = sidecar_path(self.path)
            if self._index:
                index.write(sidecar)
            else:
                sidecar.unlink(missing_ok=True)

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._writer.abandon()


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


class TFRecordReader:
    """A TFRecord file as a sequence of records: `reader[5]`, `reader[-1]`, `reader[10:20]`, `reader[[5, 900]]`.

    Compression is found out by itself. Every read checks its CRCs. Records are found through the index beside the
    file if there is one that fits, otherwise by a scan of the frames' headers; `index=False` always scans, and a path
    names the index to go by, which must fit then.
    """

    def __init__(self, path: PathLike, *, index: PathLike | bool = True, progress: Progress = None) -> None:
        self.path = Path(path)
        if isinstance(index, bool):
            sidecar = sidecar_path(self.path) if index else None
            sidecar = sidecar if sidecar and sidecar.exists() else None
            self._shard = Shard(self.path, sidecar, False, progress)
        else:
            self._shard = Shard(self.path, index, True, progress)
        self._given = index

    def __repr__(self) -> str:
        return f"TFRecordReader({str(self.path)!r}: {len(self)} records, {self._shard.size} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.path, self._given))

    def __len__(self) -> int:
        return len(self._shard)

    @property
    def compression(self) -> str | None:
        """None, "gzip" or "zlib"."""
        return None if self._shard.compression == "none" else self._shard.compression

    @property
    def offsets(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Where each frame begins in the uncompressed file, and where the last one ends."""
        return self._shard.offsets

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

    def example(self, codec: Codec, index: int) -> dict[str, Any]:
        """One record, decoded."""
        if codec._direct_example:
            return codec._example(self._shard.example(codec._plan, index))
        return first_row(self.examples(codec, [index]))

    def examples(self, codec: Codec, indices: slice | Sequence[int]) -> dict[str, Any]:
        """Some records, decoded as a batch."""
        return codec._batch(self._shard.examples(codec._plan, self._numbers(indices)))

    def batches(
        self,
        codec: Codec,
        size: int,
        *,
        start: int = 0,
        stop: int | None = None,
        drop_remainder: bool = False,
        threads: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The records in order, decoded in batches of `size`, ahead of the caller on `threads` threads."""
        first, last, _ = slice(start, stop).indices(len(self))
        span = (first, max(first, last))
        return _batches(codec, self._shard.feed(codec._plan, span, size, drop_remainder, threads or default_threads()))

    def verify(self, *, progress: Progress = None) -> Report:
        """Look at every byte of the file."""
        return verify(self.path, progress=progress)

    def _numbers(self, indices: slice | Sequence[int]) -> list[int]:
        return list(range(*indices.indices(len(self))) if isinstance(indices, slice) else indices)


def _reopen(path: Path, index: PathLike | bool) -> TFRecordReader:
    return TFRecordReader(path, index=index)


def _batches(codec: Codec, feed: Feed) -> Iterator[dict[str, Any]]:
    try:
        for raw in feed:
            yield codec._batch(raw)
    finally:
        feed.close()


def verify(path: PathLike, *, progress: Progress = None) -> Report:
    """Look at every byte of a TFRecord file, and report what is not a whole record."""
    return _report(path, salvage(path, None, progress))


def salvage_records(
    path: PathLike, out: PathLike, format: TFRecord | None = None, *, progress: Progress = None
) -> Report:
    """Copy the whole records of a damaged TFRecord file into a new one, and report what was skipped."""
    with TFRecordWriter(out, format) as writer:
        return _report(path, salvage(path, writer._writer, progress))


def _report(path: PathLike, found: tuple[int, int, list[tuple[int, int, int, str]]]) -> Report:
    records, record_bytes, gaps = found
    return Report(str(path), records, record_bytes, tuple(Gap(*gap) for gap in gaps))


__all__ = [
    "Gap",
    "Index",
    "Report",
    "Summary",
    "TFRecord",
    "TFRecordReader",
    "TFRecordWriter",
    "salvage_records",
    "verify",
]
