"""Examples kept once they are made, in memory or in a file, up to a number of bytes."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import warnings
from collections.abc import Mapping

import numpy as np

from ..._core import crc32c
from ...errors import SchemaError, StorageError
from ...schema.columns import Value
from ...storage.files import local_path
from ...storage.local import write_all

MISSING: Value = object()
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what the system reports where a file cannot grow
_OVERHEAD = 100  # bytes that a value takes besides its own


class Store:
    """Examples by number. What comes first stays; when the budget is spent, nothing more is kept.

    Nothing is taken out to make room: in a random order, what has just been read is the last to be read again.

    With a folder, each process appends to a file of its own, which has no name and goes with the process. An example is
    kept once all of its bytes are written, and checked by its CRC-32C when it is read.
    """

    def __init__(self, budget: int, folder: str | os.PathLike[str] | None = None) -> None:
        self.budget = budget
        self.folder = None if folder is None else str(local_path(folder, "cache"))
        self.used = 0
        self.shaped: set[str] = set()  # fields that have a shape for each row
        self._kept: dict[int, Value] = {}
        self._lock = threading.Lock()
        self._file: Value = None
        self._process = os.getpid()
        self._warned = False

    def __reduce__(self) -> tuple[object, ...]:
        return Store, (self.budget, self.folder)  # another process begins with an empty one

    def __repr__(self) -> str:
        return f"Store({len(self._kept)} examples, {self.used} of {self.budget} bytes)"

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, number: int) -> Value:
        """An example of the caller's own, None for one that a filter left out, or MISSING."""
        kept = self._kept.get(number, MISSING)
        if kept is MISSING or kept is None:
            return kept
        if self.folder is None:
            return _copied(kept)
        file, offset, size, checksum, shape = kept
        buffer = os.pread(file.fileno(), size, offset)
        if len(buffer) != size or crc32c(buffer) != checksum:
            return MISSING  # damaged on the disk: it is made again
        return _restored(shape, memoryview(bytearray(buffer)), [0])

    def put(self, number: int, example: object) -> None:
        """Keep an example, or None for one that was left out, if there is room."""
        if self._process != os.getpid():  # a fork: what is kept so far can be read, the file is the parent's
            self._process, self._lock, self._file = os.getpid(), threading.Lock(), None
        parts: list[bytes] = []
        if self.folder is None:
            entry, size = _copied(example), _size(example)
        else:
            entry = _taken_apart(example, parts)
            size = sum(map(len, parts))
        with self._lock:
            if number in self._kept or self.used + size > self.budget:
                return
            if self.folder is not None and example is not None:
                data = b"".join(parts)
                offset = self._append(data)
                if offset is None:
                    return
                entry = (self._file, offset, size, crc32c(data), entry)
            self._kept[number] = None if example is None else entry
            self.used += size

    def _append(self, data: bytes) -> int | None:
        """Return where the data was written, or None where the disk is full: nothing of it is left then."""
        offset = None
        try:
            if self._file is None:
                os.makedirs(self.folder or ".", exist_ok=True)
                prefix = "penstock-cache-"
                self._file = tempfile.TemporaryFile(prefix=prefix, dir=self.folder, buffering=0)  # noqa: SIM115
            offset = int(self._file.seek(0, os.SEEK_END))
            write_all(self._file, data)
        except OSError as error:
            if offset is not None:
                os.ftruncate(self._file.fileno(), offset)
            if error.errno not in FULL:
                raise StorageError(f"cannot write to the cache: {error} - at {self.folder}") from error
            if not self._warned:
                kept = f"{len(self._kept)} examples are kept, the others are decoded in every epoch"
                warnings.warn(f"no space left for the cache in {self.folder}: {kept}", stacklevel=2)
            self._warned = True
            return None
        return offset


def _copied(value: object) -> Value:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    return type(value)(_copied(item) for item in value) if isinstance(value, (list, tuple)) else value


def _size(value: object) -> int:
    if isinstance(value, Mapping):
        return _OVERHEAD + sum(map(_size, value.values()))
    if isinstance(value, (list, tuple)):
        return _OVERHEAD + sum(map(_size, value))
    return _OVERHEAD + (len(value) if isinstance(value, (str, bytes)) else getattr(value, "nbytes", 0))


def _taken_apart(value: object, parts: list[bytes]) -> Value:
    """What a value is, without its bytes; those are appended to `parts`."""
    if isinstance(value, Mapping):
        return {name: _taken_apart(item, parts) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value) is tuple, *(_taken_apart(item, parts) for item in value)]
    if value is None or isinstance(value, (bool, int, float)):
        return (None, value)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        parts.append(np.ascontiguousarray(value).tobytes())
        return (value.dtype, value.shape, isinstance(value, np.generic), len(parts[-1]))
    if isinstance(value, (str, bytes)):
        parts.append(value.encode() if isinstance(value, str) else value)
        return (type(value), len(parts[-1]))
    raise SchemaError(
        f"expected numbers, strings, arrays, lists and dicts, got {type(value).__name__}",
        "cache",
        "Convert it in the map",
    )


def _restored(shape: Value, buffer: memoryview, at: list[int]) -> Value:
    if isinstance(shape, dict):
        return {name: _restored(item, buffer, at) for name, item in shape.items()}
    if isinstance(shape, list):
        items = [_restored(item, buffer, at) for item in shape[1:]]
        return tuple(items) if shape[0] else items
    if shape[0] is None:
        return shape[1]
    first, at[0] = at[0], at[0] + shape[-1]
    part = buffer[first : at[0]]
    if isinstance(shape[0], np.dtype):
        array = np.frombuffer(part, shape[0]).reshape(shape[1])
        return array[()] if shape[2] else array
    return bytes(part).decode() if shape[0] is str else bytes(part)
