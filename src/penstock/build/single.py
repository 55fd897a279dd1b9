"""One file of records in place of a dataset's directory: build(source, "train.record")."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import SchemaError, StorageError
from ..load.dataset import Dataset
from ..load.files import open_files
from ..records.formats import FORMATS
from ..records.index import sidecar_path
from ..splitting import Splits
from ..storage import is_url
from .report import Built

SUFFIXES = {".record": "tfrecord", ".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".array_record": "array_record"}


def names_file(path: str | Path) -> bool:
    """Whether a path stands for one file of records."""
    if os.path.splitext(path)[1] not in SUFFIXES:
        return False
    if is_url(path):
        hint = "Build a dataset there, or the file here, and copy it"
        raise SchemaError("expected a folder of a store, got one file of records", str(path), hint)
    return not os.path.isdir(path)


def build_file(build: Callable[..., Built], source: Any, path: Path, options: dict[str, Any]) -> Built:
    """Build a source into one file, with its index beside it. What a build keeps beside shards is not kept.

    It is built in a hidden folder beside the file, where the same build again goes on after it was cut off.
    """
    where = str(path)
    if isinstance(source, Splits) and len(source) > 1:
        raise SchemaError(f"expected one split for one file, got {', '.join(source)}", where, "Build them one by one")
    if options["shards"] not in (None, 1):
        raise SchemaError(f"expected one shard for one file, got {options['shards']}", where)
    if os.path.lexists(path) and not options["overwrite"]:
        raise StorageError(f"expected a new file, got one that is there - at {where}. Say overwrite=True to replace it")
    folder = path.with_name(f".{path.name}.build")
    built = build(source, folder, **{**options, "shards": 1, "format": _format(options["format"], path)})
    (shard,) = built.manifest.shards()
    done = folder / shard.file
    sidecar_path(path).unlink(missing_ok=True)
    os.replace(done, path)
    if sidecar_path(done).exists():
        os.replace(sidecar_path(done), sidecar_path(path))
    shutil.rmtree(folder)
    Dataset.__init__(built, open_files([path], built.schema, None, None))
    return built


def _format(format: Any, path: Path) -> Any:
    """The one that the file is named after, with the options that were given."""
    name = SUFFIXES[path.suffix]
    if isinstance(format, Sequence) and not isinstance(format, str):
        raise SchemaError("expected one format for one file, got several", str(path))
    if isinstance(format, str):
        return name if format == "tfrecord" else format
    if not isinstance(format, FORMATS[name]):
        raise SchemaError(f"expected {FORMATS[name].__name__}(...) for this file, got {format!r}", str(path))
    return format
