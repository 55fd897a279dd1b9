"""torch's own DataLoader, with two workers that live through all epochs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.loading import PIXELS, epoch_job, numpy_columns
from benchmarks.data import BATCH, GENERATED
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES, Example


class Rows:
    """Arrays in memory, an example for each row: what TensorDataset does, with names."""

    def __init__(self, folder: Path, count: int) -> None:
        import torch

        names = ("cat", "dense", "label")
        self.columns = {name: torch.from_numpy(np.load(folder / f"{name}.npy")[:count]) for name in names}

    def __len__(self) -> int:
        return len(self.columns["label"])

    def __getitem__(self, index: int) -> Example:
        return {name: column[index] for name, column in self.columns.items()}


class Pictures:
    """Image files, decoded and resized by Pillow."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Example:
        from PIL import Image

        file = self.files[index]
        with Image.open(file) as picture:
            pixels = np.array(picture.resize(PIXELS[::-1], Image.Resampling.BILINEAR))
        return {"image": pixels, "label": int(file.parent.name.removeprefix("class_"))}


def load(workload: str, *, shuffle: bool = False) -> Callable[[Setting], Job]:
    """An epoch of W1 or W4."""

    def build(setting: Setting) -> Job:
        from torch.utils.data import DataLoader

        data = setting.data
        dataset: Any
        if workload == "w1":
            dataset = Rows(data.path(GENERATED["w1"]), data.size.w1)
        else:
            dataset = Pictures(SOURCES["images"].items(data))
        loader = DataLoader(
            dataset,
            batch_size=BATCH["w1" if workload == "w1" else "w3"],
            shuffle=shuffle,
            num_workers=setting.threads,
            persistent_workers=True,
        )
        return epoch_job(setting, workload, lambda: loader, numpy_columns)

    return build
