"""penstock verify: every byte looked at."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from ..dataset.plain_files import check_complete
from ..records.inspect import another_kind, counted, is_foreign, size_text
from ..records.shard import Report
from .datasets import Checked, Checks, Told, is_dataset, metadata_problems, shards_of
from .errors import DAMAGED, WELL, Command, expand_all, for_each
from .output import Bar, console, fits, print_json

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


def _as_json(checked: Checked) -> dict[str, Any]:
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
