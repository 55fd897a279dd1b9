"""The schema of a build: what sources are sure of, what a sample shows, and what a look at every example finds."""

from __future__ import annotations

import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial, reduce
from typing import Any

import numpy as np

from ..errors import SchemaError
from ..schema.columns import Array
from ..schema.example_class import IgnoreExample
from ..schema.inference import cover, infer, widen
from ..schema.schema import Schema
from .encode import Job, example_error, tells, weigh
from .engines.local import Local, LostWorkerError, Progress, WorkerTraceback, begin_example, silent
from .inputs import is_complete, parts_of, return_to, working_directory
from .write import Task

MOST_SAMPLED = 256  # examples of each source
MOST_SAMPLED_BYTES = 16 << 20
WORTH_WORKERS = 0.1  # seconds that a sample takes to load
Named = tuple[str, dict[str, Any]]  # an example, after what messages call it
Parts = list[dict[str, Any]]  # what is stored for an example
Loadable = tuple[str, str, Callable[[], str], Callable[[], Parts]]  # split, key, place, what loads it


def sample(examples: Iterable[Loadable], on_error: str) -> list[Named]:
    """The first of some examples, loaded. Bad ones are left out, unless that is an error."""
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


def loaded(engine: Local, source: Any, rows: Array, *, here: bool) -> Generator[Parts | Exception, None, None]:
    """What examples become, or why not, in their order: a few, then as many at a time as a sample takes.

    here  by this process, unless it takes so long that workers are worth it
    """
    waiting: deque[Array] = deque()
    first, step = 0, 2
    with closing(engine.map(load_some, source, waiting, silent)) as results:
        while first < len(rows):
            some = rows[first : first + step]
            began, found = time.monotonic(), load_some(source, some) if here else {}
            if not here:
                waiting.extend(np.array_split(some, min(len(some), 4 * engine.processes) if first else 1))
            while len(found) < len(some):
                found |= next(results)[1]
            yield from (_arrived(found[row]) for row in some.tolist())
            each = (time.monotonic() - began) / len(some)
            first += len(some)
            step = max(1, min(MOST_SAMPLED, MOST_SAMPLED_BYTES // max(map(len, found.values()))))
            here = here and (engine.processes == 1 or each * min(step, len(rows) - first) < WORTH_WORKERS)


def _arrived(told: bytes) -> Parts | Exception:
    """What another process has sent: the parts of an example, or why there are none."""
    parts: Parts
    parts, error, trace = pickle.loads(told)  # noqa: S301  # from our own workers
    if error is None:
        return parts
    failed: Exception = type(error[0], (Exception,), {})(error[1]) if isinstance(error, tuple) else error
    failed.__cause__ = WorkerTraceback(trace)
    return failed


def load_some(source: Any, rows: Array, progress: Progress | None = None) -> dict[int, bytes]:
    """Examples by number, or why they cannot be loaded, ready for the way home from another process."""
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
    """The error; of one that cannot be sent its name, and what it says."""
    with suppress(Exception):
        if isinstance(error, Exception) and str(pickle.loads(pickle.dumps(error))) == str(error):  # noqa: S301  # ours
            return error
    return type(error).__name__, str(error)


def infer_all(
    samples: Mapping[str, list[Named]], known: Mapping[str, Schema | None], on_error: str, *, short_floats: bool = False
) -> Schema:
    """The schema that the splits share, as far as the samples show it."""
    some = {split: examples for split, examples in samples.items() if examples}
    schemas = [_infer(examples, known[split], on_error, short_floats) for split, examples in some.items()]
    schemas += [sure for split, sure in known.items() if sure is not None and not samples[split]]
    if not schemas:
        raise SchemaError("expected examples, got none that can be loaded")
    return reduce(partial(widen, short_floats=short_floats), schemas)


def _infer(examples: list[Named], sure: Schema | None, on_error: str, short_floats: bool) -> Schema:
    """The schema of some examples. A field that no example has a value for waits for one that has."""
    told: dict[str, Any] = {}
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


def scan(job: Job, task: Task, progress: Progress) -> Schema:
    """The schema widened so that it holds the examples of a task, but for those that no wider one holds."""
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
        progress(len(parts), 0)
    return wide
