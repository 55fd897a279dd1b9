"""Examples into a folder of numbered TFRecord files, each up to a size, with a CSV file that tells which they are."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import Any

from ...errors import SchemaError
from ...records.tfrecord import TFRecordWriter
from ...storage import publish
from .dataset import FIELDS, write_fields
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
    files, written, room = 0, 0, 0.0
    ranks: dict[str, int] = {}
    rows = io.StringIO(newline="")
    with ExitStack() as stack:
        for example in examples:
            found = _records(copy(example), options, log, ranks)
            if found is None:
                continue
            row, records = found
            for record in records:
                if files == 0 or len(record) > room:
                    stack.close()
                    writer = stack.enter_context(TFRecordWriter(folder / f"{files}.tfr"))
                    files, room = files + 1, most_bytes
                writer.write(record)
                room -= len(record)
            if log:
                csv.writer(rows).writerow(row)
            written += 1
        if files == 0:
            files = 1
            stack.enter_context(TFRecordWriter(folder / "0.tfr"))
    for stale in folder.glob("*.tfr"):
        if stale.stem.isdecimal() and int(stale.stem) >= files:
            stale.unlink()
    (folder / LOG).unlink(missing_ok=True)
    (folder / FIELDS).unlink(missing_ok=True)
    if log and written:
        publish(folder / LOG, rows.getvalue().encode())
    if examples:
        write_fields(folder, type(examples[0]))
    return written


def _records(
    example: Example, options: Mapping[str, Any], log: bool, ranks: dict[str, int]
) -> tuple[Sequence[Any], list[bytes]] | None:
    """What is logged of an example, and its records; nothing where it wishes to be left out."""
    try:
        example.load(**given_to(example.load, options))
        row = list(example.to_csv_row()) if log else []
        pieces = list(example.split(**given_to(example.split, options)))
    except IgnoreExampleException as reason:
        LOGGER.warning("an example is left out: %s", reason)
        return None
    records = []
    for piece in pieces:
        records.append(piece.serialize_to_string())
        for name, rank in piece.array_ranks().items():
            if ranks.setdefault(name, rank) != rank:
                expected = f"expected arrays of {ranks[name]} dimensions, as the first one has, got {rank}"
                raise SchemaError(expected, f"{type(piece).__name__}.{name}")
        piece.release()
    return row, records
