"""LitData: optimize, with two workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.contenders.building import READ_BACK, SHARD_BYTES, build_job
from benchmarks.contenders.loading import SLOW, epoch_job, numpy_columns
from benchmarks.data import BATCH, GENERATED, Artifact, Data
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES, Example


def _load_one(workload: str, item: Any) -> Example:
    return next(SOURCES[workload].load(item))


def _read(path: Path) -> tuple[int, Iterable[Example]]:
    from litdata import StreamingDataset

    dataset = StreamingDataset(str(path))
    return len(dataset), (dataset[index] for index in range(min(READ_BACK, len(dataset))))


def _optimize(workload: str, items: list[Any], path: Path, scratch: Path) -> None:
    """Items into chunks; tensors compressed with zstd, at its default level."""
    for name in ("DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER"):
        os.environ[name] = str(scratch / name.lower())
    from litdata import optimize

    optimize(
        fn=partial(_load_one, workload) if isinstance(items[0], Path) else SOURCES[workload].load,
        inputs=items,
        output_dir=str(path),
        chunk_bytes=SHARD_BYTES,
        compression="zstd" if workload == "w5" else None,
        num_workers=2,
        start_method="fork",
        verbose=False,
    )


def build(workload: str, *, share: float = 1) -> Callable[[Setting], Job]:
    """A source into chunks."""

    def job(setting: Setting) -> Job:
        import litdata  # noqa: F401 - its workers, which are forked, begin with it
        import pandas  # noqa: F401 - as is pyarrow: LitData imports both late, in every worker
        import pyarrow  # noqa: F401

        def write(items: list[Any], path: Path) -> None:
            _optimize(workload, items, path, setting.scratch)

        return build_job(setting, workload, write, _read, share)

    return job


def _make_w1(data: Data, path: Path) -> None:
    path.mkdir()
    with TemporaryDirectory(dir=data.cache) as scratch:
        _optimize("w1", SOURCES["w1"].part(data, SLOW), path, Path(scratch))


W1 = Artifact("w1-part.litdata", _make_w1, (GENERATED["w1"],))


def load(*, shuffle: bool = False) -> Callable[[Setting], Job]:
    """An epoch of a part of W1, through LitData's loader with two workers that live on."""

    def build(setting: Setting) -> Job:
        from litdata import StreamingDataLoader, StreamingDataset

        dataset = StreamingDataset(str(setting.data.path(W1)), shuffle=shuffle, drop_last=False)
        loader: Any = StreamingDataLoader(
            dataset, batch_size=BATCH["w1"], num_workers=setting.threads, persistent_workers=True
        )
        return epoch_job(setting, "w1", lambda: loader, numpy_columns, SLOW)

    return build
