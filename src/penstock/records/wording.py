"""How sizes, counts and values are told, in a few words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..columns import Bytes, Ragged
from .peek import image_type

MOST_VALUES = 8
MOST_LETTERS = 70


def size_text(count: float) -> str:
    """A number of bytes as people say it: 83 KB."""
    units = ["B", "KB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    unit = units[0]
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"


def counted(number: int, noun: str) -> str:
    """So many of something: 1 record, 1,000 records."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shortened(value: Any) -> str:
    """A value in one short line."""
    if value is None or value is np.ma.masked:
        return "missing"
    if isinstance(value, bytes):
        kind = image_type(value)
        if kind or len(value) > 16:
            return f"<{kind or 'bytes'} {size_text(len(value))}>"
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= MOST_LETTERS else value[: MOST_LETTERS - 1] + "…")
    if isinstance(value, (Ragged, Bytes)):
        value = list(value)
    if isinstance(value, np.ndarray) and value.ndim > 1:
        shape = "×".join(map(str, value.shape))
        return f"{_row(value.ravel())} ({shape})"
    if isinstance(value, (list, tuple, np.ndarray)):
        return _row(value)
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.6g}"
    return str(value)


def _row(values: Any) -> str:
    shown = ", ".join(shortened(item) for item in values[:MOST_VALUES])
    more = f", … {len(values) - MOST_VALUES:,} more" if len(values) > MOST_VALUES else ""
    return f"[{shown}{more}]"
