"""`penstock build FOLDER`: images beside a catalog, images alone, COCO and Pascal VOC."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import penstock
from penstock import NotFoundError, SchemaError
from penstock.cli import main
from penstock.sources.detect import detect, recognise

SPECIES = ("cat", "dog", "eel")


def picture(number: int, format: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    noise = random.Random(number).randbytes(4 * 3 * 3)
    Image.frombytes("RGB", (4, 3), noise).save(buffer, format)
    return buffer.getvalue()


def place(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.fixture
def flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sixty images in one folder, without anything beside them."""
    monkeypatch.chdir(tmp_path)
    for number in range(60):
        place(tmp_path / "flat" / f"{number}.png", picture(number))
    return tmp_path / "flat"


def rows(name: str = "{}.png") -> list[tuple[str, str]]:
    return [(name.format(number), SPECIES[number % 3]) for number in range(60)]


def as_csv(header: str, some: list[tuple[str, str]], delimiter: str = ",") -> str:
    return "".join(f"{delimiter.join(row)}\n" for row in [tuple(header.split(",")), *some])


def build(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["build", *words]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def check(path: str, extra: tuple[str, ...] = ()) -> None:
    """All images are there with their labels."""
    train = penstock.load(path)["train"]
    assert len(train) == 60
    assert set(train.schema) == {"image", "label", *extra}
    label = train.schema["label"]
    assert label.classes == SPECIES
    stored = {(bytes(example["image"]), int(example["label"])) for example in train.decode(False)}
    assert stored == {(picture(number), number % 3) for number in range(60)}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("labels.csv", as_csv("file,species", rows())),
        ("labels.csv", as_csv("file,species", rows("./{}.png"))),
        ("labels.csv", as_csv("id,species", rows("{}"))),
        ("labels.csv", as_csv("path,label", rows("flat/{}.png"))),
        ("labels.csv", as_csv("file,species", rows(), ";")),
        ("labels.tsv", as_csv("file,species", rows(), "\t")),
        ("labels.jsonl", "".join(json.dumps({"file": a, "species": b}) + "\n" for a, b in rows())),
        ("labels.json", json.dumps([{"file": a, "species": b} for a, b in rows()])),
    ],
    ids=["csv", "dot", "without suffix", "with the folder", "semicolons", "tsv", "jsonl", "json"],
)
def test_images_beside_a_catalog_are_built_with_their_labels(
    flat: Path, capsys: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    place(flat / file, text)
    out = build(capsys, "flat", "out")
    assert f"{file} names the images in its column" in out
    assert "label is the column" in out
    assert "3 classes" in out
    check("out")


def test_images_in_a_folder_beside_the_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(60):
        place(tmp_path / "d" / "images" / f"{number}.png", picture(number))
    place(tmp_path / "d" / "labels.csv", as_csv("file,species", rows()))
    out = build(capsys, str(tmp_path / "d"), str(tmp_path / "out"))
    assert "labels.csv names the images" in out
    check(str(tmp_path / "out"))
    place(tmp_path / "d" / "labels.csv", as_csv("file,species", rows("images/{}.png")))
    build(capsys, str(tmp_path / "d"), str(tmp_path / "out2"))
    check(str(tmp_path / "out2"))


def test_the_catalog_itself_may_be_named(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(flat / "labels.csv", as_csv("file,species", rows()))
    build(capsys, "flat/labels.csv", "out")
    check("out")
    out = build(capsys, "flat/labels.csv", "table", "--as", "csv")
    assert set(penstock.load("table")["train"].schema) == {"file", "species"}, "a plain table on demand"
    assert "names the images" not in out


def test_python_has_the_same(flat: Path) -> None:
    place(flat / "labels.csv", as_csv("file,species", rows()))
    with pytest.raises(SchemaError) as caught:
        penstock.build("flat", "out")  # type: ignore[arg-type]
    code = "penstock.csv('flat/labels.csv', image='file', label='species')"
    assert code in str(caught.value)
    penstock.build(eval(code), "out")  # noqa: S307  # the line that the error shows
    check("out")
    found = detect("flat")
    assert (found.kind, found.calls) == ("csv", {"": (("flat/labels.csv",), {"image": "file", "label": "species"})})
    assert recognise("flat") == ("csv", "labels.csv names the images in its column 'file'")


def test_columns_are_chosen(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "left,right,species,colour\n"
    text += "".join(f"{n}.png,{59 - n}.png,{SPECIES[n % 3]},{'red' if n % 2 else 'blue'}\n" for n in range(60))
    place(flat / "pairs.csv", text)
    error = build(capsys, "flat", "out", code=2)
    assert "expected one column of images, got 'left', 'right'" in error
    assert "--image left" in error
    assert not Path("out").exists()
    build(capsys, "flat", "out", "--image", "left")
    check("out", ("right", "colour"))
    build(capsys, "flat", "out2", "--image", "right", "--label", "colour")
    train = penstock.load("out2")["train"]
    assert train.schema["label"].classes == ("blue", "red")
    assert set(train.schema) == {"image", "label", "left", "species"}
    assert "no column 'size'" in build(capsys, "flat", "out3", "--image", "left", "--label", "size", code=2)
    assert "--image 'size'" in build(capsys, "flat", "out3", "--image", "size", code=2)
    error = build(capsys, "flat", "out3", "--as", "image_folder", "--image", "left", code=2)
    assert "--image is for a CSV or JSON file that names images, and flat is taken as image_folder" in error
    assert not Path("out3").exists()


def test_without_a_clear_label_columns_stay(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "file,breed,colour\n" + "".join(
        f"{n}.png,{SPECIES[n % 3]},{'red' if n % 2 else 'blue'}\n" for n in range(60)
    )
    place(flat / "pairs.csv", text)
    out = build(capsys, "flat", "out")
    assert "no column is the label: 'breed', 'colour' stay as they are. Choose one: --label breed" in out
    assert set(penstock.load("out")["train"].schema) == {"image", "breed", "colour"}


def test_numbers_that_look_like_names_are_no_images(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "file,age,label\n" + "".join(f"{n}.png,{59 - n},{n % 2}\n" for n in range(60))
    place(flat / "rows.csv", text)
    build(capsys, "flat", "out")
    train = penstock.load("out")["train"]
    assert set(train.schema) == {"image", "age", "label"}
    assert sorted({int(example["label"]) for example in train.decode(False)}) == [0, 1]
    assert train.schema["label"].classes is None


def test_a_column_of_splits_makes_splits(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "file,species,split\n"
    text += "".join(f"{n}.png,{SPECIES[n % 3]},{'test' if n % 4 == 0 else 'train'}\n" for n in range(60))
    place(flat / "rows.csv", text)
    assert "splits are those of the column 'split': train, test" in build(capsys, "flat", "out")
    dataset = penstock.load("out")
    assert {name: len(dataset[name]) for name in dataset} == {"train": 45, "test": 15}
    assert dataset["test"].schema["label"].classes == SPECIES


def test_rows_without_files_and_files_without_rows_are_told(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(60, 65):
        place(flat / f"{number}.png", picture(number))
    place(flat / "labels.csv", as_csv("file,species", [*rows(), ("gone.png", "cat"), ("lost.png", "dog")]))
    told = ["2 rows of labels.csv name files that do not exist: gone.png, lost.png"]
    told.append("5 images are not in labels.csv, and not in the dataset: 60.png, 61.png, 62.png and 2 more")
    error = build(capsys, "flat", "out", code=1)
    assert "gone.png" in error or "lost.png" in error
    assert "labels.csv:6" in error
    out = build(capsys, "flat", "skipped", "--on-error", "skip")
    for line in told:
        assert line in out
    assert "2 bad examples were left out" in out
    check("skipped")
    found = json.loads(build(capsys, "flat", "kept", "--on-error", "quarantine", "--json"))
    assert found["bad"] == 2
    assert [line for line in found["notes"] if line in told] == told
    kept = Path("kept/quarantine.jsonl").read_text()
    assert "gone.png" in kept
    assert "NotFoundError" in kept


def test_labels_may_be_missing(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(flat / "labels.csv", as_csv("file,species", [*rows()[:50], *((name, "") for name, _ in rows()[50:])]))
    build(capsys, "flat", "out")
    labels = [example["label"] for example in penstock.load("out")["train"].decode(False)]
    assert sum(label is None for label in labels) == 10


def test_several_catalogs_are_an_error(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(flat / "a.csv", as_csv("file,species", rows()[:30]))
    place(flat / "b.csv", as_csv("file,species", rows()[30:]))
    error = build(capsys, "flat", "out", code=2)
    assert "expected one catalog of the images, got 2: a.csv, b.csv" in error
    assert "Choose one: penstock build flat/a.csv; or put all rows into one file with a column 'split'" in error
    place(flat / "b.csv", "x,y\n1,2\n")
    assert "not read: b.csv" in build(capsys, "flat", "out")
    assert len(penstock.load("out")["train"]) == 30


def test_a_row_never_leads_out_of_the_folder(flat: Path, tmp_path: Path) -> None:
    place(tmp_path / "secret.png", picture(99))
    place(flat / "labels.csv", as_csv("file,species", [*rows(), ("../secret.png", "cat")]))
    source = penstock.csv(flat / "labels.csv", image="file", label="species")
    with pytest.raises(SchemaError, match="expected a path below"):
        source[60]
    with pytest.raises(NotFoundError):
        penstock.csv(place(flat / "b.csv", "file\nno\n"), image="file")[0]


def test_images_without_classes(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = build(capsys, "flat", "out")
    assert "it has images without folders for classes (0.png): the fields are image and file_name" in out
    train = penstock.load("out")["train"]
    stored = {example["file_name"]: bytes(example["image"]) for example in train.decode(False)}
    assert stored == {f"{number}.png": picture(number) for number in range(60)}
    with pytest.raises(SchemaError, match="label=None reads images without classes"):
        penstock.image_folder(flat)
    place(flat / "deep" / "er" / "x.png", picture(61))
    source: Any = penstock.image_folder(flat, label=None)
    assert len(source) == 61
    assert source[60] == {"image": picture(61), "file_name": "deep/er/x.png"}
    build(capsys, "flat/*.png", "out2", "--as", "image_folder", code=2)


def test_splits_without_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        place(tmp_path / "d" / "train" / f"{number}.png", picture(number))
    place(tmp_path / "d" / "test" / "9.png", picture(9))
    out = build(capsys, str(tmp_path / "d"), str(tmp_path / "out"))
    assert "it has images in train, test without folders for classes: the fields are image and file_name" in out
    dataset = penstock.load(tmp_path / "out")
    assert {name: len(dataset[name]) for name in dataset} == {"train": 3, "test": 1}
    assert dataset["test"][0]["file_name"] == "9.png"
    place(tmp_path / "d" / "train" / "cat" / "1.png", picture(5))
    assert "expected root/class" in build(capsys, str(tmp_path / "d"), str(tmp_path / "out2"), code=2)


def test_images_too_deep_are_told_where_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(tmp_path / "d" / "a" / "b" / "train" / "cat" / "1.png", picture(1))
    error = build(capsys, str(tmp_path / "d"), "out", code=2)
    assert "got some in deeper folders (a/b/train/cat/1.png)" in error
    assert f"such as {tmp_path}/d/a/b/train" in error


# COCO and Pascal VOC


def coco(names: list[str]) -> str:
    images = [{"id": n, "file_name": name, "width": 4, "height": 3} for n, name in enumerate(names)]
    boxes = [{"id": n, "image_id": n, "category_id": 7, "bbox": [0, 0, 2, 1], "area": 2} for n in range(len(names))]
    return json.dumps({"info": {}, "images": images, "annotations": boxes, "categories": [{"id": 7, "name": "cat"}]})


@pytest.mark.parametrize(
    ("images", "annotations"),
    [
        ("{}2017", "annotations/instances_{}2017.json"),
        ("images/{}2017", "annotations/instances_{}2017.json"),
        ("{}", "annotations/{}.json"),
        ("{}", "{}/_annotations.coco.json"),
        ("images", "{}.json"),
    ],
)
def test_coco_is_recognised(tmp_path: Path, capsys: pytest.CaptureFixture[str], images: str, annotations: str) -> None:
    root = tmp_path / "coco"
    for at, split in enumerate(("train", "val")):
        names = [f"{split}{number}.png" for number in range(3 - at)]
        for name in names:
            place(root / images.format(split) / name, picture(len(name)))
        place(root / annotations.format(split), coco(names))
    place(root / "annotations" / "captions_train2017.json", '{"images": [], "annotations": []}')
    out = build(capsys, str(root), str(tmp_path / "out"))
    assert "is taken as coco: it has annotations of COCO" in out
    dataset = penstock.load(tmp_path / "out")
    assert {name: len(dataset[name]) for name in dataset} == {"train": 3, "val": 2}
    assert dataset["train"].schema["objects"]["label"].classes == ("cat",)
    build(capsys, str(root), str(tmp_path / "again"), "--as", "coco")
    assert "penstock.splits(train=penstock.coco(" in detect(root).code


def test_one_file_of_coco(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(tmp_path / "d" / "pictures" / "a.png", picture(1))
    place(tmp_path / "d" / "instances.json", coco(["a.png"]))
    build(capsys, str(tmp_path / "d"), str(tmp_path / "out"))
    assert len(penstock.load(tmp_path / "out")["train"]) == 1
    place(tmp_path / "e" / "a.png", picture(1))
    assert "got no annotations of images" in build(capsys, str(tmp_path / "e"), "x", "--as", "coco", code=2)


XML = (
    "<annotation><object><name>cat</name>"
    "<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>2</xmax><ymax>1</ymax></bndbox></object></annotation>"
)


def test_voc_is_recognised_in_its_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "VOCdevkit"
    for name in ("a", "b"):
        place(root / "VOC2012" / "JPEGImages" / f"{name}.jpg", picture(1, "JPEG"))
        place(root / "VOC2012" / "Annotations" / f"{name}.xml", XML)
    place(root / "VOC2012" / "ImageSets" / "Main" / "train.txt", "a\n")
    place(root / "VOC2012" / "ImageSets" / "Main" / "val.txt", "b\n")
    for at, source in enumerate((root, root / "VOC2012")):
        assert "is taken as voc_detection" in build(capsys, str(source), str(tmp_path / f"out{at}"))
        dataset = penstock.load(tmp_path / f"out{at}")
        assert {name: len(dataset[name]) for name in dataset} == {"train": 1, "val": 1}
    build(capsys, str(root), str(tmp_path / "again"), "--as", "voc_detection")
    place(root / "VOC2007" / "JPEGImages" / "a.jpg", picture(1, "JPEG"))
    place(root / "VOC2007" / "Annotations" / "a.xml", XML)
    error = build(capsys, str(root), str(tmp_path / "two"), code=2)
    assert "expected one folder of Pascal VOC, got VOC2007, VOC2012" in error
    assert "VOCdevkit/VOC2012" in error
