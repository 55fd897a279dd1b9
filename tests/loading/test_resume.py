"""Checkpoints: from every point of every pipeline, a resumed epoch goes on exactly, on any number of hosts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps

COUNT = 47
TOKENS = [(7 * i) % 11 for i in range(COUNT)]  # tokens of each example; some have none


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> ps.Split:
    path = tmp_path_factory.mktemp("resume") / "toy"
    rows = [{"id": i, "tokens": np.arange(TOKENS[i]) + 100 * i} for i in range(COUNT)]
    ps.build(rows, path, shards=3, schema={"id": "int64", "tokens": "int64[?]"})
    return ps.load(path)["train"]


def told(item: Any) -> str:
    """All of an item, to compare."""
    plain = {name: getattr(column, "to_list", getattr(column, "tolist", None))() for name, column in item.items()}  # type: ignore[misc]
    return json.dumps(plain)


def odd(row: dict[str, Any]) -> bool:
    return bool(row["id"] % 3)


def noise(row: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    return {**row, "noise": generator.integers(1000)}


def negate(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "id": -item["id"]}


SIZES = st.integers(1, 20)
ORDER = st.lists(
    st.one_of(
        st.builds(lambda seed, window: ("shuffle", (seed, window)), st.integers(0, 9), st.sampled_from([None, 5])),
        st.builds(lambda n: ("repeat", (n,)), st.integers(1, 3)),
        st.builds(lambda n: ("take", (n,)), st.integers(0, 60)),
        st.builds(lambda n: ("skip", (n,)), st.integers(0, 30)),
        st.builds(lambda n: ("echo", (n,)), st.integers(1, 3)),
    ),
    max_size=3,
)
ROWS = st.lists(
    st.sampled_from(
        [("filter", (odd,)), ("map", (noise,)), ("map", (negate,)), ("take", (25,)), ("skip", (4,)), ("echo", (2,))]
    ),
    max_size=3,
)
BATCHES = st.one_of(
    st.just([]),
    st.builds(lambda n: [("batch", (n,))], SIZES),
    st.builds(lambda n: [("bucket", ("tokens", [3, 7], n))], st.integers(1, 5)),
    st.builds(
        lambda length, n: [("select", ("tokens",)), ("pack", (length,)), ("batch", (n,))], SIZES, st.integers(1, 4)
    ),
)
AFTER = st.lists(st.sampled_from([("take", (7,)), ("skip", (2,)), ("echo", (2,)), ("map", (dict,))]), max_size=2)


def chained(loader: Any, steps: list[tuple[str, tuple[Any, ...]]]) -> Any:
    for name, arguments in steps:
        options = {"seed": 5} if arguments[:1] == (noise,) else {}
        loader = getattr(loader, name)(*arguments, **options)
    return loader


@given(ORDER, ROWS, BATCHES, AFTER, st.sampled_from([(0, 1), (1, 3)]), st.integers(0, 2), st.data())
@settings(max_examples=80)
def test_a_resumed_epoch_goes_on_exactly(
    train: ps.Split, order: Any, rows: Any, batches: Any, after: Any, host: tuple[int, int], epoch: int, data: Any
) -> None:
    loader = chained(train, [*order, *rows, *batches, *after]).shard(*host)
    whole, states = [], []
    with iter(loader.epoch(epoch)) as iterator:
        states.append(iterator.state())
        for item in iterator:
            whole.append(told(item))
            states.append(iterator.state())
    point = data.draw(st.integers(0, len(whole)))
    state = json.loads(json.dumps(states[point]))  # it survives JSON
    assert len(json.dumps(state)) < 1024
    again = loader.resume(state)
    with iter(again) as iterator:
        rest = []
        for item in iterator:
            rest.append(told(item))
            assert iterator.state() == states[point + len(rest)]
    assert rest == whole[point:]
    assert iterator.state()["epoch"] == epoch + 1
    second = [told(item) for item in again]  # the next epoch is a whole one
    assert second == [told(item) for item in loader.epoch(epoch + 1)]


def test_every_point_of_some_pipelines(train: ps.Split) -> None:
    for loader in (
        train.shuffle(3).batch(4),
        train.shuffle(3).map(noise, seed=1).filter(odd).batch(4).prefetch(2),
        train.shuffle(3).select("tokens").pack(9, segments=True).batch(2),
        train.cache().shuffle(3).map(negate).batch(5),
        ps.mix({train.shuffle(1).repeat(): 0.7, train.shuffle(2): 0.3}, seed=4).take(60).batch(4),
    ):
        with iter(loader.epoch(0)) as iterator:
            states = [iterator.state()]
            whole = []
            for item in iterator:
                whole.append(told(item))
                states.append(iterator.state())
        for point, state in enumerate(states[:-1]):
            assert [told(item) for item in loader.resume(state)] == whole[point:]


# Another number of hosts


def run(loaders: list[Any], steps: int | None) -> tuple[list[Any], list[dict[str, Any]]]:
    """What hosts get in so many steps, all in step, and where they are then."""
    found, states = [], []
    for loader in loaders:
        with iter(loader) as iterator:
            for number, item in enumerate(iterator, 1):
                found.append(item)
                if number == steps:
                    break
            states.append(iterator.state())
    return found, states


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.sampled_from(["batch", "examples", "map", "filter"]),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([None, 1, 4, 8]),
)
@settings(max_examples=40)
def test_hosts_come_and_go_and_every_example_comes_once(
    train: ps.Split, hosts: list[int], steps: list[int], kind: str, size: int, single: bool, lanes: int | None
) -> None:
    loader: Any = train.shuffle(5, window=lanes and 7, lanes=lanes).repeat(2)
    loader = {
        "batch": loader.batch(size),
        "examples": loader,
        "map": loader.map(dict).batch(size),
        "filter": loader.filter(odd).batch(size),
    }[kind]
    wanted = Counter(i for i in range(COUNT) if kind != "filter" or i % 3)
    seen: list[int] = []
    states: list[dict[str, Any]] | None = None
    for number, count in enumerate(hosts):
        parts = [loader.shard(host, count) for host in range(count)]
        if states is not None:
            given = states[0] if single and kind != "filter" else states
            parts = [part.resume(given) for part in parts]
        last = number == len(hosts) - 1
        if not last and steps[number] == 0:
            states = [iter(part).state() for part in parts]
            continue
        items, states = run(parts, None if last else steps[number])
        seen += [int(i) for item in items for i in np.atleast_1d(item["id"])]
        if any(state["epoch"] for state in states) and not last:
            return  # some host has reached the end: there is nothing to resume
    assert Counter(seen) == Counter(dict.fromkeys(wanted, 2))


@pytest.mark.parametrize("kind", ["batch", "pack"])
def test_eight_then_three_then_five_hosts(train: ps.Split, kind: str) -> None:
    loader: Any = train.shuffle(5).repeat(6)
    loader = loader.select("tokens").pack(5).batch(2) if kind == "pack" else loader.batch(3)
    seen: list[Any] = []
    states: Any = None
    for count, steps in ((8, 3), (3, 4), (5, None)):
        parts = [loader.shard(host, count) for host in range(count)]
        parts = parts if states is None else [part.resume(states) for part in parts]
        items, states = run(parts, steps)
        for item in items:
            seen += item["tokens" if kind == "pack" else "id"].reshape(-1).tolist()
        assert all(len(json.dumps(state)) < 1024 for state in states)
    if kind == "pack":
        want = Counter({100 * i + k: 6 for i in range(COUNT) for k in range(TOKENS[i])})
        found = Counter(seen)
        del found[0]  # also what rows are filled up with
        assert found == Counter({token: count for token, count in want.items() if token})
    else:
        assert Counter(seen) == Counter(dict.fromkeys(range(COUNT), 6))


def test_a_host_that_lags_behind_is_waited_for(train: ps.Split) -> None:
    loader = train.shuffle(2).batch(3)
    seen, states = [], []
    for host, steps in enumerate((4, 1, 2)):
        items, (state,) = run([loader.shard(host, 3)], steps)
        seen += [i for item in items for i in item["id"].tolist()]
        states.append(state)
    items, _ = run([loader.shard(host, 2).resume(states) for host in range(2)], None)
    seen += [i for item in items for i in item["id"].tolist()]
    assert sorted(seen) == list(range(COUNT))


# What is refused


def test_states_of_others_are_refused_with_the_difference(train: ps.Split, tmp_path: Path) -> None:
    loader = train.shuffle(7).batch(4)
    state = iter(loader).state()
    with pytest.raises(
        ps.SchemaError, match=r"pipeline shuffle\(seed=8\).batch\(4\), got one of shuffle\(seed=7\).batch\(4\)"
    ):
        train.shuffle(8).batch(4).resume(state)
    with pytest.raises(ps.SchemaError, match=r"got one of shuffle\(seed=7\).batch\(4\)"):
        train.batch(4).resume(state)
    with pytest.raises(ps.SchemaError, match="expected a state of the pipeline"):
        loader.map(dict).resume(state)
    ps.build([{"id": i} for i in range(5)], tmp_path / "other")
    other = ps.load(tmp_path / "other")["train"]
    with pytest.raises(
        ps.SchemaError, match=r"expected a state of 'other' \(5 examples\), got one of 'toy' \(47 examples\)"
    ):
        other.shuffle(7).batch(4).resume(state)
    half = ps.load(train.spec.datasets[0].path)["train[:50%]"]
    with pytest.raises(ps.SchemaError, match=r"\(24 examples\), got one of 'toy' \(47 examples\)"):
        half.shuffle(7).batch(4).resume(state)
    for wrong in ({}, {"penstock": 2}, {**state, "taken": -1}, {**state, "count": 0}, 5, [], [state, 5]):
        with pytest.raises((ps.SchemaError, TypeError)):
            loader.resume(wrong)  # type: ignore[arg-type]
    long = train
    for _ in range(60):
        long = long.map(negate).filter(odd)  # type: ignore[assignment]
    text = json.dumps(iter(long).state())
    assert len(text) < 1024
    assert long.resume(json.loads(text))
    with pytest.raises(ps.SchemaError, match="expected a state of the pipeline"):
        long.map(dict).resume(json.loads(text))


def test_what_does_not_matter_may_differ(train: ps.Split) -> None:
    loader = train.shuffle(7).batch(4)
    with iter(loader) as iterator:
        first = [told(next(iterator)) for _ in range(3)]
        state = iterator.state()
    whole = [told(item) for item in loader.epoch(0)]
    assert first == whole[:3]
    for other in (
        loader.prefetch(3, threads=1),
        train.cache().shuffle(7).batch(4),
        ps.load(train.spec.datasets[0].path, on_error="skip")["train"].shuffle(7).batch(4),
    ):
        assert [told(item) for item in other.resume(state)] == whole[3:]


def test_an_iteration_that_was_closed_has_not_ended(train: ps.Split) -> None:
    loader = train.batch(4)
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    state = iterator.state()
    assert next(iterator, "nothing") == "nothing"
    assert iterator.state() == state
    whole = iter(loader.epoch(0))
    length = len(list(whole))
    assert len(list(loader.resume(state))) == length - 1
    ended = whole.state()
    whole.close()
    assert (next(whole, "nothing"), whole.state()) == ("nothing", ended)


def test_hosts_that_are_not_in_step_need_all_states(train: ps.Split) -> None:
    loader = train.filter(odd).batch(2)
    states = [iter(loader.shard(host, 3)).state() for host in range(3)]
    with pytest.raises(ps.SchemaError, match="expected the states of all 3 hosts, got one"):
        loader.resume(states[0])
    with pytest.raises(ps.SchemaError, match=r"expected the states of all 3 hosts, got those of \[0, 1\]"):
        loader.resume(states[:2])
    bucket = train.bucket("tokens", [3], 2)
    state = iter(bucket.shard(0, 3)).state()
    with pytest.raises(ps.SchemaError, match="examples wait in every host's buckets"):
        bucket.shard(0, 2).resume(state)
    mixed = [states[0], {**states[1], "epoch": 1}, states[2]]
    with pytest.raises(ps.SchemaError, match="states of one epoch, got epochs"):
        loader.resume(mixed)
