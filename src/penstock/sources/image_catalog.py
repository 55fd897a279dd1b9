"""Images with a catalog beside them: which column names the files, which one is the label, what lacks a partner."""

from __future__ import annotations

import csv as csv_format
import json as json_format
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..errors import SchemaError, StorageError, name_known
from ..schema.columns import ExampleDict, Value
from ..storage.files import parent_path
from ..storage.paths import entries, has_suffix, is_directory
from ..storage.store import is_url
from .files import IMAGE_SUFFIXES, decoded_text, head_of
from .rows import Loading
from .splits import Splits

CATALOGS = {"csv": (".csv", ".tsv"), "jsonl": (".jsonl", ".ndjson"), "json": (".json",)}
LABELS = ("label", "labels", "class", "class_name", "classname", "category", "target", "species", "y")
SPLITS = ("split", "subset", "fold")
_HEAD = 1 << 20  # bytes of a catalog that are looked at
_MOST_ROWS = 1000  # rows of a catalog that are looked at
_MOST_FOLDERS = 20  # that images are looked for in
_MOST_NAMES = 3  # that a note lists
_SPLIT_VALUES = ("train", "training", "val", "valid", "validation", "eval", "test", "testing", "dev")


@dataclass(frozen=True)
class Catalog:
    """A file of rows that name images.

    kind   the function that reads it: csv, jsonl or json
    image  the column of file names, relative to the folder `root`
    label  the column of classes, if there is one; `split` that of splits
    """

    path: str
    kind: str
    image: str
    root: str
    label: str | None = None
    split: str | None = None
    unsure: tuple[str, ...] = ()  # columns that may be the label
    others: tuple[str, ...] = ()  # files beside it that are not read

    @property
    def options(self) -> dict[str, object]:
        """The options of the function that reads it."""
        root = None if self.root == parent_path(self.path) else self.root
        said = {"image": self.image, "label": self.label, "split": self.split, "root": root}
        said["delimiter"] = _other_delimiter(self.path) if self.kind == "csv" else None
        return {name: value for name, value in said.items() if value is not None}

    @property
    def why(self) -> str:
        """How it was recognised."""
        return f"{os.path.basename(self.path)} names the images in its column {self.image!r}"


def _other_delimiter(path: str) -> str | None:
    """The delimiter of a CSV file that is not the usual one."""
    header = decoded_text(head_of(path, _HEAD), path, whole=False).partition("\n")[0]
    delimiter = _delimiter(path, header)
    return None if delimiter == _delimiter(path, "") else delimiter


def find_catalogs(paths: Iterable[str], image: str | None = None, label: str | None = None) -> list[Catalog]:
    """The files among these that name images in a column; in `image`, if that is given.

    In a folder of 0.jpg, 1.jpg ... a column of small numbers looks like names without suffixes. So names without
    suffixes count only where no file has names with them.
    """
    kinds = {path: kind for path in paths for kind, suffixes in CATALOGS.items() if has_suffix(path, suffixes)}
    samples = {path: _sample(path, kind) for path, kind in kinds.items()}
    found: list[Catalog] = []
    for whole in (True, False):
        made = (_catalog(path, kind, samples[path], image, label, whole=whole) for path, kind in kinds.items())
        found = found or [catalog for catalog in made if catalog is not None]
    if not found and image is not None:
        for path in (path for path, rows in samples.items() if any(image in row for row in rows)):
            values = ", ".join(str(row.get(image)) for row in samples[path][:_MOST_NAMES])
            hint = "Paths are relative to the file that names them"
            raise SchemaError(f"expected images in the column {image!r}, got no file for {values}", path, hint)
    others = tuple(os.path.basename(path) for path in kinds if path not in [each.path for each in found])
    return [replace(catalog, others=others) for catalog in found]


def remote_catalog(path: str, kind: str, image: str | None, label: str | None) -> Catalog | None:
    """A file of a store whose rows name images, by the suffixes of the names alone: a store is not listed for that."""
    rows = _sample(path, kind)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    named = {
        name: [str(row.get(name)) for row in rows]
        for name in columns
        if 2 * sum(has_suffix(str(row.get(name)), IMAGE_SUFFIXES) for row in rows) >= len(rows) > 0
    }
    if image is None and not named:
        return None
    chosen = image if image is not None else _one_column(named, rows, path)
    if chosen not in columns:
        raise SchemaError(f"no column {chosen!r}", path, name_known(chosen, columns, "columns"))
    others = [name for name in columns if name != chosen]
    return _with_label(Catalog(path, kind, chosen, parent_path(path)), rows, others, label)


def _catalog(
    path: str, kind: str, rows: Sequence[ExampleDict], image: str | None, label: str | None, *, whole: bool
) -> Catalog | None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if image is not None and image not in columns:
        return None
    for root in _roots(path):
        names = [image] if image is not None else columns
        found = {name: _resolved(root, [row.get(name) for row in rows]) for name in names}
        fits = {name: files for name, files in found.items() if 2 * sum(map(bool, files)) >= len(rows) > 0}
        fits = _file_names(fits, rows, whole=whole)
        if not fits:
            continue
        chosen = _one_column(fits, rows, path)
        catalog = Catalog(path, kind, chosen, root)
        return _with_label(catalog, rows, [name for name in columns if name != chosen], label)
    return None


def _file_names(fits: dict[str, list[str]], rows: Sequence[ExampleDict], *, whole: bool) -> dict[str, list[str]]:
    """The columns that hold names with suffixes, or, if not `whole`, other names that do not come again."""
    if whole:
        names = [name for name in fits if any(has_suffix(str(row.get(name)), IMAGE_SUFFIXES) for row in rows)]
    else:
        names = [name for name, files in fits.items() if 10 * len(set(files)) >= 9 * len(files)]
    return {name: fits[name] for name in names}


def _one_column(fits: dict[str, list[str]], rows: Sequence[ExampleDict], path: str) -> str:
    """The column of file names; of an id beside a file name, the file name."""
    names = list(fits)
    if len({tuple(files) for files in fits.values()}) == 1:
        return max(names, key=lambda name: sum(has_suffix(str(row.get(name)), IMAGE_SUFFIXES) for row in rows))
    listed = ", ".join(map(repr, names))
    raise SchemaError(f"expected one column of images, got {listed}", path, f"Choose it: --image {names[0]}")


def _with_label(catalog: Catalog, rows: Sequence[ExampleDict], others: list[str], label: str | None) -> Catalog:
    if label is not None and label not in others:
        raise SchemaError(f"no column {label!r}", catalog.path, name_known(label, others, "columns"))
    split = next((n for n in others if n.lower() in SPLITS and _are_splits(row.get(n) for row in rows)), None)
    others = [name for name in others if name != split]
    usual = {name.lower(): name for name in reversed(others)}
    known = next((usual[name] for name in LABELS if name in usual and _are_labels(rows, usual[name])), None)
    unsure = [name for name in others if _are_classes(rows, name)]
    chosen = label or known or (unsure[0] if len(unsure) == 1 else None)
    return replace(catalog, label=chosen, split=split, unsure=() if chosen else tuple(unsure))


def _are_splits(values: Iterable[Value]) -> bool:
    return all(isinstance(value, str) and value.lower() in _SPLIT_VALUES for value in values)


def _are_labels(rows: Sequence[ExampleDict], name: str) -> bool:
    return all(isinstance(row.get(name), (str, int, type(None))) for row in rows)


def _are_classes(rows: Sequence[ExampleDict], name: str) -> bool:
    """Whether the values of a column are words of which some come again."""
    values = [value for row in rows if (value := row.get(name)) not in (None, "")]
    words = all(isinstance(value, str) and len(value) <= 60 and not _is_number(value) for value in values)
    return words and 0 < len(set(values)) <= len(values) / 2


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in ("true", "false")
    return True


def _roots(path: str) -> Iterator[str]:
    """The folders that paths in a catalog may be relative to: its own, those in it, and the one that it is in."""
    folder = os.path.dirname(path) or os.curdir
    yield folder
    with suppress(StorageError):
        below = [f"{folder}/{entry.name}" for entry in entries(folder) if is_directory(entry)]
        yield from below[:_MOST_FOLDERS]
    yield os.path.join(folder, os.pardir) if folder == os.curdir else os.path.dirname(folder) or os.curdir


def _resolved(root: str, names: Sequence[Value]) -> list[str]:
    """The image that each name stands for, or nothing."""
    files = ImageFiles(root)
    return [files.find(name) if isinstance(name, (str, int)) else "" for name in names]


class ImageFiles:
    """The images below a folder, looked up by a path with or without suffix. Folders are listed once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.folders: dict[str, dict[str, str]] = {}

    def find(self, name: str | int) -> str:
        """The path below the root of an image, or nothing."""
        folder, file = os.path.split(os.path.normpath(str(name)))
        if os.path.isabs(folder) or folder.split(os.sep)[0] == os.pardir or file in ("", os.curdir, os.pardir):
            return ""
        found = self.images(folder).get(file)
        return os.path.join(folder, found) if found else ""

    def images(self, folder: str) -> dict[str, str]:
        """The images of a folder, by name and by name without suffix."""
        if folder not in self.folders:
            names: list[str] = []
            with suppress(StorageError):
                below = entries(os.path.join(self.root, folder))
                names = [entry.name for entry in below if has_suffix(entry.name, IMAGE_SUFFIXES)]
            stems = {os.path.splitext(name)[0]: name for name in reversed(names)}
            self.folders[folder] = {**stems, **{name: name for name in names}}
        return self.folders[folder]


def _sample(path: str, kind: str) -> list[ExampleDict]:
    """Some of the first rows; none of a file that cannot be read: whoever reads it finds out."""
    try:
        data = head_of(path, _HEAD + 1)
        whole = len(data) <= _HEAD
        text = decoded_text(data[:_HEAD], path, whole=whole)
    except (OSError, SchemaError, ValueError):
        return []
    if kind == "json":
        with suppress(ValueError, RecursionError):
            found = json_format.loads(text if whole else _first_objects(text))
            items = list(found.values()) if isinstance(found, dict) else found
            return [item for item in items[:_MOST_ROWS] if isinstance(item, dict)] if isinstance(items, list) else []
        return []
    lines = [f"{line}\n" for line in text.split("\n")]
    lines = lines if whole else lines[:-1]
    if kind == "jsonl":
        with suppress(ValueError, RecursionError):
            items = [json_format.loads(line) for line in lines[:_MOST_ROWS] if line.strip()]
            return [item for item in items if isinstance(item, dict)]
        return []
    with suppress(csv_format.Error):
        found = csv_format.reader(lines[: _MOST_ROWS + 1], delimiter=_delimiter(path, lines[0]))
        header = next(found, [])
        return [dict(zip(header, row, strict=False)) for row in found if any(row)]
    return []


def _delimiter(path: str, header: str) -> str:
    """The delimiter of a CSV file: the usual one, or the one that its header has in its place."""
    usual = "\t" if has_suffix(path, (".tsv",)) else ","
    return usual if usual in header else next((letter for letter in ";\t|" if letter in header), usual)


def _first_objects(text: str) -> str:
    """The whole objects at the beginning of a long list."""
    return text[: text.rfind("}") + 1] + "]"


def notes_on(source: Any, catalog: Catalog) -> list[str]:
    """What to tell of images and a catalog: which columns are used, and which rows and images lack a partner."""
    parts = list(source.values()) if isinstance(source, Splits) else [source]
    first = getattr(parts[0], "source", parts[0]) if isinstance(source, Splits) else source
    name = os.path.basename(catalog.path)
    label = first.schema.get("label") if catalog.label and first.schema is not None else None
    classes = len(getattr(label, "classes", None) or ())
    told = f"{classes} classes" if classes else "numbers"
    notes = [f"label is the column {catalog.label!r}: {told}"] if catalog.label else []
    if catalog.unsure:
        columns = ", ".join(map(repr, catalog.unsure))
        notes.append(f"no column is the label: {columns} stay as they are. Choose one: --label {catalog.unsure[0]}")
    if catalog.split:
        notes.append(f"splits are those of the column {catalog.split!r}: {', '.join(source)}")
    if catalog.others:
        notes.append(f"not read: {_some(catalog.others)}")
    missing, unlisted = ([], []) if is_url(catalog.path) else partners(first, catalog)
    if missing:
        rows = "1 row of {} names a file that does not exist" if len(missing) == 1 else (
            f"{len(missing):,} rows of {{}} name files that do not exist"
        )  # fmt: skip
        notes.append(f"{rows.format(name)}: {_some(missing)}")
    if unlisted:
        images = "1 image is" if len(unlisted) == 1 else f"{len(unlisted):,} images are"
        notes.append(f"{images} not in {name}, and not in the dataset: {_some(unlisted)}")
    return notes


def partners(source: Loading, catalog: Catalog) -> tuple[list[str], list[str]]:
    """The names in a catalog without a file, and the images in their folders without a row."""
    files = ImageFiles(catalog.root)
    found, missing = set(), []
    for name in source.names(catalog.image):
        file = "" if name in (None, "") else files.find(_below(str(name), catalog.root))
        found.add(file)
        if not file and not (name and os.path.exists(os.path.join(catalog.root, str(name)))):
            missing.append(str(name or "(empty)"))
    folders = {os.path.dirname(file) for file in found if file}
    beside = [
        os.path.join(folder, name) for folder in sorted(folders) for name in sorted({*files.images(folder).values()})
    ]
    return missing, [file for file in beside if file not in found]


def _below(name: str, root: str) -> str:
    return os.path.relpath(name, os.path.abspath(root)) if os.path.isabs(name) else name


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
