"""Ours, building TorNet from its files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.contenders.building import READ_BACK, build_job
from benchmarks.rows import Job, Setting
from benchmarks.sources import TORNET_FILES, Example


def _read(path: Path) -> tuple[int, Iterable[Example]]:
    import penstock

    dataset = penstock.load(path)
    splits = [dataset[name] for name in dataset]
    return sum(map(len, splits)), itertools.islice(itertools.chain.from_iterable(splits), READ_BACK)


def build(setting: Setting) -> Job:
    """The recipe, into ArrayRecord."""
    import penstock
    from penstock.recipes import tornet

    def write(items: list[Any], path: Path) -> None:
        root = setting.data.path(TORNET_FILES)
        tornet.build(root, path / "dataset", format="array_record", engine=penstock.Local(workers=2))

    return build_job(setting, "tornet", write, lambda path: _read(path / "dataset"))
