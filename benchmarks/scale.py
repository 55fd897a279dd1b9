"""A build too large for this machine: planned, journalled, committed and opened for real; the work is simulated.

    python -m benchmarks.scale [--examples 100000000] [--shards 100000] [--workers 1000]

The engine writes the first shard; of all others it leaves empty files and says what a worker would say. So the plan,
the journal, the names on the disk, the manifest and what a reader does are those of such a build. It ends with 1 if a
bound is missed: 60 s and 1 GB for plan and commit, 0.5 s to open, 0.1 s more to the first example.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.building.entries import ShardResult
from penstock.dataset.manifest import ATTEMPT, shard_files

BOUNDS = {"plan and commit, s": 60.0, "memory, MB": 1000.0, "open, s": 0.5, "first example, s": 0.1}
OPEN = """
import json, sys, time
import penstock as ps
ps.load, ps.Split  # the modules are imported: what is measured is the dataset
began = time.process_time()
dataset = ps.load(sys.argv[1])
opened = time.process_time()
example = dataset["train"][int(sys.argv[2])]
print(json.dumps([opened - began, time.process_time() - opened, int(example["x"])]))
"""


class Numbers:
    """As many examples as one likes."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, int]:
        return {"x": number}


class Simulated:
    """An engine whose workers have done nothing but the first shard."""

    remote = True
    progress = None
    worker_memory = 1 << 30
    chunk_bytes = 1 << 22
    sync = True
    driver = ps.Local(workers=1)

    def __init__(self, workers: int) -> None:
        self.processes = workers
        self.planned = self.worked = 0.0

    @contextmanager
    def start(self, destination: Path | str) -> Iterator[Simulated]:
        yield self

    def map(self, function: Any, shared: Any, items: Iterable[Any], progress: Any) -> Generator[Any, None, None]:
        self.planned = time.process_time()
        for number, task in enumerate(items):
            if not number:
                yield task, function(shared, task, progress)
                continue
            done = ShardResult(task.split, f"{ATTEMPT}{number:016x}-{task.file}", len(task.rows), 128 << 20, number)
            for name in shard_files(done.file):
                (shared.directory / name).touch()
            yield task, done
        self.worked = time.process_time()


def simulate(examples: int, shards: int, workers: int) -> dict[str, float]:
    """What each part takes."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-scale-"))
    try:
        engine = Simulated(workers)
        began = time.process_time()
        ps.build(Numbers(examples), folder / "toy", shards=shards, engine=engine)
        ended = time.process_time()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        manifest = (folder / "toy" / "penstock.json").stat().st_size
        opened = []
        for record in (0, 1, examples // shards - 1):  # of the shard that is there
            command = [sys.executable, "-c", OPEN, str(folder / "toy"), str(record)]
            opened.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
        return {
            "plan, s": engine.planned - began,
            "journal and names, s": engine.worked - engine.planned,
            "commit, s": ended - engine.worked,
            "plan and commit, s": engine.planned - began + ended - engine.worked,
            "memory, MB": memory,
            "manifest, MB": manifest / 1e6,
            "open, s": sorted(seconds for seconds, _, _ in opened)[1],
            "first example, s": sorted(seconds for _, seconds, _ in opened)[1],
        }
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.scale")
    for name, default in (("examples", 100_000_000), ("shards", 100_000), ("workers", 1_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    found = simulate(asked.examples, asked.shards, asked.workers)
    missed = [name for name, most in BOUNDS.items() if found[name] > most]
    print(f"{asked.examples:,} examples in {asked.shards:,} shards for {asked.workers:,} workers (processor time)")
    for name, value in found.items():
        bound = f"  at most {BOUNDS[name]:g}" if name in BOUNDS else ""
        print(f"  {name:22}{value:10.2f}{bound}{'  MISSED' if name in missed else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
