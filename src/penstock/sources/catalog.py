"""Catalogs: CSV, JSON lines and JSON files whose rows are examples, or name the files that make them up."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import CorruptionError, SchemaError
from ..schema.columns import Array, Bytes, Columns, ExampleDict, Value
from ..schema.field import Field
from ..schema.schema import Schema
from ..storage.files import bring_all, checked_path, local_copies, named_by_url, parent_path, read_file
from ..storage.paths import PathLike, Paths, files_named, has_suffix
from .csv_columns import cast, read_columns
from .files import encoding_of, not_text, read_text
from .protocol import Source, position, view
from .rows import Load, Loading, check_columns, image_columns, load_files, split_rows
from .splits import Splits
from .table import Origin, Table

LINE_BLOCK = 16 << 20  # bytes read at once in search of line breaks
LABEL = "label"  # the field
Keys = str | Sequence[str] | None
Images = str | Mapping[str, str] | None


def csv(
    pattern: Paths,
    *,
    image: Images = None,
    label: str | None = None,
    load: Load | None = None,
    split: str | None = None,
    key: Keys = None,
    delimiter: str | None = None,
    types: Mapping[str, str] | None = None,
    root: PathLike | None = None,
) -> Table | Loading | Splits:
    """The rows of CSV files, each column with the type that all of its cells have, or with the one that it is given.

    image      a column of paths: its images become the field "image"; {"image": "filename", "mask": "mask"} for more
               A path may lack the suffix of its file
    label      a column of classes: it becomes the field "label", a number with the names of the classes
    load       a function that gets each row as a dict, images loaded, and returns the example
    split      a column that names the split of each row
    key        a column, or some, whose values name each row; otherwise the image's path, or the row's number
    delimiter  what stands between cells: a comma unless told, a tab in files that end in .tsv
    types      {"price": "float32", "code": "str"}: columns that are read as something else
    root       the folder that paths are relative to; otherwise that of the CSV file

    Files may be in a store. They are copied to the local cache first; images are downloaded as they are needed.
    """
    files = files_named(pattern, (".csv", ".tsv"))
    images = image_columns(image)
    keys = _keys(key, images)
    if delimiter is None:
        delimiter = "\t" if all(has_suffix(file, (".tsv",)) for file in files) else ","
    said = dict(types or {})
    texts = [*images.values(), *filter(None, [split]), *(name for name in said if said[name] == "str")]
    copies = local_copies(files)
    with named_by_url(copies):
        columns, lines = read_columns(bring_all(copies), delimiter, texts)
    check_columns([*texts, *keys, *said, *filter(None, [label])], list(columns), files[0])
    origin = Origin(copies, [len(each) for each in lines], lines)
    for name in said.keys() - set(texts):
        columns[name] = cast(columns[name], said[name], name, origin.place)
    kept = {name: column for name, column in columns.items() if name != split or name in keys}
    field, kept = (None, kept) if label is None else _label_column(kept, label, keys, files[0])
    rows = Table(kept, key=keys, origin=origin)
    if field is not None:
        rows.schema = Schema({**rows.schema, LABEL: field})
    source: Table | Loading = rows
    if images or load is not None:
        source = load_files(rows, images, Folders(origin) if root is None else checked_path(root), load)
    return source if split is None else _by_split(source, columns[split].to_list(), files[0])


def jsonl(
    pattern: Paths,
    *,
    image: Images = None,
    label: str | None = None,
    load: Load | None = None,
    split: str | None = None,
    key: Keys = None,
    root: PathLike | None = None,
) -> Source | Splits:
    """The objects of JSON lines files. Only the places of lines are kept; a line is parsed when it is loaded.

    The options are those of `csv`. With `image`, `split` or `key` every line is parsed once while listing.
    """
    files = files_named(pattern, (".jsonl", ".ndjson"))
    return _catalog(Lines(files), files, image, label, load, split, key, root)


def json(
    pattern: Paths,
    *,
    image: Images = None,
    label: str | None = None,
    load: Load | None = None,
    split: str | None = None,
    key: Keys = None,
    root: PathLike | None = None,
) -> Source | Splits:
    """The objects of JSON files: a list of objects, or an object of objects whose names are their keys.

    The options are those of `csv`.
    """
    files = files_named(pattern, (".json",))
    return _catalog(Objects(files), files, image, label, load, split, key, root)


class Lines(Source):
    """The lines of JSON lines files that hold something."""

    def __init__(self, files: Sequence[str]) -> None:
        self._copies = local_copies(files)
        with named_by_url(self._copies):
            starts, ends, lines = zip(*map(_line_places, bring_all(self._copies)), strict=True)
        self.starts: Array = np.concatenate(starts)
        self.ends: Array = np.concatenate(ends)
        self.origin = Origin(self._copies, [len(each) for each in lines], lines)

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        return f"Lines({len(self)} of {', '.join(self.origin.names[:3])})"

    def __getitem__(self, index: int) -> ExampleDict:
        index = position(index, len(self))
        path = self._copies[self.origin.file(index)[0]].bring()
        start, end = int(self.starts[index]), int(self.ends[index])
        try:
            with open(path, "rb", buffering=0) as file:
                file.seek(start)
                data = file.read(end - start)
        except OSError:
            data = read_file(path)[start:end]  # which says what is wrong
        if len(data) != end - start:
            raise CorruptionError("expected the line that was there before, got the end of the file", self.place(index))
        return _parse_row(data, self.place(index))

    def key(self, index: int) -> str:
        """The number of the line among those that hold something."""
        return self.origin.key(position(index, len(self)))

    def place(self, index: int) -> str:
        """File and line."""
        return self.origin.place(position(index, len(self)))

    def stamp(self, index: int) -> str:
        """That of the file."""
        return self.origin.stamp(position(index, len(self)))


class Objects(Source):
    """The objects of JSON files, in memory."""

    def __init__(self, files: Sequence[str]) -> None:
        self.items: list[ExampleDict] = []
        self.names: list[str] | None = None
        counts = []
        for path in files:
            names, items = read_objects(path)
            if path != files[0] and (names is None) != (self.names is None):
                raise SchemaError("expected lists in all files, or objects in all, got both", path)
            self.names = names if self.names is None else [*self.names, *(names or ())]
            self.items += items
            counts.append(len(items))
        self.origin = Origin(local_copies(files), counts)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Objects({len(self)} of {', '.join(self.origin.names[:3])})"

    def __getitem__(self, index: int) -> ExampleDict:
        return self.items[position(index, len(self))]

    def key(self, index: int) -> str:
        """The object's name, or its number in the list."""
        return self.origin.key(position(index, len(self))) if self.names is None else self.names[index]

    def place(self, index: int) -> str:
        """File and name, or number."""
        index = position(index, len(self))
        at, row = self.origin.file(index)
        return f"{self.origin.files[at]}[{row if self.names is None else repr(self.names[index])}]"

    def stamp(self, index: int) -> str:
        """That of the file."""
        return self.origin.stamp(position(index, len(self)))


class Keyed(Source):
    """Rows of a catalog under keys that were taken from them, without the columns that they were listed for."""

    def __init__(self, rows: Source, keys: list[str] | None, without: str | None, labels: Labels | None = None) -> None:
        self.rows = rows
        self.keys = keys
        self.without = without
        self.labels = labels
        self.schema = None if labels is None else Schema({LABEL: labels.field})

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return repr(self.rows)

    def __getitem__(self, index: int) -> ExampleDict:
        row = {name: value for name, value in self.rows[index].items() if name != self.without}
        if self.labels is not None:
            number = self.labels.number(row.pop(self.labels.column, None), self.rows.place(index))
            if LABEL in row:
                raise _two_labels(self.labels.column, self.rows.place(index))
            row[LABEL] = number
        return row

    def key(self, index: int) -> str:
        """The key from the row, or the catalog's."""
        return self.rows.key(index) if self.keys is None else self.keys[position(index, len(self))]

    def place(self, index: int) -> str:
        """The catalog's."""
        return self.rows.place(index)

    def stamp(self, index: int) -> str:
        """The catalog's."""
        return self.rows.stamp(index)


class Labels:
    """The classes that a column names: texts by number, in order of name; numbers stay as they are."""

    def __init__(self, column: str, values: Sequence[Value]) -> None:
        self.column = column
        there = [value for value in values if value not in (None, "")]
        texts = sorted({value for value in there if isinstance(value, str)})
        self.numbers = {name: number for number, name in enumerate(texts)}
        optional = len(there) < len(values)
        self.field = Field(LABEL, "int64", classes=tuple(texts) or None, optional=optional)

    def number(self, value: object, place: str) -> int | None:
        """The number of a class; None where a row has none."""
        if value in (None, ""):
            return None
        wanted = str if self.numbers else int
        if not isinstance(value, wanted) or isinstance(value, bool) or (self.numbers and value not in self.numbers):
            expected = "the name of a class" if self.numbers else "the number of a class"
            raise SchemaError(f"expected {expected} in {self.column!r}, got {value!r:.60}", place)
        return self.numbers[value] if isinstance(value, str) else int(value)


def _label_column(columns: Columns, label: str, keys: Sequence[str], where: str) -> tuple[Field | None, Columns]:
    """The columns with the label under its own name, and what it is."""
    if label != LABEL and LABEL in columns:
        raise _two_labels(label, where)
    column = columns[label]
    rest = {name: values for name, values in columns.items() if name != label or name in keys}
    if not isinstance(column, Bytes):
        return None, {**rest, LABEL: column}
    values = column.to_list()
    labels = Labels(label, values)
    numbers = [labels.number(value, where) for value in values]
    return labels.field, {**rest, LABEL: numbers}


def _two_labels(label: str, where: str) -> SchemaError:
    hint = f"Rename the column {LABEL!r}, or choose it as the label"
    return SchemaError(f"expected one label, got the column {label!r} and another one called {LABEL!r}", where, hint)


class Folders:
    """The folder of the file that each row of a catalog comes from."""

    def __init__(self, origin: Origin) -> None:
        self.folders = list(map(parent_path, origin.files))
        self.origin = origin

    def __call__(self, index: int) -> str:
        return self.folders[self.origin.file(index)[0]]


def _catalog(
    rows: Lines | Objects,
    files: Sequence[str],
    image: Images,
    label: str | None,
    load: Load | None,
    split: str | None,
    key: Keys,
    root: PathLike | None,
) -> Source | Splits:
    images = image_columns(image)
    keys = _keys(key, images if not isinstance(rows, Objects) or rows.names is None else {})
    source: Source = rows
    splits = None
    if keys or split is not None or label is not None:
        names, splits, labels = _listed_values(rows, keys, split, label)
        known = None if label is None else Labels(label, labels)
        source = Keyed(rows, names if keys else None, None if split in keys else split, known)
    if images or load is not None:
        folder = Folders(rows.origin) if root is None else checked_path(root)
        source = load_files(source, images, folder, load)
    if split is None or splits is None:
        return source
    return _by_split(source, splits, files[0])


def _by_split(source: Source, names: Sequence[Value], where: str) -> Splits:
    return Splits({name: view(source, rows) for name, rows in split_rows(names, where).items()})


def _listed_values(
    rows: Source, keys: Sequence[str], split: str | None, label: str | None
) -> tuple[list[str], list[Value], list[Value]]:
    """The keys, the splits and the labels that all rows name."""
    names: list[str] = []
    splits: list[Value] = []
    labels: list[Value] = []
    for index in range(len(rows)):
        row = rows[index]
        values = [row.get(name) for name in keys]
        for name, value in zip(keys, values, strict=True):
            if isinstance(value, (bool, float, list, dict)) or value in (None, ""):
                got = "nothing" if value in (None, "") else type(value).__name__
                raise SchemaError(f"expected a text or an int in {name!r}, got {got}", rows.place(index))
        names.append("/".join(map(str, values)))
        splits.append(None if split is None else row.get(split))
        labels.append(None if label is None else row.get(label))
    return names, splits, labels


def _keys(key: Keys, images: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that name a row: as given, or the paths of its images."""
    if key is None:
        return tuple(images.values())[:1]
    return (key,) if isinstance(key, str) else tuple(key)


# JSON
_JSON_PARTS = {"value": "a value", "property name enclosed in double quotes": "a name in double quotes"}


def read_objects(path: str) -> tuple[list[str] | None, list[ExampleDict]]:
    """The objects of a JSON file, with their names if it is an object of objects."""
    data = parse_json(read_text(path), path)
    if isinstance(data, dict) and data and all(isinstance(item, dict) for item in data.values()):
        return list(data), list(data.values())
    if isinstance(data, list) and all(isinstance(item, dict) for item in data):
        return None, data
    got = f"a list with {_kind(next(i for i in data if not isinstance(i, dict)))}" if isinstance(data, list) else (
        f"an object with {', '.join(map(repr, list(data)[:3])) or 'nothing'}" if isinstance(data, dict) else _kind(data)
    )  # fmt: skip
    raise SchemaError(f"expected a list of objects, or an object of objects, got {got}", path)


def parse_json(text: str, path: str, line: int | None = None) -> Any:
    """The value of a JSON text; the error names the line."""
    try:
        return json_format.loads(text, object_pairs_hook=_once)
    except json_format.JSONDecodeError as error:
        problem, line = _broken_json(text, error), line or error.lineno
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        problem = "lists or objects too deep within each other" if deep else str(error)
    raise CorruptionError(f"expected JSON, got {problem}", path if line is None else f"{path}:{line}")


def _broken_json(text: str, error: json_format.JSONDecodeError) -> str:
    """What stands where JSON goes on otherwise, and what should, as far as Python's parser says it."""
    rest = text[error.pos :]
    shown = rest[:20].splitlines()[0] if rest.strip() else ""
    place = f"{repr(shown) if shown else 'the end'} in column {error.colno}"
    wanted = error.msg.removeprefix("Expecting ").removesuffix(" delimiter")
    if wanted == error.msg:
        return f"{place}: {error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')}"
    return f"{place}, where {_JSON_PARTS.get(wanted, wanted)} should stand"


def _once(pairs: list[tuple[str, Any]]) -> ExampleDict:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} twice in one object")
    return found


def _parse_row(data: bytes, place: str) -> ExampleDict:
    path, _, line = place.rpartition(":")
    try:
        row = parse_json(data.decode("utf-8"), path, int(line))
    except UnicodeDecodeError as error:
        raise not_text(place, error) from None
    if not isinstance(row, dict):
        raise SchemaError(f"expected an object, got {_kind(row)}", place)
    return row


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "a bool"}.get(
        type(value), "a number"
    )


def _line_places(path: str) -> tuple[Array, Array, Array]:
    """Where each line that holds something begins and ends, and its number."""
    breaks = []
    size = 0
    first = b""
    try:
        with open(path, "rb") as file:
            while block := file.read(LINE_BLOCK):
                if not first and (encoding := encoding_of(block)):
                    got = f"{encoding.upper()}. Convert the file: iconv -f {encoding.upper()} -t UTF-8 {path}"
                    raise CorruptionError(f"expected JSON lines in UTF-8, got {got}", path)
                first = first or block[:3]
                breaks.append(np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + size)
                size += len(block)
            ends = np.concatenate([*breaks, [size]]).astype(np.int64)
            starts = np.concatenate([[3 if first == b"\xef\xbb\xbf" else 0], ends[:-1] + 1])
            filled = ends > starts
            for at in np.flatnonzero(filled & (ends - starts <= 8)).tolist():  # so short that it may be blank
                file.seek(int(starts[at]))
                filled[at] = bool(file.read(int(ends[at] - starts[at])).strip())
    except OSError:
        read_file(path)  # which says what is wrong
        raise
    return starts[filled], ends[filled], np.flatnonzero(filled) + 1
