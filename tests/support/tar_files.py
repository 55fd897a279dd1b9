"""Tar shards for tests: made by Python's own tarfile, in each of its formats and wrappings."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Members = Iterable[tuple[str, bytes]]


def write_tar(path: Path, members: Members, *, mode: str = "w", format: int = tarfile.PAX_FORMAT) -> Path:
    """A tar of these members."""
    with tarfile.open(path, mode, format=format) as archive:  # type: ignore[call-overload]
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def jpeg(number: int) -> bytes:
    """A small image, another one for each number."""
    pixels = np.random.default_rng(number).integers(0, 256, (6 + number % 3, 5, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "jpeg")
    return out.getvalue()


def npy(array: Any) -> bytes:
    """An array in NumPy's format."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def sample(number: int) -> list[tuple[str, bytes]]:
    """One sample with a file of each kind."""
    files = {
        "jpg": jpeg(number),
        "cls": f"{number}\n".encode(),
        "txt": f"número {number}".encode(),
        "json": json.dumps({"n": number}).encode(),
        "npy": npy(np.arange(6, dtype=np.float32).reshape(2, 3) + number),
        "raw.bin": bytes([number % 256, 0, 255]),
    }
    return [(f"d/{number:05}.{extension}", data) for extension, data in files.items()]


def shards(folder: Path, counts: Iterable[int], *, name: str = "train-{:03}.tar", mode: str = "w") -> list[Path]:
    """Tars of so many samples each, numbered through."""
    paths, first = [], 0
    for number, count in enumerate(counts):
        members = [member for at in range(first, first + count) for member in sample(at)]
        paths.append(write_tar(folder / name.format(number), members, mode=mode))
        first += count
    return paths
