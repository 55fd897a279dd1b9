"""Pascal VOC: JPEGImages/, Annotations/*.xml or SegmentationClass/*.png, and lists of images in ImageSets/."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ..dataset.record_files import split_order
from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError, name_known
from ..schema.columns import ExampleDict
from ..schema.field import Field
from ..schema.schema import Schema
from ..storage.files import checked_path, is_file, is_folder, join_path, list_folder, read_file, read_files
from ..storage.paths import PathLike, entries, has_suffix, is_directory
from ..storage.store import is_url
from .files import largest_of, read_lines, stamps_of_files, suffixes, within
from .images import check_image, class_numbers, relative_box
from .protocol import Source, position
from .splits import Splits

MOST_XML = 16 << 20  # bytes of one annotation
XML_FILES = 64  # annotations that are read at a time in search of class names
IMAGES, ANNOTATIONS, MASKS = "JPEGImages", "Annotations", "SegmentationClass"
_ENCODING = re.compile(rb"""<\?xml[^>]{0,100}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
_ENCODINGS = {"utf-8": "utf-8-sig", "utf8": "utf-8-sig", "us-ascii": "ascii", "ascii": "ascii",
              "iso-8859-1": "latin-1", "latin1": "latin-1", "windows-1252": "cp1252"}  # fmt: skip


@dataclass(frozen=True)
class Files:
    """The files of a folder by their names without suffix, and the stamps of those in a store."""

    paths: Mapping[str, str]
    stamps: Mapping[str, str]


class VocImages(Source):
    """The images of one split, each with a file that belongs to it: an annotation, or a mask."""

    def __init__(self, root: str, ids: Sequence[str], images: Files, others: Files) -> None:
        self.root = root
        self.ids = list(ids)
        self.images = [images.paths[name] for name in ids]
        self.others = [others.paths[name] for name in ids]
        self._known = {**images.stamps, **others.stamps}
        self.largest_download = largest_of(self._known)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r}: {len(self)} images)"

    def key(self, index: int) -> str:
        """The image's id."""
        return self.ids[index]

    def place(self, index: int) -> str:
        """The image's path."""
        return self.images[index]

    def stamp(self, index: int) -> str:
        """Sizes and times of change of both files."""
        return " ".join(stamps_of_files([self.images[index], self.others[index]], self._known))


class VocDetection(VocImages):
    """Images with boxes."""

    def __init__(
        self,
        root: str,
        ids: Sequence[str],
        images: Files,
        others: Files,
        classes: tuple[str, ...],
    ) -> None:
        super().__init__(root, ids, images, others)
        self.classes = classes
        objects: dict[str, Any] = {
            "bbox": Field(dtype="float32", shape=(4,), kind="box"),
            "label": Field(dtype="int64", classes=classes),
            "pose": "str",
            "is_truncated": "bool",
            "is_difficult": "bool",
        }
        image = Field(dtype="bytes", kind="image")
        self.schema = Schema({"image": image, "objects": Schema(objects, sequence=True)})

    def __getitem__(self, index: int) -> ExampleDict:
        index = position(index, len(self))
        data = read_file(self.images[index])
        header = check_image(data, self.images[index])
        tree = read_xml(self.others[index])
        return {"image": data, "objects": _objects(tree, self.classes, header[1:], self.others[index])}


class VocSegmentation(VocImages):
    """Images with masks, whose grey levels are the numbers of classes."""

    schema = Schema(
        {
            "image": Field(dtype="bytes", kind="image"),
            "mask": Field(dtype="bytes", kind="image", decoded="uint8[?,?,1]"),
        }
    )

    def __getitem__(self, index: int) -> ExampleDict:
        index = position(index, len(self))
        path = self.others[index]
        example = {"image": read_file(self.images[index]), "mask": class_numbers(read_file(path), path)}
        image = check_image(example["image"], self.images[index])
        mask = check_image(example["mask"], path)
        if image[1:] != mask[1:]:
            sizes = (
                f"a mask of {image.width} x {image.height} pixels, as the image has, got {mask.width} x {mask.height}"
            )
            raise CorruptionError(f"expected {sizes}", path)
        return example


def voc_folder(root: str) -> str | None:
    """The folder of a year in VOCdevkit/, if there is one; an error if there are several."""
    listing = list_folder(root)
    years = []
    for folder in [entry.name for entry in listing.entries() if is_directory(entry)]:
        below: set[str] = set()
        with suppress(StorageError):  # a folder that cannot be read
            below = {entry.name for entry in listing.entries(folder) if is_directory(entry)}
        if IMAGES in below and below & {ANNOTATIONS, MASKS}:
            years.append(folder)
    if len(years) > 1:
        hint = f"Choose one: {join_path(root, years[-1])}"
        raise SchemaError(f"expected one folder of Pascal VOC, got {', '.join(years)}", root, hint)
    return join_path(root, years[0]) if years else None


def voc_detection(
    root: PathLike,
    *,
    split: str | None = None,
    image_dir: str = IMAGES,
    annotation_dir: str = ANNOTATIONS,
    set_dir: str | None = None,
    extension: str | None = None,
) -> VocDetection | Splits:
    """Images with boxes, in the layout of Pascal VOC.

    JPEGImages/<id>.jpg, Annotations/<id>.xml, and a list of ids for each split: ImageSets/Main/<split>.txt or
    ImageSets/<split>.txt; without lists, all annotated images. Classes are those of classes.names, a name on each
    line, or those that the annotations name.

    split           this one alone, without the others
    image_dir, annotation_dir, set_dir   folders of other names: of images, of annotations, of lists
    extension       of images, where there are others beside them: ".jpg"
    """
    folder = checked_path(root).rstrip("/") or "/"
    images = by_stem(join_path(folder, image_dir), suffixes(extension))
    annotations = by_stem(join_path(folder, annotation_dir), (".xml",))
    folders = (set_dir,) if set_dir else ("ImageSets/Main", "ImageSets")
    splits = _splits(folder, folders, images, annotations, split)
    known = f"{folder}/classes.names"
    if is_file(known):
        names = tuple(line for _, line in read_lines(known))
    else:  # of one split alone, the same as of all
        listed = annotations.paths if split else {name for ids in splits.values() for name in ids}
        names = _class_names([annotations.paths[name] for name in sorted(listed)])
    sources = {split: VocDetection(folder, ids, images, annotations, names) for split, ids in splits.items()}
    return sources[""] if "" in sources else Splits(sources)


def voc_segmentation(
    root: PathLike,
    *,
    split: str | None = None,
    image_dir: str = IMAGES,
    mask_dir: str = MASKS,
    set_dir: str | None = None,
    image_extension: str | None = None,
    mask_extension: str = ".png",
) -> VocSegmentation | Splits:
    """Images with masks, in the layout of Pascal VOC.

    JPEGImages/<id>.jpg, SegmentationClass/<id>.png, and a list of ids for each split:
    ImageSets/Segmentation/<split>.txt, ImageSets/<split>.txt or <split>.txt; without lists, all images with a mask.
    A mask with a palette, as VOC has them, becomes a grey one: its levels are the numbers of the classes.

    split                          this one alone, without the others
    image_dir, mask_dir, set_dir   folders of other names: of images, of masks, of lists
    image_extension, mask_extension   of images and of masks, where there are others beside them
    """
    folder = checked_path(root).rstrip("/") or "/"
    images = by_stem(join_path(folder, image_dir), suffixes(image_extension))
    masks = by_stem(join_path(folder, mask_dir), suffixes(mask_extension))
    folders = (set_dir,) if set_dir else ("ImageSets/Segmentation", "ImageSets", ".")
    splits = _splits(folder, folders, images, masks, split)
    sources = {split: VocSegmentation(folder, ids, images, masks) for split, ids in splits.items()}
    return sources[""] if "" in sources else Splits(sources)


# Lists
def by_stem(folder: str, suffixes: Sequence[str]) -> Files:
    """The files of a folder by their names without suffix."""
    found: dict[str, str] = {}
    listing = list_folder(folder)
    for entry in listing.entries():
        if has_suffix(entry.name, suffixes):
            stem = os.path.splitext(entry.name)[0]
            if stem in found:
                raise SchemaError(f"expected one file for each image, got {found[stem]} and {entry.name}", folder)
            found[stem] = f"{folder}/{entry.name}"
    if not found:
        raise StorageError(f"expected files that end in {' or '.join(suffixes)}, got none - at {folder}")
    return Files(found, listing.stamps)


def _splits(root: str, folders: Sequence[str], images: Files, others: Files, only: str | None) -> dict[str, list[str]]:
    """The ids of each split; all of them under "" when there are no lists, and those of a split that is asked for."""
    if only is not None:
        paths = [_below(root, folder, f"{only}.txt") for folder in folders]
        path = next(filter(is_file, paths), paths[-1])
        return {"": listed_ids(path, images, others)}
    for folder in folders:
        path = _below(root, folder)
        if is_folder(path):
            lists = {os.path.splitext(e.name)[0]: e.path for e in entries(path) if has_suffix(e.name, (".txt",))}
            splits = {
                split: listed_ids(list_path, images, others)
                for split, list_path in lists.items()
                if split.rpartition("_")[2] not in lists or "_" not in split  # cat_train.txt is about one class
            }
            if {"train", "val", "trainval"} <= splits.keys():
                del splits["trainval"]  # the two together
            if splits:
                return {split: splits[split] for split in sorted(splits, key=split_order)}
    return {"": [name for name in sorted(others.paths) if name in images.paths]}


def _below(root: str, *names: str) -> str:
    path = join_path(root, *names)
    return path if is_url(path) else os.path.normpath(path)


def listed_ids(path: str, images: Files, others: Files) -> list[str]:
    """The ids that a list names, each with an image and what belongs to it."""
    ids = []
    for number, line in read_lines(path):
        name = line.split()[0]
        where = f"{path}:{number}"
        within(".", name, where)
        for kind, known in (("an image", images), ("an annotation or a mask", others)):
            if name not in known.paths:
                raise NotFoundError(f"expected {kind} for {name!r}, got none - at {where}")
        ids.append(name)
    if not ids:
        raise SchemaError("expected a list of images, got an empty file", path)
    return ids


# Annotations
def read_xml(path: str) -> ElementTree.Element:
    """The root of an XML document that declares nothing: no document type, so no entities, inner or outer."""
    return _parse_xml(read_file(path), path)


def _parse_xml(data: bytes, path: str) -> ElementTree.Element:
    if len(data) > MOST_XML:
        raise CorruptionError(f"expected an annotation of at most {MOST_XML} bytes, got {len(data)}", path)
    declared = _ENCODING.match(data.removeprefix(b"\xef\xbb\xbf"))
    encoding = declared[1].decode().lower() if declared else "utf-8"
    if encoding not in _ENCODINGS:
        raise CorruptionError(f"expected XML in UTF-8, got the encoding {encoding}. Convert the file to UTF-8", path)
    try:
        text = data.decode(_ENCODINGS[encoding])
    except UnicodeDecodeError as error:
        raise CorruptionError(f"expected XML in {encoding}, got the byte 0x{data[error.start]:02x}", path) from None
    lowered = text.lower()
    if "<!doctype" in lowered or "<!entity" in lowered:
        raise CorruptionError("expected XML without a document type, got one. Take the <!DOCTYPE ...> away", path)
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        line, column = error.position
        problem = str(error).partition(":")[0]
        raise CorruptionError(f"expected XML, got {problem} in column {column + 1}", f"{path}:{line}") from None
    except ValueError as error:
        raise CorruptionError(f"expected XML, got {error}", path) from None


def _class_names(paths: Sequence[str]) -> tuple[str, ...]:
    names: set[str] = set()
    for first in range(0, len(paths), XML_FILES):
        some = paths[first : first + XML_FILES]
        for path, data in zip(some, read_files(some), strict=True):
            names.update(_text(found, "name", path) for found in _parse_xml(data, path).findall("object"))
    return tuple(sorted(names))


def _objects(
    tree: ElementTree.Element, classes: tuple[str, ...], image_size: tuple[int, int], path: str
) -> dict[str, Any]:
    """The objects of an annotation, a list for each of their fields."""
    size = tree.find("size")
    width, height = (0.0, 0.0) if size is None else (_number(size, name, path, "0") for name in ("width", "height"))
    if width < 1 or height < 1:
        width, height = image_size
    boxes, labels, poses, truncated, difficult = [], [], [], [], []
    for number, found in enumerate(tree.findall("object")):
        place = f"{path}, object {number}"
        labels.append(_label(_text(found, "name", place), classes, place))
        box = found.find("bndbox")
        if box is None:
            raise CorruptionError("expected a bndbox, got none", place)
        xmin, ymin, xmax, ymax = (_number(box, name, place) for name in ("xmin", "ymin", "xmax", "ymax"))
        boxes.append(relative_box((xmin, ymin, xmax, ymax), width, height, place))
        poses.append(_text(found, "pose", place, ""))
        truncated.append(_number(found, "truncated", place, "0") != 0)
        difficult.append(_number(found, "difficult", place, "0") != 0)
    return {
        "bbox": np.array(boxes, dtype=np.float32).reshape(-1, 4),
        "label": labels,
        "pose": poses,
        "is_truncated": truncated,
        "is_difficult": difficult,
    }


def _label(name: str, classes: tuple[str, ...], place: str) -> int:
    """The class of that name; a list of lower-case names serves capitals too."""
    for known in (name, name.lower()):
        if known in classes:
            return classes.index(known)
    raise SchemaError(f"unknown class {name!r}", place, name_known(name, classes, "classes"))


def _text(element: ElementTree.Element, name: str, place: str, default: str | None = None) -> str:
    text = (element.findtext(name) or "").strip()
    if not text and default is None:
        raise CorruptionError(f"expected a {name}, got none", place)
    return text or default or ""


def _number(element: ElementTree.Element, name: str, place: str, default: str | None = None) -> float:
    text = _text(element, name, place, default)
    try:
        return float(text)
    except ValueError:
        raise CorruptionError(f"expected a number for {name}, got {text[:40]!r}", place) from None
