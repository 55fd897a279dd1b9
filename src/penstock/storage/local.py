"""The local disk: a store whose names are paths, files that appear whole or not at all, and locks."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from io import FileIO
from pathlib import Path

from ..errors import NotFoundError
from .store import Buffer, Entry
from .transfer import PIECE, replaced


class LocalStore:
    """The local disk: see `Store`."""

    url = ""

    def list(self, prefix: str) -> Iterator[Entry]:
        """Return the files below a folder, in order of name; none if it does not exist."""
        found = [os.path.join(folder, name) for folder, _, names in os.walk(prefix or os.curdir) for name in names]
        for path in sorted(found):
            with suppress(FileNotFoundError):
                yield self.entry(path)

    def names(self, folder: str) -> set[str]:
        """Return the names of the files and folders in a folder."""
        return set(os.listdir(folder))

    def entry(self, name: str) -> Entry:
        """Return what is known of a file."""
        with _found(name):
            about = os.stat(name)
            if not stat.S_ISREG(about.st_mode):
                raise IsADirectoryError
        return Entry(name, about.st_size, f"{about.st_ino}-{about.st_mtime_ns}")

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a file, or a part of it."""
        self.entry(name)  # a pipe would never end
        with _found(name), open(name, "rb") as file:
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def read_ranges(
        self, name: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> Sequence[bytes | memoryview]:
        """Return parts of a file."""
        if version is not None and self.entry(name).version != version:
            raise replaced(name)
        with _found(name), open(name, "rb") as file:
            return [memoryview(os.pread(file.fileno(), length, start)) for start, length in ranges]

    def fetch(
        self,
        name: str,
        path: Path,
        *,
        size: int,
        version: str | None = None,
        told: Callable[[Buffer], object] = lambda block: None,
    ) -> None:
        """Copy a file of that size to a new file."""
        if version is not None and self.entry(name).version != version:
            raise replaced(name)
        with _found(name), open(name, "rb") as source, WholeFile(path, size) as file:
            while block := source.read(PIECE):
                file.write(block)
                told(block)

    def send(self, path: Path, name: str) -> Entry:
        """Copy a file, which appears whole or not at all."""
        temporary = f"{name}.{os.getpid()}.partial"
        try:
            shutil.copyfile(path, temporary)
            os.replace(temporary, name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return self.entry(name)

    def publish(self, name: str, data: bytes, *, exclusive: bool = False, sync: bool = False) -> bool:
        """Write a file, which appears whole or not at all."""
        return publish(name, data, exclusive=exclusive, sync=sync)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        Path(name).unlink(missing_ok=True)

    def lock(self, name: str) -> int | None:
        """Lock a file, which is created if it is missing."""
        return try_lock(Path(name))


@contextmanager
def _found(path: str) -> Iterator[None]:
    """A file that is missing, or is a folder, is a NotFoundError."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise NotFoundError(f"expected a file, got nothing at {path}") from None


FileStamp = tuple[str, int, int, int]  # of a file: path, inode, size, time of modification in nanoseconds


def publish(path: str | os.PathLike[str], data: bytes, *, exclusive: bool = False, sync: bool = False) -> bool:
    """Write a small file so that it is seen whole or not at all; with `sync`, also after a power cut.

    exclusive  Return False if the file exists: it is not replaced.
    """
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
        if exclusive:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        else:
            os.replace(temporary, path)
        if sync:
            sync_folder(path.parent)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


def file_stamp(path: str | os.PathLike[str]) -> FileStamp:
    """Return what distinguishes a file from another one that takes its place."""
    about = os.stat(path)
    return str(path), about.st_ino, about.st_size, about.st_mtime_ns


def write_all(file: FileIO, data: Buffer) -> None:
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

    def write(self, block: Buffer) -> None:
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


def machine_lock(name: str) -> int | None:
    """Lock a name among the processes of this machine, by a temporary file."""
    digest = blake2b(name.encode(), digest_size=12).hexdigest()
    return try_lock(Path(tempfile.gettempdir(), f"penstock-locks-{os.getuid()}", digest))


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
