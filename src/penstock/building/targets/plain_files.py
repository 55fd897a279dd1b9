"""Files of records in place of a dataset's directory: build(source, "train.record"), or "{split}/{000..}.tfrecord"."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...dataset.manifest import MANIFEST, WORK, Info, Manifest, ShardEntry, dataset_name
from ...dataset.open import Opened, indexed, open_dataset
from ...dataset.plain_files import schema_path, schema_text, write_schema
from ...dataset.shards import ShardFiles
from ...errors import BuildError, SchemaError, StorageError
from ...loading.loader import Loader
from ...records.formats import FORMATS, Format
from ...records.shard import open_shard
from ...records.tfrecord import TFRecord
from ...schema.schema import Schema
from ...sources.record_files import RecordFiles
from ...sources.splits import split_names
from ...sources.tar import TarSamples
from ...storage.files import is_file, join_path, resolved_path
from ...storage.paths import RECORD_SUFFIXES, SPLIT, is_numbered, named_by, names_record_files, numbered, numbered_files
from ..duplicates import STEP
from ..engines.engine import Advance, Engine, Meter, ignore_progress
from ..engines.local import Local
from ..journal import check_work_folder, hold, mark_work_folder
from ..listing import origins
from ..plan import Options, cut_files, cut_shards
from ..run import BuildResult, run_build
from .directory import QUARANTINE, Directory
from .file_commit import FileCommit, check_beside, finish_interrupted, quarantine_beside, remove, staged_files

HIDDEN, DATA = ".build", "data"
PLACING = "placing"  # is in the folder once the files have their names: they are of this build
PARTS = 64  # that are built at first: what a build that was cut off does not do again


def kept_quarantine(path: str | Path) -> str:
    """Return where the bad examples of a build are kept; empty if there are none. The path may be a URL."""
    kept = quarantine_path(str(path))
    return kept if is_file(kept) else ""


def quarantine_path(path: str) -> str:
    """Return where the bad examples of a build are kept: in its directory, or beside its files."""
    return quarantine_beside(path) if names_record_files(path) else join_path(path, QUARANTINE)


def check_plain_files(source: object, path: str, format: object, shards: int | None) -> Format:
    """Check the names of files to build, and return the format that they are named after."""
    check_pattern(path, split_names(source))
    check_apart(path, _files_read(source))
    return file_format(format, Path(path), shards)


def build_plain_files(
    source: object, path: str, options: Options, engine: Engine, info: Info | None, *, overwrite: bool
) -> BuildResult:
    """Build a source into files, on a local disk or in a store.

    Those of a store are built on a local disk first, where the same build continues after an interruption.
    """
    with staged_files(path, overwrite=overwrite, made_from=_files_read(source)) as local:
        result = _build_local(source, Path(local), options, engine, info, overwrite=overwrite)
    if local == path:
        return result
    opened = replace(open_dataset(path, result.manifest.schema, None), path=path)
    return replace(result, opened=opened, manifest=_described(result.manifest, opened, options.formats[0]))


def _build_local(
    source: object, path: Path, options: Options, engine: Engine, info: Info | None, *, overwrite: bool
) -> BuildResult:
    """Build a source into files, each with its index beside it. Their schema and bad examples are kept beside them.

    They are built in a hidden folder first, where the same build continues after an interruption. An interrupted commit
    is finished first.
    """
    where = str(path)
    path = Path(os.path.abspath(path))
    splits = split_names(source)
    format = options.formats[0]
    with alone(path) as folder:
        finish_interrupted(str(path), folder / PLACING)
        placing = (folder / PLACING).exists()
        if not any((folder / name).exists() for name in (WORK, MANIFEST)):
            _remove_folder(folder)  # a run was killed while it did so
        for split in splits:
            NumberedFiles(str(path), split, overwrite or placing).check()
        check_beside((), _texts(path, splits))
        # Readers of TFRecord files parse lists of float32.
        first = replace(options, shards=1, short_floats=isinstance(format, TFRecord))
        if is_numbered(path):
            first = replace(first, shards=PARTS, formats=(TFRecord(),))
        try:
            target = Directory(folder, published=placing)
            result = run_build(source, target, first, engine, info, overwrite=overwrite)
        except (Exception, KeyboardInterrupt) as error:
            if overwrite and isinstance(error, Exception):
                shutil.rmtree(folder, ignore_errors=True)  # the next one begins anew in any case
            if isinstance(error, KeyboardInterrupt):
                rest = "build again to go on" if is_numbered(path) else "nothing was written"
                raise KeyboardInterrupt(f"stopped: {rest} - at {where}") from None
            if type(error) is BuildError:
                raise BuildError(str(error).replace(str(folder), where)) from error.__cause__
            raise
        written = _put_into_place(result.manifest, folder, path, options, engine)
        _remove_folder(folder)
    opened = replace(open_written(path, written, result.manifest.schema), path=Path(where))
    manifest = _described(result.manifest, opened, format)
    return replace(result, opened=opened, manifest=manifest, written=sum(map(len, written.values())), kept=0)


def _remove_folder(folder: Path) -> None:
    """Remove the folder that files were built in. What tells that they are complete goes last."""
    for entry in os.scandir(folder) if folder.is_dir() else ():
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != PLACING:
            os.unlink(entry.path)
    shutil.rmtree(folder, ignore_errors=True)


def _texts(path: Path, splits: Iterable[str]) -> list[str]:
    """Return the small files that are written beside the files of a pattern, or removed there."""
    beside = [os.path.abspath(schema_path(str(path).replace(SPLIT, split))) for split in splits]
    return [*beside, quarantine_path(str(path))]


@contextmanager
def alone(path: Path) -> Iterator[Path]:
    """Yield a folder to build some files in, while no other process does. It is kept unless it is removed."""
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


def _files_read(source: object) -> list[str]:
    """Return the record files that a source reads."""
    found: list[str] = []
    for each in origins(source):
        if isinstance(each, (RecordFiles, TarSamples)):
            found += map(str, each.files)
        elif isinstance(each, Loader):
            found += [file.path for file in each.spec.files]
    return found


def _put_into_place(
    manifest: Manifest, folder: Path, path: Path, options: Options, engine: Engine
) -> dict[str, list[str]]:
    """Make the one file of the one shard, or deal the records of many out into files."""
    shards = {split: [str(folder / shard.file) for shard in parts] for split, parts in manifest.splits.items()}
    sync = engine.sync if isinstance(engine, Local) else True
    texts = schema_texts(str(path), shards, manifest.schema)
    kept = folder / QUARANTINE
    texts[quarantine_path(str(path))] = kept.read_text(encoding="utf-8") if kept.exists() else None
    if not is_numbered(path):
        written = {split: [str(path).replace(SPLIT, split)] for split in shards}
        for split in shards:
            os.makedirs(os.path.dirname(written[split][0]), exist_ok=True)
        moves = [(shard, written[split][0]) for split, (shard,) in shards.items()]
        FileCommit(moves, [], texts, marker=folder / PLACING).publish(str(path), sync=sync)
        return written
    records = {split: RecordFiles(files, manifest.schema, files, open_shard) for split, files in shards.items()}
    meter = Meter(engine.progress)
    meter.begin("writing files", sum(map(len, records.values())))
    format, count = options.formats[0], options.shards
    marker = folder / PLACING
    return write_files(
        records, path, format, shards=count, overwrite=True, sync=sync, advance=meter, texts=texts, marker=marker
    )


def _described(manifest: Manifest, opened: Opened, format: Format) -> Manifest:
    """Return the manifest that a dataset of these files would have."""
    splits = {
        split: [ShardEntry(file.path, file.records, file.bytes, 0) for file in files]
        for split, files in opened.splits.items()
    }
    info = replace(manifest.info, name=opened.name)
    return replace(manifest, name=opened.name, splits=splits, format=format.name, alternatives={}, info=info)


def _hidden(pattern: str) -> Path:
    """Return the folder beside the files in which they are built, before the first name that is not fixed."""
    fixed = Path(pattern.partition("{")[0] + "x").parent
    rest = os.path.relpath(pattern, fixed).translate({ord("{"): "", ord("}"): "", ord(os.sep): "-"})
    return fixed / f".{rest}{HIDDEN}"


def file_format(format: object, path: Path, shards: int | None) -> Format:
    """Return the format that the files are named after, with the given options."""
    name = RECORD_SUFFIXES[path.suffix.lower()]
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
        """Check that no file has such a name: whatever its number, it would count as one of these."""
        for path in numbered_files(self.pattern).values():
            if not os.path.isfile(path):
                raise StorageError(f"expected a file, or nothing, got a folder - at {path}. Take it away")
            if not self._overwrite:
                hint = "Say overwrite=True (--overwrite) to replace it"
                raise StorageError(f"expected a new file, got one that is there - at {path}. {hint}")
        check_beside([*numbered_files(self.pattern).values(), next(numbered(self.pattern))], ())

    def next(self) -> str:
        """Return the next name; create its folder."""
        path = next(self._names)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.files.append(path)
        return path

    def rest(self) -> list[str]:
        """Return the files that an earlier run has left under the numbers that follow."""
        return list(itertools.takewhile(os.path.lexists, self._names)) if self._overwrite else []

    def sweep(self) -> None:
        """Remove the files of a killed run that had no names yet."""
        folder, name = os.path.split(self.pattern)
        names = re.compile(rf"\.{{1,2}}{named_by(name).pattern}{re.escape(NEW)}(\..*)?")
        for entry in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
            if names.fullmatch(entry):
                os.unlink(os.path.join(folder, entry))


def staged(path: str) -> str:
    """Return the name of a file until all files are written."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}{NEW}")


def at_once(records: int, size: int) -> int:
    """Return the number of records to read at a time, given the number and bytes of all."""
    return max(1, min(STEP, CHUNK * records // max(1, size)))


def steps(first: int, last: int, step: int) -> Iterator[range]:
    """Return ranges of `step` numbers."""
    return (range(at, min(at + step, last)) for at in range(first, last, step))


def check_pattern(pattern: str, splits: Sequence[str]) -> None:
    """Check that braces hold a split and one number at most, and that several splits get different names."""
    rest = next(numbered(pattern.replace(SPLIT, "")))
    if "{" in rest or "}" in rest or SPLIT in os.path.splitext(pattern)[1]:
        expected = f"expected {SPLIT} and a number such as {{000..}} in braces, once each"
        raise SchemaError(f"{expected}, got something else", pattern, "Correct the name")
    if len(splits) > 1 and SPLIT not in pattern:
        hint = f"Put it into the name: out-{SPLIT}-{{00000..}}{os.path.splitext(pattern)[1]}"
        raise SchemaError(f"expected one split, got {', '.join(splits)}", pattern, hint)


def check_apart(pattern: str, sources: Iterable[str]) -> None:
    """Check that no file is written over a file of the source."""
    names = re.compile("[^/]+".join(named_by(part).pattern for part in resolved_path(pattern).split(SPLIT)))
    for path in sources:
        if names.fullmatch(resolved_path(path)):
            raise SchemaError("expected other files to write, got those of the source", path, "Name them anew")


def write_files(
    sources: Mapping[str, RecordFiles | TarSamples],
    pattern: str | Path,
    format: Format,
    *,
    shards: int | None = None,
    overwrite: bool = False,
    sync: bool = True,
    advance: Advance = ignore_progress,
    texts: Mapping[str, str | None] | None = None,
    begun: str = "",
    marker: Path | None = None,
) -> dict[str, list[str]]:
    """Write the records of each split, in order, into as few files as they fit into.

    The files get their names when all of them are written; an interrupted run of the same names is finished first.

    texts, begun, marker  see FileCommit
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
                        advance(len(records), records.nbytes)
    except BaseException:
        for path in (path for names in named.values() for path in names.files):
            remove(staged(path))
        raise
    moves = [(staged(path), path) for names in named.values() for path in names.files]
    rest = [path for names in named.values() for path in names.rest()]
    FileCommit(moves, rest, texts or {}, begun, marker).publish(text, sync=sync)
    return {split: names.files for split, names in named.items()}


def _cut(source: RecordFiles | TarSamples, step: int, format: Format, shards: int | None) -> Iterable[tuple[int, int]]:
    """Return the first record of each file, and the one after its last."""
    if shards:
        return itertools.pairwise(cut_shards(len(source), max(1, min(shards, len(source)))).tolist())
    parts = [source.records(rows).lengths for rows in steps(0, len(source), step)]
    lengths = np.concatenate([np.empty(0, np.int64), *parts])
    lengths += format.frame
    return itertools.pairwise(cut_files(lengths, format.shard_bytes, format.shard_examples or len(lengths) or 1))


def schema_texts(pattern: str, splits: Iterable[str], schema: Schema) -> dict[str, str | None]:
    """Return the schema files beside the files of each split."""
    return {os.path.abspath(schema_path(pattern.replace(SPLIT, split))): schema_text(schema) for split in splits}


def write_schemas(pattern: str, splits: Iterable[str], schema: Schema) -> None:
    """Write beside the files of each split what they hold."""
    for split in splits:
        write_schema(pattern.replace(SPLIT, split), schema)


def open_written(path: Path, files: Mapping[str, Sequence[str]], schema: Schema) -> Opened:
    """Return the dataset that such files are."""
    splits = {split: ShardFiles(map(indexed, names)) for split, names in files.items()}
    fixed = [re.sub(r"\{[^}]*\}", "", part).partition(".")[0].strip("-_") for part in path.absolute().parts]
    return Opened(path, dataset_name(Path([part for part in fixed if part][-1])), schema, splits)
