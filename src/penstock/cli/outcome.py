"""How a command ends: its exit code, and what it says when something is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import click

from ..errors import CorruptionError, PenstockError
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
    """One sentence on stderr."""
    click.echo(f"penstock: error: {' '.join(str(error).split())}", err=True)


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
