"""Files with numbers in place of a dataset's directory: out-{00000..}.tar, {split}/{0..}.tfrecord."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from ..storage import is_numbered, named_by, numbered
from .commit import STEP
from .plan import cut_files, cut_shards
from .workers import Progress, silent

SPLIT = "{split}"
FIRST = 8  # records that show how large they are
CHUNK = 1 << 22  # bytes of records that are taken at a time, about


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
            there = itertools.takewhile(lambda path: any(map(os.path.lexists, (path, staged(path)))), self._names)
            for path in reversed(list(there)):
                remove(staged(path))
                remove(path)


def staged(path: str) -> str:
    """What a file is called until all of them are written."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.new")


def remove(path: str) -> None:
    """Take a file away, if it is there, and its index."""
    for each in (sidecar_path(path), Path(path)):
        each.unlink(missing_ok=True)


def move(path: str, name: str) -> None:
    """Give a file its name, and its index."""
    sidecar_path(name).unlink(missing_ok=True)
    os.replace(path, name)
    if sidecar_path(path).exists():
        os.replace(sidecar_path(path), sidecar_path(name))


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


def check_apart(pattern: str, sources: Iterable[str]) -> None:
    """That no file is written over one that it is made from."""
    names = named_by(os.path.realpath(pattern.replace(SPLIT, "{0..}")))
    for path in sources:
        if names.fullmatch(os.path.realpath(path)):
            raise SchemaError("expected other files to convert into, got those of the source", path, "Name them anew")


def write_files(
    sources: Mapping[str, RecordFiles | TarSamples],
    pattern: str | Path,
    format: Format,
    *,
    shards: int | None = None,
    overwrite: bool = False,
    sync: bool = True,
    progress: Progress = silent,
) -> dict[str, list[str]]:
    """The records of each split, as they are and in their order, in as few files as they fit into.

    The files get their names when all of them are written.
    """
    text = os.fspath(pattern)
    check_pattern(text, list(sources))
    named = {split: NumberedFiles(text, split, overwrite) for split in sources}
    try:
        for split, source in sources.items():
            some = source.records(range(min(len(source), FIRST)))
            step = at_once(len(some), some.nbytes)
            for part in _cut(source, step, format, shards if is_numbered(text) else 1):
                with format.open_writer(staged(named[split].next()), sync=sync) as writer:
                    for rows in steps(*part, step):
                        records = source.records(rows)
                        writer.write_records(records)
                        progress(len(records), records.nbytes)
    except BaseException:
        for path in (path for names in named.values() for path in names.files):
            remove(staged(path))
        raise
    for names in named.values():
        for path in names.files:
            move(staged(path), path)
        names.take_away_rest()
    return {split: names.files for split, names in named.items()}


def _cut(source: RecordFiles | TarSamples, step: int, format: Format, shards: int | None) -> Iterable[tuple[int, int]]:
    """The first record of each file, and the one after its last."""
    if shards:
        return itertools.pairwise(cut_shards(len(source), max(1, min(shards, len(source)))).tolist())
    parts = [source.records(rows).lengths for rows in steps(0, len(source), step)]
    lengths = np.concatenate([np.empty(0, np.int64), *parts])
    return itertools.pairwise(cut_files(lengths, format.shard_bytes, format.shard_examples or len(lengths) or 1))


def open_written(path: Path, files: Mapping[str, Sequence[str]], schema: Schema) -> Opened:
    """The dataset that such files are."""
    splits = {split: ShardFiles(map(indexed, names)) for split, names in files.items()}
    return Opened(path, dataset_name(path), schema, splits)
