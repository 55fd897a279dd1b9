"""Sources that read stores: the same datasets as from local files, fetched in parallel, resumed, and checked again."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from services import FaultProxy, Nginx
from services.faults import Answer, Cut
from tests.support.built_datasets import stored_files
from tests.support.raw_data import save_image, write_raw

import penstock as ps
from penstock.cli import main
from penstock.storage.open import open_store


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a working directory of this test."""
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_raw(tmp_path_factory.mktemp("raw"))


def upload(folder: Path, url: str) -> str:
    """Copy a folder into a store."""
    store, name = open_store(url)

    def put(path: Path) -> None:
        below = path.relative_to(folder).as_posix()
        store.publish(f"{name}/{below}" if name else below, path.read_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, (path for path in sorted(folder.rglob("*")) if path.is_file())))
    return url


Sources = dict[str, Callable[[str], Any]]
LISTED: Sources = {
    "image_folder": lambda root: ps.image_folder(f"{root}/photos"),
    "image_folder_slash": lambda root: ps.image_folder(f"{root}/photos/"),
    "image_folder_splits": lambda root: ps.image_folder(f"{root}/splits"),
    "image_folder_glob": lambda root: ps.image_folder(f"{root}/photos/**/*.png"),
    "image_folder_resized": lambda root: ps.image_folder(f"{root}/photos", resize=ps.Image(max_side=4)),
    "jsonl_images": lambda root: ps.jsonl(f"{root}/rows.jsonl", image="picture"),
    "csv_glob": lambda root: ps.csv(f"{root}/row*.csv"),
    "csv_images_load": lambda root: ps.csv(f"{root}/rows.csv", image="picture", load=dict),
    "tfrecords_glob": lambda root: ps.tfrecords(f"{root}/part-*.tfrecord"),
    "tfrecords_numbers": lambda root: ps.tfrecords(f"{root}/part-{{0..}}.tfrecord"),
    "parquet_glob": lambda root: ps.parquet(f"{root}/rows-*.parquet"),
    "voc_detection": lambda root: ps.voc_detection(f"{root}/voc"),
    "voc_segmentation": lambda root: ps.voc_segmentation(f"{root}/voc"),
    "image_classification": lambda root: ps.image_classification(f"{root}/datum"),
    "text_classification": lambda root: ps.text_classification(f"{root}/texts"),
    "coco": lambda root: ps.coco(f"{root}/pictures", f"{root}/instances.json"),
}
NAMED: Sources = {  # without a listing, as web servers have none
    "csv": lambda root: ps.csv(f"{root}/rows.csv"),
    "csv_images": lambda root: ps.csv(f"{root}/rows.csv", image="picture", split="part"),
    "jsonl": lambda root: ps.jsonl(f"{root}/rows.jsonl"),
    "json": lambda root: ps.json(f"{root}/rows.json"),
    "json_images": lambda root: ps.json(f"{root}/rows.json", image="picture"),
    "parquet": lambda root: ps.parquet([f"{root}/rows-0.parquet", f"{root}/rows-1.parquet"]),
    "tfrecords": lambda root: ps.tfrecords(f"{root}/part-{{0..2}}.tfrecord"),
    "array_records": lambda root: ps.array_records(f"{root}/one.array_record"),
}


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a dataset, without what the examples were made from: that is another place."""
    found = stored_files(folder)
    manifest = json.loads(found.pop("penstock.json"))
    for split in manifest["splits"].values():
        split.pop("inputs", None)
    return {**found, "penstock.json": json.dumps(manifest).encode()}


def same_build(make: Callable[[str], Any], url: str, raw: Path, tmp_path: Path, workers: int = 2) -> ps.Built:
    built = ps.build(make(url), tmp_path / "out" / "data", shards=3, workers=workers)
    ps.build(make(str(raw)), tmp_path / "expected" / "data", shards=3, workers=1)
    assert contents(tmp_path / "out" / "data") == contents(tmp_path / "expected" / "data")
    return built


@pytest.mark.parametrize("name", [*LISTED, *NAMED])
def test_a_source_in_s3_builds_the_bytes_of_local_files(name: str, s3: str, raw: Path, tmp_path: Path) -> None:
    make = (LISTED | NAMED)[name]
    url = upload(raw, f"{s3}/deep/raw")
    same_build(make, url, raw, tmp_path)
    again = ps.build(make(url), tmp_path / "out" / "data", shards=3, workers=2)
    assert again.written == 0 or ps.build(make(str(raw)), tmp_path / "expected" / "data", shards=3, workers=1).written


@pytest.mark.parametrize("name", ["image_folder", "csv_images", "tfrecords_glob", "coco", "json_images"])
def test_a_source_in_aistore_builds_the_bytes_of_local_files(name: str, ais: str, raw: Path, tmp_path: Path) -> None:
    same_build((LISTED | NAMED)[name], upload(raw, f"{ais}/raw"), raw, tmp_path)


@pytest.mark.parametrize("bucket", ["gs", "az"], indirect=True)
def test_sources_in_other_stores(bucket: str, raw: Path, tmp_path: Path) -> None:
    url = upload(raw, f"{bucket}/raw")
    for name in ("image_folder", "csv_images", "tfrecords_numbers"):
        same_build((LISTED | NAMED)[name], url, raw, tmp_path / name)


@pytest.mark.parametrize("name", NAMED)
def test_a_source_on_a_web_server_builds_the_bytes_of_local_files(
    name: str, http_server: Nginx, raw: Path, tmp_path: Path
) -> None:
    shutil.copytree(raw, http_server.root / "raw", dirs_exist_ok=True)
    same_build(NAMED[name], f"{http_server.endpoint}/raw", raw, tmp_path)


# What stores do


def test_cut_connections_and_busy_servers_are_tried_again(
    s3: str, s3_faults: FaultProxy, raw: Path, tmp_path: Path
) -> None:
    url = upload(raw, f"{s3}/raw")
    for name in ("photos/cat/3.png", "photos/dog/8.png", "rows.csv", "part-1.tfrecord"):
        s3_faults.spoil(Cut(after=300), times=2, path=f"raw/{name}")
        s3_faults.spoil(Answer(503), times=1, path=f"raw/{name}")
    s3_faults.spoil(Cut(after=200), times=1, path="list-type=2")
    for name in ("image_folder", "csv", "tfrecords_glob"):
        same_build((LISTED | NAMED)[name], url, raw, tmp_path / name)


def test_objects_are_listed_once_and_read_once(s3: str, s3_faults: FaultProxy, raw: Path, tmp_path: Path) -> None:
    url = upload(raw, f"{s3}/raw")
    s3_faults.requests.clear()
    ps.build(ps.image_folder(f"{url}/photos"), tmp_path / "out", shards=3, workers=2)
    listings = [path for path in s3_faults.requests if "list-type=2" in path]
    images = [path for path in s3_faults.requests if ".png" in path]
    assert len(listings) == 1
    assert len(images) == len(set(images)) == 24
    s3_faults.requests.clear()
    again = ps.build(ps.image_folder(f"{url}/photos"), tmp_path / "out", shards=3, workers=2)
    assert again.written == 0
    assert not [path for path in s3_faults.requests if ".png" in path], "the listing has the ETags"


@pytest.mark.parametrize("name", ["image_folder", "csv_images", "jsonl_images", "coco", "voc_detection", "tfrecords"])
def test_a_changed_object_is_noticed(name: str, s3: str, raw: Path, tmp_path: Path) -> None:
    url = upload(raw, f"{s3}/raw")
    make = (LISTED | NAMED)[name]
    first = ps.build(make(url), tmp_path / "out" / "data", shards=4, workers=1)
    assert ps.build(make(url), tmp_path / "out" / "data", shards=4, workers=1).written in (0, first.written)
    other = tmp_path / "raw"
    shutil.copytree(raw, other)
    if name == "tfrecords":
        with ps.TFRecordWriter(other / "part-1.tfrecord") as writer:
            for number in range(10):
                writer.write(ps.Codec({"x": "int64"}).encode_example({"x": 500 + number}))
        (other / "part-1.tfrecord.index").unlink(missing_ok=True)
    else:
        for path in (other / "photos/cat/3.png", other / "pictures/3.png", other / "voc/JPEGImages/i3.png"):
            save_image(path, 99)
    time.sleep(1.1)  # the store's clock may have seconds
    upload(other, url)
    again = ps.build(make(url), tmp_path / "out" / "data", shards=4, workers=1)
    assert again.written
    ps.build(make(str(other)), tmp_path / "expected" / "data", shards=4, workers=1)
    assert contents(tmp_path / "out" / "data") == contents(tmp_path / "expected" / "data")


KILLED = """
import sys, time
import penstock as ps
from penstock.sources import image_folder as module
real = sys.modules["penstock.sources.image_folder"].read_files
def slow(paths):
    time.sleep(0.05)
    return real(paths)
sys.modules["penstock.sources.image_folder"].read_files = slow
ps.build(ps.image_folder(sys.argv[1]), sys.argv[2], shards=12, workers=int(sys.argv[3]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_build_goes_on(s3: str, raw: Path, tmp_path: Path, workers: int) -> None:
    url = upload(raw, f"{s3}/raw")
    out = tmp_path / "out" / "data"
    process = subprocess.Popen([sys.executable, "-c", KILLED, f"{url}/photos", str(out), str(workers)])
    while len(list((out / ".build").glob("*.tfrecord-*.keys"))) < 4 and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "penstock.json").exists()
    again = ps.build(ps.image_folder(f"{url}/photos"), out, shards=12, workers=workers)
    assert again.kept >= 1
    ps.build(ps.image_folder(raw / "photos"), tmp_path / "expected" / "data", shards=12, workers=1)
    assert contents(out) == contents(tmp_path / "expected" / "data")


def test_a_killed_build_of_plain_files_goes_on(s3: str, raw: Path, tmp_path: Path, own_folders: Path) -> None:
    url, out = upload(raw, f"{s3}/raw"), f"{s3}/out/part-{{00..}}.tfrecord"
    process = subprocess.Popen([sys.executable, "-c", KILLED, f"{url}/photos", out, "2"])
    while not list((own_folders / "penstock" / "builds").rglob("*.tfrecord-*.keys")) and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    store, _ = open_store(s3)
    assert not list(store.list("out")), "nothing is sent before all is written"
    ps.build(ps.image_folder(f"{url}/photos"), out, shards=12, workers=2)
    ps.build(ps.image_folder(raw / "photos"), tmp_path / "out" / "part-{00..}.tfrecord", shards=12, workers=1)
    expected = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {entry.name.removeprefix("out/"): store.read(entry.name) for entry in store.list("out")} == expected


def test_plain_files_that_were_half_sent_are_sent_again(s3: str, s3_faults: FaultProxy) -> None:
    rows, out = [{"x": n} for n in range(20)], f"{s3}/out/part-{{0..}}.tfrecord"
    s3_faults.spoil(Answer(403), times=1, path="part-3.tfrecord")
    with pytest.raises(ps.StorageError):
        ps.build(rows, out, shards=4, workers=1)
    assert list(open_store(s3)[0].list("out"))
    assert len(ps.build(rows, out, shards=4, workers=1)["train"]) == 20


def test_a_cache_smaller_than_the_files_is_enough(
    s3: str, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = upload(raw, f"{s3}/raw")
    largest = max(path.stat().st_size for path in raw.glob("part-*.tfrecord"))
    monkeypatch.setattr("penstock.storage.cache.MOST", largest + 10)
    same_build(LISTED["tfrecords_glob"], url, raw, tmp_path)
    cached = [path for path in (tmp_path / "home" / "penstock" / "shards").rglob("*.tfrecord") if path.is_file()]
    assert len(cached) <= 1


def test_errors_name_the_url(s3: str, raw: Path, tmp_path: Path) -> None:
    url = upload(raw, f"{s3}/raw")
    store, _ = open_store(s3)
    store.publish("bad/a/1.png", b"no image")
    store.publish("bad/rows.csv", b"a,b\n1,2\n3\n")
    store.publish("bad/rows.jsonl", b'{"a": 1}\n{"a": \n')
    store.publish("bad/rows.parquet", b"PAR1 not at all")
    store.publish("bad/list.csv", b"picture\n../raw/pictures/1.png\n")
    store.publish("bad/gone.csv", b"picture\nmissing.png\n")
    damaged = bytearray((raw / "part-0.tfrecord").read_bytes())
    damaged[20] ^= 255
    store.publish("bad/part-0.tfrecord", bytes(damaged))
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: ps.build(ps.image_folder(f"{s3}/bad"), tmp_path / "o"), f"{s3}/bad/a/1.png"),
        (lambda: ps.csv(f"{s3}/bad/rows.csv"), f"{s3}/bad/rows.csv:3"),
        (lambda: ps.jsonl(f"{s3}/bad/rows.jsonl")[1], f"{s3}/bad/rows.jsonl:2"),
        (lambda: ps.parquet(f"{s3}/bad/rows.parquet"), f"{s3}/bad/rows.parquet"),
        (lambda: ps.tfrecords(f"{s3}/bad/part-0.tfrecord", {"x": "int64"})[0], f"{s3}/bad/part-0.tfrecord"),
        (lambda: ps.csv(f"{s3}/bad/list.csv", image="picture")[0], f"expected a path below {s3}/bad"),
        (lambda: ps.csv(f"{s3}/bad/gone.csv", image="picture")[0], f"got nothing - at {s3}/bad/missing.png"),
        (lambda: ps.csv(f"{s3}/none.csv"), f"{s3}/none.csv"),
        (lambda: ps.image_folder(f"{s3}/none"), f"got nothing at {s3}/none"),
        (lambda: ps.image_folder(f"{s3}/raw/rows*"), f"{s3}/raw"),
        (lambda: ps.image_folder(f"{s3}-no/x"), f"{s3}-no"),
        (lambda: ps.voc_detection(f"{url}/photos"), f"{url}/photos/JPEGImages"),
    ]
    for attempt, where in cases:
        with pytest.raises(ps.PenstockError) as caught:
            attempt()
        assert where in str(caught.value)
        assert "home" not in str(caught.value), "no path of the cache"


def test_a_dataset_does_not_go_into_its_images(s3: str, raw: Path) -> None:
    url = upload(raw, f"{s3}/raw")
    with pytest.raises(ps.SchemaError, match="expected a path outside of the images"):
        ps.build(ps.image_folder(f"{url}/photos"), f"{url}/photos/out")


def test_a_web_server_cannot_list(http_server: Nginx) -> None:
    with pytest.raises(ps.StorageError, match="expected a store that lists its objects, got a web server"):
        ps.image_folder(f"{http_server.endpoint}/raw/photos")


def test_paths_in_a_catalog(s3: str, raw: Path, tmp_path: Path) -> None:
    url = upload(raw, f"{s3}/raw")
    catalog = tmp_path / "local.csv"
    catalog.write_text(f"picture,label\n{url}/pictures/1.png,1\npictures/2.png,2\n")
    rows = ps.csv(catalog, image="picture", root=url)
    assert rows[0]["image"] == (raw / "pictures/1.png").read_bytes()
    assert rows[1]["image"] == (raw / "pictures/2.png").read_bytes()
    with pytest.raises(ps.SchemaError, match="expected a path below"):
        ps.csv(catalog, image="picture")[0]


class Picture(ps.Example):
    """An example of a catalog."""

    name: ps.Skip[str]
    label: int
    size: int

    def load(self) -> None:
        self.size = len(self.name)


def picture(row: dict[str, Any]) -> Picture:
    return Picture(name=row["picture"], label=int(row["label"]))


def test_catalogs_of_example_classes(s3: str, raw: Path, tmp_path: Path) -> None:
    url = upload(raw, f"{s3}/raw")
    same_build(lambda root: ps.csv(f"{root}/rows.csv", key="picture", load=picture), url, raw, tmp_path)


@pytest.mark.parametrize("source", ["photos", "part-*.tfrecord", "rows.csv", "rows.jsonl", "rows-0.parquet"])
def test_the_command_line_recognises_urls(
    source: str, s3: str, raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = upload(raw, f"{s3}/raw")
    assert main(["build", f"{url}/{source}", str(tmp_path / "out" / "data"), "--shards", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["build", str(raw / source), str(tmp_path / "expected" / "data"), "--shards", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == told["source"]
    assert contents(tmp_path / "out" / "data") == contents(tmp_path / "expected" / "data")


def test_a_build_from_a_store_into_a_store(s3: str, raw: Path, tmp_path: Path) -> None:
    url = upload(raw, f"{s3}/raw")
    built = ps.build(ps.image_folder(f"{url}/photos"), f"{s3}/photos", shards=3, workers=2)
    expected = ps.build(ps.image_folder(raw / "photos"), tmp_path / "photos", shards=3, workers=1)
    assert sum(map(len, built.values())) == len(expected["train"]) == 24
    store, _ = open_store(s3)
    for path in (tmp_path / "photos").glob("*.tfrecord-*"):
        assert store.read(f"photos/{path.name}") == path.read_bytes()


def test_downloads_stay_within_the_memory_budget(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        path = tmp_path / "large" / "a" / f"{number}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (512, 512), (number, 0, 0)).save(path)  # 768 KiB
    url = upload(tmp_path / "large", f"{s3}/large")
    module = sys.modules["penstock.sources.image_folder"]
    real, sizes = module.read_files, []

    def noted(paths: list[str]) -> list[bytes]:
        found = real(paths)
        sizes.append(sum(map(len, found)))
        return found

    monkeypatch.setattr(module, "read_files", noted)
    engine = ps.Local(workers=1, max_memory=16 << 20)
    ps.build(ps.image_folder(url), tmp_path / "out", engine=engine, shards=2)
    assert sum(sizes) >= 20 * 512 * 512 * 3
    assert max(sizes) <= engine.chunk_bytes, "what is downloaded at a time fits into a worker's chunk"


@pytest.mark.parametrize("path", ["out", "part-{0..}.tfrecord"])
def test_invalid_examples_are_kept_in_the_store(
    path: str, s3: str, raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = upload(raw, f"{s3}/raw")
    open_store(s3)[0].publish("raw/photos/cat/bad.png", b"no image")
    assert main(["build", f"{url}/photos", f"{s3}/{path}", "--on-error", "quarantine"]) == 0
    kept = "out/quarantine.jsonl" if path == "out" else "part-0...tfrecord.quarantine.jsonl"
    assert f"{s3}/{kept}" in capsys.readouterr().out.replace("\n", "")
    assert b"raw/photos/cat/bad.png" in open_store(s3)[0].read(kept)
