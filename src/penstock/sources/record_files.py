"""Record files that are there already, to be built anew: in other shards, compressed, under another schema."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from .._core import have_steps
from ..columns import Array
from ..errors import NotFoundError, RecordIndexError, SchemaError
from ..manifest import MANIFEST, read_manifest
from ..records import Records
from ..records.array_record import ArrayRecordReader
from ..records.codec import Codec
from ..records.datum_files import MAPPING, exported_files, read_mapping
from ..records.interrupted import check_complete
from ..records.peek import SAMPLE, first_records, infer_schema
from ..records.schema_file import read_schema
from ..records.shard import ShardReader
from ..records.tar import SUFFIXES as TAR_SUFFIXES
from ..records.tfrecord import TFRecordReader
from ..schema import Schema
from ..splitting import Splits
from ..storage import (
    SPLIT,
    PathLike,
    Paths,
    bring_all,
    checked_path,
    fit_cache,
    is_file,
    is_folder,
    is_glob,
    is_url,
    join_path,
    list_folder,
    local_copies,
    named_by_url,
    parent_path,
    path_list,
    split_patterns,
    url_name,
)
from ..tfds.directory import INFO, read_prepared
from .files import files_named, short_names, stamp_of, without_side_files
from .image_folder import SPLIT_NAMES
from .listed import position, split_order

SUFFIXES = {
    "tfrecord": (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz", ".tfrec", ".tfr", ".record"),
    "array_record": (".array_record", ".arrayrecord"),
    "tar": TAR_SUFFIXES,
}
_KIND = r"(?:\.tfrecords?|\.array_?record)?"
SHARD_NAME = re.compile(rf"(.+?){_KIND}-(\d{{5,}})-of-(\d{{5,}})({_KIND}(?:\.gz)?)", re.IGNORECASE)
_TFDS_NAME = re.compile(r"([A-Za-z]\w*)-([\w-]+)\.(?:tfrecord|array_record)-\d{5,}-of-\d{5,}")
_SUFFIX = "|".join(re.escape(suffix) for suffixes in SUFFIXES.values() for suffix in suffixes)
_NUMBERED = re.compile(rf"(.*?)(?:[-_.]?\d+(?:-of-\d+)?)?(?:{_SUFFIX})", re.IGNORECASE)

NONE_KNOWN: Mapping[str, list[str]] = {}
_SAMPLED_FILES = 16
_OPEN_FILES = 16  # that are kept open


class RecordFiles:
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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_codec": None}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __repr__(self) -> str:
        return f"RecordFiles({len(self)} records of {len(self.files)} files)"

    def __getitem__(self, index: int) -> dict[str, Any]:
        at, record = self._find(index)
        self._codec = self._codec or Codec(self.schema)
        with named_by_url([self.copies[at]]):
            return self._reader(at).example(self._codec, record)

    def records(self, indices: Sequence[int]) -> Records:
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

    @property
    def keys(self) -> list[str]:
        """Those of all records."""
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


def tfrecords(pattern: Paths, schema: Schema | Mapping[str, Any] | None = None) -> RecordFiles | Splits:
    """The records of TFRecord files: of one, of a folder, of a pattern, or of a list of them.

    A schema that is not given stands beside them, or is inferred from a sample.

    What stands for {split} in a pattern names the splits, and so do names such as train-00000-of-00010.tfrecord and
    name-train.tfrecord-00000-of-00010; and train-0.tfrecord, where others are called test-0.tfrecord.
    """
    return _record_files(files_of_splits(pattern, partial(files_of, format="tfrecord")), schema, TFRecordReader)


def array_records(pattern: Paths, schema: Schema | Mapping[str, Any] | None = None) -> RecordFiles | Splits:
    """The same of ArrayRecord files."""
    return _record_files(files_of_splits(pattern, partial(files_of, format="array_record")), schema, ArrayRecordReader)


def _record_files(
    splits: Mapping[str, list[str]], schema: Schema | Mapping[str, Any] | None, opens: Callable[[str], ShardReader]
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


def files_of_splits(
    patterns: Paths, named: Callable[[str], list[str]], known: Mapping[str, list[str]] = NONE_KNOWN
) -> dict[str, list[str]]:
    """The files of each split, by what stands for {split} in patterns, or by their names; else all under "".

    named  the files of one pattern
    known  the files of patterns that were looked up already
    """

    def files(text: str) -> list[str]:
        return known[text] if text in known else named(text)

    texts = path_list(patterns)
    if not all(SPLIT in text for text in texts):
        named_files = without_side_files([file for text in texts for file in files(text)])
        check_complete(named_files)
        return by_split(named_files)
    splits: dict[str, list[str]] = {}
    for split, pattern in (item for text in texts for item in split_patterns(text).items()):
        splits.setdefault(split, []).extend(without_side_files(files(pattern)))
    check_complete(file for found in splits.values() for file in found)
    return splits


def by_split(files: Sequence[str]) -> dict[str, list[str]]:
    """Files by the splits that their names tell; all of them under "" where one tells none.

    A file that is called train.tfrecord may be all that there is: such names tell splits where there are two of them.
    """
    splits: dict[str, list[str]] = {}
    for path in files:
        splits.setdefault(split_name(path), []).append(path)
    shards = (SHARD_NAME.fullmatch(os.path.basename(path)) or format_named(path) == "tar" for path in files)
    return splits if "" not in splits and (len(splits) > 1 or any(shards)) else {"": list(files)}


def format_named(name: str) -> str | None:
    """The format of record files that are called so."""
    lower = name.lower()
    for format, suffixes in SUFFIXES.items():
        sharded = any(suffix in lower for suffix in suffixes) and SHARD_NAME.fullmatch(name) is not None
        if sharded or lower.endswith(suffixes):
            return format
    return None


def files_of(pattern: PathLike, format: str | None = None) -> list[str]:
    """The record files that a pattern names. Of a folder, those of a format: the first that is there, unless told."""
    formats = (format,) if format else tuple(SUFFIXES)
    suffixes = [suffix for each in formats for suffix in SUFFIXES[each]]
    text = checked_path(pattern)
    if not _names_files(text) and is_folder(text):
        names = [entry.name for entry in list_folder(text).entries() if not entry.is_dir() or not is_url(text)]
        for each in formats:
            if found := [join_path(text, name) for name in names if format_named(name) == each]:
                _check_numbers(found)
                return found
    return files_named(text, suffixes)


def _names_files(path: str) -> bool:
    """True if a URL names record files by itself, so that its store need not be asked whether it is a folder."""
    return is_url(path) and (is_glob(path) or "{" in path or format_named(url_name(path)) is not None)


def _check_numbers(files: Sequence[str]) -> None:
    """That no shard is missing where the names tell how many there are."""
    there: dict[tuple[str, str, int], set[int]] = {}
    for match in filter(None, (SHARD_NAME.fullmatch(os.path.basename(path)) for path in files)):
        around = match.string[: match.start(2)], match.string[match.end(2) :]
        there.setdefault((*around, int(match[3])), set()).add(int(match[2]))
    for (before, after, count), numbers in there.items():
        missing = next((number for number in range(count) if number not in numbers), None)
        if missing is not None:
            got = f"{len(numbers)}, without {before}{missing:05}{after}"
            hint = "Name the files that are to be read, if these are all that you want"
            raise NotFoundError(f"expected {count} shards, got {got} - at {os.path.dirname(files[0])}. {hint}")


def split_name(path: str) -> str:
    """The split that a shard's name tells, or nothing: the last word before its number."""
    name = os.path.basename(path)
    prepared = _TFDS_NAME.fullmatch(name)
    if prepared:
        return prepared[2]
    match = SHARD_NAME.fullmatch(name) or _NUMBERED.fullmatch(name)
    last = re.split(r"[-_.]", match[1])[-1] if match else ""
    return last if last.lower() in SPLIT_NAMES else ""


def _schema_of_datasets(files: Sequence[str]) -> Schema | None:
    """The schema of the dataset whose shards some files are: Penstock's, or one of TFDS or Datum."""
    named: dict[str, set[str]] = {}
    for path in files:
        named.setdefault(parent_path(path), set()).add(os.path.basename(path))
    found: dict[str, Schema] = {}
    for folder, names in named.items():
        if is_file(join_path(folder, MANIFEST)):
            manifest = read_manifest(folder)
            if any(shard.file in names for shard in manifest.shards()):
                found[folder] = manifest.schema
        elif is_file(join_path(folder, INFO)):
            prepared = read_prepared(folder if is_url(folder) else Path(folder), format_named(min(names)))
            if any(file in names for files in prepared.splits.values() for file, _ in files):
                for field, reason in prepared.unread.items():
                    warnings.warn(f"the field {field!r} can't be read: {reason} - at {folder}", stacklevel=5)
                found[folder] = prepared.schema
        elif not is_url(folder) and is_file(join_path(folder, MAPPING)):
            listed = exported_files(Path(folder)).values()
            if any(os.path.basename(file) in names for files in listed for file in files):
                found[folder] = read_mapping(Path(folder, MAPPING))
    if any(schema != next(iter(found.values())) for schema in found.values()):
        raise SchemaError("expected datasets of one schema, got others", str(list(found)[-1]), "Read them apart")
    return next(iter(found.values()), None)


def schema_beside(files: Sequence[str]) -> Schema | None:
    """The schema that stands beside some files, or in their dataset's manifest."""
    return read_schema(files) or _schema_of_datasets(files)


def schema_of(files: Sequence[str]) -> Schema:
    """The schema that stands beside some files, or in their dataset's manifest; else what the first records show."""
    told = schema_beside(files)
    if told is not None:
        return told
    step = max(1, len(files) // _SAMPLED_FILES)
    sampled = local_copies(files[::step][:_SAMPLED_FILES])
    each = max(10, SAMPLE // len(sampled))
    records: list[bytes] = []
    for copy in sampled:
        with named_by_url([copy]):
            found, damage = first_records(copy.bring(), each)
            if damage is not None and not len(found):
                raise damage
            records += found
    if not records:
        raise SchemaError("expected records to infer a schema from, got none", files[0], "Give it: schema={...}")
    try:
        return infer_schema(records)
    except SchemaError as error:
        among = files[0] if len(files) == 1 else f"a sample of {files[0]} and {len(files) - 1} more"
        raise SchemaError(error.message, ", ".join(filter(None, (among, error.where))), error.hint) from None
