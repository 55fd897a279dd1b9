"""Where an epoch stands: a small dict, and the order of what is left, dealt among any number of hosts."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from .._core import Order
from ..errors import SchemaError, StateError
from .spec import STATEFUL, Batch, DatasetId, Echo, LoadSpec, Pack, Skip, Step, Take

VERSION = 1
MOST_PIPELINE = 500  # letters of a state that tell its pipeline
MOST_HOSTS = 1 << 20  # that take part in a run
MOST_PAST = 64  # changes of the number of hosts within an epoch, where hosts are not in step
MOST = 1 << 62  # no position and no epoch is larger


@dataclass(frozen=True)
class Dealt:
    """What the hosts of an earlier run took: `taken[h]` examples each, and `offsets[h]` tokens of the next."""

    taken: tuple[int, ...]
    offsets: tuple[int, ...]

    def rest(self, order: Order, cut: Mapping[int, int]) -> tuple[Order, dict[int, int]]:
        """What they left of an order, and which of its examples are cut: position, tokens that are gone.

        What lagging hosts have not taken comes first, host by host, then all that nobody has reached.
        """
        count = len(self.taken)
        parts: list[Order] = []
        left: dict[int, int] = {}
        starts: dict[int, int] = {}  # of the hosts that lag: where their first position is in the new order
        total = 0
        most = max(taken + (offset > 0) for taken, offset in zip(self.taken, self.offsets, strict=True))
        length = order.length
        for host, (taken, offset) in enumerate(zip(self.taken, self.offsets, strict=True)):
            first = host + taken * count
            last = most * count if length is None else min(most * count, length)
            if first >= last:
                continue
            parts.append(order.slice(first, last, count))
            starts[host] = total
            if offset:
                left[total] = offset
            total += len(range(first, last, count))
        for position, tokens in cut.items():
            host, turn = position % count, position // count
            if position >= most * count:
                left[total + position - most * count] = tokens
            elif turn >= self.taken[host]:
                left.setdefault(starts[host] + turn - self.taken[host], tokens)
        if length is None or most * count < length:
            parts.append(order.slice(most * count, None))
        return Order.concat(parts) if parts else order.slice(0, 0), left


@dataclass(frozen=True)
class Position:
    """Where a host is in an epoch.

    base, past  what earlier runs with other hosts took: all positions before `base`, then whatever is in `past`
    taken       how many of its own positions this host has taken since
    slots       a number for each step that keeps one (tokens of the next example, batches that were echoed ...)
    """

    epoch: int = 0
    base: int = 0
    past: tuple[Dealt, ...] = ()
    taken: int = 0
    slots: tuple[int, ...] = ()

    @property
    def is_inside(self) -> bool:
        """Whether some items of the epoch have been given."""
        return bool(self.base or self.past or self.taken or any(self.slots))

    def rest(self, order: Order) -> tuple[Order, dict[int, int]]:
        """The order that is dealt now, and which of its examples are cut."""
        cut: dict[int, int] = {}
        if self.base:
            total = order.length
            order = order.slice(self.base if total is None else min(self.base, total), None)
        for dealt in self.past:
            order, cut = dealt.rest(order, cut)
        return order, cut


@dataclass
class Cursor:
    """Where the next iteration of a loader begins. It is the only part of a loader that iterating changes.

    The first iteration is epoch 0, or begins where `epoch` or `resume` set it; each one after it is the next epoch. A
    loader that is made from another one (`map`, `batch`, `to_torch` ...), copied or unpickled begins where that one
    would have begun next, and counts on its own.
    """

    next: Position

    def advance(self) -> None:
        """Go on to the beginning of the next epoch."""
        self.next = Position(epoch=self.next.epoch + 1)


@dataclass(frozen=True)
class LoaderState:
    """The state of an iteration, as a checkpoint keeps it: a position, and what a loader must agree on to resume it.

    pipeline  the steps of the loader, those of a long one shortened
    """

    position: Position
    index: int
    count: int
    dataset: DatasetId
    pipeline: tuple[str, ...]

    @classmethod
    def of(cls, position: Position, spec: LoadSpec) -> LoaderState:
        """Return the state of a loader at a position."""
        return cls(position, spec.host.index, spec.host.count, spec.dataset, shortened(spec.pipeline))

    def to_json(self) -> dict[str, object]:
        """Return the dict that is kept in a checkpoint."""
        position = self.position
        state: dict[str, object] = {
            "penstock": VERSION,
            "epoch": position.epoch,
            "base": position.base,
            "taken": position.taken,
            "index": self.index,
            "count": self.count,
            "dataset": self.dataset.to_json(),
            "pipeline": list(self.pipeline),
        }
        if position.past:
            state["past"] = [[list(dealt.taken), list(dealt.offsets)] for dealt in position.past]
        if position.slots:
            state["slots"] = list(position.slots)
        return state

    @classmethod
    def from_json(cls, data: object, slots: int) -> LoaderState:
        """Return the state of a dict that `to_json` gave, for a loader with so many slots; StateError for others."""
        if not isinstance(data, Mapping) or type(data.get("penstock")) is not int or data["penstock"] != VERSION:
            got = data.get("penstock") if isinstance(data, Mapping) else type(data).__name__
            raise StateError(f'expected a state with "penstock": {VERSION}, got {_shown(got)}', "resume", _HINT)
        epoch, base, taken, index, count = (
            _count_of(data, name) for name in ("epoch", "base", "taken", "index", "count")
        )
        if not index < count <= MOST_HOSTS:
            raise _odd("index", f"one of at most {MOST_HOSTS} hosts", f"{index} of {count}")
        numbers = _numbers_of("slots", data.get("slots", []), slots)
        position = Position(epoch, base, _past_of(data.get("past", [])), taken, numbers)
        return cls(position, index, count, DatasetId.from_json(data.get("dataset")), _pipeline_of(data.get("pipeline")))


def shortened(pipeline: Sequence[str]) -> tuple[str, ...]:
    """Return the steps of a pipeline; of a very long one the middle is kept as its hash alone."""
    if sum(map(len, pipeline)) <= MOST_PIPELINE:
        return tuple(pipeline)
    digest = hashlib.blake2b("\n".join(pipeline).encode(), digest_size=8).hexdigest()
    kept: list[str] = []
    while sum(map(len, kept)) + len(pipeline[len(kept)]) <= MOST_PIPELINE - 20:
        kept.append(pipeline[len(kept)])
    return (*kept, f"… {digest}")


_HINT = "Take it from state()"


def resumed(states: object, spec: LoadSpec) -> Position:
    """Return the position to go on from. A state is checked in full: StateError unless `state()` may have given it.

    states  one state, or those of all hosts
    """
    if isinstance(states, (str, bytes)) or not isinstance(states, (Mapping, Sequence)):
        expected = "expected what iterator.state() gave, or a list of that"
        raise StateError(f"{expected}, got {type(states).__name__}", "resume")
    listed = [states] if isinstance(states, Mapping) else list(states)
    if not listed:
        raise StateError("expected a state, or the states of all hosts, got none", "resume")
    host, order = spec.host, spec.global_order
    slots = [type(step).__name__.lower() for step in spec.stateful()]
    given = []
    for each in listed:
        state = LoaderState.from_json(each, len(slots))
        _check_agrees(state, spec)
        _check_position(state.position, state.count, spec.steps, order)
        given.append(state)
    first = given[0]
    count = first.count
    indexes = sorted(state.index for state in given)
    run = (count, first.position.base, first.position.past)
    if any((state.count, state.position.base, state.position.past) != run for state in given):
        raise StateError("expected the states of one run, got states of several", "resume")
    own = [state for state in given if state.index == host.index] if count == host.count else []
    if own:
        return _resolved(own[0].position, order)
    if "bucket" in slots and count != host.count:
        expected = f"expected the {count} hosts of before, got {host.count}"
        raise StateError(f"{expected}: examples wait in every host's buckets", "resume", "Change hosts between epochs")
    if len(given) > 1 and indexes != list(range(count)):
        raise StateError(f"expected the states of all {count} hosts, got those of {indexes}", "resume")
    if len(given) == 1 and count > 1 and not spec.lockstep:
        raise StateError(
            f"expected the states of all {count} hosts, got one: hosts that filter or pack are not in step",
            "resume",
            "resume([state, state, ...])",
        )
    given = sorted(given, key=lambda state: state.index) if len(given) > 1 else [first] * count
    return _resolved(_redealt([state.position for state in given], slots, order.length), order)


def _resolved(position: Position, order: Order) -> Position:
    """The position, once what is left of the order is known to exist: arithmetic alone, nothing is read."""
    try:
        position.rest(order)
    except SchemaError as error:
        raise StateError(f"expected a state that state() gave, got one without an order: {error}", "resume") from None
    return position


def _redealt(positions: Sequence[Position], names: Sequence[str], length: int | None) -> Position:
    """Return what all hosts have left, for another number of them."""
    first = positions[0]
    epochs = sorted({position.epoch for position in positions})
    if len(epochs) > 1:
        raise StateError(f"expected the hosts' states of one epoch, got epochs {epochs}", "resume")
    kept = {name: {position.slots[at] for position in positions} for at, name in enumerate(names) if name != "pack"}
    if any(len(values) > 1 for values in kept.values()) or kept.get("echo", {0}) != {0}:
        raise StateError("expected hosts that are in step, got some that are not", "resume", "Take the states together")
    offsets = tuple(position.slots[names.index("pack")] if "pack" in names else 0 for position in positions)
    taken = tuple(position.taken for position in positions)
    slots = tuple(0 if name == "pack" else slot for name, slot in zip(names, first.slots, strict=True))
    if not first.past and len(set(taken)) == 1 and not any(offsets):
        base = first.base + taken[0] * len(taken)
        return replace(first, base=base if length is None else min(base, length), taken=0, slots=slots)
    return replace(first, past=(*first.past, Dealt(taken, offsets)), taken=0, slots=slots)


def _check_agrees(state: LoaderState, spec: LoadSpec) -> None:
    """Refuse states of other data or of other steps."""
    if state.dataset != spec.dataset:
        known, got = str(spec.dataset), str(state.dataset)
        got = got if got != known else f"{got}, with other shards"
        raise StateError(
            f"expected a state of {known}, got one of {got}", "resume", "Load the dataset that the state is of"
        )
    expected = shortened(spec.pipeline)
    if state.pipeline != expected:
        raise StateError(
            f"expected a state of the pipeline {_written(expected)}, got one of {_written(state.pipeline)}",
            "resume",
            "Write the loader as it was; only shard, prefetch and cache may differ",
        )


def _check_position(position: Position, count: int, steps: Sequence[Step], order: Order) -> None:
    """Refuse positions that the data and the steps do not have."""
    length = order.length
    if length is not None and position.base > length:
        raise _beyond("base", position.base, length)
    batch = next((step.size for step in steps if isinstance(step, Batch)), 1)
    packs = any(isinstance(step, Pack) for step in steps)
    consumed = position.base
    if length is not None:
        length -= position.base
    for dealt in position.past:
        hosts = len(dealt.taken)
        consumed += sum(dealt.taken)
        if (max(dealt.taken) + 1) * hosts > MOST:
            raise _odd("past", f"positions up to {MOST}", max(dealt.taken))
        if not packs and any(dealt.offsets):
            raise _odd("past", "no tokens for a pipeline that does not pack", dealt.offsets)
        if length is not None:
            for taken in dealt.taken:
                _check_taken("past", taken, -(-length // hosts), batch)
            length -= sum(min(taken, len(range(host, length, hosts))) for host, taken in enumerate(dealt.taken))
    if length is not None:
        _check_taken("taken", position.taken, -(-length // count), batch)
    elif (position.taken + 1) * count > MOST:
        raise _odd("taken", f"positions up to {MOST}", position.taken)
    _check_slots(position.slots, consumed + position.taken, steps)


def _check_taken(name: str, taken: int, length: int, batch: int) -> None:
    """A last batch that is short counts as a whole one."""
    if taken > length and (taken % batch or taken - length >= batch):
        raise _beyond(name, taken, length)


def _check_slots(slots: Sequence[int], consumed: int, steps: Sequence[Step]) -> None:
    """Refuse numbers of steps that so many examples cannot have led to."""
    most: int | None = consumed  # items before a step
    left = list(slots)
    for step in steps:
        slot = left.pop(0) if isinstance(step, STATEFUL) else 0
        name = type(step).__name__.lower()
        if isinstance(step, Echo) and slot >= step.times:
            raise _odd("slots", f"fewer than {step.times} of echo", slot)
        if isinstance(step, (Take, Skip)) and slot > step.count:
            raise _odd("slots", f"at most {step.count} of {name}", slot)
        if most is not None and not isinstance(step, (Echo, Pack)) and slot > most:
            raise _odd("slots", f"at most {most} of {name} after {consumed} examples", slot)
        if isinstance(step, Pack):
            most = None  # one example may hold any number of rows
        elif most is not None:
            most = -(-most // step.size) if isinstance(step, Batch) else most
            most = (most + 1) * step.times if isinstance(step, Echo) else most


# Members of a state
def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MOST


def _count_of(data: Mapping[str, object], name: str) -> int:
    value = data.get(name)
    if not _is_count(value):
        raise _odd(name, "a number that is 0 or more", value)
    return value


def _numbers_of(name: str, values: object, length: int) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or len(values) != length or not all(map(_is_count, values)):
        raise _odd(name, f"a list of {length} numbers that are 0 or more", values)
    return tuple(values)


def _past_of(past: object) -> tuple[Dealt, ...]:
    if not isinstance(past, Sequence) or isinstance(past, (str, bytes)) or len(past) > MOST_PAST:
        raise _odd("past", f"a list of at most {MOST_PAST}", past)
    found = []
    for dealt in past:
        if not isinstance(dealt, Sequence) or isinstance(dealt, (str, bytes)) or len(dealt) != 2:
            raise _odd("past", "two lists for each run", dealt)
        hosts = len(dealt[0]) if isinstance(dealt[0], Sequence) else 0
        if not 1 <= hosts <= MOST_HOSTS:
            raise _odd("past", f"1 to {MOST_HOSTS} hosts", dealt[0])
        found.append(Dealt(_numbers_of("past", dealt[0], hosts), _numbers_of("past", dealt[1], hosts)))
    return tuple(found)


def _pipeline_of(found: object) -> tuple[str, ...]:
    """Return the steps; of anything else, its text: no pipeline is equal to it."""
    if isinstance(found, (list, tuple)):
        return tuple(map(str, found))
    return (_shown(found),)


def _odd(name: str, expected: str, got: object) -> StateError:
    return StateError(f"expected {expected}, got {_shown(got)}", f"resume, {name!r} of the state", _HINT)


def _beyond(name: str, got: int, length: int) -> StateError:
    hint = "The state is not of this data, or was changed"
    return StateError(f"expected at most {length} positions, got {got}", f"resume, {name!r} of the state", hint)


def _shown(value: object) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= 100 else text[:99] + "…"


def _written(pipeline: Sequence[str]) -> str:
    return ".".join(pipeline) or "(no steps)"
