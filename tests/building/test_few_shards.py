"""Shards that are few are loaded in pieces, by all workers; no byte shows it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.built_datasets import contents

import penstock as ps
from penstock.building.spool import Spooled
from penstock.building.write import FEWEST, Task, cut


@given(st.integers(0, 300), st.integers(1, 40))
def test_pieces_are_the_shard_in_order(rows: int, count: int) -> None:
    task = Task("train", "shard", np.arange(rows)[::-1], [str(row) for row in range(rows)])
    pieces = cut(task, count)
    assert [row for piece in pieces for row in piece.task.rows.tolist()] == task.rows.tolist()
    assert [key for piece in pieces for key in piece.task.keys] == task.keys
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert len(pieces) == 1 or min(len(piece.task.rows) for piece in pieces) >= FEWEST
    assert len(pieces) <= count


class Loading:
    """Examples that say which process loaded them, some of them bad."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 400

    def __getitem__(self, number: int) -> dict[str, Any]:
        (self.folder / str(os.getpid())).touch()
        if number % 100 == 7:
            raise ValueError("no such thing")
        return {"number": number, "data": np.full(number, number, np.int16)}

    def key(self, number: int) -> str:
        return f"example-{number}"

    def stamp(self, number: int) -> str:
        return str(number)


@pytest.mark.parametrize("options", [{}, {"format": ps.TFRecord(compression="gzip")}, {"shards": 3, "order": "source"}])
def test_one_shard_is_loaded_by_all_workers(tmp_path: Path, options: dict[str, Any]) -> None:
    found = {}
    for workers in (1, 3):
        folder = tmp_path / f"processes-{workers}"
        folder.mkdir()
        source = ps.splits(train=Loading(folder), eval=[{"number": 9, "data": np.full(9, 9, np.int16)}])
        built = ps.build(source, tmp_path / str(workers) / "toy", workers=workers, on_error="quarantine", **options)
        found[workers] = contents(tmp_path / str(workers) / "toy"), built.bad, built.leaks, built.manifest.splits
        processes, own = set(os.listdir(folder)), str(os.getpid())
        assert processes == {own} if workers == 1 else len(processes) >= 3 and own not in processes
    assert found[1] == found[3]
    assert found[1][1:3] == (4, 1)


def test_what_a_shard_was_made_from_does_not_tell_of_pieces(tmp_path: Path) -> None:
    class Good(Loading):
        def __getitem__(self, number: int) -> dict[str, Any]:
            return {"number": number}

    ps.build(Good(tmp_path), tmp_path / "toy", workers=2)
    again = ps.build(Good(tmp_path), tmp_path / "toy", workers=1)
    assert (again.written, again.kept) == (0, 1)


def test_threads_share_a_spool_that_each_of_them_lets_go_of(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with ps.TFRecordWriter(path, index=True) as writer:
        writer.write_examples(ps.Codec({"x": "int64"}), [{"x": number} for number in range(50)])
    spooled = Spooled([(path, ps.Schema({"x": "int64"}))], most_held=0)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: spooled.records(np.array([row]))[0], list(range(50)) * 20))
    assert found == list(ps.TFRecordReader(path)) * 20
