"""Folders of images: photos/train/cat/1.jpg, or photos/cat/1.jpg."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._core import ImageFiles
from ..dataset.record_files import SPLIT_NAMES, split_order
from ..errors import SchemaError, StorageError
from ..schema.columns import Array, Bytes, Columns, ExampleDict
from ..schema.field import Field, Image
from ..schema.schema import Schema
from ..storage.files import LocalListing, ObjectListing, checked_path, is_folder, list_folder, parent_path, read_files
from ..storage.paths import PathLike, expand, has_suffix, is_directory, is_glob
from ..storage.store import is_url, split_url
from .files import IMAGE_SUFFIXES, NO_STAMPS, largest_of, stamps_of_files
from .images import check_image
from .protocol import BatchSource, position
from .splits import Splits

FILE_NAME = "file_name"  # the field of images without labels

# Images that cannot be decoded. They are listed, so that loading one is an error of that example: see `on_error`.
_OTHER_IMAGES = (".tif", ".tiff", ".heic", ".heif", ".avif", ".jxl", ".jp2", ".ppm", ".pgm")
_EXPECTED = "expected root/class/*.jpg or root/split/class/*.jpg"
_Folders = dict[str, list[str]]  # a folder's path below the root -> the images in it


class ImageFolder(BatchSource):
    """Images with the label that their folder names, or, without labels, with their file names.

    Only names are read until an example is loaded.
    known             stamps of images in a store, by URL
    largest_download  bytes of the largest of them; 0 on a local disk
    """

    schema: Schema

    def __init__(
        self,
        root: str,
        names: list[str],
        labels: Array | None,
        schema: Schema,
        resize: Image | None,
        known: Mapping[str, str] = NO_STAMPS,
    ) -> None:
        self.root = root
        self.names = names
        self.labels = labels
        self.schema = schema
        self.resize = resize
        self._known = known
        self.largest_download = largest_of(known)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"ImageFolder({self.root!r}: {len(self)} images)"

    def __getitem__(self, index: int) -> ExampleDict:
        index = position(index, len(self))
        image, label = self.schema
        path = self.place(index)
        value = self.names[index] if self.labels is None else int(self.labels[index])
        return {image: self._stored(path, *read_files([path])), label: value}

    def _stored(self, path: str, data: bytes) -> bytes:
        check_image(data, path)
        return data if self.resize is None else self.resize.resize(data, path)

    def stamps(self, indices: Array) -> list[str]:
        """Those of many."""
        return [self._with_size(stamp) for stamp in stamps_of_files(self._paths(indices), self._known)]

    def _with_size(self, stamp: str) -> str:
        """Images of another size are other images, though they are made of the same file."""
        return f"{stamp} {self.resize}" if stamp and self.resize else stamp

    def _paths(self, indices: Array) -> list[str]:
        root, names = self.root, self.names
        return [f"{root}/{names[index]}" for index in indices.tolist()]

    def take(self, indices: Array) -> Columns:
        """These examples, as columns."""
        image, label = self.schema
        paths = self._paths(indices)
        if self.resize or is_url(self.root):
            files: Any = Bytes.from_list(list(map(self._stored, paths, read_files(paths))))
        else:
            files = ImageFiles(paths)
        if self.labels is None:
            return {image: files, label: Bytes.from_list([self.names[index] for index in indices.tolist()])}
        return {image: files, label: self.labels[indices]}

    def column(self, name: str) -> Any:
        """The labels, or the file names, are known without loading."""
        known = self.names if self.labels is None else self.labels
        return known if name == list(self.schema)[1] else None

    def key(self, index: int) -> str:
        """The path below the root."""
        return self.names[index]

    def place(self, index: int) -> str:
        """The path."""
        return f"{self.root}/{self.names[index]}"

    def stamp(self, index: int) -> str:
        """Size and time of change of the file."""
        return self.stamps(np.array([index]))[0]


def image_folder(
    root: PathLike, *, image: str = "image", label: str | None = "label", resize: Image | None = None
) -> ImageFolder | Splits:
    """The images of `root/class/*` or `root/split/class/*`, as they are, with a label named by the class's folder.

    image_folder("photos/", resize=Image(max_side=256)): stored smaller, so that every epoch decodes less

    Classes are sorted by name, and are the same in all splits. Hidden files and files that are no images are left out.
    An image that cannot be read, such as one of HEIC, is an error of that example: see `on_error` of `build`.
    A pattern such as photos/**/*.jpg takes the images that it names.

    label=None: images without classes, in `root` itself and in all folders below it; `file_name` is their path there.
    """
    if image == label:
        raise SchemaError(f"expected two names for image and label, got {image!r} twice")
    text = checked_path(root)
    pattern = (is_glob(text) or "{" in text) and not is_folder(text)
    if pattern:
        base, folders, known = _match(text, labelled=label is not None)
    else:
        base, folders, known = _walk(text) if label is not None else _walk_all(text)
    base = base.rstrip("/") or "/"
    if label is None:
        return _without_labels(base, folders, image, resize, known)
    split_level = _has_splits(folders, base)
    classes = sorted({folder.rpartition("/")[2] for folder in folders})
    empty = [name for name in classes if not any(f.rpartition("/")[2] == name and folders[f] for f in folders)]
    if empty:
        raise StorageError(f"expected images in each class's folder, got none for {', '.join(empty[:10])} - at {base}")
    field = Field(dtype="int64", classes=tuple(classes))
    schema = Schema({image: Field(dtype="bytes", kind="image"), label: field})
    numbers = {name: number for number, name in enumerate(classes)}
    if not split_level:
        return _source(base, folders, numbers, schema, resize, known)
    splits: dict[str, _Folders] = {}
    for folder, names in folders.items():
        splits.setdefault(folder.partition("/")[0], {})[folder] = names
    names = sorted(splits, key=split_order)
    return Splits({name: _source(base, splits[name], numbers, schema, resize, known) for name in names})


def _without_labels(
    base: str, folders: _Folders, image: str, resize: Image | None, stamps: Mapping[str, str]
) -> ImageFolder:
    if image == FILE_NAME:
        raise SchemaError(f"expected another name for image, got {image!r}", hint="The field of file names has it")
    names = [f"{folder}/{name}" if folder else name for folder, below in folders.items() for name in below]
    if not names:
        raise StorageError(f"expected images, got none - at {base}. Images end in {' '.join(IMAGE_SUFFIXES)}")
    _check_text(names, base)
    schema = Schema({image: Field(dtype="bytes", kind="image"), FILE_NAME: Field(dtype="str")})
    return ImageFolder(base, names, None, schema, resize, stamps)


def _source(
    base: str,
    folders: _Folders,
    numbers: dict[str, int],
    schema: Schema,
    resize: Image | None,
    stamps: Mapping[str, str],
) -> ImageFolder:
    names = [f"{folder}/{name}" for folder, below in folders.items() for name in below]
    _check_text(names, base)
    labels = [numbers[folder.rpartition("/")[2]] for folder in folders]
    counts = [len(below) for below in folders.values()]
    known = {path: stamps[path] for path in (f"{base}/{name}" for name in names)} if stamps else NO_STAMPS
    return ImageFolder(base, names, np.repeat(np.array(labels, dtype=np.int64), counts), schema, resize, known)


def _check_text(names: list[str], base: str) -> None:
    """Keys are text: a name that is not UTF-8 has none."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        wrong = next(name for name in names if not _is_text(name))
        raise SchemaError(f"expected file names in UTF-8, got {wrong!r}", base, "Rename the file") from None


def _is_text(name: str) -> bool:
    try:
        return name.encode() is not None
    except UnicodeEncodeError:
        return False


def _walk(root: str) -> tuple[str, _Folders, Mapping[str, str]]:
    """The root, the folders of images below it, one or two levels down, and stamps of images in a store."""
    folders: _Folders = {}
    listing = list_folder(root)
    inner, images = _look(listing)
    if images:
        folder = "folders beside images" if inner else "images without folders"
        hint = "Each class has a folder of its own; label=None reads images without classes"
        raise SchemaError(f"{_EXPECTED}, got {folder} ({images[0]})", root, hint)
    for name in inner:
        below, images = _look(listing, name)
        if images or not below:
            folders[name] = images
        for child in below:
            deeper, images = _look(listing, f"{name}/{child}")
            folders[f"{name}/{child}"] = images
            if deeper:
                raise SchemaError(f"{_EXPECTED}, got folders three levels deep ({name}/{child}/{deeper[0]})", root)
    return listing.root, folders, listing.stamps


def _walk_all(root: str) -> tuple[str, _Folders, Mapping[str, str]]:
    """The root, the folders of images below it at any depth, itself among them, and stamps of images in a store."""
    listing = list_folder(root)
    folders: _Folders = {}
    waiting = [""]
    while waiting:
        below = waiting.pop()
        inner, folders[below] = _look(listing, below)
        waiting += [f"{below}/{name}" if below else name for name in reversed(inner)]
    return listing.root, folders, listing.stamps


def _look(listing: LocalListing | ObjectListing, folder: str = "") -> tuple[list[str], list[str]]:
    """The folders and the images in a folder."""
    folders, images = [], []
    for entry in listing.entries(folder):
        if is_directory(entry):
            folders.append(entry.name)
        elif has_suffix(entry.name, IMAGE_SUFFIXES + _OTHER_IMAGES):
            images.append(entry.name)
    return folders, images


def _match(pattern: str, *, labelled: bool) -> tuple[str, _Folders, Mapping[str, str]]:
    """The folders of the images that a pattern names, below its part that is no pattern."""
    start = len(split_url(pattern)[0]) if is_url(pattern) else 0  # the name of a bucket is no pattern
    fixed = pattern[: min(at for at in (pattern.find(sign, start) for sign in "*?[{") if at >= 0)]
    base = parent_path(f"{fixed}x")
    folders: _Folders = {}
    stamps = list_folder(base).stamps
    for path in sorted(expand(pattern)):
        if has_suffix(path, IMAGE_SUFFIXES + _OTHER_IMAGES):
            below = path[len(base) + 1 :] if is_url(base) else os.path.relpath(path, base).replace(os.sep, "/")
            folder, name = os.path.split(below)
            if not folder and labelled:
                raise SchemaError(f"{_EXPECTED}, got images without folders ({name})", pattern)
            if folder.count("/") > 1 and labelled:
                raise SchemaError(f"{_EXPECTED}, got folders three levels deep ({folder})", pattern)
            folders.setdefault(folder, []).append(name)
    return base, folders, stamps


def _has_splits(folders: _Folders, root: str) -> bool:
    """Whether the folders of images are two levels below the root."""
    filled = [folder for folder, names in folders.items() if names]
    if not filled:
        raise StorageError(f"{_EXPECTED}, got no images - at {root}. Images end in {' '.join(IMAGE_SUFFIXES)}")
    deep = [folder for folder in filled if "/" in folder]
    flat = [folder for folder in filled if "/" not in folder]
    if deep and flat:
        raise SchemaError(f"{_EXPECTED}, got both: images in {flat[0]} and in {deep[0]}", root)
    if flat and all(name.lower() in SPLIT_NAMES for name in flat):
        got = f"images in {_some(flat)}, which are names of splits"
        raise SchemaError(f"{_EXPECTED}, got {got}", root, "Put a folder for each class into them")
    for folder in [folder for folder, names in folders.items() if not names and ("/" in folder) != bool(deep)]:
        raise StorageError(f"{_EXPECTED}, got no images in {folder} - at {root}. Take the folder away")
    return bool(deep)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
