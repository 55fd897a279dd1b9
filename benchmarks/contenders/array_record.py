"""ArrayRecord: datasets of ours in that format, which TFDS and Grain read too, and the format's own library."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contenders.grain import read_ahead
from benchmarks.contenders.loading import epoch_job, numpy_columns
from benchmarks.contenders.penstock import SCHEMA, codec
from benchmarks.contenders.penstock_build import Files, radar_schema
from benchmarks.contenders.penstock_load import DATASET
from benchmarks.data import BATCH, GENERATED, Artifact, Columns, Data, check_examples, random_indices, tabular
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES

VERSION = "1.0.0"
MANY = 500_000  # small records in a shard
FEW = 500  # reads of a peer, which takes its time


def many_rows(data: Data) -> Columns:
    """Rows as those of W1, as many as the row of random reads wants."""
    return tabular(MANY * data.size.w1 // 300_000)


def image_files(data: Data) -> dict[str, Any]:
    """The files of W3 as bytes, with their labels."""
    import penstock

    columns = data.columns("w3")
    return {"data": penstock.Bytes(columns["values"], columns["row_splits"]), "label": columns["label"]}


def _source(workload: str, data: Data) -> tuple[Any, Any]:
    """What is stored, and its schema."""
    import penstock

    if workload == "w5":
        return Files("w5", SOURCES["w5"].items(data)), radar_schema()
    if workload == "files":
        return penstock.table(image_files(data)), {"data": "bytes", "label": "int64"}
    return penstock.table(many_rows(data) if workload == "rows" else data.columns("w1")), SCHEMA["w1"]


def _make(workload: str) -> Callable[[Data, Path], None]:
    def make(data: Data, path: Path) -> None:
        import penstock

        source, schema = _source(workload, data)
        penstock.build(
            source, path / workload / VERSION, schema=schema, format="array_record", order="source", shards=1
        )

    return make


STORED = {
    "w1": Artifact("w1.array_record", _make("w1"), (GENERATED["w1"],)),
    "w5": Artifact("w5.array_record", _make("w5"), SOURCES["w5"].needs),
    "rows": Artifact("rows.array_record", _make("rows")),
    "files": Artifact("files.array_record", _make("files"), (GENERATED["w3"],)),
}


def _folder(setting: Setting, workload: str) -> Path:
    return setting.data.path(STORED[workload]) / workload / VERSION


def _ours(setting: Setting, workload: str) -> Any:
    import penstock

    return penstock.load(_folder(setting, workload))["train"]


def _theirs(setting: Setting, workload: str) -> Any:
    """The data source of TFDS, over the same files."""
    import tensorflow_datasets as tfds

    return tfds.builder_from_directory(str(_folder(setting, workload))).as_data_source("train")


# Epochs


def load(workload: str, *, shuffle: bool = False) -> Callable[[Setting], Job]:
    """Ours: an epoch of batches."""

    def build(setting: Setting) -> Job:
        split = _ours(setting, workload)
        loader = (split.shuffle(seed=7) if shuffle else split).batch(BATCH[workload])
        return epoch_job(setting, workload, lambda: loader)

    return build


def load_torch(setting: Setting) -> Job:
    """W5 by TFDS in torch's workers."""
    from torch.utils.data import DataLoader

    source = _theirs(setting, "w5")
    loader: Any = DataLoader(source, batch_size=BATCH["w5"], num_workers=setting.threads, persistent_workers=True)
    return epoch_job(setting, "w5", lambda: loader, numpy_columns)


def load_grain(setting: Setting) -> Job:
    """W5 by TFDS on Grain's threads."""
    import grain

    source = _theirs(setting, "w5")
    return epoch_job(setting, "w5", lambda: read_ahead(setting, grain.MapDataset.source(source).batch(BATCH["w5"])))


# Random reads


def _random_job(setting: Setting, workload: str, read: Callable[[int], Any], count: int | None = None) -> Job:
    columns: dict[str, Any] = dict(many_rows(setting.data)) if workload == "rows" else image_files(setting.data)
    indices = random_indices(len(columns["label"]))[:count]

    def run() -> int:
        for index in indices:
            read(index)
        return len(indices)

    return Job(run, lambda: check_examples(columns, indices[:FEW], map(read, indices[:FEW])))


def random_reads(workload: str) -> Callable[[Setting], Job]:
    """Ours: single examples."""
    return lambda setting: _random_job(setting, workload, _ours(setting, workload).__getitem__)


def random_reads_tfds(workload: str) -> Callable[[Setting], Job]:
    """By TFDS."""
    return lambda setting: _random_job(setting, workload, _theirs(setting, workload).__getitem__, FEW)


def random_records(workload: str) -> Callable[[Setting], Job]:
    """The bytes of single records, by the format's own library in its fastest way: nothing is decoded."""

    def build(setting: Setting) -> Job:
        from array_record.python.array_record_module import ArrayRecordReader

        (path,) = _folder(setting, workload).glob("*.array_record-00000-of-00001")
        reader = ArrayRecordReader(str(path), "readahead_buffer_size:0")
        indices = random_indices(reader.num_records())

        def run() -> int:
            for index in indices:
                reader.read([index])
            return len(indices)

        return Job(run)

    return build


# Writing


def write(setting: Setting) -> Job:
    """Ours: the columns of W1, encoded and written."""
    import penstock

    plan, columns = codec("w1"), setting.data.columns("w1")
    path = setting.scratch / "w1.array_record"

    def run() -> int:
        with penstock.ArrayRecordWriter(path, threads=setting.threads) as writer:
            writer.write_columns(plan, columns)
        return setting.data.size.w1

    return Job(run, after=path.unlink)


def write_records(setting: Setting) -> Job:
    """The records of W1, which are there already, by the format's own library."""
    from array_record.python.array_record_module import ArrayRecordWriter

    import penstock

    records = list(codec("w1").encode(setting.data.columns("w1")))
    path = setting.scratch / "w1.array_record"

    def run() -> int:
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for record in records:
            writer.write(record)
        writer.close()
        return len(records)

    def checked() -> None:
        run()
        if list(penstock.ArrayRecordReader(path)[:100]) != records[:100]:
            raise ValueError("expected the records that were written, got others")
        path.unlink()

    return Job(run, checked, path.unlink)


def convert(setting: Setting) -> Job:
    """Ours: W1 from TFRecord, compared with its source at the end."""
    import penstock

    source, path = setting.data.path(DATASET["w1"]), setting.scratch / "converted"
    size = _size(source)

    def run() -> float:
        penstock.convert(source, path, format="array_record", workers=setting.threads)
        return size / 1e9

    return Job(run, after=lambda: shutil.rmtree(path))


def copy(setting: Setting) -> Job:
    """A copy of the same files."""
    source, path = setting.data.path(DATASET["w1"]), setting.scratch / "copied"
    size = _size(source)

    def run() -> float:
        shutil.copytree(source, path)
        return size / 1e9

    return Job(run, after=lambda: shutil.rmtree(path))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.tfrecord-*[0-9]"))
