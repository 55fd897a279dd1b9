"""Write shards: tasks that any engine can run, each a pure function of its description.

Where shards are few, a worker would wait for another: their examples are loaded in pieces then, by all workers. The
records of a piece wait in a file; when all pieces of a shard are finished, a worker appends them to each other. So the
bytes do not depend on how the work was cut, and a shard is still all or nothing.

A task on another machine may become unreachable: it is given to another worker, and both may finish it. So each attempt
writes under its own names, and the driver gives the files of the attempt that it hears of the names of the task.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from .._core import Records, hash_records
from ..dataset.manifest import ATTEMPT, KEYS_SUFFIX, hashes_path, in_format, shard_files
from ..dataset.provenance import write_keys
from ..errors import BuildError
from ..records.codec import Codec, default_threads
from ..records.formats import ShardWriters
from ..records.index import checksum
from ..records.shard import ShardWriter
from ..records.tfrecord import TFRecordReader, TFRecordWriter
from ..schema.columns import Array, Bytes, Ragged
from ..thread_pool import ordered_map, thread_pool
from .encode import Encoder, Job, Rejected
from .engines.engine import Advance, Workers, ignore_progress
from .engines.local import Local
from .entries import BadExample, RecordFile, ShardResult, SpoolFile
from .listing import inputs_digest, is_complete, join_keys, made_from
from .plan import Task

PIECES = 16  # pieces of work for each worker, at least: the last one is not waited for long
FEWEST = 8  # examples in a piece
CHECKED = 16  # finished files that a worker on another machine checks in one task
Results = Generator[tuple[Task, ShardResult], None, None]


@dataclass(frozen=True)
class Loaded:
    """What became of a task's examples, besides their records.

    hashes     Of the contents of the records, where there are other splits to compare them with.
    made_from  What the examples were made from; None where that is unknown.
    """

    split: str
    keys: Sequence[str]
    hashes: Array
    made_from: bytes | None
    ignored: int
    bad: tuple[BadExample, ...]
    images: Mapping[str, list[str]]


def write_shard(job: Job, task: Task, advance: Advance, threads: int = 1) -> ShardResult:
    """Load, encode and write one file of records, with its index and its keys."""
    with shard_writer(job, task.file, threads) as writer:
        loaded = load(job, task, writer, advance, threads)
    return conclude(job, task.file, writer, [loaded])


def shard_writer(job: Job, file: str, threads: int = 1) -> ShardWriters:
    """Open the files of a task, one for each format."""
    paths = [(format, job.directory / in_format(file, format.name)) for format in job.formats]
    return ShardWriters([format.open_writer(path, sync=job.sync, threads=threads) for format, path in paths])


def load(job: Job, task: Task, writer: ShardWriter | ShardWriters, advance: Advance, threads: int = 1) -> Loaded:
    """Load and encode the examples of a task, and write their records."""
    source = job.sources[task.split]
    inputs = made_from(source, task.rows, task.keys)  # before the loading: a change while it runs is noticed
    rejected = Rejected()
    pictures = [leaf.name for leaf in job.schema.leaves() if leaf.kind == "image"]
    images = Codec(job.schema.select(*pictures)) if pictures else None
    odd: dict[str, list[str]] = {}
    hashes = [np.empty(0, np.uint64)]
    kept: list[Sequence[str]] = []
    encoder = Encoder(job, task.split, rejected, threads)
    for records, keys in encoder.listed(source, task.rows.astype(np.int64), task.keys):
        writer.write_records(records)
        if len(job.sources) > 1:
            hashes.append(hash_records(records))
        kept.append(keys)
        if images is not None:
            odd = merged_images([odd, odd_images(images, records)])
        advance(len(records), records.nbytes)
    keys = join_keys(kept)
    return Loaded(task.split, keys, np.concatenate(hashes), inputs, rejected.ignored, tuple(rejected.bad), odd)


def conclude(job: Job, file: str, writer: ShardWriters, parts: Sequence[Loaded]) -> ShardResult:
    """Write the files beside a file of records, which was loaded in one or several parts."""
    keys = join_keys([part.keys for part in parts])
    checksums = [write_keys(each.path, keys) for each in writer.writers]
    if len(job.sources) > 1:
        np.save(hashes_path(job.directory / file), np.concatenate([part.hashes for part in parts]))
    written = [
        RecordFile(in_format(file, format.name), summary.bytes, summary.crc32c)
        for format, summary in zip(job.formats, writer.summaries, strict=True)
    ]
    bad = tuple(example for part in parts for example in part.bad)
    return ShardResult(
        split=parts[0].split,
        file=written[0].file,
        records=writer.summaries[0].records,
        bytes=written[0].bytes,
        crc32c=written[0].crc32c,
        inputs="" if bad else inputs_digest([part.made_from for part in parts]),  # what failed is tried again
        ignored=sum(part.ignored for part in parts),
        bad=bad,
        alternatives=tuple(written[1:]),
        keys=checksums[0],
        images=merged_images([part.images for part in parts]),
    )


def odd_images(codec: Codec, records: Records) -> dict[str, list[str]]:
    """Return the image fields of some records that hold formats on which TFDS fails, each with these formats."""
    found = {}
    for name, column in codec.schema.flatten(codec.decode(records)).items():
        while isinstance(column, Ragged):
            column = column.values
        if isinstance(column, Bytes):
            found[name] = _odd_formats(column.values, column.row_splits)
    return {name: formats for name, formats in found.items() if formats}


def _odd_formats(data: Array, row_splits: Array) -> list[str]:
    """Return which of GIF, WebP and TIFF are among concatenated files."""
    starts = row_splits[:-1][np.diff(row_splits) > 12]
    heads = data[starts[:, None] + np.arange(12)] if len(starts) else np.empty((0, 12), np.uint8)
    gif = (heads[:, :4] == np.frombuffer(b"GIF8", np.uint8)).all(axis=1).any()
    webp = (heads[:, 8:] == np.frombuffer(b"WEBP", np.uint8)).all(axis=1) & (heads[:, 0] == ord("R"))
    tiff = [(heads[:, :4] == np.frombuffer(mark, np.uint8)).all(axis=1).any() for mark in (b"II*\0", b"MM\0*")]
    return ["GIF"] * bool(gif) + ["WebP"] * bool(webp.any()) + ["TIFF"] * any(map(bool, tiff))


def merged_images(parts: Iterable[Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """Return the formats of each field, in any of the parts."""
    found: dict[str, list[str]] = {}
    for part in parts:
        for name, formats in part.items():
            found[name] = sorted({*found.get(name, ()), *formats})
    return found


# Many shards
@dataclass(frozen=True)
class Piece:
    """Some examples of a shard."""

    task: Task
    number: int

    def __str__(self) -> str:
        return str(self.task)

    def path(self, job: Job) -> Path:
        """Return where its records wait: under a name that the next build removes."""
        return job.directory / f"{self.task.file}.{self.number:05}.partial"


@dataclass(frozen=True)
class Join:
    """A shard whose pieces are all finished."""

    file: str
    pieces: list[tuple[Piece, Loaded]]

    def __str__(self) -> str:
        return self.file


def write_in_pieces(engine: Local, job: Job, tasks: list[Task], advance: Advance) -> Results:
    """Run tasks in processes; where they are few, in pieces. Results come as they are ready."""
    count = -(-PIECES * engine.processes // max(1, len(tasks)))
    items: deque[Task | Piece | Join] = deque()
    shards: dict[str, tuple[Task, dict[int, tuple[Piece, Loaded] | None]]] = {}
    for task in tasks:
        pieces = [] if engine.processes == 1 else cut(task, count)
        shards[task.file] = task, dict.fromkeys(range(len(pieces)))
        items.extend(pieces if len(pieces) > 1 else [task])
    with closing(engine.map(perform, job, items, advance)) as results:
        for item, result in results:
            if isinstance(result, ShardResult):
                yield shards[result.file][0], result
            elif isinstance(item, Piece):
                done = shards[item.task.file][1]
                done[item.number] = item, result
                whole = [each for each in done.values() if each is not None]
                if len(whole) == len(done):
                    items.appendleft(Join(item.task.file, whole))


def write_natively(engine: Local, job: Job, tasks: list[Task], advance: Advance) -> Results:
    """Run tasks on threads: as many at once as there are workers; all of them work together on what is left over.

    The first error stops the other tasks too.
    """
    stopped = threading.Event()
    alone = threading.Lock()
    failed: list[BaseException] = []

    def report(examples: int, size: int) -> None:
        with alone:
            if stopped.is_set():
                raise failed[0] if failed else BuildError("stopped")  # no caller waits for it any more
            advance(examples, size)

    def attempt(task: Task) -> ShardResult:
        try:
            return write_shard(job, task, report)
        except BaseException as error:
            failed.append(error)
            stopped.set()
            raise

    left_over = len(tasks) % engine.processes
    together, rest = tasks[: len(tasks) - left_over], tasks[len(tasks) - left_over :]
    with closing(ordered_map(attempt, together, engine.processes, stop=stopped.set)) as results:
        for task, result in results:
            yield task, result()
    for task in rest:
        yield task, write_shard(job, task, advance, engine.processes)


def write_shards(workers: Workers, job: Job, tasks: list[Task], advance: Advance) -> Results:
    """Run tasks on the machine of the driver.

    Sources that the core loads by itself need no other process: their tasks run on threads.
    """
    native = {split for split, source in job.sources.items() if is_complete(source)}
    yield from write_natively(workers.driver, job, [task for task in tasks if task.split in native], advance)
    yield from write_in_pieces(workers.driver, job, [task for task in tasks if task.split not in native], advance)


def cut(task: Task, count: int) -> list[Piece]:
    """Cut the examples of a task into at most `count` pieces."""
    ends = np.linspace(0, len(task.rows), max(1, min(count, len(task.rows) // FEWEST)) + 1).astype(int).tolist()
    spans = enumerate(pairwise(ends))
    return [Piece(Task(task.split, task.file, task.rows[a:b], task.keys[a:b]), number) for number, (a, b) in spans]


def perform(job: Job, item: Task | Piece | Join, advance: Advance) -> ShardResult | Loaded:
    """Run a task, a piece of one, or the end of one."""
    if isinstance(item, Task):
        return write_shard(job, item, advance)
    if isinstance(item, Join):
        return join(job, item)
    with TFRecordWriter(item.path(job), threads=1) as writer:
        return load(job, item.task, writer, advance)


def join(job: Job, whole: Join) -> ShardResult:
    """Make a shard of its pieces."""
    paths = [piece.path(job) for piece, _ in whole.pieces]
    with shard_writer(job, whole.file) as writer:
        for path in paths:
            reader = TFRecordReader(path, index=False)
            size = path.stat().st_size // max(1, len(reader))
            step = max(1, job.chunk_bytes // (1 + size))
            for first in range(0, len(reader), step):
                writer.write_records(reader[first : first + step])
    result = conclude(job, whole.file, writer, [loaded for _, loaded in whole.pieces])
    for path in paths:
        path.unlink()
    return result


# Attempts of workers on other machines
def run_attempts(workers: Workers, job: Job, tasks: list[Task], advance: Advance) -> Results:
    """Run tasks on machines that share the directory. Results come as they are ready."""
    job = replace(job, directory=job.directory.absolute())
    with closing(workers.map(attempt, job, tasks, advance)) as results:
        for task, result in results:
            yield task, adopt(job.directory, result)


def attempt(job: Job, task: Task, advance: Advance) -> ShardResult:
    """Run a task under names that no other attempt has."""
    folder, _, name = task.file.rpartition("/")
    apart = f"{ATTEMPT}{secrets.token_hex(8)}-{name}"
    return write_shard(job, replace(task, file=f"{folder}/{apart}" if folder else apart), advance)


def adopt(directory: Path, result: ShardResult) -> ShardResult:
    """Give the files of an attempt the names of its task."""
    for file in result.files:
        for name in shard_files(file):
            os.replace(directory / name, directory / task_file(name))
    hashes = hashes_path(directory / result.file)
    with suppress(FileNotFoundError):
        os.replace(hashes, hashes.with_name(task_file(hashes.name)))
    alternatives = tuple(replace(other, file=task_file(other.file)) for other in result.alternatives)
    return replace(result, file=task_file(result.file), alternatives=alternatives)


def task_file(file: str) -> str:
    """Return the name of a task's file, given that of an attempt."""
    folder, slash, name = file.rpartition("/")
    return folder + slash + name.split("-", 2)[2]


# Files of earlier runs
def undamaged_files(
    directory: Path, files: Sequence[ShardResult | SpoolFile], workers: Workers | None = None
) -> set[str]:
    """Return the files with the size and checksum of their entries, and with index and keys beside them.

    The other formats of a shard are checked too. Workers on other machines do the work if there are any: it may be more
    than one machine can read.
    """
    if workers is not None and workers.remote:
        some = [files[first : first + CHECKED] for first in range(0, len(files), CHECKED)]
        with closing(workers.map(check_files, directory.absolute(), some, ignore_progress)) as results:
            return {file for _, found in results for file in found}
    with thread_pool(default_threads()) as pool:
        found = list(pool.map(partial(_is_undamaged, directory), files))
    return {each.file for each, undamaged in zip(files, found, strict=True) if undamaged}


def check_files(directory: Path, files: Sequence[ShardResult | SpoolFile], advance: Advance) -> list[str]:
    """Return the files that are undamaged."""
    return [each.file for each in files if _is_undamaged(directory, each)]


def _is_undamaged(directory: Path, found: ShardResult | SpoolFile) -> bool:
    formats = found.formats if isinstance(found, ShardResult) else [RecordFile(found.file, found.bytes, found.crc32c)]
    keys = found.keys if isinstance(found, ShardResult) else None
    try:
        for each in formats:
            path = directory / each.file
            if path.stat().st_size != each.bytes:
                return False
            if not all(path.with_name(name).exists() for name in shard_files(path.name)):
                return False
            if keys is not None and checksum(path.with_name(path.name + KEYS_SUFFIX)) != keys:
                return False
            if checksum(path) != each.crc32c:
                return False
    except OSError:
        return False
    return True
