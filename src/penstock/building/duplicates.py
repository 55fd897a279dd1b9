"""Records with the same bytes: dropped on request, and reported where they are in more than one split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._core import Records, hash_records
from ..dataset.manifest import hashes_path
from ..dataset.provenance import read_keys
from ..errors import SchemaError
from ..records.codec import Codec
from ..records.shard import open_shard
from ..records.tfrecord import TFRecordReader
from ..schema.columns import Array
from ..schema.schema import Schema
from .listing import Split
from .spool import Spooled

MOST_LEAKS = 10  # that are named
STEP = 4096  # records that are hashed at a time


@dataclass(frozen=True)
class Leak:
    """Content that stands in more than one split: where, as split and key."""

    places: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " = ".join(f"{split}[{key!r}]" for split, key in self.places)


def find_leaks(
    splits: Mapping[str, list[Path]], with_keys: Callable[[Path], Path] = lambda path: path
) -> tuple[int, list[Leak]]:
    """Count the contents that are in more than one split, and name some. `splits` has the shards of each.

    with_keys  gives a shard whose keys are beside it
    """
    if len(splits) < 2:
        return 0, []
    names = list(splits)
    parts = list(_suspects(splits))
    split_of = np.concatenate([np.full(len(rows), names.index(split)) for split, _, _, rows in parts])
    part_of = np.concatenate([np.full(len(rows), at) for at, (_, _, _, rows) in enumerate(parts)])
    row_of = np.concatenate([rows for _, _, _, rows in parts])
    hashes = np.concatenate([hashes for _, _, hashes, _ in parts])
    order = np.lexsort((split_of, hashes))
    ranked, owner = hashes[order], split_of[order]
    crossing = np.unique(ranked[1:][(ranked[1:] == ranked[:-1]) & (owner[1:] != owner[:-1])])
    leaks = []
    for content in crossing[:MOST_LEAKS]:
        at = order[np.searchsorted(ranked, content) : np.searchsorted(ranked, content, side="right")]
        _, first = np.unique(split_of[at], return_index=True)
        places = [(parts[part_of[n]], int(row_of[n])) for n in at[first]]
        leaks.append(Leak(tuple((split, read_keys(with_keys(path))[row]) for (split, path, *_), row in places)))
    return len(crossing), leaks


def _suspects(splits: Mapping[str, list[Path]]) -> Iterator[tuple[str, Path, Array, Array]]:
    """Yield shards with the hashes and numbers of records that may be in another split too.

    Of the largest split, which may be too large for memory, these are only those that another one has.
    """
    largest = max(splits, key=lambda split: len(splits[split]))
    known = [np.empty(0, np.uint64)]
    for split, paths in splits.items():
        for path in paths if split != largest else ():
            known.append(content_hashes(path))
            yield split, path, known[-1], np.arange(len(known[-1]))
    others = np.unique(np.concatenate(known))
    for path in splits[largest]:
        hashes = content_hashes(path)
        rows = np.flatnonzero(np.searchsorted(others, hashes) != np.searchsorted(others, hashes, side="right"))
        yield largest, path, hashes[rows], rows


def content_hashes(path: Path) -> Array:
    """Return the hash of each record: as its task left it, or computed from the shard."""
    try:
        return np.asarray(np.load(hashes_path(path), allow_pickle=False), np.uint64)
    except (OSError, ValueError):
        reader = open_shard(path)
        steps = range(0, len(reader), STEP)
        return np.concatenate([np.empty(0, np.uint64), *(hash_records(reader[at : at + STEP]) for at in steps)])


def drop_duplicates(splits: list[Split], schema: Schema, *, across: bool) -> int:
    """Leave duplicates out of splits that are spooled, and say how many there are."""
    for group in [splits] if across else [[split] for split in splits]:
        _drop(group, schema)
        for split in group:
            if not len(split.rows):
                raise SchemaError("expected examples, got none that do not stand in an earlier split too", split.name)
    return sum(len(split.listed) - len(split.rows) for split in splits)


def _drop(splits: list[Split], schema: Schema) -> None:
    spools = [_Contents(split.source, schema) for split in splits if isinstance(split.source, Spooled)]
    owner = np.concatenate([np.full(len(split.rows), at) for at, split in enumerate(splits)])
    rows = np.concatenate([split.rows for split in splits])
    hashes = np.concatenate([spool.hashes[split.rows] for spool, split in zip(spools, splits, strict=True)])
    order = np.argsort(hashes, kind="stable")  # of equal ones the first stays first
    ranked = hashes[order]
    again = np.zeros(len(rows), bool)
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    for start, end in zip(starts, [*starts[1:], len(ranked)], strict=True):
        if end - start > 1:
            seen: set[bytes] = set()  # equal hashes are a suspicion, equal bytes the proof
            for at in order[start:end].tolist():
                record = spools[owner[at]].record(int(rows[at]))
                again[at] = record in seen
                seen.add(record)
    for at, split in enumerate(splits):
        split.rows = split.rows[~again[owner == at]]


class _Contents:
    """The records of a spool as they will be stored, and a hash of each."""

    def __init__(self, spooled: Spooled, schema: Schema) -> None:
        self.files = [_File(path, own, schema) for path, own in spooled.files]
        self.starts = np.cumsum([0, *(len(file.reader) for file in self.files)])
        self.hashes: Array = np.concatenate([file.hashes() for file in self.files])

    def record(self, row: int) -> bytes:
        at = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.files[at].records([row - int(self.starts[at])])[0]


class _File:
    def __init__(self, path: Path, own: Schema, schema: Schema) -> None:
        self.path = path
        self.reader = TFRecordReader(path)
        self.codecs = None if own == schema else (Codec(own), Codec(schema))

    def records(self, rows: list[int]) -> Records:
        found: Records = self.reader[rows]
        if self.codecs is None:
            return found
        own, stored = self.codecs
        return stored.encode_examples([own.decode_example(record) for record in found])

    def hashes(self) -> Array:
        if self.codecs is None:
            return content_hashes(self.path)
        steps = [range(at, min(at + STEP, len(self.reader))) for at in range(0, len(self.reader), STEP)]
        return np.concatenate([np.empty(0, np.uint64), *(hash_records(self.records([*step])) for step in steps)])
