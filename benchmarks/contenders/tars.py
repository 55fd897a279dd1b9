"""Tar shards, as webdataset has written them: loaded where they are, and turned into TFRecord files."""

from __future__ import annotations

import itertools
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.contenders import tensorflow, webdataset
from benchmarks.contenders.building import READ_BACK, build_job
from benchmarks.contenders.loading import epoch_job
from benchmarks.contenders.webdataset import W3
from benchmarks.data import BATCH
from benchmarks.rows import Job, Setting
from benchmarks.sources import Example

WORKERS = 2


def _files(setting: Setting) -> list[str]:
    return sorted(str(file) for file in setting.data.path(W3).glob("*.tar"))


def _named(columns: Mapping[str, Any]) -> Example:
    return {"image": columns["jpg"], "label": columns["cls"]}


def load_ours(setting: Setting) -> Job:
    """An epoch of batches in order: labels as numbers, images as bytes."""
    import penstock

    schema = {"jpg": "bytes", "cls": "int64"}
    loader = penstock.load(_files(setting), schema=schema)["train"].batch(BATCH["w3"])
    return epoch_job(setting, "w3", lambda: loader, _named)


def load_webdataset(setting: Setting) -> Job:
    """The same by webdataset, with its workers: they share the files among them."""
    from torch.utils.data import DataLoader

    dataset = webdataset.batches(_files(setting), "w3", empty_check=False)
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=WORKERS, persistent_workers=True)
    return epoch_job(setting, "w3", lambda: loader)


def build_ours(setting: Setting, *, sync: bool = False) -> Job:
    """Tars into a dataset."""
    import penstock

    def build(_: list[Any], path: Path) -> None:
        penstock.build(penstock.tar(_files(setting)), path, engine=penstock.Local(workers=WORKERS, sync=sync))

    def read(path: Path) -> tuple[int, Iterable[Example]]:
        train = penstock.load(path, decode=False)["train"]
        return len(train), (_named(example) for example in itertools.islice(train, READ_BACK))

    return build_job(setting, "images", build, read)


def _samples(path: str) -> Iterator[dict[str, bytes]]:
    """The files of each key, as the AIStore client had them: a whole tar, member by member."""
    records: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                key, extension = os.path.splitext(member.name)
                records.setdefault(key, {})[extension[1:]] = content.read()
    yield from records.values()


def build_tensorflow(setting: Setting, *, sync: bool = False) -> Job:
    """Tars into one TFRecord file: Python's tarfile, and a tf.train.Example for each sample, one after the other."""
    tf = tensorflow.start(WORKERS)

    def record(sample: dict[str, bytes]) -> bytes:
        image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[sample["jpg"]]))
        label = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(sample["cls"])]))
        feature = {"image": image, "label": label}
        encoded: bytes = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
        return encoded

    def build(_: list[Any], path: Path) -> None:
        with tf.io.TFRecordWriter(str(path / "train.record")) as writer:
            for file in _files(setting):
                for sample in _samples(file):
                    writer.write(record(sample))

    def read(path: Path) -> tuple[int, Iterable[Example]]:
        found = [
            tf.train.Example.FromString(each.numpy()) for each in tf.data.TFRecordDataset(str(path / "train.record"))
        ]
        features = (example.features.feature for example in found[:READ_BACK])
        some = [{"image": f["image"].bytes_list.value[0], "label": f["label"].int64_list.value[0]} for f in features]
        return len(found), some

    return build_job(setting, "images", build, read, sync=sync)
