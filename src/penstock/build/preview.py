"""What a build would do, without a file written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..records.tfrecord import TFRecord
from ..schema import Schema
from .listing import infer_schema, list_splits
from .options import Options, Quarantine


@dataclass(frozen=True)
class Preview:
    """The plan of a build: the schema as far as a sample shows it, and for each split its examples and shards.

    A split whose number of examples is not known before it is built has None for both.
    """

    schema: Schema
    splits: dict[str, tuple[int, int] | None]


def preview(
    source: Any,
    *,
    format: str | TFRecord = "tfrecord",
    shards: int | None = None,
    schema: Schema | Mapping[str, Any] | str | None = None,
    order: str = "hash",
    seed: int = 0,
    on_error: str | Quarantine = "raise",
) -> Preview:
    """List the source, load a sample, and plan."""
    options = Options.checked(format, shards, schema, order, seed, on_error)
    splits = list_splits(source, order, seed)
    for split in splits:
        split.look(options.on_error)
    decided = options.schema or infer_schema(splits, options.on_error)
    counts: dict[str, tuple[int, int] | None] = {}
    for split in splits:
        unknown = split.stream is not None or split.multiplies()
        shards_of_split = None if unknown else split.count_shards(decided, shards, options.format)
        counts[split.name] = None if shards_of_split is None else (len(split.rows), shards_of_split)
    return Preview(decided, counts)
