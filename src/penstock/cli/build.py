"""penstock build: from a path to a dataset."""

from __future__ import annotations

import re
import time
from types import TracebackType
from typing import Any

import click
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from .. import sources
from ..build.local import Local
from ..build.options import Quarantine
from ..build.preview import Preview, preview
from ..build.report import Built
from ..build.report import Progress as State
from ..build.run import build as build_dataset
from ..info import Info
from ..records.tfrecord import TFRecord
from ..sources import dedupe, recognise
from ..splitting import Splits, split
from .dataset import dataset_json, print_dataset, schema_table, split_table
from .outcome import INTERRUPTED, WELL, complain
from .show import PATIENCE, console, print_json, size_text

KINDS = (
    "csv",
    "image_classification",
    "image_folder",
    "json",
    "jsonl",
    "parquet",
    "text_classification",
    "tfrecords",
    "voc_detection",
    "voc_segmentation",
)
MOST_LEAKS = 3  # that the summary names

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """A number of bytes: 500000, 64M, 1G."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        raise click.BadParameter(f"expected a size such as 500000, 64M or 1G, got {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def ratios(text: str) -> dict[str, float]:
    """The share of each split: train=0.8,eval=0.2."""
    try:
        pairs = (part.split("=") for part in text.split(","))
        return {name.strip(): float(ratio) for name, ratio in pairs}
    except ValueError:
        raise click.BadParameter(f"expected ratios such as train=0.8,eval=0.2, got {text!r}") from None


@click.command()
@click.argument("source")
@click.argument("path")
@click.option("--as", "kind", type=click.Choice(KINDS), help="What SOURCE is, where that is not clear.")
@click.option("--format", type=click.Choice(["tfrecord"]), default="tfrecord", show_default=True, help="Of the shards.")
@click.option("--compression", type=click.Choice(["gzip", "zlib"]), help="Compress whole shards.")
@click.option("--shards", type=click.IntRange(1), help="How many shards for each split.")
@click.option("--shard-bytes", type=size, default="128M", show_default=True, help="About how large a shard is.")
@click.option("--shard-examples", type=click.IntRange(1), help="How many examples a shard has at most.")
@click.option("--workers", type=click.IntRange(1), help="How many processes; one for each core unless told.")
@click.option(
    "--order", type=click.Choice(["hash", "source"]), default="hash", show_default=True, help="Of the records."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order, and of --split.")
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip", "quarantine"]),
    default="raise",
    show_default=True,
    help="What to do with examples that cannot be stored.",
)
@click.option(
    "--retry-quarantine", is_flag=True, help="Try bad examples again: only shards that lack some are written anew."
)
@click.option("--split", "ratios", type=ratios, help="Split SOURCE: train=0.8,eval=0.2.")
@click.option("--group", help="With --split: a column whose values stay together.")
@click.option("--stratify", help="With --split: a column whose values are shared out evenly.")
@click.option(
    "--dedupe",
    type=click.Choice(["within", "across"]),
    help="Leave out examples with the same record as another: within each split, or across all.",
)
@click.option("--name", help="What the dataset is called; by PATH unless told.")
@click.option("--description", help="What it is.")
@click.option("--citation", help="How to cite it.")
@click.option("--overwrite", is_flag=True, help="Build anew what is there, even if it was something else.")
@click.option("--dry-run", is_flag=True, help="Show the plan; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Only what is wrong.")
def build(source: str, path: str, **options: Any) -> int:
    """Build a dataset from SOURCE into the directory PATH.

    What SOURCE is, is found out: a folder of images, a CSV file, TFRecord files ...

    The same command again goes on after whatever has cut it off, and brings a dataset up to date whose SOURCE has
    changed.
    """
    kind, why = (options["kind"], "") if options["kind"] else recognise(source)
    loud = not (options["quiet"] or options["as_json"])
    if loud and why:
        console().print(f"[dim]{escape(source)} is taken as {kind}: {escape(why)}[/dim]", soft_wrap=True)
    examples = _split(getattr(sources, kind)(source), options)
    if options["dedupe"]:
        examples = dedupe(examples, across=options["dedupe"] == "across")
    said = {name: options[name] for name in ("shards", "order", "seed", "on_error")}
    if options["retry_quarantine"]:
        if options["on_error"] == "skip":
            raise click.UsageError("--retry-quarantine keeps what fails again in quarantine: leave --on-error out")
        said["on_error"] = Quarantine(retry=True)
    said["format"] = TFRecord(**{name: options[name] for name in ("compression", "shard_bytes", "shard_examples")})
    if options["dry_run"]:
        return _show_plan(preview(examples, schema=None, **said), as_json=options["as_json"])
    with _Bar(shown=not options["quiet"]) as bar:
        try:
            engine = Local(workers=options["workers"], progress=bar)
            info = Info(**told) if (told := _given(options, "name", "description", "citation")) else None
            built = build_dataset(examples, path, engine=engine, info=info, overwrite=options["overwrite"], **said)
        except KeyboardInterrupt as stopped:
            bar.hide()
            complain(str(stopped) or "stopped")
            return INTERRUPTED
    if options["as_json"]:
        print_json(_as_json(path, kind, built))
    elif loud:
        if options["retry_quarantine"] and not built.written:
            console().print(f"nothing to try again: no example of {escape(path)} is in quarantine", soft_wrap=True)
        _show(path, built)
    return WELL


def _given(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options[name] is not None}


def _split(source: Any, options: dict[str, Any]) -> Any:
    if options["ratios"] is None:
        for name in ("group", "stratify"):
            if options[name]:
                raise click.UsageError(f"--{name} goes with --split train=0.8,eval=0.2")
        return source
    if isinstance(source, Splits):
        raise click.UsageError(f"--split is for a source without splits, and this one has {', '.join(source)}")
    return split(
        source, seed=options["seed"], group=options["group"], stratify=options["stratify"], **options["ratios"]
    )


def _show_plan(plan: Preview, *, as_json: bool) -> int:
    if as_json:
        splits = {
            name: None if counts is None else {"examples": counts[0], "shards": counts[1]}
            for name, counts in plan.splits.items()
        }
        print_json({"splits": splits, "schema": plan.schema.to_json()})
        return WELL
    rows = [
        (name, *(("?", "?") if counts is None else (f"{counts[0]:,}", f"{counts[1]}")), "")
        for name, counts in plan.splits.items()
    ]
    screen = console()
    screen.print(split_table(rows))
    screen.print()
    screen.print(schema_table(plan.schema))
    return WELL


def _show(path: str, built: Built) -> None:
    print_dataset(built.manifest)
    screen = console()
    size = sum(shard.bytes for shards in built.manifest.splits.values() for shard in shards)
    speed = f", {size_text(size / built.seconds)}/s" if built.written else ""
    screen.print(f"\n{built.written} shards written, {built.kept} kept, in {built.seconds:.1f} s{speed}")
    if built.bad:
        screen.print(f"[bold red]{built.bad:,} bad examples[/bold red] were left out")
    if built.ignored:
        screen.print(f"{built.ignored:,} examples asked to be ignored")
    if built.duplicates:
        screen.print(f"{built.duplicates:,} examples were left out: their records are those of others")
    if built.drift:
        screen.print(f"the schema was widened: {escape(built.drift)}", soft_wrap=True)
    if built.leaks:
        some = "; ".join(map(str, built.leaking[:MOST_LEAKS]))
        said = f"[bold red]{built.leaks:,} contents stand in two splits[/bold red]: {escape(some)}"
        screen.print(said, soft_wrap=True)
    line = f"penstock.load({path!r})[{next(iter(built.manifest.splits))!r}]"
    screen.print(f"\n[bold]{escape(line)}[/bold]", soft_wrap=True)


def _as_json(path: str, kind: str, built: Built) -> dict[str, Any]:
    told = ("written", "kept", "bad", "ignored", "duplicates", "leaks", "drift", "seconds")
    counts = {name: getattr(built, name) for name in told}
    leaking = [[{"split": split, "key": key} for split, key in leak.places] for leak in built.leaking]
    return {**dataset_json(path, built.manifest), "source": kind, **counts, "leaking": leaking}


class _Bar:
    """A progress bar on stderr: at a terminal, and only for what takes long."""

    def __init__(self, *, shown: bool) -> None:
        self._console = console(stderr=True)
        self._shown = shown and self._console.is_terminal
        self._started = time.monotonic()
        self._stage = ""
        self._stage_started = self._started
        self._progress: Progress | None = None

    def __call__(self, state: State) -> None:
        now = time.monotonic()
        if not self._shown or now - self._started < PATIENCE:
            return
        if self._progress is None:
            texts = ("{task.description}", "{task.fields[done]}", "{task.fields[speed]}")
            columns = (TextColumn(texts[0]), BarColumn(), TextColumn(texts[1]), TextColumn(texts[2]))
            self._progress = Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True)
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
