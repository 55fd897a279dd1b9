"""Running a loader: the native feed, then what Python does with its batches, step by step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from .._core import Feed
from ..columns import Ragged
from ..errors import CorruptionError, SchemaError
from ..records.codec import default_threads
from .bucket import bucketed
from .cache import MISSING
from .chunks import Chunk, Marks, RowChunk, batch_of, grouped, positions_without, rebatched
from .collate import padded
from .columnar import rows_of
from .decoding import Decoder
from .iteration import Iteration, SkippedRecords
from .mapping import Done, Program, ordered, prefetched
from .pack import packed
from .places import Place
from .recipe import Recipe
from .state import Position
from .steps import STATEFUL, Batch, Bucket, Cache, Filter, Items, Map, Mark, Pack, Step

CHUNK = 256  # examples that are cut into rows at a time, at most
CHUNK_BYTES = 1 << 20
MAPPED = 64  # examples that one thread maps at a time, at most
FUSED = 256  # the largest batch that one thread maps as a whole


class Meter:
    """Seconds that the stages in Python took, over all threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.began = time.perf_counter()
        self.items = 0
        self._lock = threading.Lock()

    def add(self, stage: str, seconds: float) -> None:
        """So much longer."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


class Run:
    """One epoch of a recipe, from a position on."""

    def __init__(self, recipe: Recipe, position: Position) -> None:
        slots = position.slots or tuple(0 for _ in recipe.stateful())
        self.recipe = recipe
        self.position = position
        self.start: Mark = (position.taken, *slots)
        self.decoder = Decoder(recipe)
        self.threads = recipe.ahead.threads or default_threads()
        self.meter = Meter()
        self.skipped = SkippedRecords()
        self.feeds: list[Feed] = []
        rest, gone = position.rest(recipe.global_order)
        self.order = recipe.host.deal(rest)
        host = recipe.host
        self.gone = {at // host.count: tokens for at, tokens in gone.items() if at % host.count == host.index}
        length = self.order.length
        self.first = position.taken if length is None else min(position.taken, length)
        self.begin = self.start
        self.bucket = next((recipe.slot(step) for step in recipe.steps if isinstance(step, Bucket)), 0)
        if self.bucket:  # what waits in buckets is not part of a state: all that came before is read again
            self.first, self.begin = 0, (0,) * (self.bucket + 1) + self.start[self.bucket + 1 :]

    def feed(self, size: int, drop_remainder: bool = False) -> Feed:
        """The native feed of what is left."""
        recipe, decoder = self.recipe, self.decoder
        feed = recipe.shards.feed(
            decoder.plan,
            self.order,
            epoch=self.position.epoch,
            start=self.first,
            stop=None,
            batch=size,
            drop_remainder=drop_remainder,
            threads=self.threads,
            budget=recipe.ahead.memory,
            images=decoder.images,
            skip=recipe.on_error == "skip",
        )
        self.feeds.append(feed)
        return feed

    def close(self) -> None:
        """End the threads of the core."""
        for feed in self.feeds:
            feed.close()

    def place(self, position: int) -> Place:
        """Where the example of one of this host's positions lies."""
        position = min(max(position, 0), max((self.order.length or position + 1) - 1, 0))
        return self.decoder.places.of(int(self.order.numbers(self.position.epoch, position, position + 1)[0]))

    def global_position(self, position: int) -> int:
        """One of this host's positions, among all hosts'."""
        host = self.recipe.host
        return self.position.base + position * host.count + host.index

    def note_skipped(self, skipped: Collection[tuple[int, int, str]]) -> list[int]:
        """Report damaged records; gives their positions."""
        for _, number, message in skipped:
            self.skipped.report(message, self.decoder.places.of(number).key)
        return [position for position, _, _ in skipped]


def start(recipe: Recipe, position: Position) -> Iteration:
    """Begin an epoch."""
    run = Run(recipe, position)
    return Iteration(run, _items(run))


def _items(run: Run) -> Items:
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
    if run.recipe.ahead.items and run.recipe.steps:
        items = prefetched(items, run.recipe.ahead.items)
    return items


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
        return self._chunks if self._chunks is not None else _read(self.run, _chunk_size(self.run, CHUNK))

    def items(self) -> Items:
        """What there is, one by one."""
        return self._items if self._items is not None else _one_by_one(self.chunks())

    def batch(self, step: Batch) -> None:
        """Make batches."""
        run = self.run
        if self.untouched and run.recipe.on_error == "raise":
            items = _native(run, step)
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
            size = _chunk_size(run, MAPPED)
            self.to_items(
                _flat(ordered(_spans(run, size), work, max(1, before.threads, program.threads), before.stop)), False
            )
            self.shaped = lambda: before.shaped
            return
        program = self._program(steps)
        if batch is not None:
            make = _Batches(run, program, batch)
            chunks = _read(run, batch.size, batch.drop_remainder)
            self.to_items(ordered(chunks, make, program.threads, program.stop), True)
            return
        tasks: Iterator[Any]
        if self.untouched:
            tasks = _read(run, _chunk_size(run, MAPPED))
        elif self._items is not None:
            tasks = grouped(self._items, 1 if self.batches else MAPPED)
        else:
            tasks = self.chunks()
        self.to_items(_flat(ordered(tasks, _Rows(program), program.threads, program.stop)), self.batches)
        self.shaped = lambda: program.shaped


# Reading


def _read(run: Run, size: int, drop_remainder: bool = False) -> Iterator[Chunk]:
    """Chunks of examples, as the core decodes them."""
    decoder, slots = run.decoder, run.begin[1:]
    skips = run.recipe.on_error == "skip"
    feed = run.feed(size, drop_remainder)
    first = run.first
    try:
        for raw in feed:
            gone = run.note_skipped(feed.skipped) if skips else ()
            last = first + feed.rows + len(gone)
            if feed.rows:
                yield Chunk(decoder.batch(raw), Marks(positions_without(first, last, gone), slots))
            first = last
    except (CorruptionError, SchemaError) as error:
        raise decoder.places.named(error) from None
    finally:
        feed.close()


def _native(run: Run, step: Batch) -> Items:
    """Whole batches out of the core: Python pays for each batch, not for each example."""
    decoder, slots, size, pad = run.decoder, run.begin[1:], step.size, step.pad
    feed = run.feed(size, step.drop_remainder)
    taken = run.first
    try:
        for raw in feed:
            taken += size
            batch = decoder.batch(raw)
            yield batch if pad is None else padded(batch, pad), (taken, *slots)
    except (CorruptionError, SchemaError) as error:
        raise decoder.places.named(error) from None
    finally:
        feed.close()


def _chunk_size(run: Run, most: int) -> int:
    """So many examples that a chunk is neither large nor slow to come."""
    files = run.recipe.files
    average = sum(file.bytes for file in files) / max(1, sum(file.records for file in files))
    return max(1, min(most, int(CHUNK_BYTES / max(1.0, average))))


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
        self._program.watch(_shaped_columns(chunk.columns))
        rows = [row for row, _ in self._program(chunk.items()).whole()]
        began = time.perf_counter()
        batch = batch_of([rows], self._run.recipe.schema, self._program.shaped, self._step.pad)
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
        kept = [(found[number], (at + 1, *slots)) for at, number in zip(span, numbers, strict=True)]
        done = self._after([(example, mark) for example, mark in kept if example is not None])
        done.error = done.error or error
        return done

    def _make(self, wanted: list[tuple[int, Mark]]) -> Done:
        decoder = self._run.decoder
        try:
            rows: list[Any] = rows_of(decoder.examples([number for number, _ in wanted]))
        except (CorruptionError, SchemaError):
            if self._run.recipe.on_error == "raise":
                raise
            rows = [self._one(number) for number, _ in wanted]
        return self._before([(row, mark) for row, (_, mark) in zip(rows, wanted, strict=True) if row is not None])

    def _one(self, number: int) -> Any:
        try:
            return self._run.decoder.example(number)
        except (CorruptionError, SchemaError) as error:
            self._run.skipped.report(str(error), self._run.decoder.places.of(number).key)
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
