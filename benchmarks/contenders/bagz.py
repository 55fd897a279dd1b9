"""bagz: fixed-width rows, read as NumPy views. It stores no schema and checks nothing, so it is a floor on cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.loading import epoch_job
from benchmarks.data import BATCH, GENERATED, Array, Artifact, Columns, Data, check_examples, random_indices
from benchmarks.rows import Job, Setting

INT64, FLOAT32 = np.dtype("<i8"), np.dtype("<f4")
ROW = np.dtype([("cat", INT64, 26), ("label", INT64), ("dense", FLOAT32, 13)])


def rows_of(data: Data) -> Array:
    """W1 as rows of bytes: cat (208 bytes), label (8), dense (52), so that every view is aligned."""
    columns = data.columns("w1")
    count = len(columns["label"])
    parts = [columns[name].reshape(count, -1).view(np.uint8) for name in ("cat", "label", "dense")]
    return np.concatenate(parts, axis=1)


def row_of(record: bytes) -> dict[str, Any]:
    """The views of one row."""
    view = np.frombuffer
    return {
        "cat": view(record, INT64, 26),
        "dense": view(record, FLOAT32, 13, 216),
        "label": view(record, INT64, 1, 208)[0],
    }


def _write(path: Path, records: Iterable[bytes]) -> None:
    import bagz

    options = bagz.Writer.Options(compression=bagz.CompressionNone())
    with bagz.Writer(str(path), options) as writer:
        for record in records:
            writer.write(record)


def _make_w1(data: Data, path: Path) -> None:
    _write(path, (row.tobytes() for row in rows_of(data)))


def _make_w3(data: Data, path: Path) -> None:
    """The label in eight bytes, then the file."""
    labels = data.columns("w3")["label"]
    _write(path, (label.tobytes() + file for label, file in zip(labels, data.images(), strict=True)))


W1 = Artifact("w1.bag", _make_w1, (GENERATED["w1"],))
W3 = Artifact("w3.bag", _make_w3, (GENERATED["w3"],))


def _open(path: Path) -> Any:
    import bagz

    options = bagz.Reader.Options(
        compression=bagz.CompressionNone(),
        limits_storage=bagz.LimitsStorage.IN_MEMORY,
    )
    return bagz.Reader(str(path), options)


def load_w1(*, shuffle: bool = False) -> Callable[[Setting], Job]:
    """An epoch of W1: many rows in one call, joined, and three views of the whole."""

    def build(setting: Setting) -> Job:
        reader = _open(setting.data.path(W1))
        count, step = setting.data.size.w1, BATCH["w1"]
        random = np.random.default_rng(7)

        def epoch() -> Iterator[Columns]:
            order = random.permutation(count) if shuffle else None
            for start in range(0, count, step):
                if order is None:
                    records = reader.read_range(start, min(step, count - start))
                else:
                    records = reader.read_indices(order[start : start + step].tolist())
                rows = np.frombuffer(b"".join(records), ROW)
                yield {name: rows[name] for name in ("cat", "dense", "label")}

        return epoch_job(setting, "w1", epoch)

    return build


def load_w3(setting: Setting) -> Job:
    """An epoch of W3: the files of a batch as bytes, and its labels."""
    reader = _open(setting.data.path(W3))
    count, step = setting.data.size.w3, BATCH["w3"]

    def epoch() -> Iterator[dict[str, Any]]:
        for start in range(0, count, step):
            records = reader.read_range(start, min(step, count - start))
            labels = np.frombuffer(b"".join(record[:8] for record in records), INT64)
            yield {"image": [memoryview(record)[8:] for record in records], "label": labels}

    def columns(batch: dict[str, Any]) -> dict[str, Any]:
        return {"image": list(map(bytes, batch["image"])), "label": batch["label"]}

    return epoch_job(setting, "w3", epoch, columns)


def random_reads(setting: Setting) -> Job:
    """Single examples of W1: a dict of three views."""
    reader = _open(setting.data.path(W1))
    indices = random_indices(setting.data.size.w1)

    def read(index: int) -> dict[str, Any]:
        return row_of(reader[index])

    def run() -> int:
        for index in indices:
            read(index)
        return len(indices)

    return Job(run, lambda: check_examples(setting.data.columns("w1"), indices, map(read, indices)))
