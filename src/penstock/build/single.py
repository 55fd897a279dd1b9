"""Files of records in place of a dataset's directory: build(source, "train.record"), or "{split}/{000..}.tfrecord"."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import SchemaError, StorageError
from ..load.dataset import Dataset
from ..records.formats import FORMATS, Format
from ..records.shard import open_shard
from ..records.tfrecord import TFRecord
from ..sources.record_files import RecordFiles
from ..splitting import Splits
from ..storage import is_numbered, is_url, numbered
from .local import Local
from .numbered import SPLIT, check_pattern, move, open_written, write_files
from .report import Built, Meter

SUFFIXES = dict.fromkeys((".record", ".tfr", ".tfrec", ".tfrecord", ".tfrecords"), "tfrecord")
SUFFIXES[".array_record"] = "array_record"
PARTS = 64  # that are built at first: what a build that was cut off does not do again


def names_file(path: str | Path) -> bool:
    """Whether a path stands for files of records, one or many with numbers."""
    if os.path.splitext(path)[1] not in SUFFIXES:
        return False
    if is_url(path):
        hint = "Build a dataset there, or the file here, and copy it"
        raise SchemaError("expected a folder of a store, got files of records", str(path), hint)
    return not os.path.isdir(path)


def build_file(build: Callable[..., Built], source: Any, path: Path, options: dict[str, Any]) -> Built:
    """Build a source into files, each with its index beside it. What a build keeps beside shards is not kept.

    It is built in a hidden folder first, where the same build again goes on after it was cut off.
    """
    where = str(path)
    splits = list(source) if isinstance(source, Splits) else ["train"]
    check_pattern(where, splits)
    format, shards = file_format(options["format"], path), options["shards"]
    if shards not in (None, 1) and not is_numbered(path):
        raise SchemaError(
            f"expected one shard for one file, got {shards}", where, "Number them: train-{000..}.tfrecord"
        )
    folder = _hidden(where)
    taken = [name for split in splits if os.path.lexists(name := next(numbered(where.replace(SPLIT, split))))]
    if taken and not options["overwrite"] and not folder.exists():
        raise StorageError(
            f"expected a new file, got one that is there - at {taken[0]}. Say overwrite=True to replace it"
        )
    if is_numbered(path):
        built = build(source, folder, **{**options, "shards": PARTS, "format": TFRecord()})
        written = _cut_into_files(built, folder, path, format, options)
    else:
        built = build(source, folder, **{**options, "shards": 1, "format": format})
        written = {split: [where.replace(SPLIT, split)] for split in built.manifest.splits}
        for split, (shard,) in built.manifest.splits.items():
            os.makedirs(os.path.dirname(written[split][0]) or ".", exist_ok=True)
            move(str(folder / shard.file), written[split][0])
    shutil.rmtree(folder)
    Dataset.__init__(built, open_written(path, written, built.schema))
    return built


def _cut_into_files(
    built: Built, folder: Path, path: Path, format: Format, options: dict[str, Any]
) -> dict[str, list[str]]:
    """Deal the records of a dataset out into files."""
    records = {
        split: RecordFiles(files := [str(folder / shard.file) for shard in parts], built.schema, files, open_shard)
        for split, parts in built.manifest.splits.items()
    }
    engine = options["engine"] or Local()
    meter = Meter(engine.progress)
    meter.begin("writing files", sum(map(len, records.values())))
    said: dict[str, Any] = {"shards": options["shards"], "sync": getattr(engine, "sync", True)}
    return write_files(records, path, format, **said, overwrite=True, progress=meter)


def _hidden(pattern: str) -> Path:
    """The folder beside the files in which they are built, before the first name that is not fixed."""
    fixed = Path(pattern.partition("{")[0] + "x").parent
    rest = os.path.relpath(pattern, fixed).replace(os.sep, "-")
    return fixed / f".{rest}.build"


def file_format(format: Any, path: Path) -> Format:
    """The one that the files are named after, with the options that were given."""
    name = SUFFIXES[path.suffix]
    if isinstance(format, Sequence) and not isinstance(format, str):
        if len(format) != 1:
            raise SchemaError("expected one format for files, got several", str(path))
        format = format[0]
    if isinstance(format, str) and format in ("tfrecord", name):  # the first of them: that is what nobody has said
        return FORMATS[name]()
    if not isinstance(format, FORMATS[name]):
        raise SchemaError(f"expected {FORMATS[name].__name__}(...) for such files, got {format!r}", str(path))
    return format
