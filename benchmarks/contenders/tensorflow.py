"""TensorFlow: tf.data, tf.train.Example and tf.io.TFRecordWriter. It also writes the shards that both sides read."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.building import READ_BACK, build_job, in_processes
from benchmarks.contenders.loading import PIXELS, epoch_job, numpy_columns
from benchmarks.data import BATCH, GENERATED, Array, Artifact, Columns, Data, check, examples
from benchmarks.rows import Job, Setting
from benchmarks.sources import RADAR_SHAPE, Example


def start(threads: int) -> Any:
    """TensorFlow, held to a number of threads."""
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    tensorflow.config.threading.set_inter_op_parallelism_threads(threads)
    return tensorflow


def rows_w1(columns: Columns) -> Iterator[tuple[Array, Array, int]]:
    """cat, dense and label of each row."""
    return zip(columns["cat"], columns["dense"], columns["label"].tolist(), strict=True)


def records_w1(rows: Iterable[tuple[Array, Array, int]]) -> Iterator[bytes]:
    """One message for each row, as TensorFlow's pages make it; lists go into it faster than arrays do."""
    from tensorflow.train import Example, Feature, Features, FloatList, Int64List

    for cat, dense, label in rows:
        feature = {
            "cat": Feature(int64_list=Int64List(value=cat.tolist())),
            "dense": Feature(float_list=FloatList(value=dense.tolist())),
            "label": Feature(int64_list=Int64List(value=[label])),
        }
        yield Example(features=Features(feature=feature)).SerializeToString()


def records_w1_reused(rows: Iterable[tuple[Array, Array, int]]) -> Iterator[bytes]:
    """One message for all rows, its lists filled anew: no page of TensorFlow's shows this, but it is the fastest."""
    from tensorflow.train import Example

    example = Example()
    feature = example.features.feature
    cats, denses = feature["cat"].int64_list.value, feature["dense"].float_list.value
    labels = feature["label"].int64_list.value
    for cat, dense, label in rows:
        cats[:] = cat.tolist()
        denses[:] = dense.tolist()
        labels[:] = [label]
        yield example.SerializeToString()


def records_w2(columns: Columns) -> Iterator[bytes]:
    """One message for each row of tokens."""
    from tensorflow.train import Example, Feature, Features, Int64List

    for start, stop in itertools.pairwise(columns["row_splits"]):
        tokens = Feature(int64_list=Int64List(value=columns["values"][start:stop].tolist()))
        yield Example(features=Features(feature={"tokens": tokens})).SerializeToString()


def records_w3(rows: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
    """One message for each file and its label."""
    from tensorflow.train import BytesList, Example, Feature, Features, Int64List

    for image, label in rows:
        feature = {
            "image": Feature(bytes_list=BytesList(value=[image])),
            "label": Feature(int64_list=Int64List(value=[label])),
        }
        yield Example(features=Features(feature=feature)).SerializeToString()


def records_csv(rows: Iterable[Example]) -> Iterator[bytes]:
    """One message for each row of a table."""
    from tensorflow.train import BytesList, Example, Feature, Features, FloatList, Int64List

    def feature(value: float | str) -> Any:
        if isinstance(value, int):
            return Feature(int64_list=Int64List(value=[value]))
        if isinstance(value, float):
            return Feature(float_list=FloatList(value=[value]))
        return Feature(bytes_list=BytesList(value=[value.encode()]))

    for row in rows:
        features = {name: feature(value) for name, value in row.items()}
        yield Example(features=Features(feature=features)).SerializeToString()


def records_w5(rows: Iterable[Example]) -> Iterator[bytes]:
    """One message for each set of tensors, each compressed as TFDS does it: by zlib, at its default level."""
    from tensorflow.train import BytesList, Example, Feature, Features

    for row in rows:
        packed = {name: BytesList(value=[zlib.compress(tensor.data)]) for name, tensor in row.items()}
        features = {name: Feature(bytes_list=values) for name, values in packed.items()}
        yield Example(features=Features(feature=features)).SerializeToString()


def files_w3(data: Data) -> list[tuple[bytes, int]]:
    """The files of W3 with their labels."""
    return list(zip(data.images(), data.columns("w3")["label"].tolist(), strict=True))


def write_records(path: Path, records: Iterable[bytes]) -> int:
    """Write a shard; returns how many records it has."""
    import tensorflow

    count = 0
    with tensorflow.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
            count += 1
    return count


def _make_w1(data: Data, path: Path) -> None:
    write_records(path, records_w1(rows_w1(data.columns("w1"))))


def _make_w2(data: Data, path: Path) -> None:
    write_records(path, records_w2(data.columns("w2")))


def _make_w3(data: Data, path: Path) -> None:
    write_records(path, records_w3(files_w3(data)))


SHARD = {
    "w1": Artifact("w1.tfrecord", _make_w1, (GENERATED["w1"],)),
    "w2": Artifact("w2.tfrecord", _make_w2, (GENERATED["w2"],)),
    "w3": Artifact("w3.tfrecord", _make_w3, (GENERATED["w3"],)),
}


def check_size(data: Data, workload: str, path: Path) -> None:
    """Raise unless a shard is as long as the one that TensorFlow wrote of the same data."""
    expected, got = data.path(SHARD[workload]).stat().st_size, path.stat().st_size
    if expected != got:
        raise ValueError(f"{path.name}: expected {expected} bytes, got {got}")


def dataset(setting: Setting, workload: str, *, shuffle: int = 0) -> Any:
    """The pipeline that TensorFlow's guide to performance leads to: batch, parse the batch, prefetch."""
    tf = start(setting.threads)
    features = {
        "w1": {
            "cat": tf.io.FixedLenFeature([26], tf.int64),
            "dense": tf.io.FixedLenFeature([13], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64),
        },
        "w2": {"tokens": tf.io.RaggedFeature(tf.int64)},
        "w3": {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)},
    }[workload]
    options = tf.data.Options()
    options.threading.private_threadpool_size = setting.threads
    records = tf.data.TFRecordDataset(str(setting.data.path(SHARD[workload])))
    return (
        (records.shuffle(shuffle) if shuffle else records)
        .batch(BATCH[workload])
        .map(lambda records: tf.io.parse_example(records, features), num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )


def decode(workload: str) -> Callable[[Setting], Job]:
    """A whole shard into batches of tensors, which are left as they are: to turn them into NumPy arrays costs more.

    One iterator serves all epochs. To close one takes up to a second, as it waits for the thread that tunes it, and a
    new one would be tuned from the start.
    """

    def build(setting: Setting) -> Job:
        epoch = dataset(setting, workload)
        batches = iter(epoch.repeat())
        count = int(getattr(setting.data.size, workload))

        def run() -> int:
            for _ in range(math.ceil(count / BATCH[workload])):
                next(batches)
            return count

        return Job(run, lambda: check(setting.data.columns(workload), map(generated, epoch)))

    return build


def generated(batch: dict[str, Any]) -> Columns:
    """A parsed batch in the form in which the data was generated."""
    if "tokens" in batch:
        tokens = batch["tokens"]
        return {"values": tokens.values.numpy(), "row_splits": tokens.row_splits.numpy()}
    columns = {name: column.numpy() for name, column in batch.items()}
    if "image" in columns:
        files = columns.pop("image").tolist()
        columns["values"] = np.frombuffer(b"".join(files), np.uint8)
        columns["row_splits"] = np.cumsum([0, *map(len, files)])
    return columns


def write_w1_columns(setting: Setting) -> Job:
    """Messages from the rows of W1's columns."""
    columns = setting.data.columns("w1")
    return _write_job(setting, "w1", lambda: records_w1(rows_w1(columns)))


def write_w1_examples(setting: Setting) -> Job:
    """Messages from the dicts of W1."""
    rows = examples(setting.data.columns("w1"))
    return _write_job(setting, "w1", lambda: records_w1((row["cat"], row["dense"], row["label"]) for row in rows))


def write_w1_reused(setting: Setting) -> Job:
    """One message for all rows of W1."""
    columns = setting.data.columns("w1")
    return _write_job(setting, "w1", lambda: records_w1_reused(rows_w1(columns)))


def write_w3(setting: Setting) -> Job:
    """Messages from the files of W3."""
    rows = files_w3(setting.data)
    return _write_job(setting, "w3", lambda: records_w3(rows))


def _write_job(setting: Setting, workload: str, records: Callable[[], Iterable[bytes]]) -> Job:
    start(setting.threads)
    path = setting.scratch / f"{workload}.tfrecord"

    def checked() -> None:
        write_records(path, records())
        check_size(setting.data, workload, path)
        path.unlink()

    return Job(lambda: write_records(path, records()), checked, path.unlink)


def _write_part(workload: str, rows: Iterator[Example], path: Path) -> int:
    if workload == "w1":
        return write_records(path, records_w1((row["cat"], row["dense"], row["label"]) for row in rows))
    if workload == "images":
        return write_records(path, records_w3((row["image"], row["label"]) for row in rows))
    return write_records(path, records_csv(rows) if workload == "csv" else records_w5(rows))


def _read_parts(workload: str, path: Path) -> tuple[int, Iterable[Example]]:
    import tensorflow
    from tensorflow.train import Example

    def value(feature: Any) -> Any:
        values = getattr(feature, feature.WhichOneof("kind")).value
        if workload == "w5":
            return np.frombuffer(zlib.decompress(values[0]), np.float32).reshape(RADAR_SHAPE)
        if feature.HasField("bytes_list") or (len(values) == 1 and workload != "w1"):
            return values[0]
        return np.array(values, np.float32 if feature.HasField("float_list") else np.int64)

    dataset = tensorflow.data.TFRecordDataset(sorted(map(str, path.iterdir())))
    messages = (Example.FromString(record) for record in dataset.take(READ_BACK).as_numpy_iterator())
    some = ({name: value(feature) for name, feature in m.features.feature.items()} for m in messages)
    return sum(1 for _ in dataset), some


def build(workload: str, *, share: float = 1, processes: int = 2, sync: bool = False) -> Callable[[Setting], Job]:
    """A source into TFRecord files, one for each process."""

    def job(setting: Setting) -> Job:
        import tensorflow  # noqa: F401 - the processes of the pool begin with it

        write = in_processes(workload, processes, _write_part)
        return build_job(setting, workload, write, lambda path: _read_parts(workload, path), share, sync=sync)

    return job


def load_shuffled(setting: Setting) -> Job:
    """W1 through a buffer of 10,000 records: tf.data knows no permutation of the whole."""
    return _repeated(setting, "w1", dataset(setting, "w1", shuffle=10_000), BATCH["w1"])


def load_images(setting: Setting) -> Job:
    """W4: each record parsed, decoded and resized in parallel, then batched."""
    tf = start(setting.threads)
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def decode_image(record: Any) -> dict[str, Any]:
        example = tf.io.parse_single_example(record, features)
        pixels = tf.image.resize(tf.io.decode_jpeg(example["image"], channels=3), PIXELS)
        return {"image": tf.cast(pixels, tf.uint8), "label": example["label"]}

    options = tf.data.Options()
    options.threading.private_threadpool_size = setting.threads
    batches = (
        tf.data.TFRecordDataset(str(setting.data.path(SHARD["w3"])))
        .map(decode_image, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH["w3"])
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )
    return _repeated(setting, "w4", batches, BATCH["w3"])


def _repeated(setting: Setting, workload: str, batches: Any, size: int) -> Job:
    """One iterator for all epochs, as in `decode`."""
    count = int(getattr(setting.data.size, "w1" if workload == "w1" else "w3"))
    endless = iter(batches.repeat())
    proof = epoch_job(setting, workload, lambda: batches, numpy_columns)

    def run() -> int:
        for _ in range(math.ceil(count / size)):
            next(endless)
        return count

    return Job(run, proof.check)
