"""Where shards are few, a worker would wait for another: their examples are loaded in pieces then, by all workers.

The records of a piece wait in a file; when all of a shard's are there, a worker appends them to each other. So bytes do
not depend on how the work was cut, and a shard still is all or nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..errors import BuildError
from ..records.tfrecord import TFRecordReader, TFRecordWriter
from ..sources.protocol import takes_many
from ..thread_pool import ahead
from .attempts import run_tasks
from .encode import Job, Outcome
from .engines.engine import Workers
from .engines.local import Local, Progress
from .inputs import hands_on_records
from .spool import Spooled
from .write import Loaded, Task, conclude, load, run, shard_writer

PIECES = 16  # of work for each worker, or more: the last one is not waited for long
FEWEST = 8  # examples in a piece


@dataclass(frozen=True)
class Piece:
    """Some examples of a shard."""

    task: Task
    number: int

    def __str__(self) -> str:
        return str(self.task)

    def path(self, job: Job) -> Path:
        """Where its records wait: under a name that the next build removes."""
        return job.directory / f"{self.task.file}.{self.number:05}.partial"


@dataclass(frozen=True)
class Join:
    """A shard whose pieces are all there."""

    file: str
    pieces: list[tuple[Piece, Loaded]]

    def __str__(self) -> str:
        return self.file


def write_shards(
    workers: Workers, job: Job, tasks: list[Task], progress: Progress
) -> Generator[tuple[Task, Outcome], None, None]:
    """Run tasks; where they are few, in pieces. Outcomes come as they are ready.

    What the core loads by itself needs no other process: those tasks run here, on threads. Elsewhere, a task is whole.
    Where machines have nothing in common but a store, those of spools run here too: here they are.
    """
    if workers.apart:
        stay = {split for split, source in job.sources.items() if job.target and isinstance(source, Spooled)}
        yield from run_tasks(workers, job, [task for task in tasks if task.split not in stay], progress)
        yield from write_natively(Local(), job, [task for task in tasks if task.split in stay], progress)
        return
    engine = workers.here
    native = {split for split, source in job.sources.items() if hands_on_records(source) or takes_many(source)}
    yield from write_natively(engine, job, [task for task in tasks if task.split in native], progress)
    tasks = [task for task in tasks if task.split not in native]
    count = -(-PIECES * engine.processes // max(1, len(tasks)))
    items: deque[Task | Piece | Join] = deque()
    shards: dict[str, tuple[Task, dict[int, tuple[Piece, Loaded] | None]]] = {}
    for task in tasks:
        pieces = [] if engine.processes == 1 else cut(task, count)
        shards[task.file] = task, dict.fromkeys(range(len(pieces)))
        items.extend(pieces if len(pieces) > 1 else [task])
    with closing(engine.map(perform, job, items, progress)) as results:
        for item, result in results:
            if isinstance(result, Outcome):
                yield shards[result.file][0], result
            elif isinstance(item, Piece):
                done = shards[item.task.file][1]
                done[item.number] = item, result
                whole = [each for each in done.values() if each is not None]
                if len(whole) == len(done):
                    items.appendleft(Join(item.task.file, whole))


def write_natively(
    engine: Local, job: Job, tasks: list[Task], progress: Progress
) -> Generator[tuple[Task, Outcome], None, None]:
    """Run tasks on threads: as many at once as there are workers; all of them work together on what is left over.

    The first error stops the other tasks too.
    """
    stopped = threading.Event()
    alone = threading.Lock()
    failed: list[BaseException] = []

    def told(examples: int, size: int) -> None:
        with alone:
            if stopped.is_set():
                raise failed[0] if failed else BuildError("stopped")  # nobody waits for it any more
            progress(examples, size)

    def attempt(task: Task) -> Outcome:
        try:
            return run(job, task, told)
        except BaseException as error:
            failed.append(error)
            stopped.set()
            raise

    left_over = len(tasks) % engine.processes
    together, rest = tasks[: len(tasks) - left_over], tasks[len(tasks) - left_over :]
    with closing(ahead(attempt, together, engine.processes, stopped.set)) as results:
        for task, outcome in results:
            yield task, outcome()
    for task in rest:
        yield task, run(job, task, progress, engine.processes)


def cut(task: Task, count: int) -> list[Piece]:
    """The examples of a task in at most `count` pieces."""
    ends = np.linspace(0, len(task.rows), max(1, min(count, len(task.rows) // FEWEST)) + 1).astype(int).tolist()
    spans = enumerate(pairwise(ends))
    return [Piece(Task(task.split, task.file, task.rows[a:b], task.keys[a:b]), number) for number, (a, b) in spans]


def perform(job: Job, item: Task | Piece | Join, progress: Progress) -> Outcome | Loaded:
    """A task, a piece of one, or the end of one."""
    if isinstance(item, Task):
        return run(job, item, progress)
    if isinstance(item, Join):
        return join(job, item)
    with TFRecordWriter(item.path(job), threads=1) as writer:
        return load(job, item.task, writer, progress)


def join(job: Job, whole: Join) -> Outcome:
    """Make a shard of its pieces."""
    paths = [piece.path(job) for piece, _ in whole.pieces]
    with shard_writer(job, whole.file) as writer:
        for path in paths:
            reader = TFRecordReader(path, index=False)
            size = path.stat().st_size // max(1, len(reader))
            step = max(1, job.chunk_bytes // (1 + size))
            for first in range(0, len(reader), step):
                writer.write_records(reader[first : first + step])
    outcome = conclude(job, whole.file, writer, [loaded for _, loaded in whole.pieces])
    for path in paths:
        path.unlink()
    return outcome
