"""Time by input size: four times the columns take about four times as long, not sixteen."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps

pytestmark = pytest.mark.alone  # measures time, memory, threads or signals

MOST = 8  # times as long for four times the input: 4 if linear, 16 if quadratic


def ratio(work: Callable[[int], object], size: int) -> float:
    """How many times as long four times the size takes, in CPU time of this process; the best of three."""
    work(size)  # imports, caches

    def spent(size: int) -> float:
        times = []
        for _ in range(3):
            gc.collect()
            began = time.process_time()
            work(size)
            times.append(time.process_time() - began)
        return min(times)

    return spent(4 * size) / max(spent(size), 0.01)


def write_csv(path: Path, columns: int, rows: int = 3) -> Path:
    with path.open("w") as file:
        file.write(",".join(f"column_{number}" for number in range(columns)) + "\n")
        for row in range(rows):
            file.write(",".join(str(number + row) if number % 3 else f"t{number}" for number in range(columns)) + "\n")
    return path


def test_columns_of_csv_files_cost_linear_time(tmp_path: Path) -> None:
    files = {size: write_csv(tmp_path / f"{size}.csv", size) for size in (1500, 6000)}

    def through(columns: int) -> None:
        ps.build(ps.csv(files[columns]), tmp_path / "out", overwrite=True)
        split = ps.load(tmp_path / "out")["train"]
        assert len(split[0]) == columns
        assert len(next(iter(split.batch(2)))) == columns

    assert ratio(through, 1500) < MOST


def test_100_000_columns_are_done_in_seconds(tmp_path: Path) -> None:
    began = time.process_time()
    source = ps.csv(write_csv(tmp_path / "a.csv", 100_000, 2))
    assert len(source[1]) == 100_000
    ps.build(source, tmp_path / "out")
    example = ps.load(tmp_path / "out")["train"][0]
    assert len(example) == 100_000
    assert time.process_time() - began < 120, "CPU seconds, of a build without optimization"


def test_columns_that_are_declared_cost_linear_time(tmp_path: Path) -> None:
    files = {size: write_csv(tmp_path / f"{size}.csv", size) for size in (2000, 8000)}
    names = {size: {f"column_{number}": "str" for number in range(size)} for size in files}
    assert ratio(lambda size: ps.csv(files[size], types=names[size]), 2000) < MOST


def test_fields_of_a_schema_are_selected_and_made_in_linear_time() -> None:
    schemas = {size: ps.Schema({f"f{number}": "int64" for number in range(size)}) for size in (2000, 8000)}
    assert ratio(lambda size: schemas[size].select(*schemas[size]), 2000) < MOST
    assert ratio(lambda size: ps.Schema.from_json(schemas[size].to_json()), 2000) < MOST
    assert ratio(lambda size: schemas[size].unflatten(dict.fromkeys(schemas[size], 1)), 2000) < MOST
    nested = {size: ps.Schema({"d": schemas[size], "e": schemas[size]}) for size in schemas}
    assert ratio(lambda size: nested[size].select("d", *(f"e/f{number}" for number in range(size))), 2000) < MOST


def test_a_selection_takes_dicts_and_fields() -> None:
    schema = ps.Schema({"a": "int64", "d": {"x": "int64", "deep": {"y": "int64", "z": "str"}}, "d2": {"x": "int64"}})
    assert [leaf.name for leaf in schema.select("d").leaves()] == ["d/x", "d/deep/y", "d/deep/z"]
    assert [leaf.name for leaf in schema.select("a", "d/deep").leaves()] == ["a", "d/deep/y", "d/deep/z"]
    for name in ("", "d/", "dee", "d/deep/y/", "/"):
        with pytest.raises(ps.SchemaError, match="no field"):
            schema.select(name)


def test_features_of_records_cost_linear_time() -> None:
    codecs = {size: ps.Codec({f"f{number}": "int64" for number in range(size)}) for size in (2000, 8000)}
    examples = {size: [{f"f{number}": number for number in range(size)}] * 4 for size in codecs}

    def through(size: int) -> None:
        records = codecs[size].encode_examples(examples[size])
        assert len(codecs[size].decode(records)) == len(codecs[size].decode_example(records[0])) == size

    assert ratio(through, 2000) < MOST


def test_classes_and_splits_cost_linear_time(tmp_path: Path) -> None:
    def classes(size: int) -> None:
        field = ps.Field(dtype="int64", classes=tuple(f"class {number}" for number in range(size)))
        ps.build([{"x": number % size} for number in range(200)], tmp_path / "c", schema={"x": field}, overwrite=True)
        assert len(ps.load(tmp_path / "c").schema["x"].classes or ()) == size

    assert ratio(classes, 5000) < MOST


def test_deep_json_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('[{"a": ' + "[" * 100_000 + "]" * 100_000 + "}]")
    with pytest.raises(ps.CorruptionError, match="too deep"):
        ps.json(path)
