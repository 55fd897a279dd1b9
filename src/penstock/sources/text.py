"""Texts with labels in JSON, as Datum has them: train.json, train_2.json, val.json."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from ..errors import SchemaError, StorageError
from ..splitting import Splits
from .catalog import read_objects
from .files import PathLike, entries, has_suffix
from .listed import Examples, split_order
from .literals import NotLiteral, literal

_PART = re.compile(r"(.+?)(?:[_-]?[0-9]+)?")  # train, train_2, train-00003


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
    return Splits({split: read_texts(splits[split]) for split in sorted(splits, key=split_order)})


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
