"""penstock bench: how fast a dataset loads, and what holds it up."""

from __future__ import annotations

import click
from rich.markup import escape

from ..errors import SchemaError
from ..loading.dataset import Dataset, load
from ..loading.loader import Loader
from .errors import WELL, Command
from .options import Number
from .output import console, print_json


class Seconds(click.FloatRange):
    """Some time; called so in help."""

    name = "seconds"


@click.command(cls=Command)
@click.argument("path")
@click.option("--split", default=None, help='Which examples, such as "train[:10%]". Default: the first split.')
@click.option("--batch", type=Number(1), default=256, show_default=True, help="Examples in a batch.")
@click.option("--shuffle", is_flag=True, help="In a random order.")
@click.option("--fields", default=None, metavar="A,B", help="Only these fields.")
@click.option("--no-decode", "as_bytes", is_flag=True, help="Leave images as bytes.")
@click.option("--threads", type=Number(1), default=None, help="Threads. Default: one for each core.")
@click.option("--seconds", type=Seconds(0), default=10.0, show_default=True, help="At most so long.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def bench(
    path: str,
    split: str | None,
    batch: int,
    shuffle: bool,
    fields: str | None,
    as_bytes: bool,
    threads: int | None,
    seconds: float,
    as_json: bool,
) -> int:
    """Load PATH, and name the stage that takes longest.

    An epoch of it, or the beginning of one. PATH is a dataset's directory, a record file, a glob or a range.
    """
    dataset = _opened(path, as_bytes=as_bytes)
    try:
        loader: Loader = dataset[split or next(iter(dataset))]
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
    loader = loader.select(*(name.strip() for name in fields.split(","))) if fields else loader
    loader = loader.shuffle() if shuffle else loader
    loader = loader.prefetch(threads=threads).batch(batch)
    found = loader.profile(seconds)
    if as_json:
        print_json({"path": path, "loader": repr(loader), **found.to_json()})
    else:
        console().print(escape(repr(loader)))
        console().print(escape(repr(found)))
    return WELL


def _opened(path: str, *, as_bytes: bool) -> Dataset:
    """The dataset; the advice to give a schema is for Python."""
    try:
        return load(path, decode=not as_bytes)
    except SchemaError as error:
        if "schema=" not in error.hint:
            raise
        raise SchemaError(str(error).removesuffix(f". {error.hint}")) from None
