"""The schema of a build: what sources are sure of, what a sample shows, and what a look at every example finds."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from functools import reduce
from typing import Any

import numpy as np

from ..columns import Array
from ..errors import SchemaError
from ..example import IgnoreExample
from ..inference import cover
from ..schema import Schema
from .encoder import Job, example_error, tells, weigh
from .inputs import is_complete, parts_of
from .local import Local
from .task import Task
from .workers import Progress, silent

MOST_SAMPLED = 256  # examples of each source
MOST_SAMPLED_BYTES = 16 << 20

WORTH_WORKERS = 0.1  # seconds that a sample takes to load

Named = tuple[str, dict[str, Any]]  # an example, after what messages call it
Parts = list[dict[str, Any]]  # what is stored for an example
Loadable = tuple[str, str, Callable[[], str], Callable[[], Parts]]  # split, key, place, what loads it


def sample(examples: Iterable[Loadable], on_error: str) -> list[Named]:
    """The first of some examples, loaded. Bad ones are left out, unless that is an error."""
    taken: list[Named] = []
    size = 0
    for split, key, place, load in examples:
        try:
            parts = load()
        except IgnoreExample:
            continue
        except Exception as error:
            if on_error == "raise":
                raise example_error(error, split, key, place()) from error
            continue
        taken += [(f"{split}[{key!r}]", part) for part in parts]
        size += sum(map(weigh, parts))
        if len(taken) >= MOST_SAMPLED or size > MOST_SAMPLED_BYTES:
            break
    return taken


def load_ahead(engine: Local, source: Any, rows: Array) -> dict[int, Parts]:
    """What a sample takes of some examples, by number: loaded by all workers where that is worth it.

    Those that fail are left out: who wants them finds out why.
    """
    began = time.monotonic()
    known = load_some(source, rows[: 2 * engine.processes])
    each = (time.monotonic() - began) / max(1, len(known))
    size = sum(map(len, known.values())) // max(1, len(known))
    rest = rows[2 * engine.processes : min(MOST_SAMPLED, MOST_SAMPLED_BYTES // (1 + size))]
    if engine.processes > 1 and each * len(rest) > WORTH_WORKERS:
        pieces = np.array_split(rest, min(len(rest), 4 * engine.processes))
        with closing(engine.map(load_some, source, pieces, silent)) as results:
            for _, found in results:
                known |= found
    return {row: pickle.loads(parts) for row, parts in known.items()}  # noqa: S301  # from our own workers


def load_some(source: Any, rows: Array, progress: Progress | None = None) -> dict[int, bytes]:
    """Examples by number, ready for the way home from another process."""
    found = {}
    for row in rows.tolist():
        with suppress(Exception):
            found[row] = pickle.dumps(list(parts_of(source[row])), pickle.HIGHEST_PROTOCOL)
    return found


def infer_all(samples: Mapping[str, list[Named]], known: Mapping[str, Schema | None], on_error: str) -> Schema:
    """The schema that the splits share, as far as the samples show it."""
    schemas = [_infer(examples, known[split], on_error) for split, examples in samples.items() if examples]
    schemas += [sure for split, sure in known.items() if sure is not None and not samples[split]]
    if not schemas:
        raise SchemaError("expected examples, got none that can be loaded")
    return reduce(Schema.widen, schemas)


def _infer(examples: list[Named], sure: Schema | None, on_error: str) -> Schema:
    """The schema of some examples. A field that no example has a value for waits for one that has."""
    told: dict[str, Any] = {}
    for _, example in examples:
        told.update((name, value) for name, value in example.items() if name not in told and tells(value))
    try:
        rows = [{name: value for name, value in example.items() if name in told} for _, example in examples]
        return Schema.infer(rows, schema=sure)
    except SchemaError:
        schema = Schema.infer([told], schema=sure)
    for where, example in examples:  # one by one, to name the one that does not fit
        try:
            schema = cover(schema, example, where, declared=sure)
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
    for row in task.rows.tolist():
        try:
            parts = list(parts_of(source[row]))
            for part in parts:
                cover(job.schema, part, "", declared=sure)
                wide = cover(wide, part, "", declared=sure)
        except Exception:  # noqa: BLE001  # the build itself will tell of it, by its policy
            continue
        progress(len(parts), 0)
    return wide
