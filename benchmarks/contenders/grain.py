"""Grain over ArrayRecord: fixed-width rows, read as NumPy views, as bagz has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contenders.bagz import row_of, rows_of
from benchmarks.contenders.loading import SLOW, epoch_job
from benchmarks.data import BATCH, GENERATED, Artifact, Data
from benchmarks.rows import Job, Setting
from benchmarks.sources import SOURCES


def _make_w1(data: Data, path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    rows = rows_of(data)
    for _, start, stop in SOURCES["w1"].part(data, SLOW):
        for row in rows[start:stop]:
            writer.write(row.tobytes())
    writer.close()


W1 = Artifact("w1-part.arrayrecord", _make_w1, (GENERATED["w1"],))


def read_ahead(setting: Setting, batches: Any) -> Any:
    """Batches, some of them made ahead by two threads."""
    import grain

    options = grain.ReadOptions(num_threads=setting.threads, prefetch_buffer_size=2 * setting.threads)
    return batches.to_iter_dataset(options)


def load(*, shuffle: bool = False) -> Callable[[Setting], Job]:
    """An epoch of a part of W1: random access, views, a batch; two threads make batches ahead, which is the fastest."""

    def build(setting: Setting) -> Job:
        import grain

        source = grain.sources.ArrayRecordDataSource(str(setting.data.path(W1)))

        def epoch() -> Any:
            examples = grain.MapDataset.source(source)
            examples = examples.shuffle(seed=7) if shuffle else examples
            return read_ahead(setting, examples.map(row_of).batch(BATCH["w1"]))

        return epoch_job(setting, "w1", epoch, share=SLOW)

    return build
