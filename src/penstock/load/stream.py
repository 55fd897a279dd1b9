"""What Python does with an epoch, step by step: items flow from one step to the next, some of it on threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from ..columns import Ragged
from ..errors import CorruptionError, SchemaError
from .bucket import bucketed
from .cache import MISSING
from .chunks import Chunk, RowChunk, batch_of, grouped, rebatched
from .collate import collate_kept, padded
from .columnar import rows_from, rows_of, values_of
from .mapping import Done, Program, begun, ordered, prefetched
from .pack import packed
from .pipeline import Run, chunk_size, native, read
from .steps import STATEFUL, Batch, Bucket, Cache, Filter, Items, Map, Mark, Pack, Step

CHUNK = 256  # examples that are cut into rows at a time, at most
MAPPED = 64  # examples that one thread maps at a time, at most
FUSED = 256  # the largest batch that one thread maps as a whole


def items_of(run: Run) -> Items:
    """All steps, one after the other."""
    stream = Stream(run)
    steps = list(run.recipe.steps)
    while steps:
        step = steps.pop(0)
        stream.slots += isinstance(step, STATEFUL)
        if isinstance(step, (Map, Filter, Cache)):
            inner: list[Step] = [step]
            while steps and isinstance(steps[0], (Map, Filter, Cache)):
                inner.append(steps.pop(0))
            fused = steps[0] if steps and isinstance(steps[0], Batch) and stream.fuses(inner, steps[0]) else None
            stream.apply(inner, fused)
            steps = steps[1:] if fused else steps
        elif isinstance(step, Batch):
            stream.batch(step)
        elif isinstance(step, Bucket):
            slot = run.recipe.slot(step)
            given = run.start[slot]
            stream.to_items(bucketed(stream.chunks(), step, slot, given, run.recipe.schema, stream.shaped), True)
        elif isinstance(step, Pack):
            slot = run.recipe.slot(step)
            stream.to_chunks(packed(stream.chunks(), step, slot, run.start, run.gone))
        else:
            slot = run.recipe.slot(step)
            begin = run.begin if slot < run.bucket else run.start
            stream.to_items(step.run(stream.items(), slot, begin), stream.batches)
    items = stream.items()
    form, ahead = run.recipe.form, run.recipe.ahead.items
    if form is not None:
        items = ((form.convert(item), mark) for item, mark in items)
    if ahead and (run.recipe.steps or form):
        return prefetched(items, ahead)
    return begun(items, form.ahead) if form is not None and form.ahead else items


class Stream:
    """What has been made so far: nothing yet, chunks of columns, or items."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.batches = False
        self.slots = 0  # of the steps so far
        self.shaped: Callable[[], Collection[str]] = tuple
        self._chunks: Iterator[Chunk] | None = None
        self._items: Items | None = None

    @property
    def untouched(self) -> bool:
        """Whether nothing stands between this and the feed."""
        return self._chunks is None and self._items is None

    def to_items(self, items: Items, batches: bool) -> None:
        self._items, self._chunks, self.batches = items, None, batches

    def to_chunks(self, chunks: Iterator[Chunk]) -> None:
        self._chunks, self._items = chunks, None

    def chunks(self) -> Iterator[Any]:
        """What there is as chunks."""
        if self._items is not None:
            return grouped(self._items, MAPPED)
        return self._chunks if self._chunks is not None else read(self.run, chunk_size(self.run, CHUNK))

    def items(self) -> Items:
        """What there is, one by one."""
        return self._items if self._items is not None else _one_by_one(self.chunks())

    def batch(self, step: Batch) -> None:
        """Make batches."""
        run = self.run
        if self.untouched and run.recipe.on_error == "raise":
            items = native(run, step)
        elif self._items is None:
            items = rebatched(self.chunks(), step.size, step.drop_remainder, step.pad)
        else:
            items = _collated(self._items, step, run, self.shaped)
        self.to_items(items, True)

    def fuses(self, steps: list[Step], batch: Batch) -> bool:
        """Whether a thread can make whole batches: no example is left out in between."""
        simple = all(isinstance(step, Map) for step in steps) and self.run.recipe.on_error == "raise"
        return self.untouched and simple and batch.size <= FUSED

    def _program(self, steps: list[Step]) -> Program:
        return Program([step for step in steps if isinstance(step, (Map, Filter))], self.run, self.batches, self.slots)

    def apply(self, steps: list[Step], batch: Batch | None) -> None:
        """Maps, filters and a cache; with `batch`, what they make is put together on the same threads."""
        run = self.run
        cache = next((step for step in steps if isinstance(step, Cache)), None)
        if cache is not None:
            at = steps.index(cache)
            before, steps = self._program(steps[:at]), steps[at + 1 :]
            program = self._program(steps)
            program.stop = before.stop
            work = _Cached(run, cache, before, program)
            size = chunk_size(run, MAPPED)
            self.to_items(
                _flat(ordered(_spans(run, size), work, max(1, before.threads, program.threads), before.stop)), False
            )
            self.shaped = lambda: program.shaped
            return
        program = self._program(steps)
        if batch is not None:
            make = _Batches(run, program, batch)
            chunks = read(run, batch.size, batch.drop_remainder)
            self.to_items(ordered(chunks, make, program.threads, program.stop), True)
            return
        tasks: Iterator[Any]
        if self.untouched:
            tasks = read(run, chunk_size(run, MAPPED))
        elif self._items is not None:
            tasks = grouped(self._items, 1 if self.batches else MAPPED)
        else:
            tasks = self.chunks()
        self.to_items(_flat(ordered(tasks, _Rows(program), program.threads, program.stop)), self.batches)
        self.shaped = lambda: program.shaped


def _one_by_one(chunks: Iterator[Any]) -> Items:
    for chunk in chunks:
        yield from chunk.items()


def _flat(groups: Iterator[Done]) -> Items:
    try:
        for group in groups:
            yield from group
            group.whole()
    finally:
        groups.close()  # type: ignore[attr-defined]


# What runs on threads


class _Rows:
    """Chunk to items, through the maps and filters."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __call__(self, chunk: Chunk | RowChunk) -> Done:
        if isinstance(chunk, RowChunk):
            return self._program(list(zip(chunk.examples, chunk.marks, strict=True)))
        self._program.watch(_shaped_columns(chunk.columns))
        return self._program(chunk.items())


class _Batches:
    """Chunk to batch, through the maps."""

    def __init__(self, run: Run, program: Program, step: Batch) -> None:
        self._run, self._program, self._step = run, program, step

    def __call__(self, chunk: Chunk) -> tuple[Any, Mark]:
        values = {name: values_of(column) for name, column in chunk.columns.items()}
        items = list(zip(rows_from(values), chunk.marks, strict=True))
        rows = [row for row, _ in self._program(items).whole()]
        began = time.perf_counter()
        batch = collate_kept(rows, chunk.columns, values, self._run.recipe.schema, self._step.pad)
        batch = batch if self._step.pad is None else padded(batch, self._step.pad)
        self._run.meter.add("collate", time.perf_counter() - began)
        # A last batch that is short counts as a whole one, so that all hosts count alike.
        first, *slots = chunk.marks[0]
        return batch, (first - 1 + self._step.size, *slots)


class _Cached:
    """Positions to items, through the cache; what is missing there is read, mapped and kept."""

    def __init__(self, run: Run, cache: Cache, before: Program, after: Program) -> None:
        self._run, self._store, self._before, self._after = run, cache.store, before, after

    def __call__(self, span: range) -> Done:
        run, slots = self._run, self._run.begin[1:]
        numbers = run.order.numbers(run.position.epoch, span.start, span.stop).tolist()
        found = {number: self._store.get(number) for number in numbers}
        missing = [at for at, number in enumerate(numbers) if found[number] is MISSING]
        error = None
        if missing:
            made = self._make([(numbers[at], (span[at] + 1, *slots)) for at in missing])
            examples, error = {mark[0]: example for example, mark in made}, made.error
            for at in missing:
                example = found[numbers[at]] = examples.get(span[at] + 1)
                if error is None:
                    self._store.put(numbers[at], example)
            self._store.shaped.update(self._before.shaped)
        self._after.watch(list(self._store.shaped))
        kept = [(found[number], (at + 1, *slots)) for at, number in zip(span, numbers, strict=True)]
        done = self._after([(example, mark) for example, mark in kept if example is not None])
        done.error = done.error or error
        return done

    def _make(self, wanted: list[tuple[int, Mark]]) -> Done:
        decoder = self._run.decoder
        try:
            columns = decoder.examples([number for number, _ in wanted])
            self._before.watch(_shaped_columns(columns))
            rows: list[Any] = rows_of(columns)
        except (CorruptionError, SchemaError):
            if self._run.recipe.on_error == "raise":
                raise
            rows = [self._one(number) for number, _ in wanted]
        return self._before([(row, mark) for row, (_, mark) in zip(rows, wanted, strict=True) if row is not None])

    def _one(self, number: int) -> Any:
        try:
            return self._run.decoder.example(number)
        except (CorruptionError, SchemaError) as error:
            self._run.skipped.report(str(error), self._run.decoder.locations.of(number).key)
            return None


def _spans(run: Run, size: int) -> Iterator[range]:
    """This host's positions, some at a time."""
    first, length = run.first, run.order.length
    while length is None or first < length:
        last = first + size if length is None else min(first + size, length)
        yield range(first, last)
        first = last


def _shaped_columns(columns: Any) -> list[str]:
    return [name for name, column in columns.items() if isinstance(column, Ragged) and column.shapes is not None]


def _collated(items: Items, step: Batch, run: Run, shaped: Callable[[], Collection[str]]) -> Items:
    """Items that Python has made, as batches."""
    for group in grouped(items, step.size):
        if len(group) == step.size or not step.drop_remainder:
            began = time.perf_counter()
            batch = batch_of([group.examples], run.recipe.schema, shaped(), step.pad)
            run.meter.add("collate", time.perf_counter() - began)
            yield batch, group.marks[-1]
