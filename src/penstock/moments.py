"""Points in time, or on any scale: what a split by time compares."""

from __future__ import annotations

import re
import reprlib
from datetime import date, datetime, timezone
from typing import Any

import numpy as np

from .errors import SchemaError

_ISO = re.compile(r"(\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d{1,18})?)?)?)?)?)?)(Z|[+-]\d\d:?\d\d)?")


def moment(value: Any, times: bool, where: str) -> int | float:
    """A number that can be compared: a time in microseconds since 1970, UTC unless it says otherwise; or the value."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not times:
        if number and value == value:
            return value  # type: ignore[no-any-return]
        raise SchemaError(f"expected a number, as the cut is one, got {reprlib.repr(value)}", where)
    hint = "Give the cut as a number too" if number else "Write it as 2020-01-31 or 2020-01-31T23:59:59"
    try:
        time = _time(value)
    except ValueError:
        time = None
    if time is None or np.isnat(time):
        raise SchemaError(f"expected a date, got {reprlib.repr(value)}", where, hint)
    return int(time.astype("datetime64[us]").astype(np.int64))


def _time(value: Any) -> np.datetime64 | None:
    if isinstance(value, np.datetime64):
        return value
    if isinstance(value, date):
        if value != value:  # pandas' NaT
            return None
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        value = value.isoformat()
    match = _ISO.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    time = np.datetime64(match[1], "us")
    if match[2] in (None, "Z"):
        return time
    sign, hours, minutes = match[2][0], int(match[2][1:3]), int(match[2][-2:])
    offset = np.timedelta64((60 * hours + minutes) * (1 if sign == "+" else -1), "m")
    return time - offset
