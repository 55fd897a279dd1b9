"""TFRecord files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .._core import Shard, Writer
from ..errors import ArgumentError, check_type
from ..storage.paths import PathLike
from .codec import default_threads
from .index import existing_sidecar
from .shard import CODEC, Progress, Report, ShardFormat, ShardReader, ShardWriter, salvage_into


@dataclass(frozen=True, kw_only=True)
class TFRecord(ShardFormat):
    """The TFRecord format and its options.

    compression     None, "gzip" or "zlib": the whole file, as TensorFlow has it
    level           1 (fast) to 9 (small)
    shard_bytes     about how large a build makes a shard
    shard_examples  how many examples it puts into one at most, whatever their size
    """

    name: ClassVar[str] = "tfrecord"
    frame: ClassVar[int] = 16
    compression: str | None = None
    level: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compression not in (None, "gzip", "zlib"):
            raise ArgumentError(f'expected compression None, "gzip" or "zlib", got {self.compression!r}')
        if not 1 <= self.level <= 9:
            raise ArgumentError(f"expected a level from 1 to 9, got {self.level!r}")

    def open_writer(self, path: PathLike, *, sync: bool = False, threads: int | None = None) -> TFRecordWriter:
        """What writes a shard, and its index beside it."""
        return TFRecordWriter(path, self, index=True, sync=sync, threads=threads)


class TFRecordWriter(ShardWriter):
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
        self.format = TFRecord() if format is None else format
        check_type(self.format, TFRecord, "TFRecord(...)", "format", CODEC)
        writer = Writer(path, self.format.compression or "none", self.format.level)
        super().__init__(path, writer, sync=sync, threads=threads or default_threads(), sidecar=index)


class TFRecordReader(ShardReader):
    """A TFRecord file as a sequence of records: `reader[5]`, `reader[-1]`, `reader[10:20]`, `reader[[5, 900]]`.

    Compression is found out by itself. Every read checks its CRCs. Records are found through the index beside the
    file if there is one that fits, otherwise by a scan of the frames' headers; `index=False` always scans, and a path
    names the index to go by, which must fit then.
    """

    def __init__(self, path: PathLike, *, index: PathLike | bool = True, progress: Progress = None) -> None:
        if isinstance(index, bool):
            shard = Shard(path, existing_sidecar(path) if index else None, False, progress)
        else:
            shard = Shard(path, index, True, progress)
        super().__init__(path, shard, "tfrecord")
        self._given = index

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.path, self._given))


def _reopen(path: Path, index: PathLike | bool) -> TFRecordReader:
    return TFRecordReader(path, index=index)


def salvage_records(
    path: PathLike, out: PathLike, format: TFRecord | None = None, *, progress: Progress = None
) -> Report:
    """Copy the whole records of a damaged file into a new TFRecord file, and report what was skipped."""
    with TFRecordWriter(out, format) as writer:
        return salvage_into(writer, path, progress=progress)
