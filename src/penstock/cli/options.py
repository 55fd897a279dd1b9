"""How shards are written: the options that `build` and `convert` share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import click

from ..records import array_record
from ..records.formats import FORMATS, Format
from ..storage.paths import RECORD_SUFFIXES

COMPRESSIONS = {
    "tfrecord": ("gzip", "zlib"),
    "array_record": (*filter(None, array_record.COMPRESSIONS), "none"),
}
CommandOptions: TypeAlias = "dict[str, Any]"  # the options of a command by name, as click gives them
Command = TypeVar("Command", bound=Callable[..., Any])
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Number(click.IntRange):
    """A whole number, from some number on; called so in help."""

    name = "number"


def size(text: str) -> int:
    """A number of bytes: 500000, 64M, 1G."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        raise click.BadParameter(f"expected a size such as 500000, 64M or 1G, got {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def formats(text: str) -> list[str]:
    """The names of formats: tfrecord,array_record."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FORMATS:
            raise click.BadParameter(f"expected {' or '.join(FORMATS)}, or both with a comma, got {text!r}")
    return names


OPTIONS = (
    click.option(
        "--format",
        type=formats,
        multiple=True,
        default=("tfrecord",),
        show_default=True,
        help="Of the shards: tfrecord or array_record. Give it twice, or as tfrecord,array_record, for both.",
    ),
    click.option(
        "--compression",
        type=click.Choice([name for names in COMPRESSIONS.values() for name in names]),
        help="gzip, zlib: of whole TFRecord shards. The others: of groups of records in ArrayRecord, zstd unless told.",
    ),
    click.option(
        "--group-size", type=Number(1), help="ArrayRecord: records that are compressed together; 1 unless told."
    ),
    click.option("--shards", type=Number(1), help="How many shards for each split."),
    click.option("--shard-bytes", type=size, default="128M", show_default=True, help="About how large a shard is."),
    click.option("--shard-examples", type=Number(1), help="How many examples a shard has at most."),
    click.option("--workers", type=Number(1), help="How many processes; one for each core unless told."),
    click.option("--no-sync", is_flag=True, help="Do not wait for the disk: sooner done, not safe from a power cut."),
    click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Where: on this machine, or on a Ray cluster.",
    ),
    click.option("--address", help="With --engine ray: of the cluster's head; that of this machine unless told."),
    click.option("--shared", is_flag=True, help="With --engine ray: PATH is a mount that all machines have."),
)


def format_options(command: Command) -> Command:
    """Give a command these options."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def asked_formats(options: CommandOptions, path: str) -> list[Format]:
    """What the options say. A compression, or a size of groups, is for the format that has it.

    path  where it goes: names of plain files tell their format
    """
    names, named = (
        [name for some in options["format"] for name in some],
        RECORD_SUFFIXES.get(os.path.splitext(path)[1].lower()),
    )
    if names == ["tfrecord"] and named and not os.path.isdir(path):  # nobody has said another
        names = [named]
    if len(set(names)) < len(names):
        raise click.UsageError(f"expected each --format once, got {', '.join(names)}")
    asked: dict[str, CommandOptions] = {
        name: {option: options[option] for option in ("shard_bytes", "shard_examples")} for name in names
    }
    compression, group_size = options["compression"], options["group_size"]
    if compression is not None:
        owner = next(name for name, known in COMPRESSIONS.items() if compression in known)
        _of(asked, owner, "compression")["compression"] = None if compression == "none" else compression
    if group_size is not None:
        _of(asked, "array_record", "group-size")["group_size"] = group_size
    return [FORMATS[name](**told) for name, told in asked.items()]


def _of(asked: dict[str, CommandOptions], format: str, option: str) -> CommandOptions:
    if format not in asked:
        raise click.UsageError(f"--{option} goes with --format {format} here")
    return asked[format]
