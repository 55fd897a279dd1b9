"""Loading on many hosts, as users meet it: real processes under torch.distributed and jax.distributed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(240)]

COUNT = 1003
# Starts `count` hosts. Each takes batches, notes what it has seen, and at the end all exchange their states, which the
# first one writes down. `doomed` is a host that ends, as if by a power cut, two steps after it has left a checkpoint.
HOSTS = """
import json, os, signal, sys
framework, path, folder, count, steps, port, doomed = sys.argv[1:]
count, steps, doomed = int(count), int(steps), int(doomed)
if framework == "torch":
    import torch.distributed
else:
    import jax
    import jax.experimental.multihost_utils
import numpy as np
import penstock as ps

def train():
    return ps.load(path)["train"].shuffle(seed=7).batch(4)

def torch_host(rank):
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=count)
    dataset = train().to_torch()  # knows its rank by itself
    if state := checkpoint():
        dataset.load_state_dict(state)
    def exchange():
        states = [None] * count
        torch.distributed.all_gather_object(states, dataset.state_dict())
        return states
    return dataset, exchange

def jax_host(rank):
    jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    loader = train().shard(jax.process_index(), jax.process_count()).to_jax()
    loader = loader.resume(state) if (state := checkpoint()) else loader
    iterator = iter(loader)
    def exchange():
        told = np.zeros(2048, np.uint8)
        state = json.dumps(iterator.state()).encode()
        told[:len(state)] = list(state)
        gathered = jax.experimental.multihost_utils.process_allgather(told)
        return [json.loads(bytes(np.asarray(each)).rstrip(b"\\0")) for each in gathered]
    return iterator, exchange

def checkpoint():
    file = f"{folder}/checkpoint.json"
    return json.load(open(file)) if os.path.exists(file) else None

def save(states, rank):
    if rank == 0:
        json.dump(states, open(f"{folder}/checkpoint.json.new", "w"))
        os.replace(f"{folder}/checkpoint.json.new", f"{folder}/checkpoint.json")

def host(rank):
    items, exchange = (torch_host if framework == "torch" else jax_host)(rank)
    seen = []
    for step, batch in enumerate(items, 1):
        seen += np.asarray(batch["id"]).tolist()
        if step == steps:
            states = exchange()
            save(states, rank)
            json.dump(seen, open(f"{folder}/seen-{rank}.json", "w"))
            if doomed < 0:
                break
        if step == steps + 2 and rank == doomed:
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        if doomed < 0:  # else what came after the checkpoint is lost with the job
            json.dump(seen, open(f"{folder}/seen-{rank}.json", "w"))
    sys.stdout.flush()
    os._exit(0)

hosts = {}
for rank in range(count):
    if not (child := os.fork()):
        try:
            host(rank)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    hosts[child] = rank
failed = []
while hosts:
    child, status = os.wait()
    rank = hosts.pop(child)
    if status and not failed:  # as launchers do: one that fails ends all
        for other in hosts:
            os.kill(other, signal.SIGKILL)
    if status:
        failed.append((rank, status))
print(json.dumps(failed))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hosts") / "toy"
    ps.build([{"id": number} for number in range(COUNT)], path, shards=5)
    return path


class Job:
    """Hosts that start, train and end together; what they have seen up to their last checkpoint counts."""

    def __init__(self, framework: str, dataset: Path, folder: Path) -> None:
        self.told = [sys.executable, "-c", HOSTS, framework, str(dataset), str(folder)]
        self.folder = folder

    def run(self, hosts: int, steps: int, doomed: int = -1) -> tuple[list[int], Any]:
        """What was seen, and which hosts failed."""
        for file in self.folder.glob("seen-*.json"):
            file.unlink()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
        command = [*self.told, str(hosts), str(steps), str(port), str(doomed)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        seen = [number for file in self.folder.glob("seen-*.json") for number in json.loads(file.read_text())]
        return seen, json.loads(done.stdout.splitlines()[-1]) or done.stderr


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_eight_then_three_then_five_processes(dataset: Path, tmp_path: Path, framework: str) -> None:
    job = Job(framework, dataset, tmp_path)
    first, _ = job.run(8, 9)
    second, _ = job.run(3, 20)
    third, _ = job.run(5, 1 << 30)  # to the end
    assert (len(first), len(second)) == (8 * 9 * 4, 3 * 20 * 4)
    assert Counter(first + second + third) == Counter(range(COUNT))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_killed_host_and_a_restart_from_the_checkpoint(dataset: Path, tmp_path: Path, framework: str) -> None:
    job = Job(framework, dataset, tmp_path)
    before, failed = job.run(4, 20, doomed=2)
    assert [2, 9] in failed
    after, _ = job.run(4, 1 << 30)
    assert len(before) == 4 * 20 * 4
    assert Counter(before + after) == Counter(range(COUNT))
