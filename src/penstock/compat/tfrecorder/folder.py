"""A folder as TFRecorder has it: 0.tfr, 1.tfr ..., examples.csv; above some of them stands a config file."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...build.numbered import write_files
from ...build.run import build
from ...errors import BuildError, ExampleError, SchemaError
from ...field import Field
from ...load.split import Split
from ...records.schema_file import schema_path, write_schema
from ...records.shard import open_shard
from ...records.tfrecord import TFRecord
from ...schema import Schema
from ...sources.examples import Options, ReadyToSplit, deal
from ...sources.record_files import RecordFiles
from ...splitting import Splits
from ...storage import publish
from .example import METHODS, SHAPE, Example

LOGGER = logging.getLogger(__name__)
LOG, CONFIG = "examples.csv", "tfrecord_files_config.txt"
OPTIONS = {"examples_tfrecord_file_max_size_in_bytes": 1e6, "examples_log_in_csv_file": True}


@dataclass(frozen=True)
class Noting(Options):
    """What an example's methods get, and the folder in which its row is noted."""

    number: int
    notes: Path
    logged: bool


class Noted(ReadyToSplit):
    """An example in a build, whose row is noted once it is loaded and split: then it is not left out any more."""

    __slots__ = ()
    given: Noting

    def split(self) -> Sequence[Example]:
        """With its options."""
        row = self.example.to_csv_row() if self.given.logged else ()
        pieces = list(super().split())
        with open(self.given.notes / str(os.getpid()), "a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([self.given.number, *row])
        return pieces


def save(folder: Path, examples: Sequence[Example], options: Mapping[str, Any]) -> int:
    """Build the files of a folder anew, with a log of the examples that are in them; how many these are."""
    size, logged = (options.get(name, usual) for name, usual in OPTIONS.items())
    if not size >= 1:
        raise SchemaError(f"expected a size of 1 or more, got {size!r}", next(iter(OPTIONS)))
    rest = {name: value for name, value in options.items() if name not in OPTIONS}
    given = {kind: deal(kind, rest, METHODS) for kind in set(map(type, examples))}
    with TemporaryDirectory() as notes:
        noted = [
            Noted(example, Noting(got["load"], got["split"], number, Path(notes), logged))
            for number, example in enumerate(examples)
            for got in (given[type(example)],)
        ]
        rows = _write(folder, noted, TFRecord(shard_bytes=int(size)), Path(notes))
    if len(rows) < len(examples):
        LOGGER.warning("%d examples asked to be left out of %s", len(examples) - len(rows), folder)
    (folder / LOG).unlink(missing_ok=True)
    if logged and rows:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        publish(folder / LOG, text.getvalue().encode())
    return len(rows)


def _write(folder: Path, noted: Sequence[Noted], format: TFRecord, notes: Path) -> list[list[str]]:
    """Build the files; the rows of the examples that are in them. Where there are none, there is one empty file."""
    files = folder / "{0..}.tfr"
    said: dict[str, Any] = {"format": format, "order": "source", "overwrite": True}
    part = re.sub(r"[^\w-]", "_", folder.absolute().name)  # which messages name
    try:
        if noted:
            built = build(Splits({part: noted}), files, schema=noted[0].schema(), **said)
            write_schema(files, _told(built[part], built.schema))
    except BuildError as error:
        if isinstance(error, ExampleError) or any(notes.iterdir()):
            raise
    rows: dict[int, list[str]] = {}
    for path in notes.iterdir():
        with path.open(newline="", encoding="utf-8") as file:
            rows |= {int(number): row for number, *row in csv.reader(file)}
    if not rows:  # all of them asked to be left out
        folder.mkdir(parents=True, exist_ok=True)
        write_files({part: RecordFiles([], Schema({}), [], open_shard)}, files, format, overwrite=True)
        schema_path(files).unlink(missing_ok=True)
    return [rows[number] for number in sorted(rows)]


def _told(records: Split, schema: Schema) -> Schema:
    """What was written, where arrays have as many dimensions as all of them have; a vector needs no shape."""
    fields = dict(schema)
    for name in [name for name in fields if name.endswith(SHAPE)]:
        batches = records.select(name).batch(4096)
        ranks = {int(rank) for batch in batches for rank in batch[name].row_lengths()}
        if ranks == {0}:
            del fields[name]
        elif len(ranks) == 1:
            fields[name] = Field(dtype="int64", shape=(ranks.pop(),))
    return Schema(fields)


def write_config(root: Path, said: Mapping[str, Any], options: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """The options of the example class first, then the factory's own, then how many examples came out."""
    size, logged = (options.get(name, usual) for name, usual in OPTIONS.items())
    told = {name.replace("examples_", ""): value for name, value in options.items() if name not in OPTIONS}
    told |= said
    told |= {"tfrecord_file_max_size_in_mb": f"{size / 1e6:.2e}", "log_in_csv_file": logged}
    told |= {f"{name}_count": count for name, count in counts.items()}
    parser = ConfigParser(interpolation=None)
    parser["examples"] = {name: _written(name, value) for name, value in told.items()}
    text = io.StringIO()
    parser.write(text)
    publish(root / CONFIG, text.getvalue().encode())


def _written(name: str, value: Any) -> str:
    if "path" in name and isinstance(value, (str, os.PathLike)):
        return os.path.abspath(value)
    return json.dumps(list(value)) if isinstance(value, (list, tuple)) else str(value)
