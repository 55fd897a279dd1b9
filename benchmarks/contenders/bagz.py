"""bagz: fixed-width rows, read as NumPy views. It stores no schema and checks nothing, so it is a floor on cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import GENERATED, Artifact, Data, check_examples, random_indices
from benchmarks.rows import Job, Setting

INT64, FLOAT32 = np.dtype("<i8"), np.dtype("<f4")


def _make_w1(data: Data, path: Path) -> None:
    """Each record is cat (208 bytes), label (8), dense (52): every view is aligned."""
    import bagz

    columns = data.columns("w1")
    count = len(columns["label"])
    parts = [columns[name].reshape(count, -1).view(np.uint8) for name in ("cat", "label", "dense")]
    options = bagz.Writer.Options(compression=bagz.CompressionNone())
    with bagz.Writer(str(path), options) as writer:
        for row in np.concatenate(parts, axis=1):
            writer.write(row.tobytes())


W1 = Artifact("w1.bag", _make_w1, (GENERATED["w1"],))


def random_reads(setting: Setting) -> Job:
    """Single examples of W1: a dict of three views."""
    import bagz

    options = bagz.Reader.Options(
        compression=bagz.CompressionNone(),
        limits_storage=bagz.LimitsStorage.IN_MEMORY,
    )
    reader = bagz.Reader(str(setting.data.path(W1)), options)
    indices = random_indices(setting.data.size.w1)
    view = np.frombuffer

    def read(index: int) -> dict[str, Any]:
        row = reader[index]
        return {
            "cat": view(row, INT64, 26),
            "dense": view(row, FLOAT32, 13, 216),
            "label": view(row, INT64, 1, 208)[0],
        }

    def run() -> int:
        for index in indices:
            read(index)
        return len(indices)

    return Job(run, lambda: check_examples(setting.data.columns("w1"), indices, map(read, indices)))
