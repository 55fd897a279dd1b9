"""The formats that shards may have, by name; and shards that are written in several of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from .._core import Records
from .array_record import ArrayRecord
from .shard import ShardWriter, Summary
from .tfrecord import TFRecord

Format = TFRecord | ArrayRecord
FORMATS: dict[str, type[Format]] = {kind.name: kind for kind in (TFRecord, ArrayRecord)}


class ShardWriters:
    """Writes the same records to several files, each in its own format."""

    def __init__(self, writers: Sequence[ShardWriter]) -> None:
        self.writers = list(writers)

    def write_records(self, records: Records) -> None:
        """Append records."""
        for writer in self.writers:
            writer.write_records(records)

    @property
    def summaries(self) -> list[Summary]:
        """What the files hold, once they are written."""
        return [writer.summary for writer in self.writers if writer.summary is not None]

    def __enter__(self) -> ShardWriters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for writer in self.writers:
            writer.__exit__(kind, error, traceback)
