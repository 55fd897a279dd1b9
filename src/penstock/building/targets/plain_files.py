"""Files of records in place of a dataset's directory: build(source, "train.record"), or "{split}/{000..}.tfrecord"."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...dataset.manifest import MANIFEST, WORK, Manifest, ShardEntry, dataset_name
from ...dataset.open import Opened, indexed, open_dataset
from ...dataset.plain_files import schema_path, schema_text, write_schema
from ...dataset.shards import ShardFiles
from ...errors import BuildError, SchemaError, StorageError
from ...loading.dataset import Dataset
from ...records.formats import FORMATS, Format
from ...records.shard import open_shard
from ...records.tfrecord import TFRecord
from ...schema.schema import Schema
from ...sources.record_files import RecordFiles
from ...sources.splits import Splits
from ...sources.tar import TarSamples
from ...storage.files import is_file, join_path
from ...storage.paths import SPLIT, is_numbered, named_by, numbered, numbered_files
from ...storage.store import is_url
from ..commit import STEP
from ..engines.local import Local, Progress, silent
from ..inputs import origins
from ..journal import check_work_folder, hold, mark_work_folder
from ..plan import cut_files, cut_shards
from ..progress import Meter
from ..report import Built
from .file_commit import FileCommit, check_beside, finish_interrupted, quarantine_url, remove, source_urls, staged_files
from .ownership import QUARANTINE

SUFFIXES = dict.fromkeys((".record", ".tfr", ".tfrec", ".tfrecord", ".tfrecords"), "tfrecord")
SUFFIXES[".array_record"] = "array_record"
PACKED = (".gz", ".tgz", ".zst", ".zip", ".xz", ".bz2")
OTHERS = (*PACKED, ".tar", ".csv", ".json", ".jsonl", ".parquet", ".npz", ".h5")
HIDDEN, DATA = ".build", "data"
PLACING = "placing"  # is in the folder when a commit was interrupted: the files under the names are of this build
PARTS = 64  # that are built at first: what a build that was cut off does not do again


def names_file(path: str | Path) -> bool:
    """Whether a path stands for files of records, one or many with numbers."""
    suffix, folder = os.path.splitext(path)[1].lower(), os.path.isdir(path)
    if suffix not in SUFFIXES:
        if is_numbered(path) or SPLIT in str(path) or (suffix in OTHERS and not folder and not is_url(path)):
            expected = f"expected a folder, or names of files that end in {', '.join(SUFFIXES)}"
            hint = "compression= says how they are compressed" if suffix in PACKED else ""
            raise SchemaError(f"{expected}, got others", str(path), hint)
        return False
    if set(os.path.basename(path)) & set("*?") and not os.path.exists(path):
        hint = f"Number them: {re.sub('[*?]+', '{000..}', str(path), count=1)}"
        raise SchemaError("expected names of files to write, got a glob", str(path), hint)
    return not folder


def kept_quarantine(path: str | Path) -> str:
    """Where the bad examples of a build are kept; empty where there are none. The path may be a URL."""
    if is_url(path):
        kept = quarantine_url(str(path)) if names_file(path) else join_path(str(path), QUARANTINE)
    else:
        kept = str(quarantine_of(path))
    return kept if is_file(kept) else ""


def quarantine_of(path: str | Path) -> Path:
    """Where the bad examples of a local build are kept: in its directory, or beside its files."""
    if not names_file(path):
        return Path(path) / QUARANTINE
    folder = _hidden(str(path))
    return folder.with_name(f"{folder.name[1 : -len(HIDDEN)]}.{QUARANTINE}")


def build_objects(build: Callable[..., Built], source: Any, url: str, options: dict[str, Any]) -> Built:
    """Build a source into files of a store: on a local disk first, where a build that was cut off goes on."""
    with staged_files(url, overwrite=options["overwrite"], made_from=source_urls(_files_read(source))) as local:
        built = build_file(build, source, Path(local), options)
    opened = replace(open_dataset(url, built.schema, None), path=url)
    Dataset.__init__(built, opened)
    built.manifest = _described(built.manifest, opened, file_format(options["format"], Path(local), options["shards"]))
    return built


def build_file(build: Callable[..., Built], source: Any, path: Path, options: dict[str, Any]) -> Built:
    """Build a source into files, each with its index beside it. Their schema and bad examples are kept beside them.

    They are built in a hidden folder first, where the same build again goes on after it was cut off. An interrupted
    commit is finished first.

    build  builds a dataset into a hidden folder
    """
    where = str(path)
    path = Path(os.path.abspath(path))
    splits = list(source) if isinstance(source, Splits) else ["train"]
    check_pattern(where, splits)
    check_apart(where, _files_read(source))
    format = file_format(options["format"], path, options["shards"])
    with alone(path) as folder:
        if finish_interrupted(str(path)) is not None and folder.exists():
            (folder / PLACING).touch()
        placing = (folder / PLACING).exists()
        if not any((folder / name).exists() for name in (WORK, MANIFEST)):
            shutil.rmtree(folder, ignore_errors=True)  # a run was killed while it removed the folder
        for split in splits:
            NumberedFiles(str(path), split, options["overwrite"] or placing).check()
        check_beside((), _texts(path, splits))
        short = isinstance(format, TFRecord)  # whose readers parse lists of float32
        shards: dict[str, Any] = {"shards": 1, "format": format}
        if is_numbered(path):
            shards = {"shards": PARTS, "format": TFRecord()}
        try:
            built = build(source, folder, **{**options, **shards}, published=placing, short_floats=short)
        except (Exception, KeyboardInterrupt) as error:
            if options["overwrite"] and isinstance(error, Exception):
                shutil.rmtree(folder, ignore_errors=True)  # the next one begins anew in any case
            if isinstance(error, KeyboardInterrupt):
                rest = "build again to go on" if is_numbered(path) else "nothing was written"
                raise KeyboardInterrupt(f"stopped: {rest} - at {where}") from None
            if type(error) is BuildError:
                raise BuildError(str(error).replace(str(folder), where)) from error.__cause__
            raise
        written = _put_into_place(built, folder, path, format, options)
        shutil.rmtree(folder)
    opened = replace(open_written(path, written, built.schema), path=Path(where))
    Dataset.__init__(built, opened)
    built.manifest = _described(built.manifest, opened, format)
    built.written, built.kept = sum(map(len, written.values())), 0
    return built


def _texts(path: Path, splits: Iterable[str]) -> list[str]:
    """The small files that are written beside the files of a pattern, or removed there."""
    beside = [os.path.abspath(schema_path(str(path).replace(SPLIT, split))) for split in splits]
    return [*beside, str(quarantine_of(path))]


@contextmanager
def alone(path: Path) -> Iterator[Path]:
    """A folder to build some files in, while no other process does; it stays for the next time unless it is removed."""
    hidden = _hidden(os.path.abspath(path))
    check_work_folder(hidden)
    handle = hold(hidden / "alone" / "lock")
    try:
        mark_work_folder(hidden)
        yield hidden / DATA
    finally:
        if not (hidden / DATA).exists():
            shutil.rmtree(hidden)
        os.close(handle)


def _files_read(source: Any) -> list[str]:
    """The record files that a source reads."""
    found: list[str] = []
    for each in origins(source):
        files = getattr(getattr(each, "spec", each), "files", ())
        found += [str(getattr(file, "path", file)) for file in files]
    return found


def _put_into_place(
    built: Built, folder: Path, path: Path, format: Format, options: dict[str, Any]
) -> dict[str, list[str]]:
    """One shard becomes the one file; the records of many are dealt out into files."""
    shards = {split: [str(folder / shard.file) for shard in parts] for split, parts in built.manifest.splits.items()}
    engine = options["engine"] or Local()
    sync = getattr(engine, "sync", True)
    texts = schema_texts(str(path), shards, built.schema)
    kept = folder / QUARANTINE
    texts[str(quarantine_of(path))] = kept.read_text(encoding="utf-8") if kept.exists() else None
    if not is_numbered(path):
        written = {split: [str(path).replace(SPLIT, split)] for split in shards}
        for split in shards:
            os.makedirs(os.path.dirname(written[split][0]), exist_ok=True)
        moves = [(shard, written[split][0]) for split, (shard,) in shards.items()]
        FileCommit(moves, [], texts).publish(str(path), sync=sync)
        return written
    records = {split: RecordFiles(files, built.schema, files, open_shard) for split, files in shards.items()}
    meter = Meter(engine.progress)
    meter.begin("writing files", sum(map(len, records.values())))
    said: dict[str, Any] = {"shards": options["shards"], "sync": sync, "texts": texts}
    return write_files(records, path, format, **said, overwrite=True, progress=meter)


def _described(manifest: Manifest, opened: Opened, format: Format) -> Manifest:
    """The manifest that a dataset of these files would have."""
    splits = {
        split: [ShardEntry(file.path, file.records, file.bytes, 0) for file in files]
        for split, files in opened.splits.items()
    }
    info = replace(manifest.info, name=opened.name)
    return replace(manifest, name=opened.name, splits=splits, format=format.name, alternatives={}, info=info)


def _hidden(pattern: str) -> Path:
    """The folder beside the files in which they are built, before the first name that is not fixed."""
    fixed = Path(pattern.partition("{")[0] + "x").parent
    rest = os.path.relpath(pattern, fixed).translate({ord("{"): "", ord("}"): "", ord(os.sep): "-"})
    return fixed / f".{rest}{HIDDEN}"


def file_format(format: Any, path: Path, shards: int | None) -> Format:
    """The one that the files are named after, with the options that were given."""
    name = SUFFIXES[path.suffix.lower()]
    if isinstance(format, Sequence) and not isinstance(format, str):
        if len(format) != 1:
            raise SchemaError("expected one format for files, got several", str(path))
        format = format[0]
    if isinstance(format, str) and format in ("tfrecord", name):  # the first of them: that is what nobody has said
        format = FORMATS[name]()
    if isinstance(format, TFRecord) and name != "tfrecord":  # sizes are of any format
        sizes = {"shard_bytes": format.shard_bytes, "shard_examples": format.shard_examples}
        format = FORMATS[name](**sizes) if format == TFRecord(**sizes) else format  # type: ignore[arg-type]
    if not isinstance(format, FORMATS[name]):
        raise SchemaError(f"expected {FORMATS[name].__name__}(...) for such files, got {format!r}", str(path))
    plain = FORMATS[name]()
    sized = shards not in (None, 1) or (format.shard_bytes, format.shard_examples) != (plain.shard_bytes, None)
    if sized and not is_numbered(path):
        hint = f"Number them: {path.stem}-{{000..}}{path.suffix}"
        raise SchemaError("expected one file, got a size or a number of files", str(path), hint)
    return format


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
