"""The arguments of TFRecorder's factory, under the names of its documents and under those of its code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from .folder import OPTIONS

Call = TypeVar("Call", bound=Callable[..., Any])

# What its documents and its other functions call the same thing.
SPELLINGS = {
    "examples_class": "example_class",
    "examples_list_filepath": "examples_filepath",
    "examples_tfrecords_files_max_size_in_bytes": "examples_tfrecord_file_max_size_in_bytes",
}


def any_spelling(function: Call) -> Call:
    """The function, which takes each parameter under any of its names; one that writes takes two more at the end."""
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    places = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

    @wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        if inspect.Parameter.VAR_KEYWORD in kinds:
            last = dict(zip(OPTIONS, values[places:], strict=False))
            if len(values) > places + len(OPTIONS) or last.keys() & options.keys():
                raise TypeError(f"expected each argument once, got more - at {function.__name__}")
            options |= last
            values = values[:places]
        for spelling in [name for name in SPELLINGS if name in options]:
            if SPELLINGS[spelling] in options:
                raise TypeError(f"expected {SPELLINGS[spelling]} or {spelling}, got both - at {function.__name__}")
            options[SPELLINGS[spelling]] = options.pop(spelling)
        return function(*values, **options)

    return call  # type: ignore[return-value]
