"""CSV catalogs: types of columns, hostile files, loaded columns, splits and keys."""

from __future__ import annotations

import csv as csv_format
import io
import math
import pickle
import random
import re
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from PIL import Image

from penstock import CorruptionError, NotFoundError, SchemaError, StorageError, build
from penstock.records.codec import Codec
from penstock.sources import csv_columns as cells
from penstock.sources.catalog import csv
from penstock.sources.table import Table


def picture(size: tuple[int, int] = (7, 5)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size).save(buffer, "JPEG")
    return buffer.getvalue()


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def column(tmp_path: Path, *values: str) -> tuple[str, list[Any]]:
    """The type of a column of these cells, and its values."""
    table = csv(write(tmp_path / "column.csv", "\n".join(["n,x", *(f"1,{value}" for value in values), ""])))
    return str(table.schema["x"]), [table[i]["x"] for i in range(len(table))]


# Types


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1", "-3", "0"], "int64", [1, -3, 0]),
        (["9223372036854775807", "-9223372036854775808"], "int64", [2**63 - 1, -(2**63)]),
        (["18446744073709551615", "0"], "uint64", [2**64 - 1, 0]),
        (["18446744073709551616"], "str", ["18446744073709551616"]),
        (["18446744073709551615", "-1"], "str", ["18446744073709551615", "-1"]),
        (["1", "2.5", "1e3", "-.5"], "float64", [1.0, 2.5, 1000.0, -0.5]),
        (["1e5", "2E-3", "1e+2"], "float64", [1e5, 2e-3, 100.0]),
        (["1.5", "inf", "-Infinity"], "float64", [1.5, math.inf, -math.inf]),
        (["nan", "inf"], "str", ["nan", "inf"]),
        (["1e999", "2.5"], "str", ["1e999", "2.5"]),
        (["true", "false", "True", "FALSE"], "bool", [True, False, True, False]),
        (["true", "1"], "str", ["true", "1"]),
        (["1", "true"], "str", ["1", "true"]),
        (["007", "010"], "str", ["007", "010"]),
        (["-01"], "str", ["-01"]),
        (["1", "01.5"], "str", ["1", "01.5"]),
        (["0.5", "0"], "float64", [0.5, 0.0]),
        (["+49", "5"], "str", ["+49", "5"]),
        (["1_000", "5"], "str", ["1_000", "5"]),
        (["1_0.5", "5"], "str", ["1_0.5", "5"]),
        (["١٢", "5"], "str", ["١٢", "5"]),
        ([" 3", "4 "], "int64", [3, 4]),
        (["3\t", "4"], "str", ["3\t", "4"]),
        (["0x10"], "str", ["0x10"]),
        (["cat", "7"], "str", ["cat", "7"]),
        (["7", "cat"], "str", ["7", "cat"]),
        (["1", "", "3"], "int64?", [1, None, 3]),
        (["", "2.5"], "float64?", [None, 2.5]),
        (["", "true"], "bool?", [None, True]),
        (["", "cat"], "str", ["", "cat"]),
        (["", ""], "str", ["", ""]),
        (["ß", "x", ""], "str", ["ß", "x", ""]),
    ],
)
def test_a_column_has_the_type_of_all_its_cells(
    tmp_path: Path, values: list[str], kind: str, expected: list[Any]
) -> None:
    assert column(tmp_path, *values) == (kind, expected)


@pytest.mark.parametrize("late", ["cat", "", "2.5", "true", "18446744073709551615", "-7", "007"])
@pytest.mark.parametrize("early", ["cat", "", "2.5", "true", "18446744073709551615", "-7", "007"])
def test_types_do_not_depend_on_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: str, late: str) -> None:
    values = [early] * 5 + ["1"] * 3 + [late] * 4
    whole = column(tmp_path, *values)
    monkeypatch.setattr(cells, "BLOCK", 10)
    assert column(tmp_path, *values) == whole
    assert column(tmp_path, '"1"', *values)[0] == column(tmp_path, "1", *values)[0]


def test_a_float_that_is_missing_is_none_and_nan_is_nan(tmp_path: Path) -> None:
    kind, values = column(tmp_path, "nan", "", "1.5")
    assert kind == "float64?"
    assert math.isnan(values[0])
    assert values[1:] == [None, 1.5]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@hypothesis.given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1)))
@hypothesis.settings(max_examples=60)
def test_texts_survive_a_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "texts.csv"
    names = [f"c{i}" for i in range(len(rows[0]))]
    with open(path, "w", encoding="utf-8", newline="") as file:
        # A text that looks like a number is one: the marker keeps them apart.
        csv_format.writer(file).writerows([names, *([f"{cell}|" for cell in row] for row in rows)])
    table = csv(path)
    assert len(table) == len(rows)
    for index, row in enumerate(rows):
        assert [value.removesuffix("|") for value in table[index].values()] == row


# Against Python's own reader, and a plain reading of the rules


def python_rows(text: str, delimiter: str) -> list[list[str]] | None:
    """What Python's reader finds, strict as it can be; None for an error."""
    _, *rest = (io.StringIO(text, newline="").readline().rstrip("\r\n")).split(delimiter)
    spaced = bool(rest) and all(cell.startswith(" ") for cell in rest)
    lines = io.StringIO(text, newline="")
    try:
        return list(filter(None, csv_format.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=spaced)))
    except csv_format.Error:
        return None


RAGGED = st.text('",;§\n\r ax1é', max_size=60)
REGULAR = st.lists(st.lists(st.text('",;§\n\r ax1é', max_size=6), min_size=2, max_size=2), min_size=1).map(
    lambda rows: (
        "a,b\n" + "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n" for row in rows)
    )
)


@hypothesis.given(st.one_of(RAGGED, RAGGED.map("a,b\n".__add__), REGULAR), st.sampled_from(",;§ "), st.integers(1, 40))
@hypothesis.settings(max_examples=300)
def test_cells_are_those_that_python_finds(
    tmp_path_factory: pytest.TempPathFactory, text: str, delimiter: str, block: int
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "any.csv", text)
    header, *rows = python_rows(text, delimiter) or [[]]
    names = [name.strip() for name in header]
    fits = names and "" not in names and len(set(names)) == len(names) and {len(row) for row in rows} <= {len(names)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "BLOCK", block)
        try:
            found = cells.read_columns([str(path)], delimiter, None).columns
        except (SchemaError, CorruptionError):
            assert not fits
            return
    assert fits
    assert list(found) == names
    assert [column.to_list() for column in found.values()] == [[row[at] for row in rows] for at in range(len(names))]


INTEGER = re.compile(r"0|-?[1-9][0-9]*")
NUMBER = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|-?(?i:inf|infinity|nan)")


def plain_kind(column: list[str]) -> str:
    """The type of a column, straight from the rules."""
    there = [cell.strip(" ") for cell in column if cell]
    if there and {cell.lower() for cell in there} <= {"true", "false"}:
        return "bool"
    if not there or not all(map(NUMBER.fullmatch, there)):
        return "str"
    if all(map(INTEGER.fullmatch, there)):
        least, most = min(map(int, there)), max(map(int, there))
        return "int64" if least >= -(2**63) and most < 2**63 else "uint64" if least >= 0 and most < 2**64 else "str"
    finite = all("n" in cell.lower() or math.isfinite(float(cell)) for cell in there)
    floats = any(re.search("[.eEnN]", cell) for cell in there)
    return "float64" if finite and floats and re.search("[0-9]", "".join(there)) else "str"


SOME = ["", "1", "-7", "0", "-0", "2.5", ".5", "7.", "1e3", "nan", "-inf", "true", "FALSE", "007", "9" * 19, "9" * 20,
        "9" * 400, "1e400", str(2**64), str(-(2**63)), " 3 ", " "]  # fmt: skip
CELL = st.one_of(
    st.sampled_from(SOME), st.integers().map(str), st.floats().map(repr), st.text("0123456789-.eE", max_size=5)
)


@hypothesis.given(st.lists(CELL, min_size=1, max_size=12), st.integers(1, 40))
@hypothesis.settings(max_examples=300)
def test_types_are_those_of_the_rules(tmp_path_factory: pytest.TempPathFactory, column: list[str], block: int) -> None:
    path = tmp_path_factory.getbasetemp() / "typed.csv"
    write(path, "n,x\n" + "".join(f"1,{cell}\n" for cell in column))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "BLOCK", block)
        table = csv(path)
    kind = plain_kind(column)
    assert table.schema["x"].dtype == kind
    convert: Any = {"int64": int, "uint64": int, "float64": float, "bool": lambda cell: cell.strip().lower() == "true"}
    expected = column if kind == "str" else [convert[kind](cell) if cell else None for cell in column]
    got = [table[row]["x"] for row in range(len(table))]
    assert repr([value.item() if isinstance(value, np.generic) else value for value in got]) == repr(expected)


NUMBERS = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1),
    st.lists(st.one_of(st.none(), st.floats(allow_infinity=False)), min_size=1),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=1),
)


@hypothesis.given(NUMBERS)
@hypothesis.settings(max_examples=60)
def test_numbers_survive_a_round_trip(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    there = [value for value in values if value is not None]
    hypothesis.assume(there and not all(isinstance(v, float) and math.isnan(v) for v in there))
    path = tmp_path_factory.getbasetemp() / "numbers.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv_format.writer(file).writerows([["x", "y"], *(["" if v is None else v, "t"] for v in values)])
    table = csv(path)
    got = [table[index]["x"] for index in range(len(table))]
    assert len(got) == len(values)
    for value, read in zip(values, got, strict=True):
        assert (read is None) == (value is None)
        if value is not None:
            assert read == value or (math.isnan(value) and math.isnan(read))
            assert isinstance(read, np.generic)
            assert read.dtype.kind == {bool: "b", int: "i", float: "f"}[type(value)]


# Files


def test_quotes_breaks_and_marks(tmp_path: Path) -> None:
    text = '\ufeffid, name ,note\r\n1,"a, b","two\r\nlines"\r\n\r\n2,"say ""hi""",\r\n'
    table = csv(write(tmp_path / "rows.csv", text))
    assert list(table.schema) == ["id", "name", "note"]
    assert table[0] == {"id": 1, "name": "a, b", "note": "two\r\nlines"}
    assert table[1] == {"id": 2, "name": 'say "hi"', "note": ""}
    assert [table.place(i) for i in range(2)] == [f"{tmp_path}/rows.csv:2", f"{tmp_path}/rows.csv:5"]


def test_a_space_after_every_comma_belongs_to_nobody(tmp_path: Path) -> None:
    table = csv(write(tmp_path / "rows.csv", 'filename, label, "kind"\na, 3, "x, y"\nb, 4, z\n'))
    assert table[0] == {"filename": "a", "label": 3, "kind": "x, y"}
    assert table.schema["label"].dtype == "int64"


def test_another_delimiter(tmp_path: Path) -> None:
    assert csv(write(tmp_path / "rows.tsv", "a\tb\n1\tx,y\n"), delimiter="\t")[0] == {"a": 1, "b": "x,y"}
    for wrong in ("", "ab", '"', "\n"):
        with pytest.raises(SchemaError, match="delimiter of one character"):
            csv(tmp_path / "rows.tsv", delimiter=wrong)


def test_many_files_are_one_table(tmp_path: Path) -> None:
    write(tmp_path / "part-00.csv", "a,b\n1,x\n2,y\n")
    write(tmp_path / "part-01.csv", "b,a\nz,2.5\n")
    table = csv(f"{tmp_path}/part-{{00..01}}.csv")
    assert table.columns["a"].tolist() == [1.0, 2.0, 2.5]
    assert table.columns["b"].to_list() == ["x", "y", "z"]
    assert [table.key(i) for i in range(3)] == ["part-00.csv:0", "part-00.csv:1", "part-01.csv:0"]
    assert table.place(2) == f"{tmp_path}/part-01.csv:2"
    assert len(csv(tmp_path)) == 3
    write(tmp_path / "part-02.csv", "a,c\n1,x\n")
    with pytest.raises(SchemaError, match="expected the columns a, b, got a, c"):
        csv(f"{tmp_path}/*.csv")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", SchemaError, "got an empty file"),
        ("a,,b\n1,2,3\n", SchemaError, "none for column 2"),
        ("a, a\n1,2\n", SchemaError, "'a' twice"),
        ("a,b\n1,2\n3\n", CorruptionError, r"expected 2 cells, got 1 - at .*rows\.csv:3"),
        ("a,b\n1,2\n\n1,2,3\n", CorruptionError, r"expected 2 cells, got 3 - at .*rows\.csv:4"),
        ('a,b\n1,"2\n', CorruptionError, r"expected CSV, .*rows\.csv:2"),
        ('a,b\n1,"2"x\n', CorruptionError, r"expected CSV, .*rows\.csv:2"),
        (b"a,b\n1,\xff\n", CorruptionError, "UTF-8 text, got the byte 0xff"),
    ],
)
def test_broken_files(tmp_path: Path, text: str | bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        csv(write(tmp_path / "rows.csv", text))


@hypothesis.given(st.binary(max_size=80) | st.text('",\n\r a1.', max_size=60).map(str.encode))
def test_any_bytes_are_a_table_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp() / "any.csv", data)
    try:
        table = csv(path)
    except (SchemaError, CorruptionError):
        return
    for index in range(len(table)):
        assert list(table[index]) == list(table.columns)
        assert table.place(index)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        csv(tmp_path / "rows.csv")
    with pytest.raises(StorageError, match=r"end in \.csv or \.tsv, got none"):
        csv(tmp_path)


def test_a_long_text(tmp_path: Path) -> None:
    limit = csv_format.field_size_limit()
    table = csv(write(tmp_path / "rows.csv", "a,b\n1," + "x" * 300_000 + "\n"))
    assert len(table[0]["b"]) == 300_000
    assert csv_format.field_size_limit() == limit


def test_a_header_alone_is_a_table_of_no_rows(tmp_path: Path) -> None:
    assert len(csv(write(tmp_path / "rows.csv", "a,b\n"))) == 0


# Tables


def test_columns_go_into_records(tmp_path: Path) -> None:
    table = csv(write(tmp_path / "rows.csv", "a,b,c\n1,x,\n2,,2.5\n3,zz,\n"))
    assert isinstance(table, Table)
    codec = Codec(table.schema)
    some = codec.decode(codec.encode(table.take([2, 0])))
    assert some["a"].tolist() == [3, 1]
    assert some["b"].to_list() == ["zz", "x"]
    again = pickle.loads(pickle.dumps(table))  # noqa: S301
    assert [again[i] for i in range(3)] == [table[i] for i in range(3)]
    assert [again.stamp(i) for i in range(3)] == [table.stamp(i) for i in range(3)]


def test_a_row_keeps_its_stamp_when_others_change(tmp_path: Path) -> None:
    before = csv(write(tmp_path / "rows.csv", "a,b\n1,x\n2,y\n"))
    after = csv(write(tmp_path / "rows.csv", "a,b\n1,x\n2,z\n"))
    assert before.stamp(0) == after.stamp(0)
    assert before.stamp(1) != after.stamp(1)


# Loaded columns, keys and splits


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(4):
        write(tmp_path / "photos" / f"{number}.jpg", picture((number + 1, 3)))
    rows = "".join(f"photos/{n}.jpg,{n % 2},{'train' if n else 'test'},p{n // 2}\n" for n in range(4))
    return write(tmp_path / "rows.csv", "filename,label,set,patient\n" + rows)


def test_a_column_of_paths_becomes_images(catalog: Path) -> None:
    source = csv(catalog, image="filename")
    assert source[2] == {"image": picture((3, 3)), "label": 0, "set": "train", "patient": "p1"}
    assert source.schema["image"].kind == "image"
    assert list(source.schema) == ["image", "label", "set", "patient"]
    assert source.key(2) == "photos/2.jpg"
    assert source.place(2) == f"{catalog}:4"
    assert source.column("label").tolist() == [0, 1, 0, 1]
    before = source.stamp(2)
    write(catalog.parent / "photos" / "2.jpg", picture((30, 30)))
    assert source.stamp(2) != before
    assert pickle.loads(pickle.dumps(source))[3] == source[3]  # noqa: S301


def test_many_columns_of_paths(catalog: Path) -> None:
    source = csv(write(catalog.parent / "two.csv", "a,b\n0.jpg,1.jpg\n"), image={"left": "a", "right": "b"},
                 root=catalog.parent / "photos")  # fmt: skip
    assert source[0] == {"left": picture((1, 3)), "right": picture((2, 3))}


def test_a_function_makes_the_example(catalog: Path) -> None:
    source = csv(catalog, image="filename", load=lambda row: {"size": len(row["image"]), "twice": 2 * row["label"]})
    assert source[1] == {"size": len(picture((2, 3))), "twice": 2}
    assert source.schema is None
    with pytest.raises(SchemaError, match=r"expected a dict from load\(\), got int - at .*rows\.csv:2"):
        csv(catalog, load=lambda row: 3)[0]  # type: ignore[arg-type, return-value]


def test_a_column_names_the_split(catalog: Path) -> None:
    source = csv(catalog, image="filename", split="set")
    assert list(source) == ["train", "test"]
    assert [source["train"].key(i) for i in range(3)] == ["photos/1.jpg", "photos/2.jpg", "photos/3.jpg"]
    assert list(source["test"][0]) == ["image", "label", "patient"]
    plain = csv(catalog, split="set", key="filename")
    assert plain["train"].take([0, 2])["label"].tolist() == [1, 1]
    assert plain["train"].place(0) == f"{catalog}:3"
    with pytest.raises(SchemaError, match="expected the name of a split, got nothing"):
        csv(write(catalog, "a,set\n1,\n"), split="set")


def test_columns_name_the_key(catalog: Path) -> None:
    assert csv(catalog, key=["patient", "label"]).key(3) == "p1/1"
    assert csv(catalog).key(3) == "3"
    with pytest.raises(SchemaError, match=r"no column 'pateint'.*Did you mean 'patient'"):
        csv(catalog, key="pateint")
    with pytest.raises(SchemaError, match="no column 'file'"):
        csv(catalog, image="file")
    with pytest.raises(SchemaError, match=r"expected a key in a, got nothing - at .*rows\.csv:2"):
        csv(write(catalog, "a,b\n,1\n"), key="a").key(0)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "photos/../../x.jpg", "..", ".", "photos/\u0000.jpg", "../rows2/x.jpg"]
)
def test_no_path_leads_out_of_the_root(catalog: Path, name: str) -> None:
    write(catalog, f"filename,label\n{name},1\n")
    with pytest.raises((SchemaError, CorruptionError), match=r"expected a path below|expected CSV"):
        csv(catalog, image="filename")[0]
    for root in (catalog.parent, f"{catalog.parent}/", "."):
        with pytest.raises((SchemaError, CorruptionError), match=r"expected a path below|expected CSV"):
            csv(catalog, image="filename", root=root)[0]


def test_paths_below_the_root(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo = catalog.parent / "photos" / "1.jpg"
    write(catalog, f"filename,label\n{photo},1\nphotos/../photos/1.jpg,1\n")
    assert csv(catalog, image="filename")[0]["image"] == photo.read_bytes()
    assert csv(catalog, image="filename")[1]["image"] == photo.read_bytes()
    other = catalog.parent / "catalogs"
    other.mkdir()
    moved = write(other / "rows.csv", "filename,label\n../photos/1.jpg,1\n")
    with pytest.raises(SchemaError, match="Say root="):
        csv(moved, image="filename")[0]
    write(moved, "filename,label\nphotos/1.jpg,1\n")
    monkeypatch.chdir(catalog.parent)
    for root in (".", "", catalog.parent, "./"):
        assert csv(moved, image="filename", root=root or ".")[0]["image"] == photo.read_bytes()
    write(moved, f"filename,label\n{photo},1\n")
    assert csv(moved, image="filename", root="photos")[0]["image"] == photo.read_bytes()
    assert csv(moved, image="filename", root=".")[0]["image"] == photo.read_bytes()


def test_a_root_above_is_no_way_out(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(catalog.parent / "photos")
    assert csv(catalog, image="filename", root="..")[1]["label"] == 1
    write(catalog, "filename,label\n../x/1.jpg,1\n../../1.jpg,1\n")
    for row in range(2):
        with pytest.raises(SchemaError, match="expected a path below"):
            csv(catalog, image="filename", root="..")[row]


def test_what_a_column_of_paths_may_hold(catalog: Path) -> None:
    write(catalog, "filename,label\n,1\nphotos/9.jpg,2\nrows.csv,3\nphotos,4\n")
    source = csv(catalog, image="filename")
    with pytest.raises(SchemaError, match=r"expected a path in 'filename', got nothing - at .*rows\.csv:2"):
        source[0]
    with pytest.raises(NotFoundError, match=r"photos/9\.jpg - at .*rows\.csv:3"):
        source[1]
    with pytest.raises(CorruptionError, match=r"got text that begins with .*rows\.csv"):
        source[2]
    with pytest.raises(StorageError, match=r"photos: Is a directory - at .*rows\.csv:5"):
        source[3]


def test_the_order_of_rows_moves_no_key(catalog: Path) -> None:
    source = csv(catalog, image="filename")
    examples = {source.key(i): source[i] for i in range(len(source))}
    header, *rows = catalog.read_text().splitlines()
    random.Random(3).shuffle(rows)
    write(catalog, "\n".join([header, *rows, ""]))
    shuffled = csv(catalog, image="filename")
    assert {shuffled.key(i): shuffled[i] for i in range(len(shuffled))} == examples


def test_columns_are_read_as_they_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("price,count,code,flag,name\n1.1,3,7,1,a\n2.5,,8,0,b\n")
    said = {"price": "float32", "count": "int16", "code": "str", "flag": "bool"}
    rows = csv(path, types=said)
    found = {name: str(field) for name, field in rows.schema.items()}
    assert found == {"price": "float32", "count": "int16?", "code": "str", "flag": "bool", "name": "str"}
    assert rows[0] == {"price": np.float32(1.1), "count": 3, "code": "7", "flag": True, "name": "a"}
    built = build(rows, tmp_path / "data", order="source")
    assert built.schema["price"].dtype == "float32"
    assert built["train"][1]["count"] is None


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"price": "int32"}, r"expected int32, got 1.1 - at .*rows.csv:2, price"),
        ({"large": "int8"}, r"expected int8, got 300 - at .*rows.csv:3, large"),
        ({"name": "float32"}, r"expected float32, got 'a' - at .*rows.csv:2, name"),
        ({"huge": "float32"}, r"expected float32, got 1e\+300 - at .*rows.csv:2, huge"),
        ({"price": "float23"}, r"expected dtype to be one of .*float23"),
        ({"price": "bytes"}, r"expected a type of numbers, or str, got 'bytes'"),
        ({"prize": "float32"}, r"no column 'prize' .*Did you mean 'price'"),
    ],
)
def test_types_that_do_not_fit(tmp_path: Path, types: dict[str, str], message: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("price,large,name,huge\n1.1,3,a,1e300\n2.5,300,b,1\n")
    with pytest.raises(SchemaError, match=message):
        csv(path, types=types)
