"""Texts with labels in JSON, as Datum has them: train.json, train_2.json, val.json."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from typing import Any

from ..errors import NotFoundError, SchemaError, StorageError
from ..splitting import Splits
from ..storage import PathLike, checked_path, is_url, join_path, object_stamps
from .catalog import read_objects
from .files import entries, files_named, has_suffix
from .listed import Examples, split_order
from .literals import NotLiteral, literal

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
