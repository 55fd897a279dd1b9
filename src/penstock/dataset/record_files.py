"""X."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import NotFoundError, SchemaError
from ..records.inspect import SAMPLE, first_records, infer_schema
from ..records.tar import SUFFIXES as TAR_SUFFIXES
from ..schema.schema import Schema
from ..storage.files import (
    checked_path,
    is_file,
    is_folder,
    join_path,
    list_folder,
    local_copies,
    named_by_url,
    parent_path,
)
from ..storage.paths import (
    SPLIT,
    PathLike,
    Paths,
    files_named,
    is_glob,
    path_list,
    record_suffixes,
    split_patterns,
)
from ..storage.store import is_url, url_name
from .datum import MAPPING, exported_files, read_mapping
from .manifest import KEYS_SUFFIX, MANIFEST, read_manifest
from .plain_files import SUFFIX as SCHEMA_SUFFIX
from .plain_files import check_complete, read_schema
from .tfds import INFO, read_prepared

SPLIT_NAMES = ("train", "training", "val", "valid", "validation", "eval", "test", "testing", "dev")


def split_order(name: str) -> tuple[bool, str]:
    """Splits come by name, after train."""
    return name != "train", name


def without_side_files(files: Sequence[str]) -> list[str]:
    """Files without what stands beside one of them and goes with it: its index, its keys, its schema."""
    beside = {file + suffix for file in files for suffix in (".index", ".idx", KEYS_SUFFIX)}
    others = [file for file in files if file not in beside]
    return [file for file in others if not file.endswith(SCHEMA_SUFFIX)] or others


SUFFIXES = {
    "tfrecord": record_suffixes("tfrecord"),
    "array_record": record_suffixes("array_record"),
    "tar": TAR_SUFFIXES,
}
_KIND = r"(?:\.tfrecords?|\.array_?record)?"
SHARD_NAME = re.compile(rf"(.+?){_KIND}-(\d{{5,}})-of-(\d{{5,}})({_KIND}(?:\.gz)?)", re.IGNORECASE)
_TFDS_NAME = re.compile(r"([A-Za-z]\w*)-([\w-]+)\.(?:tfrecord|array_record)-\d{5,}-of-\d{5,}")
_SUFFIX = "|".join(re.escape(suffix) for suffixes in SUFFIXES.values() for suffix in suffixes)
_NUMBERED = re.compile(rf"(.*?)(?:[-_.]?\d+(?:-of-\d+)?)?(?:{_SUFFIX})", re.IGNORECASE)
NONE_KNOWN: Mapping[str, list[str]] = {}
_SAMPLED_FILES = 16


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
