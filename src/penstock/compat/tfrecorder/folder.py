"""A folder as TFRecorder has it: 0.tfr, 1.tfr ..., examples.csv; above some of them stands a config file."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...build.local import Local
from ...build.numbered import write_files
from ...build.run import build
from ...errors import BuildError, CorruptionError, ExampleError, NotFoundError, SchemaError
from ...field import Field
from ...load.dataset import Dataset
from ...records.shard import open_shard
from ...records.tfrecord import TFRecord
from ...schema import Schema
from ...sources.examples import Options, ReadyToSplit
from ...sources.record_files import RecordFiles
from ...splitting import Splits
from ...storage import publish, read_json
from .example import SHAPE, Example

LOGGER = logging.getLogger(__name__)
LOG, FIELDS, CONFIG = "examples.csv", "fields.json", "tfrecord_files_config.txt"
OPTIONS = {"examples_tfrecord_file_max_size_in_bytes": 1e6, "examples_log_in_csv_file": True}


@dataclass(frozen=True)
class Noting(Options):
    """What an example's methods get, and where its row is noted."""

    number: int
    notes: Path
    logged: bool


class Noted(ReadyToSplit):
    """An example in a build, whose row is noted once it is loaded and split: then it is not left out any more."""

    __slots__ = ("row",)
    given: Noting

    def load(self) -> None:
        """With its options."""
        super().load()
        self.row = list(self.example.to_csv_row()) if self.given.logged else []

    def split(self) -> Sequence[Example]:
        """With its options."""
        pieces = list(super().split())
        with self.given.notes.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([self.given.number, *self.row])
        return pieces


def save(folder: Path, examples: Sequence[Example], options: Mapping[str, Any]) -> int:
    """Build the files of a folder anew, with a log of the examples that are in them; how many these are."""
    with TemporaryDirectory() as scratch:
        return _save(folder, examples, options, Path(scratch) / LOG)


def _save(folder: Path, examples: Sequence[Example], options: Mapping[str, Any], notes: Path) -> int:
    size, logged = (options.get(name, usual) for name, usual in OPTIONS.items())
    if not size >= 1:
        raise SchemaError(f"expected a size of 1 or more, got {size!r}", next(iter(OPTIONS)))
    rest = {name: value for name, value in options.items() if name not in OPTIONS}
    given = {type(example): example.deal(rest) for example in examples}
    files, format = folder / "{0..}.tfr", TFRecord(shard_bytes=int(size))
    folder.mkdir(parents=True, exist_ok=True)
    notes.write_bytes(b"")
    noted = [
        Noted(example, Noting(given[type(example)]["load"], given[type(example)]["split"], number, notes, logged))
        for number, example in enumerate(examples)
    ]
    engine = Local(workers=1 if "tensorflow" in sys.modules else None)  # which does not survive a fork
    said: dict[str, Any] = {"format": format, "order": "source", "engine": engine, "overwrite": True}
    try:
        part = {re.sub(r"[^\w-]", "_", folder.absolute().name): noted}  # which messages name
        built = build(Splits(part), files, schema=type(examples[0]).schema(), **said) if examples else None
    except BuildError as error:
        if isinstance(error, ExampleError) or notes.stat().st_size:
            raise
        built = None  # all of them asked to be left out
    if built is None:
        write_files({"": RecordFiles([], Schema({}), [], open_shard)}, files, format, overwrite=True)
        (folder / FIELDS).unlink(missing_ok=True)
    else:
        publish(folder / FIELDS, json.dumps(_told(built).to_json()).encode())
    with notes.open(newline="", encoding="utf-8") as file:
        rows = {int(number): row for number, *row in csv.reader(file)}
    if len(rows) < len(examples):
        LOGGER.warning("%d examples asked to be left out of %s", len(examples) - len(rows), folder)
    (folder / LOG).unlink(missing_ok=True)
    if logged and rows:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows[number] for number in sorted(rows))
        publish(folder / LOG, text.getvalue().encode())
    return len(rows)


def _told(built: Dataset) -> Schema:
    """What was written, where arrays have as many dimensions as all of them have; a vector needs no shape."""
    fields = dict(built.schema)
    for name in [name for name in fields if name.endswith(SHAPE)]:
        batches = built[next(iter(built))].select(name).batch(4096)
        ranks = {int(rank) for batch in batches for rank in batch[name].row_lengths()}
        if ranks == {0}:
            del fields[name]
        elif len(ranks) == 1:
            fields[name] = Field(dtype="int64", shape=(ranks.pop(),))
    return Schema(fields)


def read_schema(paths: Sequence[str], kind: type[Example] | None) -> Schema:
    """What some files hold: as it was told when they were written, else as the class says, with flat arrays."""
    beside = Path(os.path.dirname(paths[0]) if paths else ".") / FIELDS
    if beside.exists():
        try:
            return Schema.from_json(read_json(beside, "the fields of records", 1 << 20))
        except SchemaError as error:
            raise CorruptionError(str(error), str(beside)) from None
    if kind is None:
        hint = "Say which class the records are of: generate_dataset(paths, example_class)"
        raise NotFoundError(f"expected {FIELDS} beside the records, got none - at {beside.parent}. {hint}")
    return Schema(kind.get_tfrecordable_ordered_dict())


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
