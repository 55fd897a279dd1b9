"""The programs in examples/ run, and what they train does learn. (The demo and TorNet have tests of their own.)"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def run(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a program here, where the frameworks have been imported already."""

    def said(name: str, *arguments: str) -> str:
        path = str(root / "examples" / name)
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return said


@pytest.mark.parametrize("framework", ["torch", "keras", "jax"])
def test_image_classification(run: Callable[..., str], framework: str) -> None:
    pytest.importorskip(framework)
    said = run("image_classification.py", "--only", framework, "--count", "180", "--epochs", "6")
    assert "circle, square, stripes" in said
    (told_apart,) = re.findall(rf"{framework}: (\d+)% told apart", said)
    assert int(told_apart) > 45  # a third by chance


def test_token_packing(run: Callable[..., str]) -> None:
    pytest.importorskip("torch")
    said = run("token_packing.py", "--take", "20", "--epochs", "3")
    texts, tokens, used = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", said)[:3])
    assert texts == 20
    assert used == tokens  # none is lost
    first, *_, last = map(float, said.split("bits per byte:")[1].split())
    assert last < first < 8
