"""Datum's two plain layouts: texts with labels in JSON, and images with labels in CSV."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError
from ..inference import infer
from ..schema import Schema
from ..splits import Splits
from .catalog import read_objects
from .cells import read_columns
from .files import IMAGE_SUFFIXES, PathLike, entries, has_suffix, stamp_of
from .listed import Loading, position, split_order
from .literals import NotLiteral, literal

_PART = re.compile(r"(.+?)(?:[_-]?[0-9]+)?")  # train, train_2, train-00003


class Examples:
    """Examples that are in memory as a whole, each with its key and the file that it comes from."""

    def __init__(
        self, examples: list[dict[str, Any]], keys: list[str], places: list[str], schema: Schema | None = None
    ) -> None:
        self.examples = examples
        self.keys = keys
        self.places = places
        self.schema = schema

    def __len__(self) -> int:
        return len(self.examples)

    def __repr__(self) -> str:
        return f"Examples({len(self)} of {', '.join(self.examples[0]) if self.examples else 'nothing'})"

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.examples[position(index, len(self))]

    def column(self, name: str) -> list[Any] | None:
        """The values of one field."""
        return [example.get(name) for example in self.examples] if any(name in e for e in self.examples[:1]) else None

    def key(self, index: int) -> str:
        """What names the example."""
        return self.keys[position(index, len(self))]

    def place(self, index: int) -> str:
        """The file, and where in it."""
        return self.places[position(index, len(self))]

    def stamp(self, index: int) -> str:
        """That of the file."""
        return stamp_of(self.place(index).rpartition("[" if self.place(index).endswith("]") else ":")[0])


def text_classification(root: PathLike) -> Splits:
    """Texts with labels: train.json, train_2.json ..., each {id: {"text": ..., "label": {name: value}}}.

    An example holds `text` and a field for each of its labels. A label written as a number is one.
    """
    folder = os.fspath(root)
    names = [entry.name for entry in entries(folder) if entry.is_file() and has_suffix(entry.name, (".json",))]
    if not names:
        raise StorageError(f"expected files such as train.json, got none that end in .json - at {folder}")
    splits: dict[str, list[str]] = {}
    for name in names:
        match = _PART.fullmatch(name[: -len(".json")])
        splits.setdefault(match[1] if match else name, []).append(os.path.join(folder, name))
    return Splits({split: _texts(splits[split]) for split in sorted(splits, key=split_order)})


def _texts(files: Sequence[str]) -> Examples:
    examples, places = [], []
    owners: dict[str, str] = {}
    for path in files:
        names, items = read_objects(path)
        if names is None:
            raise SchemaError("expected an object whose names are ids, got a list", path)
        for name, item in zip(names, items, strict=True):
            place = f"{path}[{name!r}]"
            if name in owners:
                raise SchemaError(f"expected each id once, got {name!r} in {owners[name]} too", place)
            owners[name] = path
            examples.append(_text_example(item, place))
            places.append(place)
    return Examples(examples, list(owners), places)


def _text_example(item: dict[str, Any], place: str) -> dict[str, Any]:
    text, labels = item.get("text"), item.get("label")
    if not isinstance(text, str):
        raise SchemaError(f"expected a text, got {'nothing' if text is None else type(text).__name__}", f"{place}.text")
    if not isinstance(labels, dict):
        got = "nothing" if labels is None else type(labels).__name__
        raise SchemaError(f"expected labels as an object, got {got}", f"{place}.label", 'Write {"name": value}')
    if "text" in labels:
        raise SchemaError("expected labels of other names, got one called 'text'", f"{place}.label")
    return {"text": text, **{name: _literal_or_text(value) for name, value in labels.items()}}


def _literal_or_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return literal(value)
    except NotLiteral:
        return value


def image_classification(root: PathLike) -> Splits:
    """Images with labels: train.csv beside the folder train/, and so on for each split.

    The column `filename` names an image of the folder, with or without its suffix. Every other column is a field; its
    cells are Python literals (3, 0.5, 'text', [1, 2]), or all of them are plain texts.
    """
    folder = os.fspath(root).rstrip("/") or "/"
    listed = entries(folder)
    folders = {entry.name for entry in listed if entry.is_dir()}
    catalogs = [entry.name for entry in listed if entry.is_file() and has_suffix(entry.name, (".csv",))]
    splits = sorted((name[: -len(".csv")] for name in catalogs if name[: -len(".csv")] in folders), key=split_order)
    if not splits:
        got = f"{', '.join(catalogs) or 'no CSV file'} beside {', '.join(sorted(folders)) or 'no folder'}"
        raise StorageError(f"expected train.csv beside the folder train, got {got} - at {folder}")
    return Splits({split: _labelled_images(folder, split) for split in splits})


def _labelled_images(folder: str, split: str) -> Loading:
    path = f"{folder}/{split}.csv"
    columns, lines = read_columns([path], texts=_AllNames())
    if "filename" not in columns:
        raise SchemaError(f"expected a column 'filename', got {', '.join(columns)}", f"{path}:1")
    places = [f"{path}:{line}" for line in lines[0].tolist()]
    fields = {name: _values(name, c.to_list(), places) for name, c in columns.items() if name != "filename"}
    if "image" in fields:
        raise SchemaError("expected columns of other names, got one called 'image'", f"{path}:1")
    images = _images(f"{folder}/{split}")
    names = [_found(images, name, place) for name, place in zip(columns["filename"].to_list(), places, strict=True)]
    keys = [f"{split}/{name}" for name in names]
    rows = [
        {"filename": name, **dict(zip(fields, values, strict=True))}
        for name, values in zip(names, zip(*fields.values(), strict=True) if fields else [()] * len(names), strict=True)
    ]
    schema = infer([{name: row[name] for name in fields} for row in rows]) if rows and fields else None
    return Loading(Examples(rows, keys, places, schema), {"image": "filename"}, f"{folder}/{split}")


class _AllNames(tuple[str, ...]):
    """Every name is in it: each column stays text, for its cells are literals."""

    def __contains__(self, name: object) -> bool:
        return True


def _values(name: str, cells: list[str], places: list[str]) -> list[Any]:
    values: list[Any] = []
    plain = None
    for cell, place in zip(cells, places, strict=True):
        try:
            values.append(literal(cell))
        except NotLiteral:
            plain = plain or (cell, place)
    if plain is None:
        return values
    if values:
        hint = "Write texts in quotes, or none of the column's cells"
        raise SchemaError(f"expected a literal such as 3, 'text' or [1, 2], got {plain[0][:60]!r}", plain[1], hint)
    return list(cells)


def _images(folder: str) -> dict[str, str]:
    """The images of a folder by their names, with and without suffix."""
    found: dict[str, str] = {}
    for entry in entries(folder):
        if has_suffix(entry.name, IMAGE_SUFFIXES):
            stem = os.path.splitext(entry.name)[0]
            found[stem] = "" if stem in found else entry.name
            found[entry.name] = entry.name
    return found


def _found(images: dict[str, str], name: str, place: str) -> str:
    file = images.get(name.strip())
    if file is None:
        raise NotFoundError(f"expected an image {name!r} in the folder, got none - at {place}")
    if not file:
        raise CorruptionError(f"expected one image {name!r}, got some that differ in suffix", place)
    return file
