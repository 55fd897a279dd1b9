"""ArrayRecord files: records in chunks, each compressed by itself, and a table that finds any of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .._core import Shard, Writer
from ..errors import ArgumentError, check_type
from ..storage.paths import PathLike
from .codec import default_threads
from .shard import CODEC, Progress, Report, ShardFormat, ShardReader, ShardWriter, salvage_into

LEVELS = {"zstd": (-5, 22), "brotli": (0, 11)}
COMPRESSIONS = (None, "zstd", "brotli", "snappy")


@dataclass(frozen=True, kw_only=True)
class ArrayRecord(ShardFormat):
    """The ArrayRecord format and its options.

    group_size      records that are compressed together, and read together: 1 for random access
    compression     "zstd", "brotli", "snappy" or None
    level           zstd: -5 (fast) to 22 (small), 3 unless told; brotli: 0 to 11, 6 unless told
    shard_bytes     about how large a build makes a shard
    shard_examples  how many examples it puts into one at most, whatever their size
    """

    name: ClassVar[str] = "array_record"
    group_size: int = 1
    compression: str | None = "zstd"
    level: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("group_size")
        if self.compression not in COMPRESSIONS:
            raise ArgumentError(f'expected compression "zstd", "brotli", "snappy" or None, got {self.compression!r}')
        least, most = LEVELS.get(self.compression or "", (0, -1))
        if self.level is not None and (type(self.level) is not int or not least <= self.level <= most):
            levels = f"a level from {least} to {most}" if most > 0 else "no level"
            raise ArgumentError(f"expected {levels} for compression {self.compression!r}, got {self.level!r}")
        if self.group_size >= 1 << 31:
            raise ArgumentError(f"expected group_size to be below 2^31, got {self.group_size!r}")

    def open_writer(self, path: PathLike, *, sync: bool = False, threads: int | None = None) -> ArrayRecordWriter:
        """What writes a shard."""
        return ArrayRecordWriter(path, self, sync=sync, threads=threads)


class ArrayRecordWriter(ShardWriter):
    """Writes an ArrayRecord file. It is seen under its name only once it is closed; an error leaves nothing behind.

    with ArrayRecordWriter("train.array_record", ArrayRecord(group_size=1)) as writer:
        writer.write(b"any bytes")

    Chunks are compressed on `threads` threads; the bytes do not depend on how many. With sync=True closing waits for
    the disk.
    """

    def __init__(
        self,
        path: PathLike,
        format: ArrayRecord | None = None,
        *,
        sync: bool = False,
        threads: int | None = None,
    ) -> None:
        self.format = ArrayRecord() if format is None else format
        check_type(self.format, ArrayRecord, "ArrayRecord(...)", "format", CODEC)
        threads = threads or default_threads()
        group_size, compression, level = self.format.group_size, self.format.compression or "none", self.format.level
        writer = Writer.array_record(path, group_size, compression, level, threads)
        super().__init__(path, writer, sync=sync, threads=threads)


class ArrayRecordReader(ShardReader):
    """An ArrayRecord file as a sequence of records: `reader[5]`, `reader[-1]`, `reader[10:20]`, `reader[[5, 900]]`.

    Every read checks the hashes of the chunks that it reads. Transposed chunks, which the format allows, are refused.
    """

    def __init__(self, path: PathLike) -> None:
        super().__init__(path, Shard(path), "array_record")

    def __reduce__(self) -> tuple[Any, ...]:
        return (ArrayRecordReader, (self.path,))

    @property
    def group_size(self) -> int:
        """Records to a chunk; the last one may have fewer."""
        return self._shard.group_size or 1

    @property
    def writer_options(self) -> str:
        """What the writer left about its options, such as `group_size:1,zstd:3`."""
        return self._shard.format[1]


def salvage_array_records(
    path: PathLike, out: PathLike, format: ArrayRecord | None = None, *, progress: Progress = None
) -> Report:
    """Copy the whole records of a damaged file into a new ArrayRecord file, and report what was skipped."""
    with ArrayRecordWriter(out, format) as writer:
        return salvage_into(writer, path, progress=progress)
