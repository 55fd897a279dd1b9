"""Ours, building datasets."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contenders.building import READ_BACK, build_job
from benchmarks.memory import peak_with_children
from benchmarks.rows import Job, Setting
from benchmarks.sources import RADAR, RADAR_SHAPE, SOURCES, Example, image_folder

if TYPE_CHECKING:
    import penstock


@dataclass(frozen=True)
class Files:
    """The files of a workload, listed; each is loaded in the worker that stores it."""

    workload: str
    files: list[Path]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Example:
        return next(SOURCES[self.workload].load(self.files[index]))


def _build(setting: Setting, workload: str, path: Path, engine: penstock.Local) -> penstock.Built:
    """As the pages of our documentation do it."""
    import penstock

    source = SOURCES[workload]
    items = source.items(setting.data)
    if workload == "images":
        return penstock.build(penstock.image_folder(image_folder(setting.data)), path, engine=engine)
    if workload == "csv":
        return penstock.build(penstock.csv(items[0][0]), path, engine=engine)
    if workload == "w1":
        return penstock.build(source.examples(items), path, engine=engine)
    files = Files(workload, items)
    if workload == "thumbnails":  # so small that they would make one shard, and work for one process
        return penstock.build(files, path, shards=8, engine=engine)
    return penstock.build(files, path, schema=radar_schema(), engine=engine)


def radar_schema() -> dict[str, penstock.Field]:
    """The fields of W5."""
    import penstock

    return dict.fromkeys(RADAR, penstock.Field(dtype="float32", shape=RADAR_SHAPE, encoding="zlib"))


def _read(path: Path) -> tuple[int, Iterable[Example]]:
    import penstock
    from penstock.dataset.manifest import read_manifest

    manifest = read_manifest(path)
    codec = penstock.Codec(manifest.schema)
    readers = [penstock.TFRecordReader(path / shard.file) for shards in manifest.splits.values() for shard in shards]
    some = (reader.example(codec, index) for reader in readers for index in range(len(reader)))
    return sum(map(len, readers)), itertools.islice(some, READ_BACK)


def build(workload: str, *, workers: int = 2, sync: bool = True) -> Callable[[Setting], Job]:
    """A source into a dataset, with an index and checksums, in an order that does not depend on that of the source."""

    def job(setting: Setting) -> Job:
        import penstock

        def write(items: list[Any], path: Path) -> None:
            _build(setting, workload, path / "dataset", penstock.Local(workers=workers, sync=sync))

        return build_job(setting, workload, write, lambda path: _read(path / "dataset"))

    return job


def memory(workload: str, budget: int) -> Callable[[Setting], Job]:
    """The peak memory, in MB, of a process and its workers that build within a budget of bytes."""

    def job(setting: Setting) -> Job:
        import penstock

        engine = penstock.Local(workers=2, max_memory=budget)
        path = setting.scratch / "dataset"

        def run() -> float:
            return peak_with_children(lambda: _build(setting, workload, path, engine)) / 1e6

        return Job(run, after=lambda: shutil.rmtree(path))

    return job
