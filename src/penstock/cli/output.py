"""How things look: sizes, values, tables, a bar for what takes long."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from ..dataset.manifest import (
    Info,
    Manifest,
    ShardEntries,
)
from ..errors import redact
from ..loading.dataset import Dataset
from ..loading.display import kind_text
from ..records.inspect import size_text
from ..schema.columns import Bytes, ExampleDict, Ragged
from ..schema.schema import Schema

PATIENCE = 2.0  # seconds without a progress bar
WIDE = 1000  # where there is no terminal to fit into


class Screen(Console):
    """Where to print; a reader that closes the pipe is an error of its own, as in whatever else writes."""

    def on_broken_pipe(self) -> None:
        """Called by rich where it catches the error, to exit with code 1."""
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> Text:
        """Called by rich for each line and each cell. Values of examples come as Text, and stay as they are."""
        return super().render_str(redact(text), **options)


def console(stderr: bool = False) -> Console:
    """Where to print. Without a terminal, tables may be as wide as they need."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDE
    return Screen(file=stream, width=width, highlight=False)


def fits(screen: Console, table: Table, folded: str = "") -> bool:
    """Whether a table has room for every cell; those of the column `folded` need a third of the screen at most."""
    whole = Measurement.get(screen, screen.options.update(width=WIDE), table).maximum
    for column in table.columns:
        if folded and column.header == folded:
            cells = max(map(len, map(str, column.cells)), default=0)
            whole -= max(0, cells - screen.width // 3)
    return whole <= screen.width


def schema_rows(schema: Schema) -> list[tuple[str, str, str]]:
    """Each field: its name, its type, and its kind where that says more."""
    return [(leaf.name, str(leaf), kind_text(leaf)) for leaf in schema.leaves()]


def to_json(value: object) -> Any:
    """A value as JSON has it: bytes in base64, and "nan", "inf" and "-inf" as the strings that they are."""
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple, Ragged, Bytes)):
        return [to_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: object) -> None:
    """Print one line of JSON, without the secrets of URLs in it."""
    print(json.dumps(_redacted(to_json(value)), ensure_ascii=False))


def print_example(example: ExampleDict) -> None:
    """Print the values of an example as one line of JSON, as they are."""
    print(json.dumps(to_json(example), ensure_ascii=False))


def _redacted(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


class Line(Progress):
    """A name, a bar, and of what else is told what has room beside them, the first of it first."""

    def __init__(self, screen: Console, *told: ProgressColumn, **options: Any) -> None:
        self._screen = screen
        bar = BarColumn(min(40, screen.width // 4))
        super().__init__(TextColumn("{task.description}"), bar, *told, console=screen, transient=True, **options)

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """Called by rich for what it shows."""
        every = self.columns
        try:
            while not fits(self._screen, table := super().make_tasks_table(tasks)) and len(self.columns) > 1:
                self.columns = self.columns[:-1]
        finally:
            self.columns = every
        return table


class Bar:
    """A progress bar over the bytes of some files, on stderr: at a terminal, and only for what takes long.

    with Bar(paths) as bar:
        for path in bar:
            report = work(path, progress=bar)
            bar.hide()
            print(report)
    """

    def __init__(self, paths: Iterable[str], quiet: bool = False) -> None:
        self._paths = list(paths)
        self._sizes = [os.path.getsize(path) if os.path.isfile(path) else 0 for path in self._paths]
        self._console = console(stderr=True)
        self._shown = self._console.is_terminal and not quiet
        self._started = time.monotonic()
        self._done = 0
        self._label = ""
        self._progress: Progress | None = None

    def __iter__(self) -> Iterator[str]:
        for path, size in zip(self._paths, self._sizes, strict=True):
            self._label = os.path.basename(path)
            yield path
            self._done += size

    def __call__(self, position: int) -> None:
        """Called by the core now and then, with how far it is in the file."""
        if not self._shown or time.monotonic() - self._started < PATIENCE:
            return
        total = sum(self._sizes)
        if self._progress is None:
            told = (DownloadColumn(), TimeRemainingColumn(), TransferSpeedColumn())
            self._progress = Line(self._console, *told, redirect_stdout=False, redirect_stderr=False)
            self._progress.start()
            self._progress.add_task("", total=total)
        completed = min(self._done + position, total)
        self._progress.update(self._progress.task_ids[0], completed=completed, description=escape(self._label))

    def hide(self) -> None:
        """Make room for something else to be printed; the bar comes back with the next call."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hide()


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


def dataset_json(path: str, manifest: Manifest) -> dict[str, object]:
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


def opened_json(path: str, dataset: Dataset) -> dict[str, object]:
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
