"""What a machine does whose shards go to a store: it writes them in a folder of its own, sends them, and removes them.

Attempts at a task on several machines make the same bytes, so whoever comes last does no harm while the build is under
way. One that comes when it is over, for it had lost touch, sends nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ..errors import BuildError, NotFoundError
from ..manifest import ATTEMPT, HASHES_SUFFIX, WORK, hashes_path, shard_files
from ..storage import join_url, open_store
from ..storage.locks import try_lock, unlock
from .encoder import Job, Outcome, Target
from .task import Task, run
from .workers import Progress

PREFIX = f"penstock-{ATTEMPT}"  # of the folders of attempts, among a machine's temporary files


def run_and_send(job: Job, task: Task, progress: Progress) -> Outcome:
    """Run a task on whatever machine this is, and send what it made to the target of the build."""
    assert job.target is not None
    spool = task.file.startswith(f"{WORK}/")
    with own_folder() as folder:
        (folder / WORK).mkdir()
        directory = folder if spool else folder / WORK
        outcome = run(replace(job, directory=directory), task, progress)
        check_under_way(job.target)
        send_shard(job.target.url, directory, outcome, hashes=not spool)
    return outcome


def send_shard(url: str, folder: Path, outcome: Outcome, *, hashes: bool = False) -> None:
    """Send the files of a shard, and remove them here. The shard comes after what stands beside it.

    hashes  send those of its records too: whoever builds is on another machine
    """
    if hashes and hashes_path(folder / outcome.file).exists():
        store, name = open_store(join_url(url, f"{WORK}/{outcome.file}{HASHES_SUFFIX}"))
        store.send(hashes_path(folder / outcome.file), name)
    for file in sent_files(outcome):
        store, name = open_store(join_url(url, file))
        store.send(folder / file, name)
        (folder / file).unlink()


def sent_files(outcome: Outcome) -> list[str]:
    """The files of a shard in all formats, each after what stands beside it."""
    return [name for file in outcome.files for name in reversed(shard_files(file))]


def check_under_way(target: Target) -> None:
    """Make sure that the build is still the one that the task is of."""
    store, name = open_store(join_url(target.url, target.begun))
    try:
        if store.entry(name).version == target.version:
            return
    except NotFoundError:
        pass
    got = "one that has ended, or was begun anew"
    raise BuildError(f"expected to send a shard to a build that is under way, got {got} - at {target.url}")


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that nobody else has, gone afterwards. What killed processes have left of theirs goes first."""
    sweep_folders()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = try_lock(folder / "lock")
        if lock is not None:
            break
    process = os.getpid()
    try:
        yield folder
    finally:
        if process == os.getpid():  # a fork leaves it to the process that made it
            shutil.rmtree(folder, ignore_errors=True)
            unlock(lock)


def sweep_folders() -> None:
    """Remove the folders whose processes have ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with suppress(OSError):  # someone else's, or gone meanwhile
            lock = try_lock(path)
            if lock is not None:
                shutil.rmtree(path.parent, ignore_errors=True)
                unlock(lock)
