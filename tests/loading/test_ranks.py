"""Two processes under torchrun: over both each example comes once, whoever deals the batches to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

pytest.importorskip("torch")

COUNT = 1000

# What each rank does: CASE makes a loader of batches or examples, and yields what it is given.
RANK = """
import json, os, sys
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
import penstock as ps

def ids(batches):
    return [[int(i) for i in batch["id"].reshape(-1)] for batch in batches]

def main():
    train = ps.load(sys.argv[1])["train"]
    shuffled = train.shuffle(seed=7)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    told = {}
{CASE}
    with open(f"{sys.argv[2]}/{rank}.json", "w") as file:
        json.dump(told, file)
    if dist.is_initialized():
        dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "d"
    ps.build([{"id": i} for i in range(COUNT)], path, shards=4, workers=1)
    return path


def run_ranks(case: str, dataset: Path, folder: Path, ranks: int = 2) -> list[Any]:
    """What each rank was given."""
    script = folder / "rank.py"
    script.write_text(RANK.replace("{CASE}", case))
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *run, script, dataset, folder],
        env=environment, capture_output=True, text=True, timeout=590, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


BATCHES = "DataLoader(shuffled.batch(50).to_torch(), batch_size=None{MORE})"
EXAMPLES = "DataLoader(shuffled.to_torch(), batch_size=50{MORE})"
NUMBERED = "DataLoader(train, batch_size=50, shuffle=True)"  # torch picks the examples of a split by number
WORKERS = ", num_workers=2, multiprocessing_context={WAY!r}, persistent_workers=True"

# Options of Accelerate, a loader, more options of that, and its length once it is prepared.
PREPARED = {
    "batches": ("", BATCHES, "", 10),
    "examples": ("", EXAMPLES, "", 10),
    "numbers": ("", NUMBERED, "", 10),
    "dispatch": ("dispatch_batches=True", BATCHES, "", 10),
    "own": ("dispatch_batches=False", EXAMPLES, "", 10),
    "split": ("split_batches=True", EXAMPLES, "", 20),
    "split, own": ("split_batches=True, dispatch_batches=False", EXAMPLES, "", 20),
    "forked": ("", BATCHES, WORKERS.replace("{WAY!r}", "'fork'"), 10),
    "spawned": ("", BATCHES, WORKERS.replace("{WAY!r}", "'spawn'"), 10),
    "own, forked": ("dispatch_batches=False", EXAMPLES, WORKERS.replace("{WAY!r}", "'fork'"), 10),
    "own, spawned": ("dispatch_batches=False", EXAMPLES, WORKERS.replace("{WAY!r}", "'spawn'"), 10),
}

ACCELERATE = """
    from accelerate import Accelerator, DataLoaderConfiguration
    from penstock import ArgumentError

    def prepared(loader, **options):
        return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options)).prepare(loader)
{CASES}
    loader = prepared(DataLoader(shuffled.shard(0, 1).batch(50).to_torch(), batch_size=None))
    told["shard(0, 1)"] = {"epochs": [ids(loader) for _ in range(2)], "len": len(loader)}
    told["alone"] = ids(shuffled.shard(0, 1).batch(50).to_torch())
    told["dealt"] = ids(shuffled.batch(50).to_torch())
    inner = []
    for batch in loader:  # another loader in the body of the loop
        inner = inner or ids(DataLoader(shuffled.batch(50).to_torch(), batch_size=None))
    told["inner"] = inner
    try:
        ids(prepared(DataLoader(shuffled.shard(rank, world).batch(50).to_torch(), batch_size=None)))
    except ArgumentError as error:
        told["error"] = str(error)
    whole = shuffled.shard(0, 1).batch(50)
    iterator = iter(whole)
    before = ids(next(iterator) for _ in range(4))
    loader = prepared(DataLoader(whole.resume(iterator.state()).to_torch(), batch_size=None))
    told["resumed"] = {"epochs": [(before if rank == 0 else []) + ids(loader), ids(loader)]}
"""

TORCH = """
    dist.init_process_group("gloo")
    for way in ("", "fork", "spawn"):
        more = {"num_workers": 2, "multiprocessing_context": way, "persistent_workers": True} if way else {}
        loader = DataLoader(shuffled.batch(50).to_torch(), batch_size=None, **more)
        told[way] = {"epochs": [ids(loader) for _ in range(2)]}
        if way != "spawn":
            own = DataLoader(shuffled.shard(rank, world).batch(50).to_torch(), batch_size=None, **more)
            told[f"own {way}"] = {"epochs": [ids(own) for _ in range(2)]}
"""

TRAINER = """
    from transformers import Trainer, TrainingArguments
    seen, evaluated = [], []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(1, 1)
        def forward(self, id, labels=None):
            (seen if self.training else evaluated).append(id.reshape(-1).tolist())
            out = self.line(id.reshape(-1, 1).float() / 1000)
            return {"loss": (out - 0.5).square().mean(), "logits": out}

    def with_labels(row):
        return {**row, "labels": row["id"]}

    for config in (None, {"dispatch_batches": False}):
        seen.clear(), evaluated.clear()
        arguments = TrainingArguments(
            output_dir=sys.argv[2], num_train_epochs=2, per_device_train_batch_size=50, per_device_eval_batch_size=50,
            report_to=[], save_strategy="no", logging_strategy="no", use_cpu=True, disable_tqdm=True,
            remove_unused_columns=False, ddp_backend="gloo", accelerator_config=config,
        )
        examples, others = (each.map(with_labels).to_torch() for each in (shuffled, train))
        trainer = Trainer(Model(), arguments, train_dataset=examples, eval_dataset=others)
        steps = trainer.train().global_step
        predicted = len(trainer.predict(others).predictions)
        epochs = [seen[: len(seen) // 2], seen[len(seen) // 2 :]]
        told[str(config)] = {"epochs": epochs, "evaluated": [evaluated[:]], "counts": [steps, predicted]}
"""


def check_once(told: list[Any], name: str, *, even: bool = True) -> None:
    """Over all ranks each example comes once in each epoch, in an order of its own."""
    epochs = list(zip(*(rank[name]["epochs"] for rank in told), strict=True))
    for epoch in epochs:
        counted = Counter(number for rank in epoch for batch in rank for number in batch)
        assert counted == Counter(range(COUNT))
        assert not even or [sum(map(len, rank)) for rank in epoch] == [COUNT // len(told)] * len(told)
    assert epochs[0] != epochs[1]


@pytest.fixture(scope="module")
def accelerated(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """All that one run under torchrun was given: starting it is what takes long."""
    pytest.importorskip("accelerate")
    cases = ""
    for name, (options, loader, more, _) in PREPARED.items():
        made = f"prepared({loader.replace('{MORE}', more)}{', ' if options else ''}{options})"
        cases += f"    loader = {made}\n"
        cases += f'    told[{name!r}] = {{"epochs": [ids(loader) for _ in range(2)], "len": len(loader)}}\n'
    return run_ranks(ACCELERATE.replace("{CASES}", cases), dataset, tmp_path_factory.mktemp("accelerated"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*PREPARED, "shard(0, 1)"])
def test_accelerate(name: str, accelerated: list[Any]) -> None:
    check_once(accelerated, name)
    length = PREPARED[name][3] if name in PREPARED else 10
    assert [rank[name]["len"] for rank in accelerated] == [length] * 2


def test_accelerate_goes_on_where_a_loader_was_resumed(accelerated: list[Any]) -> None:
    """Accelerate calls set_epoch(0) before the first epoch."""
    check_once(accelerated, "resumed", even=False)


def test_loaders_beside_those_that_accelerate_prepared(accelerated: list[Any]) -> None:
    for rank in accelerated:
        assert sorted(number for batch in rank["alone"] for number in batch) == list(range(COUNT))
        assert "Accelerate gives each rank its part" in rank["error"]
        assert "Remove shard()" in rank["error"]
    for name in ("dealt", "inner"):
        assert Counter(n for rank in accelerated for batch in rank[name] for n in batch) == Counter(range(COUNT)), name


@pytest.mark.timeout(600)
def test_torch_distributed(dataset: Path, tmp_path: Path) -> None:
    told = run_ranks(TORCH, dataset, tmp_path)
    for name in ("", "fork", "spawn", "own ", "own fork"):
        check_once(told, name)


@pytest.mark.timeout(600)
def test_trainer(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    told = run_ranks(TRAINER, dataset, tmp_path)
    for config in ("None", "{'dispatch_batches': False}"):
        check_once(told, config)
        assert [rank[config]["counts"] for rank in told] == [[20, COUNT]] * 2
        evaluated = (
            number for rank in told for epoch in rank[config]["evaluated"] for some in epoch for number in some
        )
        assert Counter(evaluated) == Counter(range(COUNT))
