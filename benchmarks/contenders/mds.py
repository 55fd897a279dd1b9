"""MDS, the format of MosaicML Streaming: MDSWriter, and its merge_index when several processes write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.contenders.building import READ_BACK, SHARD_BYTES, build_job, in_processes
from benchmarks.contenders.loading import SLOW, epoch_job, numpy_columns
from benchmarks.data import BATCH, GENERATED, Artifact, Data
from benchmarks.rows import Job, Setting
from benchmarks.sources import CSV_FLOATS, CSV_INTEGERS, CSV_TEXTS, RADAR, RADAR_SHAPE, SOURCES, Example

TENSOR = f"ndarray:float32:{','.join(map(str, RADAR_SHAPE))}"
COLUMNS = {
    "images": {"image": "bytes", "label": "int"},
    "csv": {
        **{f"n{i}": "int" for i in range(CSV_INTEGERS)},
        **{f"x{i}": "float32" for i in range(CSV_FLOATS)},
        **{f"t{i}": "str" for i in range(CSV_TEXTS)},
    },
    "w1": {"cat": "ndarray:int64:26", "dense": "ndarray:float32:13", "label": "int"},
    "w5": dict.fromkeys(RADAR, TENSOR),
}


def _write(workload: str, examples: Iterator[Example], path: Path, compression: str | None = None) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(path), columns=COLUMNS[workload], compression=compression, size_limit=SHARD_BYTES) as writer:
        for example in examples:
            writer.write(example)


def _read(path: Path) -> tuple[int, Iterable[Example]]:
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=str(path), batch_size=1)
    return len(dataset), (dataset[index] for index in range(min(READ_BACK, len(dataset))))


def build(
    workload: str, *, share: float = 1, processes: int = 2, compression: str | None = None
) -> Callable[[Setting], Job]:
    """A source into MDS shards, compressed at the default level of whatever compresses them."""

    def job(setting: Setting) -> Job:
        from streaming.base.util import merge_index

        write = in_processes(workload, processes, partial(_write, compression=compression))

        def merged(items: list[Any], path: Path) -> None:
            write(items, path)
            merge_index(str(path))

        return build_job(setting, workload, merged, _read, share)

    return job


def _make_w1(data: Data, path: Path) -> None:
    source = SOURCES["w1"]
    _write("w1", source.examples(source.part(data, SLOW)), path)


W1 = Artifact("w1-part.mds", _make_w1, (GENERATED["w1"],))


def load(*, shuffle: bool = False) -> Callable[[Setting], Job]:
    """An epoch of a part of W1, through torch's DataLoader with two workers that live on."""

    def build(setting: Setting) -> Job:
        from streaming import StreamingDataset
        from torch.utils.data import DataLoader

        size = BATCH["w1"]
        dataset = StreamingDataset(
            local=str(setting.data.path(W1)), batch_size=size, shuffle=shuffle, num_canonical_nodes=1
        )
        loader: Any = DataLoader(dataset, batch_size=size, num_workers=setting.threads, persistent_workers=True)
        return epoch_job(setting, "w1", lambda: loader, numpy_columns, SLOW)

    return build
