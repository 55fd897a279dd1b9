"""What a build has done so far: the same build continues from there, whatever interrupted it.

data/photos/.build/journal.jsonl                          on a local disk: a line for each entry
s3://bucket/data/photos/.build/00000017-shard.json        in a store: an object for each entry
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol

from ..dataset.manifest import ATTEMPT, HASHES_SUFFIX, WORK, Manifest
from ..errors import BuildError, StorageError
from ..storage.local import held, is_still
from ..storage.store import Store, url_name
from ..thread_pool import thread_pool
from .entries import Begin, Commit, Entry, Left, Plan, RecordFile, ShardResult, SpoolResult, entry_bytes, parse_entry

JOURNAL = "journal.jsonl"
LOCK = "lock"
MARKER = "penstock"  # the file that marks a work folder as Penstock's
PATIENCE = 2.0  # seconds: the workers of a build that was killed just now still hold its lock
REBUILD = "Build into another directory, or pass overwrite=True (--overwrite) to build this one anew"
DIGESTS = {"keys": "are others", "code": "is other code"}  # digests, in words
READERS = 16  # objects of a journal that are read at a time


# Where entries are kept
class Log(Protocol):
    """Entries one after the other. One process at a time appends to them."""

    first: str  # name of the object of the first entry; empty on a local disk

    def read(self) -> list[Entry]:
        """Return the entries of an earlier run."""

    def append(self, entry: Entry) -> None:
        """Add an entry durably; a shard may be lost in a power cut, and is built again then."""

    def clear(self) -> None:
        """Remove all entries."""

    def check_alone(self) -> None:
        """Refuse to go on if another process has added entries."""

    def close(self) -> None:
        """Free the file."""


class FileLog:
    """A file with a line for each entry. A line that was cut off by a crash counts as not written."""

    first = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._synced = 0.0

    def read(self) -> list[Entry]:
        """Return the entries before the first damaged line, and remove the rest."""
        found: list[Entry] = []
        whole = 0
        data = self._path.read_bytes() if self._path.exists() else b""
        for line in data.splitlines(keepends=True):
            try:
                found.append(parse_entry(line if line.endswith(b"\n") else b""))
            except ValueError:
                break
            whole += len(line)
        if whole < len(data):
            os.truncate(self._path, whole)
        self._file = open(self._path, "ab")  # noqa: SIM115  # held until close
        return found

    def append(self, entry: Entry) -> None:
        """Add a line. Lines of shards are on the disk within a second, others when this returns."""
        self._file.write(entry_bytes(entry) + b"\n")
        self._file.flush()
        now = time.monotonic()
        if not isinstance(entry, ShardResult) or now - self._synced > 1:
            os.fsync(self._file.fileno())
            self._synced = now

    def clear(self) -> None:
        """Remove all lines."""
        self._file.truncate(0)

    def check_alone(self) -> None:
        """Do nothing: on a local disk, the lock keeps others away."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


_LINE = re.compile(r"(\d{8})-(begin|spool|plan|shard|left|commit)\.json")
_WORK_OBJECT = re.compile(  # entries, hashes of shards, spools, and what shows that machines reach the store
    rf"{_LINE.pattern}|[^/]*{re.escape(HASHES_SUFFIX)}|[^/]+\.spool-\d{{5}}(\.index|\.keys)?|\.?{ATTEMPT}[^/]*"
)


class ObjectLog:
    """A numbered object for each entry, created only if no other build has used the number.

    folder  Name of the dataset's folder in the store.
    where   URL of the folder, for messages.
    """

    def __init__(self, store: Store, folder: str, where: str) -> None:
        self.first = ""
        self._store = store
        self._folder = f"{folder}/{WORK}" if folder else WORK
        self._where = where
        self._number = 0

    def read(self) -> list[Entry]:
        """Return all entries. Any other object in the folder is an error."""
        names = [entry.name for entry in self._store.list(self._folder)]
        for name in names:
            if not self._is_own(name):
                raise self._foreign(url_name(name))
        lines = [name for name in names if _LINE.fullmatch(url_name(name))]
        found: list[Entry] = []
        with thread_pool(READERS) as pool:
            for name, data in zip(lines, pool.map(self._store.read, lines), strict=True):
                try:
                    found.append(parse_entry(data))
                except ValueError:
                    raise self._foreign(url_name(name)) from None
                self._number = int(url_name(name)[:8])
                self.first = self.first or f"{WORK}/{url_name(name)}"
        return found

    def append(self, entry: Entry) -> None:
        """Add an object; it is in the store when this returns. A number that exists is that of another build."""
        self._number += 1
        name = f"{self._number:08}-{entry.kind}.json"
        if not self._store.publish(f"{self._folder}/{name}", entry_bytes(entry), exclusive=True):
            raise self._another()
        self.first = self.first or f"{WORK}/{name}"

    def clear(self) -> None:
        """Remove the last entry first, so that the rest is a journal at any time; then what workers sent beside it."""
        names = [entry.name for entry in self._store.list(self._folder)]
        lines = [name for name in names if _LINE.fullmatch(url_name(name))]
        others = [name for name in names if name not in lines and self._is_own(name)]
        for name in [*reversed(lines), *others]:
            self._store.delete(name)
        self.first = ""

    def check_alone(self) -> None:
        """Refuse to go on if another process has added entries."""
        names = (url_name(entry.name) for entry in self._store.list(self._folder))
        if any(int(name[:8]) > self._number for name in names if _LINE.fullmatch(name)):
            raise self._another()

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _is_own(self, name: str) -> bool:
        return bool(_WORK_OBJECT.fullmatch(name[len(self._folder) :].lstrip("/")))

    def _foreign(self, name: str) -> BuildError:
        hint = "Move it away, or build into another folder"
        return BuildError(
            f"expected no {WORK} but Penstock's, got a foreign one with {name} - at {self._where}. {hint}"
        )

    def _another(self) -> BuildError:
        got = "another one that builds here too"
        return BuildError(f"expected to be the only process that builds here, got {got} - at {self._where}")


# The journal
class Journal:
    """The journal of a build into one directory, held by one process at a time.

    folder      Local work folder with the lock, spools and unfinished shards.
    log         Where entries are kept; by default a file in the folder.
    sends       Shards get their final names before the commit, as in a store.
    """

    def __init__(self, folder: Path, log: Log | None = None, *, sends: bool = False) -> None:
        self.begun: Begin | None = None
        self.plan: Plan | None = None
        self.spools: dict[str, SpoolResult] = {}
        self.shards: dict[str, ShardResult] = {}
        self.commit: Commit | None = None
        self.left: set[str] = set()
        self.metadata: set[str] = set()
        self.earlier: tuple[Plan, list[ShardResult]] | None = None  # of a build of other examples
        self._log: Log = FileLog(folder / JOURNAL) if log is None else log
        self._sends = sends
        self._folder = folder
        self._new = [each for each in (folder, folder.parent) if not each.exists()]
        check_work_folder(folder)
        self._lock = hold(folder / LOCK)
        try:
            mark_work_folder(folder)
            for entry in self._log.read():
                self._add(entry)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def first(self) -> str:
        """Name of the object of the first entry, the last to be deleted; empty on a local disk."""
        return self._log.first

    def _add(self, entry: Entry) -> None:
        if isinstance(entry, Begin):
            self.begun = entry
        elif isinstance(entry, Commit):
            self.commit = entry
        elif isinstance(entry, Plan):
            self.plan, self.shards = entry, {}
        elif isinstance(entry, Left):
            self.left, self.metadata = set(entry.files), set(entry.metadata)
        elif isinstance(entry, SpoolResult):
            self.spools[entry.file] = entry
        else:
            self.shards[entry.file] = entry

    def note(self, entry: Entry) -> None:
        """Add an entry."""
        self._log.append(entry)
        self._add(entry)

    def begin(self, begun: Begin) -> None:
        """Start a build without anything that was done before."""
        self.forget()
        self._begin(begun)

    def begin_again(self, begun: Begin) -> None:
        """Start a build of changed examples. `earlier` holds the finished shards that may still be valid."""
        before, plan = self.begun, self.plan
        if before and plan and (before.name, before.options) == (begun.name, begun.options):
            self.earlier = plan, [shard for shard in self.shards.values() if shard.inputs]
        self._clear()
        self._begin(begun)

    def _begin(self, begun: Begin) -> None:
        self.note(begun)
        if self._sends and (self.left or self.metadata):
            self.note(Left(tuple(sorted(self.left)), tuple(sorted(self.metadata))))

    def check_alone(self) -> None:
        """Refuse to go on if another process builds here too."""
        self._log.check_alone()

    def forget(self) -> None:
        """Remove all entries, and the files of the unfinished build."""
        self._clear()
        for path in self._folder.iterdir():
            if path.name not in (JOURNAL, LOCK, MARKER):
                path.unlink()

    def _clear(self) -> None:
        if self._sends and self.begun is not None and self.plan is not None:
            self.left |= self.begun.shard_names(self.plan.shards)
        self._log.clear()
        self.begun = self.plan = self.commit = None
        self.spools, self.shards = {}, {}

    def note_left(self, files: Iterable[str], metadata: Iterable[str]) -> None:
        """Note which shards and other files at the destination are Penstock's, and are to be replaced."""
        files, metadata = self.left.union(files), self.metadata.union(metadata)
        if (files, metadata) != (self.left, self.metadata):
            self.note(Left(tuple(sorted(files)), tuple(sorted(metadata))))

    def note_plan(self, plan: Plan) -> None:
        """Note the plan, and the finished shards of a build of other examples if the schema is the same."""
        self.note(plan)
        if self.earlier is not None and self.earlier[0].schema == plan.schema:
            for shard in self.earlier[1]:
                self.note(shard)
        self.earlier = None

    def close(self) -> None:
        """Let others build here. If nothing was begun, remove the work folder."""
        self._log.close()
        if self.begun is None:
            for name in (JOURNAL, MARKER, LOCK):
                (self._folder / name).unlink(missing_ok=True)
            for folder in dict.fromkeys([self._folder, *self._new]):
                if not any(folder.iterdir()):
                    folder.rmdir()
        os.close(self._lock)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# Earlier builds
def begin_build(
    journal: Journal,
    existing: Manifest | None,
    begun: Begin,
    where: str,
    *,
    overwrite: bool,
    published: bool,
) -> Manifest | None:
    """Make the journal that of this build, and return the existing dataset if it is to be brought up to date.

    A build that differs from the one of the existing dataset is an error that says in what. An unfinished build
    protects nothing: another one takes its place, and keeps the finished shards that are still valid.

    where      Path shown in messages.
    published  False if no reader sees the dataset: it may be replaced.
    """
    if overwrite:
        journal.begin(begun)
        return None
    built = None if existing is None else Begin(existing.name, existing.options, existing.source)
    if built == begun != journal.begun:
        journal.forget()  # an attempt at another dataset that was given up: this one exists
    before = journal.begun or built
    if before is not None and before != begun and (existing is None or not published):
        journal.begin_again(begun)
    elif before is not None and (changed := "; ".join(describe_change(before.to_json(), begun.to_json()))):
        what = "go on with the build that was begun here" if journal.begun else "bring this dataset up to date"
        raise BuildError(f"expected to {what}, got another one: {changed} - at {where}. {REBUILD}")
    if journal.begun is not None:
        return None
    journal.begin(begun)
    return existing


def take_over(journal: Journal, manifest: Manifest, *, retry: bool) -> None:
    """Note shards of a dataset as done, and with them its plan.

    These are the shards of which it is known what they were made from, for that is compared later; to try bad examples
    again, all that lack none.
    """
    shards = [
        (split, *same)
        for split in manifest.splits
        for same in zip(*(splits[split] for splits in manifest.formats.values()), strict=True)
    ]
    if retry and sum(shard.bad for _, shard, *_ in shards) == manifest.found.get("bad", 0):
        done = [same for same in shards if not same[1].bad]
    else:  # examples that were bad before they became many, or in a stream, belong to no shard
        done = [same for same in shards if same[1].inputs]
    if not done:
        return
    counts = {split: len(shards) for split, shards in manifest.splits.items()}
    journal.note(Plan(manifest.schema.to_json(), counts))
    for split, shard, *others in done:
        alternatives = tuple(RecordFile(each.file, each.bytes, each.crc32c) for each in others)
        counted = (shard.records, shard.bytes, shard.crc32c, shard.inputs, shard.ignored)
        journal.note(ShardResult(split, shard.file, *counted, alternatives=alternatives, keys=shard.keys))


def describe_change(before: Mapping[str, object], now: Mapping[str, object], where: str = "") -> list[str]:
    """Return what differs between two nested dicts, in words."""
    changes: list[str] = []
    for name in sorted(before.keys() | now.keys()):
        a, b = before.get(name), now.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            changes += describe_change(a, b, f"{where}{name} ")
        elif a != b and (name in DIGESTS or where.endswith("columns ") or isinstance(a or b, (dict, list))):
            said = DIGESTS.get(name, "is another") if a and b else "is new" if b else "is gone"
            changes.append(f"{where}{name} {said}")
        elif a != b:
            changes.append(f"{where}{name} was {_shown(a)}, is {_shown(b)}")
    return changes


def _shown(value: object) -> str:
    return "not said" if value is None else repr(value)


# The work folder


def check_work_folder(folder: Path) -> None:
    """Refuse a folder that has the name of a work folder and was not made by Penstock."""
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        if not os.path.lexists(folder):
            return  # a folder above is none: `hold` reports it
        names = {folder.name}
    if MARKER in names or _is_unmarked(folder, names):
        return
    hint = "Move it away, or build into another directory"
    raise BuildError(f"expected no {folder.name} but Penstock's, got a foreign one - at {folder}. {hint}")


def _is_unmarked(folder: Path, names: set[str]) -> bool:
    """Whether a folder without a marker is empty, was locked a moment ago, or is of a version without markers."""
    if names and names <= {"alone", "data"}:
        return "alone" in names and set(os.listdir(folder / "alone")) <= {LOCK}  # of plain files
    begun = _first_bytes(folder / JOURNAL) == b'{"begin": '
    if begun or names > {LOCK, JOURNAL}:
        return begun
    locked = _first_bytes(folder / LOCK)
    return names <= {LOCK, JOURNAL} and not _first_bytes(folder / JOURNAL) and (not locked or locked.isdigit())


def _first_bytes(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(10)
    except FileNotFoundError:
        return b""
    except OSError:
        return b"?"


def mark_work_folder(folder: Path) -> None:
    """Mark a work folder as Penstock's."""
    (folder / MARKER).write_text("Penstock builds in this folder, and removes it.\n", encoding="ascii")


def hold(path: Path) -> int:
    """Hold a file; the system lets go of it however the process ends."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            said = f"{(error.strerror or str(error)).lower()} - at {path.parent.parent}"
            raise StorageError(
                f"expected a directory to build in, got one that cannot be written to: {said}"
            ) from error
        if held(handle) and is_still(path, handle):
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            return handle
        holder = os.pread(handle, 64, 0).decode(errors="replace")
        os.close(handle)
        if time.monotonic() > deadline:
            where = path.parent.parent
            raise BuildError(f"expected to build here alone, got process {holder} that builds here too - at {where}")
        time.sleep(0.02)
