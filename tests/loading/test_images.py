"""Images of a dataset: decoded or as bytes, alone or in batches, mapped, cached, cropped at random and resumed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import penstock as ps

COUNT = 24


def pixels(number: int) -> Any:
    """Smooth, of a size of its own, and told apart by its first channel."""
    height, width = 20 + number % 5, 30 + number % 3
    y, x = np.mgrid[:height, :width]
    return np.stack([np.full_like(x, 10 * number), 4 * x, 6 * y], -1).clip(0, 255).astype(np.uint8)


def png(array: Any) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(array).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "photos"
    schema = {"image": ps.Field(dtype="bytes", kind="image"), "id": "int64"}
    rows = [{"image": png(pixels(i)), "id": i} for i in range(COUNT)]
    ps.build(rows, path, shards=2, schema=schema, order="source")
    return path


def test_images_become_arrays(folder: Path) -> None:
    train = ps.load(folder)["train"]
    for number in (0, 7, COUNT - 1):
        np.testing.assert_array_equal(train[number]["image"], pixels(number))
    batch = train[3:6]["image"]
    assert isinstance(batch, ps.Ragged)
    for row, number in zip(batch, range(3, 6), strict=True):
        np.testing.assert_array_equal(row, pixels(number))
    for loader in (train.batch(5), train.map(lambda row: {**row, "more": 1}).batch(5), train.cache().batch(5),
                   train.filter(lambda row: True).batch(5)):  # fmt: skip
        for _ in range(2):
            seen = [image for each in loader for image in each["image"]]
            assert len(seen) == COUNT
            for number, image in enumerate(seen):
                np.testing.assert_array_equal(image, pixels(number))


def test_images_can_be_left_as_they_are(folder: Path) -> None:
    for train in (ps.load(folder, decode=False)["train"], ps.load(folder)["train"].decode(False)):
        assert next(iter(train))["image"] == png(pixels(0))
        assert next(iter(train.batch(3)))["image"].to_list() == [png(pixels(i)) for i in range(3)]


def test_one_size_is_one_array(folder: Path) -> None:
    small = ps.Image(size=(8, 12))
    for train in (ps.load(folder, decode={"image": small})["train"], ps.load(folder)["train"].decode(image=small)):
        loaders: list[Any] = [train.batch(4), train.map(lambda row: row).batch(4), train.cache().batch(4)]
        first = [next(iter(loader))["image"] for loader in loaders]
        assert [each.shape for each in first] == [(4, 8, 12, 3)] * 3
        assert (first[0] == first[1]).all()
        assert (first[0] == first[2]).all()
    assert "decode(image=image(size=(8, 12)))" in repr(ps.load(folder)["train"].decode(image=small))


def test_a_map_may_make_them_equal(folder: Path) -> None:
    def cut(row: dict[str, Any]) -> dict[str, Any]:
        row["image"] = row["image"][:10, :10]
        return row

    train = ps.load(folder)["train"]
    for loader in (
        train.map(cut).batch(4),
        train.map(cut).filter(lambda row: True).batch(4),
        train.map(cut).cache().batch(4),
    ):
        assert [batch["image"].shape for batch in loader] == [(4, 10, 10, 3)] * 6


def test_random_crops_are_the_same_again(folder: Path) -> None:
    train = ps.load(folder)["train"].decode(image=ps.Image(size=(8, 8), crop="random", flip=0.5, seed=3)).shuffle(5)
    whole = [batch["image"] for batch in train.batch(4)]
    for threads in (1, 3):
        again = [batch["image"] for batch in train.prefetch(threads=threads).batch(4)]
        assert all((a == b).all() for a, b in zip(whole, again, strict=True))
    assert not all((a == b["image"]).all() for a, b in zip(whole, train.epoch(1).batch(4), strict=True))
    with iter(train.batch(4)) as iterator:
        next(iterator)
        next(iterator)
        state = iterator.state()
    rest = [batch["image"] for batch in train.batch(4).resume(state)]
    assert all((a == b).all() for a, b in zip(whole[2:], rest, strict=True))
    hosts = [np.concatenate([batch["image"] for batch in train.shard(host, 3).batch(4)]) for host in range(3)]
    flat = np.concatenate(whole)
    for host, images in enumerate(hosts):  # a host crops as it would have been done elsewhere
        assert (images == flat[host::3]).all()
    some = [batch["image"] for number in range(4) for batch in [next(iter(train.batch(2).skip(number)))]]
    assert (np.concatenate(some) == flat[:8]).all()


def test_a_broken_image_is_named(folder: Path, tmp_path: Path) -> None:
    rows = [{"image": png(pixels(i))[: None if i != 5 else 60], "id": i} for i in range(10)]
    schema = {"image": ps.Field(dtype="bytes", kind="image"), "id": "int64"}
    ps.build(rows, tmp_path / "broken", schema=schema, order="source")
    train = ps.load(tmp_path / "broken")["train"]
    readers: list[Any] = [lambda: train[5], lambda: train[3:8], lambda: list(train.batch(4))]
    for read in readers:
        with pytest.raises(ps.PenstockError, match=r"broken-train.*record 5.*key '5'"):
            read()
    assert train[4]["id"] == 4
    skipping = ps.load(tmp_path / "broken", on_error="skip")["train"]
    iterator = iter(skipping.batch(4))
    assert [i for batch in iterator for i in batch["id"].tolist()] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert iterator.skipped[0].key == "5"


def test_what_makes_no_sense_is_said(folder: Path) -> None:
    with pytest.raises(ps.ArgumentError, match=r"no image field 'imag' - at decode. Did you mean 'image'"):
        ps.load(folder, decode={"imag": ps.Image()})
    with pytest.raises(ps.ArgumentError, match="no image field 'id'"):
        ps.load(folder)["train"].decode(id=ps.Image())
    with pytest.raises(ps.ArgumentError, match=r"expected True, False or Image\(...\), got tuple"):
        ps.load(folder, decode={"image": (224, 224)})
    with pytest.raises(ps.ArgumentError, match="expected True, False or options by field, got int"):
        ps.load(folder, decode=224)  # type: ignore[arg-type]


def test_a_state_of_another_size_is_refused(folder: Path) -> None:
    train = ps.load(folder)["train"]
    state = iter(train.decode(image=ps.Image(size=(8, 8))).batch(4)).state()
    with pytest.raises(ps.SchemaError, match=r"size=\(9, 9\).*got one of decode\(image=image\(size=\(8, 8\)\)\)"):
        train.decode(image=ps.Image(size=(9, 9))).batch(4).resume(state)
