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
from ..storage.locks import held, is_still

JOURNAL = "journal.jsonl"
LOCK = "lock"
PATIENCE = 2.0  # seconds: the workers of a build that was killed just now still hold its lock


class Journal:
    """The journal of a build into one directory, held by one process at a time.

    begin   what is being built: source and options
    spool   records that wait to be cut into shards
    plan    the schema, and how many shards; shards before it are void
    shard   a finished shard
    commit  all shards are finished; what is left is to move them in and to publish them

    A line that was cut off by a crash is as if it had not been written.
    """

    def __init__(self, folder: Path) -> None:
        self.begun: dict[str, Any] | None = None
        self.plan: dict[str, Any] | None = None
        self.spools: dict[str, dict[str, Any]] = {}
        self.shards: dict[str, dict[str, Any]] = {}
        self.commit: dict[str, Any] | None = None
        self._folder = folder
        self._synced = 0.0
        self._new = [each for each in (folder, folder.parent) if not each.exists()]
        self._lock = hold(folder / LOCK)
        try:
            self._read(folder / JOURNAL)
            self._file = open(folder / JOURNAL, "ab")  # noqa: SIM115  # held until close
        except OSError:
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
        else:
            (self.spools if kind == "spool" else self.shards)[content["file"]] = content

    def begin(self, content: dict[str, Any]) -> None:
        """Forget what was done before."""
        self.forget()
        self.note("begin", content)

    def forget(self) -> None:
        """Be as if nothing had been begun: what was made so far goes too."""
        self._file.truncate(0)
        for path in self._folder.iterdir():
            if path.name not in (JOURNAL, LOCK):
                path.unlink()
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

    def close(self) -> None:
        """Let others build here. Where nothing was begun, nothing is left."""
        self._file.close()
        if self.begun is None:
            for name in (JOURNAL, LOCK):
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
    "commit": {"manifest": dict, "staged": list, "quarantine": list, "replaced": list},
}
_OPTIONAL = {"keys"}  # what later versions know of a shard
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
        others = ({"file": str, "bytes": int, "crc32c": int}, content["alternatives"])
        if not all(isinstance(each, dict) and _has_types(each, others[0]) for each in others[1]):
            return False
    if kind == "plan" and not all(type(count) is int and 0 < count < 1 << 31 for count in content["shards"].values()):
        return False
    bad = [*content.get("bad", ()), *content.get("quarantine", ())]
    if not all(isinstance(each, dict) and all(isinstance(text, str) for text in each.values()) for each in bad):
        return False
    return all(isinstance(file, str) and bool(_NAME.fullmatch(file)) and file.strip(".") for file in files)


def _has_types(content: dict[str, Any], types: dict[str, type]) -> bool:
    return set(content) == set(types) and all(type(content[member]) is kind for member, kind in types.items())


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
