"""The order of an epoch: what FORMAT.md says, computed by a naive oracle, and whether a shuffle deserves the name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.order_oracle import DOMAIN, MASK, highway64, permutation, shuffle

import penstock as ps
from penstock._core import Order, hash_keys

SEEDS = st.integers(0, MASK)


# The oracle: lists of lists, an order is a function from the epoch to its numbers

Oracle = Callable[[int], list[int]]
Pair = tuple[Order, Oracle]


def span(start: int, stop: int) -> Pair:
    return Order.span(start, stop), lambda epoch: list(range(start, stop))


def shuffled(pair: Pair, seed: int, window: int | None) -> Pair:
    order, oracle = pair

    def numbers(epoch: int) -> list[int]:
        below = oracle(epoch)
        return [below[position] for position in shuffle(seed, epoch, len(below), window)]

    return order.shuffle(seed, window), numbers


def in_lanes(pair: Pair, count: int) -> Pair:
    order, oracle = pair

    def numbers(epoch: int) -> list[int]:
        lanes = [part.tolist() for part in np.array_split(np.asarray(oracle(epoch), int), count)]
        turns = itertools.chain.from_iterable(itertools.zip_longest(*lanes))
        return [number for number in turns if number is not None]

    return order.lanes(count), numbers


def repeated(pair: Pair, count: int) -> Pair:
    order, oracle = pair
    return order.repeat(count), lambda epoch: list(
        itertools.chain.from_iterable(oracle((epoch * count + copy) & MASK) for copy in range(count))
    )


def endless(pair: Pair, stop: int) -> Pair:
    """Repeated for ever, then cut off."""
    order, oracle = pair

    def numbers(epoch: int) -> list[int]:
        copies = -(-stop // max(1, len(oracle(epoch)))) if oracle(epoch) else 0
        return [number for copy in range(copies) for number in oracle((epoch + copy) & MASK)][:stop]

    return order.repeat(None).slice(0, stop), numbers


def sliced(pair: Pair, start: int, stop: int | None, step: int) -> Pair:
    order, oracle = pair
    return order.slice(start, stop, step), lambda epoch: oracle(epoch)[start:stop:step]


def wrapped(pair: Pair, start: int, stop: int, step: int) -> Pair:
    order, oracle = pair

    def numbers(epoch: int) -> list[int]:
        all_of_it = oracle(epoch)
        return [all_of_it[at % len(all_of_it)] for at in range(start, stop, step)] if all_of_it else []

    return order.slice(start, stop, step, wrap=True), numbers


def echoed(pair: Pair, times: int) -> Pair:
    order, oracle = pair
    return order.echo(times), lambda epoch: [number for number in oracle(epoch) for _ in range(times)]


def joined(pairs: list[Pair]) -> Pair:
    return Order.concat([order for order, _ in pairs]), lambda epoch: [
        number for _, oracle in pairs for number in oracle(epoch)
    ]


def mixed(pairs: list[Pair], weights: list[int], seed: int) -> Pair:
    pairs = [pair for pair in pairs if pair[0].length] or [span(0, 3)]
    shares = np.asarray(weights[: len(pairs)], float)
    cuts = [int(cut) for cut in np.floor(np.cumsum(shares) / sum(shares.tolist()) * 2.0**32 + 0.5)]

    def numbers(epoch: int) -> list[int]:
        parts = [iter(oracle(epoch)) for _, oracle in pairs]
        out: list[int] = []
        for block in itertools.count():
            ends = [((block + 1) * 1024 * cut >> 32) - (block * 1024 * cut >> 32) for cut in cuts]
            for slot in permutation(seed, 0, block, 1024):
                part = next(part for part, end in enumerate(ends) if slot < end)
                number = next(parts[part], None)
                if number is None:
                    return out
                out.append(number)
        raise AssertionError

    return Order.mix([order for order, _ in pairs], shares.tolist(), seed), numbers


SMALL = st.integers(0, 12)
SPANS = st.builds(lambda start, length: span(start, start + length), st.integers(0, 50), st.integers(0, 40))
TIMES = st.integers(1, 4)


def grown(pairs: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    weights = st.lists(st.integers(1, 9), min_size=3, max_size=3)
    return st.one_of(
        st.builds(shuffled, pairs, SEEDS, st.one_of(st.none(), st.integers(1, 60))),
        st.builds(in_lanes, pairs, st.integers(1, 9)),
        st.builds(repeated, pairs, TIMES),
        st.builds(endless, pairs, st.integers(0, 60)),
        st.builds(sliced, pairs, SMALL, st.one_of(st.none(), st.integers(0, 90)), TIMES),
        st.builds(wrapped, pairs, SMALL, st.integers(0, 90), TIMES),
        st.builds(echoed, pairs, TIMES),
        st.builds(joined, st.lists(pairs, max_size=3)),
        st.builds(mixed, st.lists(pairs, min_size=1, max_size=3), weights, SEEDS),
    )


@settings(max_examples=300, deadline=None)
@given(st.recursive(SPANS, grown, max_leaves=5), st.integers(0, 1 << 40), st.data())
def test_steps_on_steps_agree_with_lists(pair: Pair, epoch: int, data: st.DataObject) -> None:
    order, oracle = pair
    expected = oracle(epoch)
    assert order.length == len(expected)
    assert order.numbers(epoch, 0, len(expected)).tolist() == expected
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    assert order.numbers(epoch, start, stop).tolist() == expected[start:stop]


# The permutation


@given(SEEDS, st.text(max_size=7), st.text(max_size=7))
def test_the_oracle_hashes_as_builds_do(seed: int, split: str, key: str) -> None:
    split_hash = highway64((0, 0, 0, 0), split.encode())
    assert hash_keys([key], seed, split)[0] == highway64((seed, split_hash, DOMAIN, 1), key.encode())


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.integers(0, MASK), st.integers(0, 1500), st.one_of(st.none(), st.integers(1, 1500)))
def test_a_shuffle_is_what_the_format_says(seed: int, epoch: int, length: int, window: int | None) -> None:
    found = Order.span(0, length).shuffle(seed, window).numbers(epoch, 0, length).tolist()
    assert found == shuffle(seed, epoch, length, window)
    assert sorted(found) == list(range(length))


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1000, 1 << 62), st.data())
def test_numbers_of_long_orders_are_within_and_differ(seed: int, length: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, length - 1000))
    numbers = Order.span(0, length).shuffle(seed).numbers(3, start, start + 1000)
    assert numbers.min() >= 0
    assert numbers.max() < length
    assert len(np.unique(numbers)) == 1000


# The quality of a shuffle


def epochs(length: int, count: int, seed: int = 11) -> NDArray[np.int64]:
    """Some epochs, one a row."""
    return Order.span(0, length).shuffle(seed).repeat(None).numbers(0, 0, count * length).reshape(count, length)


def deviation(counts: NDArray[Any], expected: float) -> float:
    """How many standard deviations a chi-square lies above what chance gives."""
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("length", [2, 5, 10, 100, 257, 1000])
def test_every_number_is_as_likely_at_every_position(length: int) -> None:
    rows = epochs(length, 20_000)
    for position in {0, 1, length // 2, length - 1}:
        assert abs(deviation(np.bincount(rows[:, position], minlength=length), 20_000 / length)) < 5


@pytest.mark.parametrize("length", [10, 100, 257, 1000])
def test_neighbours_do_not_stay_neighbours(length: int) -> None:
    rows = epochs(length, 5000)
    steps = ((rows[:, 1:] - rows[:, :-1]) % length).ravel()
    assert deviation(np.bincount(steps, minlength=length)[1:], steps.size / (length - 1)) < 6
    far = (rows[:, length // 2] - rows[:, 0]) % length
    assert deviation(np.bincount(far, minlength=length)[1:], 5000 / (length - 1)) < 5


@pytest.mark.parametrize("length", [300, 5000, 100_000])
def test_examples_move_far_and_epochs_do_not_resemble_each_other(length: int) -> None:
    rows = epochs(length, 2_000_000 // length)
    assert abs(rows - np.arange(length)).mean() / length == pytest.approx(1 / 3, abs=0.002)
    assert (rows == np.arange(length)).sum(axis=1).mean() == pytest.approx(1, abs=0.5)
    assert (rows[1:] == rows[:-1]).sum(axis=1).mean() == pytest.approx(1, abs=0.5)
    again = epochs(length, 2_000_000 // length, seed=12)
    for other in (rows[1:], again[:-1]):
        assert abs(np.corrcoef(rows[:-1].ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(other.size)


def test_a_window_is_read_as_a_whole_and_has_other_borders_each_epoch() -> None:
    order = Order.span(0, 10_000).shuffle(3, 100)
    borders = set()
    for epoch in range(20):
        windows = np.sort(order.numbers(epoch, 0, 10_000).reshape(100, 100), axis=1)
        around = windows[:, -1] - windows[:, 0] > 99  # the one that goes on at the first number
        assert around.sum() <= 1
        assert (windows[~around, -1] - windows[~around, 0] == 99).all()
        assert abs(np.corrcoef(windows[~around, 0], np.arange((~around).sum()))[0, 1]) < 0.5
        borders.add(int(windows[~around][0, 0]) % 100)
    assert len(borders) > 10


# Mixing


def test_every_block_of_a_mix_has_its_shares() -> None:
    parts = [Order.span(number << 40, (number << 40) + 10_000_000) for number in range(3)]
    order = Order.mix(parts, [7, 2.5, 0.5], 5)
    assert order.length is not None
    assert abs(order.length - 10_000_000 / 0.7) < 1024
    of_part = (order.numbers(0, 0, 1024 * 500) >> 40).reshape(500, 1024)
    for part, share in enumerate([0.7, 0.25, 0.05]):
        counts = (of_part == part).sum(axis=1)
        assert abs(counts - share * 1024).max() < 2
        assert abs(counts.sum() - share * 1024 * 500) < 2
    assert len({tuple(block) for block in of_part.tolist()}) == 500, "each block in an order of its own"


# What makes no sense


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Order.span(3, 2), "expected a span, got 3..2"),
        (lambda: Order.span(0, 5).shuffle(0, 0), "expected the window to be 1 or more, got 0"),
        (lambda: Order.span(0, 5).lanes(0), "expected the number of lanes to be 1 or more, got 0"),
        (lambda: Order.span(0, 5).repeat(None).lanes(2), "expected an order that ends, got one that goes on for ever"),
        (lambda: Order.span(0, 5).repeat(0), "expected the number of repetitions to be 1 or more"),
        (lambda: Order.span(0, 5).repeat(None).shuffle(0), "got one that goes on for ever. Shuffle first, then repeat"),
        (lambda: Order.span(0, 5).echo(0), "expected the number of times to be 1 or more"),
        (lambda: Order.span(0, 5).slice(0, None, 0), "expected the step to be 1 or more"),
        (lambda: Order.span(0, 1 << 62).echo(4), "expected an order of at most"),
        (lambda: Order.span(0, 5).numbers(0, 2, 6), "expected positions within 0..5, got 2..6"),
        (lambda: Order.mix([Order.span(0, 5)], [], 0), "expected a weight for each part, got 0 for 1"),
        (lambda: Order.mix([Order.span(0, 5)] * 2, [1, float("nan")], 0), "expected weights above 0, got NaN"),
        (lambda: Order.mix([Order.span(0, 5)] * 2, [1, 0], 0), "expected weights above 0, got 0"),
        (lambda: Order.mix([Order.span(0, 5)] * 2, [1, 1e-6], 0), "expected weights of at least 1/1024 of their sum"),
        (lambda: Order.mix([Order.span(0, 0)], [1], 0), "got none in part 0"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ps.SchemaError) as caught:
        wrong()
    assert message in str(caught.value)
