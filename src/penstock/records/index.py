"""Where each record of a shard begins: sidecars of our own, and the text files that DALI reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._core import Index, Shard, crc32c, offsets_from_dali
from ..errors import IndexMismatchError, PenstockError, StorageError
from ..storage.files import local_path

SUFFIX = ".index"
MAGIC = b"PENSTIDX"  # the first bytes of every index


def sidecar_path(path: str | os.PathLike[str]) -> Path:
    """Where the index of a shard is kept: beside it."""
    return local_path(os.fspath(path) + SUFFIX, "a record file")


def is_foreign(sidecar: Path) -> bool:
    """True for a file that is named like an index and is none, damaged or not: it is not replaced, and not deleted."""
    try:
        with sidecar.open("rb") as file:
            head = file.read(len(MAGIC))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return not MAGIC.startswith(head)


def existing_sidecar(path: str | os.PathLike[str]) -> Path | None:
    """The index beside a shard, if there is one."""
    sidecar = sidecar_path(path)
    return sidecar if sidecar.exists() else None


def write_index(path: str | os.PathLike[str], *, progress: Callable[[int], object] | None = None) -> Index:
    """Make a shard's index and keep it beside the shard. The whole file is read once, for its checksum."""
    index = Shard(path, progress=progress).index(progress)
    index.write(sidecar_path(path))
    return index


def read_index(path: str | os.PathLike[str]) -> Index:
    """The index that is kept beside a shard."""
    return Index.read(sidecar_path(path))


def export_dali(path: str | os.PathLike[str], idx_path: str | os.PathLike[str]) -> None:
    """Write the `.idx` file that DALI reads: a line of offset and length for each record."""
    local_path(idx_path, "an index").write_text(Shard(path, sidecar_path(path)).index().to_dali(), encoding="ascii")


def import_dali(path: str | os.PathLike[str], idx_path: str | os.PathLike[str]) -> Index:
    """Keep the index of a shard that has one of DALI's; both must agree."""
    # Bytes that are no ASCII are no number either: they are refused with the line they stand in.
    offsets = offsets_from_dali(Path(idx_path).read_bytes().decode("ascii", "backslashreplace"))
    index = Shard(path).index()
    if index.offsets.tolist() != offsets.tolist():
        found, declared = len(index), len(offsets) - 1
        raise IndexMismatchError(
            f"expected the {found} records of the shard, got others ({declared}) in the index", str(idx_path)
        )
    index.write(sidecar_path(path))
    return index


BLOCK = 1 << 22


@dataclass(frozen=True)
class IndexReport:
    """An index beside a shard, and what does not fit."""

    path: str
    problems: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the shard can be read by it."""
        return not self.problems


def dali_path(path: str | os.PathLike[str]) -> Path:
    """Where the `.idx` of a shard is kept: beside it."""
    path = Path(path)
    return path.with_name(path.name + ".idx")


def check_indexes(
    path: str | os.PathLike[str], whole: bool, *, progress: Callable[[int], object] | None = None
) -> list[IndexReport]:
    """A report on each index beside a shard. Offsets are compared with the shard's own if it is `whole`."""
    ours, dali = sidecar_path(path), dali_path(path)
    offsets = Shard(path).offsets if whole and (ours.exists() or dali.exists()) else None
    reports = []
    if ours.exists():
        reports.append(IndexReport(str(ours), tuple(_problems(Path(path), ours, offsets, progress))))
    if dali.exists():
        reports.append(IndexReport(str(dali), tuple(_dali_problems(dali, offsets))))
    return reports


def _problems(
    path: Path,
    sidecar: Path,
    offsets: np.ndarray[tuple[int], np.dtype[np.uint64]] | None,
    progress: Callable[[int], object] | None,
) -> list[str]:
    try:
        index = Index.read(sidecar)
    except StorageError:
        raise
    except PenstockError as error:
        return [str(error)]
    size = path.stat().st_size
    if index.shard_size != size:
        return [f"expected a shard of {index.shard_size} bytes, got {size}"]
    problems = []
    found = checksum(path, progress)
    if index.shard_crc32c != found:
        problems.append(f"expected a shard with CRC-32C {index.shard_crc32c:#010x}, got {found:#010x}")
    if offsets is not None and not np.array_equal(index.offsets, offsets):
        problems.append(f"expected {len(offsets) - 1} records where the shard has them, got other offsets")
    return problems


def _dali_problems(path: Path, offsets: np.ndarray[tuple[int], np.dtype[np.uint64]] | None) -> list[str]:
    try:
        declared = offsets_from_dali(path.read_text(encoding="ascii", errors="replace"))
    except StorageError:
        raise
    except PenstockError as error:
        return [str(error)]
    if offsets is not None and not np.array_equal(declared, offsets):
        return [f"expected {len(offsets) - 1} records where the shard has them, got other offsets"]
    return []


def checksum(path: Path, progress: Callable[[int], object] | None = None) -> int:
    """The CRC-32C of a file."""
    value = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            value = crc32c(block, value)
            if progress is not None:
                progress(file.tell())
    return value
