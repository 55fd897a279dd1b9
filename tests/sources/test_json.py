"""JSON lines and JSON catalogs, and Datum's texts."""

from __future__ import annotations

import io
import json as json_format
import pickle
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from PIL import Image

from penstock import CorruptionError, NotFoundError, Schema, SchemaError, StorageError
from penstock.sources.catalog import json, jsonl
from penstock.sources.classification import NotLiteral, literal, text_classification


def write(path: Path, data: Any) -> Path:
    text = data if isinstance(data, (str, bytes)) else json_format.dumps(data)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 2)).save(buffer, "PNG")
    return buffer.getvalue()


ROWS = [
    {"id": "a", "box": [1, 2.5], "tags": ["x"], "who": {"name": "ä"}},
    {"id": "b", "box": [], "tags": [], "who": None},
]


def test_lines(tmp_path: Path) -> None:
    text = "\ufeff" + json_format.dumps(ROWS[0]) + "\r\n\r\n  \n" + json_format.dumps(ROWS[1])
    source = jsonl(write(tmp_path / "rows.jsonl", text))
    assert [source[i] for i in range(len(source))] == ROWS
    assert [source.key(i) for i in range(2)] == ["0", "1"]
    assert [source.place(i) for i in range(2)] == [f"{tmp_path}/rows.jsonl:1", f"{tmp_path}/rows.jsonl:4"]
    assert source.stamp(0) == source.stamp(1) != ""
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert again[-1] == ROWS[1]
    assert Schema.infer([source[i] for i in range(2)])["tags"].levels == 1


def test_a_file_without_its_last_break_and_one_without_lines(tmp_path: Path) -> None:
    assert len(jsonl(write(tmp_path / "a.jsonl", '{"a": 1}\n{"a": 2}'))) == 2
    assert len(jsonl(write(tmp_path / "b.jsonl", ""))) == 0


@hypothesis.given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3)))
def test_lines_survive_a_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "round.jsonl"
    write(path, "".join(json_format.dumps(row) + "\n" for row in rows))
    source = jsonl(path)
    assert [source[i] for i in range(len(source))] == rows


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        (
            "{",
            CorruptionError,
            r"got the end in column 2, where a name in double quotes should stand - .*rows\.jsonl:2",
        ),
        (
            '{"a": x}',
            CorruptionError,
            r"expected JSON, got 'x}' in column 7, where a value should stand - .*rows\.jsonl:2",
        ),
        ('{"a": 1} 2', CorruptionError, r"expected JSON, got '2' in column 10: extra data - .*rows\.jsonl:2"),
        ("[1]", SchemaError, r"expected an object, got a list - at .*rows\.jsonl:2"),
        ('{"a": 1, "a": 2}', CorruptionError, r"'a' twice.*rows\.jsonl:2"),
        (b'{"a": "\xff"}', CorruptionError, r"UTF-8 text, got the byte 0xff.*rows\.jsonl:2"),
        ("[" * 100_000, CorruptionError, r"too deep.*rows\.jsonl:2"),
        ('{"a": ' + "9" * 5000 + "}", CorruptionError, r"expected JSON, .*rows\.jsonl:2"),
    ],
)
def test_broken_lines(tmp_path: Path, line: str | bytes, error: type[Exception], message: str) -> None:
    data = line if isinstance(line, bytes) else line.encode()
    source = jsonl(write(tmp_path / "rows.jsonl", b'{"a": 1}\n' + data + b"\n"))
    assert source[0] == {"a": 1}
    with pytest.raises(error, match=message):
        source[1]


def test_a_file_that_was_cut_meanwhile(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"a": 1}\n{"a": 2}\n')
    source = jsonl(path)
    write(path, '{"a": 1}\n')
    with pytest.raises(CorruptionError, match="end of the file"):
        source[1]
    path.unlink()
    with pytest.raises(NotFoundError):
        source[0]


@pytest.mark.parametrize("kind", ["jsonl", "list", "keyed"])
def test_images_splits_and_keys(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "1.png", picture())
    rows = [{"file": "1.png", "set": name, "id": number, "n": number} for number, name in enumerate(["train", "test"])]
    if kind == "jsonl":
        path = write(tmp_path / "rows.jsonl", "\n".join(map(json_format.dumps, rows)))
        read = jsonl
    else:
        path = write(tmp_path / "rows.json", rows if kind == "list" else {f"row{row['id']}": row for row in rows})
        read = json
    source = read(path, image="file", split="set", key="id")
    assert list(source) == ["train", "test"]
    assert source["test"][0] == {"image": picture(), "id": 1, "n": 1}
    assert source["test"].key(0) == "1"
    assert read(path, image="file").key(1) == ("row1" if kind == "keyed" else "1.png")
    assert read(path, load=lambda row: {"m": row["n"] + 1})[1] == {"m": 2}
    for options, message in [
        ({"key": "name"}, "expected a text or an int in 'name', got nothing"),
        ({"split": "id"}, "expected the name of a split, got 0"),
    ]:
        with pytest.raises(SchemaError, match=message):
            read(path, **options)
    write(path, path.read_text().replace("1.png", "../x.png"))
    with pytest.raises(SchemaError, match="expected a path below"):
        read(path, image="file")[0]


def test_lists_and_objects_of_objects(tmp_path: Path) -> None:
    listed = json(write(tmp_path / "list.json", ROWS))
    assert [listed[i] for i in range(2)] == ROWS
    assert listed.place(1) == f"{tmp_path}/list.json[1]"
    keyed = json(write(tmp_path / "keyed.json", {"b": ROWS[1], "a": ROWS[0]}))
    assert [keyed.key(i) for i in range(2)] == ["b", "a"]
    assert keyed.place(1) == f"{tmp_path}/keyed.json['a']"
    assert keyed[1] == ROWS[0]
    with pytest.raises(SchemaError, match="lists in all files, or objects in all"):
        json(f"{tmp_path}/*.json")


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ('[\n{"a": 1},\n{"a" 2}]', CorruptionError, r"expected JSON, .*x\.json:3"),
        ("3", SchemaError, "got a number"),
        ("{}", SchemaError, "an object with nothing"),
        ('{"images": [], "info": {}}', SchemaError, "an object with 'images', 'info'"),
        ("[1]", SchemaError, "a list with a number"),
        ('{"a": {}, "a": {}}', CorruptionError, "'a' twice"),
    ],
)
def test_files_that_are_no_catalogs(tmp_path: Path, data: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        json(write(tmp_path / "x.json", data))


# Datum's texts


def test_texts_with_labels(tmp_path: Path) -> None:
    write(tmp_path / "train.json", {"1": {"text": "good", "label": {"polarity": "7", "tone": "warm"}}})
    write(tmp_path / "train_2.json", {"2": {"text": "bad", "label": {"polarity": 3, "tone": "cold"}}})
    write(tmp_path / "val.json", {"1": {"text": "fine", "label": {"polarity": "[1, 2]", "tone": "x"}}})
    source = text_classification(tmp_path)
    assert list(source) == ["train", "val"]
    train = source["train"]
    assert [train[i] for i in range(2)] == [
        {"text": "good", "polarity": 7, "tone": "warm"},
        {"text": "bad", "polarity": 3, "tone": "cold"},
    ]
    assert train.key(1) == "2"
    assert train.place(1) == f"{tmp_path}/train_2.json['2']"
    assert train.column("polarity") == [7, 3]
    assert train.stamp(0) != ""
    assert source["val"][0]["polarity"] == [1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"text": "a"}], "expected an object whose names are ids"),
        ({"1": {"label": {}}}, r"expected a text, got nothing - at .*\['1'\]\.text"),
        ({"1": {"text": "a", "label": 3}}, "expected labels as an object, got int"),
        ({"1": {"text": "a", "label": {"text": 3}}}, "called 'text'"),
        ({"2": {"text": "a", "label": {}}}, r"'2' in .*train\.json too"),
    ],
)
def test_texts_that_are_none(tmp_path: Path, data: Any, message: str) -> None:
    write(tmp_path / "train.json", {"2": {"text": "a", "label": {"x": 1}}})
    write(tmp_path / "train_2.json", data)
    with pytest.raises(SchemaError, match=message):
        text_classification(tmp_path)


def test_no_texts_at_all(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"such as train\.json"):
        text_classification(tmp_path)


@pytest.mark.parametrize(("text", "value"), [("3", 3), (" 0.5", 0.5), ("'a'", "a"), ("[1, [2]]", [1, [2]]), ("-1", -1)])
def test_literals(text: str, value: Any) -> None:
    assert literal(text) == value


@pytest.mark.parametrize(
    "text", ["cat", "", "__import__('os')", "1+", "{1: 2}", "None", "b'x'", "1j", "[" * 1000, "1" * 100_000, "'a'*9"]
)
def test_what_is_no_literal(text: str) -> None:
    with pytest.raises(NotLiteral):
        literal(text)


def test_one_split_of_texts(tmp_path: Path) -> None:
    root = tmp_path / "texts [1]"
    root.mkdir()
    for name in ("train", "train_2", "trained"):
        (root / f"{name}.json").write_text(f'{{"{name}": {{"text": "a", "label": {{}}}}}}')
    source = text_classification(root, split="train")
    assert source.keys == ["train", "train_2"]
    assert text_classification(root, split="train", json_path="train*.json").keys == ["train", "train_2", "trained"]
    with pytest.raises(NotFoundError, match=r"expected a file val\.json, got none"):
        text_classification(root, split="val")
    with pytest.raises(SchemaError, match="expected a split with json_path, got none"):
        text_classification(root, json_path="train.json")
