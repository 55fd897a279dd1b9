"""Images that are given as pixels: of Pillow, or uint8 arrays. They are stored as PNG, which loses nothing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

IMAGE = ps.Field(dtype="bytes", kind="image")
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 4), dtype=np.uint8)


def opened(data: bytes) -> np.ndarray[Any, Any]:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize(
    "pixels",
    [PIXELS, PIXELS[..., :3], PIXELS[..., :2], PIXELS[..., 0], PIXELS[::-1, ::2, :3], PIXELS[:1, :1], PIXELS[..., :1]],
    ids=["rgba", "rgb", "grey and alpha", "grey", "not contiguous", "one pixel", "one channel"],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_arrays_in_an_image_field_are_png(tmp_path: Path, pixels: Any, workers: int) -> None:
    built = ps.build([{"image": pixels}] * 30, tmp_path / "toy", schema={"image": IMAGE}, workers=workers)
    stored = ps.load(tmp_path / "toy", decode=False)["train"][3]["image"]
    assert stored.startswith(b"\x89PNG")
    assert np.array_equal(opened(stored), pixels.squeeze(-1) if pixels.shape[2:] == (1,) else pixels)
    if pixels.shape[2:] == (3,):
        assert np.array_equal(built["train"][3]["image"], pixels)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("declared", [False, True])
def test_images_of_pillow_build_as_images(tmp_path: Path, mode: str, declared: bool) -> None:
    from PIL import Image

    picture = Image.fromarray(PIXELS[..., :3]).convert("L" if mode == "I;16" else mode)
    picture = Image.fromarray(np.asarray(picture).astype(np.uint16)) if mode == "I;16" else picture
    built = ps.build([{"image": picture, "x": 1}], tmp_path / "toy",
                     schema={"image": IMAGE, "x": "int64"} if declared else None)  # fmt: skip
    assert built.schema["image"] == ps.Field("image", dtype="bytes", kind="image")
    stored = ps.load(tmp_path / "toy", decode=False)["train"][0]["image"]
    assert np.array_equal(opened(stored), np.asarray(picture))


def test_lists_and_columns_of_images(tmp_path: Path) -> None:
    from PIL import Image

    picture = Image.fromarray(PIXELS)
    listed = ps.build([{"frames": [picture, picture]}, {"frames": []}], tmp_path / "listed")
    assert str(listed.schema["frames"]) == "list[bytes]"
    fields = {"frames": ps.Field(dtype="bytes", kind="image", levels=1)}
    arrays = ps.build([{"frames": [PIXELS, PIXELS[:2]]}], tmp_path / "arrays", schema=fields)
    frames = ps.load(arrays.path, decode=False)["train"][0]["frames"]
    assert [opened(frame).shape for frame in frames] == [(5, 7, 4), (2, 7, 4)]
    columns = ps.build({"image": np.stack([PIXELS] * 3)}, tmp_path / "columns", schema={"image": IMAGE})
    assert np.array_equal(opened(ps.load(columns.path, decode=False)["train"][2]["image"]), PIXELS)


class Photo(ps.Example):
    """An example class with an annotated image."""

    n: int
    image: ps.Image

    def load(self) -> None:
        from PIL import Image

        self.image = Image.new("RGB", (4, 4), (self.n, 0, 0))  # type: ignore[assignment]


def test_example_classes_and_arrays_without_a_schema(tmp_path: Path) -> None:
    built = ps.build([Photo(n=n) for n in range(20)], tmp_path / "photos", order="source")
    assert built["train"][7]["image"][0, 0].tolist() == [7, 0, 0]
    assert str(ps.build([{"x": PIXELS}], tmp_path / "array").schema["x"]) == "uint8[5,7,4]"


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (PIXELS.astype(np.float32), "An image is the bytes of its file, an image of Pillow, or uint8"),
        (PIXELS[0, 0], "An image is the bytes of its file"),
        (PIXELS[:0], "An image is the bytes of its file"),
        ("cat.jpg", "Give the bytes of the file: pathlib.Path(value).read_bytes()"),
        (Path("cat.jpg"), "Convert it: value.read_bytes()"),
    ],
)
def test_the_advice_for_other_values_is_right(value: Any, hint: str) -> None:
    with pytest.raises(ps.SchemaError) as caught:
        IMAGE.coerce(value, "image")
    assert hint in str(caught.value)
    assert "tobytes" not in str(caught.value)


def test_what_png_cannot_hold(tmp_path: Path) -> None:
    from PIL import Image

    with pytest.raises(ps.SchemaError, match=r'an image of the mode CMYK .*image.convert\("RGB"\)'):
        IMAGE.coerce(Image.new("CMYK", (4, 4)), "image")
    frames = [Image.new("RGB", (4, 4), (n, 0, 0)) for n in (0, 200)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(ps.SchemaError, match="an animation of 2 frames"):
        IMAGE.coerce(Image.open(tmp_path / "a.gif"), "image")


def test_arrays_in_a_field_of_bytes() -> None:
    with pytest.raises(ps.SchemaError, match=r'Declare the type that it has: "uint8\[5,7,4\]"'):
        ps.Field(dtype="bytes").coerce(PIXELS, "data")
