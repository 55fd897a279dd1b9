"""The schema of a build: what sources declare, what a sample shows, and what a pass over every example finds."""

from __future__ import annotations

import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np

from .._core import Records
from ..errors import PenstockError, SchemaError
from ..records.codec import Codec
from ..records.formats import Format
from ..schema.columns import Array
from ..schema.example_class import IgnoreExample
from ..schema.inference import cover, infer, widen
from ..schema.schema import Schema
from ..sources.protocol import BatchSource, RecordSource, Source
from ..sources.tar import TarSamples
from .encode import Job, example_error, lost_example, tells, weigh
from .engines.engine import Advance, Meter, Workers, ignore_progress
from .engines.local import Local, LostWorkerError, WorkerTraceback, begin_example
from .entries import Plan
from .listing import (
    Split,
    Stored,
    StreamPass,
    examples_multiply,
    is_complete,
    parts_of,
    return_to,
    stream_key,
    working_directory,
)
from .plan import OnError, Options, Task, count_shards, order_rows
from .spool import Spooled

MOST_SAMPLED = 256  # examples of each source
MOST_SAMPLED_BYTES = 16 << 20
WORTH_WORKERS = 0.1  # seconds that a sample takes to load
SCAN_TASKS = 64  # tasks that a split is cut into to load every example
FRAME = 16  # bytes that a shard adds to each record
FLOATS = ("float32", "float64")
Kind = TypeVar("Kind")
Named = tuple[str, Stored]  # an example, after its name in messages
Samples = Mapping[str, list[Named]]  # of each split
Parts = list[Stored]  # what is stored for an example
Loadable = tuple[str, str, Callable[[], str], Callable[[], Parts]]  # split, key, place, what loads it


@dataclass(frozen=True)
class SchemaChoice:
    """The schema of a build, and how it was found.

    firm    It is not widened any more: it was declared, or every example was loaded.
    drift   How it was widened after the sample, and for which example.
    floats  Fields of Python floats.
    """

    schema: Schema
    firm: bool
    drift: str = ""
    floats: tuple[str, ...] = ()


def choose_schema(
    splits: list[Split], options: Options, plan: Plan | None, workers: Workers
) -> tuple[SchemaChoice, Samples]:
    """Return the declared schema, that of the plan of an earlier run, or the inferred one; and the loaded samples."""
    if options.schema is not None:
        found = SchemaChoice(options.schema, firm=True)
    elif plan is not None:
        found = SchemaChoice(Schema.from_json(plan.schema), plan.firm, plan.drift, plan.floats)
    else:
        found = SchemaChoice(Schema({}), firm=False)
    samples: Samples = {split.name: [] for split in splits}
    if plan is None and not (found.schema and options.counts_shards):
        on_error: OnError = "skip" if found.schema else options.on_error  # for sizes alone, failures can wait
        samples = sample_splits(splits, on_error, workers)
    if not found.schema:
        schema = infer_schema(splits, samples, options.on_error, short_floats=options.short_floats)
        found = replace(found, schema=schema, floats=_python_floats(schema, splits, samples, options))
    return found, samples


def is_incomplete(found: SchemaChoice, samples: Samples) -> bool:
    """Return True if a sample has a field without a value yet, whose type every example is loaded for."""
    return not {name for some in samples.values() for _, example in some for name in example} <= set(found.schema)


def scan_examples(job: Job, found: SchemaChoice, splits: list[Split], workers: Workers, meter: Meter) -> SchemaChoice:
    """Load every example, and widen the schema so that it holds them all."""
    tasks = [
        Task(split.name, "a look at the examples", rows, split.keys_of(rows))
        for split in splits
        if split.stream is None
        for rows in np.array_split(split.rows, min(len(split.rows), SCAN_TASKS))
    ]
    meter.begin("looking at every example", sum(len(task.rows) for task in tasks))
    with closing(workers.map(scan, job, tasks, meter)) as results:
        schemas = {id(task): schema for task, schema in results}
    schema = reduce(partial(widen, short_floats=job.short_floats), [schemas[id(task)] for task in tasks], job.schema)
    # Fields that became floats after the sample hold Python's, which integers join.
    before = {leaf.name for leaf in job.schema.leaves() if leaf.dtype in FLOATS}
    new = [leaf.name for leaf in schema.leaves() if leaf.dtype in FLOATS and leaf.name not in before]
    floats = (*found.floats, *(name for name in new if name not in found.floats))
    return replace(found, schema=schema, firm=True, floats=floats)


def sample_splits(splits: list[Split], on_error: OnError, workers: Workers) -> dict[str, list[Named]]:
    """Load a sample of each split. The first split of a stream stands for all that share it."""
    return {split.name: _sample_split(split, on_error, workers) for split in splits}


def _sample_split(split: Split, on_error: OnError, workers: Workers) -> list[Named]:
    if split.stream is not None:
        return _sample_stream(split.stream, on_error) if split.name == split.stream.names[0] else []
    if is_complete(split.listed):
        return []
    # By hash, whatever the order of the records is: the same examples wherever they are in the source.
    hashed = split.order == "hash"
    rows = split.rows if hashed else order_rows(split.name, split.keys, order="hash", seed=split.seed)
    source = split.listed
    some = ((split.keys_of(rows[at : at + 1])[0], int(rows[at])) for at in range(len(rows)))
    local = workers.remote or not source.runs_user_code
    with closing(loaded(workers.driver, source, rows, in_process=local)) as coming:
        load = partial(_next_parts, coming)
        named = ((split.name, key, partial(source.place, row), load) for key, row in some)
        try:
            return sample(named, on_error)
        except LostWorkerError as lost:
            raise lost_example(split, lost) from None


def _sample_stream(stream: StreamPass, on_error: OnError) -> list[Named]:
    """Load examples from the beginning of a stream, and put them back."""
    head: list[object] = []

    def examples() -> Iterator[Loadable]:
        for number, example in enumerate(stream.examples):
            head.append(example)
            place, load = partial("example {}".format, number), partial(_all_parts, example)
            yield stream.split_of(number, example), stream_key(example, number), place, load

    samples = sample(examples(), on_error)
    stream.put_back(head)
    return samples


def _all_parts(example: object) -> Parts:
    return list(parts_of(example))


def _next_parts(coming: Iterator[Parts | Exception]) -> Parts:
    found = next(coming)
    if isinstance(found, Exception):
        raise found
    return found


def may_multiply(split: Split, workers: Workers) -> bool:
    """Return True if one example may become several."""
    if split.stream is not None:
        return False
    source = split.listed
    if workers.remote or not source.runs_user_code:
        return examples_multiply(source)
    try:
        with closing(workers.map(_multiplies, source, [0], ignore_progress)) as results:
            return any(result for _, result in results)
    except LostWorkerError as lost:
        raise lost_example(split, lost) from None


def _multiplies(source: Source, item: int, advance: Advance) -> bool:
    return examples_multiply(source)


def sample(examples: Iterable[Loadable], on_error: OnError) -> list[Named]:
    """Load the first of some examples. Invalid ones are left out, unless `on_error` is "raise"."""
    taken: list[Named] = []
    size, folder = 0, working_directory()
    for split, key, place, load in examples:
        try:
            parts = load()
        except IgnoreExample:
            continue
        except LostWorkerError:
            raise  # it names another example, perhaps
        except (Exception, SystemExit) as error:
            if on_error == "raise":
                return_to(folder)
                raise example_error(error, split, key, place()) from error
            continue
        finally:
            return_to(folder)
        taken += [(f"{split}[{key!r}]", part) for part in parts]
        size += sum(map(weigh, parts))
        if len(taken) >= MOST_SAMPLED or size > MOST_SAMPLED_BYTES:
            break
    return taken


def loaded(engine: Local, source: Any, rows: Array, *, in_process: bool) -> Generator[Parts | Exception, None, None]:
    """Yield what examples become, or why not, in order: a few, then as many at a time as a sample has.

    in_process  By this process, unless it takes so long that workers are worth it.
    """
    waiting: deque[Array] = deque()
    first, step = 0, 2
    with closing(engine.map(load_some, source, waiting, ignore_progress)) as results:
        while first < len(rows):
            some = rows[first : first + step]
            began, found = time.monotonic(), load_some(source, some) if in_process else {}
            if not in_process:
                waiting.extend(np.array_split(some, min(len(some), 4 * engine.processes) if first else 1))
            while len(found) < len(some):
                found |= next(results)[1]
            yield from (_arrived(found[row]) for row in some.tolist())
            each = (time.monotonic() - began) / len(some)
            first += len(some)
            step = max(1, min(MOST_SAMPLED, MOST_SAMPLED_BYTES // max(map(len, found.values()))))
            in_process = in_process and (engine.processes == 1 or each * min(step, len(rows) - first) < WORTH_WORKERS)


def _arrived(told: bytes) -> Parts | Exception:
    """Return what another process has sent: the parts of an example, or the error."""
    parts: Parts
    parts, error, trace = pickle.loads(told)  # noqa: S301  # from our own workers
    if error is None:
        return parts
    failed: Exception = type(error[0], (Exception,), {})(error[1]) if isinstance(error, tuple) else error
    failed.__cause__ = WorkerTraceback(trace)
    return failed


def load_some(source: Any, rows: Array, advance: Advance | None = None) -> dict[int, bytes]:
    """Load examples by number; return them, or their errors, pickled."""
    found, folder = {}, working_directory()
    for row in rows.tolist():
        begin_example(row)
        try:
            found[row] = pickle.dumps((list(parts_of(source[row])), None, ""), pickle.HIGHEST_PROTOCOL)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever load() may raise is the example's error
            found[row] = pickle.dumps((None, _sendable(error), traceback.format_exc()))
        finally:
            return_to(folder)
    return found


def _sendable(error: Exception | SystemExit) -> Exception | tuple[str, str]:
    """Return an error that can be pickled, or its name and message."""
    with suppress(Exception):
        if isinstance(error, Exception) and str(pickle.loads(pickle.dumps(error))) == str(error):  # noqa: S301  # ours
            return error
    return type(error).__name__, str(error)


def infer_schema(splits: list[Split], samples: Samples, on_error: OnError, *, short_floats: bool = False) -> Schema:
    """Return the schema that the splits share, as far as the samples show it."""
    sampled = [split for split in splits if samples[split.name]]
    schemas = [_infer(samples[split.name], split.known, on_error, short_floats) for split in sampled]
    schemas += [split.known for split in splits if split.known is not None and not samples[split.name]]
    if not schemas:
        raise SchemaError("expected examples, got none that can be loaded")
    return reduce(partial(widen, short_floats=short_floats), schemas)


def _python_floats(schema: Schema, splits: list[Split], samples: Samples, options: Options) -> tuple[str, ...]:
    """Return the fields of Python floats: they are float64, or float32 where the build asks for it."""
    floats = {leaf.name: leaf.dtype for leaf in schema.leaves() if leaf.dtype in FLOATS}
    if not floats:
        return ()
    other = infer_schema(splits, samples, options.on_error, short_floats=not options.short_floats)
    return tuple(leaf.name for leaf in other.leaves() if floats.get(leaf.name, leaf.dtype) != leaf.dtype)


def _infer(examples: list[Named], sure: Schema | None, on_error: OnError, short_floats: bool) -> Schema:
    """Infer the schema of some examples. A field without any value is left for later."""
    told: Stored = {}
    for _, example in examples:
        told.update((name, value) for name, value in example.items() if name not in told and tells(value))
    try:
        rows = [{name: value for name, value in example.items() if name in told} for _, example in examples]
        return infer(rows, schema=sure, short_floats=short_floats)
    except SchemaError:
        schema = infer([told], schema=sure, short_floats=short_floats)
    for where, example in examples:  # one by one, to name the one that does not fit
        try:
            schema = cover(schema, example, where, declared=sure, short_floats=short_floats)
        except SchemaError:
            if on_error == "raise":
                raise
    return schema


def scan(job: Job, task: Task, advance: Advance) -> Schema:
    """Return the schema widened to hold the examples of a task, except those that no wider one holds."""
    source = job.sources[task.split]
    wide = job.schema
    if is_complete(source):
        return wide
    sure = job.known.get(task.split)
    folder = working_directory()
    for row in task.rows.tolist():
        begin_example(row)
        try:
            parts = list(parts_of(source[row]))
            for part in parts:
                cover(job.schema, part, "", declared=sure, short_floats=job.short_floats)
                wide = cover(wide, part, "", declared=sure, short_floats=job.short_floats)
        except (Exception, SystemExit):  # noqa: BLE001  # the build itself will tell of it, by its policy
            continue
        finally:
            return_to(folder)
        advance(len(parts), 0)
    return wide


# The size of records
def count_split_shards(split: Split, samples: list[Named], schema: Schema, shards: int | None, format: Format) -> int:
    """Return the number of shards of a split."""
    by_size = shards is None and format.shard_examples is None
    size = _record_bytes(split, samples, schema) if by_size else 0.0
    count, examples = len(split.rows), format.shard_examples
    return count_shards(count, size, shards=shards, shard_bytes=format.shard_bytes, shard_examples=examples)


def _record_bytes(split: Split, samples: list[Named], schema: Schema) -> float:
    """Estimate the bytes that a record takes in a shard."""
    source = split.listed
    if isinstance(source, (Spooled, TarSamples)) and source.nbytes is not None:
        return float(source.nbytes / max(1, len(source)))
    records = _some_records(split, samples, Codec(schema))
    return records.nbytes / max(1, len(records)) + FRAME


def _some_records(split: Split, samples: list[Named], codec: Codec) -> Records:
    source = split.listed

    if not isinstance(source, (RecordSource, BatchSource)):
        return _fitting(lambda named: codec.encode_examples([named[1]], threads=1), samples)

    def encoded(rows: Array) -> Records:
        found: Records = source.records(rows) if isinstance(source, RecordSource) else codec.encode(source.take(rows))
        return found

    rows = split.rows[:: max(1, len(split.rows) // 64)].astype(np.int64)
    try:
        return encoded(rows)
    except PenstockError:  # of an invalid one among them
        return _fitting(encoded, np.split(rows, len(rows)))


def _fitting(encode: Callable[[Kind], Records], examples: Iterable[Kind]) -> Records:
    """Return the records of the examples that can be encoded."""
    records: list[bytes] = []
    for example in examples:
        try:
            records += list(encode(example))
        except (PenstockError, ValueError, TypeError, AttributeError):
            continue  # the build reports it
    return Records(records)
