"""Object stores, against real servers: what goes in comes out, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from services import FaultProxy, Nginx
from services.faults import Answer, Cut, Delay, Fault, Stall

from penstock import NotFoundError, SchemaError, StorageError
from penstock.storage import object_store as objects
from penstock.storage.open import open_store
from penstock.storage.paths import expand
from penstock.storage.store import Store, is_url, split_url

BYTES = bytes(range(256)) * 4000  # 1 MB


@pytest.fixture
def store(bucket: str) -> Store:
    return open_store(f"{bucket}/x")[0]


def in_child(work: Callable[[], object], seconds: float = 20) -> int:
    """Run something in a fork; its exit code, or that of a kill if it hangs."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  # what went wrong is told by the exit code
            print(repr(error), file=sys.stderr)
            os._exit(1)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("url", "root", "name"),
    [
        ("s3://bucket/data/photos", "s3://bucket", "data/photos"),
        ("gs://bucket", "gs://bucket", ""),
        ("az://box/a/", "az://box", "a"),
        ("https://server:8080/a/b.tar", "https://server:8080", "a/b.tar"),
    ],
)
def test_a_url_is_a_store_and_a_name(url: str, root: str, name: str) -> None:
    assert split_url(url) == (root, name)
    assert is_url(url)


def test_paths_are_no_urls() -> None:
    assert not any(map(is_url, ("data/photos", "tfds:mnist", "c:/data", Path("s3://x"), None)))
    with pytest.raises(SchemaError, match=r"expected a URL that begins with s3, gs, .* got 's4://bucket/x'"):
        open_store("s4://bucket/x")
    with pytest.raises(SchemaError, match="expected a bucket"):
        open_store("s3:///x")


def test_objects_are_written_listed_read_and_deleted(store: Store, bucket: str) -> None:
    assert store.publish("data/a", b"one")
    assert store.publish("data/b", BYTES)
    assert store.publish("other", b"")
    assert [(entry.name, entry.size) for entry in store.list("data")] == [("data/a", 3), ("data/b", len(BYTES))]
    assert [entry.name for entry in store.list("")] == ["data/a", "data/b", "other"]
    assert list(store.list("nothing")) == []
    assert store.read("data/b", 1000, 5) == BYTES[1000:1005]
    assert store.read("data/b", len(BYTES) - 3) == BYTES[-3:]
    assert store.read("other") == store.read("data/a", 1, 0) == b""
    ranges = [(5000, 10), (0, 3), (900_000, 70_000), (5005, 20), (5000, 10)]
    assert [bytes(part) for part in store.read_ranges("data/b", ranges)] == [BYTES[a : a + n] for a, n in ranges]
    before = store.entry("data/a").version
    assert not store.publish("data/a", b"two", exclusive=True)
    assert store.publish("data/a", b"one", exclusive=True), "the same bytes: an answer may have been lost"
    assert store.publish("data/a", b"two")
    assert store.entry("data/a").version != before
    store.delete("data/a")
    store.delete("data/a")
    with pytest.raises(NotFoundError, match=f"expected an object, got nothing - at {bucket}/data/a"):
        store.read("data/a")
    with pytest.raises(NotFoundError):
        store.entry("data/a")


@pytest.mark.parametrize("size", [0, 5, (16 << 20) - 1, (41 << 20) + 7])
def test_files_are_sent_and_fetched(store: Store, tmp_path: Path, size: int) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes((BYTES * (size // len(BYTES) + 1))[:size])
    sent = store.send(source, "big")
    assert (sent.size, sent.version) == (size, store.entry("big").version)
    seen: list[int] = []
    store.fetch("big", target, size=size, version=sent.version, told=lambda block: seen.append(len(block)))
    assert target.read_bytes() == source.read_bytes()
    assert sum(seen) == size


def test_an_object_that_is_replaced_is_noticed(store: Store, tmp_path: Path) -> None:
    store.publish("a", BYTES)
    version = store.entry("a").version
    store.publish("a", BYTES[::-1])
    with pytest.raises(StorageError, match="expected the object that was there before, got another in its place"):
        store.read_ranges("a", [(0, 10)], version=version)
    with pytest.raises(StorageError, match="got another in its place"):
        store.fetch("a", tmp_path / "a", size=len(BYTES), version=version)


def test_a_listing_tells_the_version_that_the_object_has(store: Store, tmp_path: Path) -> None:
    store.publish("folder/a", b"some")
    (tmp_path / "b").write_bytes(b"more")
    sent = store.send(tmp_path / "b", "folder/b")
    assert sent == store.entry("folder/b")
    assert list(store.list("folder")) == [store.entry("folder/a"), sent]


def test_patterns_name_objects(store: Store, bucket: str) -> None:
    for name in ("d/part-00.tar", "d/part-01.tar", "d/deep/part-02.tar", "d/part-x.tar", "e/part-00.tar"):
        store.publish(name, b"x")
    found = [f"{bucket}/d/part-00.tar", f"{bucket}/d/part-01.tar"]
    assert expand(f"{bucket}/d/part-{{00..01}}.tar") == expand(f"{bucket}/d/part-[0-9]*.tar") == found
    assert expand(f"{bucket}/d/**/*-0?.tar") == [f"{bucket}/d/deep/part-02.tar", *found]
    unseen = [f"{bucket}/d/part-05.tar", f"{bucket}/d/part-06.tar"]
    assert expand(f"{bucket}/d/part-{{05..06}}.tar") == unseen, "not looked for"
    with pytest.raises(StorageError, match="expected files, got none that match"):
        expand(f"{bucket}/d/*.zip")


def test_a_web_server_is_read(http_server: Nginx, tmp_path: Path) -> None:
    (http_server.root / "files").mkdir()
    (http_server.root / "files" / "a.bin").write_bytes(BYTES)
    store, name = open_store(f"{http_server.endpoint}/files/a.bin")
    assert store.read(name) == BYTES
    assert [bytes(part) for part in store.read_ranges(name, [(7, 9), (500_000, 3)])] == [
        BYTES[7:16],
        BYTES[500_000:500_003],
    ]
    store.fetch(name, tmp_path / "a", size=store.entry(name).size, version=store.entry(name).version)
    assert (tmp_path / "a").read_bytes() == BYTES
    with pytest.raises(NotFoundError):
        store.read("files/b")
    with pytest.raises(StorageError, match="expected a store that lists its objects, got a web server"):
        store.list("files")
    with pytest.raises(StorageError, match="expected a store that can be written to, got a web server"):
        store.publish("files/b", b"x")


# What goes wrong on the way


@pytest.mark.parametrize(
    "fault", [Cut(after=200_000), Cut(after=100), Answer(503), Answer(429), Delay(0.3)], ids=lambda fault: repr(fault)
)
def test_what_passes_is_tried_again(s3: str, s3_faults: FaultProxy, tmp_path: Path, fault: Fault) -> None:
    store = open_store(f"{s3}/x")[0]
    store.publish("a", BYTES)
    s3_faults.spoil(fault, times=3)
    assert [bytes(part) for part in store.read_ranges("a", [(10, 600_000)])] == [BYTES[10:600_010]]
    s3_faults.spoil(fault, times=3)
    store.fetch("a", tmp_path / "a", size=len(BYTES))
    assert (tmp_path / "a").read_bytes() == BYTES
    s3_faults.spoil(fault, times=2)
    assert store.publish("b", b"once", exclusive=True)
    s3_faults.spoil(fault, times=2)
    assert [entry.name for entry in store.list("")] == ["a", "b"]


@pytest.mark.alone
@pytest.mark.parametrize("fault", [Stall(), Answer(500), Cut(after=100)], ids=lambda fault: repr(fault))
def test_what_does_not_pass_is_an_error_in_time(
    s3: str, s3_faults: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(objects, "REQUEST", 1)
    monkeypatch.setattr(objects, "DEADLINE", 2.0)
    store = open_store(f"{s3}/x")[0]
    store.publish("a", BYTES)
    s3_faults.spoil(fault, times=None)
    began = time.monotonic()
    with pytest.raises(StorageError, match=rf"expected an answer within 2 s, got none.*- at {s3}/a, offset 7"):
        store._part("a", 7, 100, None)  # type: ignore[attr-defined]
    assert time.monotonic() - began < 8


@pytest.mark.alone
@pytest.mark.parametrize(
    ("bucket", "secret"),
    [("s3", "AWS_SECRET_ACCESS_KEY"), ("az", "AZURE_STORAGE_ACCOUNT_KEY")],
    indirect=["bucket"],
)
def test_who_is_not_let_in_is_told_at_once(bucket: str, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(secret, "Z3Vlc3NlZA==")
    store, name = open_store(f"{bucket}/a")
    began = time.monotonic()
    with pytest.raises(StorageError, match=rf"^Permission denied reading {bucket}/a \(403 "):
        store.read(name)
    assert time.monotonic() - began < 5


def test_settings_that_are_missing_or_wrong_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(
        StorageError, match=r"settings.* got an error: .*Account must be specified - at az://c\. Look at"
    ):
        open_store("az://c/x")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "none.json"))
    with pytest.raises(StorageError, match=r"settings.* got an error: .*none\.json.* - at gs://no-such\. Look at"):
        open_store("gs://no-such/x")


@pytest.mark.alone
def test_a_fork_has_a_library_of_its_own(store: Store, bucket: str) -> None:
    store.publish("a", BYTES)

    def child() -> None:
        again, _ = open_store(f"{bucket}/x")
        assert again is not store
        assert again.read("a") == BYTES
        assert in_child(lambda: open_store(f"{bucket}/x")[0].read("a")) == 0

    assert in_child(child) == 0
    assert store.read("a") == BYTES


def test_without_the_package_one_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['obstore'] = None; import penstock; penstock.load('s3://bucket/data')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "MissingDependencyError: Object stores need the package obstore: pip install penstock-data[stores]" in said
