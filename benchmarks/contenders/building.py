"""What the builders have in common: a folder to write into, processes to share the items among, and a proof."""

from __future__ import annotations

import atexit
import itertools
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES, Example, check_built

SHARD_BYTES = 128 << 20  # of every contender that can be told
READ_BACK = 50  # examples
REST = 1.0  # seconds for the disk between two builds

Build = Callable[[list[Any], Path], object]  # items, into a folder
Write = Callable[[str, Iterator[Example], Path], object]  # a workload's examples, into a path that does not exist yet
Read = Callable[[Path], tuple[int, Iterable[Mapping[str, Any]]]]  # how many examples there are, and some of them


def build_job(
    setting: Setting, workload: str, build: Build, read: Read, share: float = 1, *, sync: bool = False
) -> Job:
    """A job that builds a share of a source into a new folder, proves what it built once, and removes it each time.

    With sync=True it ends when the files are on the disk: for those whose build does not wait for that itself.
    """
    source = SOURCES[workload]
    path = setting.scratch / "built"

    def run() -> int:
        path.mkdir()
        items = source.part(setting.data, share)
        build(items, path)
        if sync:
            _sync_files(path)
        return source.count(items)

    def after() -> None:
        shutil.rmtree(path)
        os.sync()  # or who waits for the disk would wait for what others have left to it,
        time.sleep(REST)  # and for the disk to get over it

    def checked() -> None:
        run()
        check_built(source.examples(source.part(setting.data, share)), *read(path))
        after()

    return Job(run, checked, after)


def _sync_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())


@dataclass(frozen=True)
class Part:
    """What one process writes."""

    workload: str
    items: list[Any]
    path: Path
    write: Write

    def run(self) -> None:
        self.write(self.workload, SOURCES[self.workload].examples(self.items), self.path)


def in_processes(workload: str, processes: int, write: Write) -> Build:
    """Builds with a pool of processes, each with its part of the items and a path of its own; with one, in this.

    The pool is started at once, so that nobody waits for it when it is timed.
    """
    if processes == 1:
        return lambda items, path: Part(workload, items, path / "0", write).run()
    pool = multiprocessing.get_context("fork").Pool(processes)
    atexit.register(pool.terminate)

    def build(items: list[Any], path: Path) -> None:
        cuts = [len(items) * number // processes for number in range(processes + 1)]
        parts = [items[start:stop] for start, stop in itertools.pairwise(cuts) if stop > start]
        tasks = [Part(workload, part, path / str(number), write) for number, part in enumerate(parts)]
        pool.map(Part.run, tasks, chunksize=1)

    return build
