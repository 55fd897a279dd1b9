"""Ours, loading datasets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contenders.loading import PIXELS, epoch_job
from benchmarks.contenders.penstock import SCHEMA
from benchmarks.data import BATCH, GENERATED, Artifact, Data, check_examples, random_indices
from benchmarks.rows import Job, Setting
from benchmarks.sources import image_folder


def _make(workload: str) -> Callable[[Data, Path], None]:
    def make(data: Data, path: Path) -> None:
        import penstock

        if workload == "w3":
            penstock.build(penstock.image_folder(image_folder(data)), path, order="source")
            return
        columns: dict[str, Any] = dict(data.columns(workload))
        if workload == "w2":
            columns = {"tokens": penstock.Ragged(columns["values"], columns["row_splits"])}
        penstock.build(penstock.table(columns), path, schema=SCHEMA[workload], order="source")

    return make


DATASET = {name: Artifact(f"{name}.penstock", _make(name), (GENERATED[name],)) for name in ("w1", "w2", "w3")}


def load(workload: str, *, shuffle: bool = False) -> Callable[[Setting], Job]:
    """An epoch of batches, the same loader for all epochs."""

    def build(setting: Setting) -> Job:
        import penstock

        stored = "w3" if workload == "w4" else workload
        decode = {"image": penstock.Image(size=PIXELS)} if workload == "w4" else False
        split = penstock.load(setting.data.path(DATASET[stored]), decode=decode)["train"]
        loader = (split.shuffle(seed=7) if shuffle else split).batch(BATCH[stored])
        return epoch_job(setting, workload, lambda: loader)

    return build


def random_reads(setting: Setting) -> Job:
    """Single examples of W1 from a dataset."""
    import penstock

    split = penstock.load(setting.data.path(DATASET["w1"]))["train"]
    indices = random_indices(setting.data.size.w1)

    def run() -> int:
        for index in indices:
            split[index]
        return len(indices)

    return Job(run, lambda: check_examples(setting.data.columns("w1"), indices, (split[i] for i in indices)))
