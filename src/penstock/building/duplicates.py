"""Examples whose records are the same, to the byte: the first stays, in the order of the records."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .._core import Records, hash_records
from ..errors import SchemaError
from ..records.codec import Codec
from ..records.tfrecord import TFRecordReader
from ..schema.columns import Array
from ..schema.schema import Schema
from .commit import STEP, content_hashes
from .listing import Split
from .spool import Spooled


def drop_duplicates(splits: list[Split], schema: Schema, *, across: bool) -> int:
    """Leave duplicates out of splits that are spooled, and say how many there are."""
    for group in [splits] if across else [[split] for split in splits]:
        _drop(group, schema)
        for split in group:
            if not len(split.rows):
                raise SchemaError("expected examples, got none that do not stand in an earlier split too", split.name)
    return sum(len(split.source) - len(split.rows) for split in splits)


def _drop(splits: list[Split], schema: Schema) -> None:
    spools = [_Contents(split.source, schema) for split in splits]
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
