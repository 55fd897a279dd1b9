"""Datum's metadata: datasets of ours told to its reader, and sources exported in its features."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.compat.datum.exporter import export
from penstock.dataset.datum import MAPPING, SHARDS, describe, read_mapping


def png(mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (6, 8)).save(buffer, "PNG")
    return buffer.getvalue()


def told(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MAPPING).read_text()))


def test_a_dataset_of_ours_is_told_to_datum(tmp_path: Path) -> None:
    rows = [
        {"image": png(), "x": n, "y": 0.5, "name": "a", "tokens": list(range(n)), "box": [1, 2]} for n in range(1, 5)
    ]
    schema = {"image": ps.Field(dtype="bytes", kind="image"), "x": "int16", "y": "float32", "name": "str"}
    built = ps.build(rows, tmp_path / "data", schema={**schema, "tokens": "int64[?]", "box": "int64[2]"}, shards=2)
    describe(tmp_path / "data")
    assert json.loads((tmp_path / "data" / SHARDS).read_text()) == {
        "train": {shard.file: shard.records for shard in built.manifest.splits["train"]}
    }
    mapping = told(tmp_path / "data")
    assert mapping["image"] == {"type": "string", "shape": [8, 6, 3], "dense": True}
    assert mapping["x"] == {"type": "int", "shape": [], "dense": True}
    assert mapping["y"] == {"type": "float", "shape": [], "dense": True}
    assert mapping["name"] == {"type": "string", "shape": [], "dense": True}
    assert mapping["box"] == {"type": "int", "shape": [2], "dense": True}
    assert (mapping["tokens"]["type"], mapping["tokens"]["dense"]) == ("int", False)
    found = read_mapping(tmp_path / "data" / MAPPING)
    assert (found["tokens"].shape, found["image"].decoded) == ((None,), "uint8[?,?,3]")
    (tmp_path / "data" / "penstock.json").unlink()
    (tmp_path / "data" / "dataset_info.json").unlink()
    again = ps.load(tmp_path / "data")["train"]  # by Datum's files alone
    assert sorted(int(example["x"]) for example in again) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("schema", "example", "message"),
    [
        ({"x": ps.Field(dtype="int64", optional=True)}, {"x": 1}, "expected a type that Datum reads, got .* - at x"),
        ({"x": "float32[?,?]"}, {"x": [[1.0]]}, "expected a type that Datum reads"),
        ({"x": {"y": "int64"}}, {"x": {"y": 1}}, "expected a type that Datum reads, got .* - at x/y"),
    ],
)
def test_types_that_datum_has_not(tmp_path: Path, schema: Any, example: Any, message: str) -> None:
    ps.build([example], tmp_path / "data", schema=schema)
    with pytest.raises(ps.SchemaError, match=message):
        describe(tmp_path / "data")
    assert not (tmp_path / "data" / MAPPING).exists()


def test_files_that_datum_does_not_read(tmp_path: Path) -> None:
    ps.build([{"x": 1}], tmp_path / "data", format="array_record")
    with pytest.raises(ps.SchemaError, match="expected plain TFRecord files, as Datum reads them, got others"):
        describe(tmp_path / "data")


def test_any_source_of_objects_can_be_exported(tmp_path: Path) -> None:
    """COCO's too: boxes by their sides, classes from 1, in the order of Datum."""
    images, annotations = [], []
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png())
        images.append({"id": number, "file_name": f"{number}.png", "width": 6, "height": 8})
        for _ in range(number):
            annotations.append({"id": len(annotations), "image_id": number, "category_id": 5, "bbox": [0, 0, 3, 4],
                                "area": 12, "iscrowd": 0})  # fmt: skip
    catalog = {"images": images, "annotations": annotations, "categories": [{"id": 5, "name": "cat"}]}
    (tmp_path / "all.json").write_text(json.dumps(catalog))
    source = ps.coco(tmp_path, tmp_path / "all.json")
    built = export({"train": source}, tmp_path / "out")
    keys = [str(source.key(number)) for number in range(3)]
    expected = sorted(keys, key=lambda key: hashlib.md5(f"train{key}".encode()).hexdigest())
    assert [built["train"].key(number) for number in range(3)] == expected
    examples = {len(example["labels"]): example for example in built["train"]}
    assert examples[2]["labels"].tolist() == [1, 1]
    np.testing.assert_allclose([examples[1][name][0] for name in ("xmin", "xmax", "ymin", "ymax")], [0, 0.5, 0, 0.5])
    assert examples[1]["area"].tolist() == [0.25]
    assert told(tmp_path / "out")["area"]["dense"] is False
    other = export({"val": source}, tmp_path / "out")
    assert list(other) == ["train", "val"]
    assert [other["train"].key(number) for number in range(3)] == expected
