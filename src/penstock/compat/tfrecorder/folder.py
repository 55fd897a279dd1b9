"""Folders as TFRecorder has them: 0.tfr, 1.tfr ..., examples.csv; above some of them stands a config file."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...building.api import build
from ...building.targets.file_commit import staged_folder
from ...building.targets.plain_files import write_files, write_schemas
from ...errors import NoExamplesError, SchemaError
from ...loading.dataset import Dataset
from ...records.shard import open_shard
from ...records.tfrecord import TFRecord
from ...schema.columns import ExampleDict
from ...schema.field import Field
from ...schema.schema import Schema
from ...sources.example_classes import Options, ReadyToSplit, deal, unnamed
from ...sources.protocol import Source
from ...sources.record_files import RecordFiles
from ...sources.splits import Splits
from ...storage.files import join_path, publish_document
from ...storage.local import publish
from ...storage.paths import SPLIT
from ...storage.store import is_url
from .example import METHODS, SHAPE, Example, Examples, stored, stored_schema

LOGGER = logging.getLogger(__name__)
FILES, LOG, CONFIG = "{0..}.tfr", "examples.csv", "tfrecord_files_config.txt"
OPTIONS = {"examples_tfrecord_file_max_size_in_bytes": 1e6, "examples_log_in_csv_file": True}
_OWN = re.compile(r"\d+\.tfr(\.index)?|.*\.tfr\.schema\.json|examples\.csv")  # what an earlier run has written
SHUFFLES = ("examples_shuffle", "examples_shuffle_seed")


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

    @property
    def key(self) -> None:
        """None: what an example has under that name is its own affair."""

    def split(self) -> list[ExampleDict]:
        """What is stored for it, with its options."""
        row = self.example.to_csv_row() if self.given.logged else ()
        pieces = list(map(stored, super().split()))
        with open(self.given.notes / str(os.getpid()), "a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([self.given.number, *row])
        return pieces


class NotedExamples(Source):
    """The examples of a folder. An error names one by where it comes from, not by its number after a shuffle."""

    def __init__(self, noted: list[Noted], places: list[str]) -> None:
        self.noted = noted
        self.places = places

    def __len__(self) -> int:
        return len(self.noted)

    def __getitem__(self, index: int) -> Noted:
        return self.noted[index]

    def key(self, index: int) -> str:
        """The number of the example."""
        return str(index)

    def place(self, index: int) -> str:
        """Where the example comes from."""
        return self.places[index]


def save(path: str, parts: Mapping[str, Iterable[Example]], options: Mapping[str, Any]) -> dict[str, int]:
    """Build the files of all folders anew, or none, with a log in each of the examples that it has; how many these are.

    path   a folder, or the URL of one: then the files are written to a local folder first, and sent
    parts  the examples of each folder; those of the root itself under ""
    """
    if not is_url(path):
        return _save(Path(path), parts, options)
    with staged_folder(path, replaces=lambda name: _OWN.fullmatch(name) is not None) as local:
        return _save(local, parts, options)


def _save(root: Path, parts: Mapping[str, Iterable[Example]], options: Mapping[str, Any]) -> dict[str, int]:
    size, logged = (options.get(name, usual) for name, usual in OPTIONS.items())
    if not isinstance(size, (int, float)) or not 1 <= size < 1 << 62:
        raise SchemaError(f"expected a size of 1 or more, got {size!r}", next(iter(OPTIONS)))
    lists = {name: Examples.of(examples) for name, examples in parts.items()}
    kinds = dict.fromkeys(type(example) for examples in lists.values() for example in examples)
    for kind in kinds:
        if not issubclass(kind, Example):
            raise SchemaError(f"expected examples of a class of Example, got {kind.__name__}", str(root))
    rest = {name: value for name, value in options.items() if name not in OPTIONS}
    given = deal(kinds, rest, METHODS, base=Example, besides=[*OPTIONS, *SHUFFLES])
    for name in unnamed(given, rest):
        LOGGER.warning("no method names the option %r: it is passed in **kwargs alone", name)
    counts = {}
    with TemporaryDirectory() as scratch:
        noted: dict[str, NotedExamples] = {}
        for name, examples in lists.items():
            notes = Path(scratch, name or "root")
            notes.mkdir(parents=True)
            got = [given[type(example)] for example in examples]
            noting = [Noting(each["load"], each["split"], at, notes, logged) for at, each in enumerate(got)]
            noted[name] = NotedExamples(
                list(map(Noted, examples, noting)), [examples.origin(at) for at in range(len(examples))]
            )
        _write(root, noted, Schema({n: f for kind in kinds for n, f in stored_schema(kind).items()}), int(size))
        for name, examples in lists.items():
            rows = _rows(Path(scratch, name or "root"))
            if len(rows) < len(examples):
                left = len(examples) - len(rows)
                LOGGER.warning("%d examples asked to be left out of %s", left, root / name)
            _write_log(root / name / LOG, rows if logged else [])
            counts[name] = len(rows)
    return counts


def _write(root: Path, noted: Mapping[str, NotedExamples], schema: Schema, size: int) -> None:
    """The files of all folders. One without examples, or whose examples all ask to be left out, has an empty file."""
    alone = "" in noted
    path = str(root / FILES) if alone else str(root / SPLIT / FILES)
    names = {name: re.sub(r"[^\w-]", "_", root.absolute().name) if alone else name for name in noted}
    full = {names[name]: examples for name, examples in noted.items() if len(examples)}
    format = TFRecord(shard_bytes=size)
    while full:
        try:
            built = build(Splits(full), path, schema=schema, format=format, order="source", overwrite=True)
            schema = _told(built)
            break
        except NoExamplesError as error:
            if full.pop(error.where, None) is None:
                raise
    empty = {name: RecordFiles([], schema, [], open_shard) for name in names.values() if name not in full}
    write_files(empty, path, format, overwrite=True)
    write_schemas(path, names.values() if schema else (), schema)


def _rows(notes: Path) -> list[list[str]]:
    """What was noted, in the order of the examples."""
    rows: dict[int, list[str]] = {}
    for path in notes.iterdir():
        with path.open(newline="", encoding="utf-8") as file:
            rows |= {int(number): row for number, *row in csv.reader(file)}
    return [rows[number] for number in sorted(rows)]


def _write_log(path: Path, rows: list[list[str]]) -> None:
    path.unlink(missing_ok=True)
    if rows:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        publish(path, text.getvalue().encode())


def _told(built: Dataset) -> Schema:
    """What was written, where arrays have as many dimensions as all of them have; a vector needs no shape."""
    fields = dict(built.schema)
    for name in [name for name in fields if name.endswith(SHAPE)]:
        batches = (batch for split in built.values() for batch in split.select(name).batch(4096))
        ranks = {int(rank) for batch in batches for rank in batch[name].row_lengths()}
        if ranks == {0}:
            del fields[name]
        elif len(ranks) == 1:
            fields[name] = Field(dtype="int64", shape=(ranks.pop(),))
    return Schema(fields)


def write_config(root: str, said: Mapping[str, Any], options: Mapping[str, Any], counts: Mapping[str, int]) -> None:
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
    publish_document(join_path(root, CONFIG), text.getvalue().encode())


def _written(name: str, value: object) -> str:
    if "path" in name and isinstance(value, (str, os.PathLike)):
        return str(value) if is_url(value) else os.path.abspath(value)
    return json.dumps(list(value)) if isinstance(value, (list, tuple)) else str(value)
