"""How a command ends: its exit code, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import click

from ..errors import CorruptionError, ExampleError, PenstockError, redact
from .output import Bar

WELL = 0
DAMAGED = 1
UNREADABLE = 2
INTERRUPTED = 130
CLOSED = 141  # as of a program that SIGPIPE ends
# Shells complete the names of files; what is wrong with one, the command says in its own words.
PATH = click.Path(readable=False)


def told(error: BaseException | str) -> str:
    """What an error says; one of the system without its number, and with the folder that no file can be made in."""
    if isinstance(error, PenstockError) or not isinstance(error, OSError) or not isinstance(error.filename, str):
        return str(error)
    said, path = (error.strerror or type(error).__name__).lower(), error.filename
    if isinstance(error, PermissionError) and not os.path.lexists(path):
        return f"cannot write to the folder {os.path.dirname(path) or '.'}: {said}"
    return f"{said} - at {path}"


def complain(error: BaseException | str) -> None:
    """One sentence on stderr, and below it the lines of a table, where an error has one."""
    sentence, *table = redact(told(error)).split("\n")
    if not all(line.startswith("  ") for line in table):
        sentence, table = f"{sentence} {' '.join(' '.join(table).split())}", []
    click.echo("\n".join([f"penstock: error: {' '.join(sentence.split())}", *table]), err=True)


class Command(click.Command):
    """A command whose arguments are paths.

    Its errors are on stdout too where --json asks for that: one object, as of `for_each`.
    """

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        for parameter in self.params:
            if isinstance(parameter, click.Argument):
                parameter.type = PATH

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        arguments = words[1]
        asked = "--json" in arguments  # parsing takes the words away
        try:
            return super().make_context(*words, **more)
        except click.ClickException as error:
            if asked:
                print_error(None, error.format_message())
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (click.ClickException, PenstockError, OSError) as error:
            if ctx.params["as_json"]:
                said = error.format_message() if isinstance(error, click.ClickException) else told(error)
                print_error(self._asked_for(ctx), said)
            raise

    def _asked_for(self, ctx: click.Context) -> str | None:
        """What the command was to look at: its first argument, unless that is several."""
        first = next(ctx.params[parameter.name] for parameter in self.params if isinstance(parameter, click.Argument))
        if isinstance(first, tuple):
            return first[0] if len(first) == 1 else None
        return str(first)


def print_error(path: str | None, said: str) -> None:
    """What is wrong, as JSON."""
    click.echo(json.dumps({**({} if path is None else {"file": redact(path)}), "error": redact(said)}))


def exit_code(error: BaseException) -> int:
    """What the error means for whoever called the command."""
    return DAMAGED if isinstance(error, (CorruptionError, ExampleError)) else UNREADABLE


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
                print_error(path, told(error))
            worst = max(worst, exit_code(error))
    return worst
