"""Record files that are there already, to be built anew: in other shards, compressed, under another schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np

from .._core import Records, have_steps
from ..dataset.record_files import files_of, files_of_splits, schema_of, split_order
from ..errors import RecordIndexError
from ..records.array_record import ArrayRecordReader
from ..records.codec import Codec
from ..records.shard import ShardReader
from ..records.tfrecord import TFRecordReader
from ..schema.columns import Array, ExampleDict
from ..schema.schema import Fields, Schema
from ..storage.files import bring_all, fit_cache, local_copies, named_by_url
from ..storage.paths import Paths
from .files import short_names, stamp_of
from .protocol import RecordSource, position
from .splits import Splits

_OPEN_FILES = 16  # that are kept open


class RecordFiles(RecordSource):
    """The records of some files, one after the other. `source[i]` decodes one, `records` gives them as they are.

    opens  what reads a file
    keys   those of the records, where they are known
    """

    def __init__(
        self,
        files: Sequence[str],
        schema: Schema,
        names: Sequence[str],
        opens: Callable[[str], ShardReader],
        keys: Sequence[str] | None = None,
    ) -> None:
        self.copies = local_copies(files)
        self.files = list(files)
        self.names = list(names)
        self.schema = schema
        self.opens = opens
        self._keys = keys
        self._opened: Callable[[str], ShardReader] | None = None
        self._codec: Codec | None = None
        if fit_cache(self.copies):
            bring_all(self.copies)
        with named_by_url(self.copies):
            counts = [len(self._reader(at)) for at in range(len(self.files))]
        self.starts = np.cumsum([0, *counts])

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_opened": None, "_codec": None}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __repr__(self) -> str:
        return f"RecordFiles({len(self)} records of {len(self.files)} files)"

    def __getitem__(self, index: int) -> ExampleDict:
        at, record = self._find(index)
        self._codec = self._codec or Codec(self.schema)
        with named_by_url([self.copies[at]]):
            return self._reader(at).example(self._codec, record)

    def records(self, indices: Sequence[int] | Array) -> Records:
        """These records, their checksums checked: as they are, but a SequenceExample becomes a tf.Example."""
        numbers = np.asarray(indices, dtype=np.int64)
        if numbers.size and (int(numbers.min()) < 0 or int(numbers.max()) >= len(self)):
            raise RecordIndexError(f"expected records of 0 to {len(self) - 1}, got {numbers.min()} to {numbers.max()}")
        files = self._files_of(numbers)
        with named_by_url(self.copies):
            found = self._records(numbers, files)
        if not have_steps(found):
            return found
        self._codec = self._codec or Codec(self.schema)
        return self._codec.encode(self._codec.decode(found), threads=1)

    def _records(self, numbers: Array, files: Array) -> Records:
        if len(numbers) and (files == files[0]).all():
            inner: list[int] = (numbers - self.starts[files[0]]).tolist()
            return self._reader(int(files[0]))[inner]
        found: list[bytes] = [b""] * len(numbers)
        for at in np.unique(files).tolist():
            wanted = np.flatnonzero(files == at)
            read = self._reader(at)[(numbers[wanted] - self.starts[at]).tolist()]
            for place, record in zip(wanted.tolist(), read, strict=True):
                found[place] = record
        return Records(found)

    def key(self, index: int) -> str:
        """The one that is known, else the file's name and the number of the record in it."""
        if self._keys is not None:
            return self._keys[position(index, len(self))]
        at, record = self._find(index)
        return f"{self.names[at]}:{record}"

    def all_keys(self) -> list[str]:
        """Return the keys of all records."""
        if self._keys is not None:
            return list(self._keys)
        counts = np.diff(self.starts).tolist()
        return [f"{name}:{record}" for name, count in zip(self.names, counts, strict=True) for record in range(count)]

    def place(self, index: int) -> str:
        """The file, and the number of the record in it."""
        at, record = self._find(index)
        return f"{self.files[at]}, record {record}"

    def stamp(self, index: int) -> str:
        """That of the file."""
        return self._stamp(self._find(index)[0])

    def _stamp(self, at: int) -> str:
        copy = self.copies[at]
        return stamp_of(copy.path) if copy.remote is None else copy.remote.tag

    @property
    def by_file(self) -> list[Array] | None:
        """The records of each file by number, where the cache cannot hold the copies of all files at once."""
        return None if fit_cache(self.copies) else np.split(np.arange(len(self)), self.starts[1:-1])

    def stamps(self, indices: Array) -> list[str]:
        """Those of some records' files; each file is looked at once."""
        files, places = np.unique(self._files_of(indices), return_inverse=True)
        told = [self._stamp(at) for at in files.tolist()]
        return [told[place] for place in places.tolist()]

    def _files_of(self, numbers: Array) -> Array:
        return np.searchsorted(self.starts, numbers, side="right") - 1

    def _find(self, index: int) -> tuple[int, int]:
        index = position(index, len(self))
        at = int(np.searchsorted(self.starts, index, side="right")) - 1
        return at, index - int(self.starts[at])

    def _reader(self, at: int) -> ShardReader:
        self._opened = self._opened or lru_cache(_OPEN_FILES)(self.opens)
        return self._opened(self.copies[at].bring())


def tfrecords(pattern: Paths, schema: Schema | Fields | None = None) -> RecordFiles | Splits:
    """The records of TFRecord files: of one, of a folder, of a pattern, or of a list of them.

    A schema that is not given stands beside them, or is inferred from a sample.

    What stands for {split} in a pattern names the splits, and so do names such as train-00000-of-00010.tfrecord and
    name-train.tfrecord-00000-of-00010; and train-0.tfrecord, where others are called test-0.tfrecord.
    """
    return _record_files(files_of_splits(pattern, partial(files_of, format="tfrecord")), schema, TFRecordReader)


def array_records(pattern: Paths, schema: Schema | Fields | None = None) -> RecordFiles | Splits:
    """The same of ArrayRecord files."""
    return _record_files(files_of_splits(pattern, partial(files_of, format="array_record")), schema, ArrayRecordReader)


def _record_files(
    splits: Mapping[str, list[str]], schema: Schema | Fields | None, opens: Callable[[str], ShardReader]
) -> RecordFiles | Splits:
    files = [path for some in splits.values() for path in some]
    known = schema_of(files) if schema is None else schema if isinstance(schema, Schema) else Schema(schema)
    names = dict(zip(files, short_names(files), strict=True))
    if "" in splits:
        return RecordFiles(files, known, list(names.values()), opens)
    return Splits(
        {
            split: RecordFiles(splits[split], known, [names[path] for path in splits[split]], opens)
            for split in sorted(splits, key=split_order)
        }
    )
