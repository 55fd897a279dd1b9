"""States that nobody gave: each is refused when it is given to `resume`, at no cost, or leads to a right epoch."""

from __future__ import annotations

import copy
import json
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import StateError

COUNT, SIZE = 103, 10


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> ps.Split:
    path = tmp_path_factory.mktemp("states") / "toy"
    ps.build([{"id": i, "tokens": np.arange(i % 7)} for i in range(COUNT)], path, shards=3, workers=1)
    return ps.load(path)["train"]


PIPELINES: dict[str, Callable[[ps.Split], ps.Loader]] = {
    "batches": lambda split: split.shuffle(seed=7).batch(SIZE),
    "examples": lambda split: split.shuffle(seed=7),
    "mapped": lambda split: split.map(lambda row: row).batch(SIZE),
    "filtered": lambda split: split.filter(lambda row: row["id"] % 2).batch(SIZE),
    "taken": lambda split: split.batch(SIZE).skip(1).echo(2).take(9),
    "packed": lambda split: split.select("tokens").pack(16).batch(2),
    "buckets": lambda split: split.bucket("tokens", [2, 5], 4),
    "for ever": lambda split: split.shuffle(seed=7).repeat().batch(SIZE),
}


def repr_short(value: Any) -> str:
    return repr(value)[:20]


def state_after(loader: ps.Loader, items: int) -> dict[str, Any]:
    iterator = iter(loader)
    for _ in range(items):
        next(iterator)
    state: dict[str, Any] = json.loads(json.dumps(iterator.state()))
    iterator.close()
    return state


def first_items(loader: ps.Loader, most: int = 60) -> list[Any]:
    with iter(loader) as iterator:
        return [item for item, _ in zip(iterator, range(most), strict=False)]


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", ["taken", "base", "epoch", "index", "count"])
@pytest.mark.parametrize("value", [10**9, 2**31, 2**63, 10**400, -1, 1.5, True, "1", None, [], {}], ids=repr_short)
def test_numbers_beyond_the_data(pipeline: str, name: str, value: Any, train: ps.Split) -> None:
    loader = PIPELINES[pipeline](train)
    state = state_after(loader, 2)
    state[name] = value
    legal = type(value) is int and 0 <= value < 2**62
    if legal and (name == "epoch" or (pipeline == "for ever" and name in ("taken", "base"))):
        assert first_items(loader.resume(state), 3)
        return
    with pytest.raises(ps.LoadError):
        loader.resume(state)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_point_of_an_epoch_is_accepted(pipeline: str, train: ps.Split) -> None:
    """Also on other numbers of hosts, and there again."""
    loader = PIPELINES[pipeline](train)
    with iter(loader) as iterator:
        for _, _ in zip(iterator, range(40), strict=False):
            state = iterator.state()
            again = loader.resume(state)
            assert iter(again).state() == state
            if pipeline in ("buckets", "taken"):  # in the middle of what these do, no other number of hosts goes on
                continue
            for count in (2, 3):
                hosts = [loader.shard(index, count).resume(state) for index in range(count)]
                states = []
                for host in hosts:
                    running = iter(host)
                    next(running, None)
                    states.append(running.state())
                    running.close()
                if len({each["epoch"] for each in states}) == 1:
                    loader.shard(0, 4).resume(states)


def test_one_position_too_many(train: ps.Split) -> None:
    """The last batch is short, and counts as a whole one: 110 positions of 103 are right, 111 and 120 are not."""
    loader = train.batch(SIZE)
    state = state_after(loader, 11)
    assert state["taken"] == 110
    assert first_items(loader.resume(state)) == []
    for taken in (104, 109, 111, 120):
        with pytest.raises(StateError, match="expected at most 103 positions"):
            loader.resume({**state, "taken": taken})
    assert [len(item["id"]) for item in first_items(loader.resume({**state, "taken": 100}))] == [3]


def test_numbers_that_other_steps_keep(train: ps.Split) -> None:
    loader = PIPELINES["taken"](train)
    state = state_after(loader, 3)
    assert len(state["slots"]) == 3
    for slots in ([2, 0, 3], [1, 2, 3], [1, 0, 10], [1, 0, 9 * 10**9], [1, 0], [1, 0, 3, 0], [1, 0, -3], "103"):
        with pytest.raises(ps.LoadError, match="slots"):
            loader.resume({**state, "slots": slots})
    with pytest.raises(ps.LoadError, match="slots"):
        loader.resume({**state, "taken": 0, "slots": [1, 0, 9]})  # nine batches of no example
    buckets = PIPELINES["buckets"](train)
    state = state_after(buckets, 3)
    with pytest.raises(ps.LoadError):
        first_items(buckets.resume({**state, "slots": [COUNT - 1], "taken": COUNT}))
    packed = PIPELINES["packed"](train)
    state = {**state_after(packed, 1), "slots": [1000]}
    with pytest.raises(ps.LoadError, match="expected an example of more than 1000 tokens"):
        first_items(packed.resume(state))


@pytest.mark.parametrize(
    "past",
    [
        [[[10**9, 0], [0, 0]]], [[[0, 0], [1, 0]]], [[[0], [0, 0]]], [[[], []]], [[]], [[[1, 2]]], {}, "past", 7,
        [[{"a": 1}, [0]]], [["12", "34"]], [[[1.5, 0], [0, 0]]], [[[0, 0], [0, 0]]] * 1000,
        [[[2**61] * 3, [0] * 3]],
    ],
)  # fmt: skip
def test_what_earlier_hosts_took(past: Any, train: ps.Split) -> None:
    loader = PIPELINES["filtered"](train)
    state = {**state_after(loader, 2), "past": past}
    with pytest.raises(ps.LoadError):
        loader.resume(state)


def test_a_host_that_lags_by_far_costs_nothing(train: ps.Split) -> None:
    """Nothing is listed that could be computed."""
    loader = train.repeat(10**12).filter(lambda row: True).batch(SIZE)
    state = {**state_after(loader, 1), "past": [[[0, 10**13], [0, 0]]]}
    assert first_items(loader.resume(state), 2)


@pytest.mark.alone
def test_many_hosts_take_no_memory(tmp_path: Path) -> None:
    code = f"""
import resource
import penstock as ps
ps.build([{{"x": i}} for i in range(100)], {str(tmp_path / "d")!r}, workers=1)
loader = ps.load({str(tmp_path / "d")!r})["train"].batch(10)
iterator = iter(loader); next(iterator)
state = iterator.state()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for count in (2**31, 2**40, 10**30):
    try:
        loader.resume({{**state, "count": count}})
        raise SystemExit("accepted")
    except ps.LoadError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 50_000, "kilobytes"
    assert resource.RUSAGE_SELF == 0


def test_other_numbers_are_bounded_too(train: ps.Split) -> None:
    for call in (
        lambda: train.epoch(2**64),
        lambda: train.shuffle(seed=2**64),
        lambda: train.take(2**70),
        lambda: train.skip(2**70),
        lambda: train.repeat(2**70),
        lambda: train.batch(2**70),
        lambda: train.shard(0, 2**70),
        lambda: train.shuffle(window=2**70),
        lambda: train.prefetch(threads=2**70),
        lambda: train.prefetch(memory=2**70),
    ):
        with pytest.raises(ps.ArgumentError, match=r"expected .* at most"):
            call()
    assert first_items(train.shuffle(seed=2**64 - 1).batch(SIZE), 1)


# Any JSON in any place

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, 1, 2, 50, 103, 110, 2**31, 2**62, 2**63, 2**64, 10**30])
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a state."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(state)
    changed[path[0]] = replaced(state[path[0]], path[1:], value)
    return changed


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_json_in_any_place(data: st.DataObject, train: ps.Split) -> None:
    pipeline = data.draw(st.sampled_from(sorted(PIPELINES)))
    loader = PIPELINES[pipeline](train)
    host = data.draw(st.sampled_from([None, (0, 1), (1, 2), (2, 3)]))
    state = state_after(loader, data.draw(st.integers(0, 3)))
    if data.draw(st.booleans()):
        state["past"] = [[[3, 2], [0, 0]]]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(sorted(places(state), key=repr)))
        kind = data.draw(st.sampled_from(["value", "value", "key", "gone"]))
        if kind == "value" or not path:
            state = replaced(state, path, data.draw(JSON))
        elif isinstance(state, dict):
            if kind == "gone":
                state.pop(path[0], None)
            else:
                state[data.draw(st.sampled_from(["past", "slots", "more"]))] = data.draw(JSON)
        if not isinstance(state, dict):
            break
    given_states = [state, state] if data.draw(st.integers(0, 9)) == 0 else state
    dealt = loader if host is None else loader.shard(*host)
    try:
        items = first_items(dealt.resume(given_states))
    except ps.PenstockError:
        return
    if pipeline in ("batches", "mapped") and host is None:
        seen = Counter(int(number) for item in items for number in item["id"])
        assert set(seen.values()) <= {1}
        assert set(seen) <= set(range(COUNT))
        gone = state["base"] + state["taken"] + sum(sum(dealt[0]) for dealt in state.get("past", ()))
        assert len(seen) == max(0, COUNT - gone)
