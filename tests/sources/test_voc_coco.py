"""VOC, COCO and Datum's images with labels."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from PIL import Image

from penstock import CorruptionError, NotFoundError, SchemaError, StorageError, build
from penstock.records.codec import Codec
from penstock.sources.classification import image_classification, keyed
from penstock.sources.coco import coco
from penstock.sources.images import class_numbers
from penstock.sources.rows import Mapped
from penstock.sources.voc import read_xml, voc_detection, voc_segmentation


def picture(size: tuple[int, int] = (486, 500), format: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    Image.new("L", size).save(buffer, format)
    return buffer.getvalue()


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def thing(name: str = "dog", box: tuple[Any, ...] = (174, 101, 349, 351), more: str = "") -> str:
    corners = "".join(f"<{n}>{v}</{n}>" for n, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return f"<object><name>{name}</name>{more}<bndbox>{corners}</bndbox></object>"


def annotation(*objects: str, size: tuple[int, int] | None = (486, 500)) -> str:
    measured = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    return f"<annotation>{measured}{''.join(objects)}</annotation>"


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        write(tmp_path / "JPEGImages" / f"{name}.jpg", picture())
        write(tmp_path / "SegmentationClass" / f"{name}.png", picture(format="PNG"))
    more = "<pose>Left</pose><truncated>1</truncated><difficult>1</difficult><part><name>head</name></part>"
    write(tmp_path / "Annotations" / "a.xml", annotation(thing(), thing("Cat", more=more)))
    write(tmp_path / "Annotations" / "b.xml", annotation())
    write(tmp_path / "Annotations" / "c.xml", annotation(thing("eel"), size=None))
    write(tmp_path / "ImageSets" / "train.txt", "a\nc\n")
    write(tmp_path / "ImageSets" / "val.txt", "b\n\n")
    return tmp_path


def through_records(source: Any) -> list[dict[str, Any]]:
    codec = Codec(source.schema)
    return [codec.decode_example(record) for record in codec.encode_examples([source[i] for i in range(len(source))])]


def test_detection(voc: Path) -> None:
    source = voc_detection(voc)
    assert list(source) == ["train", "val"]
    train = source["train"]
    assert train.schema == source["val"].schema
    assert train.schema["objects"]["label"].classes == ("Cat", "dog", "eel")
    assert train.schema["objects"]["bbox"].kind == "box"
    objects = train[0]["objects"]
    assert objects["bbox"].dtype == np.float32
    # ymin, xmin, ymax, xmax
    assert np.allclose(objects["bbox"], [[0.202, 0.35802, 0.702, 0.71811]] * 2, atol=1e-5)
    assert objects["label"] == [1, 0]
    assert objects["pose"] == ["", "Left"]
    assert objects["is_truncated"] == objects["is_difficult"] == [False, True]
    assert np.allclose(train[1]["objects"]["bbox"], objects["bbox"][:1])  # the image tells the size
    assert (train.key(0), train.place(0)) == ("a", f"{voc}/JPEGImages/a.jpg")
    assert source["val"][0]["objects"]["bbox"].shape == (0, 4)
    assert through_records(train)[0]["objects"]["pose"] == ["", "Left"]
    assert len(through_records(source["val"])[0]["objects"]["label"]) == 0
    assert pickle.loads(pickle.dumps(train))[0]["objects"]["label"] == [1, 0]  # noqa: S301
    before = train.stamp(0)
    write(voc / "Annotations" / "a.xml", annotation(thing("Cat")))
    assert train.stamp(0) != before


def test_a_file_of_class_names(voc: Path) -> None:
    write(voc / "classes.names", "eel\ndog\ncat\n")
    source = voc_detection(voc)
    assert source["train"].schema["objects"]["label"].classes == ("eel", "dog", "cat")
    assert source["train"][0]["objects"]["label"] == [1, 2]
    write(voc / "classes.names", "eel\ncat\n")
    with pytest.raises(SchemaError, match=r"unknown class 'dog' - at .*a\.xml, object 0.*The classes are: eel, cat"):
        voc_detection(voc)["train"][0]


def test_lists_as_pascal_has_them(voc: Path) -> None:
    for name, ids in {"train": "a", "val": "b", "trainval": "a\nb", "dog_train": "a  1", "dog_val": "b -1"}.items():
        write(voc / "ImageSets" / "Main" / f"{name}.txt", ids + "\n")
    assert {name: len(source) for name, source in voc_detection(voc).items()} == {"train": 1, "val": 1}


def test_without_lists_all_images_count(voc: Path) -> None:
    for path in (voc / "ImageSets").iterdir():
        path.unlink()
    assert [voc_detection(voc).key(i) for i in range(3)] == ["a", "b", "c"]
    assert len(voc_segmentation(voc)) == 3


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_masks_with_a_palette_are_class_numbers(tmp_path: Path, bits: int) -> None:
    """Whatever bits and filters they are saved with: Pillow and we ourselves read the same numbers."""
    rng = np.random.default_rng(bits)
    shown = {}
    for name, smooth in (("noise", False), ("smooth", True)):
        numbers = rng.integers(0, 1 << bits, (37, 53), np.uint8)
        numbers = np.sort(numbers, axis=1) if smooth else numbers
        mask = Image.fromarray(numbers, "P")
        mask.putpalette(rng.integers(0, 256, 3 << bits, np.uint8).tobytes())
        write(tmp_path / "JPEGImages" / f"{name}.jpg", picture((53, 37)))
        path = write(tmp_path / "SegmentationClass" / f"{name}.png", b"")
        mask.save(path, bits=bits, transparency=0)
        assert path.read_bytes()[24:26] == bytes([bits, 3])
        shown[name] = numbers
    source = voc_segmentation(tmp_path)
    for number, name in enumerate(shown):
        assert (np.array(Image.open(io.BytesIO(source[number]["mask"]))) == shown[name]).all()
    built = build(source, tmp_path / "data")
    found = {built["train"].key(n): example["mask"] for n, example in enumerate(built["train"])}
    assert all((found[name][..., 0] == numbers).all() for name, numbers in shown.items())


@pytest.mark.parametrize("kind", range(5))
def test_every_filter_of_a_mask_is_undone(kind: int) -> None:
    """As the PNG specification has them, of bytes that hold two pixels each."""
    pixels = np.random.default_rng(kind).integers(0, 256, (6, 4), np.uint8)
    padded = np.pad(pixels, ((1, 0), (1, 0))).astype(int)
    left, up, corner = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    guess = left + up - corner
    nearest = np.argmin([abs(guess - each) for each in (left, up, corner)], axis=0)
    before = [0 * left, left, up, (left + up) // 2, np.choose(nearest, [left, up, corner])][kind]
    lines = np.insert(((pixels - before) % 256).astype(np.uint8), 0, kind, axis=1)
    header = struct.pack(">IIBBBBB", 8, 6, 4, 3, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", bytes(48)), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    data = b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    grey = np.array(Image.open(io.BytesIO(class_numbers(b"\x89PNG\r\n\x1a\n" + data, "mask"))))
    assert (grey == np.stack([pixels >> 4, pixels & 15], axis=2).reshape(6, 8)).all()


def test_masks_that_cannot_be_unpacked() -> None:
    mask = Image.fromarray(np.zeros((5, 5), np.uint8), "P")
    mask.putpalette(bytes(48))
    buffer = io.BytesIO()
    mask.save(buffer, "PNG", bits=4)
    data = bytearray(buffer.getvalue())
    data[28] = 1
    with pytest.raises(CorruptionError, match=r"not interlaced, got one of 4 bits that is. Save it .* - at mask.png"):
        class_numbers(bytes(data), "mask.png")
    data[28] = 0
    at = data.index(b"IDAT") + 4
    with pytest.raises(
        CorruptionError, match=r"expected the pixels of a PNG, got bytes that do not inflate .* - at mask"
    ):
        class_numbers(bytes(data[:at]) + b"\xff" + bytes(data[at + 1 :]), "mask.png")
    data[23] = 200
    with pytest.raises(CorruptionError, match=r"expected 800 bytes of pixels, got 20 - at mask"):
        class_numbers(bytes(data), "mask.png")


@pytest.mark.parametrize(("width", "height", "bits"), [(0, 0, 4), (5, 0, 1), (5, 5, 0), (5, 5, 3), (5, 5, 16)])
def test_headers_of_masks_are_not_believed(width: int, height: int, bits: int) -> None:
    """Nothing is inflated for an image without pixels, however much there is."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, bits, 3, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1 << 20))) + chunk(b"IEND", b"")
    with pytest.raises(
        CorruptionError, match=f"expected a mask with pixels of 1 to 8 bits, got {width} x {height} of {bits}"
    ):
        class_numbers(b"\x89PNG\r\n\x1a\n" + chunks, "mask.png")


def test_one_split_in_folders_of_other_names(voc: Path, tmp_path: Path) -> None:
    everything = voc_detection(voc)
    (voc / "JPEGImages").rename(voc / "photos")
    (voc / "Annotations").rename(voc / "boxes")
    (voc / "SegmentationClass").rename(voc / "masks")
    (voc / "ImageSets").rename(voc / "lists")
    (voc / "lists" / "bad.txt").write_text("nothing\n")  # which nobody asks for
    write(voc / "photos" / "a.png", picture(format="PNG"))
    told: dict[str, Any] = {"image_dir": "photos", "set_dir": "lists", "split": "train"}
    source = voc_detection(voc, annotation_dir="boxes", extension=".JPG", **told)
    assert [source.key(n) for n in range(len(source))] == ["a", "c"]
    assert source.classes == everything["train"].classes  # those of all annotations, for any split
    assert source[0]["objects"]["label"] == [1, 0]
    elsewhere = {**told, "image_dir": str(voc / "photos"), "set_dir": str(voc / "lists")}
    assert len(voc_detection(voc, annotation_dir=str(voc / "boxes"), extension=".jpg", **elsewhere)) == 2
    masks = voc_segmentation(voc, mask_dir="masks", image_extension=".jpg", mask_extension=".PNG", **told)
    assert [masks.key(n) for n in range(len(masks))] == ["a", "c"]
    with pytest.raises(NotFoundError, match=r"got nothing at .*lists/tests\.txt"):
        voc_detection(voc, annotation_dir="boxes", extension=".jpg", **{**told, "split": "tests"})


def test_mapped_examples_keep_what_is_known_of_them(voc: Path) -> None:
    source = voc_detection(voc)["train"]
    mapped = Mapped(source, len)
    assert (len(mapped), mapped[0], repr(mapped)) == (2, 2, f"Mapped({source!r})")
    for index in range(2):
        assert mapped.key(index) == source.key(index)
        assert mapped.place(index) == source.place(index)
        assert mapped.stamp(index) == source.stamp(index) == mapped.stamps(np.arange(2))[index]
    assert mapped.options != Mapped(source, str).options
    assert Mapped(source, len, numbered=True).key(1) == "1"


def test_keyed_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As generators of TFDS and Datum yield them; names of image files stand for the files."""
    write(tmp_path / "a.png", picture((3, 2), "PNG"))
    monkeypatch.chdir(tmp_path)
    pairs = [(7, {"image": "a.png", "text": "x.png is a name"}), ("b", {"image": str(tmp_path / "a.png"), "text": ""})]
    source = keyed(pairs, "mine")
    assert [source.key(n) for n in range(2)] == ["7", "b"]
    assert source[0] == {"image": picture((3, 2), "PNG"), "text": "x.png is a name"}
    assert source.schema is not None
    assert source.schema["image"].kind == "image"
    assert source.place(1) == "mine, example 'b'"
    assert keyed(pairs, "mine", images=False)[0]["image"] == "a.png"
    with pytest.raises(SchemaError, match="expected examples, got none - at mine"):
        keyed([], "mine")
    with pytest.raises(
        SchemaError, match=r"expected the name of an image file in 'image', got none - at mine, example '8'"
    ):
        keyed([*pairs, (8, {"text": "c"})], "mine")


def test_segmentation(voc: Path) -> None:
    source = voc_segmentation(voc)
    assert list(source) == ["train", "val"]
    assert source["train"][0] == {"image": picture(), "mask": picture(format="PNG")}
    assert len(through_records(source["train"])) == 2
    write(voc / "SegmentationClass" / "a.png", picture((3, 3), "PNG"))
    with pytest.raises(CorruptionError, match=r"a mask of 486 x 500 pixels, as the image has, got 3 x 3 - at .*a\.png"):
        source["train"][0]
    (voc / "ImageSets" / "train.txt").unlink()
    (voc / "ImageSets" / "val.txt").unlink()
    write(voc / "train.txt", "b\n")
    assert {name: len(each) for name, each in voc_segmentation(voc).items()} == {"train": 1}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"ImageSets/train.txt": "a\nx\n"}, NotFoundError, r"an image for 'x', got none - at .*train\.txt:2"),
        ({"ImageSets/train.txt": "../a\n"}, SchemaError, r"expected a path below .*train\.txt:1"),
        ({"ImageSets/train.txt": "\n"}, SchemaError, "got an empty file"),
        ({"JPEGImages/x.jpg": "", "ImageSets/train.txt": "x"}, NotFoundError, "an annotation or a mask for 'x'"),
        ({"JPEGImages/a.png": ""}, SchemaError, "one file for each image"),
    ],
)
def test_lists_that_do_not_fit(voc: Path, change: dict[str, str], error: type[Exception], message: str) -> None:
    for name, text in change.items():
        write(voc / name, text)
    with pytest.raises(error, match=message):
        voc_detection(voc)


def test_folders_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="JPEGImages"):
        voc_detection(tmp_path)
    (tmp_path / "JPEGImages").mkdir()
    with pytest.raises(StorageError, match=r"got none - at .*JPEGImages"):
        voc_segmentation(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation>\n<object></annotation>", r"expected XML, got mismatched tag .*a\.xml:2"),
        ("", r"expected XML, .*a\.xml:1"),
        (annotation(thing(box=(1, 2, "x", 4))), r"a number for xmax, got 'x' - at .*a\.xml, object 0"),
        (annotation(thing(box=(9, 2, 3, 4))), r"expected a box of xmin, .* got 9, 2, 3, 4"),
        (annotation(thing(box=(1, 2, 3, 4000))), r"expected a box inside of 486 x 500 pixels"),
        (annotation(thing(box=(1, 2, "nan", 4))), r"expected a box of"),
        (annotation("<object><name>dog</name></object>"), "expected a bndbox, got none"),
        (annotation("<object></object>"), "expected a name, got none"),
    ],
)
def test_broken_annotations(voc: Path, text: str, message: str) -> None:
    write(voc / "classes.names", "dog\ncat\neel\n")
    write(voc / "Annotations" / "a.xml", text)
    with pytest.raises(CorruptionError, match=message):
        voc_detection(voc)["train"][0]


def test_a_box_a_pixel_over_the_border_is_cut(voc: Path) -> None:
    write(voc / "Annotations" / "a.xml", annotation(thing("dog", (-0.5, 0, 487, 500.5))))
    assert voc_detection(voc)["train"][0]["objects"]["bbox"].tolist() == [[0, 0, 1, 1]]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><annotation>&b;</annotation>'
OUTER = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><annotation>&a;</annotation>'


@pytest.mark.parametrize(
    "data",
    [
        BOMB.encode(),
        OUTER.encode(),
        OUTER.replace("DOCTYPE", "doctype").encode(),
        OUTER.encode("utf-16"),
        OUTER.encode("utf-16-le"),
        OUTER.encode("utf-32"),
        b'<?xml version="1.0" encoding="cp037"?>' + OUTER.encode("cp037"),
        b'<?xml version="1.0" encoding="utf-7"?>' + OUTER.encode("utf-7"),
        b'<?xml version="1.0" encoding="utf-16"?>' + OUTER.encode(),
        b"\xef\xbb\xbf" + OUTER.encode(),
        b"<annotation>&nbsp;</annotation>",
        b"<annotation>\0</annotation>",
        b"<a>" + b"x" * (17 << 20) + b"</a>",
    ],
)
def test_hostile_xml_is_refused(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "x.xml", data)
    with pytest.raises(CorruptionError, match=r"x\.xml"):
        read_xml(str(path))


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1", "windows-1252", None])
def test_encodings_of_xml(tmp_path: Path, encoding: str | None) -> None:
    declared = f'<?xml version="1.0" encoding="{encoding}"?>\n' if encoding else ""
    path = write(tmp_path / "x.xml", (declared + "<a>Käse</a>").encode(encoding or "utf-8"))
    assert read_xml(str(path)).text == "Käse"


@hypothesis.given(st.binary(max_size=60) | st.text("<>/!&;a\"'= ", max_size=40).map(str.encode))
def test_any_bytes_are_xml_or_a_corruption_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp() / "any.xml", data)
    try:
        assert read_xml(str(path)).tag
    except CorruptionError:
        return


# COCO


def instances(**changes: Any) -> dict[str, Any]:
    data = {
        "images": [
            {"id": 7, "file_name": "b.jpg", "width": 486, "height": 500},
            {"id": 3, "file_name": "sub/a.jpg", "width": 486, "height": 500},
        ],
        "annotations": [
            {"id": 2, "image_id": 3, "category_id": 90, "bbox": [0, 0, 243, 250], "area": 9.5, "iscrowd": 1},
            {"id": 1, "image_id": 3, "category_id": 18, "bbox": [243, 250, 243.0, 250], "area": 4, "iscrowd": 0},
        ],
        "categories": [{"id": 90, "name": "brush"}, {"id": 18, "name": "dog"}],
    }
    return {**data, **changes}


@pytest.fixture
def annotated(tmp_path: Path) -> tuple[Path, Path]:
    write(tmp_path / "images" / "b.jpg", picture())
    write(tmp_path / "images" / "sub" / "a.jpg", picture())
    return tmp_path / "images", write(tmp_path / "instances.json", json.dumps(instances()))


def test_coco(annotated: tuple[Path, Path]) -> None:
    source = coco(*annotated)
    assert [source.key(i) for i in range(2)] == ["b.jpg", "sub/a.jpg"]
    assert source.schema["objects"]["label"].classes == ("dog", "brush")
    assert source[0]["objects"]["bbox"].shape == (0, 4)
    example = source[1]
    assert example["image_id"] == 3
    assert example["image"] == picture()
    objects = {name: values.tolist() for name, values in example["objects"].items()}
    assert objects == {
        "id": [2, 1],
        "bbox": [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]],
        "label": [1, 0],
        "area": [9.5, 4],
        "is_crowd": [True, False],
    }
    assert through_records(source)[1]["objects"]["id"].tolist() == [2, 1]
    assert pickle.loads(pickle.dumps(source))[0]["image_id"] == 7  # noqa: S301
    assert source.stamp(0) != ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": None}, "expected 'images' as a list of objects"),
        ({"categories": [{"id": 1, "name": "x"}]}, "a category of this file, got the id 90 - at .*annotation 0"),
        ({"annotations": [{"image_id": 9, "category_id": 90}]}, "an image of this file, got the id 9"),
        ({"annotations": [{"image_id": 3, "category_id": 90, "bbox": [1, 2]}]}, r"bbox as \[x, y, width, height\]"),
        ({"annotations": [{"image_id": 3, "category_id": 90, "bbox": [1, 2, 3, 900]}]}, "a box inside of"),
        ({"annotations": [{"image_id": "3", "category_id": 90}]}, "an int for image_id, got '3'"),
        ({"images": [{"id": 3, "file_name": "../x.jpg"}]}, "expected a path below"),
        ({"images": [{"id": 3, "file_name": "x.jpg"}] * 2}, "the id 3 twice"),
        ({"images": [{"id": 3, "file_name": "x"}, {"id": 7, "file_name": "y"}]}, "width and height, got None"),
        ({"categories": [{"id": 90, "name": "x"}] * 2}, "each category once"),
        ({"categories": [{"id": 90, "name": "x"}, {"id": 18, "name": "x"}]}, "each class once"),
    ],
)
def test_annotations_that_do_not_fit(annotated: tuple[Path, Path], changes: dict[str, Any], message: str) -> None:
    write(annotated[1], json.dumps(instances(**changes)))
    with pytest.raises((CorruptionError, SchemaError), match=message):
        coco(*annotated)


def test_one_file_of_annotations(annotated: tuple[Path, Path]) -> None:
    write(annotated[1].parent / "instances_2.json", "[]")
    with pytest.raises(SchemaError, match="one file of annotations, got 2"):
        coco(annotated[0], f"{annotated[1].parent}/*.json")
    with pytest.raises(SchemaError, match="an object with images"):
        coco(annotated[0], annotated[1].parent / "instances_2.json")


# Datum's images with labels


def test_labelled_images(tmp_path: Path) -> None:
    for name in ("train/x.jpg", "train/y.jpeg", "val/z.png"):
        write(tmp_path / name, picture((4, 3), "PNG" if name.endswith("png") else "JPEG"))
    write(tmp_path / "train.csv", "filename, label, boxes, name\nx, 3, \"[1, 2]\", 'cat'\ny.jpeg, 4, \"[3]\", 'dog'\n")
    write(tmp_path / "val.csv", "filename,label,boxes,name\nz,5,[6],'eel'\n")
    write(tmp_path / "other.csv", "a,b\n")
    source = image_classification(tmp_path)
    assert list(source) == ["train", "val"]
    train = source["train"]
    assert train[0] == {"image": picture((4, 3)), "label": 3, "boxes": [1, 2], "name": "cat"}
    assert train.key(1) == "train/y.jpeg"
    assert train.place(1) == f"{tmp_path}/train.csv:3"
    assert {name: str(field) for name, field in train.schema.items()} == {
        "image": "bytes", "label": "int64", "boxes": "int64[?]", "name": "str"}  # fmt: skip
    assert len(through_records(train)) == 2
    assert train.stamp(0) != ""


def test_words_without_quotes(tmp_path: Path) -> None:
    write(tmp_path / "train" / "x.jpg", picture((4, 3)))
    write(tmp_path / "train.csv", "filename,label\nx,cat\nx,dog\n")
    assert image_classification(tmp_path)["train"][1]["label"] == "dog"
    write(tmp_path / "train.csv", "filename,label\nx,3\nx,dog\n")
    with pytest.raises(SchemaError, match=r"expected a literal such as 3, .* got 'dog' - at .*train\.csv:3"):
        image_classification(tmp_path)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("name,label\nx,3\n", SchemaError, "a column 'filename', got name, label"),
        ("filename,image\nx,3\n", SchemaError, "called 'image'"),
        ("filename,label\nq,3\n", NotFoundError, r"an image 'q' in the folder, got none - at .*train\.csv:2"),
        ("filename,label\n../train/x,3\n", NotFoundError, "in the folder, got none"),
    ],
)
def test_labels_that_do_not_fit(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    write(tmp_path / "train" / "x.jpg", picture((4, 3)))
    write(tmp_path / "train.csv", text)
    with pytest.raises(error, match=message):
        image_classification(tmp_path)


def test_a_catalog_without_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "filename,label\nx,3\n")
    with pytest.raises(StorageError, match=r"beside the folder train, got train\.csv beside no folder"):
        image_classification(tmp_path)


def test_one_split_of_labelled_images(tmp_path: Path) -> None:
    write(tmp_path / "lists" / "some.csv", "filename,label\nx,1\n")
    write(tmp_path / "pictures" / "x.png", picture(format="PNG"))
    write(tmp_path / "pictures" / "x.jpg", picture())
    told = {"csv_path": "lists/some.csv", "image_dir": "pictures", "extension": ".png"}
    assert image_classification(tmp_path, split="train", **told)[0] == {"image": picture(format="PNG"), "label": 1}
    with pytest.raises(SchemaError, match="expected a split with csv_path and image_dir, got none - at image_class"):
        image_classification(tmp_path, **told)
