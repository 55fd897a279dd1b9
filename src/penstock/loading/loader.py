"""Loaders and splits: values that say which examples to read, in which order and form. Iterating reads them."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, overload

import numpy as np

from ..dataset.shards import ExampleReader
from ..errors import ArgumentError, RecordIndexError, SchemaError, name_known
from ..schema.columns import Array, ExampleDict, Value
from ..schema.field import Decode, Image, check_decode
from ..schema.schema import Schema
from .epoch import Iteration, start
from .spec import (
    Ahead,
    Batch,
    Bucket,
    Cache,
    Echo,
    Even,
    Filter,
    Form,
    Host,
    Interleave,
    LoadSpec,
    Map,
    Mixture,
    Pack,
    Part,
    Pick,
    Repeat,
    Shuffle,
    Skip,
    Step,
    Take,
)
from .state import MOST, Cursor, LoaderState, Position, resumed
from .transforms.batch import rows_of
from .transforms.cache import Store

if TYPE_CHECKING:
    from ..frameworks.torch import TorchDataset
    from .profile import Profile

START = Position()


class Loader:
    """Examples of a split, in some order and form. Every method gives a new loader, and reads nothing.

    train = ds["train"].shuffle(seed=7).map(augment).batch(64)
    for batch in train: ...                # epoch 0; the next loop is epoch 1, in another order

    An iterator tells where it is (`state()`), and `resume(state)` goes on from there. The `cursor` holds where the next
    iteration begins: iterating changes nothing else of a loader.
    """

    def __init__(self, spec: LoadSpec, position: Position = START) -> None:
        self.spec = spec
        self.cursor = Cursor(position)

    def __getstate__(self) -> tuple[object, ...]:
        return self.spec, self.cursor.next  # a copy has a cursor of its own

    def __setstate__(self, state: tuple[Value, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def _with(self, spec: LoadSpec) -> Loader:
        """Return a loader of another spec that begins where this one would begin next."""
        position = self.cursor.next
        if not position.is_inside:
            return Loader(spec, Position(epoch=position.epoch))
        if spec.pipeline != self.spec.pipeline:
            got = f"{described[-1] if (described := spec.pipeline) else 'another step'} after it"
            raise ArgumentError(f"expected resume after all other steps, got {got}", "resume", "Call resume() last")
        if spec.host != self.spec.host:
            return Loader(spec).resume(LoaderState.of(position, self.spec).to_json())
        return Loader(spec, position)

    # Which examples, in which order

    def shuffle(self, seed: int = 0, window: int | None = None, lanes: int | None = None) -> Loader:
        """A permutation of all examples, another one each epoch, in no memory.

        With a window, neighbours are shuffled within so many positions, and the windows among themselves: for disks
        that dislike jumps, and for stores. With lanes as well, so many stretches of windows take turns, and hosts whose
        number divides that of the lanes have lanes of their own: `shuffle(window=4096, lanes=8).shard(rank, 8)` fetches
        an eighth of the shards, and what windows share. Compressed tars are always shuffled within a window, unless
        told as large as one of them.
        """
        self.spec.refuse_batches("shuffle")
        if lanes is not None:
            _number("lanes", lanes, 1)
            if window is None:
                hint = "shuffle(window=..., lanes=...)"
                raise ArgumentError("expected lanes with a window, got them without", "shuffle", hint)
        if window is not None:
            _number("window", window, 1)
        elif (window := self.spec.widest_window) is not None:
            said = f"compressed tars are shuffled within windows of {window} examples, not as a whole"
            warnings.warn(f"{said}: each is inflated as it is read. Uncompressed ones are read anywhere", stacklevel=2)
        return self._with(self.spec.ordered(Shuffle(_number("seed", seed, 0), window, lanes)))

    def repeat(self, count: int | None = None) -> Loader:
        """Several epochs as one, each in an order of its own; for ever, unless a number is given."""
        self.spec.refuse_batches("repeat")
        return self._with(self.spec.ordered(Repeat(None if count is None else _number("repeat", count, 1))))

    def take(self, count: int) -> Loader:
        """The first examples or, after `batch`, batches. After `filter` or `batch`, every host counts its own."""
        return self._cut(Take(_number("take", count, 0)))

    def skip(self, count: int) -> Loader:
        """All but the first examples or, after `batch`, batches; counted as `take` counts."""
        return self._cut(Skip(_number("skip", count, 0)))

    def _cut(self, step: Take | Skip) -> Loader:
        on_order = self.spec.stage in ("order", "map")
        return self._with(self.spec.ordered(step) if on_order else self.spec.then(step))

    def echo(self, times: int) -> Loader:
        """Each example, or after `batch` each batch, several times in a row: for when reading is what takes long."""
        step = Echo(_number("echo", times, 1))
        return self._with(self.spec.ordered(step) if self.spec.stage == "order" else self.spec.then(step))

    def shard(self, index: int, count: int, *, even: bool | Even = False) -> Loader:
        """The part of one of `count` hosts or ranks: over all of them, every example comes exactly once.

        Where the number of examples is no multiple of `count`, some hosts get one more; even="drop" leaves the last
        ones out, even="pad" (or True) gives some twice, so that all hosts get equally many.

        It is final: `to_torch` does not divide the examples among ranks again. shard(0, 1) keeps all of them.
        """
        _number("count", count, 1)
        if not 0 <= _number("index", index, 0) < count:
            raise ArgumentError(f"expected an index below {count}, got {index}", "shard")
        known: dict[bool | str, Even | None] = {False: None, True: "pad", "pad": "pad", "drop": "drop"}
        if even not in known:
            raise ArgumentError(f'expected even=False, "pad" or "drop", got {even!r}', "shard")
        if self.spec.host.given:
            raise ArgumentError("expected one shard(), got a second", "shard", "Compute one index and one count")
        return self._with(replace(self.spec, host=Host(index, count, known[even], given=True)))

    # What is in them

    def select(self, *fields: str) -> Loader:
        """Only these fields; the bytes of the others are skipped when records are decoded."""
        if not fields:
            raise ArgumentError("expected the name of a field, got none", "select", name_known("", self.spec.schema))
        for name, reason in self.spec.unread.items():
            if name in fields:
                raise ArgumentError(f"the field {name!r} can't be read: {reason}", "select")
        if self.spec.steps:
            return self.map(Pick(fields), threads=0)
        self.spec.schema.select(*fields)  # says which are unknown
        return self._with(replace(self.spec, fields=fields))

    def decode(self, decode: bool | None = None, **images: bool | Image) -> Loader:
        """How images are decoded: `decode(image=Image(size=(224, 224)))`, or `decode(False)` to leave them as bytes."""
        if self.spec.steps:
            raise ArgumentError("expected decode before map and batch, got it after", "decode")
        if isinstance(self.spec.root, Mixture):
            raise ArgumentError("expected decode on the loaders that are mixed, got it on the mix", "decode")
        if decode is not None and images:
            raise ArgumentError("expected True, False or options by field, got both", "decode")
        wanted: Decode = images if decode is None else decode
        check_decode(self.spec.schema.leaves(), wanted)
        return self._with(replace(self.spec, decode=wanted))

    def map(self, function: Callable[..., Value], *, seed: int | None = None, threads: int | None = None) -> Loader:
        """A function of each example or, after `batch`, of each batch; on threads, in order.

        With a seed it is called as function(example, generator), with a NumPy generator that depends on seed, epoch
        and position alone, so that what is random comes again after a resume. threads=0 runs it in the caller's.
        """
        if not callable(function):
            raise ArgumentError(f"expected a function, got {type(function).__name__}", "map")
        if threads is not None:
            _number("threads", threads, 0)
        return self._with(self.spec.then(Map(function, seed, threads)))

    def filter(self, function: Callable[[Value], Value]) -> Loader:
        """Only the examples or, after `batch`, the batches for which a function is true."""
        if not callable(function):
            raise ArgumentError(f"expected a function, got {type(function).__name__}", "filter")
        return self._with(self.spec.then(Filter(function)))

    def cache(self, memory: int = 1 << 30, *, folder: str | None = None) -> Loader:
        """Keep examples once they are decoded and mapped, up to `memory` bytes, in memory or in a file in a folder.

        What has no room is made anew each epoch. The cache belongs to this loader, and to those made from it.
        """
        self.spec.refuse_batches("cache")
        if any(isinstance(step, (Cache, Pack, Take, Skip, Echo)) for step in self.spec.steps):
            raise ArgumentError("expected one cache, right after map and filter, got another place", "cache")
        return self._with(self.spec.then(Cache(Store(_number("memory", memory, 1), folder))))

    # Batches

    def batch(self, size: int, *, drop_remainder: bool = False, pad: Value = None) -> Loader:
        """Batches: a dict with a column for each field.

        pad makes arrays of ragged columns: a value to fill up with, or a dict of them by field; a tuple (value, length)
        sets the length too, otherwise it is that of the longest row in the batch.
        """
        self._refuse_second("batch")
        return self._with(self.spec.then(Batch(_number("batch", size, 1), bool(drop_remainder), pad)))

    def bucket(
        self,
        by: str | Callable[[Value], int],
        boundaries: Sequence[int],
        batch_sizes: int | Sequence[int],
        *,
        drop_remainder: bool = False,
        pad: Value = None,
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
            raise ArgumentError(f"{expected}, got {list(boundaries)} and {sizes}", "bucket")
        if not callable(by) and not isinstance(by, str):
            raise ArgumentError(f"expected a field or a function, got {type(by).__name__}", "bucket")
        return self._with(self.spec.then(Bucket(by, limits, checked, bool(drop_remainder), pad)))

    def pack(self, length: int, *, drop_remainder: bool = False, pad: Value = 0, segments: bool = False) -> Loader:
        """Examples of one length, cut out of all examples' rows one after the other, for token streams.

        All fields must be rows of the same length within an example: select those to pack. The last one is filled up
        with `pad`, or left out. With segments=True two fields more tell which of the packed examples a token is from
        ("segment_ids", from 1; 0 is padding), and its place in it ("positions").
        """
        self._refuse_second("pack")
        return self._with(self.spec.then(Pack(_number("pack", length, 1), bool(drop_remainder), pad, bool(segments))))

    def _refuse_second(self, what: str) -> None:
        if self.spec.stage == "batches":
            raise ArgumentError(f"expected examples, got batches already: {what} after batch or bucket", what)
        if what != "batch" and any(isinstance(step, Pack) for step in self.spec.steps):
            raise ArgumentError(f"expected batch after pack, got {what}", what)

    # How to run

    def prefetch(self, items: int = 2, *, threads: int | None = None, memory: int | None = None) -> Loader:
        """How far to work ahead: finished batches that may wait, threads, and the bytes that all of it may take.

        A third of the memory is for decoded batches that wait, the rest for shards that are kept whole because they
        are read at random. Reading and decoding always run ahead on threads; this also does so for what Python does
        after them.
        """
        before = self.spec.ahead
        ahead = Ahead(
            _number("prefetch", items, 0),
            before.threads if threads is None else _number("threads", threads, 1),
            before.memory if memory is None else _number("memory", memory, 1),
        )
        return self._with(replace(self.spec, ahead=ahead))

    def epoch(self, number: int) -> Loader:
        """The same, where the next iteration is that epoch, from its beginning."""
        return Loader(self.spec, Position(epoch=_number("epoch", number, 0)))

    @property
    def next_epoch(self) -> int:
        """The epoch that the next iteration is, or goes on with."""
        return self.cursor.next.epoch

    def resume(self, state: Mapping[str, Value] | Sequence[Mapping[str, Value]]) -> Loader:
        """The same, where the next iteration goes on right after the item that the state was taken after.

        With another number of hosts than before, too: each resumes the same state, or, where hosts are not in step
        because they filter or pack, the list of all hosts' states.
        """
        return Loader(self.spec, resumed(state, self.spec))

    def __iter__(self) -> Iteration:
        """Begin the next epoch: the first iteration of a loader is epoch 0, the second epoch 1."""
        iteration = start(self.spec, self.cursor.next)
        self.cursor.advance()
        return iteration

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

    def to_tf(self, *, element_spec: Value = None, graph: bool | Interleave = False) -> Value:
        """The same as a tf.data.Dataset; ragged columns as RaggedTensor, optional ones as SparseTensor.

        element_spec  what the elements are, if that cannot be told from the first item
        graph         read by TensorFlow's own operations: the same examples, shuffled within a buffer; Interleave(...)
                      reads several files in turn
        """
        from ..frameworks.tensorflow import to_tf

        return to_tf(self, element_spec=element_spec, graph=graph)

    def to_jax(self, *, sharding: object = None, ahead: int = 2) -> Loader:
        """The same with arrays on the device, or spread as a sharding says, some batches ahead."""
        from ..frameworks.jax import to_jax

        return to_jax(self, sharding=sharding, ahead=_number("ahead", ahead, 0))

    def in_form(self, form: Form) -> Loader:
        """Return a loader whose items a framework converts."""
        return self._with(replace(self.spec, form=form))

    def on_host(self, index: int, count: int) -> Loader:
        """Return the part of a host that a framework deals to."""
        return self._with(replace(self.spec, host=replace(self.spec.host, index=index, count=count)))

    # What it is

    @property
    def schema(self) -> Schema:
        """What its examples hold before any map."""
        return self.spec.schema

    def __bool__(self) -> bool:
        return True  # whatever its length, which may be unknown

    def __len__(self) -> int:
        """How many items an epoch of this host has, where that is known before it is read."""
        length = self.spec.host.deal(self.spec.global_order).length
        if length is None:
            raise TypeError("a loader that repeats for ever has no length")
        for step in self.spec.steps:
            length = _length_after(step, length)
        return length

    def __repr__(self) -> str:
        from .display import loader_text

        return loader_text(self.spec)


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


def _number(name: str, value: Value, least: int) -> int:
    most = (1 << 64) - 1 if name == "seed" else MOST
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"expected {name} to be an int, got {type(value).__name__}", name) from None
    if isinstance(value, bool) or number < least:
        raise ArgumentError(f"expected {name} to be {least} or more, got {value!r}", name)
    if number > most:
        raise ArgumentError(f"expected {name} to be at most {most}, got {value!r}", name)
    return number


class Split(Loader):
    """A split, or a part of one, or several one after the other.

    split[5], split[-1]           an example
    split[100:200], split[[5, 900, 12]]   a batch: a dict with a column for each field
    len(split), for example in split

    It has all methods of a Loader; torch's DataLoader and Grain take it as it is.
    """

    def __init__(self, spec: LoadSpec, expression: str, position: Position = START) -> None:
        super().__init__(spec, position)
        self.name = expression
        assert isinstance(spec.root, Part)
        self._dataset, self._spans = spec.root.dataset, spec.root.spans
        spans = self._spans
        self._ends = list(accumulate(last - first for first, last in spans))
        self._length = self._ends[-1] if spans else 0
        self._first = spans[0][0] if len(spans) == 1 else None

    def __getstate__(self) -> tuple[object, ...]:
        return self.spec, self.name, self.cursor.next

    @cached_property
    def _reader(self) -> ExampleReader:
        return self._dataset.reader(self.spec.fields, self.spec.decode)

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0

    @overload
    def __getitem__(self, index: int) -> ExampleDict: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int]) -> ExampleDict: ...
    def __getitem__(self, index: Value) -> ExampleDict:
        if type(index) is int and self._first is not None and 0 <= index < self._length:  # nearly always
            return self._reader.example(self._first + index)
        if isinstance(index, (slice, list, tuple, np.ndarray, range)):
            return self._reader.examples(self._numbers(index))
        return self._reader.example(self._number(index))

    def __getitems__(self, indices: Sequence[int]) -> list[ExampleDict]:
        """Some examples, each on its own: what torch's DataLoader asks for."""
        return rows_of(self._reader.examples(self._numbers(indices)))

    def _number(self, index: Value) -> int:
        """The number that an example has in the dataset."""
        length = self._length
        try:
            position = index + length if index < 0 else index
            if 0 <= position < length:
                if self._first is not None:
                    return self._first + position.__index__()  # type: ignore[no-any-return]
                return int(self._translated(np.array([position.__index__()]))[0])
        except (TypeError, AttributeError):
            kind = type(index).__name__
            raise TypeError(
                f"expected an int, a slice or a list of ints, got {kind} - at split {self.name!r}"
            ) from None
        raise RecordIndexError(f"example {index} is outside of the split {self.name!r} of {length} examples")

    def _numbers(self, indices: slice | Sequence[int] | Array) -> Array:
        if isinstance(indices, slice):
            return self._translated(np.arange(*indices.indices(self._length)))
        positions = np.asarray(indices)
        if positions.size == 0:
            return np.empty(0, np.int64)
        if positions.dtype == bool or positions.dtype.kind not in "iu" or positions.ndim != 1:
            raise ArgumentError(
                f"expected a list of ints, got {positions.dtype}{list(positions.shape)}", f"split {self.name!r}"
            )
        outside = (positions < -self._length) | (positions >= self._length)
        if outside.any():
            self._number(int(positions[outside][0]))
        return self._translated(np.where(positions < 0, positions + self._length, positions).astype(np.int64))

    def _translated(self, positions: Array) -> Array:
        if self._first is not None:
            return positions + self._first
        starts = np.array([first for first, _ in self._spans])
        ends = np.array([0, *self._ends])
        span = np.searchsorted(ends[1:], positions, side="right")
        numbers: Array = positions - ends[span] + starts[span]
        return numbers

    def key(self, index: int) -> str | None:
        """The key that an example had in the source that it was built from, if that is known."""
        return self._reader.locations.of(self._number(index)).key

    def __repr__(self) -> str:
        from .display import split_text

        return split_text(self)

    def _repr_html_(self) -> str:
        from .display import split_html

        return split_html(self)


def mix(loaders: Mapping[Loader, float] | Sequence[tuple[Loader, float]], *, seed: int = 0) -> Loader:
    """Examples of several splits or loaders, in fixed proportions: `mix({a: 0.7, b: 0.3}, seed=7)`.

    A list of pairs, `mix([(a, 0.7), (b, 0.3)])`, may name the same loader twice.

    Every 1024 positions hold each loader's share exactly, in a seeded order. It ends before the first position whose
    loader has no example left: repeat() those that should start again. All must have the same fields.
    """
    hint = "mix({a: 0.7, b: 0.3}) or mix([(a, 0.7), (b, 0.3)])"
    if not isinstance(loaders, (Mapping, list, tuple)) or not loaders:
        raise ArgumentError("expected a dict of loaders and their shares, or a list of pairs", "mix", hint)
    pairs = list(loaders.items()) if isinstance(loaders, Mapping) else list(loaders)
    specs, shares = [], []
    for number, pair in enumerate(pairs):
        where = f"loader {number} of the mix"
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(f"expected a pair of a loader and its share, got {type(pair).__name__}", where, hint)
        loader, share = pair
        if not isinstance(loader, Loader):
            raise ArgumentError(f"expected a split or a loader, got {type(loader).__name__}", where)
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < float("inf"):
            raise ArgumentError(f"expected a share above 0, got {share!r}", where)
        spec = loader.spec
        if spec.steps or spec.host.given:
            raise ArgumentError(
                "expected a loader without map, batch or shard, got one with it", where, "Do it after mix"
            )
        specs.append(spec)
        shares.append(share)
    _check_alike(specs)
    total = float(sum(shares))
    weights = tuple(share / total for share in shares)
    return Loader(LoadSpec(Mixture(tuple(specs), weights, _number("seed", seed, 0)), decode=specs[0].decode))


def _check_alike(specs: Sequence[LoadSpec]) -> None:
    """A mix has one schema, and one way to decode it."""
    first = specs[0]
    for number, spec in enumerate(specs[1:], 1):
        if spec.schema != first.schema:
            a, b = ({leaf.name: str(leaf) for leaf in each.schema.leaves()} for each in (first, spec))
            names = sorted(name for name in {*a, *b} if a.get(name) != b.get(name)) or ["(kinds or classes)"]
            told = f"{names[0]}: {a.get(names[0], 'nothing')} and {b.get(names[0], 'nothing')}"
            raise SchemaError(
                f"expected the same fields in all loaders, got {told}",
                f"loader {number} of the mix",
                "select() the fields that they share",
            )
        if spec.decode != first.decode:
            raise ArgumentError("expected the same decode in all loaders, got others", f"loader {number} of the mix")
