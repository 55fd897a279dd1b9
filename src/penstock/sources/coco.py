"""COCO: a JSON file of images, annotations and categories beside a folder of images."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..dataset.record_files import split_order
from ..errors import CorruptionError, SchemaError
from ..schema.columns import Array, ExampleDict
from ..schema.field import Field
from ..schema.schema import Schema
from ..storage.files import checked_path, is_file, is_folder, join_path, list_folder, read_file
from ..storage.paths import PathLike, entries, files_named, has_suffix, is_directory
from ..storage.store import is_url
from .catalog import parse_json
from .files import head_of, largest_of, read_text, stamps_of_files, within
from .images import check_image, relative_box
from .protocol import Source, position


class Coco(Source):
    """Images with the objects on them. Objects lie in arrays, those of an image next to each other."""

    def __init__(self, root: str, annotations: str, data: Mapping[str, Any], known: Mapping[str, str]) -> None:
        self.root = root
        self.annotations = annotations
        self._known = known
        self.largest_download = largest_of(known)
        images = _entries(data, "images", annotations)
        categories = _categories(_entries(data, "categories", annotations), annotations)
        self.names: list[str] = [
            _value(image, "file_name", str, f"{annotations}, image {i}") for i, image in enumerate(images)
        ]
        ids = [_value(image, "id", int, f"{annotations}, image {i}") for i, image in enumerate(images)]
        self.ids = np.array(ids, dtype=np.int64)
        for name in self.names:
            within(root, name, annotations)
        self._place_objects(images, _entries(data, "annotations", annotations), categories)
        names = tuple(name for name, _ in categories.values())
        objects: dict[str, Any] = {
            "id": "int64",
            "bbox": Field(dtype="float32", shape=(4,), kind="box"),
            "label": Field(dtype="int64", classes=names),
            "area": "float32",
            "is_crowd": "bool",
        }
        image = Field(dtype="bytes", kind="image")
        self.schema = Schema({"image": image, "image_id": "int64", "objects": Schema(objects, sequence=True)})

    def _place_objects(
        self, images: list[ExampleDict], found: list[ExampleDict], categories: dict[int, tuple[str, int]]
    ) -> None:
        numbers = {identity: number for number, identity in enumerate(self.ids.tolist())}
        if len(numbers) != len(images):
            ids = self.ids.tolist()
            twice = next(identity for identity in ids if ids.count(identity) > 1)
            raise CorruptionError(f"expected each image once, got the id {twice} twice", self.annotations)
        owners, boxes, labels, areas, crowds, ids = [], [], [], [], [], []
        for number, item in enumerate(found):
            place = f"{self.annotations}, annotation {number}"
            image_id = _value(item, "image_id", int, place)
            category = _value(item, "category_id", int, place)
            if image_id not in numbers:
                raise CorruptionError(f"expected an image of this file, got the id {image_id}", place)
            if category not in categories:
                raise CorruptionError(f"expected a category of this file, got the id {category}", place)
            owner = numbers[image_id]
            owners.append(owner)
            boxes.append(_box(item, images[owner], place))
            labels.append(categories[category][1])
            areas.append(_value(item, "area", (int, float), place, 0.0))
            crowds.append(bool(_value(item, "iscrowd", int, place, 0)))
            ids.append(_value(item, "id", int, place, number))
        order = np.argsort(np.array(owners, dtype=np.int64), kind="stable")
        counts = np.bincount(np.array(owners, dtype=np.int64), minlength=len(images))
        self.splits = np.concatenate([[0], np.cumsum(counts)])
        self.objects: dict[str, Array] = {
            "id": np.array(ids, dtype=np.int64)[order],
            "bbox": np.array(boxes, dtype=np.float32).reshape(-1, 4)[order],
            "label": np.array(labels, dtype=np.int64)[order],
            "area": np.array(areas, dtype=np.float32)[order],
            "is_crowd": np.array(crowds, dtype=bool)[order],
        }

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Coco({self.annotations!r}: {len(self)} images, {self.splits[-1]} objects)"

    def __getitem__(self, index: int) -> ExampleDict:
        index = position(index, len(self))
        path = self.place(index)
        data = read_file(path, self.annotations)
        check_image(data, path)
        rows = slice(int(self.splits[index]), int(self.splits[index + 1]))
        objects = {name: values[rows] for name, values in self.objects.items()}
        return {"image": data, "image_id": int(self.ids[index]), "objects": objects}

    def key(self, index: int) -> str:
        """The file's name."""
        return self.names[index]

    def place(self, index: int) -> str:
        """The image's path."""
        return join_path(self.root, self.names[index])

    def stamp(self, index: int) -> str:
        """Size and time of change of the image, and of the file of annotations."""
        return " ".join(stamps_of_files([self.place(index), self.annotations], self._known))


_HEAD = 1 << 20  # bytes of a file of annotations that are looked at
_IS_COCO = re.compile(rb'"(?:annotations|categories|images)"\s*:\s*\[')
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"\\]{1,1000})"')
_ROBOFLOW = "_annotations.coco.json"
_MOST_FILES = 50  # JSON files of a folder that are looked at
_YEAR = re.compile(r"[-_]?\d{4}$")
_OTHER_TASKS = ("captions_", "person_keypoints_", "stuff_", "panoptic_", "image_info_")


def coco_parts(root: str) -> dict[str, tuple[str, str]]:
    """The folder of images and the file of annotations of each split in a folder of COCO; none in any other folder.

    train2017/ or images/train2017/ with annotations/instances_train2017.json; train/ with train/_annotations.coco.json;
    or one file of annotations, under "".
    """
    folders = [entry.name for entry in entries(root) if is_directory(entry)]
    places = [root, *(f"{root}/{name}" for name in folders)]
    near = [root, *(f"{root}/{name}" for name in folders if name.lower() in ("annotations", "annotation", "labels"))]
    listed = [f"{place}/{entry.name}" for place in near for entry in entries(place) if not is_directory(entry)]
    files = [path for path in listed if has_suffix(path, (".json",))]
    files = [path for path in files if not os.path.basename(path).startswith(_OTHER_TASKS)][:_MOST_FILES]
    files += filter(is_file, (f"{place}/{_ROBOFLOW}" for place in places[1:]))
    heads = {path: head for path in dict.fromkeys(files) if _IS_COCO.search(head := _head(path))}
    found: dict[str, tuple[str, str]] = {}
    for path, head in heads.items():
        stem = os.path.splitext(os.path.basename(path))[0].removeprefix("instances_")
        inside = os.path.relpath(os.path.dirname(path), root)
        split = inside if stem.startswith("_annotations") and inside != os.curdir else stem
        bases = [f"{root}/{split}", f"{root}/images/{split}", os.path.dirname(path), f"{root}/images"]
        images = _image_folder(head, [*bases, *places])
        if images is None:
            continue  # annotations of something else
        if split in found:
            names = f"{found[split][1]} and {path}"
            raise SchemaError(f"expected one file of annotations for each split, got {names}", root)
        found[split] = (_normal(images), _normal(path))
    if len(found) == 1:
        return {"": next(iter(found.values()))}
    without_years = [_YEAR.sub("", split) for split in found]
    unique = len(set(without_years)) == len(found) and all(without_years)
    splits = without_years if unique else list(found)
    return dict(sorted(zip(splits, found.values(), strict=True), key=lambda part: split_order(part[0])))


def _normal(path: str) -> str:
    return path if is_url(path) else os.path.normpath(path)


def _image_folder(head: bytes, places: list[str]) -> str | None:
    """The folder among some in which the first image of a file of annotations lies."""
    name = _FILE_NAME.search(head)
    if name is None:
        return next(filter(is_folder, places), None)
    first = os.fsdecode(name[1])
    return next((place for place in places if is_file(join_path(place, first))), None)


def _head(path: str) -> bytes:
    try:
        return head_of(path, _HEAD)
    except OSError:
        return b""


def coco(images: PathLike, annotations: PathLike) -> Coco:
    """Images with boxes, as COCO has them: a folder of images, and a JSON file of instances.

    Boxes become ymin, xmin, ymax, xmax as shares of the image's height and width. Labels count the categories in the
    order of their ids. An image without annotations has no objects.
    """
    files = files_named(annotations, (".json",))
    if len(files) != 1:
        hint = "Make a split of each: splits(train=coco(...), eval=coco(...))"
        raise SchemaError(f"expected one file of annotations, got {len(files)}", os.fspath(annotations), hint)
    known = dict(zip(files, stamps_of_files(files), strict=True)) if is_url(files[0]) else {}
    data = parse_json(read_text(files[0]), files[0])
    if not isinstance(data, dict):
        raise SchemaError(f"expected an object with images, annotations and categories, got {type(data).__name__}")
    root = checked_path(images)
    if is_url(root) and not root.startswith("http"):
        known = {**known, **list_folder(root).stamps}
    return Coco(root, files[0], data, known)


def _entries(data: Mapping[str, Any], name: str, path: str) -> list[ExampleDict]:
    found = data.get(name)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        got = "none" if found is None else type(found).__name__
        raise SchemaError(f"expected {name!r} as a list of objects, got {got}", path)
    return found


def _categories(found: list[ExampleDict], path: str) -> dict[int, tuple[str, int]]:
    """id -> name and label, by rising id."""
    pairs = sorted(
        (_value(item, "id", int, f"{path}, category {n}"), _value(item, "name", str, f"{path}, category {n}"))
        for n, item in enumerate(found)
    )
    if len({identity for identity, _ in pairs}) != len(pairs):
        raise CorruptionError("expected each category once, got an id twice", path)
    return {identity: (name, label) for label, (identity, name) in enumerate(pairs)}


def _box(item: Mapping[str, Any], image: Mapping[str, Any], place: str) -> tuple[float, float, float, float]:
    box = item.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(type(value) in (int, float) for value in box):
        raise CorruptionError(f"expected bbox as [x, y, width, height], got {box!r:.60}", place)
    across, down = image.get("width"), image.get("height")
    if not all(isinstance(value, (int, float)) and value > 0 for value in (across, down)):
        raise CorruptionError(f"expected the image's width and height, got {across} and {down}", place)
    x, y, width, height = box
    return relative_box((x, y, x + width, y + height), float(across or 0), float(down or 0), place)


def _value(item: Mapping[str, Any], name: str, kind: Any, place: str, default: Any = None) -> Any:
    value = item.get(name, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and name != "iscrowd"):
        expected = {int: "an int", str: "a text"}.get(kind, "a number")
        got = "nothing" if value is None else f"{value!r:.60}"
        raise CorruptionError(f"expected {expected} for {name}, got {got}", place)
    return value
