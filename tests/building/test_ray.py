"""Builds on a Ray cluster of three nodes: the bytes of one machine, whatever becomes of the others."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from services import S3
from tests.support.built_datasets import contents
from tests.support.raw_data import write_raw
from tests.support.ray_cluster import Cluster

import penstock as ps
from penstock.dataset.manifest import WORK

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(240)]

# A module beside the script, which the other machines do not have.
SOURCES = '''
import os, time
import numpy as np
import penstock as ps

class Slow:
    """Examples that take a while, and tell who loads them."""
    def __init__(self, count, seconds, notes=None):
        self.count, self.seconds, self.notes = count, seconds, notes
    def __len__(self):
        return self.count
    def __getitem__(self, number):
        time.sleep(self.seconds)
        if self.notes:
            open(f"{self.notes}/{number}-{os.getpid()}", "w").close()
        return {"x": number, "data": bytes([number % 256]) * 2000}

class Recording(ps.Example):
    name: ps.Skip[str]
    data: ps.Array[np.float32, None]
    def load(self):
        self.data = np.arange(50, dtype=np.float32) + int(self.name)
    def split(self):
        for first in range(0, 50, 10):
            yield self.replace(data=self.data[first : first + 10])

def stream():
    for number in range(300):
        yield {"x": number if number != 200 else 0.5}

class Fails(Slow):
    def __getitem__(self, number):
        if number == 7:
            raise Odd("first", "second")
        return {"x": number}

class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first)

class Crashes(Slow):
    def __getitem__(self, number):
        if number == 7:
            os._exit(3)
        return {"x": number}

class Sleeps(Slow):
    """One long call for each example but the first, which the driver looks at."""
    def __getitem__(self, number):
        if number:
            open(f"{self.notes}/{number}-{os.getpid()}", "w").close()
            time.sleep(600)
        return {"x": 0, "data": b""}

def made():
    both = ["array_record", "tfrecord"]
    table = {"a": np.arange(1000), "b": np.arange(1000.0)}
    recordings = [Recording(name=str(number)) for number in range(40)]
    yield "listed", Slow(60, 0), {"shards": 6, "format": both}
    yield "splits", ps.split(table, train=0.8, eval=0.2, seed=3), {"shards": 3}
    yield "many", recordings, {"shards": 4}
    yield "stream", stream, {"shards": 4}
    yield "dedupe", ps.dedupe([{"x": number % 20} for number in range(60)]), {"shards": 2}
    yield "full", [{"x": number if number != 50 else 0.5} for number in range(60)], {"shards": 4, "schema": "full"}
    yield "bad", Fails(20, 0), {"shards": 2, "on_error": "skip"}
'''
DRIVE = """
import sys
import penstock as ps
import sources
count, shards, seconds, notes = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
source = getattr(sources, sys.argv[6])(count, seconds, notes)
schema = {"x": "int64", "data": "bytes"} if sys.argv[6] in ("Slow", "Sleeps") else {"x": "int64"}
engine = ps.Ray(shared="://" not in sys.argv[1]) if sys.argv[7] == "ray" else ps.Local(workers=2)
ps.build(source, sys.argv[1], shards=shards, schema=schema, engine=engine)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(token="a token for tests") as started:
        started.script("sources.py", SOURCES)
        started.script("drive.py", DRIVE)
        yield started


@pytest.fixture(scope="module")
def store(cluster: Cluster, s3_server: S3) -> Iterator[S3]:
    """A real S3 that the nodes reach; nothing in their environment says where it is. (The other one is loopback's.)"""
    with S3(cluster.outside) as server:
        yield server


@pytest.fixture
def three(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whole again afterwards."""
    yield cluster
    cluster.kill("driver")
    lost = [node for node in (1, 2) if not cluster.processes(node)]
    for node in lost:
        cluster.remove(node)
        cluster.add(node)
    if lost:
        cluster.wait_for(3)


class Build:
    """A build of slow examples, by a driver on the head's node: into a directory, or into a bucket of a store."""

    def __init__(
        self,
        cluster: Cluster,
        path: Path,
        *,
        shards: int,
        seconds: float = 0.2,
        kind: str = "Slow",
        store: S3 | None = None,
    ) -> None:
        self.cluster = cluster
        self.path = path
        self.destination = str(path)
        self.environment = {}
        if store is not None:
            self.destination, self.path = new_place(store)
            self.environment = store.environment | {"XDG_CACHE_HOME": str(path.parent)}
        self.notes = path.parent / "notes"
        self.notes.mkdir(parents=True, exist_ok=True)
        self.told = [f"{10 * shards}", f"{shards}", f"{seconds}", str(self.notes), kind]

    def start(self, engine: str = "ray", **environment: str) -> subprocess.Popen[str]:
        script = str(self.cluster.code / "drive.py")
        environment = self.environment | environment
        return self.cluster.drive(script, self.destination, *self.told, engine, environment=environment)

    def finish(self, engine: str = "ray") -> None:
        ended(self.start(engine))

    def finished(self) -> int:
        """How many shards are in the journal."""
        journal = self.path / WORK / "journal.jsonl"
        lines = sum(1 for _ in (self.path / WORK).glob("*-shard.json"))  # of a store
        return lines or (journal.read_bytes().count(b'{"shard"') if journal.exists() else 0)

    def loading(self) -> set[str]:
        """The processes that have loaded an example."""
        return {note.name.partition("-")[2] for note in self.notes.iterdir()}


def new_place(store: S3, name: str = "toy") -> tuple[str, Path]:
    """The URL of a folder in a new bucket, and where its objects are as files."""
    bucket = store.new_bucket()
    return f"{bucket}/{name}", store.root / bucket.removeprefix("s3://") / name


def ended(process: subprocess.Popen[str], seconds: float = 180) -> str:
    _, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    return errors


def expected(path: Path, shards: int) -> dict[str, bytes]:
    """What one machine builds of the same examples."""
    rows = [{"x": number, "data": bytes([number % 256]) * 2000} for number in range(10 * shards)]
    ps.build(rows, path / "toy", shards=shards, schema={"x": "int64", "data": "bytes"}, workers=1)
    return contents(path / "toy")


def test_the_same_bytes_as_on_one_machine(three: Cluster, store: S3, tmp_path: Path) -> None:
    # The first build connects, and ships the module; the others use a connection that is there, and leave it.
    text = "import ray, sys, sources, penstock as ps\nfor name, source, options in sources.made():\n"
    text += "    shared = '://' not in sys.argv[1]\n"
    text += "    engine = ps.Ray(shared=shared) if sys.argv[2] == 'ray' else ps.Local(workers=2)\n"
    text += "    ps.build(source, f'{sys.argv[1]}/{name}', engine=engine, **options)\n"
    text += "    if name == 'listed' and sys.argv[2] == 'ray':\n        assert not ray.is_initialized()\n"
    text += "        ray.init(runtime_env={'py_modules': [sources.__file__]}, logging_level='error')\n"
    text += "assert sys.argv[2] != 'ray' or ray.is_initialized()\n"
    script = three.script("all.py", text)
    for engine in ("ray", "local"):
        ended(three.drive(script, str(tmp_path / engine), engine))
    url, there = new_place(store, "all")
    ended(three.drive(script, url, "ray", environment=store.environment | {"XDG_CACHE_HOME": str(tmp_path / "home")}))
    names = sorted(path.name for path in (tmp_path / "local").iterdir())
    assert len(names) == 7
    for name in names:
        assert contents(tmp_path / "ray" / name) == contents(tmp_path / "local" / name), name
        assert contents(there / name) == contents(tmp_path / "local" / name), name


def test_the_how_to_runs_as_written(three: Cluster, store: S3, tmp_path: Path, root: Path) -> None:
    page = (root / "docs" / "cluster.md").read_text(encoding="utf-8")
    scripts = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    assert sorted(scripts) == ["build.py", "readings.py"]
    for name, text in scripts.items():
        three.script(name, text)
    commands = re.findall(r"^\$ python (build\.py) (\S+)( --cluster)?( --shared)?\n(.*)$", page, re.MULTILINE)
    assert [path for _, path, *_ in commands] == ["data/readings", "s3://bucket/readings", "/mnt/data/readings"]
    assert [bool(cluster) for _, _, cluster, _, _ in commands] == [False, True, True]
    url, there = new_place(store, "readings")
    environment = store.environment | {"XDG_CACHE_HOME": str(tmp_path / "home")}
    for script, path, cluster, shared, printed in commands:
        place = url if path.startswith("s3") else str(tmp_path / path.lstrip("/"))
        words = [place, *cluster.split(), *shared.split()]
        process = three.drive(str(three.code / script), *words, environment=environment)
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert out.strip() == printed.replace(path, place)
    built = [contents(path) for path in (tmp_path / "data/readings", there, tmp_path / "mnt/data/readings")]
    assert built[0] == built[1] == built[2]


def test_the_line_for_ray_data_runs_as_written(three: Cluster, tmp_path: Path, root: Path) -> None:
    page = (root / "docs" / "cluster.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| Ray Data \| `(.*?)`", page, re.MULTILINE)
    ps.build({"x": np.arange(200)}, tmp_path / "toy", shards=4)
    text = "import sys, ray, penstock as ps\nray.init(logging_level='error')\nsplit = ps.load(sys.argv[1])['train']\n"
    text += f"print(sorted(row['x'] for row in {line}.take_all()) == list(range(200)))\n"
    out, errors = three.drive(three.script("data.py", text), str(tmp_path / "toy")).communicate(timeout=120)
    assert out.split() == ["True"], errors


def test_the_command_line(three: Cluster, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"{number},{number / 2}\n" for number in range(500)))
    code = "import sys; from penstock.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["build", str(tmp_path / "rows.csv"), str(tmp_path / "ray" / "toy"), "--shards", "4", "--json"]
    process = three.drive("-c", code, *words, "--engine", "ray", "--shared")
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert json.loads(out)["written"] == 4
    ps.build(ps.csv(tmp_path / "rows.csv"), tmp_path / "local" / "toy", shards=4)
    assert contents(tmp_path / "ray" / "toy") == contents(tmp_path / "local" / "toy")


def test_errors_are_those_of_one_machine(three: Cluster, tmp_path: Path) -> None:
    build = Build(three, tmp_path / "toy", shards=3, kind="Fails")
    _, errors = build.start().communicate(timeout=120)
    assert "penstock.errors.ExampleError: Odd: first - in example '7' of train" in errors
    build = Build(three, tmp_path / "crashing" / "toy", shards=3, kind="Crashes")
    _, errors = build.start().communicate(timeout=120)
    assert "BuildError: expected a worker to finish toy-train.tfrecord-0000" in errors
    assert "got 4 that ended on it, the last with WorkerCrashedError" in errors


def test_a_store_that_a_machine_may_not_use_is_found_before_any_work(three: Cluster, store: S3, tmp_path: Path) -> None:
    text = "import sys, penstock as ps\nwrong = {'env_vars': {'AWS_SECRET_ACCESS_KEY': 'another'}}\n"
    text += "ps.build([{'x': 1}], sys.argv[1], engine=ps.Ray(runtime_env=wrong))\n"
    url, there = new_place(store)
    environment = store.environment | {"XDG_CACHE_HOME": str(tmp_path)}
    process = three.drive(three.script("wrong.py", text), url, environment=environment)
    _, errors = process.communicate(timeout=120)
    assert "BuildError: expected a store that every machine reaches, got StorageError: Permission denied" in errors
    assert f": {url}" in errors
    assert not there.exists()


def test_a_cluster_without_the_token_says_what_to_set(three: Cluster, tmp_path: Path) -> None:
    build = Build(three, tmp_path / "toy", shards=3)
    process = build.start(RAY_AUTH_MODE="disabled", RAY_AUTH_TOKEN="")
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "If it asks for a token: set RAY_AUTH_MODE=token" in errors
    assert not (tmp_path / "toy").exists()


def test_a_destination_must_be_seen_by_every_machine(three: Cluster) -> None:
    if not three.apart:
        pytest.skip("nodes that share a network are one machine")
    text = "import sys, penstock as ps\nps.build([{'x': 1}], sys.argv[1], engine=ps.Ray(shared=len(sys.argv) > 2))\n"
    script = three.script("one.py", text)
    _, errors = three.drive(script, str(three.unshared / "toy")).communicate(timeout=120)
    assert "BuildError: expected a destination that every machine sees, got the path" in errors
    assert "a cluster of 3 machines. Build into a URL (s3://...), or pass shared=True" in errors
    _, errors = three.drive(script, str(three.unshared / "toy"), "shared").communicate(timeout=120)
    assert "BuildError: expected a mount that every machine has, got none there - at" in errors
    assert not (three.unshared / "toy").exists()


def test_another_version_on_a_machine_is_found_before_any_work(three: Cluster, tmp_path: Path) -> None:
    metadata = tmp_path / "packages" / "penstock_data-9.9.9.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: penstock-data\nVersion: 9.9.9\n")
    three.add(3, {"PYTHONPATH": str(tmp_path / "packages")})
    try:
        three.wait_for(4)
        build = Build(three, tmp_path / "built" / "toy", shards=3)
        _, errors = build.start().communicate(timeout=120)
    finally:
        three.remove(3)
    assert "expected penstock 0" in errors
    assert "on every machine, got penstock 9.9.9 - at" in errors
    assert not build.loading()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_is_stopped_leaves_nothing_running(three: Cluster, tmp_path: Path, number: int) -> None:
    """Not even workers that are in one long call, and so do not hear that they are asked to end."""
    build = Build(three, tmp_path / "toy", shards=6, kind="Sleeps")
    process = build.start()
    three.wait_until(lambda: len(build.loading()) == 3, 90, "no worker began")
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    if number == signal.SIGINT:
        assert "Build again to go on" in errors
    workers = build.loading()
    three.wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 15, "workers run on")


@pytest.mark.parametrize("where", ["a mount", "a store"])
def test_a_killed_driver_goes_on_from_the_journal(three: Cluster, store: S3, tmp_path: Path, where: str) -> None:
    build = Build(three, tmp_path / "toy", shards=12, seconds=0.1, store=store if where == "a store" else None)
    process = build.start()
    three.wait_until(lambda: build.finished() >= 4, 90, "nothing was finished")
    process.kill()
    process.communicate()
    assert not (build.path / "penstock.json").exists()
    kept = build.finished()
    before = len(list(build.notes.iterdir()))
    build.finish()
    assert contents(build.path) == expected(tmp_path / "local", 12)
    again = len(list(build.notes.iterdir())) - before
    assert again <= 10 * (12 - kept) + 30, "finished shards were built again"  # what was under way still ran a little


@pytest.mark.parametrize(
    ("how", "where"), [("killed", "a mount"), ("cut off", "a store"), ("cut off, by our watch", "a mount")]
)
def test_a_lost_node(
    three: Cluster, store: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str, where: str
) -> None:
    build = Build(three, tmp_path / "toy", shards=15, seconds=0.2, store=store if where == "a store" else None)
    # Without keepalive Ray itself would take minutes.
    slow = {"RAY_grpc_client_keepalive_time_ms": "300000"} if how == "cut off, by our watch" else {}
    process = build.start(**slow)
    try:
        three.wait_until(lambda: build.finished() >= 3, 90, "nothing was finished")
        time.sleep(0.7)  # into the next examples, which tell that they were loaded
        done = build.finished()
        lost = time.monotonic()
        three.kill(1) if how == "killed" else three.cut(1)
        ended(process)
        seconds = time.monotonic() - lost
        assert contents(build.path) == expected(tmp_path / "local", 15)
        loaded = [int(note.name.partition("-")[0]) for note in build.notes.iterdir()]
        twice = len(loaded) - len(set(loaded))
        assert twice > 1, "nothing was under way there"  # the driver has looked at one
        with capsys.disabled():
            ideal = (15 - done) * 10 * 0.2 / 2
            told = f"complete {seconds:.0f} s later, {ideal:.0f} s of work for the other two, {twice} examples twice"
            print(f"\none of 3 nodes {how}, into {where}: {told}")
    finally:
        process.kill()
        if how != "killed":
            three.heal(1)
    if how != "killed":  # what ran on there has nothing to write to any more
        time.sleep(3)
        assert contents(build.path) == expected(tmp_path / "again", 15)
        three.kill(1)


REMOTE = """
import sys
import penstock as ps
import penstock.sources.image_folder, penstock.sources.rows
raw, out, engine = sys.argv[1:]

def refuse(paths):
    raise AssertionError("the driver reads images")

if engine == "ray":  # nodes import the modules as they are
    sys.modules["penstock.sources.image_folder"].read_files = refuse
    sys.modules["penstock.sources.rows"].read_files = refuse
made = {
    "photos": ps.image_folder(f"{raw}/photos"),
    "rows": ps.csv(f"{raw}/rows.csv", image="picture"),
    "lines": ps.jsonl(f"{raw}/rows.jsonl"),
    "records": ps.tfrecords(f"{raw}/part-*.tfrecord"),
}
for name, source in made.items():
    workers = ps.Ray(shared="://" not in out) if engine == "ray" else ps.Local(workers=2)
    ps.build(source, f"{out}/{name}", shards=3, engine=workers)
"""


def test_nodes_fetch_sources_from_a_store(three: Cluster, store: S3, tmp_path: Path) -> None:
    url, there = new_place(store, "raw")
    write_raw(there)  # the store's files are those of a folder
    script = three.script("remote.py", REMOTE)
    environment = store.environment | {"XDG_CACHE_HOME": str(tmp_path / "home")}
    out, sent = new_place(store, "out")
    for place, engine in ((out, "ray"), (str(tmp_path / "ray"), "ray"), (str(tmp_path / "local"), "local")):
        ended(three.drive(script, url, place, engine, environment=environment))
    for name in ("photos", "rows", "lines", "records"):
        assert contents(sent / name) == contents(tmp_path / "local" / name), name
        assert contents(tmp_path / "ray" / name) == contents(tmp_path / "local" / name), name
