"""TensorFlow Datasets: its builder, and a dataset that it prepared as ArrayRecord, read through its data source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.building import READ_BACK, build_job
from benchmarks.data import GENERATED, IMAGE_CLASSES, Artifact, Data, check_examples, examples, random_indices
from benchmarks.rows import Job, Setting
from benchmarks.sources import CSV_FLOATS, CSV_INTEGERS, CSV_TEXTS, RADAR, RADAR_SHAPE, SOURCES, Example


def _features(workload: str) -> Any:
    from tensorflow_datasets import features

    if workload == "images":
        return features.FeaturesDict(
            {"image": features.Image(encoding_format="jpeg"), "label": features.ClassLabel(num_classes=IMAGE_CLASSES)}
        )
    if workload == "csv":
        return features.FeaturesDict(
            {
                **{f"n{i}": features.Scalar(np.int64) for i in range(CSV_INTEGERS)},
                **{f"x{i}": features.Scalar(np.float32) for i in range(CSV_FLOATS)},
                **{f"t{i}": features.Text() for i in range(CSV_TEXTS)},
            }
        )
    if workload == "w5":
        tensor = features.Tensor(shape=RADAR_SHAPE, dtype=np.float32, encoding="zlib")
        return features.FeaturesDict(dict.fromkeys(RADAR, tensor))
    if workload == "tornet":
        from penstock.recipes import tornet

        return features.FeaturesDict(
            {
                field.name: features.Tensor(shape=field.shape, dtype=np.dtype(field.dtype), encoding=field.encoding)
                for field in tornet.SCHEMA.leaves()
            }
        )
    return features.FeaturesDict(
        {
            "cat": features.Tensor(shape=(26,), dtype=np.int64),
            "dense": features.Tensor(shape=(13,), dtype=np.float32),
            "label": features.Scalar(np.int64),
        }
    )


def _store(workload: str, examples: Iterable[Any], path: Path, file_format: str) -> None:
    """In the order in which the examples come: to shuffle them takes longer."""
    import tensorflow_datasets as tfds

    tfds.dataset_builders.store_as_tfds_dataset(
        name=workload,
        version="1.0.0",
        features=_features(workload),
        split_datasets={"train": enumerate(examples)},
        data_dir=str(path),
        file_format=file_format,
        disable_shuffling=True,
    )


def _read(workload: str, path: Path) -> tuple[int, Iterable[Example]]:
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(path / workload / "1.0.0"))
    if builder.info.file_format is tfds.core.FileFormat.ARRAY_RECORD:
        source: Any = builder.as_data_source("train")
        return len(source), (source[index] for index in range(min(READ_BACK, len(source))))
    skip = {"image": tfds.decode.SkipDecoding()} if workload == "images" else None
    dataset = builder.as_dataset(split="train", decoders=skip)
    some = itertools.islice(tfds.as_numpy(dataset), READ_BACK)
    return sum(1 for _ in dataset), some


def build(workload: str, *, share: float = 1, file_format: str = "tfrecord") -> Callable[[Setting], Job]:
    """A source into TFDS's files, in one process: it knows no other way on one machine."""

    def job(setting: Setting) -> Job:
        import tensorflow_datasets  # noqa: F401 - not part of what is timed

        def write(items: list[Any], path: Path) -> None:
            _store(workload, SOURCES[workload].examples(items), path, file_format)

        return build_job(setting, workload, write, lambda path: _read(workload, path), share)

    return job


def _make_w1(data: Data, path: Path) -> None:
    _store("w1", examples(data.columns("w1")), path, "array_record")


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
