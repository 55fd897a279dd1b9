"""The files of GitHub and pre-commit parse, and the commands and versions that they name exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML_FILES = sorted([*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml"])
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def parse(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def matrix_values(job: dict[str, Any], name: str) -> list[str]:
    """Return the values that a job's matrix gives to a variable."""
    matrix = job.get("strategy", {}).get("matrix", {})
    return [*matrix.get(name, []), *(row[name] for row in matrix.get("include", []) if name in row)]


def make_targets(job: dict[str, Any]) -> set[str]:
    """Return the targets of the Makefile that a job's steps call."""
    found = set()
    for step in job["steps"]:
        for target in re.findall(r"\bmake (\S+)", re.sub(r"\$\{\{ *(.*?) *\}\}", r"<\1>", step.get("run", ""))):
            variable = re.fullmatch(r"<matrix\.(\w+)>", target)
            found.update(matrix_values(job, variable[1]) if variable else [target])
    return found


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_parses(path: Path) -> None:
    assert parse(path)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_make_target_of_a_workflow_exists(path: Path) -> None:
    called = set()
    for job in parse(path)["jobs"].values():
        called |= make_targets(job)
    assert called
    assert called <= TARGETS


def test_ci_calls_make_targets_that_exist() -> None:
    called = re.findall(r"\bmake ([a-z-]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert {"lint", "docs", "test"} <= set(called) <= TARGETS


def test_the_matrix_is_the_versions_of_the_classifiers() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = set(re.findall(r"Programming Language :: Python :: (3\.\d+)\"", project))
    job = parse(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["test"]
    assert set(matrix_values(job, "python")) == versions
    assert {system.partition("-")[0] for system in matrix_values(job, "os")} == {"ubuntu", "macos"}
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in versions


def test_dependabot_watches_folders_that_exist() -> None:
    for update in parse(ROOT / ".github" / "dependabot.yml")["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.lstrip("/")).is_dir(), folder
