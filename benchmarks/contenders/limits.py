"""What the machine itself can do: copy memory, read a file that is in the page cache, write one, copy many."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.contenders import tensorflow
from benchmarks.contenders.loading import epoch_job
from benchmarks.data import BATCH, GENERATED, Columns
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES

CHUNK = 8 << 20


def copy_memory(threads: int) -> Callable[[Setting], Job]:
    """Copies of 128 MB between two buffers, each thread with its own part. NumPy releases the GIL while it copies."""

    def build(setting: Setting) -> Job:
        source = np.ones(128 << 20, np.uint8)
        target = np.zeros_like(source)
        parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
        pool = ThreadPoolExecutor(threads)

        def copy(part: int) -> None:
            np.copyto(parts[part][1], parts[part][0])

        def run() -> float:
            list(pool.map(copy, range(threads)))
            return source.nbytes / 1e9

        return Job(run)

    return build


def read_cached(threads: int) -> Callable[[Setting], Job]:
    """Reads W3's shard into buffers that are used again, chunk by chunk."""

    def build(setting: Setting) -> Job:
        file = os.open(setting.data.path(tensorflow.SHARD["w3"]), os.O_RDONLY)
        size = os.fstat(file).st_size
        bounds = np.linspace(0, size, threads + 1, dtype=np.int64).tolist()
        buffers = [memoryview(bytearray(CHUNK)) for _ in range(threads)]
        pool = ThreadPoolExecutor(threads)

        def read(part: int) -> None:
            position, stop = bounds[part], bounds[part + 1]
            while position < stop:
                position += os.preadv(file, [buffers[part][: stop - position]], position)

        def run() -> float:
            list(pool.map(read, range(threads)))
            return size / 1e9

        return Job(run)

    return build


def write_new_file(setting: Setting) -> Job:
    """Writes W3's bytes into a new file, without waiting for the disk."""
    source = setting.data.columns("w3")["values"].data
    path = setting.scratch / "new"

    def run() -> float:
        with path.open("wb", buffering=0) as file:
            for start in range(0, len(source), CHUNK):
                file.write(source[start : start + CHUNK])
        return len(source) / 1e9

    return Job(run, after=path.unlink)


def copy_files(setting: Setting) -> Job:
    """Copies the files of W3 one by one into a new folder; the system does it without a buffer of ours."""
    files = SOURCES["images"].items(setting.data)
    path = setting.scratch / "copied"

    def run() -> int:
        path.mkdir()
        for file in files:
            shutil.copyfile(file, path / file.name)
        return len(files)

    return Job(run, after=lambda: shutil.rmtree(path))


def memory_map(*, shuffle: bool = False) -> Callable[[Setting], Job]:
    """An epoch of W1 from NumPy files that are mapped into memory: a copy of each batch, and nothing else."""

    def build(setting: Setting) -> Job:
        folder = setting.data.path(GENERATED["w1"])
        columns = {name: np.asarray(np.load(folder / f"{name}.npy", "r")) for name in ("cat", "dense", "label")}
        count, step = setting.data.size.w1, BATCH["w1"]
        random = np.random.default_rng(7)

        def epoch() -> Iterator[Columns]:
            order = random.permutation(count) if shuffle else None
            for start in range(0, count, step):
                if order is None:
                    yield {name: column[start : start + step].copy() for name, column in columns.items()}
                else:
                    rows = order[start : start + step]
                    yield {name: column[rows] for name, column in columns.items()}

        return epoch_job(setting, "w1", epoch)

    return build
