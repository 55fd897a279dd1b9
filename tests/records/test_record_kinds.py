"""Records that others wrote: SequenceExamples are read whole, and what is no tf.Example is named, never `{}`."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.tfds_cases import F, prepare

import penstock as ps
from penstock.cli import main
from penstock.dataset.datum import describe
from penstock.records.inspect import byte_kind

tf = pytest.importorskip("tensorflow")


def feature(values: list[Any]) -> Any:
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def sequence(context: dict[str, list[Any]], lists: dict[str, list[list[Any]]]) -> bytes:
    made = tf.train.SequenceExample(
        context=tf.train.Features(feature={name: feature(values) for name, values in context.items()}),
        feature_lists=tf.train.FeatureLists(
            feature_list={
                name: tf.train.FeatureList(feature=[feature(step) for step in steps]) for name, steps in lists.items()
            }
        ),
    )
    return bytes(made.SerializeToString())


COUNT = 7


def steps_of(number: int) -> dict[str, list[list[Any]]]:
    return {
        "tokens": [[step, step + 1][: step % 3] for step in range(number)],
        "score": [[step / 2] for step in range(number)],
        "words": [[b"a", "\u00fc".encode()][: 1 + step % 2] for step in range(number)],
    }


@pytest.fixture
def sequences(tmp_path: Path) -> Path:
    """SequenceExamples that TensorFlow wrote."""
    path = tmp_path / "seq.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(COUNT):
            writer.write(sequence({"id": [number], "name": [b"ann"]}, steps_of(number)))
    return path


def plain(value: Any) -> Any:
    """Values as lists, bytes and numbers."""
    if isinstance(value, (str, bytes, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    return [plain(item) for item in value]


def expected(number: int) -> dict[str, Any]:
    lists = steps_of(number)
    words = [[word.decode() for word in step] for step in lists["words"]]
    scores = [step[0] for step in lists["score"]]
    return {"id": number, "name": "ann", "tokens": lists["tokens"], "score": scores, "words": words}


def check_all(examples: Any) -> None:
    found = sorted(({name: plain(value) for name, value in each.items()} for each in examples), key=lambda e: e["id"])
    assert found == [expected(number) for number in range(COUNT)]


def test_a_sequence_example_is_read_whole(sequences: Path) -> None:
    dataset = ps.load(sequences)
    assert {leaf.name: str(leaf) for leaf in dataset.schema.leaves()} == {
        "id": "int64",
        "name": "str",
        "tokens": "list[list[int64]]",
        "score": "list[float32]",
        "words": "list[list[str]]",
    }
    check_all(dataset["train"])
    check_all([dataset["train"][at] for at in range(COUNT)])
    batch = next(iter(dataset["train"].batch(COUNT)))
    assert [plain(row) for row in batch["tokens"]] == [steps_of(number)["tokens"] for number in range(COUNT)]
    check_all(ps.tfrecords(sequences))


@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
def test_a_build_of_sequence_examples_keeps_all_of_it(tmp_path: Path, sequences: Path, format: str) -> None:
    built = ps.build(ps.tfrecords(sequences), tmp_path / "out", format=format)
    check_all(built["train"])
    assert main(["verify", "-q", str(tmp_path / "out")]) == 0
    check_all(ps.convert(sequences, tmp_path / "other", format=format)["train"])
    with pytest.raises(ps.SchemaError, match=r"expected one value in each step, got 0.*list of lists"):
        list(ps.load(sequences, schema={"tokens": "list[int64]"})["train"])
    with pytest.raises(ps.SchemaError, match="expected a feature, got a feature list"):
        list(ps.load(sequences, schema={"score": "float32[2]"})["train"])


def test_what_is_built_from_sequence_examples_opens_in_tensorflow(tmp_path: Path, sequences: Path) -> None:
    ps.build(ps.tfrecords(sequences), tmp_path / "out.tfrecord", order="source")
    parse = {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "tokens": tf.io.RaggedFeature(
            tf.int64,
            "tokens/ragged_flat_values",
            [tf.io.RaggedFeature.RowLengths("tokens/ragged_row_lengths_0")],
        ),
    }
    records = tf.data.TFRecordDataset(str(tmp_path / "out.tfrecord"))
    found = [tf.io.parse_single_example(record, parse) for record in records]
    assert [each["tokens"].to_list() for each in found] == [steps_of(int(each["id"]))["tokens"] for each in found]


def test_sequence_examples_of_ours_open_in_tensorflow_and_here(tmp_path: Path) -> None:
    codec = ps.SequenceCodec(context={"id": "int64"}, steps={"tokens": "int64[?]", "score": "float32"})
    rows = [{"id": n, "tokens": steps_of(n)["tokens"], "score": [0.5] * n} for n in range(COUNT)]
    path = tmp_path / "ours.tfrecord"
    with ps.TFRecordWriter(path) as writer:
        for record in codec.encode_examples(rows):
            writer.write(record)
    for row, record in zip(rows, tf.data.TFRecordDataset(str(path)), strict=True):
        parsed = tf.train.SequenceExample.FromString(record.numpy())
        tokens = [list(step.int64_list.value) for step in parsed.feature_lists.feature_list["tokens"].feature]
        assert tokens == row["tokens"]
    found = [{name: plain(value) for name, value in each.items()} for each in ps.load(path)["train"]]
    assert found == rows


def test_a_key_in_both_maps_is_an_error(tmp_path: Path) -> None:
    with ps.TFRecordWriter(tmp_path / "both.tfrecord") as writer:
        writer.write(sequence({"id": [1]}, {"id": [[2]]}))
    with pytest.raises(ps.SchemaError, match="'id' in the context and in the feature lists"):
        ps.load(tmp_path / "both.tfrecord")


def encoded(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, kind)
    return file.getvalue()


def array_bytes() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(5))
    return file.getvalue()


FOREIGN = {
    "JSON": json.dumps({"id": 1, "text": "hello"}).encode(),
    "a Python pickle": pickle.dumps({"id": 1, "text": "hello"}),
    "a JPEG image": encoded("JPEG"),
    "a PNG image": encoded("PNG"),
    "a GIF image": encoded("GIF"),
    "plain text": b"the quick brown fox\n",
    "a NumPy array": array_bytes(),
    "MessagePack": b"\x82\xa2id\x01\xa4text\xa5hello",
    "a protobuf message of another type": b"\x08\x96\x01\x12\x07testing\x1d\x00\x00\x80\x3f",
    "a tf.Example without features": b"",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_records_are_named(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "theirs.tfrecord"
    with ps.TFRecordWriter(path) as writer:
        for _ in range(3):
            writer.write(FOREIGN[kind])
    said = f"expected tf.Example or tf.SequenceExample records, got {kind}.* - at .*theirs.tfrecord, record 0"
    for use in (ps.load, ps.tfrecords, lambda path: ps.convert(path, tmp_path / "out")):
        with pytest.raises(ps.SchemaError, match=said):
            use(path)
    assert main(["build", str(path), str(tmp_path / "out")]) == 2
    assert kind in " ".join(capsys.readouterr().err.split())
    if kind != "a tf.Example without features":
        assert main(["head", str(path)]) == 0
        assert kind in capsys.readouterr().out
        assert main(["info", str(path)]) == 0
        assert f"no tf.Example: the first one is {kind}" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "out").exists()


def test_unknown_bytes() -> None:
    assert byte_kind(bytes(range(200, 230))).startswith("bytes of an unknown kind (c8 c9")


def test_no_fields_are_an_error(tmp_path: Path) -> None:
    ps.build([{"x": 1}], tmp_path / "toy")
    said = json.loads((tmp_path / "toy" / "penstock.json").read_text())
    del said["checksums"], said["crc32c"]
    said["schema"]["fields"] = {}
    (tmp_path / "toy" / "penstock.json").write_text(json.dumps(said))
    with pytest.raises(ps.SchemaError, match="expected at least one field to read, got none"):
        ps.load(tmp_path / "toy")


# Directories of others as sources


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_a_directory_of_tfds_as_a_source_keeps_its_schema(tmp_path: Path, file_format: str) -> None:
    features = F.FeaturesDict(
        {"ids": F.Tensor(shape=(None,), dtype=np.int64), "label": F.ClassLabel(names=["cat", "dog"]), "name": F.Text()}
    )
    rows = [{"ids": list(range(10)), "label": n % 2, "name": "x"} for n in range(4)]
    builder = prepare(tmp_path / "prepared", features, {"train": rows, "test": rows[:1]}, file_format=file_format)
    directory = Path(builder.data_dir)
    source = (ps.tfrecords if file_format == "tfrecord" else ps.array_records)(directory)
    for schema in (source["train"].schema, ps.build(source, tmp_path / "api").schema):
        assert schema == ps.load(directory).schema
        label = schema["label"]
        assert isinstance(label, ps.Field)
        assert label.classes == ("cat", "dog")
        assert str(schema["ids"]) == "int64[?]"
    assert main(["build", "-q", str(directory), str(tmp_path / "cli")]) == 0
    assert ps.load(tmp_path / "cli").schema == ps.load(directory).schema
    assert sorted(ps.load(tmp_path / "cli")) == ["test", "train"]


def test_a_directory_of_datum_as_a_source_keeps_its_schema(tmp_path: Path) -> None:
    schema = {"ids": "int64[?]", "score": "float32"}
    ps.build([{"ids": [1, 2], "score": 0.5} for _ in range(4)], tmp_path / "datum", schema=schema)
    describe(tmp_path / "datum")
    for name in ("penstock.json", "dataset_info.json", "features.json"):
        (tmp_path / "datum" / name).unlink()
    assert ps.load(tmp_path / "datum").schema == ps.Schema(schema)
    assert main(["build", "-q", str(tmp_path / "datum"), str(tmp_path / "out")]) == 0
    assert ps.load(tmp_path / "out").schema == ps.Schema(schema)


def test_a_dataset_as_a_source_keeps_its_schema(tmp_path: Path) -> None:
    schema = {"ids": "int64[?]", "label": ps.Field(dtype="int64", classes=("cat", "dog"))}
    ps.build([{"ids": [1, 2], "label": 1} for _ in range(4)], tmp_path / "toy", schema=schema)
    assert main(["build", "-q", str(tmp_path / "toy"), str(tmp_path / "out")]) == 0
    assert ps.load(tmp_path / "out").schema == ps.Schema(schema)
