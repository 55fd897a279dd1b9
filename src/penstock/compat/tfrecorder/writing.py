"""Examples into a folder of numbered TFRecord files, each up to a size, with a CSV file that tells which they are."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SchemaError
from ...records.tfrecord import TFRecordWriter
from ...storage import publish
from .dataset import FIELDS_FILE
from .example import Example, IgnoreExampleException
from .options import given_to

LOG = "examples.csv"
LOGGER = logging.getLogger(__name__)


def write_examples(
    folder: Path, examples: Sequence[Example], options: Mapping[str, Any], most_bytes: float, log: bool
) -> int:
    """Write them, and take away what an earlier run has left; how many there are now."""
    if not most_bytes > 0:
        raise SchemaError(f"expected a size above 0, got {most_bytes!r}", "examples_tfrecord_file_max_size_in_bytes")
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Sequence[Any]] = []
    files, room = 0, 0.0
    with ExitStack() as stack:
        for row, records in _loaded(examples, options, log):
            for record in records:
                if files == 0 or len(record) > room:
                    stack.close()
                    writer = stack.enter_context(TFRecordWriter(folder / f"{files}.tfr"))
                    files, room = files + 1, most_bytes
                writer.write(record)
                room -= len(record)
            rows.append(row)
        if files == 0:
            files = 1
            stack.enter_context(TFRecordWriter(folder / "0.tfr"))
    for stale in folder.glob("*.tfr"):
        if stale.stem.isdecimal() and int(stale.stem) >= files:
            stale.unlink()
    for name in (LOG, FIELDS_FILE):
        (folder / name).unlink(missing_ok=True)
    if log and rows:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        publish(folder / LOG, text.getvalue().encode())
    if examples:
        kind = type(examples[0])
        said = {"class": kind.__name__, "fields": kind.get_tfrecordable_ordered_dict()}
        publish(folder / FIELDS_FILE, json.dumps(said).encode())
    return len(rows)


def _loaded(
    examples: Sequence[Example], options: Mapping[str, Any], log: bool
) -> Iterator[tuple[Sequence[Any], list[bytes]]]:
    """Of each example what is logged, and its records; those that wish to be left out are."""
    ranks: dict[str, int] = {}
    for example in map(copy, examples):
        try:
            example.load(**given_to(example.load, options))
            row = list(example.to_csv_row()) if log else []
            pieces = list(example.split(**given_to(example.split, options)))
        except IgnoreExampleException as reason:
            LOGGER.warning("an example is left out: %s", reason)
            continue
        yield row, [_record(piece, ranks) for piece in pieces]


def _record(piece: Example, ranks: dict[str, int]) -> bytes:
    """The record of an example, whose arrays have as many dimensions as those before."""
    record = piece.serialize_to_string()
    for field in piece.schema().leaves():
        rank = np.ndim(getattr(piece, field.name)) if field.shape else 0
        if ranks.setdefault(field.name, rank) != rank:
            expected = f"expected arrays of {ranks[field.name]} dimensions, as the first one has, got {rank}"
            raise SchemaError(expected, f"{type(piece).__name__}.{field.name}")
    piece.release()
    return record
