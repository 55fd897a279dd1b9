"""penstock build: from a path to a dataset."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape

from .. import sources
from ..build.options import Quarantine
from ..build.preview import Preview, preview
from ..build.run import build as build_dataset
from ..info import Info
from ..sources import dedupe, recognise
from ..splitting import Splits, split
from .built import built_json, run, show_built
from .dataset import schema_table, split_table
from .formats import asked_formats, format_options
from .outcome import INTERRUPTED, WELL
from .show import console, print_json

KINDS = (
    "array_records",
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


@click.command()
@click.argument("source")
@click.argument("path")
@click.option("--as", "kind", type=click.Choice(KINDS), help="What SOURCE is, where that is not clear.")
@format_options
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
    said["format"] = asked_formats(options)
    if options["dry_run"]:
        return _show_plan(preview(examples, schema=None, **said), as_json=options["as_json"])
    said["info"] = Info(**told) if (told := _given(options, "name", "description", "citation")) else None
    said["overwrite"] = options["overwrite"]
    built = run(lambda engine: build_dataset(examples, path, engine=engine, **said), options)
    if built is None:
        return INTERRUPTED
    if options["as_json"]:
        print_json({**built_json(path, built), "source": kind})
    elif loud:
        if options["retry_quarantine"] and not built.written:
            console().print(f"nothing to try again: no example of {escape(path)} is in quarantine", soft_wrap=True)
        show_built(path, built)
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
