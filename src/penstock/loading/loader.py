"""A loader: a value that says in which order and form to read, for which host. Nothing is read until iteration."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import SchemaError, name_known
from ..schema.schema import Schema
from .decode import check_decode
from .spec import (
    Ahead,
    Batch,
    Bucket,
    Cache,
    Echo,
    Filter,
    Form,
    Host,
    Map,
    Mixture,
    Pack,
    Pick,
    Recipe,
    Repeat,
    Shuffle,
    Skip,
    Step,
    Take,
)
from .state import MOST, Position, resumed

if TYPE_CHECKING:
    from ..frameworks.torch import TorchDataset
    from .epoch import Iteration
    from .profile import Profile
    from .spec import Interleave


class Loader:
    """Examples of a split, in some order and form. Every method gives a new loader, and reads nothing.

    train = ds["train"].shuffle(seed=7).map(augment).batch(64)
    for batch in train: ...                # epoch 0; the next loop is epoch 1, in another order

    An iterator tells where it is (`state()`), and `resume(state)` goes on from there.
    """

    def __init__(self, recipe: Recipe, *, epoch: int = 0, start: Position | None = None) -> None:
        self._recipe = recipe
        self._next = epoch
        self._start = start

    def _with(self, recipe: Recipe) -> Loader:
        return Loader(recipe, epoch=self._next)

    # Which examples, in which order

    def shuffle(self, seed: int = 0, window: int | None = None, lanes: int | None = None) -> Loader:
        """A permutation of all examples, another one each epoch, in no memory.

        With a window, neighbours are shuffled within so many positions, and the windows among themselves: for disks
        that dislike jumps, and for stores. With lanes as well, so many stretches of windows take turns, and hosts whose
        number divides that of the lanes have lanes of their own: `shuffle(window=4096, lanes=8).shard(rank, 8)` fetches
        an eighth of the shards, and what windows share. Compressed tars are always shuffled within a window, unless
        told as large as one of them.
        """
        self._recipe.refuse_batches("shuffle")
        if lanes is not None:
            _number("lanes", lanes, 1)
            if window is None:
                hint = "shuffle(window=..., lanes=...)"
                raise SchemaError("expected lanes with a window, got them without", "shuffle", hint)
        if window is not None:
            _number("window", window, 1)
        elif (window := self._recipe.widest_window) is not None:
            said = f"compressed tars are shuffled within windows of {window} examples, not as a whole"
            warnings.warn(f"{said}: each is inflated as it is read. Uncompressed ones are read anywhere", stacklevel=2)
        return self._with(self._recipe.ordered(Shuffle(_number("seed", seed, 0), window, lanes)))

    def repeat(self, count: int | None = None) -> Loader:
        """Several epochs as one, each in an order of its own; for ever, unless a number is given."""
        self._recipe.refuse_batches("repeat")
        return self._with(self._recipe.ordered(Repeat(None if count is None else _number("repeat", count, 1))))

    def take(self, count: int) -> Loader:
        """The first examples or, after `batch`, batches. After `filter` or `batch`, every host counts its own."""
        return self._cut(Take(_number("take", count, 0)))

    def skip(self, count: int) -> Loader:
        """All but the first examples or, after `batch`, batches; counted as `take` counts."""
        return self._cut(Skip(_number("skip", count, 0)))

    def _cut(self, step: Take | Skip) -> Loader:
        on_order = self._recipe.stage in ("order", "map")
        return self._with(self._recipe.ordered(step) if on_order else self._recipe.then(step))

    def echo(self, times: int) -> Loader:
        """Each example, or after `batch` each batch, several times in a row: for when reading is what takes long."""
        step = Echo(_number("echo", times, 1))
        return self._with(self._recipe.ordered(step) if self._recipe.stage == "order" else self._recipe.then(step))

    def shard(self, index: int, count: int, *, even: bool | str = False) -> Loader:
        """The part of one of `count` hosts or ranks: over all of them, every example comes exactly once.

        Where the number of examples is no multiple of `count`, some hosts get one more; even="drop" leaves the last
        ones out, even="pad" (or True) gives some twice, so that all hosts get equally many.

        It is final: `to_torch` does not divide the examples among ranks again. shard(0, 1) keeps all of them.
        """
        _number("count", count, 1)
        if not 0 <= _number("index", index, 0) < count:
            raise SchemaError(f"expected an index below {count}, got {index}", "shard")
        known = {False: None, True: "pad", "pad": "pad", "drop": "drop"}
        if even not in known:
            raise SchemaError(f'expected even=False, "pad" or "drop", got {even!r}', "shard")
        if self._recipe.host.given:
            raise SchemaError("expected one shard(), got a second", "shard", "Compute one index and one count")
        return self._with(replace(self._recipe, host=Host(index, count, known[even], given=True)))

    # What is in them

    def select(self, *fields: str) -> Loader:
        """Only these fields; the bytes of the others are skipped when records are decoded."""
        if not fields:
            raise SchemaError("expected the name of a field, got none", "select", name_known("", self._recipe.schema))
        for name, reason in self._recipe.unread.items():
            if name in fields:
                raise SchemaError(f"the field {name!r} can't be read: {reason}", "select")
        if self._recipe.steps:
            return self.map(Pick(fields), threads=0)
        self._recipe.schema.select(*fields)  # says which are unknown
        return self._with(replace(self._recipe, fields=fields))

    def decode(self, decode: bool | None = None, **images: Any) -> Loader:
        """How images are decoded: `decode(image=Image(size=(224, 224)))`, or `decode(False)` to leave them as bytes."""
        if self._recipe.steps:
            raise SchemaError("expected decode before map and batch, got it after", "decode")
        if isinstance(self._recipe.root, Mixture):
            raise SchemaError("expected decode on the loaders that are mixed, got it on the mix", "decode")
        if decode is not None and images:
            raise SchemaError("expected True, False or options by field, got both", "decode")
        wanted: Any = images if decode is None else decode
        check_decode(self._recipe.schema, wanted)
        return self._with(replace(self._recipe, decode=wanted))

    def map(self, function: Callable[..., Any], *, seed: int | None = None, threads: int | None = None) -> Loader:
        """A function of each example or, after `batch`, of each batch; on threads, in order.

        With a seed it is called as function(example, generator), with a NumPy generator that depends on seed, epoch
        and position alone, so that what is random comes again after a resume. threads=0 runs it in the caller's.
        """
        if not callable(function):
            raise SchemaError(f"expected a function, got {type(function).__name__}", "map")
        if threads is not None:
            _number("threads", threads, 0)
        return self._with(self._recipe.then(Map(function, seed, threads)))

    def filter(self, function: Callable[[Any], Any]) -> Loader:
        """Only the examples or, after `batch`, the batches for which a function is true."""
        if not callable(function):
            raise SchemaError(f"expected a function, got {type(function).__name__}", "filter")
        return self._with(self._recipe.then(Filter(function)))

    def cache(self, memory: int = 1 << 30, *, folder: str | None = None) -> Loader:
        """Keep examples once they are decoded and mapped, up to `memory` bytes, in memory or in a file in a folder.

        What has no room is made anew each epoch. The cache belongs to this loader, and to those made from it.
        """
        self._recipe.refuse_batches("cache")
        if any(isinstance(step, (Cache, Pack, Take, Skip, Echo)) for step in self._recipe.steps):
            raise SchemaError("expected one cache, right after map and filter, got another place", "cache")
        from .transforms.cache import Store

        return self._with(self._recipe.then(Cache(Store(_number("memory", memory, 1), folder))))

    # Batches

    def batch(self, size: int, *, drop_remainder: bool = False, pad: Any = None) -> Loader:
        """Batches: a dict with a column for each field.

        pad makes arrays of ragged columns: a value to fill up with, or a dict of them by field; a tuple (value, length)
        sets the length too, otherwise it is that of the longest row in the batch.
        """
        self._refuse_second("batch")
        return self._with(self._recipe.then(Batch(_number("batch", size, 1), bool(drop_remainder), pad)))

    def bucket(
        self,
        by: str | Callable[[Any], int],
        boundaries: Sequence[int],
        batch_sizes: int | Sequence[int],
        *,
        drop_remainder: bool = False,
        pad: Any = None,
    ) -> Loader:
        """Batches of examples of about the same length.

        by           a field whose length counts, or a function of the example
        boundaries   [64, 256]: lengths below 64, from 64 to 255, and from 256 on
        batch_sizes  one for each bucket (one more than boundaries), or one for all
        """
        self._refuse_second("bucket")
        limits = tuple(_number("boundaries", limit, 0) for limit in boundaries)
        sizes = [batch_sizes] * (len(limits) + 1) if isinstance(batch_sizes, int) else list(batch_sizes)
        checked = tuple(_number("batch_sizes", size, 1) for size in sizes)
        if list(limits) != sorted(set(limits)) or len(checked) != len(limits) + 1:
            expected = "expected rising boundaries and one batch size more than boundaries"
            raise SchemaError(f"{expected}, got {list(boundaries)} and {sizes}", "bucket")
        if not callable(by) and not isinstance(by, str):
            raise SchemaError(f"expected a field or a function, got {type(by).__name__}", "bucket")
        return self._with(self._recipe.then(Bucket(by, limits, checked, bool(drop_remainder), pad)))

    def pack(self, length: int, *, drop_remainder: bool = False, pad: Any = 0, segments: bool = False) -> Loader:
        """Examples of one length, cut out of all examples' rows one after the other, for token streams.

        All fields must be rows of the same length within an example: select those to pack. The last one is filled up
        with `pad`, or left out. With segments=True two fields more tell which of the packed examples a token is from
        ("segment_ids", from 1; 0 is padding), and its place in it ("positions").
        """
        self._refuse_second("pack")
        return self._with(
            self._recipe.then(Pack(_number("pack", length, 1), bool(drop_remainder), pad, bool(segments)))
        )

    def _refuse_second(self, what: str) -> None:
        if self._recipe.stage == "batches":
            raise SchemaError(f"expected examples, got batches already: {what} after batch or bucket", what)
        if what != "batch" and any(isinstance(step, Pack) for step in self._recipe.steps):
            raise SchemaError(f"expected batch after pack, got {what}", what)

    # How to run

    def prefetch(self, items: int = 2, *, threads: int | None = None, memory: int | None = None) -> Loader:
        """How far to work ahead: finished batches that may wait, threads, and the bytes that all of it may take.

        A third of the memory is for decoded batches that wait, the rest for shards that are kept whole because they
        are read at random. Reading and decoding always run ahead on threads; this also does so for what Python does
        after them.
        """
        before = self._recipe.ahead
        ahead = Ahead(
            _number("prefetch", items, 0),
            before.threads if threads is None else _number("threads", threads, 1),
            before.memory if memory is None else _number("memory", memory, 1),
        )
        return self._with(replace(self._recipe, ahead=ahead))

    def epoch(self, number: int) -> Loader:
        """The same, where the next iteration is that epoch."""
        return Loader(self._recipe, epoch=_number("epoch", number, 0))

    def resume(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Loader:
        """The same, where the next iteration goes on right after the item that the state was taken after.

        With another number of hosts than before, too: each resumes the same state, or, where hosts are not in step
        because they filter or pack, the list of all hosts' states.
        """
        recipe = self._recipe
        position = resumed(
            state,
            recipe.host,
            recipe.dataset,
            recipe.pipeline,
            lockstep=recipe.lockstep,
            steps=recipe.steps,
            order=recipe.global_order,
        )
        return Loader(recipe, epoch=position.epoch, start=position)

    def __iter__(self) -> Iteration:
        from .epoch import start

        position = self._start or Position(epoch=self._next)
        self._start = None
        self._next = position.epoch + 1
        return start(self._recipe, position)

    def profile(self, seconds: float = 10.0) -> Profile:
        """Run an epoch, or the beginning of one, and name the stage that takes longest, and what to change."""
        from .profile import profile

        return profile(self, seconds)

    # Frameworks: leaves above this layer, which are imported when they are asked for

    def to_torch(self) -> TorchDataset:
        """The same for PyTorch: an IterableDataset of tensors, to be iterated or given to a DataLoader.

        Its rank in torch.distributed and the workers of a DataLoader read a part each. Where Accelerate or the Trainer
        of Hugging Face deal batches to the ranks, it is they who do so. `shard` before it decides otherwise:
        shard(0, 1) reads everything on every rank.
        """
        from ..frameworks.torch import to_torch

        return to_torch(self)

    def to_tf(self, *, element_spec: Any = None, graph: bool | Interleave = False) -> Any:
        """The same as a tf.data.Dataset; ragged columns as RaggedTensor, optional ones as SparseTensor.

        element_spec  what the elements are, if that cannot be told from the first item
        graph         read by TensorFlow's own operations: the same examples, shuffled within a buffer; Interleave(...)
                      reads several files in turn
        """
        from ..frameworks.tensorflow import to_tf

        return to_tf(self, element_spec=element_spec, graph=graph)

    def to_jax(self, *, sharding: Any = None, ahead: int = 2) -> Loader:
        """The same with arrays on the device, or spread as a sharding says, some batches ahead."""
        from ..frameworks.jax import to_jax

        return to_jax(self, sharding=sharding, ahead=_number("ahead", ahead, 0))

    def _in_form(self, form: Form) -> Loader:
        """With what a framework makes of each item."""
        return Loader(replace(self._recipe, form=form), epoch=self._next, start=self._start)

    def _dealt(self, index: int, count: int) -> Loader:
        """For another host."""
        recipe = replace(self._recipe, host=replace(self._recipe.host, index=index, count=count))
        loader = Loader(recipe, epoch=self._next)
        if self._start is None:
            return loader
        return loader.resume(self._start.to_state(self._recipe.host, recipe.dataset, recipe.pipeline))

    # What it is

    @property
    def schema(self) -> Schema:
        """What its examples hold before any map."""
        return self._recipe.schema

    def __bool__(self) -> bool:
        return True  # whatever its length, which may be unknown

    def __len__(self) -> int:
        """How many items an epoch of this host has, where that is known before it is read."""
        length = self._recipe.host.deal(self._recipe.global_order).length
        if length is None:
            raise TypeError("a loader that repeats for ever has no length")
        for step in self._recipe.steps:
            length = _length_after(step, length)
        return length

    def __repr__(self) -> str:
        from .display import loader_text

        return loader_text(self._recipe)


def _length_after(step: Step, length: int) -> int:
    if isinstance(step, (Filter, Pack, Bucket)):
        raise TypeError(f"a loader that has a {type(step).__name__.lower()} knows its length only once it was read")
    if isinstance(step, Batch):
        return length // step.size if step.drop_remainder else -(-length // step.size)
    if isinstance(step, Take):
        return min(length, step.count)
    if isinstance(step, Skip):
        return max(0, length - step.count)
    return length * step.times if isinstance(step, Echo) else length


def _number(name: str, value: Any, least: int) -> int:
    most = (1 << 64) - 1 if name == "seed" else MOST
    try:
        number = operator.index(value)
    except TypeError:
        raise SchemaError(f"expected {name} to be an int, got {type(value).__name__}", name) from None
    if isinstance(value, bool) or number < least:
        raise SchemaError(f"expected {name} to be {least} or more, got {value!r}", name)
    if number > most:
        raise SchemaError(f"expected {name} to be at most {most}, got {value!r}", name)
    return number


def mix(loaders: Mapping[Loader, float], *, seed: int = 0) -> Loader:
    """Examples of several splits or loaders, in fixed proportions: `mix({a: 0.7, b: 0.3}, seed=7)`.

    Every 1024 positions hold each loader's share exactly, in a seeded order. It ends before the first position whose
    loader has no example left: repeat() those that should start again. All must have the same fields.
    """
    if not isinstance(loaders, Mapping) or not loaders:
        raise SchemaError("expected a dict of loaders and their shares", "mix", "mix({a: 0.7, b: 0.3})")
    recipes = []
    for number, (loader, share) in enumerate(loaders.items()):
        where = f"loader {number} of the mix"
        if not isinstance(loader, Loader):
            raise SchemaError(f"expected a split or a loader, got {type(loader).__name__}", where)
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < float("inf"):
            raise SchemaError(f"expected a share above 0, got {share!r}", where)
        recipe = loader._recipe
        if recipe.steps or recipe.host.given:
            raise SchemaError(
                "expected a loader without map, batch or shard, got one with it", where, "Do it after mix"
            )
        recipes.append(recipe)
    _check_alike(recipes)
    total = float(sum(loaders.values()))
    weights = tuple(share / total for share in loaders.values())
    return Loader(Recipe(Mixture(tuple(recipes), weights, _number("seed", seed, 0)), decode=recipes[0].decode))


def _check_alike(recipes: Sequence[Recipe]) -> None:
    """A mix has one schema, and one way to decode it."""
    first = recipes[0]
    for number, recipe in enumerate(recipes[1:], 1):
        if recipe.schema != first.schema:
            a, b = ({leaf.name: str(leaf) for leaf in each.schema.leaves()} for each in (first, recipe))
            names = sorted(name for name in {*a, *b} if a.get(name) != b.get(name)) or ["(kinds or classes)"]
            told = f"{names[0]}: {a.get(names[0], 'nothing')} and {b.get(names[0], 'nothing')}"
            raise SchemaError(
                f"expected the same fields in all loaders, got {told}",
                f"loader {number} of the mix",
                "select() the fields that they share",
            )
        if recipe.decode != first.decode:
            raise SchemaError("expected the same decode in all loaders, got others", f"loader {number} of the mix")
