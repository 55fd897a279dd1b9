"""Examples of classes in a build: the options of their methods reach them, and tell the source from others."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.built_datasets import contents
from tests.support.built_datasets import examples as stored

from penstock.building.api import build
from penstock.errors import BuildError, SchemaError
from penstock.schema.example_class import Array as ArrayOf
from penstock.schema.example_class import Example, Skip
from penstock.sources.catalog import csv
from penstock.sources.example_classes import deal, examples, unnamed
from penstock.sources.fingerprint import described
from penstock.sources.splits import split


class Plain(Example):
    """Its file holds numbers."""

    name: Skip[str]
    label: int
    data: ArrayOf[np.float32, None]

    def load(self, root: str, scale: float = 1) -> None:
        self.data = np.load(f"{root}/{self.name}.npy") * np.float32(scale)


class Cut(Plain):
    """It becomes many."""

    def split(self, bins: int = 5) -> Iterator[Cut]:
        for at in range(0, len(self.data), bins):
            yield self.replace(data=self.data[at : at + bins])


class Whatever(Example):
    """It takes any option."""

    name: Skip[str]
    text: str

    def load(self, **options: Any) -> None:
        self.text = str(options)


@pytest.fixture
def root(tmp_path: Path) -> str:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number in range(6):
        np.save(folder / f"r{number}.npy", np.arange(number + 1, dtype=np.float32))
    return str(folder)


def made(kind: type[Plain]) -> list[Plain]:
    return [kind(name=f"r{number}", label=number) for number in range(6)]


@pytest.mark.parametrize("workers", [1, 2])
def test_options_reach_load(tmp_path: Path, root: str, workers: int) -> None:
    source = examples(made(Plain), load={"root": root, "scale": 2})
    build(source, tmp_path / "toy", workers=workers)
    found = stored(tmp_path / "toy")
    assert {key: list(example["data"]) for key, example in found.items()} == {
        f"r{number}": [2.0 * value for value in range(number + 1)] for number in range(6)
    }


@pytest.mark.parametrize("wrap", [list, iter, lambda some: lambda: iter(some)], ids=["list", "iterator", "function"])
def test_options_reach_split(tmp_path: Path, root: str, wrap: Callable[[Any], Any]) -> None:
    build(examples(wrap(made(Cut)), load={"root": root}, split={"bins": 4}), tmp_path / "a" / "toy")
    found = stored(tmp_path / "a" / "toy")
    assert [key for key in sorted(found) if key.startswith("r5")] == ["r5/0", "r5/1"]
    assert list(found["r5/1"]["data"]) == [4, 5]


def test_the_examples_of_a_list_stay_light(tmp_path: Path, root: str) -> None:
    toys = made(Plain)
    build(examples(toys, load={"root": root}), tmp_path / "toy", workers=1)
    assert toys == made(Plain)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Plain, {}, r"expected the option 'root', got none - at Plain.load. Give it: examples\(source, load="),
        (Plain, {"load": {"rot": "."}}, "unknown option 'rot' - at Plain.load. Did you mean 'root'"),
        (Plain, {"load": {"root": "."}, "split": {"bins": 2}}, "unknown option 'bins' - at Plain.split.*are: none"),
        (Cut, {"load": {"root": "."}, "split": {"bin": 2}}, "unknown option 'bin' - at Cut.split. Did you mean 'bins'"),
        (Plain, {"load": "root"}, "expected options as a dict of name: value, got 'root' - at load"),
    ],
)
def test_options_are_checked_at_once(kind: type[Plain], options: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        examples(made(kind), **options)


def test_a_list_without_the_options_that_it_needs_is_an_error_before_the_build(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"expected the option 'root', got none - at Plain.load"):
        build(made(Plain), tmp_path / "toy", on_error="skip")
    with pytest.raises(SchemaError, match=r"expected the option 'root', got none - at Plain.load"):
        build(split(made(Plain), by="label", cut=4), tmp_path / "toy", on_error="skip")
    assert not (tmp_path / "toy").exists()


def test_a_method_that_takes_anything_gets_anything(tmp_path: Path) -> None:
    build(examples([Whatever(name="a")], load={"b": 1}), tmp_path / "toy")
    assert stored(tmp_path / "toy")["a"]["text"] == "{'b': 1}"


def test_other_options_are_another_source(tmp_path: Path, root: str) -> None:
    build(examples(made(Cut), load={"root": root}, split={"bins": 4}), tmp_path / "toy")
    before = contents(tmp_path / "toy")
    with pytest.raises(BuildError, match=r"source train options split bins was 4, is 3"):
        build(examples(made(Cut), load={"root": root}, split={"bins": 3}), tmp_path / "toy")
    assert contents(tmp_path / "toy") == before
    with pytest.raises(BuildError, match=r"source train options load scale was not said, is 2"):
        build(examples(made(Cut), load={"root": root, "scale": 2}, split={"bins": 4}), tmp_path / "toy")
    build(examples(made(Cut), load={"root": root}, split={"bins": 4}), tmp_path / "toy")


def test_other_code_is_another_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build([Whatever(name="a")], tmp_path / "toy")

    def load(self: Whatever, **options: Any) -> None:
        self.text = "another"

    monkeypatch.setattr(Whatever, "load", load)
    with pytest.raises(BuildError, match=r"source train code Whatever.load was '\w+', is '\w+'"):
        build([Whatever(name="a")], tmp_path / "toy")


def test_splits_keep_the_options(tmp_path: Path, root: str) -> None:
    build(split(examples(made(Plain), load={"root": root}), by="label", cut=4), tmp_path / "toy")
    assert stored(tmp_path / "toy", "test").keys() == {"r4", "r5"}


def test_rows_become_examples(tmp_path: Path, root: str) -> None:
    (tmp_path / "toys.csv").write_text("name,label\nr1,1\nr2,2\n")
    rows = csv(tmp_path / "toys.csv", load=lambda row: Plain(**row), key="name")
    build(examples(rows, load={"root": root}), tmp_path / "toy", workers=1)
    assert list(stored(tmp_path / "toy")["r2"]["data"]) == [0, 1, 2]


def test_a_prepared_source_travels(root: str) -> None:
    source = pickle.loads(pickle.dumps(examples(made(Cut), load={"root": root})))  # noqa: S301
    one = source[2]
    one.load()
    assert [list(part.data) for part in one.split()] == [[0, 1, 2]]
    assert source.key(2) == "r2"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Path("a/b"), "a/b"),
        ({"x": (1, 2.5, None)}, {"x": [1, 2.5, None]}),
        ({"b", "a"}, ["a", "b"]),
        (float("nan"), "nan"),
    ],
)
def test_values_are_told_apart(value: Any, plain: Any) -> None:
    assert described(value, "here") == plain


def test_values_of_other_kinds_are_told_apart() -> None:
    arrays = [np.arange(3), np.arange(3) + 1, np.arange(3).astype(np.float32)]
    functions = [lambda x: x + 1, lambda x: x + 2]
    for values in (arrays, functions, [1 + 2j, 1 + 3j]):
        assert len({str(described(value, "here")) for value in values}) == len(values)
    with pytest.raises(SchemaError, match="expected a value that can be sent to worker processes, got generator"):
        described((x for x in ()), "here")


class Named:
    """Methods that name all of their options."""

    def load(self, root: str) -> None:
        """One option."""

    def split(self, bins: int = 5) -> None:
        """Another option."""


class Dealt:
    """Methods that name their options, and one that takes whatever there is."""

    def load(self, root: str, **rest: object) -> None:
        """It does not look at the rest."""

    def split(self, bins: int = 5) -> None:
        """One option."""


class Other(Dealt):
    def split(self, depth: int = 5) -> None:
        """Another option."""


class Bare(Example):
    """It has the methods of its base, which do nothing with options."""

    x: int


def test_options_are_dealt_out_among_methods() -> None:
    options = {"root": "here", "bins": 3}
    assert deal([Dealt], options) == {Dealt: {"load": options, "split": {"bins": 3}}}
    with pytest.raises(SchemaError, match=r"unknown option 'bin' - at Named. Did you mean 'bins'"):
        deal([Named], {"root": "here", "bin": 3})
    assert deal([Dealt], {"bin": 3})[Dealt]["load"] == {"bin": 3}  # its **kwargs accept all
    with pytest.raises(SchemaError, match=r"unknown option 'shufle' - at Named. Did you mean 'shuffle'"):
        deal([Named], {"bins": 1, "shufle": 3}, besides=["shuffle"])
    with pytest.raises(SchemaError, match=r"unknown option 'bins' - at Bare"):
        deal([Bare], {"bins": 1})
    assert unnamed(deal([Dealt, Other], {"depth": 1, "else": 2}), ["depth", "else"]) == ["else"]
    assert deal([Dealt, Other], {"depth": 1})[Other]["split"] == {"depth": 1}  # one that one of them knows
