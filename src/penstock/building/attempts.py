"""Tasks on machines that may lose touch: one that nobody hears of is given to another, and both may finish it.

So each attempt writes under names of its own. The process that builds gives the files of the one that came home the
names of the task; nobody else writes to those. What other attempts leave is swept with the rest of the build. Where
shards go to a store, an attempt has a folder of its own, and sends its files to their names at once: see `sending`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from ..dataset.manifest import ATTEMPT, hashes_path, shard_files
from .encode import Job, Outcome
from .engines.engine import Workers
from .engines.local import Progress
from .write import Task, run


def run_tasks(
    workers: Workers, job: Job, tasks: list[Task], progress: Progress
) -> Generator[tuple[Task, Outcome], None, None]:
    """Run tasks, each as a whole. Outcomes come as they are ready."""
    if workers.apart and job.target is not None:
        from .targets.store import run_and_send  # builds into directories need no stores

        yield from workers.map(run_and_send, job, tasks, progress)
        return
    if workers.apart:
        job = replace(job, directory=job.directory.absolute())
    with closing(workers.map(attempt if workers.apart else run, job, tasks, progress)) as results:
        for task, outcome in results:
            yield task, adopt(job.directory, outcome) if workers.apart else outcome


def attempt(job: Job, task: Task, progress: Progress) -> Outcome:
    """Run a task under names that no other attempt has."""
    folder, _, name = task.file.rpartition("/")
    apart = f"{ATTEMPT}{secrets.token_hex(8)}-{name}"
    return run(job, replace(task, file=f"{folder}/{apart}" if folder else apart), progress)


def adopt(directory: Path, outcome: Outcome) -> Outcome:
    """Give the files of an attempt the names of its task."""
    for file in outcome.files:
        for name in shard_files(file):
            os.replace(directory / name, directory / named(name))
    hashes = hashes_path(directory / outcome.file)
    with suppress(FileNotFoundError):
        os.replace(hashes, hashes.with_name(named(hashes.name)))
    alternatives = [{**other, "file": named(other["file"])} for other in outcome.alternatives]
    return replace(outcome, file=named(outcome.file), alternatives=alternatives)


def named(file: str) -> str:
    """The name of a task's file, from that of an attempt."""
    folder, slash, name = file.rpartition("/")
    return folder + slash + name.split("-", 2)[2]
