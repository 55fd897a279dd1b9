"""What other readers make of a build: floats for TensorFlow's parser, images for TFDS, two formats at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.cli import main

VALUES = {"python": 0.5, "list": [0.5, 1.5], "mixed": 2, "numpy": np.float64(0.5), "wide": np.arange(3) / 3}
SECOND = {**VALUES, "mixed": 0.25}


def parsed(path: Path, **features: Any) -> list[dict[str, Any]]:
    tf = pytest.importorskip("tensorflow")
    rows = (tf.io.parse_single_example(record, features) for record in tf.data.TFRecordDataset(str(path)))
    return [{name: value.numpy().tolist() for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("name", ["a.tfrecord", "a-{000..}.tfrecord", "{split}.record"])
@pytest.mark.parametrize("stream", [False, True])
def test_plain_files_hold_python_floats_as_tensorflow_parses_them(tmp_path: Path, name: str, stream: bool) -> None:
    tf = pytest.importorskip("tensorflow")
    rows = [VALUES, SECOND]
    built = ps.build((lambda: iter(rows)) if stream else rows, tmp_path / name, order="source", workers=1)
    dtypes = {field: str(node) for field, node in built.schema.items()}
    assert dtypes == {"python": "float32", "list": "float32[2]", "mixed": "float32", "numpy": "float64",
                      "wide": "float64[3]"}  # fmt: skip
    file = tmp_path / name.replace("{000..}", "000").replace("{split}", "train")
    scalar = tf.io.FixedLenFeature([], tf.float32)
    found = parsed(file, python=scalar, mixed=scalar, list=tf.io.FixedLenFeature([2], tf.float32))
    assert found == [
        {"python": 0.5, "mixed": 2.0, "list": [0.5, 1.5]},
        {"python": 0.5, "mixed": 0.25, "list": [0.5, 1.5]},
    ]
    assert [row["mixed"] for row in ps.load(tmp_path / name)["train"]] == [2, 0.25]
    assert set(built.notes) == set(VALUES)
    assert built.notes["list"].endswith('To keep 64 bits: schema={**built.schema, "list": "float64[2]"}')
    assert built.notes["wide"].endswith('To store float32: value.astype("float32")')


def test_the_advice_of_a_note_works(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    built = ps.build([{"score": 0.1}], tmp_path / "data")
    assert built.notes["score"].endswith('To store float32: schema={"score": "float32"}')
    assert str(built.schema["score"]) == "float64"
    again = ps.build([{"score": 0.1}], tmp_path / "again", schema={"score": "float32"})
    assert again.notes == {}
    shard = next(iter((tmp_path / "again").glob("*-of-00001")))
    assert parsed(shard, score=tf.io.FixedLenFeature([], tf.float32)) == [{"score": pytest.approx(0.1)}]
    several = ps.build([{"score": 0.1, "x": 1}], tmp_path / "several")
    fixed = ps.build([{"score": 0.1, "x": 1}], tmp_path / "fixed", schema={**several.schema, "score": "float32"})
    assert str(fixed.schema["score"]) == "float32"
    plain = ps.build([{"score": 0.1}], tmp_path / "plain.tfrecord")
    assert plain.notes["score"].endswith('To keep 64 bits: schema={"score": "float64"}')
    exact = ps.build([{"score": 0.1}], tmp_path / "exact.tfrecord", schema={"score": "float64"})
    assert (exact.notes, exact["train"][0]["score"]) == ({}, 0.1)


@pytest.mark.parametrize("value", [1e300, -1e39, 2**24 + 1])
def test_what_float32_cannot_hold_is_an_error_with_the_fix(tmp_path: Path, value: float) -> None:
    rows = [{"score": 0.5}, {"score": value}]
    with pytest.raises(ps.ExampleError, match=r"which float32 cannot hold .*\{\"score\": \"float64\"\}"):
        ps.build(rows, tmp_path / "a.tfrecord")
    assert ps.build(rows, tmp_path / "a.tfrecord", schema={"score": "float64"})["train"][0]["score"] in (0.5, value)
    assert len(ps.build([{"score": float("inf")}], tmp_path / "b.tfrecord")["train"]) == 1


def test_integers_that_become_floats_late(tmp_path: Path) -> None:
    """The sample holds integers alone: the schema is widened, to float32 still."""
    rows = [{"x": number if number != 900 else 0.5} for number in range(1000)]
    for name, source in (("a", rows), ("b", lambda: iter(rows))):
        built = ps.build(source, tmp_path / f"{name}.tfrecord", order="source", workers=1)
        assert str(built.schema["x"]) == "float32"
        assert [row["x"] for row in built["train"]] == [row["x"] for row in rows]
    both = ps.splits(train=[{"x": 1}], test=[{"x": 0.5}])
    assert str(ps.build(both, tmp_path / "{split}.tfrecord").schema["x"]) == "float32"


def test_the_command_tells_of_floats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_text('{"score": 0.5}\n{"score": 1.5}\n')
    assert main(["build", str(tmp_path / "rows.jsonl"), str(tmp_path / "out")]) == 0
    assert 'schema={"score": "float32"}' in capsys.readouterr().out
    assert main(["build", "--json", str(tmp_path / "rows.jsonl"), str(tmp_path / "out.tfrecord")]) == 0
    assert "float64" in json.loads(capsys.readouterr().out)["notes"]["score"]


# Images


def pictures(folder: Path, *formats: str) -> Any:
    from PIL import Image

    (folder / "cat").mkdir(parents=True)
    for number, format in enumerate(formats):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(folder / "cat" / f"{number}.{format}")
    return ps.image_folder(folder)


@pytest.mark.parametrize("format", ["gif", "webp"])
def test_images_on_which_tfds_fails_are_noted(tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    name = {"gif": "GIF", "webp": "WebP"}[format]
    built = ps.build(pictures(tmp_path / "p", "png", "jpeg", format), tmp_path / "o", shards=2)
    assert built.tfds_notes["image"].startswith(f"has {name} files, on which TFDS fails")
    builder = tfds.builder_from_directory(tmp_path / "o")
    assert name in builder.info.description
    with pytest.raises(Exception, match=r"\[1,9,9,3\]|1, 9, 9, 3"):
        list(builder.as_dataset(split="train"))
    again = ps.build(ps.image_folder(tmp_path / "p"), tmp_path / "o", shards=2)
    assert (again.written, again.tfds_notes) == (0, built.tfds_notes)
    (tmp_path / "p" / "cat" / "0.png").write_bytes((tmp_path / "p" / "cat" / "0.png").read_bytes())
    changed = ps.build(ps.image_folder(tmp_path / "p"), tmp_path / "o", shards=2)
    assert changed.tfds_notes == built.tfds_notes
    assert main(["build", str(tmp_path / "p"), str(tmp_path / "q")]) == 0
    assert f"{name} files" in capsys.readouterr().out


def test_images_that_tfds_reads_are_not_noted(tmp_path: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    built = ps.build(pictures(tmp_path / "p", "png", "jpeg", "bmp"), tmp_path / "o")
    assert built.tfds_notes == {}
    assert len(list(tfds.builder_from_directory(tmp_path / "o").as_dataset(split="train"))) == 3


def test_lists_of_images_are_looked_at_too(tmp_path: Path) -> None:
    (data,) = [path.read_bytes() for path in [pictures(tmp_path / "p", "gif") and tmp_path / "p" / "cat" / "0.gif"]]
    built = ps.build([{"frames": [data, data]}, {"frames": []}], tmp_path / "o")
    assert list(built.tfds_notes) == ["frames"]


# Two formats


@pytest.mark.parametrize(
    "options", [["--format", "tfrecord", "--format", "array_record"], ["--format", "tfrecord,array_record"]]
)
def test_a_format_given_twice_is_both(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "rows.csv").write_text("x\n1\n2\n")
    assert main(["build", "-q", str(tmp_path / "rows.csv"), str(tmp_path / "out"), *options]) == 0
    for format in ("tfrecord", "array_record"):
        assert len(ps.load(tmp_path / "out", format=format)["train"]) == 2
    built = ps.build([{"x": 1}, {"x": 2}], tmp_path / "python", format=("tfrecord", "array_record"))
    assert list(built.manifest.formats) == ["tfrecord", "array_record"]
    assert main(["convert", "-q", str(tmp_path / "python"), str(tmp_path / "converted"), *options]) == 0
    assert len(ps.load(tmp_path / "converted", format="array_record")["train"]) == 2
    assert main(["build", "-q", str(tmp_path / "rows.csv"), str(tmp_path / "o2"), "--format", "tfrecord,tfrecord"]) == 2
