"""penstock salvage: the whole records of a damaged file, in a new one."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import click

from ..dataset.plain_files import read_schema, write_schema
from ..dataset.record_files import format_named
from ..errors import CorruptionError, NotFoundError, StorageError
from ..records.array_record import COMPRESSIONS, ArrayRecord, salvage_array_records
from ..records.inspect import another_kind, counted, first_records, is_foreign, size_text
from ..records.shard import Progress, Report, verify
from ..records.tfrecord import TFRecord, salvage_records
from ..schema.schema import Schema
from ..storage.files import local_path
from .errors import DAMAGED, WELL, Command
from .output import Bar, console, print_json
from .paths import check_there
from .verify import print_gaps


@click.command(cls=Command)
@click.argument("file")
@click.argument("out")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "zlib", *filter(None, COMPRESSIONS)]),
    help="How OUT is compressed: as its format is unless told.",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT if it is there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with every gap.")
def salvage(file: str, out: str, compression: str | None, overwrite: bool, as_json: bool) -> int:
    """Copy the whole records of FILE to OUT, and report the rest.

    OUT is an ArrayRecord file if it is called like one (saved.array_record), else a TFRecord file, whatever FILE is.

    FILE is only read. OUT appears when it is complete. Exit code 0: nothing was lost. 1: something was.
    """
    local_path(file, "FILE")
    local_path(out, "OUT")
    check_there(file)
    if os.path.exists(out):
        if os.path.samefile(file, out):
            raise StorageError(f"expected another file to write to, got FILE itself - at {out}")
        if not overwrite:
            raise StorageError(f"expected a new file, got one that is there - at {out}. --overwrite replaces it")
    folder = os.path.dirname(out) or "."
    if not os.path.isdir(folder):
        raise NotFoundError(
            f"expected a folder to write {os.path.basename(out)} to, got none at {folder}. Make it first"
        )
    with Bar([file]) as bar:
        for path in bar:
            _check_kind(path, bar)
            schema = _known_schema(path)
            report = _copied(path, out, compression, bar)
            if schema is not None:
                write_schema(out, schema)
    lost = sum(gap.bytes for gap in report.gaps)
    if as_json:
        entry = {"file": file, "out": out, "records": report.records, "record_bytes": report.record_bytes}
        print_json({**entry, "lost_bytes": lost, "gaps": [vars(gap) for gap in report.gaps]})
    else:
        screen = console()
        saved = f"{counted(report.records, 'record')}, {size_text(report.record_bytes)}"
        told = "nothing" if report.whole else size_text(lost) if lost else "what comes after them"
        screen.print(f"{out}: {saved}; {told} lost", markup=False, soft_wrap=True)
        if not report.whole:
            print_gaps([report])
    return WELL if report.whole else DAMAGED


def _check_kind(path: str, progress: Progress) -> None:
    """Refuse a file that does not begin as one of ours does and has no whole record later either."""
    _, damage = first_records(path, 1)
    if damage is not None and is_foreign(str(damage)) and not verify(path, progress=progress).records:
        raise another_kind(path)


def _known_schema(path: str) -> Schema | None:
    """What stands beside a file, if it does, and is whole."""
    with suppress(CorruptionError):
        return read_schema([path])
    return None


def _copied(path: str, out: str, compression: str | None, progress: Progress) -> Report:
    said: dict[str, Any] = (
        {} if compression is None else {"compression": None if compression == "none" else compression}
    )
    if format_named(os.path.basename(out)) == "array_record":
        return salvage_array_records(path, out, ArrayRecord(**said), progress=progress)
    return salvage_records(path, out, TFRecord(**said), progress=progress)
