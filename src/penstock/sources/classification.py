"""Values written as Python literals, as Datum's catalogs have them: 3, 0.5, 'text', [1, 2]. Nothing is executed."""

from __future__ import annotations

import ast
import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..dataset.record_files import split_order
from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError
from ..schema.columns import ExampleDict, Value
from ..schema.inference import infer
from ..storage.files import bring_all, checked_path, join_path, local_copies, named_by_url, object_stamps
from ..storage.paths import PathLike, entries, files_named, has_suffix, is_directory
from ..storage.store import is_url, split_url
from .catalog import read_objects
from .csv_columns import read_columns
from .files import IMAGE_SUFFIXES, suffixes
from .rows import Examples, Loading, load_files
from .splits import Splits

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


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, _KINDS)


def keyed(pairs: Iterable[tuple[Any, Mapping[str, Any]]], where: str, *, images: bool = True) -> Loading:
    """The examples of pairs (key, example), listed. `where` names what yields them.

    images  texts that end as the names of image files do, in the first example, stand for these files
    """
    found = [(str(key), dict(example)) for key, example in pairs]
    if not found:
        raise SchemaError("expected examples, got none", where)
    texts = [name for name, value in found[0][1].items() if isinstance(value, str)]
    files = [name for name in texts if images and has_suffix(found[0][1][name], IMAGE_SUFFIXES)]
    for key, example in found:
        for name in files:
            if not isinstance(example.get(name), str):
                raise SchemaError(
                    f"expected the name of an image file in {name!r}, got none", f"{where}, example {key!r}"
                )
            example[name] = example[name] if is_url(example[name]) else os.path.abspath(example[name])
    keys, examples = [key for key, _ in found], [example for _, example in found]
    places = [f"{where}, example {key!r}" for key in keys]
    images_at = {
        split_url(path)[0] if is_url(path) else os.sep for each in examples for path in (each[name] for name in files)
    }
    if len(images_at) > 1:
        raise SchemaError(f"expected images of one store, got some of {' and of '.join(sorted(images_at))}", where)
    root = next(iter(images_at), os.sep)
    return load_files(Examples(examples, keys, places, infer(examples)), {name: name for name in files}, root)


def image_classification(
    root: PathLike,
    *,
    split: str | None = None,
    csv_path: str | None = None,
    image_dir: str | None = None,
    extension: str | None = None,
) -> Loading | Splits:
    """Images with labels: train.csv beside the folder train/, and so on for each split.

    The column `filename` names an image of the folder, with or without its suffix. Every other column is a field; its
    cells are Python literals (3, 0.5, 'text', [1, 2]), or all of them are plain texts.

    split                this one alone, without the others
    csv_path, image_dir  of that split, where they have other names: "lists/some.csv", "pictures"
    extension            of images, where there are others beside them: ".jpg"
    """
    folder = checked_path(root).rstrip("/") or "/"
    if split is not None:
        path, images = join_path(folder, csv_path or f"{split}.csv"), join_path(folder, image_dir or split)
        return labelled_images(path, images, split, suffixes(extension))
    if csv_path or image_dir:
        hint = 'Such as split="train"'
        raise SchemaError("expected a split with csv_path and image_dir, got none", "image_classification", hint)
    listed = entries(folder)
    folders = {entry.name for entry in listed if is_directory(entry)}
    catalogs = [entry.name for entry in listed if entry.is_file() and has_suffix(entry.name, (".csv",))]
    splits = sorted((name[: -len(".csv")] for name in catalogs if name[: -len(".csv")] in folders), key=split_order)
    if not splits:
        got = f"{', '.join(catalogs) or 'no CSV file'} beside {', '.join(sorted(folders)) or 'no folder'}"
        raise StorageError(f"expected train.csv beside the folder train, got {got} - at {folder}")
    ends = suffixes(extension)
    return Splits({name: labelled_images(f"{folder}/{name}.csv", f"{folder}/{name}", name, ends) for name in splits})


def labelled_images(path: str, folder: str, split: str, ends: tuple[str, ...]) -> Loading:
    """The images of a folder that a CSV file labels."""
    copies = local_copies([path])
    with named_by_url(copies):
        columns, lines = read_columns(bring_all(copies), texts=None)  # cells are literals
    if "filename" not in columns:
        raise SchemaError(f"expected a column 'filename', got {', '.join(columns)}", f"{path}:1")
    places = [f"{path}:{line}" for line in lines[0].tolist()]
    fields = {name: _values(name, c.to_list(), places) for name, c in columns.items() if name != "filename"}
    if "image" in fields:
        raise SchemaError("expected columns of other names, got one called 'image'", f"{path}:1")
    images = _images(folder, ends)
    names = [_found(images, name, place) for name, place in zip(columns["filename"].to_list(), places, strict=True)]
    keys = [f"{split}/{name}" for name in names]
    rows = [
        {"filename": name, **dict(zip(fields, values, strict=True))}
        for name, values in zip(names, zip(*fields.values(), strict=True) if fields else [()] * len(names), strict=True)
    ]
    schema = infer([{name: row[name] for name in fields} for row in rows]) if rows and fields else None
    known = {str(copy): copy.remote.tag for copy in copies if copy.remote is not None}
    return load_files(Examples(rows, keys, places, schema, known), {"image": "filename"}, folder)


def _values(name: str, cells: list[str], places: list[str]) -> list[Value]:
    values: list[Value] = []
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


def _images(folder: str, ends: tuple[str, ...]) -> dict[str, str]:
    """The images of a folder by their names, with and without suffix."""
    found: dict[str, str] = {}
    for entry in entries(folder):
        if has_suffix(entry.name, ends):
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


_PART = re.compile(r"(.+?)(?:[_-]?[0-9]+)?")  # train, train_2, train-00003


def text_classification(root: PathLike, *, split: str | None = None, json_path: str | None = None) -> Examples | Splits:
    """Texts with labels: train.json, train_2.json ..., each {id: {"text": ..., "label": {name: value}}}.

    An example holds `text` and a field for each of its labels. A label written as a number is one.

    split      this one alone, without the others
    json_path  the files of that split, where they have other names: "other.json", "parts/*.json"
    """
    folder = checked_path(root)
    if json_path is not None:
        if split is None:
            raise SchemaError(
                "expected a split with json_path, got none", "text_classification", 'Such as split="train"'
            )
        return read_texts(
            files_named(join_path(folder if is_url(folder) else glob.escape(folder), json_path), (".json",))
        )
    names = [entry.name for entry in entries(folder) if entry.is_file() and has_suffix(entry.name, (".json",))]
    if not names:
        raise StorageError(f"expected files such as train.json, got none that end in .json - at {folder}")
    splits: dict[str, list[str]] = {}
    for name in names:
        match = _PART.fullmatch(name[: -len(".json")])
        splits.setdefault(match[1] if match else name, []).append(join_path(folder, name))
    if split is not None:
        if split not in splits:
            raise NotFoundError(f"expected a file {split}.json, got none - at {folder}")
        return read_texts(splits[split])
    return Splits({name: read_texts(splits[name]) for name in sorted(splits, key=split_order)})


def read_texts(files: Sequence[str]) -> Examples:
    """The texts of some files, under their ids."""
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
    return Examples(examples, list(owners), places, known=object_stamps(filter(is_url, files), {}))


def _text_example(item: ExampleDict, place: str) -> ExampleDict:
    text, labels = item.get("text"), item.get("label")
    if not isinstance(text, str):
        raise SchemaError(f"expected a text, got {'nothing' if text is None else type(text).__name__}", f"{place}.text")
    if not isinstance(labels, dict):
        got = "nothing" if labels is None else type(labels).__name__
        raise SchemaError(f"expected labels as an object, got {got}", f"{place}.label", 'Write {"name": value}')
    if "text" in labels:
        raise SchemaError("expected labels of other names, got one called 'text'", f"{place}.label")
    return {"text": text, **{name: _literal_or_text(value) for name, value in labels.items()}}


def _literal_or_text(value: object) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return literal(value)
    except NotLiteral:
        return value
