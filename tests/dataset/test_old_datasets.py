"""Datasets of an earlier version load, verify and resume as they did.

`tests/data/old_datasets.zip` holds datasets built before the packages were redrawn; `old_datasets.json` has the
state of a loader after two batches of epoch 1, and the batches that came after it.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.records.shard import verify

DATA = Path(__file__).resolve().parents[1] / "data"
EXPECTED: dict[str, Any] = json.loads((DATA / "old_datasets.json").read_text())
# The path below the folder, the loader, and the field whose values are recorded.
LOADERS: dict[str, tuple[str, Callable[[ps.Split], ps.Loader], str]] = {
    "gzip": ("gzip", lambda split: split.shuffle(seed=7).batch(4), "id"),
    "array_record": ("array_record", lambda split: split.shuffle(seed=7, window=6).batch(4), "id"),
    "plain": ("plain", lambda split: split.shuffle(seed=3).select("id").batch(4), "id"),
    "tar": ("tar/part-000.tar", lambda split: split.shuffle(seed=5).batch(2), "txt"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(DATA / "old_datasets.zip") as archive:
        archive.extractall(path)
    return path


def values(batch: dict[str, Any], field: str) -> list[Any]:
    column = batch[field]
    return list(column.to_list() if hasattr(column, "to_list") else np.asarray(column).tolist())


@pytest.mark.parametrize("name", LOADERS)
def test_a_state_of_an_earlier_version_resumes(name: str, folder: Path) -> None:
    path, make, field = LOADERS[name]
    loader, expected = make(ps.load(folder / path)["train"]), EXPECTED[name]
    assert [values(batch, field) for batch in loader.resume(expected["state"])] == expected["rest"]
    with iter(loader.epoch(1)) as iteration:
        next(iteration), next(iteration)
        assert iteration.state() == expected["state"]
        assert [values(batch, field) for batch in iteration] == expected["rest"]


@pytest.mark.parametrize("name", LOADERS)
def test_an_old_dataset_holds_its_examples(name: str, folder: Path) -> None:
    path, _, field = LOADERS[name]
    dataset = ps.load(folder / path)
    found = sorted(example[field] for split in dataset.values() for example in split)
    assert found == ([f"text {i}" for i in range(8)] if name == "tar" else list(range(24)))
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301
    assert values(again["train"][:3], field) == values(dataset["train"][:3], field)


@pytest.mark.parametrize("name", LOADERS)
def test_an_old_dataset_verifies(name: str, folder: Path) -> None:
    path = folder / LOADERS[name][0]
    files = [path] if path.is_file() else sorted(path.iterdir())
    shards = [file for file in files if file.suffix in (".tfrecord", ".tar") or "-of-" in file.suffix]
    assert len(shards) >= 1
    for shard in shards:
        report = verify(shard)
        assert report.whole, report
    if (path / "penstock.json").is_file():
        from penstock.dataset.manifest import read_manifest
        from penstock.dataset.provenance import file_problems

        manifest = read_manifest(path)
        assert file_problems(path, manifest) == {}
        first = next(iter(manifest.splits))
        where = ps.place_of_record(path, first, 0)
        assert ps.places_of(path, where.key)[0] == where


def test_the_data_is_small() -> None:
    assert sum(file.stat().st_size for file in DATA.glob("old_datasets.*")) < 100_000
