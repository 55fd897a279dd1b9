"""Where files are: patterns that name many of them, and files that appear whole or not at all."""

from __future__ import annotations

import glob
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import CorruptionError, NotFoundError, StorageError

MOST_FILES = 1_000_000  # that one pattern may name

_RANGE = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")


def expand(pattern: str | os.PathLike[str]) -> list[str]:
    """The files that a pattern names, in order.

    part-{000..146}.tfrecord   a range, as shells write it: each of its files has to be there
    data/**/*.tfrecord         a glob: whatever is there, but at least one file

    A path that exists is taken as it is, whatever characters it has.
    """
    text = os.fspath(pattern)
    if os.path.lexists(text):
        return [text]
    found: list[str] = []
    for name in _ranges(text):
        if not glob.has_magic(name):
            if name != text and not os.path.exists(name):
                raise StorageError(f"expected every file of the range to be there, got no {name} - at {text}")
            found.append(name)
            continue
        matches = sorted(path for path in glob.glob(name, recursive=True) if not os.path.isdir(path))
        if not matches:
            raise StorageError(
                f"expected files, got none that match {name}" + (f" - at {text}" if name != text else "")
            )
        found += matches
        if len(found) > MOST_FILES:
            raise StorageError(f"expected at most {MOST_FILES} files, got more - at {text}")
    return found


def _ranges(text: str) -> Iterator[str]:
    """The text with each of its ranges counted out; the first one turns slowest."""
    match = _RANGE.search(text)
    if match is None:
        yield text
        return
    first, last = int(match[1]), int(match[2])
    if abs(last - first) >= MOST_FILES:
        raise StorageError(f"expected at most {MOST_FILES} files, got the range {match[0]} - at {text}")
    padded = any(len(end) > 1 and end.startswith("0") for end in match.groups())
    width = max(map(len, match.groups())) if padded else 0
    step = 1 if first <= last else -1
    for number in range(first, last + step, step):
        yield from (f"{text[: match.start()]}{number:0{width}}{rest}" for rest in _ranges(text[match.end() :]))


def publish(path: str | os.PathLike[str], data: bytes, *, sync: bool = False) -> None:
    """Write a small file so that it is seen whole or not at all; with `sync`, also after a power cut."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
        if sync:
            sync_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where folders can be synced."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_json(path: Path, what: str, most_bytes: int) -> Any:
    """A small file of a dataset; `what` it is, for people."""
    try:
        if path.stat().st_size > most_bytes:
            raise CorruptionError(f"expected {what} of at most {most_bytes} bytes, got more", str(path))
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NotFoundError(f"expected a dataset, got no {path.name} - at {path.parent}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"expected {what}, got broken JSON ({error})", str(path)) from None
