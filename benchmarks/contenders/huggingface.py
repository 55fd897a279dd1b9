"""Hugging Face datasets: Arrow files, memory-mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.loading import Batch, epoch_job
from benchmarks.data import BATCH, GENERATED, Artifact, Data
from benchmarks.rows import Job, Setting


def _make(workload: str) -> Callable[[Data, Path], None]:
    def make(data: Data, path: Path) -> None:
        import pyarrow
        from datasets import Dataset

        columns = data.columns(workload)
        arrays: dict[str, Any] = {}
        if workload == "w1":
            for name, width in (("cat", 26), ("dense", 13)):
                arrays[name] = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(columns[name].ravel()), width)
        if workload == "w2":
            values, splits = columns["values"], columns["row_splits"]
            arrays["tokens"] = pyarrow.ListArray.from_arrays(splits.astype(np.int32), values)
        if workload == "w3":
            arrays["image"] = pyarrow.array(data.images(), pyarrow.large_binary())
        if "label" in columns:
            arrays["label"] = pyarrow.array(columns["label"])
        Dataset(pyarrow.table(arrays)).save_to_disk(str(path))

    return make


DATASET = {name: Artifact(f"{name}.arrow", _make(name), (GENERATED[name],)) for name in ("w1", "w2", "w3")}


def _arrays(table: Any) -> Batch:
    """NumPy views of Arrow's columns, as far as there are any: faster than the library's own NumPy format."""
    batch: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name in ("cat", "dense"):
            batch[name] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
        elif name == "tokens":
            batch["values"], batch["row_splits"] = column.values.to_numpy(), column.offsets.to_numpy()
        elif name == "image":
            batch["buffers"] = column
        else:
            batch[name] = column.to_numpy()
    return batch


def _columns(batch: Batch) -> Batch:
    if "row_splits" in batch:
        return {"tokens": np.split(batch["values"], batch["row_splits"][1:-1]) if len(batch["row_splits"]) else []}
    if "buffers" in batch:
        return {"image": batch["buffers"].to_pylist(), "label": batch["label"]}
    return batch


def load(workload: str, *, shuffle: bool = False) -> Callable[[Setting], Job]:
    """An epoch of batches; shuffled, through a permutation of all rows that is made for each epoch."""

    def build(setting: Setting) -> Job:
        from datasets import load_from_disk

        dataset: Any = load_from_disk(str(setting.data.path(DATASET[workload]))).with_format("arrow")

        def epoch() -> Iterator[Batch]:
            rows = dataset.shuffle(keep_in_memory=True) if shuffle else dataset
            return map(_arrays, rows.iter(BATCH[workload]))

        return epoch_job(setting, workload, epoch, _columns)

    return build
