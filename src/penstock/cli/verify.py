"""penstock verify: every byte looked at."""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from ..dataset.manifest import KEYS_SUFFIX, Manifest, ShardEntry, shard_column, shard_files
from ..dataset.plain_files import check_complete, read_schema
from ..dataset.provenance import file_problems, read_keys
from ..dataset.tfds import INFO, metadata_files, read_prepared
from ..dataset.tfds_features import FEATURES, label_files, labels_of, schema_of
from ..errors import CorruptionError, NotFoundError, PenstockError
from ..records.codec import default_threads
from ..records.index import IndexReport, check_indexes, checksum
from ..records.inspect import another_kind, counted, is_foreign, size_text
from ..records.shard import Report
from ..records.shard import verify as verify_shard
from ..storage.files import beside, read_bytes
from ..storage.open import open_store
from ..storage.store import is_url, join_url, url_name
from .errors import DAMAGED, WELL, Command, for_each
from .output import Bar, console, fits, print_json
from .paths import Told, check_there, expand_all, is_dataset, manifest_of, shards_of

MOST_GAPS = 20  # of one file that the table shows


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file and line, with every gap.")
@click.option("-q", "--quiet", is_flag=True, help="Only what is wrong.")
def verify(files: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Look at every byte of each FILE.

    The indexes beside it are compared with it too. Of a dataset's directory, every shard, its keys and the metadata
    files are compared with the manifest; of one that TFDS prepared, the shards with its counts.

    Exit code 0: all are whole. 1: something is damaged, and the table says what and where. 2: a file could not be read.
    Nothing is changed; `penstock salvage` copies what is whole.
    """
    damaged: list[Report] = []
    entries: dict[str, Told] = {}
    metadata: dict[str, str] = {}
    for path in expand_all(files):
        entries.update(shards_of(path) if is_dataset(path) else {path: None})
        metadata.update(metadata_problems(path) if is_dataset(path) else {})
    for path, problem in metadata.items():
        _print_metadata(path, problem, as_json=as_json)

    with Bar(entries, quiet=quiet) as bar, closing(Checks(entries, bar)) as checks:

        def work(path: str) -> int:
            check_complete([path])
            checked = checks(path)
            if entries[path] is None:
                _check_kind(checked.report)
            if not checked.report.whole:
                damaged.append(checked.report)
            bar.hide()
            if not (quiet and checked.well):
                print_json(_as_json(checked)) if as_json else _print_line(checked)
            return WELL if checked.well else DAMAGED

        code = for_each(bar, work, as_json=as_json)
    if damaged and not as_json:
        print_gaps(damaged)
    return max(code, DAMAGED) if metadata else code


def _print_metadata(path: str, problem: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"file": path, "whole": False, "problems": [problem]})
    else:
        console().print(f"[bold red]damaged[/bold red]  {escape(path)}  {escape(problem)}", soft_wrap=True)


def _check_kind(report: Report) -> None:
    """Refuse a file that has no whole record and does not begin as one: it is none of ours."""
    if not report.records and report.gaps and not report.gaps[0].offset and is_foreign(report.gaps[0].reason):
        raise another_kind(report.path)


def _as_json(checked: Checked) -> dict[str, object]:
    report = checked.report
    found = {
        "file": report.path,
        "whole": report.whole,
        "records": report.records,
        "record_bytes": report.record_bytes,
        "gaps": [vars(gap) for gap in report.gaps],
        "indexes": [{"file": index.path, "fits": index.fits, "problems": index.problems} for index in checked.indexes],
    }
    return {**found, "problems": checked.problems} if checked.problems else found


def _print_line(checked: Checked) -> None:
    screen, report = console(), checked.report
    word = "[green]whole[/green]  " if report.whole else "[bold red]damaged[/bold red]"
    held = f"{counted(report.records, 'record')}, {size_text(report.record_bytes)} of data"
    lost = sum(gap.bytes for gap in report.gaps)
    count = f"{len(report.gaps)} gap{'s' * (len(report.gaps) != 1)}" + (f" of {size_text(lost)}" if lost else "")
    screen.print(f"{word}  {escape(report.path)}  {held}{'' if report.whole else ', ' + count}", soft_wrap=True)
    for problem in checked.problems:
        screen.print(f"         [bold red]not as it was built[/bold red]  {escape(problem)}", soft_wrap=True)
    for index in checked.indexes:
        if index.fits:
            screen.print(f"         [dim]{escape(index.path)} fits[/dim]", soft_wrap=True)
        for problem in index.problems:
            screen.print(
                f"         [bold red]does not fit[/bold red]  {escape(index.path)}: {escape(problem)}", soft_wrap=True
            )


def print_gaps(reports: list[Report]) -> None:
    """What is damaged, and where, below an empty line; on a narrow screen names have lines of their own."""
    screen = console()
    screen.print()
    if fits(screen, table := _gap_table(reports), "reason"):
        screen.print(table)
        return
    for report in reports:
        screen.print(escape(report.path), style="bold", soft_wrap=True)
        screen.print(_gap_table([report], named=False))


def _gap_table(reports: list[Report], *, named: bool = True) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    if named:
        table.add_column("file", no_wrap=True)
    for heading in ("offset", "bytes", "record"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for report in reports:
        name = [escape(report.path)] if named else []
        for gap in report.gaps[:MOST_GAPS]:
            table.add_row(*name, f"{gap.offset}", f"{gap.bytes}", f"{gap.record}", escape(gap.reason))
        if len(report.gaps) > MOST_GAPS:
            more = f"and {len(report.gaps) - MOST_GAPS:,} more: --json lists them all"
            table.add_row(*name, "", "", "", more)
    return table


REWRITE = "Run the same build again: it rewrites the file. Or restore the file from a copy"


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
    report = verify_shard(path, progress=bar)
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
