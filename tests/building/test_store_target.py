"""Builds into a store: the bytes of a local build, published at once, resumed after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from services import S3, FaultProxy
from services.faults import Answer, Cut
from tests.support.built_datasets import stored_files
from tests.support.tar_files import write_tar

import penstock as ps
from penstock.building.encode import Job, Upload
from penstock.building.plan import Task
from penstock.building.targets.store import PREFIX, own_folder, run_and_send
from penstock.cli import main
from penstock.sources.adapt import as_source
from penstock.storage.open import open_store

EXAMPLES = 400


def examples(count: int = EXAMPLES) -> list[dict[str, Any]]:
    return [{"number": n, "data": np.full(200, n, np.float32)} for n in range(count)]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


def folder_of(url: str, server: S3) -> Path:
    return server.root / url.removeprefix("s3://")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("format", ["tfrecord", ["array_record", "tfrecord"]])
def test_a_build_into_a_store_has_the_bytes_of_a_local_one(
    s3: str, s3_server: S3, tmp_path: Path, own_folders: Path, workers: int, format: Any
) -> None:
    source = ps.splits(train=examples(), test=examples(3))
    built = ps.build(source, f"{s3}/data/numbers", shards=4, format=format, workers=workers)
    ps.build(source, tmp_path / "numbers", shards=4, format=format, workers=1)
    assert stored_files(folder_of(f"{s3}/data/numbers", s3_server)) == stored_files(tmp_path / "numbers")
    assert (built.path, built.written, built.leaks) == (f"{s3}/data/numbers", 7, 3)
    assert str(built.leaking[0]) == str(ps.build(source, tmp_path / "again", shards=4, workers=1).leaking[0])
    np.testing.assert_equal(built["train"][[5, 399]], ps.load(tmp_path / "numbers")["train"][[5, 399]])
    assert not list((own_folders / "penstock" / "builds").iterdir()), "nothing is left on this machine"


@pytest.mark.parametrize("bucket", ["s3", "gs", "az", "ais"], indirect=True)
def test_every_store_holds_datasets_and_tars(bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/data/numbers"
    ps.build(examples(), url, shards=4, workers=2)
    here = ps.build(examples(), tmp_path / "numbers", shards=4, workers=1)
    assert stored_files(url) == stored_files(tmp_path / "numbers")
    there = ps.load(url, cache=tmp_path / "cache")
    np.testing.assert_equal(there["train"][[5, 399]], here["train"][[5, 399]])
    for epoch in range(2):
        ours, theirs = (dataset["train"].shuffle(seed=7).batch(32).epoch(epoch) for dataset in (there, here))
        np.testing.assert_equal(list(ours), list(theirs))
    store, _ = open_store(bucket)
    members = [(f"{n:03}.{kind}", str(n).encode()) for n in range(20) for kind in ("cls", "txt")]
    store.send(write_tar(tmp_path / "train.tar", members), "tars/train-0.tar")
    samples = ps.load(f"{bucket}/tars/*.tar")["train"]
    assert samples[7]["cls"] == 7
    assert sorted(sample["txt"] for sample in samples.shuffle(seed=1)) == sorted(map(str, range(20)))
    missing = rf"expected the bucket {bucket.partition('://')[2]}-no, got nothing( \(404 \w+\))? - at {bucket}-no/"
    reaches = [lambda: ps.build(examples(1), f"{bucket}-no/data"), lambda: ps.load(f"{bucket}-no/*.tar")]
    if not bucket.startswith("ais://"):  # where HEAD of an object does not tell that there is no bucket
        reaches.append(lambda: ps.load(f"{bucket}-no/data"))
    for reach in reaches:
        with pytest.raises(ps.NotFoundError, match=missing):
            reach()


def test_a_dataset_is_brought_up_to_date(s3: str, s3_server: S3, tmp_path: Path) -> None:
    photos = tmp_path / "photos" / "a"
    photos.mkdir(parents=True)
    for number in range(20):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(photos / f"{number}.png")
    url = f"{s3}/numbers"
    build = lambda path: ps.build(ps.image_folder(tmp_path / "photos"), path, shards=4, workers=1)  # noqa: E731
    assert build(url).written == 4
    assert (build(url).written, build(url).kept) == (0, 4)
    Image.new("RGB", (4, 4), (0, 200, 0)).save(photos / "7.png")
    again = build(url)
    assert (again.written, again.kept) == (1, 3)
    build(tmp_path / "numbers")
    assert stored_files(folder_of(url, s3_server)) == stored_files(tmp_path / "numbers")


def test_streams_and_examples_that_become_many(s3: str, s3_server: S3, tmp_path: Path) -> None:
    for path in (f"{s3}/stream", tmp_path / "stream"):
        ps.build(lambda: iter(examples()), path, shards=3, workers=2)
    assert stored_files(folder_of(f"{s3}/stream", s3_server)) == stored_files(tmp_path / "stream")


def test_no_manifest_before_the_last_shard(s3: str, s3_faults: FaultProxy, s3_server: S3) -> None:
    ps.build(examples(), f"{s3}/a", shards=4, workers=1)
    names = [path.partition("?")[0].rpartition("/")[2] for path in s3_faults.requests]
    last = max(at for at, name in enumerate(names) if "tfrecord" in name and not name.startswith("0"))
    first = [at for at, name in enumerate(names) if name == "penstock.json" and at > 3]
    assert first
    assert min(first) > last - 5


def test_faults_do_no_harm(s3: str, s3_faults: FaultProxy, s3_server: S3, tmp_path: Path) -> None:
    for fault in (Answer(503), Cut(after=20)):
        s3_faults.spoil(fault, times=2, path="train.tfrecord-00001-of-00004")
        s3_faults.spoil(fault, times=2, path="penstock.json")
        s3_faults.spoil(fault, times=2, path="-shard.json")
    for path in (f"{s3}/numbers", tmp_path / "numbers"):
        ps.build(examples(), path, shards=4, workers=1)
    assert stored_files(folder_of(f"{s3}/numbers", s3_server)) == stored_files(tmp_path / "numbers")


BUILD = """
import sys
import numpy as np
import penstock as ps
ps.build([{"number": n, "data": np.full(200, n, np.float32)} for n in range(400)], sys.argv[1], shards=12, workers=1)
"""


@pytest.mark.parametrize("lines", [1, 4, 9, 14])
def test_a_build_that_is_killed_goes_on(s3: str, s3_server: S3, tmp_path: Path, lines: int) -> None:
    url, folder = f"{s3}/numbers", folder_of(f"{s3}/numbers", s3_server)
    process = subprocess.Popen([sys.executable, "-c", BUILD, url])
    while len(list((folder / ".build").glob("*.json")) if (folder / ".build").exists() else []) < lines:
        assert process.poll() is None or lines > 12
        if process.poll() is not None:
            break
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    noted = len(list((folder / ".build").glob("*-shard.json")))
    if not (folder / "penstock.json").exists():
        with pytest.raises(ps.NotFoundError):
            ps.load(url)
    again = ps.build(examples(), url, shards=12, workers=1)
    assert again.kept >= noted - 1 or again.written == 0
    ps.build(examples(), tmp_path / "numbers", shards=12, workers=1)
    assert stored_files(folder) == stored_files(tmp_path / "numbers")


def test_another_machine_goes_on(s3: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    def stop(state: Any) -> None:
        if state.stage == "writing" and state.examples >= 300:
            raise Stop

    with pytest.raises(Stop):
        ps.build(examples(), f"{s3}/numbers", shards=8, engine=ps.Local(workers=1, progress=stop))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    again = ps.build(examples(), f"{s3}/numbers", shards=8, workers=1)
    assert again.kept >= 2
    ps.build(examples(), tmp_path / "numbers", shards=8, workers=1)
    assert stored_files(folder_of(f"{s3}/numbers", s3_server)) == stored_files(tmp_path / "numbers")


def test_another_build_is_not_mixed_in(s3: str, s3_server: S3) -> None:
    url = f"{s3}/numbers"
    ps.build(examples(), url, shards=4, workers=1)
    with pytest.raises(ps.BuildError, match=rf"got another one: options shards was 4, is 2 - at {url}"):
        ps.build(examples(), url, shards=2, workers=1)
    built = ps.build(examples(50), url, shards=2, workers=1, overwrite=True)
    assert (len(built["train"]), built.written) == (50, 2)
    names = {path.name for path in folder_of(url, s3_server).iterdir()}
    assert not any("of-00004" in name for name in names), "shards of the one before are gone"
    (folder_of(url, s3_server) / "penstock.json").unlink()
    with pytest.raises(ps.BuildError, match="expected a new file, got one that Penstock did not write"):
        ps.build(examples(), url, shards=2, workers=1)


def test_readers_of_a_dataset_that_is_built_again_are_told(s3: str, tmp_path: Path) -> None:
    url = f"{s3}/numbers"
    ps.build(examples(), url, shards=4, workers=1)
    split = ps.load(url, cache=tmp_path)["train"]
    split[0]
    ps.build(examples(), url, shards=4, seed=1, workers=1, overwrite=True)
    with pytest.raises(ps.StorageError, match="Load"):
        split[399]
    with pytest.raises((ps.StorageError, ps.CorruptionError), match="Load"):
        list(split.batch(10))


def test_two_builds_at_once_give_one_dataset(s3: str, s3_server: S3, tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD, f"{s3}/numbers"],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / str(n))},
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    said = [process.communicate(timeout=60)[1] for process in running]
    ended = [process.returncode for process in running]
    assert 0 in ended or ps.build(examples(), f"{s3}/numbers", shards=12, workers=1), said
    for code, text in zip(ended, said, strict=True):
        assert code == 0 or "expected to be the only process that builds here" in text or "NotFound" in text, text
    ps.build(examples(), f"{s3}/numbers", shards=12, workers=1)
    ps.build(examples(), tmp_path / "numbers", shards=12, workers=1)
    assert stored_files(folder_of(f"{s3}/numbers", s3_server)) == stored_files(tmp_path / "numbers")


def test_a_task_that_runs_twice_at_once_does_no_harm(s3: str, s3_server: S3, tmp_path: Path) -> None:
    """What workers of several machines do: each writes for itself, and sends to the same name while the build is on."""
    store, _ = open_store(s3)
    store.publish("twice/.build/00000001-begin.json", b"{}")
    begun = Upload(f"{s3}/twice", ".build/00000001-begin.json", store.entry("twice/.build/00000001-begin.json").version)
    source = examples()
    built = ps.build(source, tmp_path / "numbers", shards=1, workers=1)
    job = Job(
        directory=tmp_path / "nowhere",
        sources={"train": as_source(source)},
        known={"train": None},
        schema=built.schema,
        declared=True,
        firm=True,
        formats=(ps.TFRecord(),),
        on_error="raise",
        chunk_bytes=1 << 20,
        upload=begun,
    )
    file = built.manifest.splits["train"][0].file
    rows = np.array([int(key) for key in (built["train"].key(n) for n in range(EXAMPLES)) if key is not None])
    task = Task("train", file, rows, [str(row) for row in rows])
    outcomes: list[Any] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(run_and_send(job, task, lambda *_: None))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes[0] == outcomes[1]
    sent = folder_of(f"{s3}/twice", s3_server) / file
    assert sent.read_bytes() == (tmp_path / "numbers" / file).read_bytes()
    sent.unlink()
    store.publish("twice/.build/00000001-begin.json", b'{"begin": "another"}')
    for _ in range(2):
        with pytest.raises(ps.BuildError, match="expected to send a shard to a build that is under way, got one that"):
            run_and_send(job, task, lambda *_: None)
        store.delete("twice/.build/00000001-begin.json")
    assert not sent.exists()


def test_what_a_killed_worker_has_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import sys, time\nfrom penstock.building.targets.store import own_folder\n"
    code += "with own_folder() as folder:\n    print(folder, flush=True)\n    time.sleep(60)\n"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    theirs = Path(process.stdout.readline().strip())
    with own_folder():
        assert theirs.exists(), "its process is at work"
    process.kill()
    process.communicate()
    with own_folder() as folder:
        assert [path.name for path in tmp_path.glob(f"{PREFIX}*")] == [folder.name]
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_convert_from_and_into_a_store(s3: str, s3_server: S3, tmp_path: Path) -> None:
    ps.build(examples(), tmp_path / "numbers", shards=3, workers=1)
    there = ps.convert(tmp_path / "numbers", f"{s3}/ar", format="array_record", workers=1)
    assert there.path == f"{s3}/ar"
    back = ps.convert(f"{s3}/ar", tmp_path / "back", shards=3, workers=1)
    shards = [path.name for path in (tmp_path / "numbers").glob("*tfrecord-*")]
    assert sorted(path.name.replace("back", "numbers") for path in (tmp_path / "back").glob("*tfrecord-*")) == sorted(
        shards
    )
    np.testing.assert_equal(back["train"][:], ps.load(tmp_path / "numbers")["train"][:])
    with pytest.raises(ps.SchemaError, match="expected another directory to convert into"):
        ps.convert(f"{s3}/ar", f"{s3}/ar/", workers=1)


def test_the_command_line_takes_urls(
    s3: str, s3_server: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv = tmp_path / "rows.csv"
    csv.write_text("a,b\n" + "".join(f"{n},{n * n}\n" for n in range(100)))
    url = f"{s3}/rows"

    def run(*arguments: str, code: int = 0) -> str:
        assert main(list(arguments)) == code
        said = capsys.readouterr()
        return said.out + said.err

    assert url in run("build", str(csv), url, "--workers", "1")
    assert json.loads(run("info", url, "--json"))["splits"]["train"]["examples"] == 100
    assert len(run("head", url, "-n", "3", "--json").splitlines()) == 3
    assert "a" in run("head", url, "-n", "1")
    assert json.loads(run("verify", url, "--json"))["whole"]
    assert "whole" in run("verify", url)
    run("convert", url, f"{s3}/other", "--format", "array_record", "--workers", "1")
    shard = next(
        path for path in folder_of(url, s3_server).glob("*tfrecord-*") if path.suffix not in (".index", ".keys")
    )
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    assert "damaged" in run("verify", url, code=1)
    shard.unlink()
    assert "expected a shard of" in run("info", url, code=1)


def test_one_file_in_a_store(s3: str) -> None:
    ps.build(examples(), f"{s3}/train.record")
    np.testing.assert_equal(np.sort(ps.load(f"{s3}/train.record")["train"][:]["number"]), np.arange(EXAMPLES))


def test_a_store_that_cannot_be_written_to_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ps.StorageError, match="a web server"):
        ps.build(examples(), "http://127.0.0.1:9/data/x")
