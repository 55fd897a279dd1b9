"""penstock head: the first examples of a file."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..dataset.plain_files import read_schema
from ..errors import CorruptionError, NotFoundError, SchemaError
from ..loading.dataset import load
from ..loading.display import field_value_text
from ..records.codec import Codec
from ..records.inspect import (
    SAMPLE,
    byte_kind,
    first_records,
    infer_schema,
    is_foreign_record,
    opening,
    shortened,
    size_text,
)
from ..records.tar import checked_schema, is_tar, read_sample, sampled_schema
from ..schema.columns import ExampleDict
from ..schema.schema import Schema
from ..storage.files import is_file, read_file
from .errors import PATH, WELL, Command
from .options import Number
from .output import console, print_example
from .paths import check_there, expand_all, is_dataset


def parse_schema(text: str) -> Schema:
    """A schema from JSON, from a file with JSON, or from "name: type, name: type"."""
    if text.endswith(".json"):
        if not is_file(text):
            raise NotFoundError(f"expected a file with a schema, got nothing at {text} - at --schema")
        text = read_file(text).decode("utf-8")
    if text.lstrip().startswith("{"):
        try:
            data = json.loads(text)
        except ValueError as error:
            raise SchemaError(f"expected a schema in JSON, got broken JSON ({error})", "--schema") from None
        return Schema.from_json(data) if "penstock_schema" in data else Schema(data)
    fields: dict[str, str] = {}
    depth, start = 0, 0
    for end, letter in enumerate(text + ","):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            name, colon, kind = text[start:end].rpartition(":")
            if not colon:
                raise SchemaError(
                    f"expected a field such as label: int64, got {text[start:end].strip()!r}",
                    "--schema",
                    'Write it as "dense: float32[13], label: int64", or as JSON',
                )
            fields[name.strip()] = kind.strip()
            start = end + 1
    return Schema(fields)


@click.command(cls=Command)
@click.argument("file")
@click.option("-n", "--number", type=Number(0), default=5, show_default=True, help="How many examples.")
@click.option(
    "--schema",
    type=PATH,
    metavar="SCHEMA",
    help='As "label: int64, dense: float32[13]", JSON, or a JSON file. Default: inferred.',
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per example and line; bytes in base64.")
def head(file: str, number: int, schema: str | None, as_json: bool) -> int:
    """Show the first examples of FILE.

    FILE may be the directory of a dataset, ours or one that TFDS prepared, which knows its schema. Elsewhere, without a
    schema, the records tell their own: tf.Example knows integers, floats and bytes.
    """
    declared = parse_schema(schema) if schema else None
    show = _of_dataset if is_dataset(file) else _of_files
    shown = show(file, number, declared, as_json=as_json)
    if number and not shown and not as_json:
        console().print(f"[dim]there are no records in {escape(file)}[/dim]", soft_wrap=True)
    return WELL


def _of_files(pattern: str, number: int, declared: Schema | None, *, as_json: bool) -> int:
    """Show the first examples of some files; how many there were."""
    shown = 0
    for path in expand_all([pattern]):
        check_there(path)
        if shown >= number:
            break
        known = declared or read_schema([path])
        records, damage = first_records(path, max(number - shown, SAMPLE if known is None else 0))
        wanted = list(records)[: number - shown]
        in_tar = bool(wanted) and is_tar(path)
        codec = _codec_of_tar(path, declared) if in_tar else _codec(list(records), known)
        for position, record in enumerate(wanted):
            if codec is None:
                example = {"record": record}
            elif in_tar:
                example = read_sample(record, codec.schema, f"{path}, record {position}")
            else:
                example = _decoded(codec, record, path, position)
            if as_json:
                print_example(example)
            else:
                _print(example, codec, f"{path}, record {position}", len(record))
        shown += len(wanted)
        if damage is not None and shown < number:
            with opening(path):
                raise damage
    return shown


def _of_dataset(path: str, number: int, schema: Schema | None, *, as_json: bool) -> int:
    """Show the first examples of a dataset, of whose shards only they are read; how many there were."""
    dataset = load(path, schema=schema)
    codec = Codec(dataset.schema)
    shown = 0
    for name in dataset:
        wanted = min(number - shown, len(dataset[name]))
        shown += wanted
        for at, example in enumerate(dataset[name].decode(False).take(wanted)):
            print_example(example) if as_json else _print(example, codec, f"{path}, {name}[{at}]")
    return shown


def _codec(records: list[bytes], declared: Schema | None) -> Codec | None:
    """How to read the records; None when they are no tf.Example, and are shown as the bytes that they are."""
    if declared is not None:
        return Codec(declared)
    try:
        found = infer_schema(records)
    except CorruptionError:
        return None
    except SchemaError as error:
        if not is_foreign_record(error):
            raise
        return None
    return Codec(found) if len(found) else None


def _codec_of_tar(path: str, declared: Schema | None) -> Codec:
    """How `load` reads the samples of a tar: by the extensions of their files."""
    return Codec(sampled_schema([path]) if declared is None else checked_schema(declared))


def _decoded(codec: Codec, record: bytes, path: str, position: int) -> ExampleDict:
    try:
        return codec.decode_example(record)
    except (CorruptionError, SchemaError) as error:
        # The codec saw this one record alone, as its record 0.
        raise type(error)(str(error).replace(" - at record 0", f" - at {path}, record {position}", 1)) from None


def _print(example: ExampleDict, codec: Codec | None, title: str, size: int | None = None) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    if codec is None:
        table.add_row("record", escape(byte_kind(example["record"])), Text(shortened(example["record"])))
    else:
        for leaf in codec.schema.leaves():
            kind = "" if leaf.kind in ("tensor", "text") else f" ({leaf.kind})"
            value = field_value_text(_lookup(example, leaf.name), leaf)
            table.add_row(escape(leaf.name), escape(f"{leaf}{kind}"), Text(value))
    screen = console()
    screen.print(f"[dim]{escape(title)}{'' if size is None else f' ({size_text(size)})'}[/dim]", soft_wrap=True)
    screen.print(table)
    screen.print()


def _lookup(example: ExampleDict, name: str) -> Any:
    """The value of a leaf; a name may hold a "/" itself."""
    if name in example:
        return example[name]
    for first in (name[:at] for at, letter in enumerate(name) if letter == "/"):
        if isinstance(example.get(first), dict):
            return _lookup(example[first], name[len(first) + 1 :])
    return None
