"""Values written as Python literals, as Datum's catalogs have them: 3, 0.5, 'text', [1, 2]. Nothing is executed."""

from __future__ import annotations

import ast
from typing import Any

LONGEST = 1 << 16  # characters of one literal
_KINDS = (bool, int, float, str)


class NotLiteral(Exception):  # noqa: N818 - it is an answer, no fault
    """The text is no literal of a number, a text, or a list of those."""


def literal(text: str) -> Any:
    """The value of a literal."""
    if len(text) > LONGEST:
        raise NotLiteral
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise NotLiteral from None
    if not _is_plain(value):
        raise NotLiteral
    return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, _KINDS)
