"""Where each record of a shard begins: sidecars of our own, and the text files that DALI reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .._core import Index, Shard, offsets_from_dali
from ..errors import IndexMismatchError
from ..storage import local_path

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
