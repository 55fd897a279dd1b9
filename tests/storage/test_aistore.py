"""AIStore: the store, shuffling in the cluster, and what happens when it does not answer. Against a real one."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from services import AIStore, FaultProxy
from services.faults import Answer, Corrupt, Cut, Stall
from tests.support.tar_files import write_tar

import penstock as ps
from penstock import CorruptionError, NotFoundError, SchemaError, StorageError
from penstock.storage import aistore as ais_module
from penstock.storage.aistore import AISStore
from penstock.storage.open import open_store
from penstock.storage.paths import expand

BODY = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()


@pytest.fixture
def store(ais: str) -> AISStore:
    found, _ = open_store(ais)
    assert isinstance(found, AISStore)
    return found


def test_what_is_written_is_read(store: AISStore, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BODY)
    sent = store.send(tmp_path / "a", "folder/a name.bin")
    assert (sent.name, sent.size) == ("folder/a name.bin", len(BODY))
    assert store.read(sent.name) == BODY
    assert store.read(sent.name, 299_000) == BODY[299_000:]
    assert store.read(sent.name, 1000, 5) == BODY[1000:1005]
    ranges = [(290_000, 10_000), (0, 1), (5, 10), (100_000, 7), (5, 10), (299_999, 1)]
    parts = store.read_ranges(sent.name, ranges, version=sent.version)
    assert [bytes(part) for part in parts] == [BODY[start:][:length] for start, length in ranges]
    seen: list[bytes] = []
    store.fetch(sent.name, tmp_path / "b", size=sent.size, version=sent.version, told=lambda part: seen.append(part))
    assert (tmp_path / "b").read_bytes() == b"".join(seen) == BODY


def test_a_large_object_comes_in_pieces(store: AISStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.publish("large", BODY)
    monkeypatch.setattr(ais_module, "PIECE", 70_001)
    store.fetch("large", tmp_path / "large", size=len(BODY))
    assert (tmp_path / "large").read_bytes() == BODY


def test_names_are_listed_in_order(store: AISStore) -> None:
    for name in ("b/2", "b/1", "a", "bb"):
        assert store.publish(name, name.encode())
    assert [entry.name for entry in store.list("")] == ["a", "b/1", "b/2", "bb"]
    assert [(entry.name, entry.size) for entry in store.list("b")] == [("b/1", 3), ("b/2", 3)]
    assert all(store.entry(entry.name) == entry for entry in store.list(""))
    assert expand(f"{store.url}/b/*") == [f"{store.url}/b/1", f"{store.url}/b/2"]
    assert expand(f"{store.url}/b/{{1..2}}") == [f"{store.url}/b/1", f"{store.url}/b/2"]


def test_what_is_there_stays_where_that_is_asked(store: AISStore) -> None:
    assert store.publish("once", b"first", exclusive=True)
    assert not store.publish("once", b"second", exclusive=True)
    assert store.read("once") == b"first"
    store.delete("once")
    store.delete("once")
    with pytest.raises(NotFoundError, match=rf"expected an object, got nothing - at {store.url}/once"):
        store.read("once")
    with pytest.raises(NotFoundError):
        store.entry("once")


def test_a_replaced_object_is_not_taken_for_the_one_before(store: AISStore, tmp_path: Path) -> None:
    store.publish("a", BODY)
    before = store.entry("a")
    store.publish("a", BODY[::-1])
    assert store.entry("a").version != before.version
    with pytest.raises(StorageError, match="got another in its place"):
        store.fetch("a", tmp_path / "a", size=before.size, version=before.version)
    with pytest.raises(StorageError, match="got another in its place"):
        store.read_ranges("a", [(0, 10)], version=before.version)


def test_a_bucket_that_is_not_there(ais: str) -> None:
    with pytest.raises(NotFoundError, match="expected the bucket nowhere, got nothing"):
        list(AISStore("ais://nowhere").list(""))


def test_no_address_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIS_ENDPOINT", raising=False)
    with pytest.raises(StorageError, match="expected the address of an AIStore in AIS_ENDPOINT, got none"):
        AISStore("ais://bucket").read("a")


# When it does not answer as it should


@pytest.fixture
def faults(ais: str, ais_server: AIStore, monkeypatch: pytest.MonkeyPatch) -> FaultProxy:
    """A proxy before AIStore's own; what a target says goes past it."""
    proxy = FaultProxy(ais_server.port)
    monkeypatch.setenv("AIS_ENDPOINT", proxy.endpoint)
    monkeypatch.setattr(ais_module, "TIMEOUT", (1.0, 1.0))
    ais_module._client.cache_clear()
    yield proxy  # type: ignore[misc]
    proxy.stop()


def test_what_passes_is_tried_again(store: AISStore, faults: FaultProxy) -> None:
    store.publish("a", BODY)
    for fault in (Answer(503), Answer(429), Cut(after=20), Stall()):
        faults.spoil(fault)
        assert store.read("a", 7, 100) == BODY[7:107], fault
        faults.spoil(fault)
        assert store.entry("a").size == len(BODY), fault
        faults.spoil(fault)
        assert store.read("a") == BODY, fault
        faults.spoil(fault)
        assert [entry.name for entry in store.list("")] == ["a"], fault
        faults.spoil(fault)
        store.publish("a", BODY)


@pytest.mark.alone
def test_no_answer_is_an_error_by_the_deadline(
    store: AISStore, faults: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish("a", BODY)
    monkeypatch.setattr(ais_module, "DEADLINE", 1.5)
    for fault in (Stall(), Answer(503)):
        faults.spoil(fault, times=None)
        began = time.monotonic()
        with pytest.raises(StorageError, match=rf"expected an answer within 2 s, got .* at {store.url}/a, offset 7"):
            store.read("a", 7, 100)
        assert time.monotonic() - began < 5
        faults.heal()
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"Look whether http://127\.0\.0\.1:9/v1 is up"):
        store.read("a")


def test_what_does_not_pass_is_not_tried_again(store: AISStore, faults: FaultProxy) -> None:
    faults.spoil(Answer(403))
    with pytest.raises(StorageError, match=r"Permission denied reading or writing .*/a \(403"):
        store.read("a")


def test_bytes_that_changed_on_the_way_never_reach_an_example(
    ais: str, ais_server: AIStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{ais}/data/numbers"
    ps.build([{"number": number, "text": f"{number:0200}"} for number in range(200)], url, shards=2, workers=1)
    with ExitStack() as stack:
        targets = {port: stack.enter_context(FaultProxy(port)) for port in ais_server.targets}
        others = {port: proxy.port for port, proxy in targets.items()}
        proxy = stack.enter_context(FaultProxy(ais_server.port, instead=others))
        monkeypatch.setenv("AIS_ENDPOINT", proxy.endpoint)

        def spoil(at: int, times: int | None) -> None:
            for target in targets.values():
                target.heal()
                target.spoil(Corrupt(at), times=times, path="train.tfrecord-00001-of-00002")

        split = ps.load(url, cache=tmp_path / "a")["train"]
        spoil(3000, 2)  # of one shard's answers: its index, and itself
        assert sorted(number for batch in split.batch(20) for number in batch["number"].tolist()) == list(range(200))
        assert all(any("numbers" in path for path in target.requests) for target in targets.values())
        spoil(3000, None)
        with pytest.raises(CorruptionError, match=rf"expected CRC-32C .* in 3 attempts.*{url}"):
            list(ps.load(url, cache=tmp_path / "b")["train"].batch(20))
        single = ps.load(url, cache=tmp_path / "c")["train"]
        assert single[150]["text"] == split[150]["text"], "its index is sound, and is here now"
        spoil(100, None)
        with pytest.raises(CorruptionError, match=r"numbers-train\.tfrecord-00001-of-00002"):
            single[170]


# In the cluster


def write_shards(url: str, folder: Path, *, mode: str, suffix: str) -> None:
    for shard in range(4):
        members = [
            (f"{number:04}.{extension}", f"{number}{extension}".encode() * 50)
            for number in range(shard * 25, shard * 25 + 25)
            for extension in ("cls", "txt")
        ]
        path = write_tar(folder / f"train-{shard}{suffix}", members, mode=mode)
        store, name = open_store(f"{url}/{path.name}")
        store.send(path, name)


def samples(tars: list[str]) -> list[str]:
    return [example["__key__"] for example in ps.load(tars, decode=False)["train"]]


@pytest.mark.parametrize(("mode", "suffix"), [("w", ".tar"), ("w:gz", ".tar.gz")])
def test_tars_are_shuffled_in_the_cluster(ais: str, tmp_path: Path, mode: str, suffix: str) -> None:
    write_shards(ais, tmp_path, mode=mode, suffix=suffix)
    source = f"{ais}/train-{{0..3}}{suffix}"
    tars = ps.ais.shuffle(source, f"{ais}/out/train-shuffled-{{000..}}.tar", seed=7, shard_bytes=9_000)
    assert tars == [f"{ais}/out/train-shuffled-{number:03}.tar" for number in range(len(tars))]
    assert len(tars) > 2 or mode != "w"
    keys = samples(tars)
    assert sorted(keys) == [f"{number:04}" for number in range(100)], "every sample once"
    assert keys != sorted(keys)
    with pytest.raises(StorageError, match=r"expected new tars, got one that is there - at .*train-shuffled-000\.tar"):
        ps.ais.shuffle(source, f"{ais}/out/train-shuffled-{{000..}}.tar")
    if mode == "w":
        by_key = ps.ais.shuffle(source, f"{ais}/key/train-{{000..}}.tar", order="key", shard_bytes=9_000)
        assert samples(by_key) == sorted(keys)


def test_a_shuffle_that_makes_no_sense_is_refused_before_it_begins(ais: str) -> None:
    with pytest.raises(SchemaError, match=r"expected tars of an AIStore"):
        ps.ais.shuffle("s3://bucket/train-{0..3}.tar", f"{ais}/out-{{0..}}.tar")
    with pytest.raises(SchemaError, match="expected a destination with a number that begins to count"):
        ps.ais.shuffle(f"{ais}/train-{{0..3}}.tar", f"{ais}/out.tar")
    with pytest.raises(SchemaError, match='expected order "shuffle" or "key"'):
        ps.ais.shuffle(f"{ais}/train-{{0..3}}.tar", f"{ais}/out-{{0..}}.tar", order="size")
    with pytest.raises(NotFoundError, match=r"train-0\.tar"):
        ps.ais.shuffle(f"{ais}/train-{{0..3}}.tar", f"{ais}/out-{{0..}}.tar")


def test_a_transform_is_asked_of_the_cluster(ais: str, store: AISStore) -> None:
    store.publish("a.tar", BODY)
    url = ps.ais.transformed(f"{ais}/a.tar", etl="resize")
    assert url == f"{ais}?etl=resize/a.tar"
    other, name = open_store(url)
    words = (
        "resize does not exist - try starting new ETL"  # this cluster, without Kubernetes, has none: AIStore's words
    )
    for ask in (lambda: other.read(name), lambda: ps.load(url), lambda: ps.tar(url)):
        with pytest.raises(StorageError, match=rf"the ETL 'resize' makes of an object, got: 404 .*{words}"):
            ask()
    missing, name = open_store(ps.ais.transformed(f"{ais}/none.tar", etl="resize"))
    with pytest.raises(StorageError, match=r"got: 404 .*none\.tar|got: 404 .*resize"):
        missing.read(name)
    with pytest.raises(SchemaError, match="expected objects of an AIStore"):
        ps.ais.transformed("s3://bucket/a.tar", etl="resize")
    with pytest.raises(SchemaError, match="expected the name of an ETL"):
        ps.ais.transformed(f"{ais}/a.tar", etl="a/b")


def test_a_url_may_say_where_the_cluster_is(
    ais: str, ais_server: AIStore, store: AISStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish("folder/a", BODY)
    monkeypatch.delenv("AIS_ENDPOINT")
    url = ps.ais.at(f"{ais}/folder/a", ais_server.endpoint)
    assert expand(url) == [url]
    assert expand(ps.ais.at(f"{ais}/folder/?", ais_server.endpoint)) == [url]
    other, name = open_store(url)
    assert other.read(name, 10, 10) == BODY[10:20]
    transformed, name = open_store(ps.ais.transformed(url, etl="resize"))
    with pytest.raises(StorageError, match="resize"):
        transformed.read(name)
    with pytest.raises(SchemaError, match="expected the address of an AIStore, as in http://localhost:8080"):
        ps.ais.at(ais, "localhost")
    with pytest.raises(SchemaError, match="expected the option etl or endpoint, got 'elt'"):
        open_store(f"{ais}?elt=resize/a")


def test_a_fork_reads_on(store: AISStore) -> None:
    store.publish("a", BODY)
    assert store.read("a", 0, 10) == BODY[:10]
    child = os.fork()
    if not child:
        os._exit(0 if store.read("a", 10, 10) == BODY[10:20] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.read("a", 20, 10) == BODY[20:30]


@pytest.mark.alone
def test_where_nobody_answers_is_found_out_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong address was waited for as long as a cluster that restarts."""
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(ais_module, "REFUSED", 1.0)
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"the connection is refused - at ais://nowhere/a. Look whether http"):
        AISStore("ais://nowhere").read("a")
    assert time.monotonic() - began < 5
