"""webdataset: ShardWriter, one tar file after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.building import READ_BACK, SHARD_BYTES, build_job, in_processes
from benchmarks.contenders.loading import SLOW, epoch_job
from benchmarks.data import BATCH, GENERATED, Artifact, Data
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES, Example


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


def _make_w1(data: Data, path: Path) -> None:
    source = SOURCES["w1"]
    _write("w1", source.examples(source.part(data, SLOW)), path)


def _make_w3(data: Data, path: Path) -> None:
    source = SOURCES["images"]
    _write("images", source.examples(source.items(data)), path)


W1 = Artifact("w1-part.webdataset", _make_w1, (GENERATED["w1"],))
W3 = Artifact("w3.webdataset", _make_w3, (GENERATED["w3"],))


def _columns(samples: list[Example]) -> Example:
    """Arrays where they are of one shape, lists of the rest."""
    names = [name for name in samples[0] if not name.startswith("__")]
    columns: Example = {name: [sample[name] for sample in samples] for name in names}
    return {name: column if isinstance(column[0], bytes) else np.stack(column) for name, column in columns.items()}


def batches(files: list[str], workload: str, **options: Any) -> Any:
    """The samples of tar files in their order, decoded, then batched."""
    import webdataset

    dataset: Any = webdataset.WebDataset(files, shardshuffle=False, **options)
    if workload == "w1":
        dataset = dataset.decode().map(lambda sample: sample["pyd"])
    else:
        dataset = dataset.map(lambda sample: _example("images", sample))
    return dataset.batched(BATCH[workload], collation_fn=_columns)


def load(workload: str) -> Callable[[Setting], Job]:
    """An epoch of a part of W1, or of W3: tar files read in order, samples decoded, then batched."""

    def build(setting: Setting) -> Job:
        files = sorted(str(file) for file in setting.data.path(W1 if workload == "w1" else W3).glob("*.tar"))
        dataset = batches(files, workload)
        return epoch_job(setting, workload, lambda: dataset, share=SLOW if workload == "w1" else 1)

    return build
