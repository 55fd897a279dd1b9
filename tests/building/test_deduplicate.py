"""Examples whose records are the same: which one stays depends on keys alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.built_datasets import contents, examples

from penstock.building import duplicates
from penstock.building.api import build
from penstock.cli import main
from penstock.dataset.manifest import read_manifest
from penstock.errors import BuildError, SchemaError
from penstock.schema.example_class import Example, Skip
from penstock.sources.splits import dedupe, split, splits

ROWS = [{"__key__": f"k{number}", "x": number % 40, "text": "a" * (number % 40)} for number in range(100)]


def values(directory: Path, split: str = "train") -> list[int]:
    return sorted(int(example["x"]) for example in examples(directory, split).values())


@pytest.mark.parametrize("workers", [1, 2])
def test_one_of_each_stays_whatever_the_order_and_the_workers(tmp_path: Path, workers: int) -> None:
    built = build(dedupe(ROWS), tmp_path / "a" / "toy", shards=3, workers=1)
    assert (built.duplicates, values(tmp_path / "a" / "toy")) == (60, list(range(40)))
    assert read_manifest(tmp_path / "a" / "toy").found["duplicates"] == 60
    shuffled = random.Random(workers).sample(ROWS, 100)
    build(dedupe(shuffled), tmp_path / "b" / "toy", shards=3, workers=workers)
    assert contents(tmp_path / "a" / "toy") == contents(tmp_path / "b" / "toy")


def test_the_first_in_the_order_of_the_records_stays(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "all")
    build(dedupe(ROWS), tmp_path / "toy")
    first: dict[int, str] = {}
    for key, example in examples(tmp_path / "all").items():
        first.setdefault(int(example["x"]), key)
    assert list(examples(tmp_path / "toy")) == list(first.values())
    build(dedupe(ROWS), tmp_path / "source", order="source")
    assert list(examples(tmp_path / "source")) == [f"k{number}" for number in range(40)]


class Piece(Example):
    """Two examples become the same two pieces."""

    name: Skip[str]
    x: int
    text: str

    def split(self) -> Any:
        for number in range(2):
            yield self.replace(x=number, text="")


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (lambda: (row for row in ROWS), 40),
        (lambda: {"x": np.arange(100) % 40, "text": ["a"] * 100}, 40),
        (lambda: [Piece(name=str(number)) for number in range(10)], 2),
        (lambda: ({"x": number % 40 if number < 60 else number % 40 + 0.0} for number in range(600)), 40),
    ],
    ids=["stream", "table", "many", "a stream that widens"],
)
def test_any_source(tmp_path: Path, make: Callable[[], Any], left: int) -> None:
    build(dedupe(make()), tmp_path / "toy")
    assert len(examples(tmp_path / "toy")) == left


def test_across_splits_the_first_split_has_it(tmp_path: Path) -> None:
    parts = splits(train=ROWS[:50], test=ROWS[30:])
    built = build(dedupe(parts), tmp_path / "within")
    assert (built.duplicates, built.leaks) == (40, 40)
    built = build(dedupe(splits(test=ROWS[:30], train=ROWS), across=True), tmp_path / "across")
    assert (built.duplicates, built.leaks) == (90, 0)
    assert values(tmp_path / "across", "test") == list(range(30))
    assert values(tmp_path / "across", "train") == list(range(30, 40))
    with pytest.raises(SchemaError, match="got none that do not stand in an earlier split too - at test"):
        build(dedupe(parts, across=True), tmp_path / "nothing left")


def test_equal_hashes_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def same(path: Path) -> Any:
        return np.zeros(100, np.uint64)

    monkeypatch.setattr(duplicates, "content_hashes", same)
    build(dedupe({"x": np.arange(100) % 40}), tmp_path / "toy", workers=1, engine=None)
    assert values(tmp_path / "toy") == list(range(40))


def test_it_is_part_of_what_was_asked_for(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "toy")
    with pytest.raises(BuildError, match="options dedupe was not said, is 'within'"):
        build(dedupe(ROWS), tmp_path / "toy")
    with pytest.raises(SchemaError, match="expected a source, got one that is deduped already"):
        dedupe(dedupe(ROWS))
    with pytest.raises(SchemaError, match="expected a source of examples, got Deduped"):
        split(dedupe(ROWS), train=0.5, test=0.5)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("x\n" + "".join(f"{number % 5}\n" for number in range(20)))
    command = ["build", str(tmp_path / "rows.csv"), str(tmp_path / "data"), "--dedupe", "within"]
    assert main([*command, "--dry-run"]) == 0
    assert main(command) == 0
    assert "15 examples were left out, with the same record as another" in capsys.readouterr().out
