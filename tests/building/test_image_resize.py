"""Images that are stored smaller than their files: what becomes of them, held against Pillow."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image as Pillow

import penstock as ps
from penstock.cli import cli

SMALL = ps.Image(max_side=32)


def picture(format: str, mode: str, size: tuple[int, int]) -> bytes:
    width, height = size
    ramp = np.add.outer(np.linspace(0, 120, height), np.linspace(0, 120, width)).astype(np.uint8)
    image = Pillow.merge(mode, [Pillow.fromarray(ramp)] * len(mode)) if len(mode) > 1 else Pillow.fromarray(ramp)
    file = io.BytesIO()
    image.save(file, format)
    return file.getvalue()


def folder(root: Path, count: int = 24) -> Path:
    for number in range(count):
        path = root / "photos" / f"class-{number % 3}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture("JPEG", "RGB", (40 + number, 20 + 2 * number)))
    return root / "photos"


@pytest.mark.parametrize(
    ("format", "mode", "stored"),
    [
        ("JPEG", "RGB", "JPEG"),
        ("JPEG", "L", "JPEG"),
        ("PNG", "RGBA", "PNG"),
        ("PNG", "L", "PNG"),
        ("BMP", "RGB", "PNG"),
    ],
)
def test_it_has_the_size_and_its_channels(format: str, mode: str, stored: str) -> None:
    data = picture(format, mode, (64, 48))
    small = Pillow.open(io.BytesIO(SMALL.resize(data)))
    assert (small.format, small.mode, small.size) == (stored, mode, (32, 24))
    expected = Pillow.open(io.BytesIO(data)).resize((32, 24), Pillow.Resampling.BILINEAR)
    apart = np.abs(np.asarray(small).astype(int) - np.asarray(expected).astype(int))
    assert apart.mean() < 2
    assert apart.max() < 12


def test_what_is_small_enough_stays_byte_for_byte() -> None:
    data = picture("JPEG", "RGB", (32, 20))
    assert SMALL.resize(data) == data


def test_a_build_stores_them_smaller(tmp_path: Path) -> None:
    photos = folder(tmp_path)
    found = []
    for workers in (1, 3):
        path = tmp_path / str(workers) / "toy"
        ps.build(ps.image_folder(photos, resize=SMALL), path, shards=2, workers=workers)
        found.append({file.name: file.read_bytes() for file in path.glob("*.tfrecord-*")})
        for example in ps.load(path, decode=False)["train"]:
            assert max(Pillow.open(io.BytesIO(example["image"])).size) <= 32
    assert found[0] == found[1]


def test_another_size_is_another_build(tmp_path: Path) -> None:
    photos, path = folder(tmp_path), tmp_path / "toy"
    for size in (None, ps.Image(max_side=32), ps.Image(max_side=16)):
        built = ps.build(ps.image_folder(photos, resize=size), path, shards=2)
        assert built.written == 2
        sides = [max(image.shape) for image in (example["image"] for example in ps.load(path)["train"])]
        assert max(sides) == (66 if size is None else size.max_side)
    assert ps.build(ps.image_folder(photos, resize=ps.Image(max_side=16)), path, shards=2).written == 0


def test_a_broken_one_is_named_and_chance_is_refused(tmp_path: Path) -> None:
    photos = folder(tmp_path)
    with pytest.raises(ps.PenstockError, match=r"without random crops and flips.*0\.jpg"):
        ps.image_folder(photos, resize=ps.Image(size=(8, 8), crop="random"))[0]
    broken = photos / "class-1" / "1.jpg"
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(ps.ExampleError, match=r"class-1/1\.jpg"):
        ps.build(ps.image_folder(photos, resize=SMALL), tmp_path / "toy")


def test_the_command_line_has_it_for_folders_of_images(tmp_path: Path) -> None:
    photos = folder(tmp_path)
    done = CliRunner().invoke(cli, ["build", str(photos), str(tmp_path / "toy"), "--max-side", "32", "-q"])
    assert done.exit_code == 0, done.output
    assert max(max(example["image"].shape) for example in ps.load(tmp_path / "toy")["train"]) == 32
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    asked = ["build", str(tmp_path / "rows.csv"), str(tmp_path / "other"), "--max-side", "32"]
    refused = CliRunner().invoke(cli, asked)
    assert refused.exit_code == 2
    assert "--max-side is for a folder of images" in refused.output
