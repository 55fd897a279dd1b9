"""The command line: `penstock COMMAND`. One file for each command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from ..errors import PenstockError
from ..records import codec as limits
from .bench import bench
from .build import build
from .convert import convert
from .errors import CLOSED, INTERRUPTED, UNREADABLE, complain, exit_code
from .head import head
from .index import index
from .info import info
from .salvage import salvage
from .verify import verify


class Commands(click.Group):
    """The commands; where a reader closes the pipe (`penstock head FILE | head -1`), they end and say nothing."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return CLOSED
        return result


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.version_option(package_name="penstock-data", prog_name="penstock", message="%(prog)s %(version)s")
@click.option(
    "--max-row-bytes",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Largest record or row that is read, once inflated. Default: 1 GiB.",
)
@click.pass_context
def cli(context: click.Context, max_row_bytes: int | None) -> None:
    """Build datasets; look at, check, index and repair record files.

    FILE may be a path, a glob ("data/*.tfrecord") or a range ("part-{000..146}.tfrecord"). Compression is found out by
    itself.

    \b
    Exit codes: 0    all is well
                1    data is damaged, or an example of a source cannot be stored
                2    a file cannot be read or written, or the command line makes no sense
                130  Ctrl-C
                141  whoever reads the output has closed it
    """
    if max_row_bytes is not None:
        before = limits.max_row_bytes(max_row_bytes)
        context.call_on_close(lambda: limits.max_row_bytes(before))
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (build, convert, head, info, verify, index, salvage, bench):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are one sentence on stderr."""
    try:
        return int(cli.main(arguments, prog_name="penstock", standalone_mode=False) or 0)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "penstock"
        said = error.format_message().rstrip(".").replace(". (Did", " (Did")  # click's own words, and where they end
        complain(f"{said}{'' if said.endswith('?') else '.'} Try: {where} --help")
        return UNREADABLE
    except click.ClickException as error:
        complain(error.format_message())
        return UNREADABLE
    except (PenstockError, OSError) as error:
        complain(error)
        return exit_code(error)
