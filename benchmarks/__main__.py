"""`python -m benchmarks`: measure, print one table, save JSON.

Exit code 1 when a must is missed by more than the spread, or when we have no figure for a row; 2 for an unknown row.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine, report, suite
from benchmarks.data import FULL, QUICK, cache_folder
from benchmarks.report import Report
from benchmarks.rows import Row, select
from benchmarks.runner import Plan, measure

SECONDS = {FULL.name: 60.0, QUICK.name: 10.0}  # that a row takes, about


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measure Penstock against its peers.")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="names of rows, or how they begin; all when none is given"
    )
    parser.add_argument("--list", action="store_true", help="print the names of all rows")
    parser.add_argument(
        "--quick", action="store_true", help="little data and short runs: does it work, not how fast is it"
    )
    parser.add_argument(
        "--repetitions", type=int, metavar="N", help="repetitions of each contender (default 7, quick 3)"
    )
    parser.add_argument(
        "--threads", type=int, default=2, metavar="N", help="threads and cores on each side (default 2)"
    )
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), metavar="DIR", help="where data and results are kept"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where the JSON goes (default: latest.json in the cache)"
    )
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing: show the JSON of an earlier run")
    style = parser.add_mutually_exclusive_group()
    style.add_argument("--json", action="store_true", help="print the JSON in place of the table")
    style.add_argument("--markdown", action="store_true", help="print a Markdown table")
    return parser.parse_args(words)


def run(rows: Sequence[Row], plan: Plan) -> Report:
    """Measure the rows while a bar shows how far it is, or lines do where there is no terminal."""
    where = machine.describe()
    minutes = max(1, round(len(rows) * SECONDS[plan.size] / 60))
    about = f"about {minutes} minute{'s' * (minutes != 1)} on two cores, and more the first time, which makes the data"
    print(f"{len(rows)} of {len(suite.ROWS)} rows: {about}", file=sys.stderr)
    steps = sum((plan.rounds(row) + 1) * len(row.contenders) for row in rows)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    screen, results = Console(stderr=True), []
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=steps)
        for number, row in enumerate(rows, 1):
            if not screen.is_terminal:
                print(f"{number:3} {row.name}: {row.title}", file=sys.stderr)
            results.append(measure(row, plan, lambda text: bar.update(task, advance=1, description=text)))
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": where,
        "settings": {
            "size": plan.size,
            "repetitions": plan.repetitions,
            "seconds": plan.seconds,
            "threads": plan.threads,
        },
        "rows": results,
    }


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    try:
        rows = select(suite.ROWS, options.rows)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.list:
        for row in rows:
            print(f"{row.name:20} {row.title}")
        return 0
    if options.show:
        made: Report = json.loads(options.show.read_text())
        output = options.show
    else:
        size = QUICK if options.quick else FULL
        repetitions = options.repetitions or (3 if options.quick else 7)
        seconds = 0.02 if options.quick else 0.5
        made = run(rows, Plan(size.name, options.cache, repetitions, seconds, options.threads))
        output = options.output or options.cache / ("latest-quick.json" if options.quick else "latest.json")
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(made, indent=2) + "\n")
    failed = report.failures(made)
    if options.json:
        print(json.dumps(made, indent=2))
    elif options.markdown:
        print(report.markdown(made))
    else:
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(report.table(made))
        for sentence in report.about(made):
            console.print(sentence, style="dim", highlight=False)
        console.print(f"JSON: {output}", style="dim", highlight=False)
    for failure in failed:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
