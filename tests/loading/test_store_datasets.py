"""Datasets in a store, read through the cache or record by record: the same examples as from a directory."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from services import S3, FaultProxy, Nginx
from services.faults import Answer, Corrupt, Cut, Delay
from tests.support.built_datasets import described_shards

import penstock as ps
from penstock._core import Order, crc32c
from penstock.loading.prefetch import Schedule
from penstock.storage.cache import Cache, RemoteFile
from penstock.storage.open import open_store

EXAMPLES = 600
SHARDS = 8
FIELDS: dict[str, Any] = {"number": "int64", "text": "str", "data": "float32[500]"}


def example(number: int) -> dict[str, Any]:
    return {"number": number, "text": f"text {number:04}", "data": np.full(500, number, np.float32)}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in both formats: shards of 150 KB."""
    path = tmp_path_factory.mktemp("local") / "numbers"
    source = ps.splits(train=[example(n) for n in range(EXAMPLES)], test=[example(n) for n in range(5)])
    ps.build(source, path, shards=SHARDS, schema=FIELDS, format=["tfrecord", "array_record"], workers=1)
    return path


@pytest.fixture
def url(local: Path, s3: str, s3_server: S3) -> str:
    """The same in a bucket."""
    return copied(local, s3, s3_server)


@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
def test_opening_makes_no_object_for_each_shard(url: str, tmp_path: Path, format: str) -> None:
    before = described_shards()
    dataset = ps.load(f"{url}/", cache=tmp_path, format=format)
    assert len(dataset["train"][[0, 599]]["number"]) == 2
    assert described_shards() == before
    files = dataset.files
    assert list(files.places()) == [(file.path, file.records, file.sidecar, None) for file in files]
    assert list(files.places(at_source=True)) == [(file.place, file.records, file.sidecar, None) for file in files]
    assert files.elsewhere


def copied(dataset: Path, s3: str, s3_server: S3) -> str:
    """The URL of a dataset, once it is in a bucket."""
    shutil.copytree(dataset, s3_server.root / s3.removeprefix("s3://") / "data" / dataset.name)
    return f"{s3}/data/{dataset.name}"


def kept(cache: Path) -> list[str]:
    """The shards in a cache."""
    return sorted(path.name for path in cache.rglob("*-of-*") if path.suffix not in (".index", ".keys"))


def numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch["number"]]


def plain(value: Any) -> Any:
    """A batch that can be compared."""
    if isinstance(value, dict):
        return {name: plain(column) for name, column in value.items()}
    return value.to_list() if isinstance(value, ps.Bytes) else value


def size_of(folder: Path) -> int:
    """The bytes of a folder whose files come and go: one that gets another name on the way counts once."""
    sizes = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                about = os.stat(os.path.join(place, name))
                sizes[about.st_ino] = about.st_size
    return sum(sizes.values())


def shard_bytes(local: Path) -> int:
    return max(path.stat().st_size for path in local.glob("*.tfrecord-*-of-*") if path.suffix != ".index")


@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
def test_examples_are_those_of_the_directory(url: str, local: Path, tmp_path: Path, format: str) -> None:
    here, there = ps.load(local, format=format), ps.load(url, format=format, cache=tmp_path / "cache")
    assert (there.name, there.schema, there.info()["splits"]) == (here.name, here.schema, here.info()["splits"])
    assert there.path == url
    assert there.fingerprint() == here.fingerprint()
    some = [599, 0, 17, 300, 301, 302, 17]
    np.testing.assert_equal(plain(there["train"][some]), plain(here["train"][some]))
    np.testing.assert_equal(there["train"][5], here["train"][5])
    np.testing.assert_equal(there["train"].__getitems__([3, 400]), here["train"].__getitems__([3, 400]))
    assert there["train"].key(7) == here["train"].key(7)
    assert kept(tmp_path / "cache") == [], "single examples bring no shards"
    for loader in (lambda split: split, lambda split: split.shuffle(seed=3), lambda split: split.shuffle(window=50)):
        ours, theirs = (loader(dataset["train"]).batch(32) for dataset in (there, here))
        for epoch in range(2):
            assert numbers(ours.epoch(epoch)) == numbers(theirs.epoch(epoch))
    assert len(kept(tmp_path / "cache")) == SHARDS
    np.testing.assert_equal(plain(there["train"][some]), plain(here["train"][some]))
    np.testing.assert_equal(plain(there["train+test"][[2, 601]]), plain(here["train+test"][[2, 601]]))


def test_a_web_server_serves_a_dataset(local: Path, http_server: Nginx, tmp_path: Path) -> None:
    shutil.copytree(local, http_server.root / "numbers")
    there = ps.load(f"{http_server.endpoint}/numbers", cache=tmp_path)
    here = ps.load(local)
    np.testing.assert_equal(plain(there["train"][[5, 300]]), plain(here["train"][[5, 300]]))
    assert numbers(there["train"].shuffle(seed=1).batch(10)) == numbers(here["train"].shuffle(seed=1).batch(10))


def test_a_state_goes_on_elsewhere(url: str, local: Path, tmp_path: Path) -> None:
    here = ps.load(local)["train"].shuffle(seed=5).batch(7)
    iterator = iter(here)
    first = [next(iterator) for _ in range(20)]
    there = ps.load(url, cache=tmp_path)["train"].shuffle(seed=5).batch(7).resume(iterator.state())
    assert numbers(first) + numbers(there) == numbers(here.epoch(0))


def test_single_reads_ask_for_little(url: str, s3_faults: FaultProxy, tmp_path: Path) -> None:
    split = ps.load(url, cache=tmp_path)["train"]
    split[3]
    before = len(s3_faults.requests)
    split[4]
    assert len(s3_faults.requests) - before == 1, "a record of a shard that was looked at before is one request"
    split[[3, 4]]
    split[[10, 20, 30]]
    assert len(s3_faults.requests) - before <= 6


# The cache


def test_a_window_stays_within_a_small_cache(url: str, local: Path, s3_faults: FaultProxy, tmp_path: Path) -> None:
    room = int(6.5 * shard_bytes(local))
    loader = ps.load(url, cache=tmp_path, cache_bytes=room)["train"].shuffle(seed=2, window=EXAMPLES // 4).batch(20)
    sizes = []
    got = []
    for batch in loader:
        sizes.append(size_of(tmp_path))
        got += batch["number"].tolist()
    assert sorted(got) == list(range(EXAMPLES))
    assert max(sizes) <= room
    asked = [path for path in s3_faults.requests if "tfrecord" in path and ".index" not in path]
    assert len(set(asked)) == SHARDS
    assert len(asked) <= SHARDS + 5, "those at the borders of windows are needed twice"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of many shards: 25 examples each, 50 KB."""
    path = tmp_path_factory.mktemp("many") / "numbers"
    ps.build([example(n) for n in range(EXAMPLES)], path, shards=24, schema=FIELDS, workers=1)
    return path


@pytest.fixture
def many_url(many: Path, s3: str, s3_server: S3) -> str:
    return copied(many, s3, s3_server)


def shards_asked_for(proxy: FaultProxy) -> list[str]:
    """The shards that were fetched, each as often as it was."""
    return [path for path in proxy.requests if "tfrecord" in path and ".index" not in path]


@pytest.mark.parametrize("batch", [4, 32, 150])
def test_a_window_fetches_each_shard_once(
    many_url: str, many: Path, s3_faults: FaultProxy, tmp_path: Path, batch: int
) -> None:
    # What two batches read, as one may be ready while the next is read, with the borders of windows that wait.
    room = int((20.5 if batch == 150 else 15.5) * shard_bytes(many))
    loaders = [
        ps.load(path, **cache)["train"].shuffle(seed=2, window=100).batch(batch)
        for path, cache in ((many, {}), (many_url, {"cache": tmp_path, "cache_bytes": room}))
    ]
    for epoch in range(3):
        before = len(shards_asked_for(s3_faults))
        here, there = (numbers(loader.epoch(epoch)) for loader in loaders)
        assert here == there, "the order does not depend on where the data is"
        assert size_of(tmp_path) <= room
        asked = shards_asked_for(s3_faults)[before:]
        if epoch == 0:
            assert len(asked) == len(set(asked)) == 24, "each once"
        assert len(asked) < 24 or epoch == 0, "of what the cache has from the epoch before, most is not fetched again"


@pytest.mark.alone
def test_a_window_that_goes_on_fetches_each_shard_once(
    many_url: str, many: Path, s3_faults: FaultProxy, tmp_path: Path
) -> None:
    def loader(folder: str) -> ps.Loader:
        split = ps.load(many_url, cache=tmp_path / folder, cache_bytes=int(15.5 * shard_bytes(many)))["train"]
        return split.shuffle(seed=5, window=100).batch(10)

    iterator = iter(loader("before"))
    first = numbers([next(iterator) for _ in range(23)])
    state = iterator.state()
    iterator.close()
    while any(thread.name == "penstock-fetch" for thread in threading.enumerate()):
        time.sleep(0.01)  # what had begun comes to its end
    before = len(shards_asked_for(s3_faults))
    rest = numbers(loader("after").resume(state))
    assert sorted(first + rest) == list(range(EXAMPLES))
    asked = shards_asked_for(s3_faults)[before:]
    assert len(asked) == len(set(asked)) < 24, "once, and none that was read whole before"


@given(
    records=st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any),
    window=st.integers(1, 60),
    taken=st.integers(0, 20),
)
def test_what_is_needed_next_is_known(records: list[int], window: int, taken: int) -> None:
    order = Order.span(0, sum(records)).shuffle(3, window)
    schedule = Schedule(order, 1, 0, records)
    schedule.look(1 << 20)
    shard_of = np.repeat(np.arange(len(records)), records)[order.numbers(1, 0, sum(records))]
    begin = 0
    for _ in range(min(taken, len(schedule.steps))):
        stop, shards = schedule.take()
        assert set(shards) == set(shard_of[begin:stop])
        begin = stop
    for shard in range(len(records)):
        places = np.flatnonzero(shard_of[begin:] == shard)
        expected = None if not len(places) else begin + (int(places[0]) // schedule.step + 1) * schedule.step
        assert schedule.next_use(shard) == (expected and min(expected, sum(records)))


def test_a_cache_that_is_too_small_says_what_to_do(url: str, local: Path, tmp_path: Path) -> None:
    split = ps.load(url, cache=tmp_path, cache_bytes=2 * shard_bytes(local))["train"]
    with pytest.raises(ps.StorageError, match=r"expected a cache of \d+ bytes or more .* shuffle\(window=...\)"):
        list(split.shuffle(seed=1).batch(10))
    with pytest.raises(ps.StorageError, match=r"expected a cache of \d+ bytes or more.*cache_bytes="):
        list(ps.load(url, cache=tmp_path / "b", cache_bytes=1000)["train"].batch(10))
    with pytest.raises(ps.ArgumentError, match="expected cache_bytes to be 1 or more"):
        ps.load(url, cache_bytes=0)
    with pytest.raises(ps.ArgumentError, match="expected cache_bytes with a URL"):
        ps.load(local, cache_bytes=5)


def remote(url: str, local: Path, number: int) -> RemoteFile:
    file = f"numbers-train.tfrecord-{number:05}-of-{SHARDS:05}"
    data = (local / file).read_bytes()
    return RemoteFile(f"{url}/{file}", len(data), crc32c(data))


def test_what_was_not_used_for_longest_goes_first(url: str, local: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path, int(3.5 * shard_bytes(local)))
    files = [remote(url, local, number) for number in range(5)]
    for number, at in ((0, 100), (1, 200), (2, 300)):
        os.utime(cache.get(files[number], crc32c), (at, at))
    assert cache.has(files[0])  # used just now
    cache.get(files[3], crc32c)
    assert [cache.path(file).exists() for file in files] == [True, False, True, True, False]
    cache.get(files[4], crc32c, lambda: [cache.path(files[2])])
    assert cache.path(files[2]).exists(), "what is needed stays"
    assert size_of(tmp_path) <= cache.most
    cache.get(files[0], crc32c, lambda: [cache.path(files[number]) for number in (2, 4, 3)])
    assert [cache.path(file).exists() for file in files] == [True, False, True, False, True], "what is dear goes last"


def test_processes_share_a_cache(url: str, local: Path, s3_faults: FaultProxy, tmp_path: Path) -> None:
    loader = f"ps.load({url!r}, cache={str(tmp_path)!r})['train'].batch(50)"
    code = f"import penstock as ps; print(sum(len(batch['number']) for batch in {loader}))"
    s3_faults.spoil(Delay(0.2), times=4)
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=60)[0].strip() for process in running] == [str(EXAMPLES)] * 3
    asked = [path for path in s3_faults.requests if "tfrecord" in path and ".index" not in path]
    assert len(asked) == SHARDS, "each shard came once"


def test_a_process_that_was_killed_leaves_nothing_in_the_way(
    url: str, local: Path, s3_faults: FaultProxy, tmp_path: Path
) -> None:
    ps.load(url, cache=tmp_path)["train"][0]  # its index is here, so that only the shard is delayed
    assert list(tmp_path.rglob("*train.tfrecord-00000-of*.index"))
    s3_faults.spoil(Delay(30), times=4, path="train.tfrecord-00000-of")
    code = f"import penstock as ps; list(ps.load({url!r}, cache={str(tmp_path)!r})['train'].batch(50))"
    process = subprocess.Popen([sys.executable, "-c", code])
    while not list(tmp_path.rglob("*.partial")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    s3_faults.heal()
    room = int(4.5 * shard_bytes(local))
    loader = ps.load(url, cache=tmp_path, cache_bytes=room)["train"].batch(50)
    assert len(numbers(loader)) == EXAMPLES
    assert not list(tmp_path.rglob("*.partial"))
    assert size_of(tmp_path) <= room


# What goes wrong on the way


def test_bytes_that_changed_on_the_way_are_fetched_again(
    url: str, local: Path, s3_faults: FaultProxy, tmp_path: Path
) -> None:
    s3_faults.spoil(Corrupt(at=70_000), path="train.tfrecord-00002-of")
    s3_faults.spoil(Cut(after=50_000), times=2, path="train.tfrecord-00003-of")
    s3_faults.spoil(Answer(503), times=2, path="train.tfrecord-00004-of")
    got = list(ps.load(url, cache=tmp_path)["train"].batch(50))
    np.testing.assert_equal(list(map(plain, got)), list(map(plain, ps.load(local)["train"].batch(50))))


def replaced(url: str, number: int) -> None:
    """Another shard in the place of one: as large, with sound checksums, but two records changed places."""
    store, name = open_store(f"{url}/numbers-train.tfrecord-{number:05}-of-{SHARDS:05}")
    data = store.read(name)
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 16 + int.from_bytes(data[ends[-1] : ends[-1] + 8], "little"))
    frames = [data[a:b] for a, b in pairwise(ends)]
    at = next(at for at, (a, b) in enumerate(pairwise(frames)) if len(a) == len(b))
    frames[at], frames[at + 1] = frames[at + 1], frames[at]
    store.publish(name, b"".join(frames))


def test_a_shard_that_is_replaced_is_never_read(url: str, local: Path, tmp_path: Path) -> None:
    loader = ps.load(url, cache=tmp_path, cache_bytes=int(5 * shard_bytes(local)))["train"].batch(10)
    iterator = iter(loader)
    first = numbers([next(iterator)])
    replaced(url, SHARDS - 1)  # one that nobody can have fetched ahead
    with pytest.raises((ps.CorruptionError, ps.StorageError), match="replaced"):
        numbers(iterator)
    assert first == numbers(ps.load(local)["train"].batch(10))[:10]


def test_single_reads_notice_a_dataset_that_was_built_again(url: str, tmp_path: Path) -> None:
    split = ps.load(url, cache=tmp_path)["train"]
    split[0]
    replaced(url, 0)
    with pytest.raises(ps.StorageError, match="got another in its place"):
        split[1]
    store, name = open_store(f"{url}/penstock.json")
    store.publish(name, store.read(name) + b" ")
    with pytest.raises(ps.StorageError, match="expected the dataset that was opened, got one that was built again"):
        split[EXAMPLES - 1]


def test_what_is_not_there_is_said(s3: str, url: str, s3_server: S3, tmp_path: Path) -> None:
    with pytest.raises(ps.NotFoundError, match=f"expected a dataset, got no penstock.json - at {s3}/nothing"):
        ps.load(f"{s3}/nothing")
    loader = ps.load(url, cache=tmp_path)["train"].batch(10)
    for path in (s3_server.root / url.removeprefix("s3://")).glob("*train.tfrecord-00001*"):
        path.unlink()
    with pytest.raises(
        ps.NotFoundError, match=f"expected an object, got nothing - at {url}/numbers-train.tfrecord-00001"
    ):
        list(loader)


@pytest.mark.alone
def test_an_epoch_that_is_left_ends_at_once(url: str, s3_faults: FaultProxy, tmp_path: Path) -> None:
    loader = ps.load(url, cache=tmp_path)["train"].batch(10)
    s3_faults.spoil(Delay(5), times=None, path="train.tfrecord")
    iterator = iter(loader)
    began = time.monotonic()
    stop = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    stop.start()
    with pytest.raises(KeyboardInterrupt):
        next(iterator)  # it waits for a shard that does not come
    iterator.close()
    assert 0.5 <= time.monotonic() - began < 4
    s3_faults.heal()


# Frameworks and processes


def test_a_dataset_is_sent_to_other_processes(url: str, tmp_path: Path) -> None:
    loader = ps.load(url, cache=tmp_path, cache_bytes=50_000_000)["train"].shuffle(seed=1).batch(50)
    again = pickle.loads(pickle.dumps(loader))  # noqa: S301
    assert numbers(again) == numbers(loader.epoch(0))
    assert again.spec.datasets[0].cache.most == 50_000_000


def test_torch_workers_read_from_a_store(url: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    split = ps.load(url, cache=tmp_path)["train"]
    split[0]  # the library is in use when the workers are forked
    loader = torch.utils.data.DataLoader(split.shuffle(seed=1).batch(50).to_torch(), batch_size=None, num_workers=2)
    assert sorted(numbers(loader)) == list(range(EXAMPLES))
    single = torch.utils.data.DataLoader(ps.load(url, cache=tmp_path / "b")["test"], batch_size=2, num_workers=2)
    assert sorted(numbers(single)) == list(range(5))


def test_hosts_fetch_what_they_read(many_url: str, many: Path, s3_faults: FaultProxy, tmp_path: Path) -> None:
    """The bytes that come are those of the shards in which a host has examples, each once, and little else."""
    shards = sorted(path for path in many.glob("*-of-00024"))
    room = int(15.5 * shard_bytes(many))
    in_order = numbers(ps.load(many)["train"].batch(25))
    seen: list[int] = []
    for host in range(2):
        split = ps.load(many_url, cache=tmp_path / f"{host}", cache_bytes=room)["train"]
        before = s3_faults.answered
        loader = split.shuffle(seed=3, window=100).take(300).shard(host, 2).batch(10)
        got = numbers(loader)
        read = {in_order.index(number) // 25 for number in got}
        size = sum(shards[shard].stat().st_size for shard in read)
        assert len(read) < 18
        assert size <= s3_faults.answered - before < 1.1 * size + 20_000
        seen += got
    assert len(set(seen)) == 300
    before = s3_faults.answered
    quarter = ps.load(many_url, cache=tmp_path / "quarter")["train[:25%]"]
    assert len(numbers(quarter.batch(10))) == EXAMPLES // 4
    size = sum(path.stat().st_size for path in shards[:6])
    assert size <= s3_faults.answered - before < 1.1 * size + 20_000


def test_hosts_with_lanes_share_the_shards(many_url: str, many: Path, s3_faults: FaultProxy, tmp_path: Path) -> None:
    """Four hosts bring little more than one would, each what it reads; and still every example comes once."""
    shards = sorted(many.glob("*-of-00024"))
    in_order = numbers(ps.load(many)["train"].batch(25))
    seen: list[int] = []
    began = s3_faults.answered
    for host in range(4):
        split = ps.load(many_url, cache=tmp_path / f"{host}")["train"]
        before = s3_faults.answered
        got = numbers(split.shuffle(seed=3, window=50, lanes=4).shard(host, 4).batch(10))
        size = sum(shards[shard].stat().st_size for shard in {in_order.index(number) // 25 for number in got})
        assert size <= s3_faults.answered - before < 1.1 * size + 20_000
        seen += got
    assert sorted(seen) == sorted(in_order)
    everything = sum(path.stat().st_size for path in shards)
    assert s3_faults.answered - began < 2 * everything
    here = ps.load(many)["train"].shuffle(seed=3, window=50)
    dealt = numbers(here.shard(0, 4).batch(10))
    assert len({in_order.index(number) // 25 for number in dealt}) == 24, "without lanes, a host needs them all"


def test_tensorflow_reads_the_files_of_the_cache(url: str, local: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    there = ps.load(url, cache=tmp_path)["train"].batch(50).to_tf(graph=True)
    here = ps.load(local)["train"].batch(50)
    assert numbers(there.as_numpy_iterator()) == numbers(here)


def test_files_without_a_manifest_are_brought(url: str, local: Path, tmp_path: Path) -> None:
    there = ps.load(f"{url}/*train.tfrecord-*-of-*[0-9]", schema=FIELDS, cache=tmp_path)
    assert numbers(there["train"].batch(50)) == numbers(ps.load(local)["train"].batch(50))


@pytest.fixture(autouse=True)
def own_default_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
