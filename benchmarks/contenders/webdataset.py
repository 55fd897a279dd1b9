"""webdataset: ShardWriter, one tar file after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.contenders.building import READ_BACK, SHARD_BYTES, build_job, in_processes
from benchmarks.rows import Job, Setting
from benchmarks.sources import Example


def _sample(workload: str, example: Example) -> dict[str, Any]:
    """One file in the tar for each example, or two: each takes a header of 512 bytes, and time."""
    if workload == "images":
        return {"jpg": example["image"], "cls": example["label"]}
    if workload == "csv":
        return {"json": example}
    return {"npz" if workload == "w5" else "pyd": example}  # npz: compressed with zlib


def _example(workload: str, sample: Mapping[str, Any]) -> Example:
    if workload == "images":
        return {"image": sample["jpg"], "label": int(sample["cls"])}
    return dict(sample["json" if workload == "csv" else "npz" if workload == "w5" else "pyd"])


def _write(workload: str, examples: Iterator[Example], path: Path) -> None:
    import webdataset

    path.mkdir()
    with webdataset.ShardWriter(f"{path}/%05d.tar", maxsize=SHARD_BYTES, verbose=0) as writer:
        for number, example in enumerate(examples):
            writer.write({"__key__": f"{number:08d}", **_sample(workload, example)})


def _read(workload: str, path: Path) -> tuple[int, Iterable[Example]]:
    import webdataset

    files = sorted(str(file) for file in path.rglob("*.tar"))
    dataset = webdataset.WebDataset(files, shardshuffle=False)
    some = itertools.islice(dataset if workload == "images" else dataset.decode(), READ_BACK)
    return sum(1 for _ in dataset), (_example(workload, sample) for sample in some)


def build(workload: str, *, share: float = 1, processes: int = 2) -> Callable[[Setting], Job]:
    """A source into tar files."""

    def job(setting: Setting) -> Job:
        import webdataset  # noqa: F401 - the processes of the pool begin with it

        write = in_processes(workload, processes, _write)
        return build_job(setting, workload, write, lambda path: _read(workload, path), share)

    return job
