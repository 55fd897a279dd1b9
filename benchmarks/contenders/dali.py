"""NVIDIA DALI, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.contenders.loading import PIXELS, Batch, epoch_job
from benchmarks.data import BATCH
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES


def load_images(setting: Setting) -> Job:
    """An epoch of W4: the files themselves, decoded by libjpeg-turbo and resized, batch after batch."""
    from nvidia.dali import fn, pipeline_def, types

    files = SOURCES["images"].items(setting.data)
    labels = [int(file.parent.name.removeprefix("class_")) for file in files]

    @pipeline_def(batch_size=BATCH["w3"], num_threads=setting.threads, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        encoded, label = fn.readers.file(files=list(map(str, files)), labels=labels, name="files")
        pixels = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        return fn.resize(pixels, size=PIXELS, interp_type=types.INTERP_LINEAR, antialias=False), label

    running = pipeline()
    running.build()

    def epoch() -> Iterator[tuple[Any, Any]]:
        """The pipeline begins the next epoch by itself; the last batch is filled up from it."""
        for _ in range(0, len(files), BATCH["w3"]):
            yield running.run()

    taken = 0

    def columns(batch: tuple[Any, Any]) -> Batch:
        nonlocal taken
        count = min(BATCH["w3"], len(files) - taken)
        taken += count
        return {"image": np.asarray(batch[0].as_array())[:count], "label": np.asarray(batch[1].as_array())[:count, 0]}

    proof = epoch_job(setting, "w4", epoch, columns)
    return Job(lambda: sum(BATCH["w3"] for _ in epoch()), proof.check)  # what fills up the last batch counts, too
