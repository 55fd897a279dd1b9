"""LitData: optimize, with two workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.contenders.building import READ_BACK, SHARD_BYTES, build_job
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES, Example


def _load_one(workload: str, item: Any) -> Example:
    return next(SOURCES[workload].load(item))


def _read(path: Path) -> tuple[int, Iterable[Example]]:
    from litdata import StreamingDataset

    dataset = StreamingDataset(str(path))
    return len(dataset), (dataset[index] for index in range(min(READ_BACK, len(dataset))))


def build(workload: str, *, share: float = 1) -> Callable[[Setting], Job]:
    """A source into chunks; tensors compressed with zstd, at its default level."""

    def job(setting: Setting) -> Job:
        for name in ("DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER"):
            os.environ[name] = str(setting.scratch / name.lower())
        import pandas  # noqa: F401 - as is pyarrow: LitData imports both late, in every worker
        import pyarrow  # noqa: F401
        from litdata import optimize

        source = SOURCES[workload]

        def write(items: list[Any], path: Path) -> None:
            optimize(
                fn=partial(_load_one, workload) if isinstance(items[0], Path) else source.load,
                inputs=items,
                output_dir=str(path),
                chunk_bytes=SHARD_BYTES,
                compression="zstd" if workload == "w5" else None,
                num_workers=2,
                start_method="fork",
                verbose=False,
            )

        return build_job(setting, workload, write, _read, share)

    return job
