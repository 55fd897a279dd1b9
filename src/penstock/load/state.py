"""Where an epoch stands: a small dict, and the order of what is left, dealt among any number of hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._core import Order
from ..errors import SchemaError, check_type

VERSION = 1
MOST_PIPELINE = 500  # letters of a state that tell its pipeline


@dataclass(frozen=True)
class Host:
    """One of several that share the examples; `even` says what becomes of those that are left over."""

    index: int = 0
    count: int = 1
    even: str | None = None

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


@dataclass(frozen=True)
class Dealt:
    """What the hosts of an earlier run took: `taken[h]` examples each, and `offsets[h]` tokens of the next."""

    taken: tuple[int, ...]
    offsets: tuple[int, ...]

    def rest(self, order: Order, cut: Mapping[int, int]) -> tuple[Order, dict[int, int]]:
        """What they left of an order, and which of its examples are cut: position, tokens that are gone.

        What lagging hosts have not taken comes first, host by host, then all that nobody has reached.
        """
        count, most = len(self.taken), max(self.taken)
        parts: list[Order] = []
        left: dict[int, int] = {}
        total = 0
        ends = [max(most, taken + (offset > 0)) for taken, offset in zip(self.taken, self.offsets, strict=True)]
        most = max(ends)
        length = order.length
        for host, (taken, offset) in enumerate(zip(self.taken, self.offsets, strict=True)):
            first = host + taken * count
            last = most * count if length is None else min(most * count, length)
            if first >= last:
                continue
            parts.append(order.slice(first, last, count))
            for place, position in enumerate(range(first, last, count)):
                tokens = offset if place == 0 and offset else cut.get(position, 0)
                if tokens:
                    left[total + place] = tokens
            total += len(range(first, last, count))
        for position, tokens in cut.items():
            if position >= most * count:
                left[total + position - most * count] = tokens
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

    def rest(self, order: Order) -> tuple[Order, dict[int, int]]:
        """The order that is dealt now, and which of its examples are cut."""
        cut: dict[int, int] = {}
        if self.base:
            total = order.length
            order = order.slice(self.base if total is None else min(self.base, total), None)
        for dealt in self.past:
            order, cut = dealt.rest(order, cut)
        return order, cut

    def to_state(self, host: Host, dataset: Mapping[str, Any], pipeline: Sequence[str]) -> dict[str, Any]:
        """The dict that is kept in a checkpoint."""
        state: dict[str, Any] = {
            "penstock": VERSION,
            "epoch": self.epoch,
            "base": self.base,
            "taken": self.taken,
            "index": host.index,
            "count": host.count,
            "dataset": dict(dataset),
            "pipeline": _short(pipeline),
        }
        if self.past:
            state["past"] = [[list(dealt.taken), list(dealt.offsets)] for dealt in self.past]
        if self.slots:
            state["slots"] = list(self.slots)
        return state


def _short(pipeline: Sequence[str]) -> list[str]:
    """The pipeline's steps; of a very long one the middle is told by its hash alone."""
    if sum(map(len, pipeline)) <= MOST_PIPELINE:
        return list(pipeline)
    digest = hashlib.blake2b("\n".join(pipeline).encode(), digest_size=8).hexdigest()
    kept: list[str] = []
    while sum(map(len, kept)) + len(pipeline[len(kept)]) <= MOST_PIPELINE - 20:
        kept.append(pipeline[len(kept)])
    return [*kept, f"… {digest}"]


def resumed(
    states: Any,
    host: Host,
    dataset: Mapping[str, Any],
    pipeline: Sequence[str],
    *,
    lockstep: bool,
    slots: Sequence[str],
) -> Position:
    """The position to go on from.

    states    one state, or those of all hosts
    lockstep  every host takes as many positions for its nth item as the others: one state tells them all
    slots     the names of the steps that keep a number
    """
    check_type(states, (Mapping, Sequence), "what iterator.state() gave, or a list of that", "resume")
    given = [states] if isinstance(states, Mapping) else list(states)
    if not given:
        raise SchemaError("expected a state, or the states of all hosts, got none", "resume")
    for state in given:
        _check(state, dataset, pipeline, len(slots))
    first = given[0]
    count = first["count"]
    indexes = sorted(state["index"] for state in given)
    if any(
        (state["count"], state["base"], state.get("past")) != (count, first["base"], first.get("past"))
        for state in given
    ):
        raise SchemaError("expected the states of one run, got states of several", "resume")
    own = [state for state in given if state["index"] == host.index] if count == host.count else []
    if own:
        return _position(own[0])
    if "bucket" in slots and count != host.count:
        expected = f"expected the {count} hosts of before, got {host.count}"
        raise SchemaError(f"{expected}: examples wait in every host's buckets", "resume", "Change hosts between epochs")
    if len(given) > 1 and indexes != list(range(count)):
        raise SchemaError(f"expected the states of all {count} hosts, got those of {indexes}", "resume")
    if len(given) == 1 and count > 1 and not lockstep:
        raise SchemaError(
            f"expected the states of all {count} hosts, got one: hosts that filter or pack are not in step",
            "resume",
            "resume([state, state, ...])",
        )
    given = sorted(given, key=lambda state: int(state["index"])) if len(given) > 1 else [first] * count
    return _redealt(given, slots)


def _position(state: Mapping[str, Any]) -> Position:
    past = tuple(Dealt(tuple(taken), tuple(offsets)) for taken, offsets in state.get("past", ()))
    return Position(state["epoch"], state["base"], past, state["taken"], tuple(state.get("slots", ())))


def _redealt(states: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Position:
    """What all hosts have left, for another number of them."""
    first = _position(states[0])
    epochs = sorted({state["epoch"] for state in states})
    if len(epochs) > 1:
        raise SchemaError(f"expected the hosts' states of one epoch, got epochs {epochs}", "resume")
    kept = {name: {state["slots"][at] for state in states} for at, name in enumerate(names) if name != "pack"}
    if any(len(values) > 1 for values in kept.values()) or kept.get("echo", {0}) != {0}:
        raise SchemaError(
            "expected hosts that are in step, got some that are not", "resume", "Take the states together"
        )
    offsets = tuple(state["slots"][names.index("pack")] if "pack" in names else 0 for state in states)
    taken = tuple(int(state["taken"]) for state in states)
    slots = tuple(0 if name == "pack" else slot for name, slot in zip(names, first.slots, strict=True))
    if not first.past and len(set(taken)) == 1 and not any(offsets):
        return replace(first, base=first.base + taken[0] * len(taken), taken=0, slots=slots)
    return replace(first, past=(*first.past, Dealt(taken, offsets)), taken=0, slots=slots)


def _check(state: Any, dataset: Mapping[str, Any], pipeline: Sequence[str], slots: int) -> None:
    """Refuse what is no state, and states of other data or of other steps."""
    if not isinstance(state, Mapping) or state.get("penstock") != VERSION:
        version = state.get("penstock") if isinstance(state, Mapping) else type(state).__name__
        raise SchemaError(
            f'expected a state with "penstock": {VERSION}, got {version!r}', "resume", "Take it from state()"
        )
    numbers = [state.get(name) for name in ("epoch", "base", "taken", "index", "count")]
    if any(type(number) is not int or number < 0 for number in numbers) or not state["index"] < state["count"]:
        raise SchemaError(f"expected a state that state() gave, got odd numbers {numbers}", "resume")
    if dict(state.get("dataset", {})) != dict(dataset):
        known, got = _told_dataset(dataset), _told_dataset(state.get("dataset", {}))
        got = got if got != known else f"{got}, with other shards"
        raise SchemaError(
            f"expected a state of {known}, got one of {got}", "resume", "Load the dataset that the state is of"
        )
    expected, found = _short(pipeline), list(state.get("pipeline", ()))
    if expected != found:
        raise SchemaError(
            f"expected a state of the pipeline {_told(expected)}, got one of {_told(found)}",
            "resume",
            "Write the loader as it was; only shard, prefetch and cache may differ",
        )
    if len(state.get("slots", ())) != slots:
        raise SchemaError(f"expected a state that state() gave, got {state.get('slots')!r} for {slots} steps", "resume")


def _told_dataset(dataset: Mapping[str, Any]) -> str:
    return f"{dataset.get('name')!r} ({dataset.get('examples')} examples)"


def _told(pipeline: Sequence[str]) -> str:
    return ".".join(pipeline) or "(no steps)"
