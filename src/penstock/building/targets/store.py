"""A dataset that is built into a store.

A shard is written on this machine, sent, and removed here. An object is seen under its name when it is whole, so shards
get their names at once; no manifest speaks of them before all are there. It is created last, and only if none stands.
Where a shard takes the place of one of the dataset before, the manifest of that goes first.

  s3://bucket/data/photos/.build/00000017-shard.json        the journal: an object for each line

Workers of other machines send their shards themselves: see `sending`. Only the process that builds writes the journal
and the manifest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...dataset.manifest import (
    ATTEMPT,
    HASHES_SUFFIX,
    MANIFEST,
    WORK,
    Manifest,
    hashes_path,
    manifest_bytes,
    shard_files,
)
from ...dataset.open import Opened, open_manifest, read_remote_manifest
from ...dataset.tfds import INFO, metadata_files, write_metadata
from ...errors import BuildError, CorruptionError, NotFoundError
from ...storage.cache import Cache, RemoteFile, default_folder
from ...storage.local import try_lock, unlock
from ...storage.open import open_store
from ...storage.store import join_url, split_url, url_name
from ...thread_pool import thread_pool
from ..commit import Leak, committed_manifest, find_leaks, write_quarantine
from ..encode import Job, Outcome, Target
from ..engines.engine import Workers
from ..engines.local import Progress
from ..journal import Journal, is_line
from ..write import Task, run
from .directory import Folder, Results
from .ownership import planned_files, with_sidecars

SENDERS = 4  # shards that are sent at a time, or spools that are brought
READERS = 16  # lines of a journal that are read at a time
_LINE = re.compile(r"(\d{8})-(begin|spool|plan|shard|left|commit)\.json")
_WORK_OBJECT = re.compile(  # lines, hashes of shards, spools, and what shows that machines reach the store
    rf"{_LINE.pattern}|[^/]*{re.escape(HASHES_SUFFIX)}|[^/]+\.spool-\d{{5}}(\.index|\.keys)?|\.?{ATTEMPT}[^/]*"
)


class StoreFolder(Folder):
    """A folder of a store, and one of this machine where shards and spools are written."""

    def __init__(self, url: str) -> None:
        self.where = url.rstrip("/")
        self._store, self._name = open_store(self.where)
        digest = blake2b(self.where.encode(), digest_size=8).hexdigest()
        self.directory = default_folder().with_name("builds") / f"{digest}-{url_name(self.where)}"
        self.published = True
        self._standing: tuple[Manifest, RemoteFile] | None = None
        self._damaged = False
        self._lock = threading.Lock()

    @property
    def destination(self) -> Path | str:
        """What workers must reach."""
        return self.where

    @property
    def path(self) -> Path:
        """The path that names the dataset."""
        return Path("/", split_url(self.where)[1] or url_name(self.where))

    def journal(self) -> Journal:
        """What a build has done here so far."""
        return StoreJournal(self.directory / WORK, self.where)

    def target(self, journal: Journal) -> Target | None:
        """Where workers of other machines send their shards."""
        assert isinstance(journal, StoreJournal)
        return Target(self.where, journal.first, self._store.entry(self._at(journal.first)).version)

    def standing(self, *, broken: bool = False) -> Manifest | None:
        """The existing dataset. A damaged manifest is an error, or counts as none; `publish` replaces it."""
        self._damaged = False
        try:
            self._standing = read_remote_manifest(self.where)
        except NotFoundError:
            self._standing = None
        except CorruptionError:
            if not broken:
                raise
            self._damaged = True
            self._standing = None
        return None if self._standing is None else self._standing[0]

    def names(self) -> Iterable[str]:
        """The objects that are here."""
        return self._sizes()

    def read(self, name: str) -> bytes | None:
        """Return the content of an object; None if it is missing."""
        try:
            return self._store.read(self._at(name))
        except NotFoundError:
            return None

    def whole(self, entries: Mapping[str, dict[str, Any]], workers: Workers | None = None) -> tuple[set[str], set[str]]:
        """Which files are there with the sizes that their entries say. An object is whole, or is not there."""
        sizes = self._sizes() if entries else {}

        def is_whole(entry: dict[str, Any]) -> bool:
            beside = all(name in sizes for name in shard_files(entry["file"]))
            return beside and sizes[entry["file"]] == entry["bytes"]

        whole = {
            file
            for file, entry in entries.items()
            if all(is_whole(each) for each in (entry, *entry.get("alternatives", ())))
        }
        return set(), whole

    def received(self, results: Results) -> Results:
        """Send shards as they are ready; an outcome comes when its shard is there.

        What was ready before an error is sent all the same.
        """
        return _moved(results, self._send)

    def brought(self, results: Results) -> Results:
        """Bring the spools that workers elsewhere have sent: what is left to do with them is done here."""
        return _moved(results, self._bring_spool)

    def _send(self, item: tuple[Task, Outcome]) -> None:
        folder, outcome = self.directory / WORK, item[1]
        if (folder / outcome.file).exists():  # else a worker elsewhere has sent it
            self._close_for(outcome.files)
            send_shard(self.where, folder, outcome)

    def make_way(self, files: Iterable[str]) -> None:
        """Before workers elsewhere send shards: what an earlier build has left of them here is of no use any more."""
        wanted = list(files)
        for file in wanted:
            (self.directory / WORK / file).unlink(missing_ok=True)
        self._close_for(wanted)

    def _close_for(self, files: Iterable[str]) -> None:
        """Close the dataset before one of its shards is replaced."""
        with self._lock:
            if self._standing is None:
                return
            standing = {shard.file for shard in self._standing[0].shards()}
            if not standing.isdisjoint(files):
                self._close()

    def _bring_spool(self, item: tuple[Task, Outcome]) -> None:
        for name in sent_files(item[1]):
            self._bring(name, self.directory / name)
            self._delete(name)

    def _close(self) -> None:
        self._delete(MANIFEST)
        if self._standing is not None and INFO in metadata_files(self._standing[0]):
            self._delete(INFO)
        self._standing = None

    def leaks(self, shards: Mapping[str, list[str]], staged: set[str]) -> tuple[int, list[Leak]]:
        """Contents that stand in more than one split. Shards whose hashes are not here are brought for them."""
        if len(shards) < 2:
            return 0, []
        paths = {split: [self.directory / WORK / file for file in files] for split, files in shards.items()}
        for path in (path for files in paths.values() for path in files):
            if not hashes_path(path).exists():
                self._bring_hashes(path)
        return find_leaks(paths, self._with_keys)

    def _bring_hashes(self, path: Path) -> None:
        try:
            hashes_path(path).write_bytes(self._store.read(self._at(f"{WORK}/{path.name}{HASHES_SUFFIX}")))
        except NotFoundError:
            for name in shard_files(path.name):
                self._bring(name, path.with_name(name))

    def _bring(self, name: str, path: Path) -> None:
        entry = self._store.entry(self._at(name))
        self._store.fetch(entry.name, path, size=entry.size, version=entry.version)

    def _with_keys(self, path: Path) -> Path:
        """A shard whose keys are beside it."""
        name = shard_files(path.name)[-1]
        path.with_name(name).write_bytes(self._store.read(self._at(name)))
        return path

    def publish(self, commit: dict[str, Any]) -> Manifest:
        """Send what TFDS reads, and create the manifest: from here on, there is a dataset."""
        manifest = committed_manifest(commit, self.where)
        if self.standing(broken=True) is not None:
            if _same(self._standing, manifest):
                return manifest  # it was cut off after this
            self._close()
        elif self._damaged:
            self._delete(MANIFEST)
        for path in self.directory.iterdir():
            if path.is_file():
                path.unlink()  # of a commit that was interrupted
        write_quarantine(self.directory, commit["quarantine"])
        write_metadata(self.directory, manifest)
        here = {path.name for path in self.directory.iterdir() if path.is_file()}
        for name in set(commit.get("stale", ())) - here - {MANIFEST}:
            self._delete(name)
        for name in sorted(here, key=lambda name: name == INFO):
            self._store.publish(self._at(name), (self.directory / name).read_bytes())
        if not self._store.publish(self._at(MANIFEST), manifest_bytes(manifest), exclusive=True):
            self.standing()
            if not _same(self._standing, manifest):
                got = "a dataset that another build has published meanwhile"
                raise BuildError(f"expected to publish a dataset, got {got} - at {self.where}")
        return manifest

    def sweep(self, manifest: Manifest, replaced: Iterable[str]) -> None:
        """Remove the shards of earlier builds that are not part of this dataset."""
        kept = with_sidecars(shard.file for shard in manifest.shards())
        gone = with_sidecars(replaced) - kept
        for name in gone.intersection(self._sizes()) if gone else ():
            self._delete(name)

    def finish(self) -> None:
        """Remove what the build kept, here and there."""
        forget_lines(self.where)
        shutil.rmtree(self.directory, ignore_errors=True)

    def opened(self, manifest: Manifest, format: str | None = None) -> Opened:
        """The dataset, to read from."""
        if self._standing is None or not _same(self._standing, manifest):
            self.standing()
        told = None if self._standing is None else self._standing[1]
        return open_manifest(self.where, manifest, format=format, cache=Cache(), told=told)

    def _at(self, name: str) -> str:
        return f"{self._name}/{name}" if self._name else name

    def _delete(self, name: str) -> None:
        self._store.delete(self._at(name))

    def _sizes(self) -> dict[str, int]:
        """The objects right in the folder."""
        prefix = len(self._at(""))
        found = {entry.name[prefix:]: entry.size for entry in self._store.list(self._name)}
        return {name: size for name, size in found.items() if "/" not in name}


def _same(standing: tuple[Manifest, RemoteFile] | None, manifest: Manifest) -> bool:
    """Whether it is the same dataset, whenever it was made."""
    return standing is not None and replace(standing[0], made=manifest.made) == manifest


def _moved(results: Results, move: Callable[[tuple[Task, Outcome]], None]) -> Results:
    """Send or bring what outcomes speak of, several at a time; an outcome comes when that is done."""
    under_way: deque[tuple[tuple[Task, Outcome], Future[None]]] = deque()
    failure: BaseException | None = None
    with closing(results), ThreadPoolExecutor(SENDERS) as pool:
        while failure is None:
            try:
                item = next(results)
                under_way.append((item, pool.submit(move, item)))
            except BaseException as error:  # noqa: BLE001  # raised below
                failure = error
            while under_way and (failure or len(under_way) > SENDERS or under_way[0][1].done()):
                item, sent = under_way.popleft()
                sent.result()
                yield item
    if not isinstance(failure, StopIteration):
        raise failure


class StoreJournal(Journal):
    """A journal in a store: an object for each line, numbered. The folder is for this machine's spools and its lock."""

    def __init__(self, folder: Path, url: str) -> None:
        self._url = url
        self._number = 0
        self.first = ""  # the name of the line that says what is being built: the last one to go
        super().__init__(folder)

    def _read(self, path: Path) -> None:
        check_work_objects(self._url)
        names = _lines(self._url)
        with thread_pool(READERS) as pool:
            store, _ = open_store(self._url)
            for name, data in zip(names, pool.map(store.read, names), strict=True):
                try:
                    ((kind, content),) = json.loads(data).items()
                except (ValueError, AttributeError, RecursionError):
                    raise _foreign_work(self._url, url_name(name)) from None
                if not is_line(kind, content):
                    raise _foreign_work(self._url, url_name(name))
                self._take(kind, content)
                self._number = int(url_name(name)[:8])
                self.first = self.first or f"{WORK}/{url_name(name)}"

    def begin(self, content: dict[str, Any]) -> None:
        """Forget what was done before, but for the names of the shards that it has sent."""
        super().begin(content)
        self._note_left()

    def begin_again(self, content: dict[str, Any]) -> None:
        """Begin a build of changed examples."""
        super().begin_again(content)
        self._note_left()

    def _note_left(self) -> None:
        if self.left or self.metadata:
            self.note("left", {"files": sorted(self.left), "metadata": sorted(self.metadata)})

    def _clear(self) -> None:
        if self.begun is not None and self.plan is not None:
            self.left |= planned_files(self.begun, self.plan)
        forget_lines(self._url)
        self.first = ""
        super()._clear()

    def note(self, kind: str, content: dict[str, Any]) -> None:
        """Add a line; it is in the store when this returns. A number that is taken is that of another build."""
        self._number += 1
        line = f"{WORK}/{self._number:08}-{kind}.json"
        store, name = open_store(join_url(self._url, line))
        if not store.publish(name, json.dumps({kind: content}).encode(), exclusive=True):
            raise self._another()
        self.first = self.first or line
        self._take(kind, content)

    def check_alone(self) -> None:
        """Refuse to go on where another process has added lines."""
        if any(int(url_name(name)[:8]) > self._number for name in _lines(self._url)):
            raise self._another()

    def _another(self) -> BuildError:
        got = "another one that builds here too"
        return BuildError(f"expected to be the only process that builds here, got {got} - at {self._url}")


def _lines(url: str) -> list[str]:
    store, folder = open_store(join_url(url, WORK))
    return [entry.name for entry in store.list(folder) if _LINE.fullmatch(url_name(entry.name))]


def check_work_objects(url: str) -> None:
    """Refuse a folder that has the name of a work folder, and holds other objects than a build's."""
    store, folder = open_store(join_url(url, WORK))
    for entry in store.list(folder):
        if not _is_work_object(entry.name, folder):
            raise _foreign_work(url, url_name(entry.name))


def _foreign_work(url: str, name: str) -> BuildError:
    hint = "Move it away, or build into another folder"
    return BuildError(f"expected no {WORK} but Penstock's, got a foreign one with {name} - at {url}. {hint}")


def _is_work_object(name: str, folder: str) -> bool:
    return bool(_WORK_OBJECT.fullmatch(name[len(folder) :].lstrip("/")))


def forget_lines(url: str) -> None:
    """Remove a journal, the last line first: what is left of it then is still one; and what workers sent beside it."""
    lines = _lines(url)
    store, folder = open_store(join_url(url, WORK))
    others = [entry.name for entry in store.list(folder) if entry.name not in lines]
    for name in [*reversed(lines), *(name for name in others if _is_work_object(name, folder))]:
        store.delete(name)


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
