"""CSV files to typed columns: texts become numbers where every cell of a column is one.

    int64     every cell is an integer: 12, -3. With a leading zero or a plus it is a text: those are codes.
    uint64    ... and some are above the largest int64. Larger ones are texts.
    float64   every cell is a number, and some have a point or an exponent, or are nan or inf
    bool      every cell is true or false, in capitals or not
    str       everything else

An empty cell is a missing value in a column of numbers or bools, and an empty text in a column of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._core import read_csv
from ..columns import Array, Bytes
from ..errors import SchemaError
from ..field import Field
from ..records.codec import default_threads

BLOCK = 1 << 18  # bytes: a block and its cells stay in a core's cache


class Rows(NamedTuple):
    """The typed columns of CSV files, and the line of each row in its file."""

    columns: dict[str, Any]
    lines: list[Array]  # one array for each file


def read_columns(files: Sequence[str], delimiter: str = ",", texts: Sequence[str] | None = ()) -> Rows:
    """The columns of CSV files that have the same header; those in `texts` stay texts, all of them if it is None."""
    single = isinstance(delimiter, str) and len(delimiter) == 1 and not "\ud800" <= delimiter <= "\udfff"
    if not single or delimiter in '"\r\n':
        raise SchemaError(f"expected a delimiter of one character, got {delimiter!r}")
    stay = None if texts is None else list(texts)
    columns, lines = read_csv(list(files), delimiter, stay, BLOCK, default_threads())
    return Rows({name: _column(parts) for name, parts in columns.items()}, list(lines))


def cast(column: Any, dtype: str, name: str, place: Callable[[int], str]) -> Any:
    """A column of numbers as another type of numbers, to which every one of them can be read; a float is rounded.

    place  where a row comes from
    """
    try:
        wanted = Field(name, dtype).numpy_dtype
    except SchemaError as error:
        raise SchemaError(str(error), "types") from None
    if wanted is None:
        raise SchemaError(f"expected a type of numbers, or str, got {dtype!r}", f"types of {name}")
    if isinstance(column, Bytes):
        row = next((at for at, cell in enumerate(column.to_list()) if cell and not _is_number(cell)), 0)
        raise SchemaError(f"expected {dtype}, got {column[row]!r}", f"{place(row)}, {name}")
    values = np.ma.getdata(column)
    with np.errstate(all="ignore"):
        found = values.astype(wanted)
        same = np.isfinite(found) | ~np.isfinite(values) if wanted.kind == "f" else found == values
    bad = np.flatnonzero(~same & ~np.ma.getmaskarray(column))
    if len(bad):
        row = int(bad[0])
        raise SchemaError(f"expected {dtype}, got {values[row]}", f"{place(row)}, {name}")
    return np.ma.MaskedArray(found, np.ma.getmaskarray(column)) if np.ma.isMaskedArray(column) else found


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(parts: Any) -> Any:
    """An array, a masked array, or Bytes."""
    if isinstance(parts, np.ndarray):
        return parts
    values, splits, _, present = parts
    return np.ma.MaskedArray(values, ~present) if splits is None else Bytes._trusted(values, splits, text=True)
