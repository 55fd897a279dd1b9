"""penstock info: what files hold."""

from __future__ import annotations

import os
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np
from rich.markup import escape
from rich.table import Table

from ..dataset.manifest import Manifest
from ..dataset.plain_files import read_schema
from ..dataset.provenance import place_of_record, places_of
from ..errors import CorruptionError, SchemaError, StorageError
from ..loading.dataset import load
from ..records.index import sidecar_path
from ..records.inspect import SAMPLE, byte_kind, counted, first_records, infer_schema, opening, size_text
from ..records.shard import Records, ShardReader, open_shard
from ..records.tar import sampled_schema
from ..schema.schema import Schema
from ..storage.open import open_store
from ..storage.store import is_url
from .errors import WELL, Command, for_each
from .output import (
    Bar,
    console,
    dataset_json,
    fits,
    opened_json,
    print_dataset,
    print_json,
    print_opened,
    schema_table,
)
from .paths import check_there, expand_all, is_dataset, manifest_of, shard_entries


def check_sizes(path: str, manifest: Manifest) -> None:
    """That the shards are as large as they should be."""
    entries = shard_entries(path, manifest)
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


FRAME = 16  # bytes that a frame adds to its record


@dataclass(frozen=True)
class About:
    """What one file holds."""

    path: str
    size: int
    format: str
    compression: str | None
    records: int
    sizes: np.ndarray[Any, Any]
    indexed: bool
    schema: Schema | None
    known: bool  # it stands beside the file
    damaged: bool  # from its first record on
    kind: str = ""  # of the first record's bytes, where they are no tf.Example

    def smallest_median_largest(self) -> tuple[int, int, int]:
        """Sizes of records."""
        if not len(self.sizes):
            return (0, 0, 0)
        return (int(self.sizes.min()), int(np.median(self.sizes)), int(self.sizes.max()))


def look(path: str, bar: Bar) -> About:
    """Finds every record of a file, and looks into the first ones."""
    with opening(path):
        reader = open_shard(path, progress=bar)
    damaged, tar, kind, records = False, False, "", Records([])
    try:
        told = read_schema([path])
        tar = reader.format == "tar"
        if tar:
            schema = told or sampled_schema([path])
        else:
            records, damage = first_records(path, SAMPLE)
            damaged = damage is not None and not len(records)
            schema = told or infer_schema(records)
    except (CorruptionError, SchemaError):
        told = schema = None
        kind = "" if damaged or tar else next(map(byte_kind, records), "")
    indexed = sidecar_path(path).exists()
    size = os.path.getsize(path)
    sizes = record_sizes(reader)
    known = told is not None
    held = (reader.format, reader.compression, len(reader), sizes)
    return About(path, size, *held, indexed, schema, known, damaged, kind)


def record_sizes(reader: ShardReader) -> np.ndarray[Any, Any]:
    """Of all records: a TFRecord file has them in its frames, from other files a sample is read."""
    if reader.format == "tfrecord":
        return np.diff(reader.offsets.astype(np.int64)) - FRAME
    some = range(0, len(reader), max(1, len(reader) // SAMPLE))
    return np.array([len(record) for record in reader[some]], np.int64)


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--key", help="Of a dataset: where the records stand that were made from the example of this key.")
@click.option(
    "--record", metavar="SPLIT:NUMBER", help="Of a dataset: the key of the example that a record was made from."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file and line.")
def info(files: tuple[str, ...], key: str | None, record: str | None, as_json: bool) -> int:
    """Show what each FILE holds.

    Its records and their sizes, its compression, its schema, and whether it has an index.

    Of a dataset's directory: its splits and its schema, as the manifest has them. One that TFDS prepared, that Datum
    exported, or that has record files alone is opened for it, as `load` does.

    Frame headers are checked on the way, data is not: that is what `penstock verify` does.
    """
    found: list[About] = []
    paths = expand_all(files)
    if key is not None or record is not None:
        return _show_places(paths, key, record, as_json=as_json)
    with Bar(sorted(paths, key=is_dataset, reverse=True)) as bar:  # the table of files comes last

        def work(path: str) -> int:
            check_there(path)
            if is_dataset(path):
                _show_dataset(path, as_json=as_json, alone=len(paths) == 1)
            else:
                found.append(look(path, bar))
            return WELL

        code = for_each(bar, work, as_json=as_json)
    if as_json:
        for about in found:
            print_json(_as_json(about))
    elif found:
        _print(found)
    return code


def _show_places(paths: list[str], key: str | None, record: str | None, *, as_json: bool) -> int:
    if len(paths) != 1 or (key is None) == (record is None):
        raise click.UsageError("--key KEY or --record SPLIT:NUMBER asks one dataset")
    check_there(paths[0])
    if not is_dataset(paths[0]):
        raise StorageError(f"expected a dataset, which knows the keys of its records, got a file - at {paths[0]}")
    if key is not None:
        places = places_of(paths[0], key)
    else:
        match = re.fullmatch(r"([\w-]+):(\d+)", record or "")
        if match is None:
            raise click.UsageError(f"expected a record such as train:17, got {record!r}")
        places = [place_of_record(paths[0], match[1], int(match[2]))]
    for place in places:
        if as_json:
            print_json(asdict(place))
        else:
            click.echo(str(place))
    return WELL


def _show_dataset(path: str, *, as_json: bool, alone: bool) -> None:
    manifest = manifest_of(path)
    heading = not (alone or as_json)
    if manifest is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fields that can't be read: they are shown
            dataset = load(path)
        if heading:
            _print_heading(path, dataset.name)
        print_json(opened_json(path, dataset)) if as_json else print_opened(dataset)
    else:
        check_sizes(path, manifest)
        if heading:
            _print_heading(path, manifest.name)
        print_json(dataset_json(path, manifest)) if as_json else print_dataset(manifest)
    if heading:
        console().print()


def _print_heading(path: str, name: str) -> None:
    """Which of several datasets comes below: its path, and its name where that is another."""
    called = "" if os.path.basename(path.rstrip("/")) == name else f" [dim]({escape(name)})[/dim]"
    console().print(f"[bold]{escape(path)}[/bold]{called}", soft_wrap=True)


def _as_json(about: About) -> dict[str, object]:
    smallest, median, largest = about.smallest_median_largest()
    return {
        "file": about.path,
        "format": about.format,
        "records": about.records,
        "bytes": about.size,
        "compression": about.compression,
        "record_bytes": {"min": smallest, "median": median, "max": largest},
        "index": about.indexed,
        "schema": about.schema.to_json() if about.schema is not None else None,
    }


def _print_lines(about: About) -> None:
    """A row of the table for a screen that is too narrow for it: the name has a line of its own."""
    smallest, median, largest = map(size_text, about.smallest_median_largest())
    held = f"{counted(about.records, 'record')}, {size_text(about.size)}"
    told = f"compression {about.compression or 'none'}, index {'yes' if about.indexed else 'no'}"
    screen = console()
    screen.print(f"[bold]{escape(about.path)}[/bold]", soft_wrap=True)
    screen.print(f"  {held}, {told}")
    if about.records:
        screen.print(f"  record min {smallest}, median {median}, max {largest}")


def _print(found: list[About]) -> None:
    screen = console()
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("file", no_wrap=True)
    for heading in ("records", "size", "record min", "median", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("compression")
    table.add_column("index")
    for about in found:
        sizes = map(size_text, about.smallest_median_largest())
        words = (about.compression or "none", "yes" if about.indexed else "no")
        table.add_row(escape(about.path), f"{about.records:,}", size_text(about.size), *sizes, *words)
    records, size = sum(about.records for about in found), sum(about.size for about in found)
    if len(found) > 1:
        table.add_section()
        table.add_row(f"{len(found)} files", f"{records:,}", size_text(size), style="bold")
    if fits(screen, table):
        screen.print(table)
    else:
        for about in found:
            _print_lines(about)
        if len(found) > 1:
            screen.print(f"[bold]{len(found)} files: {counted(records, 'record')}, {size_text(size)}[/bold]")
    schemas: dict[Schema | None, list[str]] = {}
    for about in found:
        if about.records:
            schemas.setdefault(about.schema, []).append(about.path)
    if len(schemas) == 0:
        screen.print("\n[dim]there are no records, and so no schema[/dim]")
    for schema, paths in schemas.items():
        screen.print()
        where = (
            ""
            if len(schemas) == 1
            else f" of {escape(paths[0])}" + (f" and {len(paths) - 1} more" if paths[1:] else "")
        )
        if not schema:
            broken = next((about.path for about in found if about.damaged), None)
            kind = next((f": the first one is {about.kind}" for about in found if about.kind), "")
            said = f"are no tf.Example{kind}{'' if broken is None else f', or damaged: penstock verify {broken}'}"
            screen.print(f"[dim]the records{where} {escape(said)}[/dim]", soft_wrap=True)
            continue
        shown = "" if all(about.known for about in found) else ", as the first records show it"
        screen.print(f"[dim]schema{where}{shown}[/dim]", soft_wrap=True)
        screen.print(schema_table(schema))
