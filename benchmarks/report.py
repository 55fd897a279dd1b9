"""What a run leaves: a JSON file, and a table made from it for people or for a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from benchmarks.data import QUICK
from benchmarks.machine import Machine
from benchmarks.rows import FEWEST, OURS, PATIENCE, is_ours


class Measured(TypedDict, total=False):
    """The figures of one contender, or why there are none."""

    figures: list[float]
    median: float
    spread: float
    not_measured: str


class Comparison(TypedDict):
    """Ours against another contender, `peer`; without one, against a limit in the row's unit."""

    peer: str | None
    must: float | None
    aim: float | None
    ratio: float | None
    spread: float | None
    verdict: str


class RowResult(TypedDict):
    """One row, measured."""

    name: str
    title: str
    unit: str
    repetitions: int
    contenders: dict[str, Measured]
    comparisons: list[Comparison]


class Settings(TypedDict):
    """How it was measured."""

    size: str
    repetitions: int
    seconds: float
    threads: int


class Report(TypedDict):
    """One run."""

    date: str
    machine: Machine
    settings: Settings
    rows: list[RowResult]


COLUMNS = ("row", "unit", "ours", "peer", "peer's", "ratio", "spread", "must", "aim", "verdict")
WORDS = {
    "aim": "aim reached",
    "must": "must reached",
    "within spread": "below must, within spread",
    "missed": "MUST MISSED",
}
STYLES = {"aim": "bold green", "must": "green", "within spread": "yellow", "missed": "bold red"}


def failures(report: Report) -> list[str]:
    """Every must that is missed by more than the spread, and every row on which we have no figure at all.

    A quick run is too short to judge speed by: it fails only where there is no figure.
    """
    failed = []
    judged = report["settings"]["size"] != QUICK.name
    for row in report["rows"]:
        failed += [
            f"{row['name']}: {name} was not measured: {measured['not_measured']}"
            for name, measured in row["contenders"].items()
            if is_ours(name) and "not_measured" in measured
        ]
        failed += [
            f"{row['name']}: must {_target(row, comparison, 'must')}, got {_got(row, comparison)}"
            for comparison in row["comparisons"]
            if judged and comparison["verdict"] == "missed"
        ]
    return failed


def _got(row: RowResult, comparison: Comparison) -> str:
    if comparison["ratio"] is None:
        return f"{figure(row['contenders'][OURS]['median'])} {row['unit']}"
    return f"{times(comparison['ratio'])} of {comparison['peer']} (spread {comparison['spread']:.0%})"


def figure(value: float) -> str:
    """Three digits and a unit of thousands: 4.61M, 507k, 12.3."""
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g}{suffix}" if value < 999.5 * scale else f"{value / scale:.0f}{suffix}"
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def times(ratio: float) -> str:
    """A ratio, to as many digits as it deserves."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x" if ratio < 100 else f"{ratio:.0f}x"


def _target(row: RowResult, comparison: Comparison, key: str) -> str:
    value = comparison["must"] if key == "must" else comparison["aim"]
    if value is None:
        return ""
    return f"{round(value, 2):g}x" if comparison["peer"] else f"< {value:g} {row['unit']}"


def _median(row: RowResult, name: str) -> str:
    measured = row["contenders"].get(name, {})
    return figure(measured["median"]) if "median" in measured else ""


def lines(report: Report) -> Iterator[tuple[tuple[str, ...], str]]:
    """The cells of each line, and its verdict."""
    for row in report["rows"]:
        start = (row["title"], row["unit"])
        for comparison in row["comparisons"]:
            peer = comparison["peer"]
            cells = (
                *start,
                _median(row, OURS),
                peer or "",
                _median(row, peer) if peer else "",
                "" if comparison["ratio"] is None else times(comparison["ratio"]),
                "" if comparison["spread"] is None else f"{comparison['spread']:.0%}",
                _target(row, comparison, "must"),
                _target(row, comparison, "aim"),
                WORDS.get(comparison["verdict"], comparison["verdict"]),
            )
            yield cells, comparison["verdict"]
            start = ("", "")
        if OURS in row["contenders"]:
            continue
        for name, measured in row["contenders"].items():
            reason = measured.get("not_measured")
            text = f"not measured: {reason}" if reason else ""
            width = f"{measured['spread']:.0%}" if "spread" in measured else ""
            yield (*start, "", name, _median(row, name), "", width, "", "", text), text
            start = ("", "")


def table(report: Report) -> Table:
    """The table for a terminal."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in COLUMNS:
        numeric = name in ("ours", "peer's", "ratio", "spread", "must", "aim")
        made.add_column(name, justify="right" if numeric else "left", no_wrap=name != "verdict")
    for cells, verdict in lines(report):
        style = STYLES.get(verdict, "dim" if verdict else "")
        made.add_row(*cells[:-1], Text(cells[-1], style))
    return made


def markdown(report: Report) -> str:
    """The same table for a page of the docs, with the machine below it."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(cells for cells, _ in lines(report))]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in rows)
    return f"{text}\n\n{' '.join(about(report))}"


def about(report: Report) -> list[str]:
    """Sentences that say where and how the figures were taken."""
    machine, settings = report["machine"], report["settings"]
    most = settings["repetitions"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    shorter = [f"{row['name']} {row['repetitions']}" for row in report["rows"] if row["repetitions"] < most]
    fewer = f" ({', '.join(shorter)})" if shorter else ""
    cores, memory, kernel = machine["cores"], machine["memory_gb"], machine["kernel"]
    return [
        f"{report['date']}, {machine['processor']}, {cores} cores, {memory} GB, {kernel}.",
        f"Python {machine['python']}, {packages}.",
        f"Data of size {settings['size']}, {settings['threads']} threads, medians of {most}"
        f" interleaved repetitions of at least {settings['seconds']} s{fewer},"
        f" {FEWEST} of what takes over {PATIENCE:.0f} s;"
        f" load before the run {machine['load']}.",
    ]
