"""penstock build: from a path to a dataset."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

import click
from rich.markup import escape
from rich.progress import TextColumn, TimeRemainingColumn

from .. import recipes, sources
from ..building.api import ORDERS, Built, Preview, Quarantine, preview
from ..building.api import build as build_dataset
from ..building.engines.engine import Engine
from ..building.engines.engine import Progress as State
from ..building.engines.local import Local
from ..building.engines.ray import Ray
from ..building.targets.plain_files import kept_quarantine
from ..dataset.manifest import MANIFEST, Info
from ..errors import ExampleError
from ..loading.dataset import Dataset
from ..recipes import RECIPES
from ..records.formats import Format
from ..records.inspect import counted, size_text
from ..schema.field import Image
from ..schema.schema import Schema
from ..sources.detect import detect
from ..sources.image_catalog import notes_on
from ..sources.splits import Splits, dedupe, split
from .errors import INTERRUPTED, WELL, Command, complain, print_error
from .options import CommandOptions, Number, asked_formats, format_options
from .output import (
    PATIENCE,
    Line,
    console,
    dataset_json,
    print_dataset,
    print_json,
    print_opened,
    schema_table,
    split_table,
)

KINDS = (
    "array_records",
    "coco",
    "csv",
    "image_classification",
    "image_folder",
    "json",
    "jsonl",
    "parquet",
    "tar",
    "text_classification",
    "tfrecords",
    "voc_detection",
    "voc_segmentation",
)


def ratios(text: str) -> dict[str, float]:
    """The share of each split: train=0.8,eval=0.2."""
    try:
        pairs = (part.split("=") for part in text.split(","))
        return {name.strip(): float(ratio) for name, ratio in pairs}
    except ValueError:
        raise click.BadParameter(f"expected ratios such as train=0.8,eval=0.2, got {text!r}") from None


@click.command(cls=Command)
@click.argument("source")
@click.argument("places", nargs=-1, metavar="PATH")
@click.option(
    "--as",
    "kind",
    type=click.Choice(KINDS),
    metavar="KIND",
    help=f"What SOURCE is, where that is not clear: {', '.join(KINDS)}.",
)
@format_options
@click.option("--order", type=click.Choice(ORDERS), help="Of the records. Default: hash; tfds for a recipe.")
@click.option("--seed", type=Number(0), default=0, show_default=True, help="Of the order, and of --split.")
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
@click.option("--max-side", type=Number(1), help="Store larger images of a folder with sides of this at most.")
@click.option(
    "--delimiter", help='What stands between the cells of CSV files, ";" or "\\t"; a tab in .tsv, else a comma.'
)
@click.option("--image", metavar="COLUMN", help="The column of a CSV or JSON file that names images.")
@click.option("--label", metavar="COLUMN", help="With images: the column of their classes.")
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
def build(source: str, places: tuple[str, ...], **options: Any) -> int:
    """Build a dataset from SOURCE into the directory PATH.

    What SOURCE is, is found out: a folder of images, a CSV file, TFRecord files ...
    Or it is a recipe: tornet ROOT [PATH].

    A PATH such as train.tfrecord, or "{split}/{000..}.tfrecord", is for plain files of records.

    The same command again goes on after whatever has cut it off, and writes the shards anew of which examples have
    changed. With more examples, or fewer, it is another dataset, which takes --overwrite.
    """
    asked = _recipe(source, places, options) if source in RECIPES else _recognised(source, places, options)
    loud = not (options["quiet"] or options["as_json"])
    for line in filter(None, (asked.remark, *asked.notes) if loud else ()):
        console().print(f"[dim]{escape(line)}[/dim]", soft_wrap=True)
    examples, path = _split(asked.examples, options), asked.path
    if options["dedupe"]:
        examples = dedupe(examples, across=options["dedupe"] == "across")
    said = {name: options[name] for name in ("shards", "seed", "on_error")} | {"schema": asked.schema}
    said["order"] = options["order"] or asked.order
    if options["retry_quarantine"]:
        if options["on_error"] == "skip":
            raise click.UsageError("--retry-quarantine keeps what fails again in quarantine: leave --on-error out")
        said["on_error"] = Quarantine(retry=True)
    said["format"] = asked.formats
    if options["dry_run"]:
        code = _show_plan(preview(examples, **said), as_json=options["as_json"])
        if loud and not options["overwrite"] and os.path.exists(os.path.join(path, MANIFEST)):
            there = f"{path} holds a dataset: it is brought up to date, if it is of the same examples, else --overwrite"
            console().print(f"[dim]{escape(there)} builds it anew[/dim]", soft_wrap=True)
        return code
    told = _given(options, "name", "description", "citation")
    said["info"] = Info(**told).over(asked.info) if told or asked.info != Info() else None
    said["overwrite"] = options["overwrite"]
    try:
        built = run(lambda engine: build_dataset(examples, path, engine=engine, **said), options)
    except ExampleError as error:
        hint = "Mend it, or leave such examples out: --on-error skip, or quarantine to keep them apart"
        raise ExampleError(f"{error}. {hint}", split=error.split, key=error.key, place=error.place) from error
    if built is None:
        return INTERRUPTED
    if options["as_json"]:
        notes = {"notes": list(asked.notes)} if asked.notes else {}
        print_json({**built_json(str(built.path), built), "source": asked.kind, **notes})
    elif loud:
        if options["retry_quarantine"] and not built.written:
            console().print(f"nothing to try again: no example of {escape(path)} is in quarantine", soft_wrap=True)
        show_built(str(built.path), built)
    return WELL


@dataclass(frozen=True)
class Asked:
    """What the arguments name: a source, where its dataset goes, and how it is stored."""

    kind: str
    remark: str
    examples: Any
    path: str
    formats: list[Format]
    schema: Schema | None = None
    info: Info = field(default_factory=Info)
    order: str = "hash"
    notes: tuple[str, ...] = ()


def _recognised(source: str, places: tuple[str, ...], options: CommandOptions) -> Asked:
    """A path, as whatever it is."""
    if len(places) != 1:
        raise click.UsageError("expected SOURCE and the PATH of a dataset")
    if os.path.exists(source) and os.path.exists(places[0]) and os.path.samefile(source, places[0]):
        raise click.UsageError(f"expected another folder for the dataset, got SOURCE itself: {source}")
    found = detect(source, kind=options["kind"], image=options["image"], label=options["label"])
    kind = found.kind
    how = _how(kind, f"{source} is taken as {kind}", options)
    if found.catalog is None:
        _check_no_columns(f"{source} is taken as {kind}", options)
    parts = {split: getattr(sources, kind)(*values, **{**said, **how}) for split, (values, said) in found.calls.items()}
    examples = parts[""] if "" in parts else Splits(parts)
    remarks = [f"{source} is taken as {kind}: {found.why}"] if found.why else []
    remarks += _other_delimiter(examples) if kind == "csv" and not how and found.catalog is None else []
    notes = [] if found.catalog is None else notes_on(examples, found.catalog)
    return Asked(kind, "\n".join(remarks), examples, places[0], asked_formats(options, places[0]), notes=tuple(notes))


def _how(kind: str, taken: str, options: CommandOptions) -> CommandOptions:
    """What the options say of one kind of source alone."""
    side, delimiter = options["max_side"], options["delimiter"]
    if side is not None and kind != "image_folder":
        raise click.UsageError(f"--max-side is for a folder of images, and {taken}")
    if delimiter is not None and kind != "csv":
        raise click.UsageError(f"--delimiter is for CSV files, and {taken}")
    how = {} if side is None else {"resize": Image(max_side=side)}
    return how if delimiter is None else {"delimiter": delimiter.replace("\\t", "\t")}


def _check_no_columns(taken: str, options: CommandOptions) -> None:
    for name in ("image", "label"):
        if options[name] is not None:
            raise click.UsageError(f"--{name} is for a CSV or JSON file that names images, and {taken}")


def _other_delimiter(rows: object) -> Iterator[str]:
    """A question, where all cells of CSV files stand in one column whose name has what may be their delimiter."""
    names = list(getattr(rows, "columns", ()))
    for letter in ";\t|":
        if len(names) == 1 and letter in names[0]:
            given = "\\t" if letter == "\t" else letter
            yield f'it has one column, {names[0]!r}. Is it --delimiter "{given}"?'


def _recipe(name: str, places: tuple[str, ...], options: CommandOptions) -> Asked:
    """A dataset that we know: the folder of its files, and where it goes unless that is where TFDS looks for it."""
    _how("recipe", f"{name} is a recipe", options)
    _check_no_columns(f"{name} is a recipe", options)
    if options["kind"] or len(places) > 2:
        raise click.UsageError(f"expected {name} ROOT [PATH]; a folder of that name is ./{name}")
    recipe = getattr(recipes, name)
    root, path = places[0] if places else None, places[1] if len(places) > 1 else recipe.PATH
    if options["compression"] is None and any("array_record" in names for names in options["format"]):
        options = options | {"compression": "none"}  # as the recipe has it, unless told
    formats = recipe.sized(asked_formats(options, path))
    told = (formats, recipe.SCHEMA, recipe.INFO, "tfds")  # the order of the published dataset
    if options["ratios"]:
        return Asked(name, "", recipe.recordings(root), path, *told)
    splits = recipe.source(root)
    return Asked(name, splits.said, splits, path, *told)


def _given(options: CommandOptions, *names: str) -> CommandOptions:
    return {name: options[name] for name in names if options[name] is not None}


def _split(source: object, options: CommandOptions) -> Any:
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


Made = TypeVar("Made", bound=Dataset)
MOST_BAD = 3  # bad examples that the summary names
MOST_LEAKS = 3  # that the summary names


def run(work: Callable[[Engine], Made], options: CommandOptions) -> Made | None:
    """Build with the engine that the options ask for, under a bar; nothing comes of it where Ctrl-C ends it."""
    with _BuildBar(shown=not options["quiet"]) as bar:
        try:
            return work(_engine(options, bar))
        except KeyboardInterrupt as stopped:
            bar.hide()
            complain(str(stopped) or "stopped")
            if options["as_json"]:
                print_error(None, str(stopped) or "stopped")
            return None


def _engine(options: CommandOptions, bar: _BuildBar) -> Engine:
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


def built_json(path: str, built: Built) -> dict[str, object]:
    """The same, plain."""
    told = ("written", "kept", "bad", "ignored", "duplicates", "leaks", "drift", "seconds")
    counts = {name: getattr(built, name) for name in told}
    leaking = [[{"split": split, "key": key} for split, key in leak.places] for leak in built.leaking]
    named = {"leaking": leaking, "bad_examples": list(built.bad_examples)}
    notes = {"notes": built.notes, "tfds_notes": built.tfds_notes}
    return {**dataset_json(path, built.manifest), **counts, **named, **notes}


class _BuildBar:
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

    def __enter__(self) -> _BuildBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hide()
