"""The steps of a loader: what each does, in which order examples come, and who gets which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps

COUNT = 60


def example(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "tokens": np.arange(number % 7) + 1000 * number,
        "text": f"text {number}",
        "dense": np.full(3, number, np.float32),
        "maybe": None if number % 3 else number,
        "box": {"size": np.full(2, number), "names": [f"n{i}" for i in range(number % 3)]},
    }


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    path = tmp_path_factory.mktemp("loader") / "toy"
    source = ps.splits(train=[example(i) for i in range(COUNT)], test=[example(i) for i in range(COUNT, COUNT + 15)])
    ps.build(source, path, shards=4, order="source")
    return ps.load(path)


def ids(loader: Any) -> list[int]:
    return [int(number) for item in loader for number in np.atleast_1d(item["id"])]


def same(a: Any, b: Any) -> bool:
    """Equal values and equal kinds of columns."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, (ps.Ragged, ps.Bytes)):
        return a.to_list() == b.to_list() and a.dtype == b.dtype
    if isinstance(a, np.ma.MaskedArray):
        return bool((a.mask == b.mask).all()) and same(a.filled(0), b.filled(0))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b)


# Order


def test_a_shuffle_is_a_permutation_and_another_one_each_epoch(ds: ps.Dataset) -> None:
    loader = ds["train"].shuffle(seed=7)
    first, second = ids(loader), ids(loader)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second != list(range(COUNT))
    assert ids(ds["train"].shuffle(seed=7)) == first
    assert ids(ds["train"].shuffle(seed=8)) != first
    assert ids(loader.epoch(1)) == second
    assert ids(ds["train"].shuffle(seed=7).repeat(2)) == first + second


def test_a_window_bounds_the_reach(ds: ps.Dataset) -> None:
    found = ids(ds["train"].shuffle(seed=7, window=10))
    assert sorted(found) == list(range(COUNT))
    for first in range(0, COUNT, 10):  # a window is read as a whole, and a turned one too
        window = np.sort(np.array(found[first : first + 10]))
        assert ((np.diff(window) == 1).sum() >= 8) or set(window) & {0, COUNT - 1}


def test_steps_on_the_order(ds: ps.Dataset) -> None:
    train = ds["train"]
    assert ids(train.take(3)) == [0, 1, 2]
    assert ids(train.skip(57)) == [57, 58, 59]
    assert ids(train.skip(3).take(2).repeat(2)) == [3, 4, 3, 4]
    assert ids(train.take(2).echo(3)) == [0, 0, 0, 1, 1, 1]
    assert ids(train.take(0)) == []
    assert ids(train.skip(100)) == []
    assert ids(train.shuffle(1).take(5)) == ids(train.shuffle(1))[:5]
    forever = iter(train.take(4).shuffle(1).repeat().batch(6))
    assert len({tuple(ids([next(forever)])) for _ in range(5)}) > 1
    forever.close()


def test_steps_after_a_map_or_a_batch(ds: ps.Dataset) -> None:
    train = ds["train"]
    assert ids(train.map(dict).shuffle(3).take(4)) == ids(train.shuffle(3).take(4))
    assert [ids([batch]) for batch in train.batch(4).skip(1).take(2)] == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert [ids([batch]) for batch in train.take(4).batch(2).echo(2)] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert ids(train.filter(lambda row: row["id"] % 2).take(3).echo(2)) == [1, 1, 3, 3, 5, 5]
    assert ids(train.filter(lambda row: row["id"] % 2).skip(27)) == [55, 57, 59]
    assert [len(batch["id"]) for batch in train.batch(16).filter(lambda batch: batch["id"][0] > 0)] == [16, 16, 12]


@given(st.integers(0, 100), st.integers(1, 9), st.booleans(), st.sampled_from([None, 1, 7, 100]), st.integers(1, 20))
@settings(max_examples=30)
def test_hosts_share_every_example_exactly_once(
    ds: ps.Dataset, seed: int, count: int, batched: bool, window: int | None, size: int
) -> None:
    whole = ds["train"].shuffle(seed, window)
    loaders = [whole.shard(host, count) for host in range(count)]
    parts = [ids(loader.batch(size) if batched else loader) for loader in loaders]
    assert sorted(i for part in parts for i in part) == list(range(COUNT))
    assert [len(part) for part in parts] == [len(loader) for loader in loaders]
    order = ids(ds["train"].shuffle(seed, window))
    assert parts == [order[host::count] for host in range(count)]
    for even, each in (("drop", COUNT // count), ("pad", -(-COUNT // count)), (True, -(-COUNT // count))):
        parts = [ids(whole.shard(host, count, even=even).epoch(0)) for host in range(count)]
        assert {len(part) for part in parts} == {each}
        if even != "drop":
            assert {i for part in parts for i in part} == set(range(COUNT))


def test_sharding_comes_last_wherever_it_stands(ds: ps.Dataset) -> None:
    train = ds["train"]
    for host in range(3):
        first = ids(train.shard(host, 3).shuffle(5).take(20).repeat(2).batch(4))
        assert first == ids(train.shuffle(5).take(20).repeat(2).shard(host, 3).batch(4))
    with pytest.raises(ps.ArgumentError, match="expected one shard"):
        train.shard(0, 2).shard(0, 2)


def test_the_order_does_not_depend_on_threads(ds: ps.Dataset) -> None:
    loader = ds["train"].shuffle(3).map(lambda row: row).batch(7)
    plain = ds["train"].shuffle(3).batch(7)
    want = [ids([batch]) for batch in plain.prefetch(threads=1)]
    for threads in (1, 2, 5):
        for each in (loader, plain):
            assert [ids([batch]) for batch in each.epoch(0).prefetch(threads=threads)] == want


def test_lengths_are_known_where_they_can_be(ds: ps.Dataset) -> None:
    train = ds["train"]
    loaders = [train, train.batch(7), train.batch(7, drop_remainder=True), train.shard(1, 7).batch(2)]
    loaders += [train.echo(2).take(50).batch(8).skip(2).echo(3), train.map(dict).repeat(2).batch(64)]
    for loader in loaders:
        assert len(loader) == len(list(loader))
    for loader in (train.repeat(), train.filter(bool), train.select("tokens").pack(4), train.bucket("tokens", [3], 4)):
        with pytest.raises(TypeError, match="length"):
            len(loader)


def test_the_quality_of_the_shuffle(ds: ps.Dataset) -> None:
    """Where an example goes is spread evenly, and neighbours do not stay neighbours."""
    loader = ds["train"].shuffle(seed=11).select("id").batch(COUNT)
    orders = np.array([next(iter(loader.epoch(epoch)))["id"] for epoch in range(300)])
    places = np.argsort(orders, axis=1)
    assert abs(places.mean() - (COUNT - 1) / 2) < 1e-9
    deviation = np.abs(places.mean(axis=0) - (COUNT - 1) / 2).max()
    assert deviation < 4.5 * (COUNT / np.sqrt(12)) / np.sqrt(300)
    neighbours = (np.abs(np.diff(orders, axis=1)) == 1).mean()
    assert neighbours < 3 * 2 / COUNT
    hits = np.zeros((COUNT, COUNT))
    np.add.at(hits, (np.tile(np.arange(COUNT), 300), orders.ravel()), 1)
    chi = ((hits - 5) ** 2 / 5).sum()
    free = (COUNT - 1) ** 2
    assert abs(chi - free) < 6 * np.sqrt(2 * free)


# Batches


def test_a_batch_that_python_put_together_is_the_one_of_the_core(ds: ps.Dataset) -> None:
    for batch, other in zip(ds["train"].batch(8), ds["train"].map(lambda row: row).batch(8), strict=True):
        assert same(batch, other)
    for batch, other in zip(ds["train"].batch(8), ds["train"].filter(lambda row: True).batch(8), strict=True):
        assert same(batch, other)


def test_select_and_nested_fields(ds: ps.Dataset) -> None:
    train = ds["train"]
    assert list(next(iter(train.select("id", "tokens").batch(2)))) == ["id", "tokens"]
    assert list(next(iter(train.select("box/size").batch(2)))["box"]) == ["size"]
    assert list(next(iter(train.map(dict).select("id").batch(2)))) == ["id"]
    with pytest.raises(ps.SchemaError, match=r"no field 'tokenz'. Did you mean 'tokens'"):
        train.select("tokenz")
    with pytest.raises(ps.ArgumentError, match="expected the name of a field"):
        train.select()


def test_padding(ds: ps.Dataset) -> None:
    train = ds["train"]
    want = next(iter(train.batch(8)))["tokens"].to_padded(value=-1)
    for loader in (train, train.map(dict), train.filter(bool)):
        assert same(next(iter(loader.batch(8, pad=-1)))["tokens"], want)
        batch = next(iter(loader.batch(8, pad={"tokens": (0, 4), "box/names": ""})))
        assert batch["tokens"].shape == (8, 4)
        assert batch["box"]["names"].shape == (8, 2)
    made = train.map(lambda row: {"new": np.arange(int(row["id"]) % 3)}).batch(4, pad=9)
    assert next(iter(made))["new"].tolist() == [[9, 9], [0, 9], [0, 1], [9, 9]]


def test_new_fields_of_a_map(ds: ps.Dataset) -> None:
    def made(row: dict[str, Any]) -> dict[str, Any]:
        number = int(row["id"])
        inner = {"b": np.float32(number)}
        return {
            **row,
            "n": number,
            "s": str(number),
            "a": np.ones((2, 2)) * number,
            "l": [1, 2],
            "t": (1, 2.0),
            "d": inner,
        }

    batch = next(iter(ds["train"].map(made).batch(3)))
    assert batch["n"].tolist() == [0, 1, 2]
    assert batch["s"].to_list() == ["0", "1", "2"]
    assert batch["a"].shape == (3, 2, 2)
    assert batch["l"].shape == (3, 2)
    assert [each.tolist() for each in batch["t"]] == [[1, 1, 1], [2.0, 2.0, 2.0]]
    assert batch["d"]["b"].dtype == np.float32
    pairs = next(iter(ds["train"].map(lambda row: (row["dense"], row["id"])).batch(4)))
    assert isinstance(pairs, tuple)
    assert pairs[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda row: {"x": np.zeros(int(row["id"]))}, r"expected one shape in a batch, got \[0\], \[1\].*at x"),
        (lambda row: {"x": None}, "expected a value, got None - at x, example 0 of the batch"),
        (lambda row: {"x": object()}, "got object - at x"),
        (lambda row: {"x": 1} if row["id"] else {"y": 1}, r"expected the fields \['y'\].*got \['x'\]"),
        (lambda row: (1,) * int(row["id"] + 1), "expected tuples of 1 values"),
    ],
)
def test_what_cannot_be_put_together_is_named(ds: ps.Dataset, function: Any, message: str) -> None:
    with pytest.raises(ps.SchemaError, match=message):
        next(iter(ds["train"].map(function).batch(4)))


def test_arrays_of_many_shapes(tmp_path: Path) -> None:
    rows = [{"pixels": np.full((i % 3 + 1, 4 - i % 2), i, np.uint8), "id": i} for i in range(12)]
    ps.build(rows, tmp_path / "many", schema={"pixels": "uint8[?,?]", "id": "int64"}, order="source")
    train = ps.load(tmp_path / "many")["train"]
    for a, b in zip(train.batch(4), train.map(lambda row: {**row, "more": 1}).batch(4), strict=True):
        assert same(a["pixels"], b["pixels"])
    equal = train.map(lambda row: {**row, "pixels": np.resize(row["pixels"], (2, 2))})
    for loader in (equal.batch(4), equal.filter(lambda row: True).batch(4)):
        assert [batch["pixels"].shape for batch in loader] == [(4, 2, 2)] * 3
    with pytest.raises(ps.SchemaError, match=r"expected one shape in a batch, got \[1, 3\], \[2, 2\].*at pixels"):
        list(train.map(lambda row: {**row, "pixels": row["pixels"][:, 1:].copy()}).batch(4))


# Map, filter, cache


def test_a_map_with_a_seed_is_the_same_again(ds: ps.Dataset) -> None:
    def noise(row: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
        return {"id": row["id"], "noise": generator.random()}

    loader = ds["train"].shuffle(3).map(noise, seed=5).batch(8)
    first = [batch["noise"].tolist() for batch in loader]
    assert first != [batch["noise"].tolist() for batch in loader]
    assert first == [batch["noise"].tolist() for batch in loader.epoch(0)]
    host = ds["train"].shuffle(3).map(noise, seed=5).shard(1, 2)
    flat = [value for batch in first for value in batch]
    assert [row["noise"] for row in host] == flat[1::2]


def test_errors_of_a_map_name_the_example(ds: ps.Dataset) -> None:
    def broken(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 33:
            raise ZeroDivisionError("what a number")
        return row

    for loader in (ds["train"].map(broken), ds["train"].map(broken).batch(8), ds["train"].filter(broken).batch(8),
                   ds["train"].map(broken, threads=0), ds["train"].map(broken).cache()):  # fmt: skip
        seen: list[int] = []
        with pytest.raises(ps.LoadError, match=r"\(.*broken\) failed: ZeroDivisionError: what a number") as error:
            seen.extend(i for item in loader for i in ids([item]))
        assert seen == list(range(len(seen)))
        assert len(seen) in (32, 33)
        assert error.value.key == "33"
        assert "key '33'" in str(error.value)
        assert isinstance(error.value.__cause__, ZeroDivisionError)
    with pytest.raises(ps.LoadError, match=r"the batch whose last example is .*key '7'"):
        list(ds["train"].batch(8).map(lambda batch: 1 / 0))
    with pytest.raises(ps.LoadError, match="it returned None"):
        list(ds["train"].map(lambda row: None))
    with pytest.raises(ps.ArgumentError, match="expected a function, got int"):
        ds["train"].map(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("disk", [False, True])
def test_a_cache_saves_work_within_its_budget(ds: ps.Dataset, tmp_path: Path, disk: bool) -> None:
    calls: list[int] = []

    def costly(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(int(row["id"]))
        return row

    folder = str(tmp_path / "cache") if disk else None
    cached = ds["train"].map(costly).filter(lambda row: row["id"] % 2).cache(folder=folder).shuffle(3)
    want = [
        [ids([b]) for b in ds["train"].filter(lambda row: row["id"] % 2).shuffle(3).epoch(e).batch(8)] for e in (0, 1)
    ]
    loader = cached.batch(8)
    assert [ids([batch]) for batch in loader] == want[0]
    assert sorted(calls) == list(range(COUNT))
    assert [ids([batch]) for batch in loader] == want[1]
    assert len(calls) == COUNT  # nothing was made again
    plain = ds["train"].filter(lambda row: row["id"] % 2).shuffle(3).batch(8)
    for a, b in zip(loader.epoch(0), plain, strict=True):
        assert same(a, b)
    small = ds["train"].map(costly).cache(memory=2000, folder=folder).batch(8)
    calls.clear()
    assert ids(small) == ids(small.epoch(0)) == list(range(COUNT))
    assert COUNT < len(calls) < 2 * COUNT
    if disk:
        assert not list((tmp_path / "cache").iterdir())  # nothing is left behind, even after a crash


def test_a_cache_hands_out_copies(ds: ps.Dataset) -> None:
    def spoil(row: dict[str, Any]) -> dict[str, Any]:
        row["dense"] += 1
        return row

    loader = ds["train"].cache().map(spoil).batch(COUNT)
    for _ in range(2):
        assert next(iter(loader))["dense"][:, 0].tolist() == [i + 1 for i in range(COUNT)]


# Pack and bucket


def tokens(numbers: Any) -> list[int]:
    return [token for number in numbers for token in example(number)["tokens"].tolist()]


@given(st.integers(1, 40), st.integers(0, 5), st.booleans())
@settings(max_examples=25)
def test_packing_loses_no_token(ds: ps.Dataset, length: int, seed: int, mapped: bool) -> None:
    loader = ds["train"].shuffle(seed).select("tokens")
    loader = loader.map(lambda row: {"tokens": row["tokens"].astype(np.int32)}) if mapped else loader
    want = tokens(ids(ds["train"].shuffle(seed)))
    rows = [row["tokens"] for row in loader.pack(length, pad=-1)]
    assert all(len(row) == length for row in rows)
    flat = np.concatenate(rows).tolist()
    assert flat == want + [-1] * (-len(want) % length)
    dropped = [row["tokens"] for row in loader.epoch(0).pack(length, drop_remainder=True)]
    assert np.concatenate([np.empty(0, int), *dropped]).tolist() == want[: len(want) // length * length]


def test_packed_examples_can_be_told_apart(ds: ps.Dataset) -> None:
    rows = list(ds["train"].select("tokens").pack(8, segments=True))
    ids_, places = np.stack([row["segment_ids"] for row in rows]), np.stack([row["positions"] for row in rows])
    packed = np.stack([row["tokens"] for row in rows])
    real = ids_ > 0
    assert (packed[real] % 1000 == places[real]).all()
    assert (np.diff(packed // 1000, axis=1)[real[:, 1:]] > 0).sum() == (np.diff(ids_, axis=1)[real[:, 1:]] > 0).sum()
    assert ids_[:, 0].tolist() == [1] * len(rows)


def test_pack_refuses_what_it_cannot_pack(ds: ps.Dataset) -> None:
    with pytest.raises(ps.SchemaError, match=r"field 'id'. select"):
        list(ds["train"].pack(8))
    with pytest.raises(ps.SchemaError, match="got float32"):
        list(ds["train"].map(lambda row: {"x": np.zeros((2, 2), np.float32)}).pack(8))


def test_buckets_hold_alike_lengths(ds: ps.Dataset) -> None:
    for loader in (
        ds["train"].shuffle(3).bucket("tokens", [2, 5], [6, 4, 2]),
        ds["train"].shuffle(3).bucket(lambda row: len(row["tokens"]), [2, 5], [6, 4, 2]),
        ds["train"].shuffle(3).map(dict).bucket("tokens", [2, 5], [6, 4, 2]),
    ):
        batches = list(loader)
        assert sorted(ids(batches)) == list(range(COUNT))
        full = 0
        for batch in batches:
            lengths = batch["tokens"].row_lengths()
            bucket = {int(np.searchsorted([2, 5], length, side="right")) for length in lengths}
            assert len(bucket) == 1
            full += len(lengths) == [6, 4, 2][bucket.pop()]
        assert full >= len(batches) - 3
    texts = ds["train"].bucket("text", [7], 8, drop_remainder=True, pad=0)
    assert {len(batch["id"]) for batch in texts} == {8}
    with pytest.raises(ps.SchemaError, match="no field 'tokenz'"):
        list(ds["train"].bucket("tokenz", [2], 4))
    with pytest.raises(ps.SchemaError, match="whose rows differ in length"):
        list(ds["train"].bucket("dense", [2], 4))
    with pytest.raises(ps.ArgumentError, match="rising boundaries"):
        ds["train"].bucket("tokens", [5, 2], 4)


# Mix


def test_a_mix_has_exact_proportions(ds: ps.Dataset, tmp_path: Path) -> None:
    ps.build([{**example(i)} for i in range(1000, 1300)], tmp_path / "other", order="source")
    other = ps.load(tmp_path / "other")["train"]
    mixed = ps.mix({ds["train"].shuffle(1).repeat(): 0.25, other.repeat(20): 0.75}, seed=3)
    found = ids(mixed.take(4096))
    assert [sum(i < 1000 for i in found[k : k + 1024]) for k in range(0, 4096, 1024)] == [256] * 4
    a = [i for i in found if i < 1000]
    assert sorted(a[:COUNT]) == list(range(COUNT))
    assert [i for i in found if i >= 1000][:300] == list(range(1000, 1300))
    batches = list(mixed.take(100).batch(8))
    assert ids(batches) == found[:100]
    assert ids(ps.mix({ds["train"]: 1, ds["test"]: 1})).count(0) == 1
    parts = [ids(mixed.take(64).shard(host, 3)) for host in range(3)]
    assert sorted(i for part in parts for i in part) == sorted(found[:64])


def test_a_mix_of_other_fields_is_refused(ds: ps.Dataset) -> None:
    with pytest.raises(ps.SchemaError, match="expected the same fields in all loaders, got box/names"):
        ps.mix({ds["train"]: 1, ds["test"].select("id"): 1})
    with pytest.raises(ps.ArgumentError, match="Do it after mix"):
        ps.mix({ds["train"].batch(3): 1})
    with pytest.raises(ps.ArgumentError, match="expected a share above 0, got 0"):
        ps.mix({ds["train"]: 0})
    with pytest.raises(ps.ArgumentError, match="expected a dict of loaders"):
        ps.mix({})


def test_a_mix_of_pairs_may_name_a_loader_twice(ds: ps.Dataset) -> None:
    split = ds["train"]
    assert ids(ps.mix([(split, 0.5), (ds["test"], 0.5)], seed=3)) == ids(ps.mix({split: 0.5, ds["test"]: 0.5}, seed=3))
    twice = ps.mix([(split, 1), (split, 1)])
    assert ids(twice.take(6)).count(0) == 2
    repeated = split.repeat()
    thirds = ids(ps.mix([(repeated, 1), (repeated, 1), (ds["test"].repeat(), 1)]).take(1024))
    assert thirds.count(0) > 0
    assert repr(ps.mix(((split, 1), (split, 1)))) == repr(twice)
    for wrong in ([], [split], [(split, 1, 2)], "ab", {split}, 5):
        with pytest.raises(ps.ArgumentError, match="pair"):
            ps.mix(wrong)  # type: ignore[arg-type]


def test_wrong_arguments_are_value_and_type_errors(ds: ps.Dataset) -> None:
    for kind in (ps.PenstockError, ValueError, TypeError):
        with pytest.raises(kind, match="expected batch to be 1 or more, got 0 - at batch"):
            ds["train"].batch(0)
    with pytest.raises(ps.ArgumentError) as caught:
        ds["train"].shuffle(lanes=2)
    assert not isinstance(caught.value, ps.SchemaError)
    assert (caught.value.where, caught.value.hint) == ("shuffle", "shuffle(window=..., lanes=...)")


@pytest.mark.parametrize(
    ("expression", "there"),
    [
        ("train", True),
        ("train[:80%]", True),
        ("train[10:]", True),
        ("train+test", True),
        ("all", True),
        ("train[0shard]", True),
        ("validation", False),
        ("train+validation", False),
        ("train[", False),
        ("train[:101%]", False),
        ("train[:10%", False),
        ("", False),
        (5, False),
        (None, False),
    ],
)
def test_a_dataset_contains_the_expressions_that_it_resolves(ds: ps.Dataset, expression: Any, there: bool) -> None:
    assert (expression in ds) is there
    if there:
        assert isinstance(ds[expression], ps.Split)
    else:
        with pytest.raises((KeyError, ps.ArgumentError)):
            ds[expression]


# What makes no sense


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda split: split.batch(0), "expected batch to be 1 or more"),
        (lambda split: split.batch(2.5), "expected batch to be an int, got float"),
        (lambda split: split.batch(True), "expected batch to be 1 or more, got True"),
        (lambda split: split.batch(2).batch(2), "got batches already"),
        (lambda split: split.batch(2).shuffle(), "expected shuffle before batch"),
        (lambda split: split.batch(2).repeat(), "expected repeat before batch"),
        (lambda split: split.batch(2).cache(), "expected cache before batch"),
        (lambda split: split.select("tokens").pack(2).pack(2), "expected batch after pack"),
        (lambda split: split.shuffle(window=0), "expected window to be 1 or more"),
        (lambda split: split.shuffle(window=5, lanes=0), "expected lanes to be 1 or more"),
        (lambda split: split.shuffle(lanes=2), "expected lanes with a window, got them without"),
        (lambda split: split.repeat().shuffle(), "Shuffle first, then repeat"),
        (lambda split: split.shard(2, 2), "expected an index below 2"),
        (lambda split: split.shard(0, 2, even="both"), "expected even=False"),
        (lambda split: split.take(-1), "expected take to be 0 or more"),
        (lambda split: split.echo(0), "expected echo to be 1 or more"),
        (lambda split: split.prefetch(threads=0), "expected threads to be 1 or more"),
        (lambda split: split.map(dict).decode(False), "expected decode before map"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(ds: ps.Dataset, make: Any, message: str) -> None:
    with pytest.raises(ps.ArgumentError, match=message):
        make(ds["train"])


def test_a_profile_names_the_bottleneck(ds: ps.Dataset) -> None:
    import time

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.002)
        return row

    found = ds["train"].map(slow).batch(8).profile()
    assert found.bottleneck == "map"
    assert found.examples == COUNT
    assert "bottleneck: map" in repr(found)
    assert found.to_json()["examples_per_second"] > 0
    plain = ds["train"].shuffle(3).batch(8)
    assert plain.profile().bottleneck in ("read", "check", "decode")
    assert ids(plain) == ids(plain.epoch(0))  # measuring is no epoch
    iterator = iter(ds["train"].repeat(50).batch(8).prefetch(memory=1))
    for _ in range(5):
        next(iterator)
        time.sleep(0.1)
    assert iterator.profile().bottleneck == "consumer"
    iterator.close()
