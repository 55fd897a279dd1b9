"""Images decoded in the core, against Pillow and TensorFlow; crops by arithmetic; damage."""

from __future__ import annotations

import io
import math
import random
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow
from PIL import features

import penstock as ps
from penstock import _core

JPEG, PNG, WEBP, GIF, BMP = "JPEG", "PNG", "WEBP", "GIF", "BMP"
PLAIN = ps.Image()
STORED = ps.Image(channels=None)


def scene(height: int = 75, width: int = 100, mode: str = "RGB") -> Any:
    """Something like a photo: smooth, with edges and a little noise."""
    y, x = np.mgrid[:height, :width]
    noise = np.random.default_rng(height * 1000 + width)
    layers = [
        127 + 100 * np.sin(x / 17 + y / 31),
        255 * y / height,
        np.where((x - width / 3) ** 2 + (y - height / 2) ** 2 < (height / 4) ** 2, 220, 40),
        255 * x / width,
    ]
    pixels = np.stack(layers, -1) + noise.normal(0, 3, (height, width, 4))
    rgba = Pillow.fromarray(pixels.clip(0, 255).astype(np.uint8), "RGBA")
    return rgba if mode == "RGBA" else rgba.convert("RGB").convert(mode)


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pillow(data: bytes, mode: str = "RGB") -> Any:
    return np.asarray(Pillow.open(io.BytesIO(data)).convert(mode))


def difference(ours: Any, theirs: Any) -> tuple[float, int]:
    """Mean and maximum."""
    assert ours.shape == theirs.shape
    apart = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    return float(apart.mean()), int(apart.max())


# Formats


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        (PNG, "RGB", {}),
        (PNG, "L", {}),
        (PNG, "1", {}),
        (PNG, "P", {}),
        (PNG, "RGBA", {}),
        (PNG, "LA", {}),
        (BMP, "RGB", {}),
        (BMP, "L", {}),
        (BMP, "1", {}),
        (BMP, "P", {}),
        (GIF, "P", {}),
        (GIF, "L", {}),
        (WEBP, "RGB", {"lossless": True}),
        (WEBP, "RGBA", {"lossless": True, "exact": True}),
    ],
)
@pytest.mark.parametrize("size", [(75, 100), (1, 1), (3, 17)])
def test_formats_without_loss_are_pillows(kind: str, mode: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    data = encoded(scene(*size, mode), kind, **options)
    np.testing.assert_array_equal(PLAIN.decode(data), pillow(data))
    np.testing.assert_array_equal(ps.Image(channels=4).decode(data), pillow(data, "RGBA"))
    np.testing.assert_array_equal(ps.Image(channels=1).decode(data)[..., 0], pillow(data, "L"))


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"subsampling": "4:4:4"}),
        ("RGB", {"subsampling": "4:2:2"}),
        ("RGB", {"subsampling": "4:2:0"}),
        ("RGB", {"subsampling": "4:2:0", "progressive": True}),
        ("RGB", {"subsampling": "4:2:0", "restart_marker_rows": 1}),
        ("RGB", {"keep_rgb": True}),
        ("L", {}),
        ("L", {"progressive": True}),
        ("CMYK", {}),
    ],
)
@pytest.mark.parametrize("size", [(75, 100), (64, 64), (1, 1), (9, 33)])
def test_jpegs_are_near_pillows(mode: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    data = encoded(scene(*size, mode), JPEG, quality=90, **options)
    mean, most = difference(PLAIN.decode(data), pillow(data))
    assert mean < 1.0
    assert most <= 30
    mean, most = difference(ps.Image(channels=1).decode(data)[..., 0], pillow(data, "L"))
    assert mean < 1.0
    assert most <= 12


def test_lossy_webp_is_near_pillows() -> None:
    data = encoded(scene(), WEBP, quality=90)
    mean, most = difference(PLAIN.decode(data), pillow(data))
    assert mean < 0.1
    assert most <= 2


def test_channels_as_stored() -> None:
    stored = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "P": 3, "1": 1}
    for mode, channels in stored.items():
        assert STORED.decode(encoded(scene(5, 7, mode), PNG)).shape == (5, 7, channels), mode
    assert STORED.decode(encoded(scene(5, 7, "L"), JPEG)).shape == (5, 7, 1)
    assert STORED.decode(encoded(scene(5, 7, "CMYK"), JPEG)).shape == (5, 7, 3)


def test_sixteen_bits_become_their_upper_eight() -> None:
    deep = (np.arange(35, dtype=np.uint16) * 1871).reshape(5, 7)
    data = encoded(Pillow.fromarray(deep), PNG)
    np.testing.assert_array_equal(ps.Image(channels=1).decode(data)[..., 0], (deep >> 8).astype(np.uint8))


def test_animations_give_their_first_frame() -> None:
    frames = [scene(20, 30), scene(20, 30).transpose(Pillow.Transpose.FLIP_LEFT_RIGHT)]
    for kind, options in ((GIF, {}), (PNG, {}), (WEBP, {"lossless": True})):
        if kind == WEBP and not features.check("webp"):
            continue
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        np.testing.assert_array_equal(PLAIN.decode(data), pillow(data))


def test_interlaced_files_are_whole() -> None:
    data = encoded(scene(20, 30).convert("P"), GIF, interlace=1)
    np.testing.assert_array_equal(PLAIN.decode(data), pillow(data))


def test_orientation_is_ignored() -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    turned = encoded(scene(), JPEG, exif=exif)
    assert PLAIN.decode(turned).shape == (75, 100, 3)


# TensorFlow


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def test_jpegs_are_near_tensorflows(tf: Any) -> None:
    for options in ({"subsampling": "4:4:4"}, {"subsampling": "4:2:0"}, {"progressive": True}):
        data = encoded(scene(), JPEG, quality=90, **options)
        for channels, near in ((3, 1.0), (1, 0.1)):
            theirs = tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE").numpy()
            mean, most = difference(ps.Image(channels=channels).decode(data), theirs)
            assert mean < near
            assert most <= 30 * near


def test_pngs_are_tensorflows(tf: Any) -> None:
    for mode in ("L", "RGB", "RGBA", "P"):
        data = encoded(scene(20, 30, mode), PNG)
        for channels in (3, 4):
            theirs = tf.io.decode_png(data, channels=channels).numpy()
            np.testing.assert_array_equal(ps.Image(channels=channels).decode(data), theirs)


def test_resizing_is_near_tensorflows(tf: Any) -> None:
    data = encoded(scene(), PNG)
    whole = tf.io.decode_png(data)
    for size in ((32, 32), (60, 90), (150, 90)):
        theirs = tf.image.resize(whole, size, antialias=True).numpy()
        apart = np.abs(ps.Image(size=size).decode(data) - theirs)
        assert apart.mean() < 0.5  # theirs are not rounded
        assert apart.max() < 1.6


# Sizes


@pytest.mark.parametrize("size", [(32, 32), (60, 90), (150, 90), (1, 1), (75, 7)])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_resizing_is_near_pillows(size: tuple[int, int], mode: str) -> None:
    image = scene(mode=mode)
    ours = ps.Image(size=size, channels=len(mode) if mode != "L" else 1).decode(encoded(image, PNG))
    theirs = np.asarray(image.resize(size[::-1], Pillow.Resampling.BILINEAR)).reshape(ours.shape)
    if mode == "RGBA":  # a colour counts as much as it is opaque
        assert difference(ours[..., 3], theirs[..., 3])[1] <= 1
        ours, theirs = (pixels[..., :3].astype(np.int64) * pixels[..., 3:] // 255 for pixels in (ours, theirs))
    assert difference(ours, theirs)[1] <= (1 if mode != "RGBA" else 2)


def test_the_longer_side_only_shrinks() -> None:
    data = encoded(scene(), PNG)
    assert ps.Image(max_side=50).decode(data).shape == (38, 50, 3)
    np.testing.assert_array_equal(ps.Image(max_side=100).decode(data), PLAIN.decode(data))


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_center_crops_by_arithmetic(height: int, width: int, high: int, wide: int) -> None:
    whole = scene(height, width)
    ours = ps.Image(size=(high, wide), crop="center").decode(encoded(whole, PNG))
    cropped_width, cropped_height = round(height * wide / high), height
    if cropped_width > width:
        cropped_width, cropped_height = width, round(width / (wide / high))
    cropped_width, cropped_height = max(1, cropped_width), min(height, max(1, cropped_height))
    left, top = (width - cropped_width) // 2, (height - cropped_height) // 2
    part = whole.crop((left, top, left + cropped_width, top + cropped_height))
    assert difference(ours, np.asarray(part.resize((wide, high), Pillow.Resampling.BILINEAR)))[1] <= 1


class SplitMix:
    """The numbers of the core, again."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        mask = 2**64 - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        value = self.state
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & mask
        return value ^ value >> 31

    def unit(self) -> float:
        return (self.next() >> 11) / 2**53

    def below(self, limit: int) -> int:
        return self.next() * limit >> 64


def random_area(height: int, width: int, seed: int, options: ps.Image) -> tuple[bool, tuple[int, int, int, int]]:
    """Whether to flip, and (top, left, height, width): torchvision's RandomResizedCrop.get_params, with our numbers."""
    numbers = SplitMix(seed)
    flip = numbers.unit() < options.flip
    low, high = (math.log(ratio) for ratio in options.ratio)
    for _ in range(10):
        area = height * width * (options.scale[0] + (options.scale[1] - options.scale[0]) * numbers.unit())
        ratio = math.exp(low + (high - low) * numbers.unit())
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = numbers.below(height - h + 1)
            return flip, (top, numbers.below(width - w + 1), h, w)
    w, h = width, height
    if width / height < options.ratio[0]:
        h = round(w / options.ratio[0])
    elif width / height > options.ratio[1]:
        w = round(h * options.ratio[1])
    return flip, ((height - h) // 2, (width - w) // 2, h, w)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_random_crops_by_arithmetic(height: int, width: int, seed: int) -> None:
    options = ps.Image(size=(8, 8), crop="random", flip=0.5)
    whole = scene(height, width)
    ours = options.decode(encoded(whole, PNG), seed)
    flip, (top, left, h, w) = random_area(height, width, seed, options)
    part = whole.crop((left, top, left + w, top + h)).resize((8, 8), Pillow.Resampling.BILINEAR)
    assert difference(ours[:, ::-1] if flip else ours, np.asarray(part))[1] <= 1


def test_flips_come_as_often_as_asked() -> None:
    data = encoded(scene(4, 6), PNG)
    whole = PLAIN.decode(data)
    flips = 0
    for seed in range(400):
        ours = ps.Image(flip=0.25).decode(data, seed * 7919)
        flipped = not np.array_equal(ours, whole)
        np.testing.assert_array_equal(ours, whole[:, ::-1] if flipped else whole)
        flips += flipped
    assert 70 <= flips <= 130


def test_the_same_number_gives_the_same_pixels_on_any_thread() -> None:
    options = ps.Image(size=(16, 16), crop="random", flip=0.5)
    data = encoded(scene(), JPEG)
    expected = [options.decode(data, seed) for seed in range(50)]
    assert len({pixels.tobytes() for pixels in expected}) > 40
    found: list[bool] = []

    def check() -> None:
        found.append(all(np.array_equal(options.decode(data, seed), expected[seed]) for seed in range(50)))

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"size": (0, 5)},
        {"size": (5, 5), "max_side": 5},
        {"size": (5, 5), "channels": None},
        {"crop": "center"},
        {"crop": "middle", "size": (5, 5)},
        {"channels": 2},
        {"flip": 2.0},
        {"scale": (0.0, 1.0)},
        {"ratio": (2.0, 1.0)},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ps.SchemaError, match="expected"):
        ps.Image(**options)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError):
        ps.Image(shape=(5, 5))  # type: ignore[call-arg]
    with pytest.raises(ps.SchemaError, match="shape"):
        _core.Images({"image": {"shape": (5, 5)}})


def test_options_are_a_value() -> None:
    assert ps.Image(size=(5, 5)) == ps.Image(size=(5, 5)) != PLAIN
    assert hash(ps.Image(size=(5, 5))) == hash(ps.Image(size=(5, 5)))


class Photo(ps.Example):
    image: ps.Image
    others: list[ps.Image]
    thumbnail: ps.Image | None


def test_it_is_an_annotation_too() -> None:
    schema = Photo.schema()
    assert [(schema[name].kind, schema[name].dtype) for name in schema] == [("image", "bytes")] * 3
    assert schema["others"].levels == 1
    assert schema["thumbnail"].optional


# Damage


def files() -> Iterator[tuple[str, bytes]]:
    yield "jpeg", encoded(scene(40, 50), JPEG)
    yield "progressive", encoded(scene(40, 50), JPEG, progressive=True)
    yield "png", encoded(scene(40, 50), PNG)
    yield "webp", encoded(scene(40, 50), WEBP)
    yield "lossless webp", encoded(scene(40, 50), WEBP, lossless=True)
    yield "gif", encoded(scene(40, 50).convert("P"), GIF)
    yield "bmp", encoded(scene(40, 50), BMP)


@pytest.mark.parametrize(("name", "data"), list(files()), ids=lambda value: value if isinstance(value, str) else "")
def test_files_cut_short_are_refused(name: str, data: bytes) -> None:
    for length in [0, 1, 2, 5, 13, *range(20, len(data) - 30, max(1, len(data) // 60)), len(data) - 30]:
        with pytest.raises(ps.CorruptionError, match=r"expected an? .*image, got"):
            PLAIN.decode(data[:length])


@pytest.mark.parametrize(("name", "data"), list(files()), ids=lambda value: value if isinstance(value, str) else "")
def test_damage_is_an_error_or_other_pixels(name: str, data: bytes) -> None:
    source = random.Random(name)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(source.randint(1, 4)):
            broken[source.randrange(len(data))] = source.randrange(256)
        try:
            pixels = PLAIN.decode(bytes(broken))
        except ps.CorruptionError:
            continue
        assert pixels.ndim == 3


def test_other_bytes_are_named() -> None:
    with pytest.raises(ps.CorruptionError, match="got 9 bytes that begin with 73 6f 6d 65 20 74 65 78"):
        PLAIN.decode(b"some text")
    with pytest.raises(ps.CorruptionError, match="got no bytes"):
        PLAIN.decode(b"")


def test_headers_alone_allocate_nothing() -> None:
    jpeg = bytearray(encoded(scene(40, 50), JPEG))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    png = bytearray(encoded(scene(40, 50), PNG))
    png[16:24] = b"\0\1\0\0\0\1\0\0"
    png[29:33] = zlib.crc32(png[12:29]).to_bytes(4, "big")
    gif = bytearray(encoded(scene(40, 50).convert("P"), GIF))
    gif[6:10] = b"\xff\xff\xff\xff"
    for data in (jpeg, png, gif):
        with pytest.raises(ps.CorruptionError, match=r"65535 x 65535|65536 x 65536"):
            PLAIN.decode(bytes(data))


@pytest.mark.parametrize("kind", ["still", "animated", "transparent animated"])
def test_a_webp_frame_has_the_size_that_was_announced(kind: str) -> None:
    picture = scene(40, 50, "RGBA" if "transparent" in kind else "RGB")
    options: dict[str, Any] = {"save_all": True, "append_images": [picture.rotate(90)]} if "animated" in kind else {}
    data = bytearray(encoded(picture, WEBP, exif=b"Exif\0\0" + bytes(8), **options))
    assert PLAIN.decode(bytes(data)).shape == (40, 50, 3)
    size = data.index(b"VP8 ") + 8 + 6
    data[size : size + 4] = b"\xff\x3f\xff\x3f"
    with pytest.raises(ps.CorruptionError, match="a frame of 16383 x 16383 pixels where 50 x 40 were announced"):
        PLAIN.decode(bytes(data))


def test_a_damaged_chunk_is_named() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    data = bytearray(encoded(Pillow.fromarray(pixels), "png"))
    data[300:350] = bytes(50)
    with pytest.raises(ps.CorruptionError, match=r"got damage \(CRC error: .* while decoding IDAT chunk\)$"):
        PLAIN.decode(bytes(data))
