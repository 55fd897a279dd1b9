"""A value of every connector of TFDS, with our field for it; and values of both sides made comparable."""

from __future__ import annotations

import io
import types
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

import penstock as ps

F = tfds.features


def png(channels: int = 3) -> bytes:
    """A picture of 2 x 3 pixels, in colour or grey."""
    out = io.BytesIO()
    pixels = picture(2, 3, channels)
    Image.fromarray(pixels if channels > 1 else pixels[..., 0]).save(out, "PNG")
    return out.getvalue()


class Case(NamedTuple):
    """A connector of TFDS, our field, and a value. Two compressors write what `zlib_key` holds differently."""

    name: str
    connector: Any
    field: Any
    value: Any
    zlib_key: str = ""


def tensor(shape: tuple[int | None, ...], dtype: Any, encoding: str = "none") -> Any:
    return F.Tensor(shape=shape, dtype=dtype, encoding=encoding)


CUBE = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
CASES = [
    Case("Scalar int64", F.Scalar(np.int64), "int64", -5),
    Case("Scalar uint8", F.Scalar(np.uint8), "uint8", 255),
    Case("Scalar bool", F.Scalar(np.bool_), "bool", True),
    Case("Scalar float16", F.Scalar(np.float16), "float16", np.float16(0.1)),
    Case("Scalar float32", F.Scalar(np.float32), "float32", 0.1),
    Case("Scalar uint64 beyond int64", F.Scalar(np.uint64), "uint64", np.uint64(2**63 + 5)),
    Case("Scalar float64", F.Scalar(np.float64), ps.Field(dtype="float64", encoding="none"), 0.5),
    Case("Tensor", tensor((2, 2, 3), np.float32), "float32[2,2,3]", CUBE),
    Case("Tensor with one unknown dimension", tensor((None, 3), np.int32), "int32[?,3]", np.ones((4, 3), np.int32)),
    Case("Tensor with a later unknown dimension", tensor((2, None), np.int64), "int64[2,?]", np.ones((2, 5), np.int64)),
    Case(
        "Tensor bytes",
        tensor((2, 2, 3), np.float32, "bytes"),
        ps.Field(dtype="float32", shape=(2, 2, 3), encoding="bytes"),
        CUBE,
    ),
    Case(
        "Tensor zlib",
        tensor((2, 2, 3), np.float32, "zlib"),
        ps.Field(dtype="float32", shape=(2, 2, 3), encoding="zlib"),
        CUBE,
        "x",
    ),
    Case("Tensor float64 bytes", tensor((2,), np.float64, "bytes"), "float64[2]", np.array([0.1, 1e300])),
    Case(
        "Tensor bool bytes",
        tensor((3,), np.bool_, "bytes"),
        ps.Field(dtype="bool", shape=(3,), encoding="bytes"),
        np.array([True, False, True]),
    ),
    Case(
        "Tensor with two unknown dimensions",
        tensor((None, None, 3), np.uint8, "bytes"),
        "uint8[?,?,3]",
        np.arange(18, dtype=np.uint8).reshape(2, 3, 3),
    ),
    Case(
        "Tensor with two unknown dimensions, zlib",
        tensor((None, None), np.int16, "zlib"),
        ps.Field(dtype="int16", shape=(None, None), encoding="zlib"),
        np.ones((2, 3), np.int16),
        "x/value",
    ),
    Case("Tensor of strings", tensor((2,), np.str_), "str[2]", ["a", "é"]),
    Case("Text", F.Text(), "str", "grüße"),
    Case("ClassLabel", F.ClassLabel(names=["cat", "dog"]), ps.Field(dtype="int64", classes=("cat", "dog")), "dog"),
    Case("ClassLabel of none", F.ClassLabel(num_classes=2), ps.Field(dtype="int64", kind="label"), -1),
    Case("BBox", F.BBoxFeature(), ps.Field(dtype="float32", shape=(4,), kind="box"), F.BBox(0.1, 0.2, 0.3, 0.4)),
    Case("Sequence of scalars", F.Sequence(np.int64), "list[int64]", [1, 2, 3]),
    Case("empty Sequence", F.Sequence(np.float32), "list[float32]", []),
    Case("Sequence of tensors", F.Sequence(tensor((2,), np.float32)), "list[float32[2]]", [[1, 2], [3, 4], [5, 6]]),
    Case("Sequence of texts", F.Sequence(F.Text()), "list[str]", ["a", "", "ß"]),
    Case("Sequence of a known length", F.Sequence(np.int64, length=3), "int64[3]", [1, 2, 3]),
    Case("Sequence of Sequences", F.Sequence(F.Sequence(np.int64)), "list[list[int64]]", [[1, 2], [], [3]]),
    Case("Sequence of Sequences of texts", F.Sequence(F.Sequence(F.Text())), "list[list[str]]", [["a"], [], ["b"]]),
    Case(
        "three Sequences",
        F.Sequence(F.Sequence(F.Sequence(np.int64))),
        "list[list[list[int64]]]",
        [[[1], [2, 3]], [], [[], [4]]],
    ),
    Case(
        "FeaturesDict",
        F.FeaturesDict({"y": np.int64, "z": {"t": F.Text()}}),
        {"y": "int64", "z": {"t": "str"}},
        {"y": 1, "z": {"t": "u"}},
    ),
    Case(
        "Sequence of dicts",
        F.Sequence({"box": F.BBoxFeature(), "name": F.Text()}),
        ps.Schema({"box": ps.Field(dtype="float32", shape=(4,), kind="box"), "name": "str"}, sequence=True),
        [{"box": F.BBox(0.0, 0.0, 0.5, 1.0), "name": "a"}, {"box": F.BBox(0.0, 0.25, 1.0, 1.0), "name": "b"}],
    ),
    Case(
        "Sequence in a Sequence of dicts",
        F.Sequence({"n": F.Sequence(np.int64)}),
        ps.Schema({"n": "list[int64]"}, sequence=True),
        [{"n": [1, 2]}, {"n": []}],
    ),
    Case("Translation", F.Translation(["en", "fr"]), {"en": "str", "fr": "str"}, {"en": "yes", "fr": "oui"}),
    Case("optional, there", F.Scalar(np.int64, optional=True), "int64?", 7),
    Case("optional, missing", F.Scalar(np.int64, optional=True), "int64?", None),
]  # fmt: skip


def as_list(value: Any) -> Any:
    """A box as the four numbers that it is."""
    return list(value) if isinstance(value, F.BBox) else value


def as_plain(value: Any) -> Any:
    """Both sides as plain Python values. TFDS leaves texts as bytes."""
    if isinstance(value, dict):
        return {name: as_plain(item) for name, item in value.items()}
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [as_plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def picture(height: int, width: int, channels: int) -> Any:
    return np.arange(height * width * channels, dtype=np.uint8).reshape(height, width, channels)


def prepare(folder: Any, features: Any, examples: dict[str, Any], *, name: str = "toy_set", **options: Any) -> Any:
    """A dataset prepared by TFDS itself: the builder of examples by split, each with its key."""

    def info(self: Any) -> Any:
        said = {key: options[key] for key in ("supervised_keys", "description", "citation") if key in options}
        return tfds.core.DatasetInfo(builder=self, features=features, **said)

    def split_generators(self: Any, dl_manager: Any) -> Any:
        return {split: self._generate_examples(rows) for split, rows in examples.items()}

    def generate_examples(self: Any, rows: Any) -> Any:
        yield from rows.items() if isinstance(rows, dict) else enumerate(rows)

    methods = {"_info": info, "_split_generators": split_generators, "_generate_examples": generate_examples}
    version = {"VERSION": tfds.core.Version(options.get("version", "1.0.0")), "name": name}
    bases = (tfds.core.GeneratorBasedBuilder,)
    kind: Any = types.new_class(
        "ToySet", bases, {"skip_registration": True}, lambda body: body.update(methods | version)
    )
    builder = kind(data_dir=folder, file_format=options.get("file_format", "tfrecord"))
    if options.get("run", True):
        builder.download_and_prepare()
    return builder


class Sized(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A builder of two configs."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = (tfds.core.BuilderConfig(name="small"), tfds.core.BuilderConfig(name="large"))

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict({"x": F.Text()}))

    def _split_generators(self, dl_manager: Any) -> Any:
        return [tfds.core.SplitGenerator(name="train", gen_kwargs={"count": 2})]  # as it used to be written

    def _generate_examples(self, count: int) -> Any:
        for n in range(count):
            yield n, {"x": f"{self.builder_config.name} {n}"}


def plain_tensors(value: Any) -> Any:
    """An example of TensorFlow's as NumPy has it, ragged values as lists."""
    if isinstance(value, dict):
        return {name: plain_tensors(item) for name, item in value.items()}
    return value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy()
