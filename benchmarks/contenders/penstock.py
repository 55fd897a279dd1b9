"""Ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import tensorflow
from benchmarks.data import BATCH, Columns, check, check_examples, examples, random_indices
from benchmarks.machine import peak_memory
from benchmarks.rows import Job, Setting

if TYPE_CHECKING:
    import penstock

SCHEMA = {
    "w1": {"cat": "int64[26]", "dense": "float32[13]", "label": "int64"},
    "w2": {"tokens": "int64[?]"},
    "w3": {"image": "bytes", "label": "int64"},
}


def codec(workload: str) -> penstock.Codec:
    """The codec of a workload's schema."""
    import penstock

    return penstock.Codec(penstock.Schema(SCHEMA[workload]))


def decode(workload: str) -> Callable[[Setting], Job]:
    """A whole shard into NumPy batches."""

    def build(setting: Setting) -> Job:
        import penstock

        plan = codec(workload)
        # Opened once for all epochs, as tf.data's iterator is.
        reader = penstock.TFRecordReader(setting.data.path(tensorflow.SHARD[workload]))

        def batches() -> Iterator[dict[str, Any]]:
            return reader.batches(plan, BATCH[workload], threads=setting.threads)

        def run() -> int:
            column = "tokens" if workload == "w2" else "label"
            return sum(len(batch[column]) for batch in batches())

        return Job(run, lambda: check(setting.data.columns(workload), map(generated, batches())))

    return build


def generated(batch: dict[str, Any]) -> Columns:
    """A decoded batch in the form in which the data was generated."""
    if "tokens" in batch:
        return {"values": batch["tokens"].values, "row_splits": batch["tokens"].row_splits}
    if "image" in batch:
        image = batch["image"]
        return {"values": image.values, "row_splits": image.row_splits, "label": batch["label"]}
    return batch


def write_columns(workload: str) -> Callable[[Setting], Job]:
    """Columns into a shard: W1 in one call, W3 batch by batch."""

    def build(setting: Setting) -> Job:
        import penstock

        plan = codec(workload)
        columns: dict[str, Any] = dict(setting.data.columns(workload))
        count = len(columns["label"])
        step = count
        if workload == "w3":
            columns["image"] = penstock.Bytes(columns.pop("values"), columns.pop("row_splits"))
            step = BATCH[workload]
        parts = [
            {name: column[start : start + step] for name, column in columns.items()} for start in range(0, count, step)
        ]

        def write(writer: penstock.TFRecordWriter) -> None:
            for part in parts:
                writer.write_columns(plan, part)

        return _write_job(setting, workload, count, write)

    return build


def write_examples(setting: Setting) -> Job:
    """The dicts of W1 into a shard."""
    plan = codec("w1")
    rows = examples(setting.data.columns("w1"))
    return _write_job(setting, "w1", len(rows), lambda writer: writer.write_examples(plan, rows))


def _write_job(setting: Setting, workload: str, count: int, write: Callable[[penstock.TFRecordWriter], None]) -> Job:
    import penstock

    path = setting.scratch / f"{workload}.tfrecord"

    def run() -> int:
        with penstock.TFRecordWriter(path, threads=setting.threads) as writer:
            write(writer)
        return count

    def checked() -> None:
        run()
        reader: Iterable[dict[str, Any]] = penstock.TFRecordReader(path).batches(codec(workload), BATCH[workload])
        check(setting.data.columns(workload), map(generated, reader))
        tensorflow.check_size(setting.data, workload, path)
        path.unlink()

    return Job(run, checked, path.unlink)


def random_reads(setting: Setting) -> Job:
    """Single decoded examples of W1."""
    import penstock

    plan = codec("w1")
    reader = penstock.TFRecordReader(setting.data.path(tensorflow.SHARD["w1"]))
    indices = random_indices(setting.data.size.w1)

    def run() -> int:
        for index in indices:
            reader.example(plan, index)
        return len(indices)

    def checked() -> None:
        check_examples(setting.data.columns("w1"), indices, (reader.example(plan, index) for index in indices))

    return Job(run, checked)


def epoch_memory(workload: str) -> Callable[[Setting], Job]:
    """The peak memory, in MB, of a process that decodes a whole shard."""

    def build(setting: Setting) -> Job:
        epoch = decode(workload)(setting)

        def run() -> float:
            epoch.run()
            return peak_memory() / 1e6

        return Job(run)

    return build
