"""The examples of Datum's problems: found by our sources, under its names, in its order."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import SchemaError, StorageError, name_known
from ....field import Field
from ....inference import infer
from ....schema import Schema
from ....sources.files import IMAGE_SUFFIXES, entries, has_suffix, read_file, read_lines
from ....sources.image_classification import labelled_images
from ....sources.images import check_image
from ....sources.listed import Examples
from ....sources.text import read_texts
from ....sources.voc import ANNOTATIONS, IMAGES, MASKS, VocDetection, VocSegmentation, by_stem, listed_ids
from ..problem.types import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF

OPTIONS = {
    IMAGE_CLF: ("extension", "image_dir", "csv_path"),
    IMAGE_DET: ("extension", "image_dir", "annotation_dir", "set_dir"),
    IMAGE_SEG: ("image_extension", "label_extension", "image_dir", "label_dir", "set_dir"),
    TEXT_CLF: ("json_path",),
}
_IMAGE = Field(dtype="bytes", kind="image")
_BOXES = dict.fromkeys(("xmin", "xmax", "ymin", "ymax", "area"), "float32[?]")
_OBJECTS = {**_BOXES, "pose": "str[?]", **dict.fromkeys(("labels", "is_truncated", "labels_difficult"), "int64[?]")}


class Datums:
    """A split in Datum's order: by the MD5 of its name and the example's key.

    change  what makes Datum's features of a source's example
    """

    def __init__(
        self, split: str, keys: Sequence[Any], source: Any, schema: Schema, change: Callable[[Any], Any] | None = None
    ) -> None:
        self.keys = [str(key) for key in keys]
        self.source = source
        self.schema = schema
        self.change = change
        self.shaped: Mapping[str, int] = {}
        hashes = [hashlib.md5(f"{split}{key}".encode(), usedforsecurity=False).digest() for key in self.keys]
        self.order = sorted(range(len(hashes)), key=hashes.__getitem__)

    def store(self, schema: Schema, shaped: Mapping[str, int]) -> None:
        """In these types; the shapes of some features stand beside them."""
        self.schema, self.shaped = schema, shaped

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> dict[str, Any]:
        example = self.source[self.order[index]]
        example = self.change(example) if self.change else dict(example)
        for field in self.schema.leaves():
            if field.dtype in ("float32", "int64") and field.name in example:
                example[field.name] = np.asarray(example[field.name], field.dtype)
        for name in self.shaped:
            example[f"{name}_shape"] = np.array(example[name].shape, np.int64)
            example[name] = example[name].reshape(-1)
        return example

    def key(self, index: int) -> str:
        """Datum's: the number of the row, or the id."""
        return self.keys[self.order[index]]

    def place(self, index: int) -> str:
        """That of the source."""
        return str(self.source.place(self.order[index]))

    def stamp(self, index: int) -> str:
        """That of the source."""
        return str(self.source.stamp(self.order[index]))


def find_datums(root: str, problem: str, split: str, options: Mapping[str, Any]) -> Datums:
    """The examples of a split, where its options say that they are."""
    known = (*OPTIONS[problem], "num_examples")
    for name in options:
        if name not in known:
            raise SchemaError(f"unknown option {name!r}", f"splits[{split!r}]", name_known(name, known, "options"))
    return _FINDERS[problem](root, split, lambda name, usual: os.path.join(root, options.get(name) or usual), options)


def find_own(generate: Any, problem: str, split: str, options: Mapping[str, Any]) -> Datums:
    """The examples that a generator of one's own yields; in problems of images, names of image files stand for them."""
    given = {name: value for name, value in options.items() if name != "num_examples"}
    pairs = list(generate(split=split, **given))
    keys, examples = [key for key, _ in pairs], [dict(example) for _, example in pairs]
    if not examples:
        raise SchemaError("expected examples, got none", f"splits[{split!r}]")
    source = Examples(examples, list(map(str, keys)), [f"the generator, example {key!r}" for key in keys])
    if problem == TEXT_CLF:
        return Datums(split, keys, source, infer(examples))
    images = [
        name for name, value in examples[0].items() if isinstance(value, str) and has_suffix(value, IMAGE_SUFFIXES)
    ]
    rest = [{name: value for name, value in example.items() if name not in images} for example in examples]
    schema = Schema({**dict.fromkeys(images, _IMAGE), **(infer(rest) if rest[0] else {})})
    return Datums(split, keys, source, schema, _ReadImages(images))


class _ReadImages:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def __call__(self, example: Mapping[str, Any]) -> dict[str, Any]:
        loaded = {name: read_file(example[name]) for name in self.names}
        for name, data in loaded.items():
            check_image(data, example[name])
        return {**example, **loaded}


Path = Callable[[str, str], str]


def _suffixes(options: Mapping[str, Any], name: str, usual: tuple[str, ...] = IMAGE_SUFFIXES) -> tuple[str, ...]:
    """The extension that was said, or any that is usual: those of images."""
    return (options[name].lower(),) if options.get(name) else usual


def _classified(root: str, split: str, path: Path, options: Mapping[str, Any]) -> Datums:
    files = path("csv_path", f"{split}.csv"), path("image_dir", split)
    source = labelled_images(*files, split, _suffixes(options, "extension"))
    assert source.schema is not None
    return Datums(split, range(len(source)), source, source.schema)


def _detected(root: str, split: str, path: Path, options: Mapping[str, Any]) -> Datums:
    images = by_stem(path("image_dir", IMAGES), _suffixes(options, "extension"))
    annotations = by_stem(path("annotation_dir", ANNOTATIONS), (".xml",))
    ids = listed_ids(os.path.join(path("set_dir", "ImageSets"), f"{split}.txt"), images, annotations)
    classes = tuple(name for _, name in read_lines(os.path.join(root, "classes.names")))
    source = VocDetection(root, ids, images, annotations, classes)
    return Datums(split, ids, source, Schema({"image": _IMAGE, **_OBJECTS}), _flat_objects)


def _flat_objects(example: Mapping[str, Any]) -> dict[str, Any]:
    objects = example["objects"]
    ymin, xmin, ymax, xmax = objects["bbox"].T
    return {
        "image": example["image"],
        "xmin": xmin, "xmax": xmax, "ymin": ymin, "ymax": ymax,
        "area": (xmax - xmin) * (ymax - ymin),
        "pose": [pose.lower() for pose in objects["pose"]],
        "labels": [label + 1 for label in objects["label"]],
        "is_truncated": objects["is_truncated"],
        "labels_difficult": objects["is_difficult"],
    }  # fmt: skip


def _segmented(root: str, split: str, path: Path, options: Mapping[str, Any]) -> Datums:
    images = by_stem(path("image_dir", IMAGES), _suffixes(options, "image_extension"))
    masks = by_stem(path("label_dir", MASKS), _suffixes(options, "label_extension", (".png",)))
    ids = listed_ids(os.path.join(path("set_dir", "."), f"{split}.txt"), images, masks)
    mask = Field(dtype="bytes", kind="image", decoded="uint8[?,?,1]")
    source = VocSegmentation(root, ids, images, masks)
    return Datums(split, ids, source, Schema({"image": _IMAGE, "label": mask}), _masked)


def _masked(example: Mapping[str, Any]) -> dict[str, Any]:
    return {"image": example["image"], "label": example["mask"]}


def _texts(root: str, split: str, path: Path, options: Mapping[str, Any]) -> Datums:
    if options.get("json_path"):
        files = [path("json_path", "")]
    else:
        names = [
            entry.name for entry in entries(root) if entry.name.startswith(split) and has_suffix(entry.name, (".json",))
        ]
        files = [os.path.join(root, name) for name in names]
    if not files:
        raise StorageError(f"expected a file {split}.json, got none - at {root}")
    source = read_texts(files)
    return Datums(split, source.keys, source, infer(source.examples))


_FINDERS = {IMAGE_CLF: _classified, IMAGE_DET: _detected, IMAGE_SEG: _segmented, TEXT_CLF: _texts}
