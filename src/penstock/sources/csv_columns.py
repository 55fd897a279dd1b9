"""CSV files to typed columns: texts become numbers where every cell of a column is one.

    int64     every cell is an integer: 12, -3. With a leading zero or a plus it is a text: those are codes.
    uint64    ... and some are above the largest int64. Larger ones are texts.
    float64   every cell is a number, and some have a point or an exponent, or are nan or inf
    bool      every cell is true or false, in capitals or not
    str       everything else

An empty cell is a missing value in a column of numbers or bools, and an empty text in a column of texts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from .._core import read_csv
from ..errors import CorruptionError, SchemaError
from ..records.codec import default_threads
from ..schema.columns import Array, Bytes, Columns, Value
from ..schema.field import Field
from .files import HEAD, encoding_of, kind_of_bytes, shown_text

BLOCK = 1 << 18  # bytes: a block and its cells stay in a core's cache


class Rows(NamedTuple):
    """The typed columns of CSV files, and the line of each row in its file."""

    columns: Columns
    lines: list[Array]  # one array for each file


def read_columns(files: Sequence[str], delimiter: str = ",", texts: Sequence[str] | None = ()) -> Rows:
    """The columns of CSV files that have the same header; those in `texts` stay texts, all of them if it is None."""
    single = isinstance(delimiter, str) and len(delimiter) == 1 and not "\ud800" <= delimiter <= "\udfff"
    if not single or delimiter in '"\r\n':
        raise SchemaError(f"expected a delimiter of one character, got {delimiter!r}")
    stay = None if texts is None else list(texts)
    with as_utf8(files) as readable:
        columns, lines = read_csv(readable, delimiter, stay, BLOCK, default_threads())
    return Rows({name: _column(parts) for name, parts in columns.items()}, list(lines))


@contextmanager
def as_utf8(files: Sequence[str]) -> Iterator[list[str]]:
    """The files, with copies in UTF-8 of those in UTF-16 or UTF-32; errors name the files themselves."""
    with TemporaryDirectory(prefix="penstock-") as folder:
        readable = [_readable(path, os.path.join(folder, str(at))) for at, path in enumerate(files)]
        try:
            yield readable
        except CorruptionError as error:
            raise _explained(error, dict(zip(readable, files, strict=True))) from None


def _readable(path: str, copy: str) -> str:
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        return path  # whoever reads it says what is wrong
    encoding = encoding_of(head)
    if encoding is None:
        kind = kind_of_bytes(head)
        if kind is not None and (not shown_text(head) or head.lstrip().startswith((b"<", b"version https://git-lfs"))):
            raise SchemaError(f"expected a CSV file, got {kind[0]}", path, kind[1].replace("FILE", path))
        zeros = head.count(0)
        if zeros >= max(8, len(head) // 3):
            encoding = "UTF-32" if zeros >= len(head) // 2 + 2 else "UTF-16"
            got = f"{encoding} without a byte order mark" if zeros < len(head) else "zeros"
            raise CorruptionError(f"expected UTF-8 text, got {got}. Save the file as UTF-8", path)
        return path
    with open(path, encoding=encoding, newline="") as file, open(copy, "w", encoding="utf-8", newline="") as out:
        try:
            while text := file.read(BLOCK):
                out.write(text)
        except UnicodeError as error:
            raise CorruptionError(
                f"expected {encoding.upper()} text, got {error}. Save the file as UTF-8", path
            ) from None
    return copy


_NOT_UTF8 = re.compile(
    r"expected UTF-8 text, got the byte 0x([0-9a-f]{2}) - at (.*?)\. Convert the file to UTF-8$", re.S
)


def _explained(error: CorruptionError, originals: Mapping[str, str]) -> CorruptionError:
    """An error of the reader, about the file that it was given; what a byte means that is not UTF-8."""
    text, path = str(error), error.path
    for copy, original in originals.items():
        text = text.replace(copy, original)
        path = original if path == copy else path
    if found := _NOT_UTF8.match(text):
        letter = bytes.fromhex(found[1]).decode("cp1252", "ignore")
        meaning = f", which is {letter!r} in Windows-1252 and Latin-1" if letter.isprintable() and letter else ""
        place = found[2] if found[2].rpartition(":")[2].isdigit() else f"{found[2]}:1"
        file = place.rpartition(":")[0]
        fix = f"Convert the file: iconv -f WINDOWS-1252 -t UTF-8 {file} > utf8.csv"
        return CorruptionError(f"expected UTF-8 text, got the byte 0x{found[1]}{meaning}. {fix}", place)
    made = CorruptionError(text)
    made.path, made.offset, made.record = path, error.offset, error.record
    return made


def cast(column: Value, dtype: str, name: str, place: Callable[[int], str]) -> Any:
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
    return np.ma.MaskedArray(values, ~present) if splits is None else Bytes.unchecked(values, splits, text=True)
