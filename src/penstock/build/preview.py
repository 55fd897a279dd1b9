"""What a build would do, without a file written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..schema import Schema
from .listing import infer_schema, list_splits
from .local import Local
from .options import Options


@dataclass(frozen=True)
class Preview:
    """The plan of a build: the schema as far as a sample shows it, and for each split its examples and shards.

    A split whose number of examples is not known before it is built has None for both.
    """

    schema: Schema
    splits: dict[str, tuple[int, int] | None]


def preview(source: Any, **options: Any) -> Preview:
    """List the source, load a sample, and plan. The options are those of `build` that decide what is written."""
    asked = Options.checked(source, **options)
    splits = list_splits(source, asked.order, asked.seed)
    workers = Local()
    for split in splits:
        split.look(asked.on_error, workers)
    schema = asked.schema or infer_schema(splits, asked.on_error)
    counts: dict[str, tuple[int, int] | None] = {}
    for split in splits:
        unknown = split.stream is not None or asked.dedupe or split.multiplies(workers)
        shards = None if unknown else split.count_shards(schema, asked.shards, asked.formats[0])
        counts[split.name] = None if shards is None else (len(split.rows), shards)
    return Preview(schema, counts)
