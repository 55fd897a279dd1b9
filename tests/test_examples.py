"""The programs in examples/ run, and what they train does learn. (The demo and TorNet have tests of their own.)"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


def run(root: Path, name: str, *arguments: str) -> str:
    """What a program says, in a process of its own: torch and TensorFlow do not always bear each other in one."""
    command = [sys.executable, str(root / "examples" / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "framework", ["torch", pytest.param("keras", marks=pytest.mark.slow), pytest.param("jax", marks=pytest.mark.slow)]
)
def test_image_classification(root: Path, framework: str) -> None:
    said = run(root, "image_classification.py", "--only", framework, "--count", "180", "--epochs", "6")
    assert "circle, square, stripes" in said
    (told_apart,) = re.findall(rf"{framework}: (\d+)% told apart", said)
    assert int(told_apart) > 45  # a third by chance


def test_token_packing(root: Path) -> None:
    said = run(root, "token_packing.py", "--take", "20", "--epochs", "3")
    texts, tokens, used = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", said)[:3])
    assert texts == 20
    assert used == tokens  # none is lost
    first, *_, last = map(float, said.split("bits per byte:")[1].split())
    assert last < first < 8
