"""Tasks that run twice at once, as they may on a cluster: one attempt counts, the other does no harm, however late."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import S3
from tests.support.built_datasets import contents

import penstock as ps
from penstock.building.targets.directory import sweep_temporary
from penstock.dataset.manifest import ATTEMPT, WORK


class Twice:
    """An engine that begins every item twice. The second attempt is held up, and ends when the build is long over."""

    remote = True
    progress = None
    processes = 2
    worker_memory = 1 << 28
    chunk_bytes = 1 << 20
    sync = True
    driver = ps.Local(workers=1)

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(64)
        self.late: list[Future[Any]] = []
        self.over = threading.Event()

    @contextmanager
    def start(self, destination: Path | str) -> Iterator[Twice]:
        yield self

    def map(self, function: Any, shared: Any, items: Iterable[Any], progress: Any) -> Generator[Any, None, None]:
        def held_up(examples: int, size: int) -> None:
            self.over.wait(30)

        for item in items:
            self.late.append(self.pool.submit(function, shared, item, held_up))
            yield item, function(shared, item, progress)


SOURCES: dict[str, Any] = {
    "listed": [{"x": number} for number in range(100)],
    "splits": ps.splits(train=[{"x": number} for number in range(50)], eval=[{"x": number} for number in range(9)]),
    "stream": lambda: ({"x": number} for number in range(100)),
    "columns": {"x": np.arange(100), "y": np.arange(100.0)},
    "dedupe": ps.dedupe([{"x": number % 30} for number in range(100)]),
}


@pytest.mark.parametrize("format", ["tfrecord", ["array_record", "tfrecord"]], ids=["one format", "two formats"])
@pytest.mark.parametrize("name", list(SOURCES))
def test_attempts_that_end_late_change_nothing(tmp_path: Path, name: str, format: Any) -> None:
    options: dict[str, Any] = {"shards": 4, "format": format}
    ps.build(SOURCES[name], tmp_path / "once" / "toy", **options)
    expected = contents(tmp_path / "once" / "toy")
    engine = Twice()
    ps.build(SOURCES[name], tmp_path / "twice" / "toy", engine=engine, **options)
    assert contents(tmp_path / "twice" / "toy") == expected
    assert len(engine.late) >= 4
    engine.over.set()
    engine.pool.shutdown()
    assert all(future.exception() is not None or future.result() for future in engine.late)
    assert contents(tmp_path / "twice" / "toy") == expected


@pytest.mark.parametrize("name", list(SOURCES))
def test_attempts_that_end_late_send_nothing_to_a_store(
    s3: str, s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All but streams, which one process reads and writes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    ps.build(SOURCES[name], tmp_path / "once" / "toy", shards=4)
    folder = s3_server.root / s3.removeprefix("s3://") / "toy"
    engine = Twice()
    ps.build(SOURCES[name], f"{s3}/toy", engine=engine, shards=4)
    assert contents(folder) == contents(tmp_path / "once" / "toy")
    changed = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    engine.over.set()
    engine.pool.shutdown()
    assert len(engine.late) >= 4 or name == "stream"
    assert all("under way" in str(future.exception()) for future in engine.late)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == changed
    assert not list((tmp_path / "home" / "penstock" / "builds").iterdir()), "nothing is left on this machine"


def test_a_dataset_in_a_store_is_closed_before_workers_replace_its_shards(
    s3: str, s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    manifest = s3_server.root / s3.removeprefix("s3://") / "toy" / "penstock.json"

    class Looks(Twice):
        def map(self, function: Any, shared: Any, items: Iterable[Any], progress: Any) -> Generator[Any, None, None]:
            assert not manifest.exists(), "readers would find shards of two datasets"
            yield from ((item, function(shared, item, progress)) for item in items)

    source = [{"x": number} for number in range(100)]
    ps.build(source, f"{s3}/toy", shards=4, workers=1)
    assert manifest.exists()
    ps.build(source, f"{s3}/toy", shards=4, seed=1, overwrite=True, engine=Looks())
    ps.build(source, tmp_path / "toy", shards=4, seed=1)
    assert contents(manifest.parent) == contents(tmp_path / "toy")


def test_what_attempts_leave_is_swept(tmp_path: Path) -> None:
    (tmp_path / WORK).mkdir()
    left = tmp_path / WORK / f"{ATTEMPT}0123456789abcdef-toy-train.tfrecord-00000-of-00001.index"
    left.touch()
    (tmp_path / WORK / "toy-train.tfrecord-00000-of-00001").touch()
    sweep_temporary(tmp_path, "toy")
    assert [path.name for path in (tmp_path / WORK).iterdir()] == ["toy-train.tfrecord-00000-of-00001"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"workers": 0}, "expected workers to be 1 or more, got 0"),
        ({"retries": -1}, "expected retries to be 0 or more, got -1"),
        ({"cpus": 0}, "expected cpus to be above 0, got 0"),
        ({"max_memory": "1G"}, "expected max_memory to be 1 or more, got '1G'"),
    ],
)
def test_options_of_a_cluster_are_checked(options: Any, expected: str) -> None:
    with pytest.raises(ps.SchemaError, match=expected):
        ps.Ray(**options)
