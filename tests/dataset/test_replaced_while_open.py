"""A dataset on a disk that is replaced while it is open: the examples of before, or an error, never both kinds."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

COUNT, SHARDS = 2000, 16
REBUILT = r"expected the file of the dataset that was loaded, got another one.*Call ps\.load again"


def rows(version: int, count: int = COUNT) -> list[dict[str, Any]]:
    return [{"x": i, "v": version, "b": bytes(200)} for i in range(count)]


def build(path: Path, version: int, **options: Any) -> None:
    ps.build(rows(version), path, workers=1, **{"shards": SHARDS, "overwrite": True, **options})


def values(loader: Any) -> set[int]:
    """The versions of all examples of an epoch; whatever came before an error is of one version too."""
    seen: set[int] = set()
    count = 0
    try:
        for batch in loader:
            seen |= set(np.asarray(batch["v"]).reshape(-1).tolist())
            count += np.size(batch["v"])
    except ps.LoadError:
        assert seen <= {1}, f"{seen} before the error"
        raise
    assert count == COUNT
    return seen


EPOCHS: dict[str, Callable[[ps.Split], Any]] = {
    "in order": lambda split: split.batch(100),
    "shuffled": lambda split: split.shuffle(seed=1).batch(100),
    "mapped": lambda split: split.shuffle(seed=1).map(lambda row: row).batch(100),
    "one by one": lambda split: split,
    "one thread": lambda split: split.shuffle(seed=2).batch(64).prefetch(threads=1),
    "skipping": lambda split: split.batch(100),
}


@pytest.mark.parametrize("format", ["tfrecord", "array_record"])
@pytest.mark.parametrize("epoch", EPOCHS)
def test_an_epoch_after_a_rebuild(epoch: str, format: str, tmp_path: Path) -> None:
    build(tmp_path / "m", 1, format=format)
    split = ps.load(tmp_path / "m", on_error="skip" if epoch == "skipping" else "raise")["train"]
    assert split[0]["v"] == 1
    build(tmp_path / "m", 2, format=format)
    with pytest.raises(ps.LoadError, match=REBUILT) as caught:
        values(EPOCHS[epoch](split))
    assert caught.value.path is not None
    assert caught.value.path.endswith("penstock.json")
    assert values(EPOCHS[epoch](ps.load(tmp_path / "m")["train"])) == {2}


def test_an_epoch_whose_files_are_all_open_goes_on(tmp_path: Path) -> None:
    build(tmp_path / "m", 1)
    split = ps.load(tmp_path / "m")["train"]
    assert values(split.batch(100)) == {1}
    iterator = iter(split.shuffle(seed=3).batch(100))
    seen = {int(v) for v in next(iterator)["v"]}
    build(tmp_path / "m", 2)
    assert seen | {int(v) for batch in iterator for v in batch["v"]} == {1}
    assert values(split.shuffle(seed=4).batch(100)) == {1}
    assert split[COUNT - 1]["v"] == 1


def test_a_rebuild_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    build(tmp_path / "m", 1)
    iterator = iter(ps.load(tmp_path / "m")["train"].batch(10).prefetch(threads=1, memory=1))
    seen = {int(v) for v in next(iterator)["v"]}
    build(tmp_path / "m", 2)
    with pytest.raises(ps.LoadError, match=REBUILT):
        seen.update(int(v) for batch in iterator for v in batch["v"])
    assert seen == {1}


@pytest.mark.parametrize("shards", [SHARDS, 3, 40])
def test_single_reads(shards: int, tmp_path: Path) -> None:
    """Also of a build with other shards, which removes those of before."""
    build(tmp_path / "m", 1)
    split = ps.load(tmp_path / "m")["train"]
    assert split[0]["v"] == 1
    build(tmp_path / "m", 2, shards=shards)
    assert split[1]["v"] == 1, "an open file is read on"
    for read in (lambda: split[COUNT - 1], lambda: split[[5, COUNT - 1]], lambda: split[COUNT - 5 :]):
        with pytest.raises(ps.LoadError, match=REBUILT):
            read()


def test_an_unfinished_rebuild(tmp_path: Path) -> None:
    """The manifest is gone first: whatever else is replaced by then, nothing of it is read."""
    build(tmp_path / "m", 1)
    split = ps.load(tmp_path / "m")["train"]
    (tmp_path / "m" / "penstock.json").unlink()
    with pytest.raises(ps.LoadError, match=REBUILT):
        split[7]


def test_processes_that_are_forked(tmp_path: Path) -> None:
    build(tmp_path / "m", 1)
    split = ps.load(tmp_path / "m")["train"]
    assert split[0]["v"] == 1
    build(tmp_path / "m", 2)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            values(split.shuffle(seed=1).batch(100))
        except ps.LoadError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def unpickled(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301


def read_in_another_process(loader: Any, folder: Path) -> str:
    (folder / "loader.pickle").write_bytes(pickle.dumps(loader))
    code = f"""
import pickle, penstock as ps
seen = set()
try:
    for batch in pickle.load(open({str(folder / "loader.pickle")!r}, "rb")):
        seen |= {{int(v) for v in batch["v"]}}
except ps.PenstockError as error:
    print(type(error).__name__)
print(*seen)
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("kind", ["manifest", "files"])
def test_loaders_that_are_pickled(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("m" if kind == "manifest" else "m-{000..}.tfrecord")
    build(path, 1, shards=4)
    path = path if kind == "manifest" else tmp_path / "m-*.tfrecord"
    loader = ps.load(path)["train"].shuffle(seed=1).batch(100)
    assert read_in_another_process(loader, tmp_path) == "1"
    data = pickle.dumps(loader)
    build(path if kind == "manifest" else tmp_path / "m-{000..}.tfrecord", 2, shards=4)
    loader = unpickled(data) if kind == "files" else ps.load(path)["train"].batch(9)
    said = read_in_another_process(loader, tmp_path)
    assert said == ("LoadError" if kind == "files" else "2")
    if kind == "manifest":
        with pytest.raises(ps.SchemaError, match="expected the dataset that was pickled, got another one"):
            unpickled(data)


def test_another_machine_has_copies_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "a.tfrecord", 1, shards=None)
    data = pickle.dumps(ps.load(tmp_path / "a.tfrecord")["train"])
    shutil.copy(tmp_path / "a.tfrecord", tmp_path / "copy")
    os.replace(tmp_path / "copy", tmp_path / "a.tfrecord")
    with pytest.raises(ps.LoadError, match=REBUILT):
        unpickled(data)[0]
    monkeypatch.setattr("platform.node", lambda: "another")
    assert unpickled(data)[0]["v"] == 1
    (tmp_path / "a.tfrecord").write_bytes(b"short")
    with pytest.raises(ps.LoadError, match="that was pickled, got 5 bytes"):
        unpickled(data)


# Files without a manifest


def write_files(folder: Path, version: int, compression: str | None = None) -> None:
    """Files as other programs write them: each under another name, then renamed."""
    codec = ps.Codec({"x": "int64", "v": "int64", "b": "bytes"})
    folder.mkdir(exist_ok=True)
    for shard in range(4):
        fresh = folder / "fresh"
        with ps.TFRecordWriter(fresh, ps.TFRecord(compression=compression), index=False) as writer:
            for record in codec.encode_examples(rows(version)[shard::4]):
                writer.write(record)
        os.replace(fresh, folder / f"p-{shard:03}.tfrecord")


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_plain_files(compression: str | None, tmp_path: Path) -> None:
    write_files(tmp_path / "f", 1, compression)
    split = ps.load(tmp_path / "f")["train"]
    assert split[0]["v"] == 1
    write_files(tmp_path / "f", 2, compression)
    for loader in (split.batch(100), split.shuffle(seed=1).batch(100)):
        with pytest.raises(ps.LoadError, match=REBUILT):
            values(loader)
    with pytest.raises(ps.LoadError, match=REBUILT):
        split[COUNT - 1]
    assert values(ps.load(tmp_path / "f")["train"].batch(100)) == {2}


def test_plain_files_that_are_written_to_in_place(tmp_path: Path) -> None:
    """The same inode, the same size, the same offsets: only the time tells."""
    write_files(tmp_path / "f", 1)
    write_files(tmp_path / "g", 2)
    split = ps.load(tmp_path / "f")["train"]
    assert values(split.batch(100)) == {1}, "all files are open"
    time.sleep(0.02)  # the clock of file systems is coarse
    for path in (tmp_path / "g").glob("*.tfrecord"):
        (tmp_path / "f" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ps.LoadError, match=REBUILT):
        values(split.batch(100))
    fresh = ps.load(tmp_path / "f")["train"]
    assert values(fresh.batch(100)) == {2}


def test_what_tfds_prepared(tmp_path: Path) -> None:
    build(tmp_path / "toy" / "1.0.0", 1)
    (tmp_path / "toy" / "1.0.0" / "penstock.json").unlink()
    split = ps.load(tmp_path / "toy" / "1.0.0")["train"]
    assert split[0]["v"] == 1
    build(tmp_path / "again" / "1.0.0", 2)
    for path in (tmp_path / "again" / "1.0.0").glob("*.tfrecord-*"):
        os.replace(path, tmp_path / "toy" / "1.0.0" / path.name.replace("again", "toy"))
    with pytest.raises(ps.LoadError, match=REBUILT):
        values(split.shuffle(seed=1).batch(100))


def test_tars(tmp_path: Path) -> None:
    def write(version: int) -> None:
        for number in range(3):
            with tarfile.open(tmp_path / "fresh.tar", "w") as tar:
                for sample in range(5):
                    entry = tarfile.TarInfo(f"{number}-{sample}.v")
                    entry.size = 1
                    tar.addfile(entry, BytesIO(str(version).encode()))
            os.replace(tmp_path / "fresh.tar", tmp_path / f"t-{number}.tar")

    write(1)
    split = ps.load(tmp_path / "t-{0..2}.tar", decode=False)["train"]
    assert split[0]["v"] == b"1"
    write(2)
    with pytest.raises(ps.LoadError, match=REBUILT):
        list(split)


def test_files_of_a_cache_may_come_again(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache deletes files and downloads them again: the path stands for the content."""
    from penstock.storage.open import open_store

    build(tmp_path / "a.tfrecord", 1, shards=None)
    store, _ = open_store(s3)
    store.send(tmp_path / "a.tfrecord", "a.tfrecord")
    split = ps.load(f"{s3}/a.tfrecord", schema={"x": "int64", "v": "int64", "b": "bytes"}, cache=tmp_path / "c")[
        "train"
    ]
    (path,) = (tmp_path / "c").rglob("a.tfrecord")
    shutil.copy(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    assert values(split.batch(100)) == {1}


def test_a_dataset_that_moves_is_not_rebuilt(tmp_path: Path) -> None:
    """Reading changes nothing that counts as a rebuild."""
    build(tmp_path / "m", 1)
    split = ps.load(tmp_path / "m")["train"]
    os.chmod(tmp_path / "m" / "penstock.json", 0o600)
    os.link(tmp_path / "m" / "penstock.json", tmp_path / "link")
    assert values(split.batch(100)) == {1}
    relative = os.path.relpath(tmp_path / "m")
    assert values(ps.load(relative)["train"].batch(100)) == {1}
