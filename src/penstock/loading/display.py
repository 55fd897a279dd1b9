"""How datasets, splits and loaders look: a few lines of text, and HTML with thumbnails for notebooks."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..errors import PenstockError, redact
from ..records.inspect import MOST_VALUES, counted, shortened, size_text
from ..schema.coercion import encode_png
from ..schema.columns import ExampleDict, Value
from ..schema.field import Field, image_type
from ..schema.schema import Schema

if TYPE_CHECKING:
    from .dataset import Dataset
    from .loader import Split
    from .spec import LoadSpec

SHOWN = 4  # examples in HTML
THUMBNAIL = 96  # pixels
MOST_IMAGE_BYTES = 256 << 10
_STYLE = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;font-family:monospace"


def dataset_text(dataset: Dataset) -> str:
    """The splits and the schema."""
    splits = dataset.info()["splits"]
    width = max([len(split) for split in splits], default=0)
    lines = [f"Dataset({dataset.name!r}, {redact(str(dataset.path))!r})"]
    for split, what in splits.items():
        held = f"{counted(what['examples'], 'example')} in {counted(what['shards'], 'shard')}"
        lines.append(f"  {split:<{width}}  {held}, {size_text(what['bytes'])}")
    return "\n".join([*lines, *_fields(dataset.schema)])


def split_text(split: Split) -> str:
    """Its name, size and schema."""
    lines = [f"Split({split.name!r}: {counted(len(split), 'example')})"]
    return "\n".join([*lines, *_fields(split.schema)])


def loader_text(spec: LoadSpec) -> str:
    """The chain of steps."""
    data = spec.dataset
    host = spec.host
    told = [f"{data.name}[{counted(data.examples, 'example')}]", *spec.pipeline]
    if host.count > 1:
        told.append(f"shard({host.index}, {host.count}{f', even={host.even!r}' if host.even else ''})")
    return f"Loader({'.'.join(told)})"


def _fields(schema: Schema) -> list[str]:
    leaves = schema.leaves()
    width = max([len(leaf.name) for leaf in leaves], default=0)
    kinds = [f" ({kind})" if (kind := kind_text(leaf)) else "" for leaf in leaves]
    return [f"  {leaf.name:<{width}}  {leaf}{kind}" for leaf, kind in zip(leaves, kinds, strict=True)]


def kind_text(leaf: Field) -> str:
    """What a field is, where its type does not say it: its classes, or its kind."""
    if leaf.classes is not None:
        names = ", ".join(leaf.classes[:MOST_VALUES]) + (", ..." if len(leaf.classes) > MOST_VALUES else "")
        return f"{len(leaf.classes)} class{'es' * (len(leaf.classes) != 1)}: {names}"
    return "" if leaf.kind in ("tensor", "text") else leaf.kind


def field_value_text(value: Value, leaf: Field) -> str:
    """A value in one short line; a label with its name."""
    if leaf.classes is None or leaf.shape or leaf.levels or value is None or not 0 <= int(value) < len(leaf.classes):
        return shortened(value)
    return f"{leaf.classes[int(value)]} ({int(value)})"


# HTML
def dataset_html(dataset: Dataset) -> str:
    """The text, and a few examples of the first split."""
    first = next((split for split in dataset.values() if len(split)), None)
    shown = "" if first is None else _examples_html(first)
    return f"<pre>{html.escape(dataset_text(dataset))}</pre>{shown}"


def split_html(split: Split) -> str:
    """The text, and a few examples."""
    return f"<pre>{html.escape(split_text(split))}</pre>{_examples_html(split)}"


def _examples_html(split: Split) -> str:
    leaves = {leaf.name: leaf for leaf in split.schema.leaves()}
    head = "".join(f'<th style="{_STYLE}">{html.escape(name)}</th>' for name in ["", *leaves])
    rows = []
    for number in range(min(SHOWN, len(split))):
        try:
            example = _flat(split[number])
        except PenstockError as error:
            rows.append(
                f'<tr><td style="{_STYLE}">{number}</td><td colspan="{len(leaves)}">{html.escape(str(error))}</td></tr>'
            )
            continue
        cells = "".join(f'<td style="{_STYLE}">{_cell(example.get(name), leaf)}</td>' for name, leaf in leaves.items())
        rows.append(f'<tr><td style="{_STYLE}">{number}</td>{cells}</tr>')
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _flat(example: Mapping[str, Value], prefix: str = "") -> ExampleDict:
    flat: ExampleDict = {}
    for name, value in example.items():
        flat |= _flat(value, f"{prefix}{name}/") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _cell(value: Value, leaf: Field) -> str:
    picture = thumbnail(value)
    if picture is not None:
        return f'<img src="{picture}" style="max-width:{THUMBNAIL}px;max-height:{THUMBNAIL}px">'
    return html.escape(field_value_text(value, leaf))


def thumbnail(value: Value) -> str | None:
    """A small picture as a data URI, if a value is one: an image file that is not too large, or an array of pixels."""
    if isinstance(value, bytes):
        kind = image_type(value)
        small = kind is not None and len(value) <= MOST_IMAGE_BYTES
        return f"data:{kind};base64,{base64.b64encode(value).decode()}" if small else None
    pixels = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.size
    if not pixels or value.shape[2] not in (1, 3, 4):
        return None
    step = max(1, -(-max(value.shape[:2]) // THUMBNAIL))
    return f"data:image/png;base64,{base64.b64encode(encode_png(value[::step, ::step])).decode()}"
