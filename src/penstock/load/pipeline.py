"""One running epoch: where it begins, the native feed that reads it, and whole batches straight out of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from .._core import Feed
from ..errors import CorruptionError, SchemaError
from ..records.codec import default_threads
from .chunks import Chunk, Marks, positions_without
from .collate import padded
from .decoding import Decoder
from .iteration import Iteration, SkippedRecords
from .locations import Location
from .recipe import Recipe
from .state import Position
from .steps import Batch, Bucket, Items, Mark

if TYPE_CHECKING:
    from .prefetch import Prefetch

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
        self.prefetch: Prefetch | None = None
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
        budget = recipe.ahead.memory
        if recipe.fetcher is not None:
            from .prefetch import Prefetch

            self.prefetch = Prefetch(
                recipe.fetcher, recipe.shards, tuple(recipe.files), self.order, self.position.epoch, self.first
            )
            budget = self.prefetch.within(budget)
        feed = recipe.shards.feed(
            decoder.plan,
            self.order,
            epoch=self.position.epoch,
            start=self.first,
            stop=None,
            batch=size,
            drop_remainder=drop_remainder,
            threads=self.threads,
            budget=budget,
            images=decoder.images,
            skip=recipe.on_error == "skip",
        )
        self.feeds.append(feed)
        return feed

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
        return self.decoder.locations.of(int(self.order.numbers(self.position.epoch, position, position + 1)[0]))

    def global_position(self, position: int) -> int:
        """One of this host's positions, among all hosts'."""
        host = self.recipe.host
        return self.position.base + position * host.count + host.index

    def note_skipped(self, skipped: Collection[tuple[int, int, str]]) -> list[int]:
        """Report damaged records; gives their positions."""
        for _, number, message in skipped:
            self.skipped.report(message, self.decoder.locations.of(number).key)
        return [position for position, _, _ in skipped]


def start(recipe: Recipe, position: Position) -> Iteration:
    """Begin an epoch."""
    run = Run(recipe, position)
    plain = recipe.on_error == "raise" and recipe.form is None
    if plain and len(recipe.steps) == 1 and isinstance(recipe.steps[0], Batch):
        return Iteration(run, native(run, recipe.steps[0]))
    from .stream import items_of  # what Python does takes longer to import than the first batch to read

    return Iteration(run, items_of(run))


def read(run: Run, size: int, drop_remainder: bool = False) -> Iterator[Chunk]:
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
            run.passed(first)
    except (CorruptionError, SchemaError) as error:
        raise decoder.named(error) from None
    finally:
        feed.close()


def native(run: Run, step: Batch) -> Items:
    """Whole batches out of the core: Python pays for each batch, not for each example."""
    decoder, slots, size, pad = run.decoder, run.begin[1:], step.size, step.pad
    feed = run.feed(size, step.drop_remainder)
    taken = run.first
    try:
        for raw in feed:
            taken += size
            run.passed(taken)
            batch = decoder.batch(raw)
            yield batch if pad is None else padded(batch, pad), (taken, *slots)
    except (CorruptionError, SchemaError) as error:
        raise decoder.named(error) from None
    finally:
        feed.close()


def chunk_size(run: Run, most: int) -> int:
    """So many examples that a chunk is neither large nor slow to come."""
    files = run.recipe.files
    average = sum(files.sizes) / max(1, sum(files.records))
    return max(1, min(most, int(CHUNK_BYTES / max(1.0, average))))
