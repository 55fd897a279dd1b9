"""Images with labels in CSV, as Datum has them: train.csv beside train/."""

from __future__ import annotations

import os
from typing import Any

from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError
from ..inference import infer
from ..splitting import Splits
from ..storage import PathLike, bring_all, checked_path, join_path, local_copies, named_by_url
from .cells import read_columns
from .files import entries, has_suffix, suffixes
from .listed import Examples, Loading, split_order
from .literals import NotLiteral, literal


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
    folders = {entry.name for entry in listed if entry.is_dir()}
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
    return Loading(Examples(rows, keys, places, schema, known), {"image": "filename"}, folder)


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
