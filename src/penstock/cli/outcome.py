"""How a command ends: its exit code, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable

import click

from ..errors import CorruptionError, NotFoundError, PenstockError
from ..load.opening import names_files
from ..load.urls import brought_files
from ..storage import expand, is_url
from ..storage.cache import Cache
from .show import Bar

WELL = 0
DAMAGED = 1
UNREADABLE = 2
INTERRUPTED = 130


def complain(error: BaseException | str) -> None:
    """One sentence on stderr, and below it the lines of a table, where an error has one."""
    sentence, *table = str(error).split("\n")
    if not all(line.startswith("  ") for line in table):
        sentence, table = f"{sentence} {' '.join(' '.join(table).split())}", []
    click.echo("\n".join([f"penstock: error: {' '.join(sentence.split())}", *table]), err=True)


def check_there(path: str) -> None:
    """Raises what a path that leads nowhere should say, in place of what the system says of it."""
    if not is_url(path) and not os.path.lexists(path):
        raise NotFoundError(f"expected a file or a folder, got nothing at {path}")


def exit_code(error: BaseException) -> int:
    """What the error means for whoever called the command."""
    return DAMAGED if isinstance(error, CorruptionError) else UNREADABLE


def expand_all(patterns: Iterable[str]) -> list[str]:
    """The files of all patterns, each once. An index whose shard is named too is left out: it goes with its shard.

    Files of a store are brought; a dataset there stays the URL that it is.
    """
    paths = list(dict.fromkeys(path for pattern in patterns for path in _expanded(pattern)))
    known = set(paths)
    sidecars = {path + suffix for path in known for suffix in (".index", ".idx")}
    return [path for path in paths if path not in sidecars]


def _expanded(pattern: str) -> list[str]:
    if is_url(pattern) and names_files(pattern):
        return brought_files([pattern], Cache())
    return [pattern] if is_url(pattern) else expand(pattern)


def for_each(bar: Bar, work: Callable[[str], int], *, as_json: bool) -> int:
    """Do the work for every file, also after one that fails, and return the worst exit code."""
    worst = WELL
    for path in bar:
        try:
            worst = max(worst, work(path))
        except (PenstockError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            bar.hide()
            complain(error)
            if as_json:
                click.echo(json.dumps({"file": path, "error": str(error)}))
            worst = max(worst, exit_code(error))
    return worst
