"""Split expressions mean what they mean in TFDS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.loading.dataset import resolve

tfds = pytest.importorskip("tensorflow_datasets")

SPLITS = {"train": [40, 30, 33], "test": [7], "train-2013": [10, 0, 5]}


def theirs(expression: str, splits: dict[str, list[int]]) -> list[tuple[str, int, int]]:
    """What TFDS makes of it."""
    infos = {
        name: tfds.core.SplitInfo(
            name=name,
            shard_lengths=lengths,
            num_bytes=0,
            filename_template=tfds.core.ShardedFileTemplate(
                data_dir="/tmp", dataset_name="toy", split=name, filetype_suffix="tfrecord"
            ),
        )
        for name, lengths in splits.items()
    }
    found = tfds.core.splits.AbstractSplit.from_spec(expression).to_absolute(tfds.core.SplitDict(list(infos.values())))
    return [
        (each.splitname, each.from_ or 0, sum(splits[each.splitname]) if each.to is None else each.to) for each in found
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "train", "test", "train-2013", "train+test", "train-2013 + train[:10]", "train[10:20]", "train[-10:]",
        "train[:-10]", "train[:80%]", "train[80%:]", "train[33%:67%]", "train[:1%]", "train[-25%:]", "train[12.5%:50%]",
        "train[1shard]", "train[-1shard]", "train[:2shard]", "train[1shard:]", "train[1shard:3shard]",
        "train[:-1shard]", "train[0shard]", "train[1_0:2_0]", "test[:50%]+train[50%:]", "train[:0]", "train[103:]",
    ],
)  # fmt: skip
def test_the_rounding_is_that_of_tfds(expression: str) -> None:
    assert resolve(expression, SPLITS) == theirs(expression, SPLITS)


@given(
    st.lists(st.integers(0, 2000), min_size=1, max_size=5),
    st.floats(-100, 100).map(lambda value: round(value, 2)),
    st.floats(-100, 100).map(lambda value: round(value, 2)),
)
def test_percents_round_as_in_tfds(lengths: list[int], first: float, last: float) -> None:
    splits = {"train": lengths}
    for text in (f"train[{first}%:]", f"train[:{last}%]", f"train[{first}%:{last}%]"):
        ours, want = resolve(text, splits), theirs(text, splits)
        (_, start, stop), (_, low, high) = ours[0], want[0]
        assert (start, stop) == (low, max(low, high))  # TFDS has negative lengths where the ends are the wrong way


@given(st.integers(1, 100), st.lists(st.integers(0, 500), min_size=1, max_size=4))
def test_parts_that_meet_share_nothing_and_miss_nothing(percent: int, lengths: list[int]) -> None:
    splits = {"train": lengths}
    ((_, start, middle),), ((_, again, stop),) = (
        resolve(text, splits) for text in (f"train[:{percent}%]", f"train[{percent}%:]")
    )
    assert (start, middle, stop) == (0, again, sum(lengths))


def test_all_is_every_split() -> None:
    assert resolve("all", SPLITS) == [("train", 0, 103), ("test", 0, 7), ("train-2013", 0, 15)]


def test_an_unknown_split_names_those_that_exist() -> None:
    with pytest.raises(KeyError, match=r"no split 'tran'. Did you mean 'train'") as caught:
        resolve("tran[:10%]", SPLITS)
    assert "The splits are: train, test, train-2013" in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "expected a split"),
        ("train[", "expected a split"),
        ("train[]", "expected a split"),
        ("train[:]", "expected a split"),
        ("train[1:2:3]", "expected a split"),
        ("train[a:b]", "expected a split"),
        ("train[1.5:2]", "expected a split"),
        ("train[5]", "expected a slice"),
        ("train[5%]", "expected a slice"),
        ("train[10%:20]", "the same unit"),
        ("train[10:20%]", "the same unit"),
        ("train[:101%]", "-100 to 100"),
        ("train[:104]", "within the 103 examples"),
        ("train[-104:]", "within the 103 examples"),
        ("train[3shard]", "one of the 3 shards"),
        ("train+", "expected a split"),
    ],
)
def test_what_makes_no_sense_is_said(expression: str, message: str) -> None:
    with pytest.raises(ps.ArgumentError, match=message):
        resolve(expression, SPLITS)
