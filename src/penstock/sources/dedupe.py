"""A source, or splits, whose records shall be different from each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import SchemaError


@dataclass(frozen=True)
class Deduped:
    """What a build makes without duplicates: in each split, or across all."""

    source: Any
    across: bool


def dedupe(source: Any, *, across: bool = False) -> Deduped:
    """Leave out examples whose record is that of another one, to the byte.

        build(dedupe(rows), "data/rows")
        build(dedupe(split(rows, train=0.9, test=0.1), across=True), "data/rows")

    across  not only within each split: an example that stands in an earlier split is left out of the later ones

    The first one stays, in the order of the records: neither the order of the input nor the workers decide which that
    is, unless the build is to keep the order of the source.
    """
    if isinstance(source, Deduped):
        raise SchemaError("expected a source, got one that is deduped already")
    return Deduped(source, across)
