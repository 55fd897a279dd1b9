"""What a loader reads, as one value: which examples, in which order, of which form, for which host."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Literal, TypeAlias, TypedDict

from .._core import Order
from ..dataset.open import Opened, ShardAccess
from ..dataset.shards import ExampleReader, JoinedFiles, ShardFiles
from ..errors import ArgumentError, SchemaError
from ..schema.columns import ExampleDict, Value
from ..schema.field import Decode
from ..schema.schema import Schema

OnError: TypeAlias = Literal["raise", "skip"]
Even: TypeAlias = Literal["drop", "pad"]
Stage: TypeAlias = Literal["order", "map", "examples", "batches"]


@dataclass(frozen=True)
class Host:
    """One of several that share the examples.

    even   what becomes of examples that are left over: "drop", "pad", or None if some hosts get one more
    given  whether `shard` was called: then no framework decides it
    """

    index: int = 0
    count: int = 1
    even: Even | None = None
    given: bool = False

    def deal(self, order: Order) -> Order:
        """This host's part of an order: every `count`th example."""
        if self.count == 1:
            return order
        total = order.length
        if self.even is None or total is None:
            return order.slice(self.index, None, self.count)
        if self.even == "drop":
            return order.slice(self.index, total // self.count * self.count, self.count)
        rounds = -(-total // self.count)
        return order.slice(self.index, rounds * self.count, self.count, wrap=True)


MEMORY = 768 << 20
WHOLE = 256 << 20  # bytes up to which the core inflates a file as a whole ...
WINDOW = 64 << 20  # ... and those that it keeps of a larger one
HELD = 512 << 20  # bytes of all inflated files that stay in memory


@dataclass(frozen=True)
class DatasetId:
    """What tells the data of a loader apart: a name, the number of examples, a digest of the shards and spans."""

    name: str
    examples: int
    digest: str

    def __str__(self) -> str:
        return f"{self.name!r} ({self.examples} examples)"

    def to_json(self) -> dict[str, str | int]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> DatasetId:
        """Return the identity of `to_json()`; of anything else, one that no dataset has."""
        found = data if isinstance(data, Mapping) else {}
        whole = found.keys() == {"name", "examples", "digest"} and isinstance(found["digest"], str)
        return cls(found.get("name", None), found.get("examples", None), found["digest"] if whole else "")


@dataclass(frozen=True)
class Part:
    """Some examples of a dataset: spans of its numbers, each from the first to the one after the last."""

    dataset: Opened
    spans: tuple[tuple[int, int], ...]
    on_error: OnError = "raise"

    @property
    def length(self) -> int:
        """How many examples."""
        return sum(last - first for first, last in self.spans)

    def order(self, starts: dict[int, int]) -> Order:
        """The examples in their own order, numbered as among all datasets of a loader."""
        begin = starts[id(self.dataset)]
        parts = [Order.span(begin + first, begin + last) for first, last in self.spans]
        return parts[0] if len(parts) == 1 else Order.concat(parts)


@dataclass(frozen=True)
class Mixture:
    """Several loaders, in fixed proportions."""

    specs: tuple[LoadSpec, ...]
    weights: tuple[float, ...]
    seed: int

    def order(self, starts: dict[int, int]) -> Order:
        """The mixed order."""
        return Order.mix([spec.numbered(starts) for spec in self.specs], list(self.weights), self.seed)


@dataclass(frozen=True)
class Ahead:
    """How far to work ahead: finished items that wait, threads, and the bytes that all of it may take."""

    items: int = 0
    threads: int | None = None
    memory: int = MEMORY


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Form:
    """What a framework makes of each item.

    convert  what is done to it
    narrow   whether integers of 64 bits become such of 32 there, now: the core may decode them as that
    ahead    how many more items are made than were asked for: a device copies them meanwhile
    """

    convert: Callable[[Value], Value]
    narrow: Callable[[], bool] = _never
    ahead: int = 0


@dataclass(frozen=True)
class LoadSpec:
    """What a loader reads. Steps on the order come first, wherever they are in the chain, then hosts are dealt to."""

    root: Part | Mixture
    order_steps: tuple[OrderStep, ...] = ()
    fields: tuple[str, ...] | None = None
    decode: Decode = True
    steps: tuple[Step, ...] = ()
    host: Host = field(default_factory=Host)
    ahead: Ahead = field(default_factory=Ahead)
    form: Form | None = None  # no part of the pipeline

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}  # without what can be made again

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    @cached_property
    def datasets(self) -> list[Opened]:
        """The datasets that it reads, each once."""
        if isinstance(self.root, Part):
            return [self.root.dataset]
        return list({id(dataset): dataset for spec in self.root.specs for dataset in spec.datasets}.values())

    @property
    def unread(self) -> dict[str, str]:
        """Fields that are stored but can't be read, each with the reason."""
        return {name: reason for dataset in self.datasets for name, reason in dataset.unread.items()}

    @cached_property
    def access(self) -> ShardAccess:
        """Reads the shards of all datasets."""
        if len(self.datasets) == 1:
            return self.datasets[0].access
        return ShardAccess(JoinedFiles([dataset.files for dataset in self.datasets]))

    @property
    def files(self) -> ShardFiles:
        """The shards of all datasets, one after the other: examples are numbered through them."""
        return self.access.files

    def reader(self) -> ExampleReader:
        """Return a reader of single examples."""
        return self.access.reader(self.schema, self.decode, narrow=self.narrow)

    @property
    def widest_window(self) -> int | None:
        """The widest shuffle that inflates each compressed tar once or twice; None where examples are read anywhere.

        They are where all compressed tars together stay in memory once they are inflated.
        """
        inflated = self.files.inflated
        if sum(file.inflated for file in inflated) <= HELD and all(file.inflated <= WHOLE for file in inflated):
            return None
        large = [file for file in inflated if file.inflated > WHOLE]
        if large:
            return max(1, min(file.records * (WINDOW // 2) // file.inflated for file in large))
        return max(1, *(file.records for file in inflated)) if len(inflated) > 1 else None

    @cached_property
    def global_order(self) -> Order:
        """The order of examples over all hosts."""
        starts: dict[int, int] = {}
        total = 0
        for dataset in self.datasets:
            starts[id(dataset)] = total
            total += sum(dataset.files.records)
        return self.numbered(starts)

    def numbered(self, starts: dict[int, int]) -> Order:
        """The order, where each dataset's numbers begin as given."""
        order = self.root.order(starts)
        for step in self.order_steps:
            order = step.apply(order)
        return order

    @property
    def schema(self) -> Schema:
        """What the examples hold before any map."""
        whole = self.datasets[0].schema if isinstance(self.root, Part) else self.root.specs[0].schema
        return whole if self.fields is None else whole.select(*self.fields)

    @property
    def on_error(self) -> OnError:
        """ "raise" if any dataset was opened with on_error="raise", else "skip"."""
        if isinstance(self.root, Part):
            return self.root.on_error
        return "raise" if any(spec.on_error == "raise" for spec in self.root.specs) else "skip"

    @property
    def lockstep(self) -> bool:
        """Whether every host takes as many positions for its nth item as the others."""
        return self.on_error == "raise" and not any(isinstance(step, (Filter, Pack, Bucket)) for step in self.steps)

    @property
    def narrow(self) -> bool:
        """Whether the core may decode integers of 64 bits as such of 32: nobody sees them before a framework does."""
        untouched = all(isinstance(step, Batch) and step.pad is None for step in self.steps)
        return untouched and self.form is not None and self.form.narrow()

    @property
    def stage(self) -> Stage:
        """What the steps have come to: "order", "map", "examples" (whose number is unknown) or "batches"."""
        if any(isinstance(step, (Batch, Bucket)) for step in self.steps):
            return "batches"
        if not self.steps:
            return "order"
        return "map" if all(isinstance(step, Map) for step in self.steps) else "examples"

    def stateful(self) -> Iterator[Step]:
        """The steps that have a number in a mark, in order."""
        return (step for step in self.steps if isinstance(step, STATEFUL))

    def slot(self, step: Step) -> int:
        """The place of a step's number in a mark."""
        return 1 + next(at for at, other in enumerate(self.stateful()) if other is step)

    # What a state must agree on

    @property
    def dataset(self) -> DatasetId:
        """What tells the data apart."""
        if isinstance(self.root, Part):
            part = self.root
            return DatasetId(part.dataset.name, part.length, part.dataset.fingerprint(part.spans))
        parts = [spec.dataset for spec in self.root.specs]
        digest = hashlib.blake2b(repr([part.digest for part in parts]).encode(), digest_size=8).hexdigest()
        names = " + ".join(dict.fromkeys(part.name for part in parts))
        return DatasetId(names[:100], sum(part.examples for part in parts), digest)

    @property
    def pipeline(self) -> list[str]:
        """The steps as they are written, but for those that change neither which examples come nor what is in them."""
        told = []
        if isinstance(self.root, Mixture):
            inner = [".".join(spec.pipeline) or "all" for spec in self.root.specs]
            mixed = ", ".join(f"{text}: {weight:g}" for text, weight in zip(inner, self.root.weights, strict=True))
            told.append(f"mix({mixed}, seed={self.root.seed})")
        told += [describe(step) for step in self.order_steps]
        if isinstance(self.decode, Mapping):
            how = [f"{name}={way if isinstance(way, bool) else describe(way)}" for name, way in self.decode.items()]
            told.append(f"decode({', '.join(how)})")
        if self.fields is not None:
            told.append(f"select({', '.join(self.fields)})")
        return told + [describe(step) for step in self.steps if not isinstance(step, Cache)]

    def then(self, step: Step) -> LoadSpec:
        """With one more step."""
        return replace(self, steps=(*self.steps, step))

    def ordered(self, step: OrderStep) -> LoadSpec:
        """With one more step on the order."""
        spec = replace(self, order_steps=(*self.order_steps, step))
        try:
            _ = spec.global_order  # arithmetic alone: an impossible order is an error now, not when it runs
        except SchemaError as error:
            raise ArgumentError(str(error)) from None
        return spec

    def refuse_batches(self, what: str) -> None:
        """For what has a meaning on examples alone."""
        if self.stage == "batches":
            raise ArgumentError(
                f"expected {what} before batch, got it after", "loader", f"Write .{what}(...).batch(...)"
            )


Mark = tuple[int, ...]
"""How far a host is when an item leaves: positions taken, then a number for each step that keeps one."""
Items = Iterator[tuple[Value, Mark]]
MOST_LETTERS = 60


@dataclass(frozen=True)
class Shuffle:
    """A permutation of the whole, another each epoch; with a window, of the examples within it. Lanes take turns."""

    seed: int = 0
    window: int | None = None
    lanes: int | None = None

    def apply(self, order: Order) -> Order:
        shuffled = order.shuffle(self.seed, self.window)
        return shuffled if self.lanes is None else shuffled.lanes(self.lanes)


@dataclass(frozen=True)
class Repeat:
    """Several epochs as one, or for ever."""

    count: int | None = None

    def apply(self, order: Order) -> Order:
        return order.repeat(self.count)


@dataclass(frozen=True)
class Take:
    """The first ones."""

    count: int

    def apply(self, order: Order) -> Order:
        return order.slice(0, self.count)

    def run(self, items: Items, slot: int, start: Mark) -> Items:
        passed = start[slot]
        while passed < self.count:
            found = next(items, None)
            if found is None:
                return
            passed += 1
            yield found[0], with_slot(found[1], slot, passed)


@dataclass(frozen=True)
class Skip:
    """All but the first ones."""

    count: int

    def apply(self, order: Order) -> Order:
        return order.slice(self.count, None)

    def run(self, items: Items, slot: int, start: Mark) -> Items:
        passed = start[slot]
        for item, mark in items:
            if passed < self.count:
                passed += 1
            else:
                yield item, with_slot(mark, slot, passed)


@dataclass(frozen=True)
class Echo:
    """Each one several times in a row."""

    times: int

    def apply(self, order: Order) -> Order:
        return order.echo(self.times)

    def run(self, items: Items, slot: int, start: Mark) -> Items:
        """A copy that is not the last leaves with the mark from before its item: resuming makes the item again."""
        before, given = start, start[slot]
        for item, mark in items:
            for copy in range(given, self.times - 1):
                yield item, with_slot(before, slot, copy + 1)
            before, given = with_slot(mark, slot, 0), 0
            yield item, before


@dataclass(frozen=True)
class Map:
    """A function of each example, or of each batch."""

    function: Callable[..., Value]
    seed: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Filter:
    """Only those for which a function says so."""

    function: Callable[[Value], Value]


@dataclass(frozen=True)
class Cache:
    """Examples kept once they are made, within a budget."""

    store: Value


@dataclass(frozen=True)
class Batch:
    """So many examples as one dict of columns."""

    size: int
    drop_remainder: bool = False
    pad: Value = None


@dataclass(frozen=True)
class Bucket:
    """Examples of about the same length in a batch."""

    by: str | Callable[[Value], int]
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    drop_remainder: bool = False
    pad: Value = None


@dataclass(frozen=True)
class Pack:
    """Rows of one length, cut out of the examples one after the other."""

    length: int
    drop_remainder: bool = False
    pad: Value = 0
    segments: bool = False


@dataclass(frozen=True)
class Pick:
    """A function for `map`: some fields of what came before it."""

    names: tuple[str, ...]

    def __call__(self, item: Mapping[str, Value]) -> ExampleDict:
        return {name: item[name] for name in self.names}


OrderStep = Shuffle | Repeat | Take | Skip | Echo
Step = Map | Filter | Cache | Batch | Bucket | Pack | Take | Skip | Echo
STATEFUL = (Take, Skip, Echo, Pack, Bucket)  # those with a number in a mark


def with_slot(mark: Mark, slot: int, value: int) -> Mark:
    """A mark with one of its numbers changed."""
    return (*mark[:slot], value, *mark[slot + 1 :])


def describe(step: Value) -> str:
    """A step as it is written: shuffle(seed=7). What has its default is left out, a function goes by its name."""
    told = []
    for each in fields(step):
        value = getattr(step, each.name)
        if each.name != "threads" and (each.default is MISSING or value != each.default):
            told.append(_told(value) if each.default is MISSING else f"{each.name}={_told(value)}")
    return f"{type(step).__name__.lower()}({', '.join(told)})"


def _told(value: object) -> str:
    if isinstance(value, Pick):
        return " ".join(value.names)
    text = function_name(value) if callable(value) else repr(value)
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


def function_name(function: object) -> str:
    """What a function is called."""
    if isinstance(function, partial):
        return function_name(function.func)
    return getattr(function, "__qualname__", type(function).__qualname__).replace("<locals>.", "")


class FileSlice(TypedDict):
    """Consecutive records of a file: all but the first `skip`, at most `take`."""

    filename: str
    skip: int
    take: int


@dataclass(frozen=True)
class Interleave:
    """Several files of a split at once, a few records of each in turn: `to_tf(graph=Interleave(16, seed=7))`.

    cycle      how many files; -1 leaves it to TensorFlow
    block      how many records of each at a time
    seed       files come in a random order; None: in their own
    reshuffle  in another random order each time
    sort       a function that puts the files into another order, each {"filename": ..., "skip": ..., "take": ...}
    """

    cycle: int = -1
    block: int = 1
    seed: int | None = None
    reshuffle: bool = True
    sort: Callable[[list[FileSlice]], Sequence[FileSlice]] | None = None

    def __post_init__(self) -> None:
        if type(self.cycle) is not int or (self.cycle < 1 and self.cycle != -1):
            raise ArgumentError(f"expected cycle to be 1 or more, or -1, got {self.cycle!r}", "Interleave")
        if type(self.block) is not int or self.block < 1:
            raise ArgumentError(f"expected block to be 1 or more, got {self.block!r}", "Interleave")
