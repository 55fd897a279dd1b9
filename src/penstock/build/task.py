"""The unit of work: a file of records. A task is a pure function of its description, which any engine can run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._core import hash_records
from ..columns import Array
from ..manifest import hashes_path, write_keys
from ..records.tfrecord import TFRecordWriter
from .encoder import Encoder, Job, Outcome
from .inputs import Inputs
from .workers import Progress


@dataclass(frozen=True)
class Task:
    """One file: its name, and the examples that go into it, by number and in order."""

    split: str
    file: str
    rows: Array
    keys: list[str]

    def __str__(self) -> str:
        some = f"{self.keys[0]!r} to {self.keys[-1]!r}" if self.keys else "nothing"
        return f"{self.file} ({len(self.keys)} examples of {self.split}, {some})"


def run(job: Job, task: Task, progress: Progress) -> Outcome:
    """Load, encode and write one file of records, with its index and its keys."""
    inputs = Inputs(job.sources[task.split])
    made_from = inputs.digest(task.rows, task.keys)  # before the loading: a change while it runs is noticed
    outcome = Outcome(task.split, task.file)
    path = job.directory / task.file
    hashes = [np.empty(0, np.uint64)]
    kept: list[str] = []
    with TFRecordWriter(path, job.format, index=True, sync=True, threads=1) as writer:
        for records, keys in Encoder(job, task.split, outcome).listed(inputs, task.rows, task.keys):
            writer.write_records(records)
            hashes.append(hash_records(records))
            kept += keys
            progress(len(records), records.nbytes)
    summary = writer.summary
    assert summary is not None
    write_keys(path, kept)
    np.save(hashes_path(path), np.concatenate(hashes))
    outcome.records, outcome.bytes, outcome.crc32c = summary.records, summary.bytes, summary.crc32c
    outcome.inputs = "" if outcome.bad else made_from  # what failed is tried again another time
    return outcome
