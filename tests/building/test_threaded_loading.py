"""What the core loads by itself: on threads, in order, with the same bytes; bad ones are named as elsewhere."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.support.built_datasets import contents

import penstock as ps
from penstock.sources.protocol import BatchSource
from penstock.thread_pool import ordered_map


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order(threads: int) -> None:
    def double(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        if number == 17:
            raise ValueError("no such number")
        return 2 * number

    found = []
    for number, result in ordered_map(double, range(40), threads):
        try:
            found.append((number, result()))
        except ValueError:
            found.append((number, -1))
    assert found == [(number, 2 * number if number != 17 else -1) for number in range(40)]


def test_items_are_asked_for_no_further_ahead_than_threads_work() -> None:
    asked: list[int] = []

    def items() -> Any:
        for number in range(50):
            asked.append(number)
            yield number

    for number, result in ordered_map(str, items(), 3):
        assert result() == str(number)
        assert len(asked) <= number + 5


@pytest.mark.alone
def test_who_stops_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    for _ in ordered_map(lambda number: time.sleep(0.001), range(1000), 3):
        break
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def photos(root: Path, count: int = 60) -> Path:
    for number in range(count):
        path = root / "photos" / f"class-{number % 3}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (8 + number % 5, 9, 3), dtype=np.uint8)
        file = io.BytesIO()
        Pillow.fromarray(pixels).save(file, "JPEG")
        path.write_bytes(file.getvalue())
    return root / "photos"


def test_images_give_the_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    folder = photos(tmp_path)
    found = []
    for workers in (1, 2, 5):
        built = ps.build(ps.image_folder(folder), tmp_path / str(workers) / "toy", shards=3, workers=workers)
        found.append(contents(built.path))
    assert found[0] == found[1] == found[2]
    whole = {example["image"] for example in ps.load(tmp_path / "1" / "toy", decode=False)["train"]}
    assert whole == {path.read_bytes() for path in folder.glob("*/*.jpg")}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-2]), "no end marker"),
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.unlink() or path.symlink_to("nowhere"), "got nothing at"),
    ],
)
def test_a_broken_image_is_named_and_the_others_are_kept(
    tmp_path: Path, workers: int, damage: Any, message: str
) -> None:
    folder = photos(tmp_path)
    damage(folder / "class-1" / "31.jpg")
    source = ps.image_folder(folder)
    with pytest.raises(ps.ExampleError, match=message) as caught:
        ps.build(source, tmp_path / "out", workers=workers)
    assert (caught.value.key, caught.value.split) == ("class-1/31.jpg", "train")
    assert str(folder / "class-1" / "31.jpg") in str(caught.value)
    built = ps.build(source, tmp_path / "out", workers=workers, on_error="quarantine", overwrite=True)
    assert (len(built["train"]), built.bad) == (59, 1)
    (line,) = (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()
    assert json.loads(line)["key"] == "class-1/31.jpg"


def test_a_part_of_a_folder_is_loaded_at_once_too(tmp_path: Path) -> None:
    source = ps.split(ps.image_folder(photos(tmp_path)), train=0.5, test=0.5, seed=3)
    built = ps.build(source, tmp_path / "out", workers=2)
    for name, part in source.items():
        keys = [part.key(number) for number in range(len(part))]
        assert {example["image"] for example in ps.load(built.path, decode=False)[name]} == {
            (tmp_path / "photos" / key).read_bytes() for key in keys
        }


@pytest.mark.parametrize("workers", [1, 3])
def test_the_images_of_a_catalog_are_loaded_at_once(tmp_path: Path, workers: int) -> None:
    folder = photos(tmp_path)
    names = sorted(path.relative_to(tmp_path).as_posix() for path in folder.glob("*/*.jpg"))
    lines = [f"{name},{number},{'' if number % 7 else number / 2}" for number, name in enumerate(names)]
    (tmp_path / "all.csv").write_text("\n".join(["file,number,half", *lines]))
    source = ps.csv(tmp_path / "all.csv", image="file")
    assert isinstance(source, BatchSource)
    built = ps.build(source, tmp_path / "out", workers=workers)
    stored = {int(example["number"]): example for example in ps.load(built.path, decode=False)["train"]}
    for number, name in enumerate(names):
        assert stored[number]["image"] == (tmp_path / name).read_bytes()
        assert stored[number]["half"] == (None if number % 7 else number / 2)
    (tmp_path / names[33]).write_bytes(b"no image")
    with pytest.raises(ps.ExampleError, match=r"got text that begins with .no image.") as caught:
        ps.build(source, tmp_path / "out", workers=workers, overwrite=True)
    assert names[33] in str(caught.value)
    assert f"{tmp_path / 'all.csv'}:35" in str(caught.value)
    assert not isinstance(ps.csv(tmp_path / "all.csv", image="file", load=dict), BatchSource)


@pytest.mark.alone
@pytest.mark.parametrize("thread", [0, 1])
def test_who_stops_is_waited_for_no_longer_than_a_chunk(tmp_path: Path, thread: int) -> None:
    told: list[int] = []
    threads: list[int] = []
    raised: list[int] = []

    def interrupt(state: Any) -> None:
        if state.stage != "writing":
            return
        told.append(state.examples)
        if threading.get_ident() not in threads:
            threads.append(threading.get_ident())
        if threads[thread:] == [threading.get_ident()]:
            raised.append(len(told))
            raise KeyboardInterrupt

    table = ps.table({"number": np.arange(2_000_000)})
    with pytest.raises(KeyboardInterrupt, match="finished shards are kept"):
        ps.build(table, tmp_path / "toy", shards=4, engine=ps.Local(workers=2, progress=interrupt))
    assert len(told) - raised[0] <= 3, "the other task stopped too"
    before = threading.active_count()
    built = ps.build(table, tmp_path / "toy", shards=4, workers=2)
    assert (len(built["train"]), threading.active_count()) == (2_000_000, before)
    assert not list((tmp_path / "toy").glob("**/*.partial"))
