"""Files on this machine that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from io import FileIO
from pathlib import Path
from typing import Any

FileStamp = tuple[str, int, int, int]  # of a file: path, inode, size, time of modification in nanoseconds


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


def file_stamp(path: str | os.PathLike[str]) -> FileStamp:
    """Return what distinguishes a file from another one that takes its place."""
    about = os.stat(path)
    return str(path), about.st_ino, about.st_size, about.st_mtime_ns


def write_all(file: FileIO, data: Any) -> None:
    """Write all bytes of a buffer to an unbuffered file, or raise OSError.

    One call of `write` may write less than it is given: on a disk that is nearly full, near a limit of file size, and
    always beyond 2 GiB. The call after a short write reports the reason.
    """
    left = memoryview(data).cast("B")
    while left:
        written = file.write(left)
        if not written:
            raise OSError(f"expected to write {len(left)} bytes, got none written - at {file.name}")
        left = left[written:]


class WholeFile:
    """A file that is written from the beginning to its known end, without buffers.

    The file may exist with its final size already, to reserve room for it: it is not truncated. Leaving the block
    without an error raises OSError unless all bytes were written.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size, self._written = path, size, 0
        self._file = FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), "wb")

    def write(self, block: Any) -> None:
        """Write all of the next block, or raise OSError."""
        write_all(self._file, block)
        self._written += memoryview(block).nbytes

    def __enter__(self) -> WholeFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        size = os.fstat(self._file.fileno()).st_size
        self._file.close()  # some file systems report a full disk here
        if kind is None and not self._written == self._size == size:
            got = f"{self._written} bytes written and a file of {size}"
            raise OSError(f"expected {self._size} bytes, got {got} - at {self._path}")


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where folders can be synced."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
