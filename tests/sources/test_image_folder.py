"""Folders of images, and the look at an image's header."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from PIL import Image

from penstock import CorruptionError, NotFoundError, SchemaError, StorageError
from penstock.records.codec import Codec
from penstock.sources.image_folder import image_folder
from penstock.sources.images import check_image
from penstock.sources.splits import Splits

FORMATS = ["JPEG", "PNG", "GIF", "BMP", "WEBP"]


def picture(format: str = "JPEG", size: tuple[int, int] = (7, 5), mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    noise = random.Random(size[0]).randbytes(size[0] * size[1] * len(mode))
    Image.frombytes(mode, size, noise).save(buffer, format, **options)
    return buffer.getvalue()


def place(path: Path, data: bytes | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture() if data is None else data)
    return path


# Headers


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (300, 2)])
def test_the_header_of_each_format(format: str, size: tuple[int, int]) -> None:
    header = check_image(picture(format, size), "x")
    assert header.format.upper() == format
    assert header[1:] == size


@pytest.mark.parametrize(
    "data",
    [
        picture("JPEG", progressive=True),
        picture("JPEG", mode="L"),
        picture("JPEG") + b"appended by a camera",
        picture("PNG", mode="RGBA"),
        picture("WEBP", lossless=True),
        picture("WEBP", mode="RGBA"),
        picture("BMP", mode="L"),
    ],
)
def test_variants_of_the_formats(data: bytes) -> None:
    assert check_image(data, "x")[1:] == (7, 5)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "BMP", "WEBP"])
def test_every_cut_is_found(format: str) -> None:
    data = picture(format, (40, 30))
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            check_image(data[:length], "x")


def test_a_thumbnail_within_is_not_taken_for_the_end() -> None:
    inner = picture("JPEG", (3, 2))
    data = picture("JPEG", (40, 30))
    whole = data[:2] + b"\xff\xe1" + (len(inner) + 2).to_bytes(2, "big") + inner + data[2:]
    assert check_image(whole, "x")[1:] == (40, 30)
    with pytest.raises(CorruptionError, match="no end marker"):
        check_image(whole[:-2], "x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "an empty file"),
        (b"hello, world", "got text that begins with .hello, world."),
        (b"\xff\xd8\xff\xd9", "without an image"),
        (b"\xff\xd8\xff\xc0\x00\x00" + b"\0" * 30, "segment of 0 bytes"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\0\0\0\1" + b"IEND\xae\x42\x60\x82", "PNG of 0 x 1 pixels"),
        (b"GIF89a\0\0\1\0", "GIF of 0 x 1 pixels"),
        (b"BM" + b"\xff" * 60, "BMP"),
    ],
)
def test_broken_headers_say_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(CorruptionError, match=message) as caught:
        check_image(data, "photos/cat/1.jpg")
    assert caught.value.path == "photos/cat/1.jpg"
    assert "photos/cat/1.jpg" in str(caught.value)


@hypothesis.given(st.sampled_from(FORMATS), st.data())
def test_any_damage_is_an_image_or_a_corruption_error(format: str, draw: st.DataObject) -> None:
    data = bytearray(picture(format))
    for _ in range(draw.draw(st.integers(1, 8))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, len(data)))
    try:
        header = check_image(bytes(data[:cut]), "x")
    except CorruptionError:
        return
    assert header.width > 0
    assert header.height > 0


@hypothesis.given(
    st.sampled_from([b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF0000WEBP"]), st.binary()
)
def test_any_bytes_are_an_image_or_a_corruption_error(magic: bytes, rest: bytes) -> None:
    with contextlib.suppress(CorruptionError):
        assert check_image(magic + rest, "x").width > 0


# Folders


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for name in ["dog/2.PNG", "dog/10.jpeg", "cat/1.jpg", "cat/.hidden.jpg", "cat/notes.txt", "README.md"]:
        place(tmp_path / name)
    source = image_folder(tmp_path)
    assert [source.key(i) for i in range(len(source))] == ["cat/1.jpg", "dog/10.jpeg", "dog/2.PNG"]
    assert [source[i]["label"] for i in range(3)] == [0, 1, 1]
    assert source[0]["image"] == (tmp_path / "cat/1.jpg").read_bytes()
    assert source.schema["label"].classes == ("cat", "dog")
    assert source.schema["image"].kind == "image"
    assert source.place(0) == f"{tmp_path}/cat/1.jpg"
    assert source.column("label").tolist() == [0, 1, 1]
    assert len(Codec(source.schema).encode_examples([source[i] for i in range(3)])) == 3


def test_a_folder_for_each_split(tmp_path: Path) -> None:
    for name in ["train/cat/1.jpg", "train/dog/2.jpg", "test/cat/3.jpg", "test/eel/4.jpg"]:
        place(tmp_path / name)
    (tmp_path / "test" / "dog").mkdir()
    source = image_folder(tmp_path, image="picture", label="animal")
    assert isinstance(source, Splits)
    assert list(source) == ["train", "test"]
    assert source["train"].schema == source["test"].schema
    assert source["train"].schema["animal"].classes == ("cat", "dog", "eel")
    assert source["test"][1] == {"picture": picture(), "animal": 2}
    assert source["test"].key(1) == "test/eel/4.jpg"


def test_a_pattern_names_the_images(tmp_path: Path) -> None:
    for name in ["train/cat/1.jpg", "train/dog/2.jpg", "train/dog/3.png", "test/cat/3.jpg"]:
        place(tmp_path / name)
    assert list(image_folder(f"{tmp_path}/**/*.jpg")) == ["train", "test"]
    one = image_folder(f"{tmp_path}/train/*/*.jpg")
    assert [one.key(i) for i in range(len(one))] == ["cat/1.jpg", "dog/2.jpg"]


def test_the_order_of_the_directory_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        place(tmp_path / f"class{number % 3}" / f"{number}.jpg")
    first = image_folder(tmp_path)
    scandir = os.scandir

    class Shuffled:
        def __init__(self, path: str) -> None:
            with scandir(path) as scan:
                self.found = list(scan)
            random.Random(7).shuffle(self.found)

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self.found

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", Shuffled)
    second = image_folder(tmp_path)
    assert first.names == second.names
    assert first.labels.tolist() == second.labels.tolist()


def test_listing_reads_no_image(tmp_path: Path) -> None:
    place(tmp_path / "cat" / "1.jpg", b"broken")
    place(tmp_path / "cat" / "2.jpg")
    source = image_folder(tmp_path)
    assert len(source[1]["image"]) > 0
    with pytest.raises(CorruptionError, match=r"cat/1\.jpg"):
        source[0]


def test_a_stamp_changes_with_the_file(tmp_path: Path) -> None:
    path = place(tmp_path / "cat" / "1.jpg")
    source = image_folder(tmp_path)
    before = source.stamp(0)
    assert before == source.stamp(0)
    path.write_bytes(picture(size=(9, 9)))
    assert source.stamp(0) != before


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    path = place(tmp_path / "cat" / "1.jpg")
    source = image_folder(tmp_path)
    path.unlink()
    assert source.stamp(0) == ""
    with pytest.raises(NotFoundError, match=r"cat/1\.jpg"):
        source[0]


def test_it_travels_small(tmp_path: Path) -> None:
    place(tmp_path / "cat" / "1.jpg", picture(size=(300, 300)))
    source = image_folder(tmp_path)
    sent = pickle.dumps(source)
    assert len(sent) < 2000
    assert pickle.loads(sent)[0] == source[0]  # noqa: S301


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "got no images"),
        (["cat/notes.txt"], "got no images"),
        (["1.jpg"], "images without folders"),
        (["1.jpg", "cat/2.jpg"], "folders beside images"),
        (["cat/1.jpg", "train/dog/2.jpg"], "got both"),
        (["train/1.jpg", "test/2.jpg"], "names of splits"),
        (["train/cat/old/1.jpg"], "three levels deep"),
        (["cat/1.jpg", "dog/readme.txt"], "none for dog"),
        (["train/cat/1.jpg", "other/readme.txt"], "no images in other"),
    ],
)
def test_what_is_no_folder_of_images(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        place(tmp_path / name)
    with pytest.raises((SchemaError, StorageError), match=message) as caught:
        image_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="got nothing at"):
        image_folder(tmp_path / "nothing")
    with pytest.raises(StorageError, match="got the file"):
        image_folder(place(tmp_path / "1.jpg"))
    with pytest.raises(StorageError, match="got none that match"):
        image_folder(f"{tmp_path}/*/*.gif")
    with pytest.raises(SchemaError, match="two names"):
        image_folder(tmp_path, image="x", label="x")


@pytest.mark.skipif(os.name == "nt", reason="names there are text")
def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    place(tmp_path / "cat" / "1.jpg")
    try:
        (tmp_path / "cat" / os.fsdecode(b"\xff.jpg")).write_bytes(picture())
    except OSError:
        pytest.skip("the file system refuses such names")
    with pytest.raises(SchemaError, match="file names in UTF-8"):
        image_folder(tmp_path)
