"""Files with numbers in place of a dataset's directory: out-{00000..}.tar, {split}/{0..}.tfrecord."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..errors import SchemaError, StorageError
from ..load.files import indexed
from ..load.opening import Opened
from ..load.shard_files import ShardFiles
from ..manifest import dataset_name
from ..records.formats import Format
from ..records.schema_file import schema_path, schema_text, write_schema
from ..schema import Schema
from ..sources.record_files import RecordFiles
from ..sources.tar import TarSamples
from ..storage import SPLIT, is_numbered, named_by, numbered, numbered_files
from .commit import STEP
from .file_commit import FileCommit, check_beside, finish_interrupted, remove
from .plan import cut_files, cut_shards
from .workers import Progress, silent

NEW = ".new"
FIRST = 8  # records that show how large they are
CHUNK = 1 << 22  # bytes of records that are taken at a time, about


class NumberedFiles:
    """The names that a pattern gives a split's files, one after the other; without a number in it, one."""

    def __init__(self, pattern: str, split: str, overwrite: bool) -> None:
        self.files: list[str] = []
        self.pattern = pattern.replace(SPLIT, split)
        self._overwrite = overwrite
        self._names = numbered(self.pattern)

    def check(self) -> None:
        """That none of the names is taken, or may be: whatever number a file has, it would count as one of these."""
        for path in numbered_files(self.pattern).values():
            if not os.path.isfile(path):
                raise StorageError(f"expected a file, or nothing, got a folder - at {path}. Take it away")
            if not self._overwrite:
                hint = "Say overwrite=True (--overwrite) to replace it"
                raise StorageError(f"expected a new file, got one that is there - at {path}. {hint}")
        check_beside([*numbered_files(self.pattern).values(), next(numbered(self.pattern))], ())

    def next(self) -> str:
        """The next name; its folder is there."""
        path = next(self._names)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.files.append(path)
        return path

    def rest(self) -> list[str]:
        """The files that an earlier run has left under the numbers that follow."""
        return list(itertools.takewhile(os.path.lexists, self._names)) if self._overwrite else []

    def sweep(self) -> None:
        """Take away what a run that was killed has left before its files had their names."""
        folder, name = os.path.split(self.pattern)
        names = re.compile(rf"\.{{1,2}}{named_by(name).pattern}{re.escape(NEW)}(\..*)?")
        for entry in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
            if names.fullmatch(entry):
                os.unlink(os.path.join(folder, entry))


def staged(path: str) -> str:
    """What a file is called until all of them are written."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}{NEW}")


def at_once(records: int, size: int) -> int:
    """How many of so many records, of so many bytes, are taken at a time."""
    return max(1, min(STEP, CHUNK * records // max(1, size)))


def steps(first: int, last: int, step: int) -> Iterator[range]:
    """Numbers, so many at a time."""
    return (range(at, min(at + step, last)) for at in range(first, last, step))


def check_pattern(pattern: str, splits: Sequence[str]) -> None:
    """That it has nothing in braces but a split and one number, and that several splits get names of their own."""
    rest = next(numbered(pattern.replace(SPLIT, "")))
    if "{" in rest or "}" in rest or SPLIT in os.path.splitext(pattern)[1]:
        expected = f"expected {SPLIT} and a number such as {{000..}} in braces, once each"
        raise SchemaError(f"{expected}, got something else", pattern, "Correct the name")
    if len(splits) > 1 and SPLIT not in pattern:
        hint = f"Put it into the name: out-{SPLIT}-{{00000..}}{os.path.splitext(pattern)[1]}"
        raise SchemaError(f"expected one split, got {', '.join(splits)}", pattern, hint)


def check_apart(pattern: str, sources: Iterable[str]) -> None:
    """That no file is written over one that it is made from."""
    names = re.compile("[^/]+".join(named_by(part).pattern for part in os.path.realpath(pattern).split(SPLIT)))
    for path in sources:
        if names.fullmatch(os.path.realpath(path)):
            raise SchemaError("expected other files to write, got those of the source", path, "Name them anew")


def write_files(
    sources: Mapping[str, RecordFiles | TarSamples],
    pattern: str | Path,
    format: Format,
    *,
    shards: int | None = None,
    overwrite: bool = False,
    sync: bool = True,
    progress: Progress = silent,
    texts: Mapping[str, str | None] | None = None,
    begun: str = "",
) -> dict[str, list[str]]:
    """The records of each split, as they are and in their order, in as few files as they fit into.

    The files get their names when all of them are written; an interrupted run of the same names is finished first.

    texts, begun  see FileCommit
    """
    text = os.path.abspath(pattern)
    check_pattern(text, list(sources))
    overwrite = finish_interrupted(text) == begun != "" or overwrite
    named = {split: NumberedFiles(text, split, overwrite) for split in sources}
    for names in named.values():
        names.check()
        names.sweep()
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
    moves = [(staged(path), path) for names in named.values() for path in names.files]
    rest = [path for names in named.values() for path in names.rest()]
    FileCommit(moves, rest, texts or {}, begun).publish(text, sync=sync)
    return {split: names.files for split, names in named.items()}


def _cut(source: RecordFiles | TarSamples, step: int, format: Format, shards: int | None) -> Iterable[tuple[int, int]]:
    """The first record of each file, and the one after its last."""
    if shards:
        return itertools.pairwise(cut_shards(len(source), max(1, min(shards, len(source)))).tolist())
    parts = [source.records(rows).lengths for rows in steps(0, len(source), step)]
    lengths = np.concatenate([np.empty(0, np.int64), *parts])
    lengths += format.frame
    return itertools.pairwise(cut_files(lengths, format.shard_bytes, format.shard_examples or len(lengths) or 1))


def schema_texts(pattern: str, splits: Iterable[str], schema: Schema) -> dict[str, str | None]:
    """The schema files beside the files of each split."""
    return {os.path.abspath(schema_path(pattern.replace(SPLIT, split))): schema_text(schema) for split in splits}


def write_schemas(pattern: str, splits: Iterable[str], schema: Schema) -> None:
    """Write beside the files of each split what they hold."""
    for split in splits:
        write_schema(pattern.replace(SPLIT, split), schema)


def open_written(path: Path, files: Mapping[str, Sequence[str]], schema: Schema) -> Opened:
    """The dataset that such files are."""
    splits = {split: ShardFiles(map(indexed, names)) for split, names in files.items()}
    fixed = [re.sub(r"\{[^}]*\}", "", part).partition(".")[0].strip("-_") for part in path.absolute().parts]
    return Opened(path, dataset_name(Path([part for part in fixed if part][-1])), schema, splits)
