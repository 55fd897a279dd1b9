"""Open the target of a build: a local directory, or a folder of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...dataset.tfds import dataset_directory
from .directory import Folder


def open_target(path: str | Path, info: Any, *, published: bool = True) -> Folder:
    """What a path or a URL stands for."""
    directory = dataset_directory(path, info)
    if isinstance(directory, Path):
        return Folder(directory, published=published)
    from .store import StoreFolder

    return StoreFolder(directory)
