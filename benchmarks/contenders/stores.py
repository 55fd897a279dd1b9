"""Datasets in an S3 on loopback: epochs with a cold cache, and single reads. Each contender has its own server."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from services import S3

from benchmarks.contenders import litdata, mds
from benchmarks.contenders.loading import epoch_job
from benchmarks.contenders.penstock_load import DATASET
from benchmarks.data import BATCH, GENERATED, SEED, Artifact, Data
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES

RECORD = 100_000  # bytes of a record that is read by itself
IN_FLIGHT = 64
ROUNDS = 10  # of so many reads


def served(path: Path) -> str:
    """The URL of a folder in the bucket of a server that ends with this process."""
    server = S3().start()
    atexit.register(server.stop)
    server.wait()
    os.environ.update(server.environment)
    os.environ["S3_ENDPOINT_URL"] = server.endpoint  # as MosaicML Streaming calls it
    bucket = server.new_bucket()
    shutil.copytree(path, server.root / bucket.removeprefix("s3://") / path.name)
    return f"{bucket}/{path.name}"


def _cold(setting: Setting, epoch: Callable[[Path], Iterator[Any]], columns: Callable[[Any], Any] = dict) -> Job:
    """An epoch of W3 that begins with an empty folder."""
    numbers = itertools.count()
    folder = setting.scratch / "cold"

    def begin() -> Iterator[Any]:
        return epoch(folder / str(next(numbers)))

    job = epoch_job(setting, "w3", begin, columns)
    return Job(job.run, job.check, lambda: shutil.rmtree(folder, ignore_errors=True))


def load_ours(setting: Setting) -> Job:
    """An epoch of batches in order, as bytes."""
    import penstock

    url = served(setting.data.path(DATASET["w3"]))

    def epoch(cache: Path) -> Iterator[Any]:
        return iter(penstock.load(url, decode=False, cache=cache)["train"].batch(BATCH["w3"]))

    return _cold(setting, epoch)


def _make_mds(data: Data, path: Path) -> None:
    source = SOURCES["images"]
    mds._write("images", source.examples(source.items(data)), path)


MDS_W3 = Artifact("w3.mds", _make_mds, (GENERATED["w3"],))


def load_mds(setting: Setting) -> Job:
    """The same by MosaicML Streaming, through torch's DataLoader with two workers."""
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    url = served(setting.data.path(MDS_W3))

    def epoch(cache: Path) -> Iterator[Any]:
        clean_stale_shared_memory()
        dataset = StreamingDataset(remote=url, local=str(cache), batch_size=BATCH["w3"], num_canonical_nodes=1)
        return iter(DataLoader(dataset, BATCH["w3"], num_workers=setting.threads, collate_fn=_columns))

    return _cold(setting, epoch)


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _make_litdata(data: Data, path: Path) -> None:
    path.mkdir()
    scratch = path.with_name(path.name + "-scratch")
    try:
        litdata._optimize("images", SOURCES["images"].items(data), path, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


LITDATA_W3 = Artifact("w3.litdata", _make_litdata, (GENERATED["w3"],))


def load_litdata(setting: Setting) -> Job:
    """The same by LitData, with two workers."""
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # our server speaks no TLS, and no option of it says so
    url = served(setting.data.path(LITDATA_W3))
    options = {
        "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "region_name": os.environ["AWS_REGION"],
    }

    def epoch(cache: Path) -> Iterator[Any]:
        dataset = StreamingDataset(url, cache_dir=str(cache), storage_options=options, drop_last=False)
        return iter(
            StreamingDataLoader(dataset, batch_size=BATCH["w3"], num_workers=setting.threads, collate_fn=_columns)
        )

    return _cold(setting, epoch)


def _make_records(data: Data, path: Path) -> None:
    """Records of 100 KB, each of one byte's value."""
    import penstock

    count = 40 * data.size.w5
    rows = penstock.examples([{"data": bytes([number % 251]) * RECORD} for number in range(min(count, 2_000))])
    penstock.build(rows, path, schema={"data": "bytes"}, order="source", workers=1)


RECORDS = Artifact("records-100k.penstock", _make_records)


def _chosen(count: int) -> list[list[int]]:
    random = np.random.default_rng([SEED, 7])
    return [random.integers(0, count, IN_FLIGHT).tolist() for _ in range(ROUNDS)]


def read_ours(setting: Setting) -> Job:
    """Single examples at random, 64 at a time, none of them in a cache."""
    import penstock

    url = served(setting.data.path(RECORDS))
    split = penstock.load(url, cache=setting.scratch / "single")["train"]
    rounds = _chosen(len(split))

    def run() -> int:
        for numbers in rounds:
            split.__getitems__(numbers)
        return ROUNDS * IN_FLIGHT

    def check() -> None:
        for numbers in rounds:
            for number, example in zip(numbers, split.__getitems__(numbers), strict=True):
                if example["data"] != bytes([number % 251]) * RECORD:
                    raise ValueError(f"expected record {number}, got another")

    return Job(run, check)


def read_s3fs(setting: Setting) -> Job:
    """As many bytes out of the same objects by s3fs, which has 64 requests under way."""
    import s3fs

    url = served(setting.data.path(RECORDS))
    system = s3fs.S3FileSystem(
        key=os.environ["AWS_ACCESS_KEY_ID"],
        secret=os.environ["AWS_SECRET_ACCESS_KEY"],
        client_kwargs={"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "region_name": os.environ["AWS_REGION"]},
    )
    files = sorted(file for file in system.ls(url) if file.rpartition("-of-")[2].isdigit())
    sizes = [system.info(file)["size"] for file in files]
    places = [
        (file, start) for file, size in zip(files, sizes, strict=True) for start in range(0, size - RECORD, RECORD)
    ]
    rounds = [[places[number % len(places)] for number in numbers] for numbers in _chosen(len(places))]

    def read(chosen: list[tuple[str, int]]) -> list[bytes]:
        paths, starts = [file for file, _ in chosen], [start for _, start in chosen]
        return list(system.cat_ranges(paths, starts, [start + RECORD for start in starts], max_gap=None))

    def run() -> int:
        for chosen in rounds:
            read(chosen)
        return ROUNDS * IN_FLIGHT

    def check() -> None:
        if any(len(part) != RECORD for part in read(rounds[0])):
            raise ValueError(f"expected {RECORD} bytes each time, got others")

    return Job(run, check)
