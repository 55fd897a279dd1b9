"""Tars of an AIStore become records of an AIStore on a Ray cluster, and no data passes through the driver."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from services import AIStore
from tests.support.tar_files import write_tar

import penstock as ps
from penstock.storage.open import open_store

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]

# Everything that the driver receives from the store goes through sockets of Python; Ray has its own.
DRIVER = """
import json, socket, sys
received = 0

class Counting(socket.socket):
    def recv_into(self, *arguments):
        global received
        count = super().recv_into(*arguments)
        received += count
        return count

    def recv(self, *arguments):
        global received
        data = super().recv(*arguments)
        received += len(data)
        return data

socket.socket = Counting
import ray
import penstock as ps

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
received = 0

tars, destination, where = sys.argv[1:]
engine = ps.Ray(workers=2)
source = ps.tar(tars, engine=engine if where == "workers" else None)
built = ps.build(source, destination, engine=engine)
print(json.dumps({"received": received, "examples": len(built["train"]), "schema": str(built.schema)}))
"""


def driven(tmp_path: Path, name: str, *arguments: str) -> dict[str, Any]:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    ray = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": "200"}
    environment = os.environ | ray | {"XDG_CACHE_HOME": str(tmp_path / name)}
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_no_data_passes_through_the_driver(ais: str, ais_server: AIStore, tmp_path: Path) -> None:
    total = 0
    for number in range(4):
        noise = random.Random(number)
        files = [(f"{number}-{n}.bin", noise.randbytes(1 << 20)) for n in range(4)]
        files += [(f"{number}-{n}.cls", b"%d" % (4 * number + n)) for n in range(4)]  # scattered
        path = write_tar(tmp_path / f"t-{number}.tar.gz", files, mode="w:gz")
        total += path.stat().st_size
        store, name = open_store(f"{ais}/t-{number}.tar.gz")
        store.send(path, name)
    tars = f"{ais}/t-{{0..3}}.tar.gz"
    found = driven(tmp_path, "one", tars, f"{ais}/records", "workers")
    assert found["examples"] == 16
    assert found["received"] < 1 << 19, f"{found['received']} bytes of {total} came to the driver"
    data = ps.load(f"{ais}/records", cache=tmp_path / "cache")["train"]
    assert sorted(example["cls"] for example in data) == list(range(16))
    for example in data:
        tar, n = divmod(int(example["cls"]), 4)
        noise = random.Random(tar)
        expected = [noise.randbytes(1 << 20) for _ in range(4)][n]
        assert example["bin"] == expected
    there = driven(tmp_path, "two", tars, f"{ais}/other", "driver")  # what the count is of a driver that lists them
    assert there["received"] > total
    assert there["schema"] == found["schema"]
