"""Example classes: fields from annotations, values, rows of CSV files, inheritance, pickling, type checkers."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError, SchemaError
from penstock.schema.example_class import Array, Example, IgnoreExample, Label, Skip, Text
from penstock.schema.field import Field, Image
from penstock.schema.schema import Schema

CLASSES = ("cat", "big dog")


class Toy(Example):
    name: Skip[str]
    label: int
    data: Array["float32", None]  # noqa: F821, UP037

    def load(self, root: str = "", normalize: bool = False) -> None:
        if self.label < 0:
            raise IgnoreExample("no label")
        self.data = np.arange(self.label, dtype=np.float32) / (10 if normalize else 1)

    def split(self, bins: int = 5) -> Iterator[Toy]:
        for start in range(0, len(self.data), bins):
            yield self.replace(data=self.data[start : start + bins])


class Wide(Toy):
    label: np.int8  # type: ignore[assignment]
    extra: str | None


class Wider(Wide):
    more: list[int]


class Everything(Example):
    VERSION: ClassVar[str] = "1"
    _private: dict[str, int]
    root: Skip[Path]
    where: Skip[int | None]
    anything: Skip[Any]
    vector: Skip[Array[np.int64, None]]
    flag: bool
    number: float
    small: np.uint8
    text: Text
    blob: bytes
    image: Image
    kind: Label[CLASSES]
    pair: Label["yes", "no"] | None  # noqa: F821, UP037
    fixed: Array[np.float32, 4, 120]
    single: Array["float32"]  # noqa: F821, UP037
    old: Optional[int]  # noqa: UP045
    words: list[str]
    boxes: list[Array[np.float32, 4]]
    tensor: Annotated[Any, Field(dtype="float32", shape=(4, 2), encoding="zlib")]
    objects: Annotated[list[dict[str, Any]], Schema({"name": "str"}, sequence=True)]
    size: int = 3


class Early(Example):
    x: list[Late]


Late = np.float32


class Rows(Example):
    key: Skip[str]
    count: int
    rate: float
    exact: np.float32
    flag: bool
    kind: Label[CLASSES]
    note: str
    maybe: int | None
    path: Skip[Path]
    data: Array[np.float32, None]


def test_annotations_make_the_schema() -> None:
    assert Toy.schema() == Schema({"label": "int64", "data": "float32[?]"})
    assert Toy.schema() is Toy.schema()
    assert Everything.schema() == Schema(
        {
            "flag": "bool",
            "number": "float64",
            "small": "uint8",
            "text": "str",
            "blob": "bytes",
            "image": Field(dtype="bytes", kind="image"),
            "kind": Field(dtype="int64", classes=CLASSES),
            "pair": Field(dtype="int64", classes=("yes", "no"), optional=True),
            "fixed": "float32[4,120]",
            "single": "float32",
            "old": "int64?",
            "words": "list[str]",
            "boxes": "list[float32[4]]",
            "tensor": Field(dtype="float32", shape=(4, 2), encoding="zlib"),
            "objects": Schema({"name": "str"}, sequence=True),
            "size": "int64",
        }
    )
    assert list(Everything.schema())[-1] == "size"


def test_a_subclass_of_a_subclass_leaves_its_parents_alone() -> None:
    assert list(Wider.schema()) == ["label", "data", "extra", "more"]
    assert Wider.schema()["label"] == Field("label", "int8")
    assert list(Wide.schema()) == ["label", "data", "extra"]
    assert Toy.schema() == Schema({"label": "int64", "data": "float32[?]"})
    assert Wider(name="n", label=1, more=[2]).more == [2]
    with pytest.raises(SchemaError, match="unknown field 'more'"):
        Toy(name="n", more=[2])


def test_a_class_without_fields() -> None:
    class Nothing(Example):
        pass

    assert Nothing.schema() == Schema({})
    assert Nothing().to_dict() == {}
    assert repr(Nothing()) == "Nothing()"
    assert Nothing().key is None


def test_examples_are_lightweight_until_load() -> None:
    toy = Toy(name="n1", label=7)
    assert not hasattr(toy, "data")
    with pytest.raises(AttributeError, match=r"Toy has no value for 'data' yet\. Set it in load\(\)"):
        _ = toy.data
    with pytest.raises(SchemaError, match=r"expected float32\[\?\], got nothing - at Toy 'n1'\.data\. Set it in load"):
        toy.to_dict()
    toy.load("root", normalize=True)
    assert list(toy.to_dict()) == ["label", "data"]
    Toy.schema().check(toy.to_dict())


def test_one_becomes_many_or_itself() -> None:
    toy = Toy(name="n1", label=7)
    toy.load()
    pieces = list(toy.split(bins=3))
    assert [piece.data.tolist() for piece in pieces] == [[0, 1, 2], [3, 4, 5], [6]]
    assert all(piece.name == "n1" and piece.label == 7 for piece in pieces)
    assert len(toy.data) == 7

    rows = Rows(key="a")
    rows.load(anything=1)
    assert list(rows.split(anything=1)) == [rows]


def test_an_example_may_ask_to_be_left_out() -> None:
    with pytest.raises(IgnoreExample, match="no label"):
        Toy(name="n", label=-1).load()
    assert issubclass(IgnoreExample, PenstockError)


def test_unknown_names_are_errors_with_near_misses() -> None:
    with pytest.raises(SchemaError, match=r"unknown field 'lable' - at Toy\. Did you mean 'label'\? The fields are"):
        Toy(name="n", lable=1)
    with pytest.raises(SchemaError, match=r"unknown field 'nam' - at Toy\. Did you mean 'name'"):
        Toy(name="n").replace(nam="m")
    with pytest.raises(AttributeError, match="Toy has no attribute 'nothing'"):
        _ = Toy(name="n").nothing  # type: ignore[attr-defined]


def test_defaults_and_missing_values() -> None:
    assert Everything().size == 3
    assert Everything(size=4).size == 4
    assert Everything().old is None
    assert Everything().pair is None
    assert Wide(name="n", label=1, data=np.zeros(1, np.float32)).to_dict()["extra"] is None


def test_a_default_that_examples_would_share_is_refused() -> None:
    for default in ([], {}, np.zeros(3)):
        with pytest.raises(SchemaError, match="expected a default that cannot change"):
            type("Shared", (Example,), {"__annotations__": {"x": list[int]}, "x": default})


def test_taken_names_are_refused() -> None:
    for name in ("load", "split", "schema", "replace", "to_dict"):
        with pytest.raises(SchemaError, match=rf"Example\.{name} is taken - at Taken\.{name}"):
            type("Taken", (Example,), {"__annotations__": {name: int}})


def test_the_key() -> None:
    assert Toy(name="n1").key == "n1"
    assert Toy().key is None
    assert Rows(key="k").key == "k"
    assert Rows().key is None
    assert Everything(flag=True).key is None

    class Later(Example):
        number: Skip[int]
        first: Skip[str]
        second: Skip[str]

    assert Later(number=3, first="a", second="b").key == "a"


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (np.ndarray, r"expected a type that can be stored, got ndarray - at Bad\.x\. Write int, float"),
        (int | str, r"expected a type that can be stored, got int \| str|typing\.Union\[int, str\]"),
        (list, "expected a type that can be stored, got list"),
        ("1 +", "expected a type"),
        ("3", "expected a type"),
        (dict[str, int], "expected a type that can be stored"),
        (np.datetime64, "expected a type that can be stored, got datetime64"),
    ],
)
def test_annotations_that_say_nothing_are_errors(annotation: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        type("Bad", (Example,), {"__annotations__": {"x": annotation}})


def test_names_may_come_later() -> None:
    assert Early(x=[1.0]).to_dict() == {"x": [1.0]}
    assert Early.schema() == Schema({"x": "list[float32]"})

    bad = type("Bad", (Example,), {"__annotations__": {"x": "Nowhere"}})
    message = r"cannot read the annotation Nowhere: name 'Nowhere' is not defined - at Bad\.x\. Import or define"
    with pytest.raises(SchemaError, match=message):
        bad.schema()
    with pytest.raises(SchemaError, match=message):
        bad(x=1)


def test_names_may_be_those_of_a_function() -> None:
    names = ("a", "b")

    class Local(Example):
        kind: Label[names]

    class Below(Local):
        more: Label[names] | None

    assert [field.classes for field in Below.schema().leaves()] == [names, names]


def test_bad_arrays_and_labels_are_errors() -> None:
    with pytest.raises(SchemaError, match="Did you mean 'float32'"):
        Array["flaot32", None]
    with pytest.raises(SchemaError, match="expected a dtype first, got None"):
        Array[None, 3]
    with pytest.raises(SchemaError, match="expected each dimension to be 0 or more"):
        Array["float32", -1]
    with pytest.raises(SchemaError, match="expected each class once"):
        Label["a", "a"]


def test_annotations_need_not_be_texts() -> None:
    names: dict[str, Any] = {"Example": Example, "Array": Array, "Skip": Skip, "Label": Label}
    source = """
class Plain(Example):
    name: Skip[str]
    data: Array["float32", None] | None
    kind: Label["a b", "c"]
"""
    exec(compile(source, "plain", "exec", dont_inherit=True), names)
    plain = names["Plain"]
    assert plain.schema() == Schema({"data": "float32[?]?", "kind": Field(dtype="int64", classes=("a b", "c"))})
    assert plain(name="n").key == "n"


# Values


def test_equality_and_repr() -> None:
    one = Toy(name="n1", label=1, data=np.zeros(3, np.float32))
    assert one == Toy(name="n1", label=1, data=np.zeros(3, np.float32))
    assert one != Toy(name="n1", label=1, data=np.zeros(3))
    assert one != Toy(name="n1", label=1, data=np.ones(3, np.float32))
    assert one != Toy(name="n1", label=1)
    assert one != Wide(name="n1", label=1, data=one.data)
    assert one != "n1"
    boxes = Everything(boxes=[np.zeros(4)], objects=[{"name": np.zeros(1)}])
    assert boxes == Everything(boxes=[np.zeros(4)], objects=[{"name": np.zeros(1)}])
    assert boxes != Everything(boxes=[np.ones(4)], objects=[{"name": np.zeros(1)}])
    assert repr(one) == "Toy(name='n1', label=1, data=float32[3])"
    assert repr(Toy(label=2)) == "Toy(label=2)"
    assert "blob=<1000 bytes>" in repr(Everything(blob=b"x" * 1000))
    assert len(repr(Everything(text="x" * 1000))) < 200
    with pytest.raises(TypeError):
        hash(one)


def test_replace_leaves_the_original_alone() -> None:
    one = Toy(name="n1", label=1)
    two = one.replace(label=2)
    assert (one.label, two.label, two.name) == (1, 2, "n1")
    assert type(Wide(name="w").replace(label=2)) is Wide


def test_pickle_and_copy() -> None:
    toy = Wider(name="n1", label=1, data=np.zeros(3, np.float32), more=[1])
    assert pickle.loads(pickle.dumps(toy)) == toy  # noqa: S301
    assert copy.deepcopy(toy) == toy
    assert copy.copy(toy) == toy
    empty = Toy()
    assert pickle.loads(pickle.dumps(empty)) == empty  # noqa: S301


def test_a_constructor_of_ones_own() -> None:
    class Named(Example):
        name: Skip[str]
        label: int

        def __init__(self, name: str) -> None:
            super().__init__(name=name, label=len(name))

    assert Named("abc").to_dict() == {"label": 3}
    assert Named("abc").replace(label=1).label == 1


# CSV


def test_rows_hold_what_a_table_can_hold() -> None:
    row = {"key": "k", "count": "3", "rate": "0.5", "flag": "True", "kind": "big dog", "maybe": "", "path": "a/b.npy"}
    example = Rows.from_csv_row({**row, "note": "", "exact": "2", "unknown": "x"})
    assert example.key == "k"
    assert (example.count, example.rate, example.flag, example.maybe, example.note) == (3, 0.5, True, None, "")
    assert (example.kind, example.path) == ("big dog", Path("a/b.npy"))
    assert not hasattr(example, "data")
    written = {**row, "flag": "true", "note": "", "exact": "2.0"}
    assert example.to_csv_row() == written
    assert example.replace(kind=1, data=np.zeros(3)).to_csv_row() == written
    assert example.replace(kind=-1).to_csv_row()["kind"] == "-1"


def test_fields_without_a_column_are_left_to_load() -> None:
    toy = Toy.from_csv_row({"name": "n1", "label": None})  # type: ignore[dict-item]
    assert not hasattr(toy, "label")
    assert toy.to_csv_row() == {"name": "n1"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"count": "x"}, r"expected int64, got the cell 'x' - at Rows\.count"),
        ({"count": "1_000"}, "expected int64"),
        ({"count": "3.0"}, "expected int64"),
        ({"count": ""}, "expected int64, got the cell ''"),
        ({"count": str(2**70)}, "outside of"),
        ({"rate": "fast"}, "expected float64"),
        ({"flag": "perhaps"}, "expected bool"),
        ({"kind": "big dgo"}, r"expected int64, got the cell 'big dgo' - at Rows\.kind\. Did you mean 'big dog'"),
        ({"kind": "7"}, "expected a label of 2 classes, got 7"),
        ({"Count": "3"}, r"expected at least one of the columns key, count, .*, got Count - at Rows"),
        ({}, "got none - at Rows"),
    ],
)
def test_cells_that_do_not_fit_are_errors(row: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Rows.from_csv_row(row)


@given(
    st.fixed_dictionaries(
        {
            "key": st.text(),
            "count": st.integers(-(2**63), 2**63 - 1),
            "rate": st.floats(allow_nan=False),
            "exact": st.floats(width=32, allow_nan=False).map(np.float32),
            "flag": st.booleans(),
            "kind": st.sampled_from(CLASSES),
            "note": st.text(st.characters(codec="utf-8")),
            "maybe": st.none() | st.integers(0, 9),
            "path": st.just(Path("a/b")),
        }
    )
)
def test_rows_go_both_ways(values: dict[str, Any]) -> None:
    example = Rows(**values)
    assert Rows.from_csv_row(example.to_csv_row()) == example


# Type checkers


USER = """
import numpy as np
import penstock as ps

NAMES = ("a", "b")


class Toy(ps.Example):
    key: ps.Skip[str]
    label: int
    note: str | None
    data: ps.Array["float32", None]
    fixed: ps.Array[np.float32, 4, 120] | None
    kind: ps.Label["a cat", "dog"]
    named: ps.Label[NAMES]
    image: ps.Image
    text: ps.Text

    def load(self, root: str, normalize: bool = False) -> None:
        self.data = np.load(f"{root}/{self.key}.npy")
        self.image = b"the bytes of a file"
        length: int = len(self.image)
        word: str = self.text + self.key
        if self.label > length or not word:
            raise ps.IgnoreExample(word)

    def split(self, bins: int = 5) -> "list[Toy]":
        return [self.replace(data=self.data[:bins])]


toy: Toy = Toy.from_csv_row({"key": "n1"})
key: str = toy.key
again: Toy = toy.replace(label=3)
"""


def test_the_classes_of_users_pass_a_strict_type_checker(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "user.py"
    path.write_text(USER, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--python-version=3.10", str(path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    path.write_text(USER + "wrong: int = toy.text\n", encoding="utf-8")
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert "Incompatible types in assignment" in done.stdout
