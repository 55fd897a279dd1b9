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

ACCELERATE = """
    from accelerate import Accelerator, DataLoaderConfiguration
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration({OPTIONS}))
    loader = accelerator.prepare({LOADER})
    told["len"] = len(loader)
    told["epochs"] = [ids(loader) for _ in range(2)]
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "d"
    ps.build([{"id": i} for i in range(COUNT)], path, shards=4, workers=1)
    return path


def run_ranks(case: str, dataset: Path, folder: Path, ranks: int = 2) -> tuple[list[Any], str]:
    """What each rank was given, and all that was printed."""
    script = folder / "rank.py"
    body = "\n".join(f"    {line}" if not line.startswith("    ") and line else line for line in case.splitlines())
    script.write_text(RANK.replace("{CASE}", body))
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *run, script, dataset, folder],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)], done.stdout + done.stderr


def check_once(told: list[Any], *, orders: bool = True) -> None:
    """Over all ranks each example comes once in each epoch, in an order of its own."""
    epochs = list(zip(*(rank["epochs"] for rank in told), strict=True))
    for epoch in epochs:
        counted = Counter(number for rank in epoch for batch in rank for number in batch)
        assert counted == Counter(range(COUNT))
        assert [sum(map(len, rank)) for rank in epoch] == [COUNT // len(told)] * len(told)
    if orders:
        assert epochs[0] != epochs[1]


BATCHES = "DataLoader(shuffled.batch(50).to_torch(), batch_size=None{MORE})"
EXAMPLES = "DataLoader(shuffled.to_torch(), batch_size=50{MORE})"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("options", "loader", "length"),
    [
        pytest.param("", BATCHES, 10, id="default"),
        pytest.param("", EXAMPLES, 10, id="torch makes the batches"),
        pytest.param("dispatch_batches=True", BATCHES, 10, id="dispatch_batches"),
        pytest.param("dispatch_batches=False", EXAMPLES, 10, id="each rank picks its own"),
        pytest.param("split_batches=True", EXAMPLES, 20, id="split_batches"),
        pytest.param("split_batches=True, dispatch_batches=False", EXAMPLES, 20, id="split_batches, own"),
    ],
)
def test_accelerate(options: str, loader: str, length: int, dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    case = ACCELERATE.replace("{OPTIONS}", options).replace("{LOADER}", loader.replace("{MORE}", ""))
    told, _ = run_ranks(case, dataset, tmp_path)
    check_once(told)
    assert [rank["len"] for rank in told] == [length] * 2


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["fork", "spawn"])
@pytest.mark.parametrize(("options", "loader"), [("", BATCHES), ("dispatch_batches=False", EXAMPLES)])
def test_accelerate_with_workers(way: str, options: str, loader: str, dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    more = f", num_workers=2, multiprocessing_context='{way}', persistent_workers=True"
    case = ACCELERATE.replace("{OPTIONS}", options).replace("{LOADER}", loader.replace("{MORE}", more))
    told, _ = run_ranks(case, dataset, tmp_path)
    check_once(told)


@pytest.mark.timeout(300)
def test_accelerate_and_shard(dataset: Path, tmp_path: Path) -> None:
    """shard(0, 1) is left alone, shard(rank, world) is one dealer too many; a loader that is not prepared is dealt."""
    pytest.importorskip("accelerate")
    case = """
    from accelerate import Accelerator
    from penstock import SchemaError
    accelerator = Accelerator(cpu=True)
    told["epochs"] = []
    for loader in (shuffled.shard(0, 1), shuffled):
        loader = accelerator.prepare(DataLoader(loader.batch(50).to_torch(), batch_size=None))
        told["epochs"].append(ids(loader))
    told["alone"] = ids(shuffled.shard(0, 1).batch(50).to_torch())
    told["dealt"] = ids(shuffled.batch(50).to_torch())
    inner = []
    for batch in loader:  # another loader in the body of the loop
        inner = inner or ids(DataLoader(shuffled.batch(50).to_torch(), batch_size=None))
    told["inner"] = inner
    try:
        ids(accelerator.prepare(DataLoader(shuffled.shard(rank, world).batch(50).to_torch(), batch_size=None)))
    except SchemaError as error:
        told["error"] = str(error)
    """
    told, _ = run_ranks(case, dataset, tmp_path)
    check_once(told, orders=False)
    for rank in told:
        assert sorted(number for batch in rank["alone"] for number in batch) == list(range(COUNT))
        assert "Accelerate gives each rank its part" in rank["error"]
        assert "Remove shard()" in rank["error"]
    for name in ("dealt", "inner"):
        assert Counter(n for rank in told for batch in rank[name] for n in batch) == Counter(range(COUNT)), name


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["", "fork", "spawn"])
def test_torch_distributed(way: str, dataset: Path, tmp_path: Path) -> None:
    more = f", num_workers=2, multiprocessing_context='{way}'" if way else ""
    case = f"""
    dist.init_process_group("gloo")
    loader = {BATCHES.replace("{MORE}", more)}
    told["epochs"] = [ids(loader) for _ in range(2)]
    own = DataLoader(shuffled.shard(rank, world).batch(50).to_torch(), batch_size=None{more})
    told["own"] = ids(own)
    """
    told, _ = run_ranks(case, dataset, tmp_path)
    check_once(told)
    assert Counter(number for rank in told for batch in rank["own"] for number in batch) == Counter(range(COUNT))


@pytest.mark.timeout(300)
def test_accelerate_goes_on_where_a_loader_was_resumed(dataset: Path, tmp_path: Path) -> None:
    """Accelerate calls set_epoch(0) before the first epoch."""
    pytest.importorskip("accelerate")
    case = """
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    whole = shuffled.shard(0, 1).batch(50)
    iterator = iter(whole)
    before = ids(next(iterator) for _ in range(4))
    loader = accelerator.prepare(DataLoader(whole.resume(iterator.state()).to_torch(), batch_size=None))
    told["epochs"] = [(before if rank == 0 else []) + ids(loader), ids(loader)]
    """
    told, _ = run_ranks(case, dataset, tmp_path)
    for epoch in zip(*(rank["epochs"] for rank in told), strict=True):
        assert Counter(number for rank in epoch for batch in rank for number in batch) == Counter(range(COUNT))


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

    arguments = TrainingArguments(
        output_dir=sys.argv[2], num_train_epochs=2, per_device_train_batch_size=50, per_device_eval_batch_size=50,
        report_to=[], save_strategy="no", logging_strategy="no", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
        ddp_backend="gloo"{OPTIONS},
    )
    examples = shuffled.map(lambda row: {**row, "labels": row["id"]}).to_torch()
    trainer = Trainer(Model(), arguments, train_dataset=examples, eval_dataset=train.map(lambda row: {**row, "labels": row["id"]}).to_torch())
    told["steps"] = trainer.train().global_step
    predicted = trainer.predict(trainer.eval_dataset)
    told["predicted"] = len(predicted.predictions)
    told["epochs"] = [seen[:len(seen) // 2], seen[len(seen) // 2:]]
    told["evaluated"] = evaluated
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", ["", ', accelerator_config={"dispatch_batches": False}'])
def test_trainer(options: str, dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    told, _ = run_ranks(TRAINER.replace("{OPTIONS}", options), dataset, tmp_path)
    check_once(told)
    assert [(rank["steps"], rank["predicted"]) for rank in told] == [(20, COUNT)] * 2
    assert Counter(n for rank in told for batch in rank["evaluated"] for n in batch) == Counter(range(COUNT))


@pytest.mark.timeout(300)
def test_a_split_as_torchs_own_kind_of_dataset(dataset: Path, tmp_path: Path) -> None:
    """Where torch picks the examples by number, Accelerate divides the numbers."""
    pytest.importorskip("accelerate")
    loader = "DataLoader(train, batch_size=50, shuffle=True)"
    case = ACCELERATE.replace("{OPTIONS}", "").replace("{LOADER}", loader)
    told, _ = run_ranks(case, dataset, tmp_path)
    check_once(told)
