"""penstock convert: the same records in another format."""

from __future__ import annotations

from typing import Any

import click

from ..building.convert import convert as convert_dataset
from ..building.report import Built
from .build import built_json, run, show_built, show_files
from .errors import INTERRUPTED, PATH, WELL, Command
from .head import parse_schema
from .options import asked_formats, format_options
from .output import print_json


@click.command(cls=Command)
@click.argument("source")
@click.argument("path")
@format_options
@click.option(
    "--schema", type=PATH, metavar="SCHEMA", help="Of files that come without one, as in head. Default: inferred."
)
@click.option("--overwrite", is_flag=True, help="Build anew what is there, even if it was something else.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Only what is wrong.")
def convert(source: str, path: str, **options: Any) -> int:
    """Write the records of SOURCE anew into the directory PATH.

    A PATH such as out-{00000..}.tar, or out-{split}-{00000..}.tar, is for tars that webdataset reads; one such as
    out-{split}-{00000..}.tfrecord for plain files of records.

    SOURCE is a dataset, or record files. The records stay as they are, and so do their order, their keys and what the
    dataset says of itself; format, compression and shards are as the options say. All that was written is read again,
    and compared with SOURCE.

    The same command again goes on after whatever has cut it off.
    """
    formats = asked_formats(options, path)
    schema = parse_schema(options["schema"]) if options["schema"] else None
    said = {"format": formats, "schema": schema, "shards": options["shards"], "overwrite": options["overwrite"]}
    built = run(lambda engine: convert_dataset(source, path, engine=engine, **said), options)
    if built is None:
        return INTERRUPTED
    if not isinstance(built, Built):
        if options["as_json"]:
            print_json({"path": path, "files": [file.path for file in built.files], **built.info(), "source": source})
        elif not options["quiet"]:
            show_files(path, built)
    elif options["as_json"]:
        print_json({**built_json(path, built), "source": source})
    elif not options["quiet"]:
        show_built(path, built)
    return WELL
