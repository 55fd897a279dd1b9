"""Files with numbers in place of a dataset's directory: out-{00000..}.tar, {split}/{0..}.tfrecord."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..errors import SchemaError, StorageError
from ..load.files import indexed
from ..load.opening import Opened
from ..load.shard_files import ShardFiles
from ..manifest import dataset_name
from ..records.formats import Format
from ..records.index import sidecar_path
from ..schema import Schema
from ..sources.record_files import RecordFiles
from ..sources.tar import TarSamples
from ..storage import is_numbered, numbered
from .commit import STEP
from .plan import cut_files
from .workers import Progress, silent

SPLIT = "{split}"
FIRST = 8  # records that show how large they are
CHUNK = 1 << 22  # bytes of records that are taken at a time, about
UNBOUND = 1 << 62


class NumberedFiles:
    """The names that a pattern gives a split's files, one after the other; without a number in it, one."""

    def __init__(self, pattern: str, split: str, overwrite: bool) -> None:
        self.files: list[str] = []
        self._overwrite = overwrite
        self._names = numbered(pattern.replace(SPLIT, split))

    def next(self) -> str:
        """A name that is free, or may be taken; its folder is there."""
        path = next(self._names)
        if not self._overwrite and os.path.lexists(path):
            hint = "Take it away, or say that it is overwritten"
            raise StorageError(f"expected a new file, got one that is there - at {path}. {hint}")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.files.append(path)
        return path

    def take_away_rest(self) -> None:
        """What an earlier run has left under the numbers that follow, the last one first: a rerun finds the others."""
        if self._overwrite:
            for path in reversed(list(itertools.takewhile(os.path.lexists, self._names))):
                sidecar_path(path).unlink(missing_ok=True)
                os.unlink(path)


def at_once(records: int, size: int) -> int:
    """How many of so many records, of so many bytes, are taken at a time."""
    return max(1, min(STEP, CHUNK * records // max(1, size)))


def steps(first: int, last: int, step: int) -> Iterator[range]:
    """Numbers, so many at a time."""
    return (range(at, min(at + step, last)) for at in range(first, last, step))


def check_pattern(pattern: str, splits: Sequence[str]) -> None:
    """That several splits get names of their own."""
    if len(splits) > 1 and SPLIT not in pattern:
        hint = f"Put it into the name: out-{SPLIT}-{{00000..}}{os.path.splitext(pattern)[1]}"
        raise SchemaError(f"expected one split, got {', '.join(splits)}", pattern, hint)


def write_files(
    sources: Mapping[str, RecordFiles | TarSamples],
    pattern: str | Path,
    format: Format,
    *,
    shards: int | None,
    overwrite: bool,
    progress: Progress = silent,
) -> dict[str, list[str]]:
    """The records of each split, as they are and in their order, in as few files as they fit into."""
    text = os.fspath(pattern)
    check_pattern(text, list(sources))
    written = {}
    for split, source in sources.items():
        names = NumberedFiles(text, split, overwrite)
        some = source.records(range(min(len(source), FIRST)))
        step = at_once(len(some), some.nbytes)
        parts = [source.records(rows).lengths for rows in steps(0, len(source), step)]
        lengths = np.concatenate([np.empty(0, np.int64), *parts])
        if shards or not is_numbered(text):
            limits = UNBOUND, -(-len(source) // (shards or 1)) or 1
        else:
            limits = format.shard_bytes, format.shard_examples or UNBOUND
        for first, last in itertools.pairwise(cut_files(lengths, *limits)):
            with format.open_writer(names.next()) as writer:
                for rows in steps(first, last, step):
                    records = source.records(rows)
                    writer.write_records(records)
                    progress(len(records), records.nbytes)
        names.take_away_rest()
        written[split] = names.files
    return written


def open_written(path: Path, files: Mapping[str, Sequence[str]], schema: Schema) -> Opened:
    """The dataset that such files are."""
    splits = {split: ShardFiles(map(indexed, names)) for split, names in files.items()}
    return Opened(path, dataset_name(path), schema, splits)
