"""What TFDS prepared, read in place without TensorFlow: the same values as its own decoding gives."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from tests.support.tfds_cases import CASES, F, Sized, as_plain, picture, plain_tensors, png, prepare, tensor

import penstock as ps

FORMATS = ["tfrecord", "array_record"]
FRAMES = np.stack([picture(4, 5, 3) + n for n in range(3)])

# Connectors that our schema holds in other words, or that only reading has to know.
MORE = {
    "image": (F.Image(), picture(4, 6, 3)),
    "grey": (F.Image(shape=(4, 6, 1)), picture(4, 6, 1)),
    "alpha": (F.Image(shape=(None, None, 4)), picture(4, 6, 4)),
    "mask": (F.LabeledImage(labels=["sky", "sea"], shape=(None, None, 1)), picture(4, 6, 1) % 2),
    "audio": (F.Audio(sample_rate=16000), np.arange(-3, 4)),
    "stereo": (F.Audio(shape=(None, 2), dtype=np.float32), np.ones((4, 2), np.float32)),
    "languages": (F.TranslationVariableLanguages(["en", "fr"]), {"en": ["a", "b"], "fr": "c"}),
    "labels": (F.Sequence(F.ClassLabel(names=["x", "y"])), ["y", "x"]),
    "two labels": (F.Sequence(F.ClassLabel(num_classes=3), length=2), [2, 0]),
    "nested label": (F.FeaturesDict({"a": {"b/c": F.ClassLabel(names=["k", "l"])}}), {"a": {"b/c": 1}}),
    "doubles": (F.Sequence(tensor((2,), np.float64, "bytes")), [[0.1, 1e300], [2, 3]]),
    "fixed doubles": (F.Sequence(tensor((2,), np.float64, "bytes"), length=2), [[0.1, 1e300], [2, 3]]),
    "fixed dicts": (F.Sequence({"n": np.int64, "v": tensor((2,), np.float32)}, length=2), [{"n": 1, "v": [1, 2]}] * 2),
    "nested pairs": (F.Sequence(F.Sequence(tensor((2,), np.float32))), [[[1, 2]], [], [[3, 4], [5, 6]]]),
    "absolute box": (F.BBoxFeature(bbox_format="XYWH"), np.arange(4.0)),
    "string": (tensor((), np.object_), b"\xff\x00"),
    "optional text": (F.Tensor(shape=(), dtype=np.str_, optional=True), None),
}  # fmt: skip
FILES = {
    "video": (F.Video(shape=(None, 4, 5, 3), doc=F.Documentation(desc="Moving.", value_range="0-255")), FRAMES),
    "three frames": (F.Video(shape=(3, 4, 5, 3)), FRAMES),
    "pictures": (F.Sequence(F.Image(shape=(4, 5, 3))), FRAMES),
}


def everything() -> tuple[Any, dict[str, Any]]:
    features = {case.name: case.connector for case in CASES} | {name: c for name, (c, _) in (MORE | FILES).items()}
    values = {case.name: case.value for case in CASES} | {name: v for name, (_, v) in (MORE | FILES).items()}
    return F.FeaturesDict({"number": np.int64, **features}), values


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    features, values = everything()
    examples = [{"number": n, **values} for n in range(3)]
    folder = tmp_path_factory.mktemp("prepared")
    splits = {"train": examples, "test-2020": examples[:1]}
    return {name: prepare(folder / name, features, splits, file_format=name) for name in FORMATS}


def decoded_by_tfds(builder: Any, split: str) -> list[Any]:
    """Examples as TFDS gives them: data_source where it can, tf.data elsewhere."""
    if builder.info.file_format is tfds.core.FileFormat.ARRAY_RECORD:
        return list(builder.as_data_source(split))
    return [plain_tensors(example) for example in builder.as_dataset(split, shuffle_files=False)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("split", ["train", "test-2020"])
def test_every_connector_reads_as_tfds_reads_it(prepared: dict[str, Any], format: str, split: str) -> None:
    builder = prepared[format]
    ds = ps.load(builder.data_dir)
    assert ds.name == "toy_set"
    assert list(ds) == ["train", "test-2020"]
    assert ds.unread == {}
    theirs = decoded_by_tfds(builder, split)
    assert len(ds[split]) == len(theirs)
    for ours, expected in zip(ds[split], theirs, strict=True):
        assert ours.keys() == expected.keys()
        for name, value in expected.items():
            mine = ours[name]
            if name in FILES:
                mine = [ps.Image().decode(file) for file in mine]
            if mine is None and format == "tfrecord":
                assert value in (np.iinfo(np.int64).min, b"")  # what TensorFlow makes of a missing value
            else:
                assert as_plain(mine) == as_plain(value), name
    batch = ds[split][:]
    assert batch["number"].tolist() == [example["number"] for example in theirs]


def test_what_tfds_says_of_a_field_is_kept(prepared: dict[str, Any]) -> None:
    schema = ps.load(prepared["array_record"].data_dir).schema
    assert schema["ClassLabel"] == ps.Field("ClassLabel", dtype="int64", classes=("cat", "dog"))
    assert schema["labels"] == ps.Field("labels", dtype="int64", classes=("x", "y"), levels=1)
    assert schema["two labels"] == ps.Field("two labels", "int64", (2,), kind="label")
    assert schema["nested label"]["a"]["b/c"].classes == ("k", "l")
    assert schema["mask"].classes == ("sky", "sea")
    assert schema["grey"].decoded == "uint8[4,6,1]"
    assert schema["video"] == ps.Field("video", "bytes", kind="video", levels=1, decoded="uint8[4,5,3]")
    assert schema["Sequence of dicts"].sequence
    assert schema["BBox"].kind == "box"
    assert schema["absolute box"].kind == "tensor"
    assert ps.load(prepared["tfrecord"].data_dir).info()["tfds"]["version"] == "1.0.0"


@pytest.mark.parametrize("format", FORMATS)
def test_loaders_run_over_what_tfds_prepared(prepared: dict[str, Any], format: str) -> None:
    split = ps.load(prepared[format].data_dir)["train[:2]+test-2020"]
    seen = [n for batch in split.select("number", "Tensor").shuffle(seed=1).batch(2) for n in batch["number"].tolist()]
    assert sorted(seen) == sorted(example["number"] for example in split)
    assert pickle.loads(pickle.dumps(split))[0]["number"] == split[0]["number"]  # noqa: S301


def test_no_tensorflow_is_imported(prepared: dict[str, Any]) -> None:
    code = f"""
import sys
sys.modules["tensorflow"] = sys.modules["tensorflow_datasets"] = sys.modules["array_record"] = None
import penstock as ps
for folder in {[str(builder.data_dir) for builder in prepared.values()]!r}:
    assert len(list(ps.load(folder)["train"])) == 3
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


# By name


def test_a_name_finds_the_highest_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = F.FeaturesDict({"x": np.int64})
    for number, version in enumerate(["1.9.0", "1.10.0"]):
        prepare(tmp_path, features, {"train": [{"x": number}]}, version=version)
    assert ps.load("tfds:toy_set", data_dir=tmp_path)["train"][0] == {"x": 1}
    assert ps.load("tfds:toy_set:1.9.0", data_dir=tmp_path)["train"][0] == {"x": 0}
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert ps.load("tfds:toy_set")["train"][0] == {"x": 1}
    with pytest.raises(ps.NotFoundError, match=r"got the versions 1.10.0, 1.9.0 - at .*toy_set. Give data_dir="):
        ps.load("tfds:toy_set:3.0.0")
    with pytest.raises(ps.NotFoundError, match=r"got nothing - at .*other"):
        ps.load("tfds:other")
    with pytest.raises(ps.ArgumentError, match="expected a name such as tfds:mnist"):
        ps.load("tfds:../x")
    with pytest.raises(ps.ArgumentError, match="got it with a path"):
        ps.load(tmp_path / "toy_set" / "1.9.0", data_dir=tmp_path)


def test_configs(tmp_path: Path) -> None:
    for config in ("large", "small"):
        Sized(data_dir=tmp_path, config=config).download_and_prepare()
    for name, config in {"tfds:sized/large": "large", "tfds:sized": "small"}.items():
        assert {e["x"] for e in ps.load(name, data_dir=tmp_path)["train"]} == {f"{config} 0", f"{config} 1"}
    (tmp_path / "sized" / ".config" / "metadata.json").unlink()
    with pytest.raises(ps.NotFoundError, match=r"expected one config, got large, small .* Say which: tfds:sized/large"):
        ps.load("tfds:sized", data_dir=tmp_path)


# What can't be read


@pytest.fixture
def small(tmp_path: Path) -> Path:
    features = F.FeaturesDict({"x": np.int64, "z": {"y": F.Text(), "t": F.Text()}})
    return Path(prepare(tmp_path, features, {"train": [{"x": 5, "z": {"y": "a", "t": "b"}}]}).data_dir)


def change(path: Path, edit: Any) -> None:
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def test_an_unknown_connector_is_named_and_the_others_load(small: Path) -> None:
    def edit(data: Any) -> None:
        data["featuresDict"]["features"]["z"]["featuresDict"]["features"]["y"]["pythonClassName"] = "lab.Spectrum"

    change(small / "features.json", edit)
    with pytest.warns(UserWarning, match="the field 'z/y' can't be read: its class lab.Spectrum is none that Penstock"):
        ds = ps.load(small)
    assert ds["train"][0] == {"x": 5, "z": {"t": "b"}}
    with pytest.raises(ps.ArgumentError, match=r"'z/y' can't be read: its class lab\.Spectrum"):
        ds["train"].select("z/y")


@pytest.mark.filterwarnings("ignore:the field")
@pytest.mark.parametrize(
    ("connector", "reason"),
    [
        (F.Sequence(tensor((None,), np.int64)), "expected known dimensions inside a list"),
        (tensor((2,), np.complex64, "bytes"), "its dtype complex64 is none that Penstock knows"),
    ],
)
def test_a_type_that_no_schema_holds_is_named(tmp_path: Path, connector: Any, reason: str) -> None:
    value = np.ones(2, np.complex64) if "complex" in reason else [[1, 2]]
    builder = prepare(tmp_path, F.FeaturesDict({"x": np.int64, "odd": connector}), {"train": [{"x": 1, "odd": value}]})
    ds = ps.load(builder.data_dir)
    assert reason in ds.unread["odd"]
    assert ds["train"][0] == {"x": 1}


def test_images_of_more_than_bytes_stay_files(tmp_path: Path) -> None:
    deep = np.arange(24, dtype=np.uint16).reshape(4, 6, 1) * 999
    features = F.FeaturesDict({"deep": F.Image(shape=(4, 6, 1), dtype=np.uint16), "x": F.Image()})
    builder = prepare(tmp_path, features, {"train": [{"deep": deep, "x": picture(2, 2, 3)}]})
    example = ps.load(builder.data_dir)["train"][0]
    assert tf.io.decode_png(example["deep"], dtype=tf.uint16).numpy().tolist() == deep.tolist()
    assert example["x"].tolist() == picture(2, 2, 3).tolist()


def test_sounds_stay_files_and_nested_datasets_are_lists(tmp_path: Path) -> None:
    sound = F.Audio(file_format="wav", lazy_decode=True)
    features = F.FeaturesDict({"sound": sound, "steps": F.Dataset({"reward": np.float32, "done": np.bool_})})
    steps = [{"reward": 0.5, "done": False}, {"reward": 1.0, "done": True}]
    builder = prepare(tmp_path, features, {"train": [{"sound": io.BytesIO(b"RIFF a wave"), "steps": steps}]})
    example = ps.load(builder.data_dir)["train"][0]
    assert example["sound"] == b"RIFF a wave"
    assert as_plain(example["steps"]) == {"reward": [0.5, 1.0], "done": [False, True]}


def test_lengths_that_lie_are_found(small: Path) -> None:
    change(small / "dataset_info.json", lambda data: data["splits"][0].update(shardLengths=["2"]))
    with pytest.raises(ps.CorruptionError, match=r"expected 2 records, as dataset_info.json says, got 1"):
        ps.load(small)


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [
        ("dataset_info.json", lambda data: data.update(name="../x"), "the name '../x'"),
        ("dataset_info.json", lambda data: data["splits"][0].update(filepathTemplate="/etc/{SPLIT}"), "the name '/etc"),
        ("dataset_info.json", lambda data: data["splits"][0].pop("shardLengths"), "KeyError: 'shardLengths'"),
        ("features.json", lambda data: data.update(featuresDict=5), "no features"),
        ("features.json", lambda data: data["featuresDict"]["features"].update(x=[]), "expected TFDS features"),
    ],
)
def test_broken_metadata_is_an_error(small: Path, file: str, edit: Any, message: str) -> None:
    change(small / file, edit)
    with pytest.raises(ps.CorruptionError, match=message):
        ps.load(small)["train"][0]


def test_formats_that_nobody_here_reads_are_named(small: Path) -> None:
    change(small / "dataset_info.json", lambda data: data.update(fileFormat="riegeli"))
    with pytest.raises(ps.ArgumentError, match="expected shards in the format tfrecord or array_record, got riegeli"):
        ps.load(small)
    with pytest.raises(
        ps.ArgumentError, match='expected one of the formats "tfrecord", "array_record", "tar", or None'
    ):
        ps.load(small, format="riegeli")


def test_metadata_of_old_versions_of_tfds(tmp_path: Path) -> None:
    features = F.FeaturesDict(
        {"image": F.Image(shape=(2, 3, 3)), "label": F.ClassLabel(names=["a", "b"]), "s": F.Sequence({"t": F.Text()})}
    )
    value = {"image": picture(2, 3, 3), "label": 1, "s": [{"t": "u"}]}
    folder = Path(prepare(tmp_path, features, {"train": [value]}).data_dir)
    prefix = "tensorflow_datasets.core.features."

    def old(name: str, content: Any) -> Any:
        return {"type": prefix + name, "content": content}

    image = {"shape": [2, 3, 3], "dtype": "uint8", "encoding_format": "png"}
    inner = old("features_dict.FeaturesDict", {"t": old("text_feature.Text", {})})
    content = {
        "image": old("image_feature.Image", image),
        "label": old("class_label_feature.ClassLabel", {"num_classes": 2}),
        "s": old("sequence_feature.Sequence", {"feature": inner, "length": None}),
    }
    (folder / "features.json").write_text(json.dumps(old("features_dict.FeaturesDict", content)))
    theirs = next(iter(tfds.builder_from_directory(folder).as_dataset("train")))
    ours = ps.load(folder)["train"][0]
    assert as_plain(ours) == as_plain(plain_tensors(theirs))
    assert ps.load(folder).schema["label"].classes == ("a", "b")
    assert png()  # the picture above is one
