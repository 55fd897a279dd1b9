"""The unit of work: a file of records. A task is a pure function of its description, which any engine can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core import Records, hash_records
from ..dataset.manifest import hashes_path, in_format
from ..dataset.provenance import write_keys
from ..records.codec import Codec
from ..records.formats import ShardWriters
from ..records.shard import ShardWriter
from ..schema.columns import Array, Bytes, Ragged
from .encode import Encoder, Job, Outcome
from .engines.local import Progress
from .inputs import Inputs, inputs_digest, join_keys


@dataclass(frozen=True)
class Task:
    """One file: its name, and the examples that go into it, by number and in order."""

    split: str
    file: str
    rows: Array
    keys: Sequence[str]

    def __str__(self) -> str:
        some = f"{self.keys[0]!r} to {self.keys[-1]!r}" if self.keys else "nothing"
        return f"{self.file} ({len(self.keys)} examples of {self.split}, {some})"


@dataclass(frozen=True)
class Loaded:
    """What became of a task's examples, besides their records.

    hashes     of the records' contents, where there are other splits to compare them with
    made_from  what the examples were made from; None where that is unknown
    """

    outcome: Outcome
    keys: Sequence[str]
    hashes: Array
    made_from: bytes | None


def run(job: Job, task: Task, progress: Progress, threads: int = 1) -> Outcome:
    """Load, encode and write one file of records, with its index and its keys."""
    with shard_writer(job, task.file, threads) as writer:
        loaded = load(job, task, writer, progress, threads)
    return conclude(job, task.file, writer, [loaded])


def shard_writer(job: Job, file: str, threads: int = 1) -> ShardWriters:
    """What a task writes its records with, in every format."""
    paths = [(format, job.directory / in_format(file, format.name)) for format in job.formats]
    return ShardWriters([format.open_writer(path, sync=job.sync, threads=threads) for format, path in paths])


def load(job: Job, task: Task, writer: ShardWriter | ShardWriters, progress: Progress, threads: int = 1) -> Loaded:
    """Load and encode the examples of a task, and write their records."""
    inputs = Inputs(job.sources[task.split])
    made_from = inputs.made_from(task.rows, task.keys)  # before the loading: a change while it runs is noticed
    outcome = Outcome(task.split, task.file)
    pictures = [leaf.name for leaf in job.schema.leaves() if leaf.kind == "image"]
    images = Codec(job.schema.select(*pictures)) if pictures else None
    hashes = [np.empty(0, np.uint64)]
    kept: list[Sequence[str]] = []
    for records, keys in Encoder(job, task.split, outcome, threads).listed(
        inputs, task.rows.astype(np.int64), task.keys
    ):
        writer.write_records(records)
        if len(job.sources) > 1:
            hashes.append(hash_records(records))
        kept.append(keys)
        if images is not None:
            outcome.images = merged_images([outcome.images, odd_images(images, records)])
        progress(len(records), records.nbytes)
    return Loaded(outcome, join_keys(kept), np.concatenate(hashes), made_from)


def conclude(job: Job, file: str, writer: ShardWriters, parts: Sequence[Loaded]) -> Outcome:
    """Write what stands beside a file of records, which was loaded in one or several parts."""
    keys = join_keys([part.keys for part in parts])
    checksums = [write_keys(each.path, keys) for each in writer.writers]
    if len(job.sources) > 1:
        np.save(hashes_path(job.directory / file), np.concatenate([part.hashes for part in parts]))
    written: list[dict[str, Any]] = [
        {"file": in_format(file, format.name), "bytes": summary.bytes, "crc32c": summary.crc32c}
        for format, summary in zip(job.formats, writer.summaries, strict=True)
    ]
    bad = [entry for part in parts for entry in part.outcome.bad]
    return Outcome(
        split=parts[0].outcome.split,
        records=writer.summaries[0].records,
        **written[0],
        inputs="" if bad else inputs_digest(part.made_from for part in parts),  # what failed is tried again
        ignored=sum(part.outcome.ignored for part in parts),
        bad=bad,
        alternatives=written[1:],
        keys=checksums[0],
        images=merged_images([part.outcome.images for part in parts]),
    )


def odd_images(codec: Codec, records: Records) -> dict[str, list[str]]:
    """The image fields of some records that hold formats on which TFDS fails, each with these formats."""
    found = {}
    for name, column in codec.schema.flatten(codec.decode(records)).items():
        while isinstance(column, Ragged):
            column = column.values
        if isinstance(column, Bytes):
            found[name] = _odd_formats(column.values, column.row_splits)
    return {name: formats for name, formats in found.items() if formats}


def _odd_formats(data: Array, row_splits: Array) -> list[str]:
    """Which of GIF, WebP and TIFF are among some files, which lie one after the other."""
    starts = row_splits[:-1][np.diff(row_splits) > 12]
    heads = data[starts[:, None] + np.arange(12)] if len(starts) else np.empty((0, 12), np.uint8)
    gif = (heads[:, :4] == np.frombuffer(b"GIF8", np.uint8)).all(axis=1).any()
    webp = (heads[:, 8:] == np.frombuffer(b"WEBP", np.uint8)).all(axis=1) & (heads[:, 0] == ord("R"))
    tiff = [(heads[:, :4] == np.frombuffer(mark, np.uint8)).all(axis=1).any() for mark in (b"II*\0", b"MM\0*")]
    return ["GIF"] * bool(gif) + ["WebP"] * bool(webp.any()) + ["TIFF"] * any(map(bool, tiff))


def merged_images(parts: Iterable[Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """The formats of each field, in any of the parts."""
    found: dict[str, list[str]] = {}
    for part in parts:
        for name, formats in part.items():
            found[name] = sorted({*found.get(name, ()), *formats})
    return found
