"""Datasets that are built again: bad examples that are tried once more, names and what people should know of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_datasets import contents, examples

from penstock.building.api import Quarantine, build
from penstock.cli import main
from penstock.dataset.manifest import Info, read_manifest
from penstock.errors import BuildError, SchemaError
from penstock.schema.example_class import Example, IgnoreExample, Skip

RETRY = Quarantine(retry=True)


class Numbers:
    """Forty numbers of which some are bad and one asks to be ignored; they keep count of who was loaded."""

    def __init__(self, *bad: int, stamped: bool = False) -> None:
        self.bad = bad
        self.loaded: list[int] = []
        if stamped:
            self.stamp = lambda number: f"{number} {number in bad}"

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> dict[str, int]:
        self.loaded.append(number)
        if number in self.bad:
            raise ValueError(f"no number {number}")
        if number == 39:
            raise IgnoreExample
        return {"x": number}


OPTIONS: dict[str, Any] = {"shards": 4, "order": "source", "workers": 1, "schema": {"x": "int64"}}


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("policy", ["quarantine", "skip"])
def test_only_shards_that_lack_examples_are_tried_again(tmp_path: Path, stamped: bool, policy: str) -> None:
    build(Numbers(3, 7, stamped=stamped), tmp_path / "toy", on_error=policy, **OPTIONS)
    half = Numbers(7, stamped=stamped)
    built = build(half, tmp_path / "toy", on_error=RETRY, **OPTIONS)
    assert (built.written, built.kept, built.bad, built.ignored) == (1, 3, 1, 1)
    assert set(half.loaded) == set(range(10))
    (entry,) = (tmp_path / "toy" / "quarantine.jsonl").read_text().splitlines()
    assert json.loads(entry)["key"] == "7"
    built = build(Numbers(stamped=stamped), tmp_path / "toy", on_error=RETRY, **OPTIONS)
    assert (built.written, built.kept, built.bad, built.ignored) == (1, 3, 0, 1)
    assert not (tmp_path / "toy" / "quarantine.jsonl").exists()
    build(Numbers(stamped=stamped), tmp_path / "other" / "toy", **OPTIONS)
    a, b = contents(tmp_path / "toy"), contents(tmp_path / "other" / "toy")
    assert all(a[name] == b[name] for name in a if name != "penstock.json")


def test_nothing_to_try_again(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="expected a dataset whose bad examples can be tried again, got none - at"):
        build(Numbers(), tmp_path / "toy", on_error=RETRY, **OPTIONS)
    assert not (tmp_path / "toy").exists()
    build(Numbers(), tmp_path / "toy", **OPTIONS)
    before = contents(tmp_path / "toy")
    source = Numbers()
    built = build(source, tmp_path / "toy", on_error=RETRY, **OPTIONS)
    assert (built.written, built.kept, source.loaded) == (0, 4, [])
    assert contents(tmp_path / "toy") == before


class Several(Example):
    name: Skip[str]
    x: int

    bad = frozenset({"3"})

    def load(self) -> None:
        if self.name in self.bad:
            raise ValueError("bad")

    def split(self) -> Any:
        for number in range(3):
            yield self.replace(x=number)


def test_examples_that_become_many_are_all_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [Several(name=str(number)) for number in range(10)]
    assert build(some, tmp_path / "toy", on_error="quarantine").bad == 1
    monkeypatch.setattr(Several, "bad", frozenset())
    built = build(some, tmp_path / "toy", on_error=RETRY)
    assert (built.written, built.bad, len(examples(tmp_path / "toy"))) == (1, 0, 30)


def test_the_command_tries_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\0\0\0\1\0\0\0\1\x08\0\0\0\0" + b"\x3a\x7e\x9b\x55"
    whole = png + b"\0\0\0\0IEND\xaeB`\x82"
    (folder / "1.png").write_bytes(whole)
    (folder / "2.png").write_bytes(b"broken")
    command = ["build", str(tmp_path / "photos"), str(tmp_path / "data")]
    assert main([*command, "--on-error", "quarantine"]) == 0
    assert "1 bad example was left out" in capsys.readouterr().out
    (folder / "2.png").write_bytes(whole)
    assert main([*command, "--retry-quarantine"]) == 0
    assert "1 shard written" in capsys.readouterr().out
    assert main([*command, "--retry-quarantine"]) == 0
    assert "nothing to try again: no example of" in capsys.readouterr().out
    assert main([*command, "--retry-quarantine", "--on-error", "skip"]) == 2


# What people should know


INFO = Info(
    name="numbers", version="1.2.0", description="Some\nnumbers.", citation="@misc{x}", supervised=("x", "text")
)
ROWS = [{"x": number, "text": str(number)} for number in range(20)]


def test_info_is_in_the_manifest_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = build(ROWS, tmp_path / "toy", info=INFO)
    manifest = read_manifest(tmp_path / "toy")
    assert manifest == built.manifest
    assert (manifest.info, manifest.name) == (INFO, "numbers")
    assert manifest.splits["train"][0].file == "numbers-train.tfrecord-00000-of-00001"
    assert main(["info", str(tmp_path / "toy")]) == 0
    said = capsys.readouterr().out
    assert all(text in said for text in ("numbers 1.2.0", "Some numbers.", "x -> text", "@misc{x}"))
    assert main(["info", "--json", str(tmp_path / "toy")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["info"]["version"]) == ("numbers", "1.2.0")


def test_the_path_gives_name_and_version_unless_told(tmp_path: Path) -> None:
    info = build(ROWS, tmp_path / "numbers" / "2.0.1", info=Info(description="Some")).manifest.info
    assert info == Info(name="numbers", version="2.0.1", description="Some")


def test_other_words_need_no_other_shards(tmp_path: Path) -> None:
    source = Numbers(stamped=True)
    build(source, tmp_path / "toy", info=Info(description="One"), **OPTIONS)
    source.loaded.clear()
    built = build(source, tmp_path / "toy", info=Info(description="Two"), **OPTIONS)
    assert (built.written, built.manifest.info.description) == (0, "Two")
    assert len(source.loaded) <= 1  # a look at what an example is
    assert (built.ignored, read_manifest(tmp_path / "toy")) == (1, built.manifest)
    assert build(source, tmp_path / "toy", **OPTIONS).manifest.info.description == "Two"  # not told otherwise


def test_another_name_is_another_dataset(tmp_path: Path) -> None:
    build(ROWS, tmp_path / "toy")
    with pytest.raises(BuildError, match="name was 'toy', is 'numbers'"):
        build(ROWS, tmp_path / "toy", info=Info(name="numbers"))
    build(ROWS, tmp_path / "toy", info=Info(name="numbers"), overwrite=True)
    assert not list((tmp_path / "toy").glob("toy-*"))
    assert len(examples(tmp_path / "toy")) == 20


def test_a_dataset_that_was_moved_keeps_its_name(tmp_path: Path) -> None:
    build(Numbers(stamped=True), tmp_path / "toy", **OPTIONS)
    shutil.move(tmp_path / "toy", tmp_path / "elsewhere")
    built = build(Numbers(stamped=True), tmp_path / "elsewhere", **OPTIONS)
    assert (built.written, built.manifest.name) == (0, "toy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a/b"}, "expected a name such as photos_2024, got 'a/b' - at info"),
        ({"version": "1.0"}, "expected a version such as 1.0.0, got '1.0' - at info"),
        ({"description": 7}, "expected a text, got 7 - at info description"),
        ({"supervised": "x"}, "expected the names of two fields, got 'x' - at info supervised"),
    ],
)
def test_info_is_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Info(**options)


def test_supervised_names_fields(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"no field 'y' - at info supervised. The fields are: x, text"):
        build(ROWS, tmp_path / "toy", info=Info(supervised=("x", "y")))
    with pytest.raises(SchemaError, match=r"expected Info\(...\), got dict - at info"):
        build(ROWS, tmp_path / "toy", info={"name": "x"})  # type: ignore[arg-type]
