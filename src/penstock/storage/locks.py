"""Files that one process holds at a time. The system lets go of them however a process ends."""

from __future__ import annotations

import os
from pathlib import Path


def try_lock(path: Path) -> int | None:
    """Hold a file, which is made if it is not there: a handle to close, or None if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if held(handle) and is_still(path, handle):
        return handle
    os.close(handle)
    return None


def unlock(handle: int) -> None:
    """Let go of a file: also of what processes that were forked meanwhile have of it."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)
    except ImportError:  # a system without such locks
        pass
    os.close(handle)


def held(handle: int) -> bool:
    """Whether this process holds an open file now."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_still(path: Path, handle: int) -> bool:
    """Whether the file that is held is the one that others will find; whoever is done removes his own."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
