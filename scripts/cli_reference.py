"""Writes docs/cli-reference.md: what every command says with --help. A test fails where it says something else."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli-reference.md"
HEAD = """# Command line reference

What each command says with `--help`, word for word. [Command line](cli.md) tells it at length.
"""


def reference() -> str:
    """The page."""
    commands: list[tuple[str, click.Command]] = [("penstock", cli)]
    commands += [(f"penstock {name}", command) for name, command in sorted(cli.commands.items())]
    parts = [HEAD]
    for name, command in commands:
        context = click.Context(command, info_name=name, max_content_width=80, terminal_width=80)
        context.help_option_names = ["-h", "--help"]
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
