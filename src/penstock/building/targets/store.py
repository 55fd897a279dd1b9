"""A folder of a store, as the target of a build.

A shard is written on this machine, sent, and removed here. An object is visible under its name when it is whole, so
shards get their names at once; no manifest refers to them before all are sent. The manifest is created last, and only
if none exists. Where a shard replaces one of the existing dataset, the manifest of that dataset is deleted first.

Workers on other machines send their shards themselves. Only the driver writes the journal and the manifest.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from ...dataset.manifest import (
    ATTEMPT,
    HASHES_SUFFIX,
    MANIFEST,
    WORK,
    Manifest,
    hashes_path,
    in_format,
    manifest_bytes,
    read_manifest,
    shard_files,
)
from ...dataset.open import Opened, open_manifest, read_remote_manifest
from ...dataset.tfds import INFO, metadata_files
from ...errors import BuildError, CorruptionError, NotFoundError
from ...storage.cache import Cache, cache_home
from ...storage.local import try_lock, unlock
from ...storage.open import open_store
from ...storage.store import join_url, split_url, url_name
from ...thread_pool import ordered_map
from ..commit import committed_manifest
from ..encode import Job, Upload
from ..engines.engine import Advance, Workers
from ..engines.local import Local
from ..entries import Commit, ShardResult
from ..journal import Journal, ObjectLog
from ..plan import Task
from ..spool import Spooled
from ..write import Results, write_natively, write_shard, write_shards
from .directory import Directory

SENDERS = 4  # shards that are sent, or spools that are downloaded, at a time
PREFIX = f"penstock-{ATTEMPT}"  # of the folders of attempts, among a machine's temporary files


class StoreDirectory(Directory):
    """A folder of a store, and a local folder where shards and spools are written."""

    def __init__(self, url: str) -> None:
        self.where = url.rstrip("/")
        self.destination = self.where
        self.published = True
        digest = blake2b(self.where.encode(), digest_size=8).hexdigest()
        self.directory = cache_home() / "builds" / f"{digest}-{url_name(self.where)}"
        self._store, self._name = open_store(self.where)
        self._existing: Manifest | None = None
        self._is_damaged = False
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """Path that names the dataset."""
        return Path("/", split_url(self.where)[1] or url_name(self.where))

    @property
    def sends(self) -> bool:
        """True: a shard gets its name when it is sent."""
        return True

    def open_journal(self) -> Journal:
        """Open the journal of the build, and hold its local lock."""
        log = ObjectLog(self._store, self._name, self.where)
        return Journal(self.directory / WORK, log, sends=True)

    def upload(self, journal: Journal) -> Upload | None:
        """Return where workers on other machines send their shards."""
        return Upload(self.where, journal.first, self._store.entry(self._at(journal.first)).version)

    # What exists

    def existing(self, *, damaged: bool = False) -> Manifest | None:
        """Return the manifest of the existing dataset. A damaged one is an error, or counts as none."""
        self._existing, self._is_damaged = None, False
        try:
            self._existing = read_manifest(self.where)
        except NotFoundError:
            pass
        except CorruptionError:
            if not damaged:
                raise
            self._is_damaged = True
        return self._existing

    def undamaged(self, shards: Mapping[str, ShardResult], workers: Workers) -> tuple[set[str], set[str]]:
        """Return the files that exist with the sizes of their entries. An object is whole, or does not exist."""
        prefix = len(self._at(""))
        sizes = {entry.name[prefix:]: entry.size for entry in self._store.list(self._name)} if shards else {}

        def is_whole(shard: ShardResult) -> bool:
            beside = all(name in sizes for file in shard.files for name in shard_files(file))
            return beside and all(sizes[each.file] == each.bytes for each in shard.formats)

        return set(), {file for file, shard in shards.items() if is_whole(shard)}

    # What a build writes

    def spool(self, workers: Workers, job: Job, tasks: list[Task], advance: Advance) -> Results:
        """Run tasks that write spools. Those of other machines are downloaded: the driver does the rest with them."""
        if not workers.remote:
            return workers.map(write_shard, job, tasks, advance)
        return _moved(workers.map(run_and_send, job, tasks, advance), self._fetch_spool)

    def write(self, workers: Workers, job: Job, tasks: list[Task], advance: Advance) -> Results:
        """Run tasks that write shards. A result comes when its shard is sent.

        Shards that were finished before an error are sent all the same. Spools are on this machine: so are their tasks.
        """
        if not workers.remote:
            return _moved(write_shards(workers, job, tasks, advance), self._send)
        local = [task for task in tasks if isinstance(job.sources[task.split], Spooled)]
        remote = [task for task in tasks if not isinstance(job.sources[task.split], Spooled)]
        files = [in_format(task.file, format.name) for task in tasks for format in job.formats]
        for file in files:
            (self.directory / WORK / file).unlink(missing_ok=True)  # of an earlier build: it is not sent
        self._close_for(files)

        def results() -> Results:
            yield from workers.map(run_and_send, job, remote, advance)
            yield from write_natively(Local(), job, local, advance)

        return _moved(results(), self._send)

    def _send(self, item: tuple[Task, ShardResult]) -> None:
        folder, shard = self.directory / WORK, item[1]
        if (folder / shard.file).exists():  # else a worker on another machine has sent it
            self._close_for(shard.files)
            send_shard(self.where, folder, shard)

    def _close_for(self, files: Iterable[str]) -> None:
        """Close the existing dataset before one of its shards is replaced."""
        with self._lock:
            if self._existing is None:
                return
            existing = {shard.file for shard in self._existing.shards()}
            if not existing.isdisjoint(files):
                self._close()

    def _close(self) -> None:
        self._delete(MANIFEST)
        if self._existing is not None and INFO in metadata_files(self._existing):
            self._delete(INFO)
        self._existing = None

    def _fetch_spool(self, item: tuple[Task, ShardResult]) -> None:
        for name in sent_files(item[1]):
            self._fetch(name, self.directory / name)
            self._delete(name)

    def shard_paths(self, splits: Mapping[str, list[str]], staged: set[str]) -> dict[str, list[Path]]:
        """Return local paths of the shards of each split. Those without hashes on this machine are downloaded."""
        paths = {split: [self.directory / WORK / file for file in files] for split, files in splits.items()}
        for path in (path for files in paths.values() for path in files):
            if not hashes_path(path).exists():
                self._fetch_hashes(path)
        return paths

    def _fetch_hashes(self, path: Path) -> None:
        try:
            hashes_path(path).write_bytes(self._store.read(self._at(f"{WORK}/{path.name}{HASHES_SUFFIX}")))
        except NotFoundError:
            for name in shard_files(path.name):
                self._fetch(name, path.with_name(name))

    def _fetch(self, name: str, path: Path) -> None:
        entry = self._store.entry(self._at(name))
        self._store.fetch(entry.name, path, size=entry.size, version=entry.version)

    def fetch_keys(self, path: Path) -> Path:
        """Return a shard of `shard_paths` whose keys are beside it."""
        name = shard_files(path.name)[-1]
        path.with_name(name).write_bytes(self._store.read(self._at(name)))
        return path

    def publish(self, commit: Commit) -> Manifest:
        """Send the metadata of TFDS, and create the manifest."""
        manifest = committed_manifest(commit, self.where)
        if self.existing(damaged=True) is not None:
            if self._is_published(manifest):
                return manifest  # the commit was interrupted after this
            self._close()
        elif self._is_damaged:
            self._delete(MANIFEST)
        self._publish_metadata(manifest, commit)
        if not self._store.publish(self._at(MANIFEST), manifest_bytes(manifest), exclusive=True):
            self.existing()
            if not self._is_published(manifest):
                got = "a dataset that another build has published meanwhile"
                raise BuildError(f"expected to publish a dataset, got {got} - at {self.where}")
        return manifest

    def _is_published(self, manifest: Manifest) -> bool:
        """Return True if the existing dataset is the same, whenever it was made."""
        return self._existing is not None and replace(self._existing, made=manifest.made) == manifest

    def finish(self) -> None:
        """Remove what the build kept, on this machine and in the store."""
        ObjectLog(self._store, self._name, self.where).clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def opened(self, manifest: Manifest) -> Opened:
        """Open the dataset."""
        try:
            read_from = read_remote_manifest(self.where)[1]
        except NotFoundError:
            read_from = None
        return open_manifest(self.where, manifest, cache=Cache(), told=read_from)


def _moved(results: Results, move: Callable[[tuple[Task, ShardResult]], None]) -> Results:
    """Send or download the files of results, several at a time; a result comes when that is done."""
    with closing(results), closing(ordered_map(move, results, SENDERS, drain=True)) as moves:
        for item, moved in moves:
            moved()
            yield item


def run_and_send(job: Job, task: Task, advance: Advance) -> ShardResult:
    """Run a task on whatever machine this is, and send what it made to the target of the build."""
    assert job.upload is not None
    spool = task.file.startswith(f"{WORK}/")
    with own_folder() as folder:
        (folder / WORK).mkdir()
        directory = folder if spool else folder / WORK
        shard = write_shard(replace(job, directory=directory), task, advance)
        check_under_way(job.upload)
        send_shard(job.upload.url, directory, shard, hashes=not spool)
    return shard


def send_shard(url: str, folder: Path, shard: ShardResult, *, hashes: bool = False) -> None:
    """Send the files of a shard, and remove them here. The shard comes after what stands beside it.

    hashes  send those of its records too: whoever builds is on another machine
    """
    if hashes and hashes_path(folder / shard.file).exists():
        store, name = open_store(join_url(url, f"{WORK}/{shard.file}{HASHES_SUFFIX}"))
        store.send(hashes_path(folder / shard.file), name)
    for file in sent_files(shard):
        store, name = open_store(join_url(url, file))
        store.send(folder / file, name)
        (folder / file).unlink()


def sent_files(shard: ShardResult) -> list[str]:
    """The files of a shard in all formats, each after what stands beside it."""
    return [name for file in shard.files for name in reversed(shard_files(file))]


def check_under_way(target: Upload) -> None:
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
