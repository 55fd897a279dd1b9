"""TIFF images: the pixels that Pillow gives, and errors that name what is not supported."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock._core import decode_image, image_header

Image = pytest.importorskip("PIL.Image")
MODES = ["1", "L", "LA", "RGB", "RGBA", "I;16"]
COMPRESSIONS = [None, "tiff_lzw", "tiff_adobe_deflate", "packbits"]


def picture(mode: str, height: int = 23, width: int = 37) -> Any:
    rng = np.random.default_rng(7)
    rgb = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 65536, (height, width), dtype=np.uint16))
    if mode in ("LA", "RGBA"):
        alpha = rng.integers(0, 256, (height, width, 1), dtype=np.uint8)
        return Image.fromarray(np.concatenate([rgb[..., : len(mode) - 1], alpha], axis=2), mode)
    return Image.fromarray(rgb).convert(mode)


def saved(image: Any, compression: str | None = None, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "TIFF", compression=compression, **options)
    return out.getvalue()


def expected(image: Any) -> np.ndarray[Any, Any]:
    if image.mode.startswith("I;16"):
        return (np.asarray(image) >> 8).astype(np.uint8)[..., None]
    shown = image.convert({"1": "L"}.get(image.mode, image.mode))
    return np.asarray(shown).reshape(image.height, image.width, -1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_pixels_are_those_of_pillow(mode: str, compression: str | None) -> None:
    image = picture(mode)
    file = saved(image, compression)
    assert image_header(file, "x.tif") == ("TIFF", 37, 23)
    np.testing.assert_array_equal(decode_image(file, channels=None), expected(image))


def test_big_endian_files_and_jpeg_compression() -> None:
    image = picture("RGB")
    little = saved(image)
    assert little[:2] == b"II"
    grey = Image.fromarray(np.full((16, 16), 77, np.uint8))
    assert abs(decode_image(saved(grey, "jpeg"), channels=1).astype(int) - 77).max() <= 2
    # A 2 x 1 image of one strip of 16 bits, big endian, made by hand.
    tags = [(256, 2), (257, 1), (258, 16), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 4)]
    entries = b"".join(tag.to_bytes(2, "big") + b"\0\4\0\0\0\1" + value.to_bytes(4, "big") for tag, value in tags)
    file = b"MM\0*\0\0\0\x0c" + b"\x12\x34\xab\xcd" + len(tags).to_bytes(2, "big") + entries + bytes(4)
    np.testing.assert_array_equal(decode_image(file, channels=1), [[[0x12], [0xAB]]])


@pytest.mark.parametrize(("mode", "named"), [("CMYK", "CMYK"), ("F", "32"), ("LAB", "Lab"), ("P", "RGBPalette")])
def test_other_variants_are_named(mode: str, named: str) -> None:
    image = picture("L").convert("RGB") if mode == "LAB" else picture("L").convert(mode)
    if mode == "LAB":
        image = Image.merge("LAB", image.split())
    with pytest.raises(ps.CorruptionError, match="TIFF image, got one that is not supported") as caught:
        decode_image(saved(image), channels=None)
    assert named in str(caught.value)
    assert "Convert it" in str(caught.value)


def test_damage_is_an_error() -> None:
    whole = saved(picture("RGB"), "tiff_lzw")
    rng = np.random.default_rng(3)
    for length in range(0, len(whole), 97):
        with pytest.raises(ps.CorruptionError):
            decode_image(whole[:length], channels=3)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        with contextlib.suppress(ps.CorruptionError):
            assert decode_image(bytes(damaged), channels=3).shape[2] == 3


def test_folders_of_tiff_images_are_built_and_loaded(tmp_path: Path) -> None:
    for name, suffix in (("cat", ".tif"), ("dog", ".TIFF")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "photos" / name / f"{number}{suffix}").write_bytes(saved(picture("RGB", 20 + number)))
    ps.build(ps.image_folder(tmp_path / "photos"), tmp_path / "out")
    ds = ps.load(tmp_path / "out")["train"]
    assert sorted(example["image"].shape for example in ds) == sorted((20 + n, 37, 3) for n in range(3) for _ in "ab")
    batch = next(iter(ps.load(tmp_path / "out", decode={"image": ps.Image(size=(8, 8))})["train"].batch(6)))
    assert batch["image"].shape == (6, 8, 8, 3)


def test_bytes_of_tiff_files_are_images() -> None:
    assert str(ps.Schema.infer([{"a": saved(picture("L"))}])["a"].kind) == "image"  # type: ignore[union-attr]
