"""What the docs say is true: code runs, commands exist, links lead somewhere, named tests are there."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import penstock as ps
from penstock.cli import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "FORMAT.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
GENERATED = {"format.md", "changes.md"}  # scripts/docs_pages.py puts them into the site

# Code that a reader needs not see: <!-- setup ... --> before the blocks that use it.
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|^<!-- (setup)\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
# One shows a row of the benchmark, out of its file; the other's scripts run on a cluster, in test_ray.py.
SKETCHES = {"performance.md", "cluster.md"}
# The servers that a page's code talks to: <!-- needs s3 http_server -->, fixtures of conftest.py.
NEEDS = re.compile(r"^<!-- needs (.*) -->$", re.MULTILINE)


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, *languages: str) -> list[str]:
    """The blocks of these languages, each with empty lines before it so that errors name the page's own lines."""
    text = path.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        if (match[1] or match[3]) in languages:
            before = text[: match.start()].count("\n") + 1
            found.append("\n" * before + (match[2] or match[4] or ""))
    return found


def plain(path: Path) -> str:
    """The page without its blocks of code."""
    return BLOCK.sub("", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "path", [path for path in PAGES if blocks(path, "python") and path.name not in SKETCHES], ids=page_id
)
def test_code_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    needs = NEEDS.search(path.read_text(encoding="utf-8"))
    servers = {name: request.getfixturevalue(name) for name in (needs[1].split() if needs else ())}
    namespace: dict[str, object] = {"__name__": "__page__", **servers}
    for block in blocks(path, "python", "setup"):
        exec(compile(block, str(path), "exec"), namespace)  # what a page claims, it asserts
    assert len(namespace) > len(servers) + 2  # more than was put in, and the builtins


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_commands_exist(path: Path) -> None:
    for block in blocks(path, "console"):
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["penstock"]:
                check_command(words[1:], f"{path.name}: {line}")
            elif words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line


def check_command(words: list[str], where: str) -> None:
    """The command and its options are there, and the arguments are enough."""
    assert words, where
    assert words[0] in cli.commands, where
    command = cli.commands[words[0]]
    try:
        command.make_context(words[0], list(words[1:]), resilient_parsing=False)
    except click.UsageError as error:
        pytest.fail(f"{where}: {error.format_message()}")


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_and_option_is_documented(name: str) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"\n## penstock {name}\n" in page
    section = page.split(f"\n## penstock {name}\n")[1].split("\n## ")[0]
    for parameter in cli.commands[name].params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", section), f"docs/cli.md: {name} {option}"
    known = {option for parameter in cli.commands[name].params for option in parameter.opts} | {"--help", "--json"}
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", section):
        assert option in known, f"docs/cli.md: {name} has no {option}"


def test_the_reference_is_what_the_commands_say() -> None:
    script = ROOT / "scripts" / "cli_reference.py"
    code = (
        f"import runpy; print(runpy.run_path({str(script)!r})['reference'](), end='')"  # click keeps what it has shown
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = (ROOT / "docs" / "cli-reference.md").read_text(encoding="utf-8")
    assert said == made.stdout, "write it anew: python scripts/cli_reference.py"


def test_every_public_name_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in ps.__all__:
        if not name.startswith("_"):
            assert re.search(rf"^(::: penstock\.|### ){name}$", page, re.MULTILINE), f"docs/api.md: {name}"


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", plain(path)):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        page = path if not name else path.parent / name
        if path.parent.name == "docs" and name in GENERATED:
            page = ROOT / {"format.md": "FORMAT.md", "changes.md": "CHANGELOG.md"}[name]
        assert page.exists(), f"{path.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", plain(page), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w]+", "-", heading.lower()).strip("-") for heading in headings], target


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md"], ids=page_id)
def test_lists_and_tables_are_set_off(path: Path) -> None:
    """Without an empty line before it, the site shows a list as part of the paragraph."""
    lines = plain(path).splitlines()
    assert [
        line
        for before, line in itertools.pairwise(lines)
        if line.startswith(("- ", "|")) and before and not before.startswith(("- ", "|", "  ", "#"))
    ] == []


def test_every_page_is_in_the_menu() -> None:
    menu = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert (
        set(menu) == {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} | GENERATED
    )


def test_the_tests_that_hold_our_promises_exist() -> None:
    sources = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "rust").rglob("*.rs")]
    names = {name for path in sources for name in re.findall(r"\b(?:def|fn) (\w+)", path.read_text(encoding="utf-8"))}
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    promised = re.findall(r"`([a-z]\w*_\w+)`", page)
    assert len(promised) > 20
    assert not [name for name in promised if name not in names]


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_code_can_be_pasted_into_the_prompt(name: str) -> None:
    """An empty line ends a function there: none stands inside of one."""
    code = "\n".join(blocks(ROOT / name, "python"))
    assert code
    assert re.findall(r"\n\n+( +.*)", code) == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


@pytest.mark.parametrize(
    ("shell", "current", "said"),
    [("bash", "1", "plain,verify"), ("zsh", "1", "plain\nverify"), ("fish", "ver", "plain,verify\t")],
)
def test_completion_works(shell: str, current: str, said: str) -> None:
    words = {"_PENSTOCK_COMPLETE": f"{shell}_complete", "COMP_WORDS": "penstock ver", "COMP_CWORD": current}
    command = [sys.executable, "-m", "penstock"]
    done = subprocess.run(command, env=os.environ | words, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.startswith(said), done.stderr
    source = os.environ | {"_PENSTOCK_COMPLETE": f"{shell}_source"}
    script = subprocess.run(command, env=source, capture_output=True, text=True, check=False, timeout=60)
    assert "_PENSTOCK_COMPLETE" in script.stdout, script.stderr


def test_the_demo_fits_a_terminal_of_80_columns() -> None:
    text = (ROOT / "examples" / "demo.py").read_text(encoding="utf-8")
    shown = text.partition("# The steps of the tour")[2].partition("# How it is shown")[0].splitlines()[1:]
    assert shown
    shown = [line.replace("    return ", "    ", 1) for line in shown]  # and the indent makes room for the margins
    assert [line for line in shown if len(line) > 80] == []


def test_the_demo_runs(tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    folder.mkdir()
    (folder / "demo.py").write_bytes((ROOT / "examples" / "demo.py").read_bytes())
    only = "import importlib.util, runpy; found = importlib.util.find_spec; "
    only += "importlib.util.find_spec = lambda name: found(name) if name in {} else None; "
    only += "runpy.run_path('examples/demo.py', run_name='__main__')"
    for frameworks, columns in (([], "60"), (["torch"], "80")):  # and it can be run again
        arguments = ["-c", only.format(frameworks)]
        command, narrow = [sys.executable, *arguments], os.environ | {"COLUMNS": columns}
        done = subprocess.run(
            command, cwd=tmp_path, env=narrow, capture_output=True, text=True, check=False, timeout=110
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        shown = [line.strip() for line in done.stdout.splitlines()]
        assert "…" not in done.stdout
        assert "  $ penstock info build/demo/table.tfrecord " in done.stdout
        assert "\n      build/demo/pictures.tfrecord\n" in done.stdout
        assert {"docs/tutorial.md", "then: import penstock as ps"} <= set(shown)
        assert any(line.endswith('classes=("stays", "leaves")),') for line in shown)
    assert "torch" in done.stdout
