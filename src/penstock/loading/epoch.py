"""One running epoch: where it begins, the native feed that reads it, and whole batches straight out of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from .._core import Feed
from ..dataset.shards import Location
from ..errors import CorruptionError, PenstockError, SchemaError
from ..records.codec import default_threads
from ..schema.columns import Ragged, Value
from .spec import STATEFUL, Batch, Bucket, Cache, Filter, Items, LoadSpec, Map, Mark, Pack, Step
from .state import LoaderState, Position
from .transforms.batch import (
    Chunk,
    Marks,
    RowChunk,
    batch_of,
    collate_kept,
    grouped,
    padded,
    positions_without,
    rebatched,
    rows_from,
    rows_of,
    values_of,
)
from .transforms.cache import MISSING
from .transforms.map import Done, Program, begun, ordered, prefetched
from .transforms.pack import bucketed, packed

if TYPE_CHECKING:
    from .prefetch import Prefetch
    from .profile import Profile

CHUNK_BYTES = 1 << 20


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
    """One epoch of a spec, from a position on."""

    def __init__(self, spec: LoadSpec, position: Position) -> None:
        slots = position.slots or tuple(0 for _ in spec.stateful())
        self.spec = spec
        self.position = position
        self.start: Mark = (position.taken, *slots)
        self.reader = spec.reader()
        self.threads = spec.ahead.threads or default_threads()
        self.meter = Meter()
        self.skipped = SkippedRecords()
        self.feeds: list[Feed] = []
        self.prefetch: Prefetch | None = None
        rest, gone = position.rest(spec.global_order)
        self.order = spec.host.deal(rest)
        host = spec.host
        self.gone = {at // host.count: tokens for at, tokens in gone.items() if at % host.count == host.index}
        length = self.order.length
        self.first = position.taken if length is None else min(position.taken, length)
        self.begin = self.start
        self.bucket = next((spec.slot(step) for step in spec.steps if isinstance(step, Bucket)), 0)
        if self.bucket:  # what waits in buckets is not part of a state: all that came before is read again
            self.first, self.begin = 0, (0,) * (self.bucket + 1) + self.start[self.bucket + 1 :]

    def feed(self, size: int, drop_remainder: bool = False) -> Feed:
        """The native feed of what is left."""
        spec, reader = self.spec, self.reader
        budget = spec.ahead.memory
        access = spec.access
        if access.fetcher is not None:
            from .prefetch import Prefetch  # datasets on local disk need none

            self.prefetch = Prefetch(
                access.fetcher, access.shards, access.files, self.order, self.position.epoch, self.first
            )
            budget = self.prefetch.within(budget)
        feed = access.shards.feed(
            reader.codec.plan,
            self.order,
            epoch=self.position.epoch,
            start=self.first,
            stop=None,
            batch=size,
            drop_remainder=drop_remainder,
            threads=self.threads,
            budget=budget,
            images=reader.codec.images,
            skip=spec.on_error == "skip",
        )
        self.feeds.append(feed)
        return feed

    def named(self, error: PenstockError) -> PenstockError:
        """Return an error of the core with the key of its example."""
        form, locations = self.spec.form, self.reader.locations
        number = locations.number(error) if form is not None and self.reader.codec.narrow else None
        if form is None or number is None:
            return locations.named(error)
        try:  # integers that do not fit into 32 bits: the framework's error has the fix
            form.convert(replace(self.spec, form=None).reader().examples([number]))
        except SchemaError as better:
            return SchemaError(f"{better} ({locations.of(number)})")
        return locations.named(error)

    def close(self) -> None:
        """End the threads of the core."""
        for feed in self.feeds:
            feed.close()
        if self.prefetch is not None:
            self.prefetch.close()

    def passed(self, position: int) -> None:
        """All before a position was delivered."""
        if self.prefetch is not None:
            self.prefetch.passed(position)

    def place(self, position: int) -> Location:
        """Where the example of one of this host's positions lies."""
        position = min(max(position, 0), max((self.order.length or position + 1) - 1, 0))
        return self.reader.locations.of(int(self.order.numbers(self.position.epoch, position, position + 1)[0]))

    def global_position(self, position: int) -> int:
        """One of this host's positions, among all hosts'."""
        host = self.spec.host
        return self.position.base + position * host.count + host.index

    def note_skipped(self, skipped: Collection[tuple[int, int, str]]) -> list[int]:
        """Report damaged records; gives their positions."""
        for _, number, message in skipped:
            self.skipped.report(message, self.reader.locations.of(number).key)
        return [position for position, _, _ in skipped]


def start(spec: LoadSpec, position: Position) -> Iteration:
    """Begin an epoch."""
    run = Run(spec, position)
    plain = spec.on_error == "raise" and spec.form is None
    if plain and len(spec.steps) == 1 and isinstance(spec.steps[0], Batch):
        return Iteration(run, native(run, spec.steps[0]))

    return Iteration(run, items_of(run))


def read(run: Run, size: int, drop_remainder: bool = False) -> Iterator[Chunk]:
    """Chunks of examples, as the core decodes them."""
    reader, slots = run.reader, run.begin[1:]
    skips = run.spec.on_error == "skip"
    feed = run.feed(size, drop_remainder)
    first = run.first
    try:
        for raw in feed:
            gone = run.note_skipped(feed.skipped) if skips else ()
            last = first + feed.rows + len(gone)
            if feed.rows:
                yield Chunk(reader.codec.to_batch(raw), Marks(positions_without(first, last, gone), slots))
            first = last
            run.passed(first)
    except (CorruptionError, SchemaError) as error:
        raise run.named(error) from None
    finally:
        feed.close()


def native(run: Run, step: Batch) -> Items:
    """Whole batches out of the core: Python pays for each batch, not for each example."""
    reader, slots, size, pad = run.reader, run.begin[1:], step.size, step.pad
    feed = run.feed(size, step.drop_remainder)
    taken = run.first
    try:
        for raw in feed:
            taken += size
            run.passed(taken)
            batch = reader.codec.to_batch(raw)
            yield batch if pad is None else padded(batch, pad), (taken, *slots)
    except (CorruptionError, SchemaError) as error:
        raise run.named(error) from None
    finally:
        feed.close()


def chunk_size(run: Run, most: int) -> int:
    """So many examples that a chunk is neither large nor slow to come."""
    files = run.spec.files
    average = sum(files.sizes) / max(1, sum(files.records))
    return max(1, min(most, int(CHUNK_BYTES / max(1.0, average))))


MOST_REPORTS = 20  # damaged records that are logged one by one
MOST_KEPT = 1000  # and that are kept


class Skipped(NamedTuple):
    """A damaged record that was left out: what is wrong with it and where, and its key, if that is known."""

    message: str
    key: str | None


class SkippedRecords(list[Skipped]):
    """What was left out, the first thousand of it; `total` tells all."""

    total = 0

    def report(self, message: str, key: str | None) -> None:
        """Count one more, and say so while there are few."""
        import logging  # for the rare case

        log = logging.getLogger("penstock.load")
        self.total += 1
        told = message if key is None or f"key {key!r}" in message else f"{message} (key {key!r})"
        if len(self) < MOST_KEPT:
            self.append(Skipped(told, key))
        if self.total <= MOST_REPORTS:
            log.warning("skipped a record: %s", told)
        if self.total == MOST_REPORTS:
            log.warning("more skipped records are only counted: see the iterator's `skipped`")


class Iteration:
    """One epoch of a loader, under way.

    iterator = iter(loader)
    for batch in iterator:
        ...
        checkpoint = iterator.state()      # goes on after this batch: loader.resume(checkpoint)

    skipped  damaged records that were left out (on_error="skip")
    """

    def __init__(self, run: Run, items: Items) -> None:
        self.run = run
        self._items = items
        self._mark = run.start
        self._ended = self._closed = False
        self._process = os.getpid()
        self.skipped = run.skipped

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Value:
        if self._process != os.getpid():
            raise PenstockError(
                "expected an iteration of this process, got one that began before a fork. Call iter(loader) here"
            )
        try:
            item, self._mark = next(self._items)
        except StopIteration:
            self._ended = self._ended or not self._closed
            raise
        return item

    def __repr__(self) -> str:
        place = "at its end" if self._ended else f"after {self._mark[0]} examples"
        return f"Iteration(epoch {self.run.position.epoch}, {place})"

    def state(self) -> dict[str, object]:
        """Where it is, in a small dict of plain values: `loader.resume(state)` goes on with the next item."""
        run = self.run
        position = run.position
        if self._ended:
            position = Position(epoch=position.epoch + 1, slots=tuple(0 for _ in position.slots))
        else:
            taken, *slots = self._mark
            position = Position(position.epoch, position.base, position.past, taken, tuple(slots))
        return LoaderState.of(position, run.spec).to_json()

    def profile(self) -> Profile:
        """What has taken how long so far, the wait for whoever takes the items included."""
        from .profile import measured

        return measured(self.run)

    def close(self) -> None:
        """End its threads. Nothing comes after it; `state` stays what it is."""
        self._closed = True
        if self._process != os.getpid():  # its threads, and their locks, are those of another process
            return
        self._items.close()  # type: ignore[attr-defined]
        self.run.close()

    def __enter__(self) -> Iteration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


CHUNK = 256  # examples that are cut into rows at a time, at most
MAPPED = 64  # examples that one thread maps at a time, at most
FUSED = 256  # the largest batch that one thread maps as a whole


def items_of(run: Run) -> Items:
    """All steps, one after the other."""
    stream = Stream(run)
    steps = list(run.spec.steps)
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
            slot = run.spec.slot(step)
            given = run.start[slot]
            stream.to_items(bucketed(stream.chunks(), step, slot, given, run.spec.schema, stream.shaped), True)
        elif isinstance(step, Pack):
            slot = run.spec.slot(step)
            stream.to_chunks(packed(stream.chunks(), step, slot, run.start, run.gone))
        else:
            slot = run.spec.slot(step)
            begin = run.begin if slot < run.bucket else run.start
            stream.to_items(step.run(stream.items(), slot, begin), stream.batches)
    items = stream.items()
    form, ahead = run.spec.form, run.spec.ahead.items
    if form is not None:
        items = ((form.convert(item), mark) for item, mark in items)
    if ahead and (run.spec.steps or form):
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

    def chunks(self) -> Iterator[Value]:
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
        if self.untouched and run.spec.on_error == "raise":
            items = native(run, step)
        elif self._items is None:
            items = rebatched(self.chunks(), step.size, step.drop_remainder, step.pad)
        else:
            items = _collated(self._items, step, run, self.shaped)
        self.to_items(items, True)

    def fuses(self, steps: list[Step], batch: Batch) -> bool:
        """Whether a thread can make whole batches: no example is left out in between."""
        simple = all(isinstance(step, Map) for step in steps) and self.run.spec.on_error == "raise"
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
        tasks: Iterator[Value]
        if self.untouched:
            tasks = read(run, chunk_size(run, MAPPED))
        elif self._items is not None:
            tasks = grouped(self._items, 1 if self.batches else MAPPED)
        else:
            tasks = self.chunks()
        self.to_items(_flat(ordered(tasks, _Rows(program), program.threads, program.stop)), self.batches)
        self.shaped = lambda: program.shaped


def _one_by_one(chunks: Iterator[Value]) -> Items:
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

    def __call__(self, chunk: Chunk) -> tuple[Value, Mark]:
        values = {name: values_of(column) for name, column in chunk.columns.items()}
        items = list(zip(rows_from(values), chunk.marks, strict=True))
        rows = [row for row, _ in self._program(items).whole()]
        began = time.perf_counter()
        batch = collate_kept(rows, chunk.columns, values, self._run.spec.schema, self._step.pad)
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
        reader = self._run.reader
        try:
            columns = reader.examples([number for number, _ in wanted])
            self._before.watch(_shaped_columns(columns))
            rows: list[Value] = rows_of(columns)
        except (CorruptionError, SchemaError):
            if self._run.spec.on_error == "raise":
                raise
            rows = [self._one(number) for number, _ in wanted]
        return self._before([(row, mark) for row, (_, mark) in zip(rows, wanted, strict=True) if row is not None])

    def _one(self, number: int) -> Value:
        try:
            return self._run.reader.example(number)
        except (CorruptionError, SchemaError) as error:
            self._run.skipped.report(str(error), self._run.reader.locations.of(number).key)
            return None


def _spans(run: Run, size: int) -> Iterator[range]:
    """This host's positions, some at a time."""
    first, length = run.first, run.order.length
    while length is None or first < length:
        last = first + size if length is None else min(first + size, length)
        yield range(first, last)
        first = last


def _shaped_columns(columns: Value) -> list[str]:
    return [name for name, column in columns.items() if isinstance(column, Ragged) and column.shapes is not None]


def _collated(items: Items, step: Batch, run: Run, shaped: Callable[[], Collection[str]]) -> Items:
    """Items that Python has made, as batches."""
    for group in grouped(items, step.size):
        if len(group) == step.size or not step.drop_remainder:
            began = time.perf_counter()
            batch = batch_of([group.examples], run.spec.schema, shaped(), step.pad)
            run.meter.add("collate", time.perf_counter() - began)
            yield batch, group.marks[-1]
