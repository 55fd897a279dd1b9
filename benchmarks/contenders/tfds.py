"""TensorFlow Datasets: a dataset that its own builder prepared as ArrayRecord, read through its data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import GENERATED, Artifact, Data, check_examples, examples, random_indices
from benchmarks.rows import Job, Setting


def _make_w1(data: Data, path: Path) -> None:
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict(
        {
            "cat": tfds.features.Tensor(shape=(26,), dtype=np.int64),
            "dense": tfds.features.Tensor(shape=(13,), dtype=np.float32),
            "label": tfds.features.Scalar(dtype=np.int64),
        }
    )
    tfds.dataset_builders.store_as_tfds_dataset(
        name="w1",
        version="1.0.0",
        features=features,
        split_datasets={"train": enumerate(examples(data.columns("w1")))},
        data_dir=str(path),
        file_format="array_record",
        disable_shuffling=True,
    )


W1 = Artifact("w1.tfds", _make_w1, (GENERATED["w1"],))


def random_reads(setting: Setting) -> Job:
    """Single decoded examples of W1."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(setting.data.path(W1) / "w1" / "1.0.0"))
    source: Any = builder.as_data_source("train")
    indices = random_indices(setting.data.size.w1)[:500]

    def run() -> int:
        for index in indices:
            source[index]
        return len(indices)

    return Job(
        run,
        lambda: check_examples(setting.data.columns("w1"), indices, (source[index] for index in indices)),
    )
