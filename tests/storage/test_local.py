"""The local disk is a store: it keeps the promises that buckets keep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import NotFoundError, StorageError
from penstock.storage.local import LocalStore, unlock
from penstock.storage.open import open_store
from penstock.storage.store import Store

BYTES = bytes(range(256)) * 4000  # 1 MB


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of a relative path, in an empty working directory."""
    (tmp_path / "disk").mkdir()
    monkeypatch.chdir(tmp_path / "disk")
    found, name = open_store("data/a")
    assert isinstance(found, LocalStore)
    assert name == "data/a"
    return found


def test_files_are_written_listed_read_and_deleted(store: Store) -> None:
    assert store.publish("data/a", b"one")
    assert store.publish("data/b", BYTES, sync=True)
    assert store.publish("data/deep/c", b"")
    assert [(entry.name, entry.size) for entry in store.list("data")] == [
        ("data/a", 3),
        ("data/b", len(BYTES)),
        ("data/deep/c", 0),
    ]
    assert store.names("data") == {"a", "b", "deep"}
    assert list(store.list("nothing")) == []
    assert store.read("data/b", 1000, 5) == BYTES[1000:1005]
    assert store.read("data/b", len(BYTES) - 3) == BYTES[-3:]
    ranges = [(5000, 10), (0, 3), (900_000, 70_000), (5005, 20), (5000, 10)]
    assert [bytes(part) for part in store.read_ranges("data/b", ranges)] == [BYTES[a : a + n] for a, n in ranges]
    store.delete("data/a")
    store.delete("data/a")
    for name in ("data/a", "data/deep", "data/b/below"):
        with pytest.raises(NotFoundError, match=f"expected a file, got nothing at {name}"):
            store.read(name)
        with pytest.raises(NotFoundError):
            store.entry(name)
    assert {path.name for path in Path("data").iterdir()} == {"b", "deep"}, "no temporary file is left"


def test_an_exclusive_write_replaces_nothing(store: Store) -> None:
    assert store.publish("a", b"one", exclusive=True)
    assert not store.publish("a", b"two", exclusive=True)
    assert store.read("a") == b"one"
    assert os.listdir() == ["a"]


def test_files_are_sent_and_fetched(store: Store, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(BYTES)
    sent = store.send(tmp_path / "source", "folder/big")
    assert sent == store.entry("folder/big")
    seen: list[int] = []
    path = tmp_path / "target"
    store.fetch(sent.name, path, size=sent.size, version=sent.version, told=lambda block: seen.append(len(block)))
    assert path.read_bytes() == BYTES
    assert sum(seen) == len(BYTES)


def test_a_file_that_is_replaced_is_noticed(store: Store, tmp_path: Path) -> None:
    store.publish("a", BYTES)
    version = store.entry("a").version
    store.publish("a", BYTES[::-1])
    with pytest.raises(StorageError, match="got another in its place"):
        store.read_ranges("a", [(0, 10)], version=version)
    with pytest.raises(StorageError, match="got another in its place"):
        store.fetch("a", tmp_path / "a", size=len(BYTES), version=version)


def test_a_lock_ends_with_its_process(store: Store) -> None:
    code = "from penstock.storage.open import open_store\n"
    code += "store, name = open_store('held')\nassert store.lock(name) is not None\nprint('held', flush=True)\ninput()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert store.lock("held") is None
    process.kill()
    process.communicate()
    handle = store.lock("held")
    assert handle is not None
    unlock(handle)
