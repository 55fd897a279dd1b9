"""What a build has done so far, on disk, a line at a time: the same build goes on from there, whatever cut it off."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import BuildError, StorageError
from ..storage.local import held, is_still

JOURNAL = "journal.jsonl"
LOCK = "lock"
MARKER = "penstock"  # the file that tells a work folder of Penstock from a folder of the same name
PATIENCE = 2.0  # seconds: the workers of a build that was killed just now still hold its lock


class Journal:
    """The journal of a build into one directory, held by one process at a time.

    begin   what is being built: source and options
    spool   records that wait to be cut into shards
    plan    the schema, and how many shards; shards before it are void
    shard   a finished shard
    left    shards and metadata of the existing dataset, or sent by an abandoned build, which the commit replaces
    commit  all shards are finished; what is left is to move them in and to publish them

    A line that was cut off by a crash is as if it had not been written.
    """

    def __init__(self, folder: Path) -> None:
        self.begun: dict[str, Any] | None = None
        self.plan: dict[str, Any] | None = None
        self.spools: dict[str, dict[str, Any]] = {}
        self.shards: dict[str, dict[str, Any]] = {}
        self.commit: dict[str, Any] | None = None
        self.left: set[str] = set()
        self.metadata: set[str] = set()
        self.earlier: dict[str, Any] | None = None  # the plan and the shards of a build of other examples
        self._folder = folder
        self._synced = 0.0
        self._new = [each for each in (folder, folder.parent) if not each.exists()]
        check_work_folder(folder)
        self._lock = hold(folder / LOCK)
        try:
            mark_work_folder(folder)
            self._read(folder / JOURNAL)
            self._file = open(folder / JOURNAL, "ab")  # noqa: SIM115  # held until close
        except BaseException:
            os.close(self._lock)
            raise

    def _read(self, path: Path) -> None:
        if not path.exists():
            return
        whole = 0
        data = path.read_bytes()
        for line in data.splitlines(keepends=True):
            try:
                ((kind, content),) = json.loads(line).items()
            except (ValueError, AttributeError, RecursionError):
                break
            if not line.endswith(b"\n") or not is_line(kind, content):
                break
            self._take(kind, content)
            whole += len(line)
        if whole < len(data):
            os.truncate(path, whole)

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "begin":
            self.begun = content
        elif kind == "commit":
            self.commit = content
        elif kind == "plan":
            self.plan, self.shards = content, {}
        elif kind == "left":
            self.left, self.metadata = set(content["files"]), set(content["metadata"])
        else:
            (self.spools if kind == "spool" else self.shards)[content["file"]] = content

    def begin(self, content: dict[str, Any]) -> None:
        """Forget what was done before."""
        self.forget()
        self.note("begin", content)

    def begin_again(self, content: dict[str, Any]) -> None:
        """Begin a build of changed examples. `earlier` holds the finished shards that may still be valid."""
        before, plan = self.begun or {}, self.plan
        if plan is not None and all(before[part] == content[part] for part in ("name", "options")):
            shards = {file: entry for file, entry in self.shards.items() if entry["inputs"]}
            self.earlier = {"plan": plan, "shards": shards}
        self._clear()
        self.note("begin", content)

    def check_alone(self) -> None:
        """Refuse to go on where another process builds; on a local disk a lock keeps others away."""

    def forget(self) -> None:
        """Be as if nothing had been begun: what was made so far goes too."""
        self._clear()
        for path in self._folder.iterdir():
            if path.name not in (JOURNAL, LOCK, MARKER):
                path.unlink()

    def _clear(self) -> None:
        self._file.truncate(0)
        self.begun = self.plan = self.commit = None
        self.spools, self.shards = {}, {}

    def note(self, kind: str, content: dict[str, Any]) -> None:
        """Add a line; it is on the disk when this returns. Those of shards are a second later: a lost one is redone."""
        self._file.write(json.dumps({kind: content}).encode() + b"\n")
        self._file.flush()
        now = time.monotonic()
        if kind != "shard" or now - self._synced > 1:
            os.fsync(self._file.fileno())
            self._synced = now
        self._take(kind, content)

    def note_left(self, files: set[str], metadata: set[str]) -> None:
        """Note which shards and other files at the destination are Penstock's, and are to be replaced."""
        if not (files <= self.left and metadata <= self.metadata):
            self.note("left", {"files": sorted(files | self.left), "metadata": sorted(metadata | self.metadata)})

    def close(self) -> None:
        """Let others build here. Where nothing was begun, nothing is left."""
        self._file.close()
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


_TYPES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "begin": {"name": str, "options": dict, "source": dict},
    "spool": {"file": str, "split": str, "files": list, "ignored": int, "bad": list},
    "plan": {"schema": dict, "shards": dict},
    "shard": {
        **dict.fromkeys(("split", "file", "inputs"), str),
        **dict.fromkeys(("records", "bytes", "crc32c", "ignored"), int),
        **dict.fromkeys(("bad", "alternatives"), list),
    },
    "left": {"files": list, "metadata": list},
    "commit": {"manifest": dict, "staged": list, "quarantine": list, "replaced": list},
}
_OPTIONAL = {"keys", "images"}  # what later versions know of a shard
_NAME = re.compile(r"[\w.-]+")


def is_line(kind: Any, content: Any) -> bool:
    """True if a line of a journal is one that a build can go on from. Any other line counts as cut off."""
    if kind not in _TYPES or not isinstance(content, dict):
        return False
    if not all(isinstance(content.get(member), types) for member, types in _TYPES[kind].items()):
        return False
    if any(isinstance(content[member], bool) for member in _TYPES[kind]):
        return False
    files = [*content.get("staged", ()), *content.get("replaced", ())]
    if kind == "shard":
        files += [content["file"], *(each.get("file") for each in content["alternatives"] if isinstance(each, dict))]
        counts = (content["records"], content["bytes"], content["crc32c"], content["ignored"], content.get("keys") or 0)
        if set(content) - set(_TYPES[kind]) - _OPTIONAL or not all(type(n) is int and 0 <= n < 1 << 63 for n in counts):
            return False
        images = content.get("images", {})
        if not isinstance(images, dict) or not all(isinstance(formats, list) for formats in images.values()):
            return False
        others = ({"file": str, "bytes": int, "crc32c": int}, content["alternatives"])
        if not all(isinstance(each, dict) and _has_types(each, others[0]) for each in others[1]):
            return False
    named = [*content["files"], *content["metadata"]] if kind == "left" else content.get("stale", [])
    if not isinstance(named, list) or not all(
        isinstance(file, str) and "/" not in file and "\0" not in file for file in named
    ):
        return False
    if kind == "plan" and not all(type(count) is int and 0 < count < 1 << 31 for count in content["shards"].values()):
        return False
    bad = [*content.get("bad", ()), *content.get("quarantine", ())]
    if not all(isinstance(each, dict) and all(isinstance(text, str) for text in each.values()) for each in bad):
        return False
    return all(isinstance(file, str) and bool(_NAME.fullmatch(file)) and file.strip(".") for file in files)


def _has_types(content: dict[str, Any], types: dict[str, type]) -> bool:
    return set(content) == set(types) and all(type(content[member]) is kind for member, kind in types.items())


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
