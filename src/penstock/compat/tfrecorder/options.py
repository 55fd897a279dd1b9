"""The options that the methods of an example class take: each gets those that it names, unknown ones are errors."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import SchemaError, name_known

METHODS = ("from_csv_row", "load", "split")


def given_to(method: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a method takes: those that it names, or all where it has **kwargs."""
    named, rest = _taken(method)
    return {name: value for name, value in options.items() if rest or name in named}


def check_options(kinds: Iterable[type], options: Mapping[str, Any]) -> None:
    """That each option is one that some method names. A method that reads its **kwargs may take anything."""
    for kind in kinds:
        methods = [getattr(kind, name) for name in METHODS]
        known = [name for method in methods for name in _taken(method)[0][1:]]  # without self, and without row
        for name in options:
            if name not in known and not any(map(_reads_rest, methods)):
                raise SchemaError(f"unknown option {name!r}", kind.__name__, name_known(name, known, "options"))


def _taken(method: Callable[..., Any]) -> tuple[list[str], str]:
    """The names of a method's parameters, and that of its **kwargs."""
    parameters = inspect.signature(method).parameters.values()
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return named, next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), "")


def _reads_rest(method: Callable[..., Any]) -> bool:
    """Whether the code of a method does something with its **kwargs."""
    rest = _taken(method)[1]
    code = getattr(inspect.unwrap(method), "__code__", None)
    return bool(rest) and (code is None or any(step.argval == rest for step in dis.get_instructions(code)))
