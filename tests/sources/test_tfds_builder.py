"""An existing TFDS builder, run by our engine: what it leaves is what TFDS takes for its own work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tests.support.tfds_cases import CASES, F, Sized, as_plain, picture, png, prepare, tensor

import penstock as ps

MORE = {
    "array": (F.Image(shape=(4, 6, 3)), picture(4, 6, 3)),
    "sound": (F.Audio(sample_rate=16000), np.arange(4)),
    "frames": (F.Video(shape=(None, 4, 5, 3)), [picture(4, 5, 3)] * 2),
    "languages": (F.TranslationVariableLanguages(["en", "fr"]), {"en": ["a", "b"], "fr": "c"}),
    "fixed dicts": (F.Sequence({"n": np.int64, "v": {"w": np.float32}}, length=2), [{"n": 1, "v": {"w": 0.5}}] * 2),
    "columns": (F.Sequence({"n": np.int64, "t": F.Text()}), {"n": [1, 2], "t": ["a", "b"]}),
    "names": (F.Sequence(F.ClassLabel(names=["x", "y"])), ["y", "x"]),
    "bounded": (F.Tensor(shape=(2,), dtype=np.float32, minimum=0, maximum=1), [0.1, np.float64(0.2)]),
}  # fmt: skip


def everything(file: Path) -> tuple[Any, dict[str, Any]]:
    file.write_bytes(png())
    features = {case.name: case.connector for case in CASES} | {name: c for name, (c, _) in MORE.items()}
    values = {case.name: case.value for case in CASES} | {name: v for name, (_, v) in MORE.items()}
    return F.FeaturesDict({"file": F.Image(), "n": np.int64, **features}), {"file": str(file), **values}


def by_number(builder: Any, split: str) -> dict[int, Any]:
    """The examples as TFDS reads them, by their number."""
    features = builder.info.features
    found = {}
    for path in sorted(Path(builder.data_dir).glob(f"*-{split}.tfrecord-*[0-9]")):
        for record in ps.TFRecordReader(path):
            example = features.deserialize_example_np(record)
            found[int(example["n"])] = as_plain(example)
    return found


def test_the_result_is_what_the_builder_would_have_prepared(tmp_path: Path) -> None:
    features, values = everything(tmp_path / "picture.png")
    splits = {"train": {f"key {n}": {"n": n, **values} for n in range(5)}, "test": [{"n": 9, **values}]}
    said = {"supervised_keys": ("file", "n"), "description": "All of it.", "citation": "@misc{x}"}
    theirs = prepare(tmp_path / "theirs", features, splits, **said)
    builder = prepare(tmp_path / "ours", features, splits, run=False, **said)
    built = ps.build(ps.tfds(builder), builder.data_dir)
    assert sorted(filter(None, map(built["train"].key, range(5)))) == [f"key {n}" for n in range(5)]
    again = prepare(tmp_path / "ours", features, splits, **said)  # it finds itself prepared
    assert (Path(again.data_dir) / "penstock.json").exists()
    for split in splits:
        assert by_number(again, split) == by_number(theirs, split)
        assert again.info.splits[split].num_examples == theirs.info.splits[split].num_examples
    ours, other = (Path(b.data_dir) for b in (again, theirs))
    for name in sorted(path.name for path in other.iterdir() if path.suffix in (".txt", ".json")):
        if name != "dataset_info.json":
            read: Any = json.loads if name.endswith(".json") else str
            assert read((ours / name).read_text()) == read((other / name).read_text()), name
    assert again.info.supervised_keys == ("file", "n")
    assert again.info.description == "All of it."
    assert tfds.builder_from_directory(ours).info.features["sound"].sample_rate == 16000


@pytest.mark.parametrize("key", [int, "clé {}".format, "folder\\{}.png".format, lambda n: b"key %d" % n])
def test_the_order_of_tfds(tmp_path: Path, key: Any) -> None:
    """Example by example where TFDS has put them, so that slices are the same."""
    features = F.FeaturesDict({"n": np.int64})
    splits = {split: {key(n): {"n": n} for n in range(count)} for split, count in (("train", 50), ("test", 7))}
    theirs = prepare(tmp_path / "theirs", features, splits)
    builder = prepare(tmp_path / "ours", features, splits, run=False)
    built = ps.build(ps.tfds(builder), builder.data_dir, order="tfds", shards=2)
    for split in ("train", "test", "train[:10%]", "train[40:]"):
        expected = [int(example["n"]) for example in theirs.as_dataset(split=split)]
        assert [int(example["n"]) for example in built[split]] == expected
    again = prepare(tmp_path / "ours", features, splits)
    assert list(by_number(again, "train")) == list(by_number(theirs, "train")) != list(range(50))


def test_configs_keep_their_place(tmp_path: Path) -> None:
    builder = Sized(data_dir=tmp_path, config="large")
    ps.build(ps.tfds(builder), builder.data_dir, order="source")
    loaded = tfds.load("sized/large", split="train", data_dir=tmp_path)
    assert [example["x"].numpy() for example in loaded] == [b"large 0", b"large 1"]
    again = Sized(data_dir=tmp_path, config="large")
    again.download_and_prepare()
    assert again.info.splits["train"].num_examples == 2
    assert [e["x"] for e in ps.load("tfds:sized/large", data_dir=tmp_path)["train"]] == ["large 0", "large 1"]


def test_bad_examples_meet_the_policy(tmp_path: Path) -> None:
    features = F.FeaturesDict({"image": F.Image(), "label": F.ClassLabel(names=["a", "b"])})
    rows: dict[str, Any] = {f"k{n}": {"image": picture(2, 3, 3), "label": "a"} for n in range(20)}
    rows["k3"]["image"] = str(tmp_path / "gone.png")
    rows["k4"]["label"] = "c"
    builder = prepare(tmp_path, features, {"train": rows}, run=False)
    with pytest.raises(ps.BuildError, match="k3"):
        ps.build(ps.tfds(builder), tmp_path / "raise")
    built = ps.build(ps.tfds(builder), tmp_path / "skip", on_error="quarantine")
    assert (len(built["train"]), built.bad) == (18, 2)
    assert "gone.png" in (tmp_path / "skip" / "quarantine.jsonl").read_text()


def test_a_builder_may_be_run_twice(tmp_path: Path) -> None:
    builder = prepare(tmp_path, F.FeaturesDict({"x": np.int64}), {"train": [{"x": 1}, {"x": 2}]}, run=False)
    source = ps.tfds(builder)
    for name in ("a", "b"):
        assert sorted(int(e["x"]) for e in ps.build(source, tmp_path / name)["train"]) == [1, 2]


def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="expected a builder of TFDS, got int"):
        ps.tfds(5)
    odd = F.FeaturesDict({"x": np.int64, "odd": tensor((2,), np.complex64, "bytes")})
    builder = prepare(tmp_path, odd, {"train": []}, run=False)
    with pytest.raises(ps.SchemaError, match=r"'odd' can't be stored: its dtype complex64.* - at tfds\(ToySet\)"):
        ps.tfds(builder)
    builder = prepare(tmp_path, F.FeaturesDict({"x": np.int64}), {"train": []}, run=False)
    builder._split_generators = lambda manager: {"train": 5}
    with pytest.raises(ps.SchemaError, match=r"expected a generator of examples, got int - at .*split 'train'"):
        ps.tfds(builder)
    builder._split_generators = lambda manager, pipeline: {}
    with pytest.raises(ps.SchemaError, match="a pipeline of Beam"):
        ps.tfds(builder)


def test_other_words_of_the_schema_are_written_anew(tmp_path: Path) -> None:
    builder = prepare(tmp_path, F.FeaturesDict({"x": np.int32}), {"train": [{"x": 1}]}, run=False)
    built = ps.build(ps.tfds(builder), tmp_path / "toy", schema={"x": "int64"}, info=ps.Info(version="2.0.0"))
    read = tfds.builder_from_directory(built.path)
    assert read.info.features["x"].np_dtype == np.int64
    assert (read.info.name, str(read.info.version)) == ("toy_set", "2.0.0")
