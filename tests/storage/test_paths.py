"""Paths: one, some, whatever gives them; and what is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tar_files import sample, write_tar

import penstock as ps
from penstock.storage.paths import RECORD_SUFFIXES

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


def test_datasets_keep_their_schema_in_a_list_and_as_a_source(tmp_path: Path) -> None:
    rows = [{"price": 0.1, "ok": True, "label": 1}] * 4
    schema = {"price": "float64", "ok": "bool", "label": ps.Field(dtype="int64", classes=("cat", "dog"))}
    for name in ("one", "two"):
        ps.build(rows, tmp_path / name, schema=schema, shards=2)
    known = ps.load(tmp_path / "one").schema
    assert ps.load([tmp_path / "one"]).schema == known
    assert ps.load(tmp_path / "one" / "*.tfrecord-*").schema == known  # without the indexes and keys beside the shards
    both = ps.load([tmp_path / "one", tmp_path / "two"])
    assert (both.schema, len(both["train"])) == (known, 8)
    assert ps.tfrecords(tmp_path / "one")["train"].schema == known
    assert ps.convert([tmp_path / "one"], tmp_path / "three").schema == known
    with ps.TFRecordWriter(tmp_path / "one" / "foreign.tfrecord") as writer:  # beside shards, and none of them
        writer.write_examples(ps.Codec({"name": "str"}), [{"name": "x"}])
    assert list(ps.load(tmp_path / "one" / "foreign.tfrecord").schema) == ["name"]
    ps.build([{"price": 1}], tmp_path / "other")
    with pytest.raises(ps.SchemaError, match="expected datasets of one schema, got others"):
        ps.load([tmp_path / "one", tmp_path / "other"])


def test_what_stands_beside_files_goes_with_them(tmp_path: Path) -> None:
    write_tar(tmp_path / "s-0.tar", sample(0))
    for _ in range(2):  # the first one writes an index
        assert len(ps.load(tmp_path / "s-*")["train"]) == 1
        assert len(ps.load(tmp_path.glob("s-*"))["train"]) == 1
        assert len(ps.tar(tmp_path / "s-*")) == 1
    with pytest.raises(ps.PenstockError, match=r"s-0.tar.index"):
        ps.load(tmp_path / "s-0.tar.index")


def test_tabs_stand_between_cells_of_tsv_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2;5\n")
    assert ps.csv(tmp_path / "a.tsv")[0] == {"x": 1, "y": "2;5"}
    with pytest.raises(ps.CorruptionError, match="expected 1 cells, got 2"):
        ps.csv(tmp_path / "a.tsv", delimiter=";")


def test_what_is_asked_of_a_source_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    rows = ps.csv(tmp_path / "a.csv")
    with pytest.raises(
        ps.SchemaError, match=r"expected the number of an example, got 'train'. It has no splits: split\("
    ):
        rows["train"]  # type: ignore[index]
    with pytest.raises(ps.SchemaError, match=r"expected the number of an example, got slice"):
        rows[2:4]  # type: ignore[index]
    with pytest.raises(ps.SchemaError, match=r"got both: 'train' is a source, 'x' is a column. .* splits\(train=..."):
        ps.build({"train": rows, "x": [1, 2]}, tmp_path / "data")
    with pytest.raises(ps.SchemaError, match="expected a path, got an empty one"):
        ps.build(rows, "")
    with pytest.raises(ps.SchemaError, match="expected a path, got NoneType - at build"):
        ps.build(rows, None)  # type: ignore[arg-type]
    assert ps.Image(size=[4, 6]) == ps.Image(size=(4, 6))  # type: ignore[arg-type]
    with pytest.raises(ps.ArgumentError, match=r"expected two numbers, such as \(224, 224\), got int - at size"):
        ps.Image(size=224)  # type: ignore[arg-type]


def test_fields_that_are_padded_are_there(tmp_path: Path) -> None:
    ps.build([{"tokens": [1] * n, "n": n} for n in range(1, 5)], tmp_path / "data", order="source")
    train = ps.load(tmp_path / "data")["train"]
    assert next(iter(train.batch(4, pad={"tokens": 0})))["tokens"].shape == (4, 4)
    with pytest.raises(ps.SchemaError, match=r"unknown field 'token' - at pad. Did you mean 'tokens'\?"):
        next(iter(train.batch(4, pad={"token": 0})))
    with pytest.raises(ps.ArgumentError, match="expected a number to pad with, got 'x'"):
        next(iter(train.batch(4, pad="x")))


def test_examples_that_are_names_of_files_and_files_that_are_no_records(tmp_path: Path) -> None:
    with pytest.raises(ps.ExampleError, match=r"got str. Files are read by csv\(\)"):
        ps.build(["a.csv", "b.csv"], tmp_path / "data")
    with pytest.raises(ps.SchemaError, match=r"got others - at .*a.csv$"):
        ps.build([{"x": 1}], tmp_path / "a.csv")
    for number in range(7):
        ps.build([{"x": 1}], tmp_path / "many" / f"d{number}")
    with pytest.raises(ps.NotFoundError, match=r"Take one: .*/d0, .*/d4 \.\.\.$"):
        ps.load(tmp_path / "many")
    iterator = iter(ps.load(tmp_path / "many" / "d0")["train"].batch(1))
    assert repr(iterator) == "Iteration(epoch 0, after 0 examples)"
    list(iterator)
    assert repr(iterator) == "Iteration(epoch 0, at its end)"


@pytest.mark.parametrize("suffix", RECORD_SUFFIXES)
def test_files_of_records_are_known_by_one_list_of_suffixes(s3: str, tmp_path: Path, suffix: str) -> None:
    """The same name means the same on a local disk and in a store, to `build` and to `load`."""
    rows = [{"x": number} for number in range(10)]
    for path in (str(tmp_path / f"x{suffix}"), f"{s3}/x{suffix}"):
        built = ps.build(rows, path, workers=1, order="source")
        assert built.manifest.format == RECORD_SUFFIXES[suffix]
        assert [row["x"] for row in ps.load(path)["train"]] == list(range(10))
    assert (tmp_path / f"x{suffix}").is_file()
