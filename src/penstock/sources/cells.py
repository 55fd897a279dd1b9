"""CSV files to typed columns, in chunks of rows: texts become numbers where every cell of a column is one.

    int64     every cell is an integer: 12, -3. With a leading zero or a plus it is a text: those are codes.
    uint64    ... and some are above the largest int64. Larger ones are texts.
    float64   every cell is a number, and some have a point or an exponent, or are nan or inf
    bool      every cell is true or false, in capitals or not
    str       everything else

An empty cell is a missing value in a column of numbers or bools, and an empty text in a column of texts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, TextIO

import numpy as np

from ..columns import Array, Bytes
from ..errors import CorruptionError, SchemaError, StorageError
from .files import not_text

CHUNK = 1 << 11  # rows: their cells stay in the processor's cache
BLOCK = 1 << 19  # characters of lines
MOST_CELL = 64 << 20  # characters

_CODE = re.compile(r"\0-?0[0-9]")  # a leading zero, in cells that each have a NUL before them
_BREAK = re.compile(r"\r\n|\r|\n")
_DIGIT = re.compile(r"[0-9]")
_POWERS = 10 ** np.arange(1, 20, dtype=np.uint64)
_CAPITALS = {"true": True, "false": False, "True": True, "False": False, "TRUE": True, "FALSE": False}

_UNKNOWN, _BOOL, _INT, _FLOAT, _TEXT = range(5)


class Rows(NamedTuple):
    """The typed columns of CSV files, and the line of each row in its file."""

    columns: dict[str, Any]
    lines: list[Array]  # one array for each file


def read_columns(files: Sequence[str], delimiter: str = ",", texts: Sequence[str] = ()) -> Rows:
    """The columns of CSV files that have the same header; those in `texts` stay texts."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise SchemaError(f"expected a delimiter of one character, got {delimiter!r}")
    names: list[str] = []
    lines: list[Array] = []
    columns: list[_Column] = []
    limit = csv.field_size_limit(MOST_CELL)
    try:
        again: set[int] = set()
        for attempt in range(2):
            names, lines, columns = _read(files, delimiter, texts, again)
            again |= {number for number, column in enumerate(columns) if column.lost}
            if not any(column.lost for column in columns):
                break
            assert not attempt, "columns of texts lose nothing"
    finally:
        csv.field_size_limit(limit)
    return Rows({name: column.settled() for name, column in zip(names, columns, strict=True)}, lines)


def _read(
    files: Sequence[str], delimiter: str, texts: Sequence[str], again: set[int]
) -> tuple[list[str], list[Array], list[_Column]]:
    names: list[str] = []
    columns: list[_Column] = []
    lines = []
    for path in files:
        order: list[int] = []
        numbers = []
        for kind, chunk, found in _chunks(path, delimiter):
            if kind == "header":
                header = _header(list(chunk), path)
                if not names:
                    names = header
                    columns = [_Column(name in texts or at in again) for at, name in enumerate(names)]
                if sorted(header) != sorted(names):
                    raise SchemaError(f"expected the columns {', '.join(names)}, got {', '.join(header)}", path)
                order = [names.index(name) for name in header]
                continue
            numbers.append(found)
            for at, cells in zip(order, chunk, strict=True):
                columns[at].add(cells)
        lines.append(np.concatenate(numbers) if numbers else np.empty(0, np.int64))
    return names, lines, columns


def _header(cells: list[str], path: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    if "" in names:
        where = f"{path}:1"
        raise SchemaError(f"expected a name for every column, got none for column {names.index('') + 1}", where)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SchemaError(f"expected each column once, got {twice!r} twice", f"{path}:1")
    return names


def _chunks(path: str, delimiter: str) -> Iterator[tuple[str, Sequence[Any], Array]]:
    """The header, then chunks of rows as columns of cells, with the rows' lines."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            header = first.split(delimiter)
            # "filename, label": a space after each delimiter belongs to nobody.
            spaced = len(header) > 1 and all(cell.startswith(" ") for cell in header[1:])
            yield from _rows(file, first, path, {"delimiter": delimiter, "strict": True, "skipinitialspace": spaced})
    except UnicodeDecodeError as error:
        raise not_text(path, error) from None
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"cannot read {path}: {error.strerror}") from None


def _rows(file: TextIO, first: str, path: str, options: dict[str, Any]) -> Iterator[tuple[str, Sequence[Any], Array]]:
    before = 0
    reader = csv.reader(chain([first], file) if first else iter(()), **options)
    try:
        header = next(filter(None, reader), None)
        if header is None:
            raise SchemaError("expected a header with the names of columns, got an empty file", path)
        yield "header", header, np.empty(0, np.int64)
        before = reader.line_num
        lines: list[str] = []
        while not options["skipinitialspace"]:
            lines = file.readlines(BLOCK)
            if not lines:
                return
            columns = _plain(lines, len(header), options["delimiter"])
            if columns is None:
                break
            yield "rows", columns, np.arange(before + 1, before + 1 + len(lines))
            before += len(lines)
        reader = csv.reader(chain(lines, file), **options)
        while True:
            start = before + reader.line_num
            rows = list(islice(reader, CHUNK))
            if not rows:
                return
            numbers = np.arange(start + 1, start + 1 + len(rows))
            if before + reader.line_num - start != len(rows):
                numbers = _counted(rows, start)
            if set(map(len, rows)) != {len(header)}:
                rows, numbers = _filled(rows, numbers, len(header), path)
            if rows:
                yield "rows", list(zip(*rows, strict=True)), numbers
    except csv.Error as error:
        raise CorruptionError(f"expected CSV, got {error}", f"{path}:{before + reader.line_num}") from None


def _plain(lines: list[str], width: int, delimiter: str) -> list[list[str]] | None:
    """The columns of lines that hold no quotes and as many cells each: by one split. None if they are not so plain."""
    text = "".join(lines)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    rare = '"' in text or "\r" in text or "\0" in text or text.startswith("\n") or "\n\n" in text
    if rare or len(text) > MOST_CELL or {line.count(delimiter) for line in lines} != {width - 1}:
        return None
    cells = text.removesuffix("\n").replace("\n", delimiter).split(delimiter)
    return [cells[at::width] for at in range(width)]


def _filled(rows: list[list[str]], lines: Array, width: int, path: str) -> tuple[list[list[str]], Array]:
    """The rows without those of empty lines; others that lack cells, or have too many, are refused."""
    for row, line in zip(rows, lines.tolist(), strict=True):
        if len(row) not in (0, width):
            raise CorruptionError(f"expected {width} cells, got {len(row)}", f"{path}:{line}")
    return [row for row in rows if row], lines[np.array([bool(row) for row in rows])]


def _counted(rows: list[list[str]], before: int) -> Array:
    """The lines where rows begin, when cells hold line breaks."""
    lengths = [1 + sum(len(_BREAK.findall(cell)) for cell in row) for row in rows]
    return before + 1 + np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)])


class _Column:
    """A column that grows chunk by chunk, and changes its type when a cell does not fit."""

    def __init__(self, text: bool) -> None:
        self.kind = _TEXT if text else _UNKNOWN
        self.numbers: list[Array] = []
        self.masks: list[Array | None] = []
        self.texts: list[Bytes] = []
        self.rows = 0
        self.lost = False  # numbers came before a text: what was written for them is gone

    def add(self, cells: Sequence[str]) -> None:
        """Append a chunk of cells."""
        if self.kind != _TEXT and not self._add_numbers(cells):
            self.lost = self.lost or self.kind != _UNKNOWN
            self.kind = _TEXT
            if not self.lost and self.rows:
                self.texts.append(_texts([""] * self.rows))  # nothing but empty cells so far
            self.numbers.clear()
            self.masks.clear()
        if self.kind == _TEXT and not self.lost:
            self.texts.append(_texts(cells))
        self.rows += len(cells)

    def _add_numbers(self, cells: Sequence[str]) -> bool:
        missing = None
        filled = cells
        if "" in cells:
            missing = np.array([not cell for cell in cells])
            filled = [cell for cell in cells if cell]
            if not filled:
                self._append(np.zeros(len(cells), np.int64), missing)
                return True
        kind, values = _parsed(filled)
        if kind == _TEXT or (_BOOL in (kind, self.kind) and self.kind not in (kind, _UNKNOWN)):
            return False
        self.kind = max(kind, self.kind)
        if missing is not None:
            spread = np.zeros(len(cells), values.dtype)
            spread[~missing] = values
            values = spread
        self._append(values, missing)
        return True

    def _append(self, values: Array, missing: Array | None) -> None:
        self.numbers.append(values)
        self.masks.append(missing)

    def settled(self) -> Any:
        """The whole column: an array, a masked array, or Bytes."""
        if self.kind in (_TEXT, _UNKNOWN):
            return _joined(self.texts) if self.kind == _TEXT else _texts([""] * self.rows)
        dtype: np.dtype[Any] = np.dtype({_BOOL: np.bool_, _INT: np.int64, _FLOAT: np.float64}[self.kind])
        if self.kind == _INT and any(values.dtype == np.uint64 for values in self.numbers):
            dtype = np.dtype(np.uint64)
            if any((values < 0).any() for values in self.numbers if values.dtype == np.int64):
                return self._written()  # no integer of 64 bits holds both
        values = np.concatenate([part.astype(dtype, copy=False) for part in self.numbers])
        if all(mask is None for mask in self.masks):
            return values
        whole = [np.zeros(len(v), bool) if m is None else m for v, m in zip(self.numbers, self.masks, strict=True)]
        return np.ma.MaskedArray(values, np.concatenate(whole))

    def _written(self) -> Bytes:
        """Integers as the texts that they were."""
        rows: list[str] = []
        for values, mask in zip(self.numbers, self.masks, strict=True):
            gaps = [False] * len(values) if mask is None else mask.tolist()
            rows += ["" if gap else str(value) for value, gap in zip(values.tolist(), gaps, strict=True)]
        return _texts(rows)


def _parsed(cells: Sequence[str]) -> tuple[int, Array]:
    """What all of the cells are, none of which is empty."""
    nothing = np.empty(0)
    first = cells[0].strip()
    if first in _CAPITALS:
        if set(map(str.strip, cells)) <= _CAPITALS.keys():
            return _BOOL, np.array([_CAPITALS[cell.strip()] for cell in cells])
        return _TEXT, nothing
    if first[:1] not in "-.0123456789nNiI":
        return _TEXT, nothing
    joined = "\0" + "\0".join(cells)
    if " " in joined:
        cells = [cell.strip(" ") for cell in cells]
        joined = "\0" + "\0".join(cells)
    # Python reads 1_000, +5 and digits of all scripts as numbers: none of them is one in a table.
    if not joined.isascii() or "_" in joined or "\0+" in joined or len(joined.split(None, 1)) > 1:
        return _TEXT, nothing
    try:
        if "." not in joined:
            try:
                return _integers(cells, len(joined) - len(cells))
            except ValueError:
                pass
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except (ValueError, OverflowError):
        return _TEXT, nothing
    endless = np.flatnonzero(np.isinf(values)).tolist()
    too_large = any("n" not in cells[at].lower() for at in endless)
    return (_TEXT, nothing) if too_large or _CODE.search(joined) or not _DIGIT.search(joined) else (_FLOAT, values)


def _integers(cells: Sequence[str], letters: int) -> tuple[int, Array]:
    """The cells as integers, if they have as many letters as these integers need: else some have zeros in front."""
    values: Array
    try:
        values = np.fromiter(map(int, cells), np.int64, len(cells))
        sizes = np.abs(values).view(np.uint64)  # the absolute value of the smallest int64 is right as a uint64
    except OverflowError:
        values = sizes = np.fromiter(map(int, cells), np.uint64, len(cells))
    digits = len(cells) + int(np.searchsorted(_POWERS, sizes, side="right").sum())
    canonical = digits + int((values < 0).sum()) == letters
    return (_INT, values) if canonical else (_TEXT, np.empty(0))


def _texts(cells: Sequence[str]) -> Bytes:
    joined = "".join(cells)
    splits = np.zeros(len(cells) + 1, np.int64)
    lengths = map(len, cells) if joined.isascii() else (len(cell.encode()) for cell in cells)
    np.cumsum(np.fromiter(lengths, np.int64, len(cells)), out=splits[1:])
    return Bytes(np.frombuffer(joined.encode(), np.uint8), splits, text=True)


def _joined(parts: list[Bytes]) -> Bytes:
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.values) for part in parts)])
    splits = [part.row_splits[1:] + start for part, start in zip(parts, starts[:-1], strict=True)]
    values = np.concatenate([part.values for part in parts]) if parts else np.empty(0, np.uint8)
    return Bytes(values, np.concatenate([[0], *splits]).astype(np.int64), text=True)
