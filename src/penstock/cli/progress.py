"""What commands that build a dataset share: a bar while they do, and what they show at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import click
from rich.markup import escape
from rich.progress import TextColumn, TimeRemainingColumn

from ..building.engines.engine import Engine
from ..building.engines.local import Local
from ..building.engines.ray import Ray
from ..building.progress import Progress as State
from ..building.report import Built
from ..building.targets.plain_files import kept_quarantine
from ..loading.dataset import Dataset
from ..records.inspect import counted, size_text
from .datasets import dataset_json, print_dataset, print_opened
from .errors import complain, print_error
from .output import PATIENCE, Line, console

Made = TypeVar("Made", bound=Dataset)
MOST_BAD = 3  # bad examples that the summary names
MOST_LEAKS = 3  # that the summary names


def run(work: Callable[[Engine], Made], options: dict[str, Any]) -> Made | None:
    """Build with the engine that the options ask for, under a bar; nothing comes of it where Ctrl-C ends it."""
    with _Bar(shown=not options["quiet"]) as bar:
        try:
            return work(_engine(options, bar))
        except KeyboardInterrupt as stopped:
            bar.hide()
            complain(str(stopped) or "stopped")
            if options["as_json"]:
                print_error(None, str(stopped) or "stopped")
            return None


def _engine(options: dict[str, Any], bar: _Bar) -> Engine:
    if options["engine"] == "ray":
        if options["no_sync"]:
            raise click.UsageError("--no-sync goes with --engine local")
        address = options["address"] or "auto"
        return Ray(address, shared=options["shared"], workers=options["workers"], progress=bar)
    for name in ("address", "shared"):
        if options[name]:
            raise click.UsageError(f"--{name} goes with --engine ray")
    return Local(workers=options["workers"], sync=not options["no_sync"], progress=bar)


def show_built(path: str, built: Built) -> None:
    """A dataset, and what its build did."""
    print_dataset(built.manifest)
    screen = console()
    size = sum(shard.bytes for shard in built.manifest.shards())
    speed = f", {size_text(size / built.seconds)}/s" if built.written else ""
    screen.print(f"\n{counted(built.written, 'shard')} written, {built.kept} kept, in {built.seconds:.1f} s{speed}")
    if built.bad:
        kept = kept_quarantine(path)
        told = f": {escape(kept)} says which, and why" if kept else ""
        were = "was" if built.bad == 1 else "were"
        left_out = f"[bold red]{counted(built.bad, 'bad example')}[/bold red] {were} left out{told}"
        screen.print(left_out, soft_wrap=True)
        for entry in built.bad_examples[:MOST_BAD]:
            screen.print(escape(f"  {entry['split']}[{entry['key']!r}]: {entry['error']}"), soft_wrap=True)
        if built.bad > MOST_BAD and built.bad_examples:
            screen.print(f"  and {built.bad - MOST_BAD:,} more", soft_wrap=True)
    if built.ignored:
        screen.print(f"{counted(built.ignored, 'example')} asked to be ignored")
    if built.duplicates:
        were = "was" if built.duplicates == 1 else "were"
        screen.print(f"{counted(built.duplicates, 'example')} {were} left out, with the same record as another")
    if built.drift:
        screen.print(f"the schema was widened: {escape(built.drift)}", soft_wrap=True)
    for kind, notes in (("", built.notes), ("TFDS: ", built.tfds_notes)):
        for name, note in notes.items():
            screen.print(f"{kind}[bold]{escape(name)}[/bold]: {escape(note)}", soft_wrap=True)
    if built.leaks:
        some = "; ".join(map(str, built.leaking[:MOST_LEAKS]))
        stand = "stands" if built.leaks == 1 else "stand"
        said = f"[bold red]{counted(built.leaks, 'content')} {stand} in two splits[/bold red]: {escape(some)}"
        screen.print(said, soft_wrap=True)
    _print_load(path, next(iter(built.manifest.splits)))


def show_files(path: str, made: Dataset) -> None:
    """The same of plain files, whose build has nothing more to tell."""
    print_opened(made)
    console().print(f"\n{counted(len(made.files), 'file')} written")
    _print_load(path, next(iter(made)))


def _print_load(path: str, split: str) -> None:
    line = f"penstock.load({path!r})[{split!r}]"
    console().print(f"\n[bold]{escape(line)}[/bold]", soft_wrap=True)


def built_json(path: str, built: Built) -> dict[str, Any]:
    """The same, plain."""
    told = ("written", "kept", "bad", "ignored", "duplicates", "leaks", "drift", "seconds")
    counts = {name: getattr(built, name) for name in told}
    leaking = [[{"split": split, "key": key} for split, key in leak.places] for leak in built.leaking]
    named = {"leaking": leaking, "bad_examples": list(built.bad_examples)}
    notes = {"notes": built.notes, "tfds_notes": built.tfds_notes}
    return {**dataset_json(path, built.manifest), **counts, **named, **notes}


class _Bar:
    """A progress bar on stderr: at a terminal, and only for what takes long."""

    def __init__(self, *, shown: bool) -> None:
        self._console = console(stderr=True)
        self._shown = shown and self._console.is_terminal
        self._started = time.monotonic()
        self._stage = ""
        self._stage_started = self._started
        self._progress: Line | None = None

    def __call__(self, state: State) -> None:
        now = time.monotonic()
        if not self._shown or now - self._started < PATIENCE:
            return
        if self._progress is None:
            done, speed = (TextColumn(f"{{task.fields[{name}]}}") for name in ("done", "speed"))
            self._progress = Line(self._console, done, TimeRemainingColumn(), speed)
            self._progress.add_task("", done="", speed="")
            self._progress.start()
        if state.stage != self._stage:
            self._stage, self._stage_started = state.stage, now
            self._progress.reset(self._progress.task_ids[0])
        total = f" of {state.total:,}" if state.total else ""
        self._progress.update(
            self._progress.task_ids[0],
            description=escape(state.stage),
            completed=state.examples,
            total=state.total,
            done=f"{state.examples:,}{total} examples",
            speed=f"{size_text(state.bytes / max(0.1, now - self._stage_started))}/s" if state.bytes else "",
        )

    def hide(self) -> None:
        """Make room for something else to be printed."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hide()
