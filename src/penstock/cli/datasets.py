"""Datasets on the command line: what a directory holds, and whether its files are what the manifest says."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from ..dataset.manifest import (
    KEYS_SUFFIX,
    MANIFEST,
    Info,
    Manifest,
    ShardEntries,
    ShardEntry,
    read_manifest,
    shard_column,
    shard_files,
)
from ..dataset.open import files_without_manifest, names_files, remote_manifest
from ..dataset.plain_files import read_schema
from ..dataset.provenance import file_problems, read_keys
from ..dataset.tfds import INFO, metadata_files, read_prepared
from ..dataset.tfds_features import FEATURES, label_files, labels_of, schema_of
from ..errors import CorruptionError, NotFoundError, PenstockError
from ..loading.dataset import Dataset
from ..records.codec import default_threads
from ..records.index import IndexReport, check_indexes, checksum
from ..records.inspect import size_text
from ..records.shard import Report, verify
from ..storage.files import beside, read_bytes
from ..storage.open import open_store
from ..storage.store import is_url, join_url, url_name
from .errors import check_there
from .output import Bar, console, schema_rows

REWRITE = "Run the same build again: it rewrites the file. Or restore the file from a copy"
Told = ShardEntry | int | None  # of a shard: what our manifest says, how many records TFDS says that it has, or nothing


def is_dataset(path: str) -> bool:
    """Whether a path is a directory, or a URL of what should be one."""
    return not names_files(path) if is_url(path) else os.path.isdir(path)


def manifest_of(path: str) -> Manifest | None:
    """The manifest of a dataset; one of TFDS, of Datum, or of files alone has none."""
    if is_url(path):
        return remote_manifest(path)
    return read_manifest(Path(path)) if os.path.isfile(os.path.join(path, MANIFEST)) else None


def shards_of(path: str) -> dict[str, Told]:
    """The shards of a dataset in all its formats, by path or URL."""
    manifest = manifest_of(path)
    return dict(files_without_manifest(path) if manifest is None else _entries(path, manifest))


def _entries(path: str, manifest: Manifest) -> dict[str, ShardEntry]:
    join = join_url if is_url(path) else os.path.join
    return {join(path, shard.file): shard for shard in manifest.shards()}


def metadata_problems(path: str) -> dict[str, str]:
    """What is wrong with each metadata file of a dataset that has a manifest, by path or URL."""
    manifest = manifest_of(path)
    if manifest is None:
        return {}
    join = join_url if is_url(path) else os.path.join
    problems = older_problems(path, manifest) if manifest.files is None else file_problems(_place(path), manifest)
    classes = {file: names for file, names in label_files(manifest.schema).items() if names is not None}
    return {
        join(path, file): f"{problem}{_changed_line(beside(_place(path), file), classes.get(file))}. {REWRITE}"
        for file, problem in problems.items()
    }


def older_problems(path: str, manifest: Manifest) -> dict[str, str]:
    """The same where the manifest has no checksums: what TFDS would read is compared with the manifest."""
    expected = metadata_files(manifest)
    try:
        prepared = read_prepared(_place(path)) if expected else None
    except NotFoundError:
        return {}  # a dataset from before these files were written
    except CorruptionError as error:
        return {os.path.basename(error.path or INFO): str(error)}
    problems = {}
    if prepared is not None:
        splits = {split: [records for _, records in files] for split, files in prepared.splits.items()}
        if splits != {split: shard_column(shards, "records") for split, shards in manifest.splits.items()}:
            problems[INFO] = "expected the splits of the manifest, got others"
        classes = {path: field.classes for path, field in labels_of(manifest.schema)}
        if prepared.schema != schema_of(json.loads(expected[FEATURES]), classes.get)[0]:
            problems[FEATURES] = "expected the fields and class names of the manifest, got others"
    return problems


def _place(path: str) -> Path | str:
    return path if is_url(path) else Path(path)


def _changed_line(path: Path | str, expected: str | None) -> str:
    """Where a file of class names differs from the names that the manifest has."""
    if expected is None:
        return ""
    try:
        found = read_bytes(path).decode(errors="replace").split("\n")
    except FileNotFoundError:
        return ""
    lines = zip_longest(expected.split("\n"), found)
    return next((f": line {n} is {b!r}, the class is {a!r}" for n, (a, b) in enumerate(lines, 1) if a != b), "")


def check_sizes(path: str, manifest: Manifest) -> None:
    """That the shards are as large as they should be."""
    entries = _entries(path, manifest)
    with ThreadPoolExecutor(16) as pool:
        for (file, shard), size in zip(entries.items(), pool.map(_size, entries), strict=True):
            if size != shard.bytes:
                got = "nothing" if size is None else f"{size} bytes"
                raise CorruptionError(f"expected a shard of {shard.bytes} bytes, got {got}", file)


def _size(path: str) -> int | None:
    try:
        if not is_url(path):
            return os.path.getsize(path)
        store, name = open_store(path)
        return store.entry(name).size
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class Checked:
    """What a look at every byte of a file found; `problems` is what differs from the manifest."""

    report: Report
    indexes: list[IndexReport]
    problems: list[str]

    @property
    def well(self) -> bool:
        """Whether all is as it should be."""
        return self.report.whole and not self.problems and all(index.fits for index in self.indexes)


def check(path: str, told: Told, bar: Bar | None = None) -> Checked:
    """Look at every byte of a file, of its indexes, and of what belongs to it as a shard of a dataset."""
    if is_url(path):
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            checked = check(_copied(path, Path(folder)), told, bar)
            indexes = [replace(index, path=path + index.path[len(checked.report.path) :]) for index in checked.indexes]
            return replace(checked, report=replace(checked.report, path=path), indexes=indexes)
    if told is not None and not os.path.exists(path):
        size = f"{told} records" if isinstance(told, int) else f"{told.bytes} bytes"
        raise CorruptionError(f"expected a shard of {size}, got nothing", path)
    check_there(path)
    report = verify(path, progress=bar)
    indexes = check_indexes(path, report.whole, progress=bar)
    if isinstance(told, int):
        found = f"{INFO} says {told} records, the shard has {report.records}"
        return Checked(report, indexes, [] if told == report.records else [found])
    return Checked(report, indexes, _schema_problems(path) if told is None else _problems(path, told, report))


def _copied(url: str, folder: Path) -> str:
    """A shard of a store as it is there now, and what stands beside it: not from a cache."""
    for file in shard_files(url_name(url)):
        store, name = open_store(join_url(url.rpartition("/")[0], file))
        with suppress(FileNotFoundError):
            store.fetch(name, folder / file, size=store.entry(name).size)
    return str(folder / url_name(url))


def _schema_problems(path: str) -> list[str]:
    """What is wrong with the schema beside a file."""
    try:
        read_schema([path])
    except CorruptionError as error:
        return [str(error)]
    return []


def _problems(path: str, entry: ShardEntry, report: Report) -> list[str]:
    problems = []
    keys_path = Path(path + KEYS_SUFFIX)
    for what, expected, got in (
        ("bytes", entry.bytes, os.path.getsize(path)),
        ("records", entry.records, report.records),
        ("as its CRC-32C", f"{entry.crc32c:#010x}", f"{checksum(Path(path)):#010x}"),
    ):
        if expected != got:
            problems.append(f"the manifest says {expected} {what}, the shard has {got}")
    try:
        if entry.keys is not None and keys_path.exists() and entry.keys != checksum(keys_path):
            problems.append(f"the manifest says {entry.keys:#010x} as the CRC-32C of {keys_path.name}, it has another")
        keys = len(read_keys(Path(path)))
        if keys != entry.records:
            problems.append(f"the manifest says {entry.records} records, beside the shard are {keys} keys")
    except (PenstockError, OSError) as error:
        problems.append(str(error))
    return problems


class Checks:
    """The checks of many files, some ahead of the one that is asked for."""

    def __init__(self, entries: dict[str, Told], bar: Bar) -> None:
        self._entries = entries
        self._bar = bar
        self._pool = ThreadPoolExecutor(default_threads()) if len(entries) > 1 else None
        self._ahead: dict[str, Future[Checked]] = {}
        if self._pool is not None:
            self._ahead = {path: self._pool.submit(check, path, entry) for path, entry in entries.items()}

    def __call__(self, path: str) -> Checked:
        if path in self._ahead:
            self._bar(0)
            return self._ahead[path].result()
        return check(path, self._entries[path], self._bar)

    def close(self) -> None:
        """Drop what has not begun."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


# What people see
def split_table(rows: list[tuple[str, str, str, str]]) -> Table:
    """A row for each split: name, examples, shards, size."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("split")
    for heading in ("examples", "shards", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def print_dataset(manifest: Manifest) -> None:
    """What a dataset says of itself, its splits, and its schema."""
    also = [
        f"[dim]also in {format}, {size_text(sum(s.bytes for shards in splits.values() for s in shards))}[/dim]"
        for format, splits in manifest.alternatives.items()
    ]
    screen = console()
    for line in info_lines(manifest.info):
        screen.print(line, soft_wrap=True)
    screen.print(_splits_table(_splits_json(manifest.splits)))
    for line in also:
        screen.print(line)
    screen.print()
    screen.print(schema_table(manifest.schema))


def print_opened(dataset: Dataset) -> None:
    """The same, of a dataset without a manifest."""
    screen = console()
    screen.print(_splits_table(dataset.info()["splits"]))
    screen.print()
    screen.print(schema_table(dataset.schema))
    for field, reason in dataset.unread.items():
        screen.print(f"[dim]{escape(field)} can't be read: {escape(reason)}[/dim]", soft_wrap=True)


def _splits_table(counts: Mapping[str, Mapping[str, int]]) -> Table:
    return split_table(
        [(name, f"{of['examples']:,}", f"{of['shards']:,}", size_text(of["bytes"])) for name, of in counts.items()]
    )


def info_lines(info: Info) -> list[str]:
    """What people should know of a dataset, line by line, with an empty one at the end."""
    said = [escape(" ".join(info.description.split()))] if info.description else []
    said += [f"[dim]supervised: {escape(' -> '.join(info.supervised))}[/dim]"] if info.supervised else []
    said += [f"[dim]cite: {escape(' '.join(info.citation.split()))}[/dim]"] if info.citation else []
    if not said and info.version is None:
        return []
    return [f"[bold]{escape(' '.join(filter(None, (info.name, info.version))))}[/bold]", *said, ""]


def schema_table(schema: Any) -> Table:
    """A row for each field."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(style="bold")
    table.add_column(style="cyan")
    for row in schema_rows(schema):
        table.add_row(*map(escape, row))
    return table


def dataset_json(path: str, manifest: Manifest) -> dict[str, Any]:
    """What a dataset is, plain."""
    return {
        "dataset": path,
        "name": manifest.name,
        "format": manifest.format,
        "splits": _splits_json(manifest.splits),
        "alternatives": {format: _splits_json(splits) for format, splits in manifest.alternatives.items()},
        "info": manifest.info.to_json(),
        "schema": manifest.schema.to_json(),
    }


def opened_json(path: str, dataset: Dataset) -> dict[str, Any]:
    """The same, of a dataset without a manifest."""
    return {"dataset": path, **dataset.info(), "unread": dataset.unread}


def _splits_json(splits: ShardEntries) -> dict[str, dict[str, int]]:
    return {
        split: {
            "examples": sum(s.records for s in shards),
            "shards": len(shards),
            "bytes": sum(s.bytes for s in shards),
        }
        for split, shards in splits.items()
    }
