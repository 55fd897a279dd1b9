"""`convert`: the records of a dataset in another format, compression, or size of shards. None of them is decoded."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._core import hash_records
from ..dataset.downloads import Fetcher, bring
from ..dataset.manifest import KEYS_SUFFIX, MANIFEST
from ..dataset.open import Opened, names_files, open_dataset, open_manifest
from ..dataset.plain_files import schema_path
from ..dataset.provenance import read_keys
from ..dataset.shards import ShardFile, ShardFiles, bring_beside
from ..dataset.tfds import INFO, dataset_directory, is_tfds_name
from ..errors import CorruptionError, PenstockError, SchemaError
from ..loading.dataset import Dataset
from ..records.shard import open_shard
from ..schema.schema import Fields, Schema
from ..sources.files import short_names
from ..sources.fingerprint import digest
from ..sources.record_files import RecordFiles
from ..sources.splits import Splits
from ..sources.tar import TarSamples, samples_of
from ..storage.cache import Cache
from ..storage.files import LocalCopy, checked_path, is_below, join_path
from ..storage.open import open_store
from ..storage.paths import SPLIT, Paths, expand, names_record_files, path_list
from ..storage.store import is_url
from .api import Built, Formats, build
from .engines.engine import Advance, Engine, Meter
from .engines.local import Local
from .targets.file_commit import staged_files
from .targets.plain_files import (
    alone,
    at_once,
    check_apart,
    file_format,
    open_written,
    schema_texts,
    steps,
    write_files,
)
from .targets.tars import names_tars, write_tars


def convert(
    source: Paths,
    path: str | Path,
    *,
    format: Formats = "tfrecord",
    shards: int | None = None,
    schema: Schema | Fields | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Write the records of a dataset, or of record files, anew: the same records in the same order, with the same keys.

    convert("data/photos", "data/photos_ar", format="array_record")
    convert("theirs/*.tfrecord", "data/theirs", format=ArrayRecord(group_size=64), shards=8)
    convert("data/photos", "out-{00000..}.tar")            # tars that webdataset reads
    convert("data/photos", "{split}/{0..}.tfrecord")       # plain files, each as large as shard_bytes at most

    What `load` opens can be converted; schema, name and description go along. The options are those of `build`, and so
    is what happens when it is cut off. At the end all that was written is read again, and compared with the source.
    """
    here = engine or Local(workers=workers)
    if (names_tars(path) or names_record_files(path)) and not isinstance(here, Local):
        raise SchemaError("expected files to be written by this machine, got another engine", str(path))
    path = str(path) if is_tfds_name(path) else checked_path(path, "convert")
    if is_url(path) and (names_tars(path) or names_record_files(path)):
        asked: dict[str, Any] = {"format": format, "shards": shards, "schema": schema}
        asked |= {"workers": workers, "engine": engine, "overwrite": overwrite}
        with staged_files(path, overwrite=overwrite, made_from=_objects_of(source)) as local:
            known = convert(source, local, **asked).schema
        return Dataset(replace(open_dataset(path, None if names_tars(path) else known, None), path=path))
    if names_tars(path):
        said: dict[str, Any] = {"format": format, "shards": shards, "schema": schema, "overwrite": overwrite}
        with alone(Path(path)):
            return write_tars(source, path, **said, progress=here.progress)
    opened = open_dataset(source, schema, None)
    told = opened.manifest or opened.prepared
    info = told.info if told else None
    places = {file.place.rpartition("/")[0] for files in opened.splits.values() for file in files}
    directory = str(dataset_directory(path, info))
    if any(is_below(directory, place) and is_below(place, directory) for place in places):
        raise SchemaError("expected another directory to convert into, got that of the source", str(path))
    sources = {split: _records(files, opened) for split, files in opened.splits.items()}
    if names_record_files(path) and isinstance(here, Local):
        check_apart(str(path), (file.path for files in opened.splits.values() for file in files))
        with alone(Path(path)):
            return _convert_to_files(sources, opened, Path(path), format, shards, overwrite, here)
    built = build(
        Splits(sources),
        path,
        format=format,
        shards=shards,
        **_order(opened),
        schema=next(iter(sources.values())).schema,
        workers=workers,
        engine=engine,
        info=info,
        overwrite=overwrite,
    )
    _verify(built.path, list(_comparisons(built)), sources, here)
    return built


def _objects_of(source: Paths) -> list[str]:
    """Return the URLs of the record files that a source in a store consists of."""
    return [url for text in path_list(source) if is_url(text) and names_files(text) for url in expand(text)]


def _convert_to_files(
    sources: Mapping[str, RecordFiles | TarSamples],
    opened: Opened,
    path: Path,
    format: Formats,
    shards: int | None,
    overwrite: bool,
    engine: Local,
) -> Dataset:
    """Write plain files, with their indexes and their schema beside them."""
    meter = Meter(engine.progress)
    meter.begin("writing", sum(map(len, sources.values())))
    schema = next(iter(sources.values())).schema
    written = file_format(format, path, shards)
    read = {
        split: [(file.path, os.path.getsize(file.path)) for file in files] for split, files in opened.splits.items()
    }
    begun = digest(repr((read, written, shards, schema)).encode())
    said: dict[str, Any] = {"shards": shards, "overwrite": overwrite, "sync": engine.sync, "begun": begun}
    texts = schema_texts(str(path), sources, schema)
    files = write_files(sources, path, written, **said, texts=texts, advance=meter)
    opened = open_written(path, files, schema)
    items = [
        _Comparison(split, (file,), first, file.records)
        for split, written in opened.splits.items()
        for file, first in zip(written, itertools.accumulate(written.records, initial=0), strict=False)
    ]
    _verify(path, items, sources, engine)
    return Dataset(opened)


def _order(opened: Opened) -> dict[str, Any]:
    """Return the order of the records; if it came from keys and a seed, that order and seed."""
    options = opened.manifest.options if opened.manifest else {}
    order = options.get("order", "source")
    return {"order": order, "seed": options.get("seed", 0)} if order == "hash" else {"order": order}


def _records(files: ShardFiles, opened: Opened) -> RecordFiles | TarSamples:
    """Return the records of a split as a source, with the keys that they were built under."""
    paths = [file.path for file in files]
    keys = None
    if any(file.remote is not None for file in files):
        Fetcher(files).get(paths)
    if files[0].rules is not None:
        return samples_of([LocalCopy(path) for path in paths], opened.schema, splits=False)[""]
    if opened.manifest is not None:
        for file in files:
            if file.remote is not None:
                bring_beside(file, KEYS_SUFFIX)
        keys = [key for path in paths for key in read_keys(Path(path))]
    return RecordFiles(paths, opened.schema, short_names(paths), open_shard, keys)


# Whether it is the same
@dataclass(frozen=True)
class _Comparison:
    """A shard that was written, in all formats, and the number of its first record in the split."""

    split: str
    files: tuple[ShardFile, ...]
    first: int
    records: int

    def __str__(self) -> str:
        return self.files[0].place


def _verify(
    path: Path | str, items: list[_Comparison], sources: Mapping[str, RecordFiles | TarSamples], engine: Engine
) -> None:
    """Read all that was written, and compare it. What is not the same is no dataset."""
    meter = Meter(engine.progress)
    meter.begin("comparing", sum(item.records for item in items))
    try:
        for split, source in sources.items():
            count = sum(item.records for item in items if item.split == split)
            if count != len(source):
                raise CorruptionError(f"expected the {len(source)} records of the source, got {count}", split)
        with (
            engine.start(path) as workers,
            closing(workers.map(_compare, sources, items, meter)) as results,
        ):
            for _ in results:
                pass
    except PenstockError:
        _unpublish(path, items)
        raise


def _unpublish(path: Path | str, items: list[_Comparison]) -> None:
    if names_record_files(path):
        for item in items:
            Path(item.files[0].path).unlink(missing_ok=True)
            schema_path(str(path).replace(SPLIT, item.split)).unlink(missing_ok=True)
        return
    for name in (INFO, MANIFEST):
        store, place = open_store(join_path(str(path), name))
        store.delete(place)


def _comparisons(built: Built) -> Iterator[_Comparison]:
    manifest, cache = built.manifest, None if isinstance(built.path, Path) else Cache()
    formats = [open_manifest(built.path, manifest, format=each, cache=cache).splits for each in manifest.formats]
    for split in built.manifest.splits:
        first = 0
        for same in zip(*(splits[split] for splits in formats), strict=True):
            yield _Comparison(split, same, first, same[0].records)
            first += same[0].records


def _compare(sources: Mapping[str, RecordFiles | TarSamples], item: _Comparison, advance: Advance) -> None:
    """Hash the records of a shard, and those that it was made from."""
    for file in item.files:
        if file.remote is not None:
            bring(file)
    readers = [open_shard(file.path) for file in item.files]
    step = at_once(item.records, max(file.bytes for file in item.files))
    for rows in steps(0, item.records, step):
        records = sources[item.split].records(range(item.first + rows.start, item.first + rows.stop))
        expected = hash_records(records)
        for reader in readers:
            same = hash_records(reader[rows.start : rows.stop]) == expected
            if len(reader) != item.records or not same.all():
                record = rows.start + int(np.argmin(same))
                got = "another one. What was written counts for nothing: convert again"
                raise CorruptionError(
                    f"expected the record of the source, got {got}", f"{reader.path}, record {record}"
                )
        advance(len(records), records.nbytes)
