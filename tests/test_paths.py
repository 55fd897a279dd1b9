"""Paths: one, some, whatever gives them; and what is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tar_cases import sample, write_tar

import penstock as ps

KINDS: dict[str, Callable[[Any], Any]] = {
    "load": ps.load,
    "tfrecords": ps.tfrecords,
    "array_records": ps.array_records,
    "tar": ps.tar,
    "csv": ps.csv,
    "jsonl": ps.jsonl,
    "json": ps.json,
    "parquet": ps.parquet,
    "convert": lambda paths: ps.convert(paths, "nowhere"),
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[Path]]:
    """Two files of each kind, with two examples each."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    made: dict[str, list[Path]] = {}
    for number in range(2):
        rows = [{"x": 2 * number + at} for at in range(2)]
        for kind, suffix in (("load", "tfrecord"), ("tfrecords", "tfrecord"), ("array_records", "array_record")):
            path = tmp_path / f"{kind}-{number}.{suffix}"
            ps.build(rows, path, order="source", format="array_record" if suffix == "array_record" else "tfrecord")
            made.setdefault(kind, []).append(path)
        texts = {
            "csv": "x\n" + "".join(f"{row['x']}\n" for row in rows),
            "jsonl": "".join(f'{{"x": {row["x"]}}}\n' for row in rows),
            "json": "[" + ", ".join(f'{{"x": {row["x"]}}}' for row in rows) + "]",
        }
        for kind, text in texts.items():
            (path := tmp_path / f"rows-{number}.{kind}").write_text(text)
            made.setdefault(kind, []).append(path)
        parquet.write_table(pyarrow.table({"x": [row["x"] for row in rows]}), tmp_path / f"rows-{number}.parquet")
        made.setdefault("parquet", []).append(tmp_path / f"rows-{number}.parquet")
        members = [member for row in rows for member in sample(row["x"])]
        made.setdefault("tar", []).append(write_tar(tmp_path / f"rows-{number}.tar", members))
    return made


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "convert"])
def test_a_list_of_files_is_all_of_them_in_its_order(files: dict[str, list[Path]], kind: str) -> None:
    name = "cls" if kind == "tar" else "x"
    backwards = files[kind][::-1]
    for paths in (backwards, tuple(map(str, backwards)), iter(backwards)):
        found = KINDS[kind](paths)
        examples = found["train"] if kind == "load" else found
        assert [int(examples[at][name]) for at in range(4)] == [2, 3, 0, 1]
    assert len(KINDS[kind](files[kind][:1])["train"] if kind == "load" else KINDS[kind](files[kind][0])) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_path_is_said(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: list[tuple[Any, str]] = [
        (None, "expected a path, or a list of paths, got NoneType"),
        (3, "expected a path, or a list of paths, got int"),
        (b"a.tfrecord", "expected a path, or a list of paths, got bytes"),
        ({"train": "a.tfrecord"}, "expected a path, or a list of paths, got dict"),
        (["a.tfrecord", 3], "expected paths in a list of them, got int"),
        ([], "expected a path, or a list of paths, got an empty list"),
    ]
    for value, message in wrong:
        with pytest.raises(ps.PenstockError, match=message):
            KINDS[kind](value)
    assert not list(tmp_path.iterdir())


def test_what_is_given_in_place_of_another_thing_is_said(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.tfrecord", [{"x": 1}]
    codec = ps.Codec({"x": "int64"})
    with pytest.raises(ps.SchemaError, match=r"expected TFRecord\(...\), got dict - at format. Codec\(schema\) says"):
        ps.TFRecordWriter(path, {"x": "int64"})  # type: ignore[arg-type]
    with pytest.raises(ps.SchemaError, match=r"expected ArrayRecord\(...\), got TFRecord - at format"):
        ps.ArrayRecordWriter(path, ps.TFRecord())  # type: ignore[arg-type]
    with ps.TFRecordWriter(path) as writer:
        with pytest.raises(ps.SchemaError, match="expected a codec, got dict - at write_examples"):
            writer.write_examples({"x": "int64"}, rows)  # type: ignore[arg-type]
        with pytest.raises(ps.SchemaError, match="expected a codec, got Schema - at write_columns"):
            writer.write_columns(codec.schema, {"x": [1]})  # type: ignore[arg-type]
        writer.write_examples(codec, rows)
    assert len(ps.TFRecordReader(path)) == 1
    with pytest.raises(ps.SchemaError, match="expected a dict of columns, got list - at encode"):
        codec.encode(rows)  # type: ignore[arg-type]
    with pytest.raises(ps.SchemaError, match=r"expected Local\(...\) or Ray\(...\), got str - at engine"):
        ps.build(rows, tmp_path / "data", engine="ray")  # type: ignore[arg-type]
    with pytest.raises(ps.SchemaError, match=r"expected what iterator.state\(\) gave, or a list of that, got NoneType"):
        ps.load(path)["train"].batch(1).resume(None)  # type: ignore[arg-type]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.tfrecord", "a.tfrecord.index"]
