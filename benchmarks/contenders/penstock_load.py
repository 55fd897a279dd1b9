"""Ours, loading datasets."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.contenders.loading import PIXELS, epoch_job
from benchmarks.contenders.penstock import SCHEMA
from benchmarks.contenders.tensorflow import SHARD
from benchmarks.data import BATCH, GENERATED, Artifact, Data, check_examples, random_indices
from benchmarks.machine import peak_memory
from benchmarks.rows import Job, Setting
from benchmarks.sources import image_folder


def _make(workload: str) -> Callable[[Data, Path], None]:
    def make(data: Data, path: Path) -> None:
        import penstock

        if workload in ("w3", "w3-small"):
            resize = penstock.Image(max_side=256) if workload == "w3-small" else None
            penstock.build(penstock.image_folder(image_folder(data), resize=resize), path, order="source")
            return
        columns: dict[str, Any] = dict(data.columns(workload))
        if workload == "w2":
            columns = {"tokens": penstock.Ragged(columns["values"], columns["row_splits"])}
        penstock.build(penstock.table(columns), path, schema=SCHEMA[workload], order="source")

    return make


DATASET = {name: Artifact(f"{name}.penstock", _make(name), (GENERATED[name],)) for name in ("w1", "w2", "w3")}
SMALL = Artifact("w3-small.penstock", _make("w3-small"), (GENERATED["w3"],))  # images resized when they were stored


def load(workload: str, *, shuffle: bool = False, stored: Artifact | None = None) -> Callable[[Setting], Job]:
    """An epoch of batches, the same loader for all epochs."""

    def build(setting: Setting) -> Job:
        import penstock

        decode = {"image": penstock.Image(size=PIXELS)} if workload == "w4" else False
        split = penstock.load(setting.data.path(stored or DATASET[workload]), decode=decode)["train"]
        loader = (split.shuffle(seed=7) if shuffle else split).batch(BATCH.get(workload, BATCH["w3"]))
        return epoch_job(setting, workload, lambda: loader)

    return build


def load_into(framework: str, *, batch: int, epochs: int) -> Callable[[Setting], Job]:
    """Epochs of W1 in one go, large batches in the arrays of a framework: what starting costs it does not count."""

    def build(setting: Setting) -> Job:
        import penstock

        split = penstock.load(setting.data.path(DATASET["w1"]), decode=False)["train"]

        def handed(loader: Any) -> Any:
            return getattr(loader, f"to_{framework}")() if framework else loader

        once, often = handed(split.batch(batch)), handed(split.repeat(epochs).batch(batch))
        job = epoch_job(setting, "w1", lambda: once, _as_numpy)

        def run() -> int:
            for _ in often:
                pass
            return epochs * len(split)

        return Job(run, job.check)

    return build


def _as_numpy(batch: Mapping[str, Any]) -> dict[str, Any]:
    import numpy

    return {name: numpy.asarray(column) for name, column in batch.items()}


def _make_many(data: Data, path: Path) -> None:
    import numpy

    import penstock

    count = MANY * data.size.w1 // 300_000
    penstock.build(penstock.table({"number": numpy.arange(count)}), path, order="source")


MANY = 10_000_000  # records
MANY_RECORDS = Artifact("many.penstock", _make_many)
FIRST = """
import sys, penstock
next(iter(penstock.load(sys.argv[1])["train"].shuffle(seed=7).batch(256)))
"""


def first_batch(setting: Setting) -> Job:
    """The seconds from the start of Python to a shuffled batch of a dataset with many records."""
    command = [sys.executable, "-c", FIRST, str(setting.data.path(MANY_RECORDS))]

    def run() -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True)
        return time.perf_counter() - began

    return Job(run)


def epoch_memory(budget: int, times: int) -> Callable[[Setting], Job]:
    """The peak memory, in MB, of a process that shuffles so many times a budget of data."""

    def build(setting: Setting) -> Job:
        import penstock

        shard = setting.data.path(SHARD["w3"])
        for number in range(-(-budget * times // shard.stat().st_size) if setting.data.size.name == "full" else 3):
            link = setting.scratch / f"{number:03}.tfrecord"
            if not link.exists():
                os.link(shard, link)

        def run() -> float:
            split = penstock.load(f"{setting.scratch}/*.tfrecord", decode=False)["train"]
            for _ in split.shuffle(seed=7).batch(64).prefetch(memory=budget):
                pass
            return peak_memory() / 1e6

        return Job(run)

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
