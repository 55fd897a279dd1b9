"""The caches and the disk: foreign files stay, and a disk that is full for a while never leads to wrong values."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services.aistore import AIStore
from services.s3 import S3

import penstock as ps
from penstock._core import crc32c
from penstock.loading.transforms.cache import MISSING
from penstock.loading.transforms.cache import Store as ExampleStore
from penstock.storage.cache import LOCKS, MARK, SUBFOLDER, Cache, RemoteFile, default_folder
from penstock.storage.local import WholeFile, write_all
from penstock.storage.open import open_store

ROWS, WIDTH = 400, 3000


@pytest.fixture(autouse=True)
def own_default_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that hold their own number 3,000 times, in shards of about 0.6 MB."""
    path = tmp_path_factory.mktemp("local") / "rows"
    rows = [{"i": i, "x": np.full(WIDTH, i, np.float32)} for i in range(ROWS)]
    ps.build(rows, path, shards=8, workers=1)
    return path


def put(local: Path, bucket: str, server: S3) -> str:
    shutil.copytree(local, server.root / bucket.removeprefix("s3://") / "d")
    return f"{bucket}/d"


def fill_up(folder: Path, leave: int) -> Path:
    """Leave that many bytes of a file system."""
    path = folder / "filler"
    path.write_bytes(bytes(shutil.disk_usage(folder).free - leave))
    return path


def wait_for_downloads() -> None:
    """After an error, downloads of other shards that have begun go on."""
    for thread in threading.enumerate():
        if thread.name == "penstock-fetch":
            thread.join(60)


def check_rows(loader: Any) -> None:
    """All rows, each with its own values."""
    seen = []
    for batch in loader:
        np.testing.assert_array_equal(batch["x"], np.repeat(batch["i"][:, None], WIDTH, 1).astype(np.float32))
        seen += batch["i"].tolist()
    assert sorted(seen) == list(range(ROWS))


# Whose files


def test_making_room_leaves_the_users_files(local: Path, s3: str, s3_server: S3, small_disk: Path) -> None:
    photos = [small_disk / f"p{number}.jpg" for number in range(9)]
    for number, photo in enumerate(photos):
        photo.write_bytes(bytes([number]) * 1_500_000)
        os.utime(photo, (number, number))  # older than all that the cache has
    url = put(local, s3, s3_server)
    room = 3 * (local / "rows-train.tfrecord-00000-of-00008").stat().st_size + 100_000
    check_rows(ps.load(url, cache=small_disk, cache_bytes=room)["train"].batch(10))
    kept = [path for path in (small_disk / SUBFOLDER).rglob("*-of-*") if path.suffix != ".index"]
    assert 0 < sum(path.stat().st_size for path in kept) <= room, "it made room among its own files"
    for _ in range(2):
        assert sum(1 for _ in ps.load(url, cache=small_disk)["train"]) == ROWS
    assert [photo.read_bytes()[:1] for photo in photos] == [bytes([number]) for number in range(9)]
    assert sorted(path.name for path in small_disk.iterdir()) == [*(photo.name for photo in photos), SUBFOLDER]


def remote(local: Path, url: str, number: int) -> RemoteFile:
    name = f"rows-train.tfrecord-{number:05}-of-00008"
    data = (local / name).read_bytes()
    return RemoteFile(f"{url}/{name}", len(data), crc32c(data))


def test_only_files_of_its_own_names_are_counted_and_deleted(
    local: Path, s3: str, s3_server: S3, tmp_path: Path
) -> None:
    url = put(local, s3, s3_server)
    cache = Cache(tmp_path / "c", 1_500_000)
    first = cache.get(remote(local, url, 0), crc32c)
    strangers = [
        cache.folder / "notes.txt",
        cache.folder / "photos" / "p.jpg",
        first.parent.parent / "p.jpg",
        first.parent / "deeper" / "p.jpg",
        cache.folder / "0123456789ab-photos" / "summer" / "p.jpg",
    ]
    for path in strangers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(2_000_000))  # more than the cache may have
        os.utime(path, (1, 1))
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "p.jpg").write_bytes(bytes(2_000_000))
    (cache.folder / "0123456789ab-photos" / "01234567").symlink_to(linked)
    for number in range(8):
        cache.get(remote(local, url, number), crc32c)
    assert not first.exists(), "it went to make room"
    assert all(path.stat().st_size == 2_000_000 for path in [*strangers, linked / "p.jpg"])


def test_a_folder_of_someone_else_is_refused(local: Path, s3: str, s3_server: S3, tmp_path: Path) -> None:
    url = put(local, s3, s3_server)
    taken = tmp_path / "c" / SUBFOLDER
    taken.mkdir(parents=True)
    (taken / "p.jpg").write_bytes(b"photo")
    for read in (lambda split: list(split.batch(50)), lambda split: split[3]):
        with pytest.raises(ps.StorageError, match=r"got a folder that holds p\.jpg and no CACHEDIR\.TAG of Penstock"):
            read(ps.load(url, cache=tmp_path / "c")["train"])
    (taken / MARK).write_text("Signature: 8a477f597d28d172789f06886806bc55\n# made by another program\n")
    with pytest.raises(ps.StorageError, match="expected a cache of Penstock or nothing"):
        list(ps.load(url, cache=tmp_path / "c")["train"])
    assert [path.name for path in taken.iterdir() if path.name != MARK] == ["p.jpg"]
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / SUBFOLDER).write_text("a file")
    with pytest.raises(ps.StorageError, match="cannot create the cache"):
        list(ps.load(url, cache=tmp_path / "file")["train"])


def test_caches_of_before_are_used_on(local: Path, s3: str, s3_server: S3) -> None:
    """The default folder is the cache itself. One without a mark, made by an earlier version, gets one."""
    url = put(local, s3, s3_server)
    check_rows(ps.load(url)["train"].batch(50))
    folder = default_folder()
    assert folder.parts[-2:] == ("penstock", "shards")
    mark = folder / MARK
    assert mark.read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    mark.unlink()
    before = {path: path.stat().st_ino for path in folder.rglob("*-of-*")}
    check_rows(ps.load(url)["train"].batch(50))
    assert mark.exists()
    assert {path: path.stat().st_ino for path in folder.rglob("*-of-*")} == before
    shutil.rmtree(folder)  # it may be deleted at any time
    (folder / LOCKS).mkdir(parents=True)
    check_rows(ps.load(url)["train"].batch(50))
    assert mark.exists()


def test_processes_that_begin_a_cache_at_once_share_it(local: Path, s3: str, s3_server: S3, tmp_path: Path) -> None:
    url = put(local, s3, s3_server)
    code = f"import penstock as ps; print(sum(1 for _ in ps.load({url!r}, cache={str(tmp_path / 'c')!r})['train']))"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0].strip() for process in running] == [str(ROWS)] * 4
    assert [path.name for path in (tmp_path / "c").iterdir()] == [SUBFOLDER]


def test_a_foreign_file_named_like_an_index_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with ps.TFRecordWriter(path, index=False) as writer:
        writer.write(ps.Codec({"x": "int64"}).encode_examples([{"x": 1}])[0])
    foreign = tmp_path / "a.tfrecord.index"
    foreign.write_bytes(b"0 33\n")  # of another program
    assert ps.load(path, cache=tmp_path / "c")["train"][0] == {"x": 1}
    assert foreign.read_bytes() == b"0 33\n"
    assert len(list((tmp_path / "c").iterdir())) == 1, "the index is in the cache"
    with ps.TFRecordWriter(path, index=False) as writer:
        writer.write(b"other")
    assert foreign.read_bytes() == b"0 33\n"


# Short writes


@pytest.mark.alone
def test_all_bytes_are_written_or_it_is_an_error(tmp_path: Path) -> None:
    """A limit of file size gives one short write, then an error: as a disk does that runs full."""
    code = f"""
import resource, signal, sys
from io import FileIO
from pathlib import Path
from penstock.storage.local import WholeFile, write_all
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
assert FileIO({str(tmp_path / "short")!r}, "wb").write(bytes(3000)) == 1000
for write in (lambda: write_all(FileIO({str(tmp_path / "a")!r}, "wb"), bytes(3000)),
              lambda: WholeFile(Path({str(tmp_path / "b")!r}), 3000).write(bytes(3000))):
    try:
        write()
    except OSError as error:
        print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["27", "27"]
    with FileIO(tmp_path / "whole", "wb") as file:
        write_all(file, np.arange(1000, dtype=np.int64).reshape(10, 100))
        write_all(file, b"")
    assert (tmp_path / "whole").read_bytes() == np.arange(1000, dtype=np.int64).tobytes()
    with pytest.raises(OSError, match="expected 10 bytes, got 4 bytes written"), WholeFile(tmp_path / "w", 10) as whole:
        whole.write(b"four")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_the_loaders_cache_on_a_full_disk(local: Path, small_disk: Path) -> None:
    loader = ps.load(local)["train"].cache(folder=str(small_disk)).batch(50)
    filler = fill_up(small_disk, 2_000_000)
    with pytest.warns(UserWarning, match="no space left for the cache in .* examples are kept"):
        check_rows(loader)
    filler.unlink()  # there is room again
    for _ in range(3):
        check_rows(loader)
    store = loader.spec.steps[0].store
    assert len(store) == ROWS, "what had no room is kept once there is some"


def test_a_full_disk_never_gives_wrong_values(local: Path, small_disk: Path) -> None:
    """The first epoch may fail; those after it may not give one example the bytes of another."""
    loader = ps.load(local)["train"].cache(folder=str(small_disk)).batch(50)
    filler = fill_up(small_disk, 2_000_000)
    with warnings.catch_warnings(), suppress(OSError):
        warnings.simplefilter("ignore")
        check_rows(loader)
    filler.unlink()
    for _ in range(3):
        check_rows(loader)


def test_a_failed_write_leaves_nothing_in_the_loaders_cache(small_disk: Path) -> None:
    store = ExampleStore(1 << 30, small_disk)
    fill_up(small_disk, 1_000_000)
    store.put(0, {"x": np.zeros(100_000)})
    with pytest.warns(UserWarning, match="no space left"):
        store.put(1, {"x": np.ones(100_000)})
    assert store.get(1) is MISSING
    assert os.fstat(store._file.fileno()).st_size == 800_000 == store.used
    store.put(2, {"x": np.full(10_000, 2.0)})
    assert store.get(2)["x"].tolist() == [2.0] * 10_000


def test_what_is_damaged_in_the_loaders_cache_is_made_again(local: Path, tmp_path: Path) -> None:
    loader = ps.load(local)["train"].cache(folder=str(tmp_path)).batch(50)
    check_rows(loader)
    file = loader.spec.steps[0].store._file
    os.pwrite(file.fileno(), bytes(5000), 100_000)
    check_rows(loader)
    os.ftruncate(file.fileno(), 200_000)
    check_rows(loader)


def test_processes_that_are_forked_keep_examples_apart(tmp_path: Path) -> None:
    store = ExampleStore(1 << 30, tmp_path)
    store.put(0, {"x": np.full(1000, 0.0)})
    children = []
    for child in range(2):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for number in range(1, 200):
                    store.put(number, {"x": np.full(1000, number + 1000.0 * child)})
                good = [store.get(number)["x"].tolist() == [number + 1000.0 * child] * 1000 for number in range(1, 200)]
                status = 0 if all(good) and store.get(0)["x"].tolist() == [0.0] * 1000 else 1
            finally:
                os._exit(status)
        children.append(pid)
    for number in range(1, 200):
        store.put(number, {"x": np.full(1000, number)})
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    assert all(store.get(number)["x"].tolist() == [number] * 1000 for number in range(1, 200))


@pytest.mark.alone
@pytest.mark.parametrize("store", ["s3", "ais"])
def test_a_shard_that_has_no_room_is_not_published(
    store: str, local: Path, small_disk: Path, request: pytest.FixtureRequest
) -> None:
    """The disk fills up while shards come; then there is room again, and the same loader goes on."""
    bucket = request.getfixturevalue(store)
    where, _ = open_store(bucket)
    for path in local.iterdir():
        if path.is_file():
            where.send(path, f"d/{path.name}")
    loader = ps.load(f"{bucket}/d", cache=small_disk, cache_bytes=20_000_000)["train"].batch(50)
    filler = fill_up(small_disk, 1_000_000)
    for _ in range(2):
        with pytest.raises(ps.StorageError, match="No space left on device"):
            check_rows(loader)
        wait_for_downloads()
        names = [path.name for path in (small_disk / SUBFOLDER).rglob("*") if path.is_file()]
        assert not [name for name in names if name.endswith(".partial")], "what failed is removed"
        for path in (small_disk / SUBFOLDER).rglob("*-of-00008"):
            assert path.read_bytes() == (local / path.name).read_bytes(), "what is published is whole"
    filler.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            check_rows(loader)


def test_aistore_keeps_the_room_that_was_reserved(ais: str, ais_server: AIStore, tmp_path: Path) -> None:
    """Processes that share a cache count files that are coming with their whole size."""
    store, _ = open_store(ais)
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_000))
    store.send(source, "a")
    partial = tmp_path / "partial"
    with partial.open("wb") as file:
        file.truncate(3_000_000)
    sizes = []
    store.fetch("a", partial, size=3_000_000, told=lambda block: sizes.append(partial.stat().st_size))
    assert set(sizes) == {3_000_000}
    assert partial.read_bytes() == source.read_bytes()
