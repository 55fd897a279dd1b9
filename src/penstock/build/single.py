"""Files of records in place of a dataset's directory: build(source, "train.record"), or "{split}/{000..}.tfrecord"."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import BuildError, SchemaError
from ..load.dataset import Dataset
from ..load.opening import Opened, open_dataset
from ..manifest import MANIFEST, WORK, Manifest, ShardEntry
from ..records.formats import FORMATS, Format
from ..records.schema_file import schema_path
from ..records.shard import open_shard
from ..records.tfrecord import TFRecord
from ..sources.record_files import RecordFiles
from ..splitting import Splits
from ..storage import SPLIT, is_numbered, is_url
from .file_commit import FileCommit, check_beside, finish_interrupted
from .inputs import origins
from .journal import check_work_folder, hold, mark_work_folder
from .local import Local
from .numbered import NumberedFiles, check_apart, check_pattern, open_written, schema_texts, write_files
from .ownership import QUARANTINE
from .report import Built, Meter
from .staging import source_urls, staged_files

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


def quarantine_of(path: str | Path) -> Path:
    """Where the bad examples of a build are kept: in its directory, or beside its files."""
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

    build  builds a dataset into the hidden folder; its argument `published` says whether files of it have their names
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
        shards: dict[str, Any] = {"shards": 1, "format": format}
        if is_numbered(path):
            shards = {"shards": PARTS, "format": TFRecord()}
        try:
            built = build(source, folder, **{**options, **shards}, published=placing)
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
        files = getattr(getattr(each, "_recipe", each), "files", ())
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
