"""What a loader says, as one value: which examples, in which order, of which form, for which host."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._core import Order, Shards
from ..errors import SchemaError
from ..schema import Schema
from .shard_files import JoinedFiles, ShardFiles
from .state import Host
from .steps import STATEFUL, Batch, Bucket, Cache, Filter, Map, OrderStep, Pack, Step, describe

if TYPE_CHECKING:
    from .dataset import Dataset
    from .fetching import Fetcher

MEMORY = 768 << 20
WHOLE = 256 << 20  # bytes up to which the core inflates a file as a whole ...
WINDOW = 64 << 20  # ... and those that it keeps of a larger one


def fetcher_of(files: ShardFiles) -> Fetcher | None:
    """What brings those of some shards that are elsewhere."""
    if not files.elsewhere:
        return None
    from .fetching import Fetcher  # datasets that are here need none

    return Fetcher(files)


def shards_of(files: ShardFiles, fetcher: Fetcher | None) -> Shards:
    """Shards to read from."""
    return Shards(files.places(), None if fetcher is None else fetcher.bring, files.stamps)


@dataclass(frozen=True)
class Part:
    """Some examples of a dataset: spans of its numbers, each from the first to the one after the last."""

    dataset: Dataset
    spans: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        """How many examples."""
        return sum(last - first for first, last in self.spans)

    def order(self, starts: dict[int, int]) -> Order:
        """The examples in their own order, numbered as among all datasets of a recipe."""
        begin = starts[id(self.dataset)]
        parts = [Order.span(begin + first, begin + last) for first, last in self.spans]
        return parts[0] if len(parts) == 1 else Order.concat(parts)


@dataclass(frozen=True)
class Mixture:
    """Several recipes, in fixed proportions."""

    recipes: tuple[Recipe, ...]
    weights: tuple[float, ...]
    seed: int

    def order(self, starts: dict[int, int]) -> Order:
        """The mixed order."""
        return Order.mix([recipe.numbered(starts) for recipe in self.recipes], list(self.weights), self.seed)


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

    convert: Callable[[Any], Any]
    narrow: Callable[[], bool] = _never
    ahead: int = 0


@dataclass(frozen=True)
class Recipe:
    """What a loader says. Steps on the order come first, whatever their place in the chain, then hosts are dealt to."""

    root: Part | Mixture
    order_steps: tuple[OrderStep, ...] = ()
    fields: tuple[str, ...] | None = None
    decode: Any = None
    steps: tuple[Step, ...] = ()
    host: Host = field(default_factory=Host)
    ahead: Ahead = field(default_factory=Ahead)
    form: Form | None = None  # no part of the pipeline

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}  # without what can be made again

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def datasets(self) -> list[Dataset]:
        """The datasets that it reads, each once."""
        if isinstance(self.root, Part):
            return [self.root.dataset]
        found = {id(dataset): dataset for recipe in self.root.recipes for dataset in recipe.datasets}
        return list(found.values())

    @property
    def unread(self) -> dict[str, str]:
        """Fields that are there but can't be read, each with the reason."""
        return {name: reason for dataset in self.datasets for name, reason in dataset.unread.items()}

    @cached_property
    def files(self) -> ShardFiles:
        """The shards of all datasets, one after the other: what numbers mean."""
        return JoinedFiles(dataset.files for dataset in self.datasets)

    @cached_property
    def shards(self) -> Shards:
        """The same, to read from."""
        return self.datasets[0].shards if len(self.datasets) == 1 else shards_of(self.files, self.fetcher)

    @cached_property
    def fetcher(self) -> Fetcher | None:
        """What brings shards that are elsewhere, if there are any."""
        return self.datasets[0].fetcher if len(self.datasets) == 1 else fetcher_of(self.files)

    @property
    def widest_window(self) -> int | None:
        """The widest shuffle that inflates each compressed tar once or twice; None where examples are read anywhere."""
        inflated = self.files.inflated
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
        whole = self.datasets[0].schema if isinstance(self.root, Part) else self.root.recipes[0].schema
        return whole if self.fields is None else whole.select(*self.fields)

    @property
    def on_error(self) -> str:
        """The strictest of the datasets' wishes."""
        return "raise" if any(dataset.on_error == "raise" for dataset in self.datasets) else "skip"

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
    def stage(self) -> str:
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
    def dataset(self) -> dict[str, Any]:
        """What tells the data apart: a name, the number of examples, and a digest of the shards and spans."""
        if isinstance(self.root, Part):
            part = self.root
            text = part.dataset.fingerprint(part.spans)
            return {"name": part.dataset.name, "examples": part.length, "digest": text}
        parts = [recipe.dataset for recipe in self.root.recipes]
        digest = hashlib.blake2b(repr([part["digest"] for part in parts]).encode(), digest_size=8).hexdigest()
        names = " + ".join(dict.fromkeys(part["name"] for part in parts))
        return {"name": names[:100], "examples": sum(part["examples"] for part in parts), "digest": digest}

    @property
    def pipeline(self) -> list[str]:
        """The steps as they are written, but for those that change neither which examples come nor what is in them."""
        told = []
        if isinstance(self.root, Mixture):
            inner = [".".join(recipe.pipeline) or "all" for recipe in self.root.recipes]
            mixed = ", ".join(f"{text}: {weight:g}" for text, weight in zip(inner, self.root.weights, strict=True))
            told.append(f"mix({mixed}, seed={self.root.seed})")
        told += [describe(step) for step in self.order_steps]
        if isinstance(self.decode, Mapping):
            how = [f"{name}={way if isinstance(way, bool) else describe(way)}" for name, way in self.decode.items()]
            told.append(f"decode({', '.join(how)})")
        if self.fields is not None:
            told.append(f"select({', '.join(self.fields)})")
        return told + [describe(step) for step in self.steps if not isinstance(step, Cache)]

    def then(self, step: Step) -> Recipe:
        """With one more step."""
        return replace(self, steps=(*self.steps, step))

    def ordered(self, step: OrderStep) -> Recipe:
        """With one more step on the order."""
        recipe = replace(self, order_steps=(*self.order_steps, step))
        _ = recipe.global_order  # arithmetic alone: what makes no sense is said here, not when it runs
        return recipe

    def refuse_batches(self, what: str) -> None:
        """For what has a meaning on examples alone."""
        if self.stage == "batches":
            raise SchemaError(f"expected {what} before batch, got it after", "loader", f"Write .{what}(...).batch(...)")
