"""A loader is a value: its cursor, where the next iteration begins, is all that iterating changes."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

COUNT = 20


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> ps.Split:
    path = tmp_path_factory.mktemp("cursor") / "toy"
    ps.build([{"id": i} for i in range(COUNT)], path, shards=2)
    return ps.load(path)["train"]


def ids(loader: Any) -> list[int]:
    return [int(number) for batch in loader for number in batch["id"]]


def epochs(split: ps.Split, count: int = 5) -> list[list[int]]:
    loader = split.shuffle(seed=7).batch(4)
    return [ids(loader.epoch(number)) for number in range(count)]


def test_the_nth_iteration_is_epoch_n(split: ps.Split) -> None:
    expected, loader = epochs(split), split.shuffle(seed=7).batch(4)
    assert len({tuple(order) for order in expected}) == 5
    assert [ids(loader) for _ in range(5)] == expected
    assert loader.next_epoch == 5


def test_epoch_leaves_its_loader_as_it_is(split: ps.Split) -> None:
    expected, loader = epochs(split), split.shuffle(seed=7).batch(4)
    third = loader.epoch(3)
    assert (loader.next_epoch, third.next_epoch) == (0, 3)
    assert [ids(third), ids(third)] == expected[3:5]
    assert ids(loader) == expected[0]


def test_an_iteration_that_was_left_early_counts(split: ps.Split) -> None:
    loader = split.shuffle(seed=7).batch(4)
    with iter(loader) as iteration:
        next(iteration)
    assert loader.next_epoch == 1


def test_a_loader_made_from_another_counts_on_its_own(split: ps.Split) -> None:
    expected, shuffled = epochs(split), split.shuffle(seed=7)
    list(shuffled)
    loader = shuffled.batch(4)
    assert (shuffled.next_epoch, loader.next_epoch) == (1, 1)
    assert ids(loader) == expected[1]
    assert (shuffled.next_epoch, loader.next_epoch) == (1, 2)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])  # noqa: S301
def test_copies_go_on_where_the_loader_is_and_count_on_their_own(split: ps.Split, duplicate: Any) -> None:
    expected, loader = epochs(split), split.shuffle(seed=7).batch(4)
    ids(loader)
    other = duplicate(loader)
    assert [ids(other), ids(other)] == expected[1:3]
    assert loader.next_epoch == 1
    assert ids(loader) == expected[1]


@pytest.mark.parametrize("duplicate", [copy.copy, lambda loader: pickle.loads(pickle.dumps(loader))])  # noqa: S301
def test_copies_of_a_resumed_loader_and_of_a_split_keep_their_place(split: ps.Split, duplicate: Any) -> None:
    expected, loader = epochs(split), split.shuffle(seed=7).batch(4)
    with iter(loader.epoch(2)) as iteration:
        next(iteration)
        state = iteration.state()
    resumed = loader.resume(state)
    other = duplicate(resumed)
    assert other.next_epoch == resumed.next_epoch == 2
    assert ids(other) == ids(resumed) == expected[2][4:]
    assert ids(other) == ids(resumed) == expected[3]
    own = ps.load(split.spec.datasets[0].path)["train"]
    list(own)
    again = duplicate(own)
    assert (again.next_epoch, again.name, len(again)) == (1, "train", COUNT)
    assert again[5] == own[5]


def test_steps_that_change_no_item_keep_a_resumed_place(split: ps.Split) -> None:
    expected, loader = epochs(split), split.shuffle(seed=7).batch(4)
    with iter(loader.epoch(1)) as iteration:
        next(iteration)
        state = iteration.state()
    assert ids(loader.resume(state).prefetch(2)) == expected[1][4:]
    halves = [ids(loader.resume(state).shard(rank, 2)) for rank in range(2)]
    assert sorted(halves[0] + halves[1]) == sorted(expected[1][4:])
    assert ids(loader.resume(state).epoch(3)) == expected[3]
    with pytest.raises(ps.ArgumentError, match=r"resume after all other steps, got map\(dict\) after it"):
        loader.resume(state).map(dict)


def test_profile_leaves_the_loader_where_it_is(split: ps.Split) -> None:
    loader = split.shuffle(seed=7).batch(4)
    assert loader.profile(1.0).examples == COUNT
    assert loader.next_epoch == 0


def test_to_torch_begins_where_the_loader_is_and_counts_on_its_own(split: ps.Split) -> None:
    pytest.importorskip("torch")
    expected, loader = epochs(split), split.shuffle(seed=7).batch(4)
    ids(loader)
    dataset = loader.to_torch()
    assert [ids(dataset), ids(dataset)] == expected[1:3]
    assert loader.next_epoch == 1
    assert [ids(loader.epoch(3).to_torch())] == expected[3:4]


def test_to_tf_begins_where_the_loader_is_and_counts_on_its_own(split: ps.Split) -> None:
    pytest.importorskip("tensorflow")
    expected = epochs(split)
    for loader in (split.shuffle(seed=7).batch(4), split.shuffle(seed=7).batch(4).map(dict)):
        ids(loader)
        dataset = loader.to_tf()
        assert [ids(dataset), ids(dataset)] == expected[1:3]
        assert loader.next_epoch == 1


def test_the_spec_of_a_loader_does_not_change(split: ps.Split, tmp_path: Path) -> None:
    loader = split.shuffle(seed=7).batch(4)
    spec, text = loader.spec, repr(loader)
    ids(loader)
    assert loader.spec is spec
    assert repr(loader) == text
    with pytest.raises(AttributeError):
        loader.spec.steps = ()  # type: ignore[misc]
