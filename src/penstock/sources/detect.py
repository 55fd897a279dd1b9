"""What a path on the command line is: the source that reads it, or an error that lists the choices."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..dataset.record_files import SPLIT_NAMES, format_named, split_order, without_side_files
from ..errors import CorruptionError, NotFoundError, PenstockError, SchemaError
from ..records.inspect import first_records
from ..records.shard import open_shard
from ..storage.files import LocalListing, ObjectListing, checked_path, join_path, list_folder
from ..storage.paths import PathLike, entries, expand, has_suffix, is_directory, is_glob
from ..storage.store import is_url
from .coco import coco_parts
from .files import IMAGE_SUFFIXES, head_of, kind_of_file
from .image_catalog import CATALOGS, Catalog, find_catalogs, remote_catalog
from .voc import ANNOTATIONS, IMAGES, MASKS, voc_folder

UNDERSTOOD = """
  root/class/*.jpg, root/split/class/*.jpg     image_folder
  root/*.jpg                                   image_folder, without labels
  root/*.jpg and a CSV or JSON file of them    csv, jsonl, json
  train2017/, annotations/instances_*.json     coco
  JPEGImages/ and Annotations/                 voc_detection
  JPEGImages/ and SegmentationClass/           voc_segmentation
  train.csv beside train/                      image_classification
  train.json of {id: {"text", "label"}}        text_classification
  *.csv, *.jsonl, *.json, *.parquet            csv, jsonl, json, parquet
  *.tfrecord, *.array_record                   tfrecords, array_records
  *.tar, *.tar.gz, *.tar.zst, *.tar.xz ...     tar"""
_FILES = {
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson"),
    "json": (".json",),
    "parquet": (".parquet",),
    "image_folder": IMAGE_SUFFIXES,
}
_RECORDS = {
    "tfrecord": ("tfrecords", "TFRecord"),
    "array_record": ("array_records", "ArrayRecord"),
    "tar": ("tar", "tar"),
}
_HEAD = 1 << 14  # bytes of a JSON file that are looked at
_KEYED_TEXT = re.compile(rb'\s*\{\s*"[^"]*"\s*:\s*\{.*?"text"\s*:', re.DOTALL)
_COCO = re.compile(rb'"(?:annotations|categories|images)"\s*:\s*\[')


@dataclass(frozen=True)
class Detected:
    """What a path is: the source function that reads it, why, and how to call it.

    calls  the arguments and the options for each split; for a source without splits, those of ""
    """

    kind: str
    why: str
    calls: dict[str, tuple[tuple[str, ...], dict[str, Any]]]
    catalog: Catalog | None = None

    @property
    def code(self) -> str:
        """The call as Python code."""
        calls = {}
        for split, (values, options) in self.calls.items():
            words = [*map(repr, values), *(f"{name}={value!r}" for name, value in options.items())]
            calls[split] = f"penstock.{self.kind}({', '.join(words)})"
        named = ", ".join(f"{split}={call}" for split, call in calls.items())
        return calls.get("", f"penstock.splits({named})")


def recognise(path: PathLike) -> tuple[str, str]:
    """The name of the source function that reads a path, and why it is that one."""
    found = detect(path)
    return found.kind, found.why


def detect(path: PathLike, *, kind: str | None = None, image: str | None = None, label: str | None = None) -> Detected:
    """Find out which source reads a path, and with which options.

    kind          choose among several that fit
    image, label  columns of a catalog that names images
    """
    text = checked_path(path)
    listing = _listing(text)
    folder = listing is not None
    if listing is not None and not is_url(text) and (inner := voc_folder(text)):
        text, listing = inner, list_folder(inner)
    if listing is not None and kind in (None, "coco") and _may_be_coco(listing) and (parts := coco_parts(text)):
        first = next(iter(parts.values()))
        why = f"it has annotations of COCO: {first[1].removeprefix(text).lstrip('/')}"
        return Detected("coco", why, {split: (part, {}) for split, part in parts.items()})
    if kind == "coco":
        expected = "expected a folder such as train2017/ with annotations/instances_train2017.json"
        raise SchemaError(f"{expected}, got no annotations of images", text)
    catalog = _catalog_of(text, listing, kind, image, label) if kind is None or kind in CATALOGS else None
    if catalog is not None:
        return Detected(catalog.kind, catalog.why, {"": ((catalog.path,), catalog.options)}, catalog)
    if kind is not None:
        return Detected(kind, "", {"": ((text,), {})})
    found = dict(_in_files(text)) if listing is None else dict(_in_folder(listing))
    if listing is not None and list(found) == ["image_folder"] and (splits := _flat_splits(listing)):
        why = f"it has images in {', '.join(splits)} without folders for classes: the fields are image and file_name"
        return Detected("image_folder", why, {name: ((join_path(text, name),), {"label": None}) for name in splits})
    if listing is not None and not found and (flat := _flat_image(listing)):
        why = f"it has images without folders for classes ({flat}): the fields are image and file_name"
        return Detected("image_folder", why, {"": ((text,), {"label": None})})
    if len(found) == 1:
        name, why = next(iter(found.items()))
        return Detected(name, why, {"": ((text,), {})})
    if not found:
        raise _unknown(text, folder)
    choices = "".join(f"\n  {name}: {why}" for name, why in found.items())
    raise SchemaError(f"expected one kind of source, got {len(found)} - at {text}. Say which it is (--as):{choices}")


def _unknown(text: str, folder: bool) -> SchemaError:
    """The error for what no source reads: it names the kind of the file, or of the first one in a folder."""
    if folder:
        files = [entry.name for entry in entries(text) if entry.is_file()]
        names = [entry.name for entry in entries(text)]
        if deep := _first_image(list_folder(text), sorted(set(names) - set(files)), depth=6):
            hint = (
                f"Build the folder that holds the classes, such as {os.path.dirname(os.path.dirname(f'{text}/{deep}'))}"
            )
            expected = "expected images at root/class/*.jpg or root/split/class/*.jpg"
            return SchemaError(f"{expected}, got some in deeper folders ({deep})", text, hint)
        kind = kind_of_file(f"{text}/{files[0]}") if files else None
        got = "an empty folder" if not names else f"none of them, but {names[0]}"
        got += f" and {len(names) - 1} more" if len(names) > 1 else ""
        got += f" ({files[0]} is {kind[0]})" if kind else ""
        return SchemaError(f"expected one of the layouts below, got {got} - at {text}{UNDERSTOOD}")
    if is_url(text):
        got = "a URL of something else. Download it first, and build the copy"
        return SchemaError(f"expected TFRecord files, ArrayRecord files or tars in a store, got {got}", text)
    kind = kind_of_file(text)
    if kind is None:
        return SchemaError(f"expected one of the layouts below, got none of them - at {text}{UNDERSTOOD}")
    return SchemaError(f"expected images, tables or record files, got {kind[0]}", text, kind[1])


def _may_be_coco(listing: LocalListing | ObjectListing) -> bool:
    """True unless a listing of a store shows that it has no annotations; a local folder is looked at."""
    if isinstance(listing, LocalListing):
        return True
    return any("annotations" in entry.name.lower() for entry in listing.entries())


def _catalog_of(
    text: str, listing: LocalListing | ObjectListing | None, kind: str | None, image: str | None, label: str | None
) -> Catalog | None:
    """The catalog of a folder of images, or the file itself if it names images in a column.

    `kind` makes a plain table of a file that is not told which of its columns are images.
    """
    chosen = image is not None or label is not None
    folder = listing is not None
    if is_url(text):
        return None if kind is not None and not chosen else _remote_catalog(text, listing, image, label)
    if not folder and not os.path.isfile(text):
        return None
    if kind is not None and not chosen:
        return None
    paths = [f"{text.rstrip('/')}/{entry.name}" for entry in entries(text) if entry.is_file()] if folder else [text]
    if folder and not chosen and _for_datum(text, paths):
        return None
    found = find_catalogs(paths, image, label)
    if len(found) > 1:
        names = ", ".join(os.path.basename(each.path) for each in found)
        first = min(found, key=lambda each: split_order(os.path.basename(each.path).partition(".")[0]))
        hint = f"Choose one: penstock build {first.path}; or put all rows into one file with a column 'split'"
        raise SchemaError(f"expected one catalog of the images, got {len(found)}: {names}", text, hint)
    if chosen and not found:
        options = " and ".join(f"{n} {v!r}" for n, v in (("--image", image), ("--label", label)) if v is not None)
        expected = f"expected a CSV, JSON lines or JSON file whose rows name images, for {options}"
        raise SchemaError(f"{expected}, got none", text)
    return found[0] if found else None


def _remote_catalog(
    url: str, listing: LocalListing | ObjectListing | None, image: str | None, label: str | None
) -> Catalog | None:
    """A single catalog of a store. A folder with images beside a catalog is an error that shows the command for it."""
    if listing is not None:
        names = [entry.name for entry in listing.entries() if not entry.is_dir()]
        kinds = [name for name in names for suffixes in CATALOGS.values() if has_suffix(name, suffixes)]
        flat = next((name for name in names if has_suffix(name, IMAGE_SUFFIXES)), None)
        if flat is not None and kinds:
            hint = (
                f"Name the catalog and its column of images: penstock build {join_path(url, kinds[0])} --image COLUMN"
            )
            raise SchemaError(f"expected one kind of file, got images ({flat}) beside {kinds[0]}", url, hint)
        return None
    kind = next((kind for kind, suffixes in CATALOGS.items() if has_suffix(url, suffixes)), None)
    named = is_glob(url) or "{" in url
    return None if kind is None or named else remote_catalog(url, kind, image, label)


def _for_datum(root: str, paths: list[str]) -> bool:
    """Whether a folder is as `image_classification` reads it: train.csv with a column `filename`, beside train/."""
    for path in paths:
        if has_suffix(path, (".csv",)) and os.path.isdir(path[: -len(".csv")]):
            header = _head(path).splitlines()[:1]
            if not header or b"filename" in header[0].replace(b'"', b"").split(b","):
                return True
    return False


def _flat_image(listing: LocalListing | ObjectListing, below: str = "") -> str:
    """An image that lies in a folder itself, or nothing."""
    files = (entry.name for entry in listing.entries(below) if not is_directory(entry))
    return next((name for name in files if has_suffix(name, IMAGE_SUFFIXES)), "")


def _flat_splits(listing: LocalListing | ObjectListing) -> list[str]:
    """The folders of a root that has nothing but splits, each with images and without classes."""
    folders = [entry.name for entry in listing.entries() if is_directory(entry)]
    flat = all(_flat_image(listing, name) for name in folders)
    inner = any(is_directory(entry) for name in folders for entry in listing.entries(name))
    named = folders and all(name.lower() in SPLIT_NAMES for name in folders)
    return sorted(folders, key=split_order) if named and flat and not inner else []


def _listing(path: str) -> LocalListing | ObjectListing | None:
    """What lies below a path, if it is a folder, local or in a store."""
    if not is_url(path):
        return list_folder(path) if os.path.isdir(path) else None
    if is_glob(path) or "{" in path or path.startswith("http"):
        return None
    try:
        return list_folder(path)
    except NotFoundError:  # a single object, or nothing: whoever reads it says so
        return None


def _in_folder(listing: LocalListing | ObjectListing) -> Iterator[tuple[str, str]]:
    root, listed = listing.root, listing.entries()
    folders = {entry.name for entry in listed if is_directory(entry)}
    files = [entry.name for entry in listed if not is_directory(entry)]
    if IMAGES in folders and folders & {ANNOTATIONS, MASKS}:
        if ANNOTATIONS in folders:
            yield "voc_detection", f"it has {IMAGES}/ and {ANNOTATIONS}/"
        if MASKS in folders:
            yield "voc_segmentation", f"it has {IMAGES}/ and {MASKS}/"
        return
    catalogs = [name for name in files if has_suffix(name, (".csv",)) and name[: -len(".csv")] in folders]
    if catalogs:
        yield "image_classification", f"it has {catalogs[0]} beside {catalogs[0][: -len('.csv')]}/"
    elif images := _first_image(listing, sorted(folders)):
        yield "image_folder", f"it has images in folders: {images}"
    records = _first_named(files)
    for format, file in records.items():
        yield _RECORDS[format][0], f"it has {_RECORDS[format][1]} files: {file}"
    if records:
        return  # JSON beside them is what was written about them
    for name, suffixes in _FILES.items():
        first = next((file for file in files if has_suffix(file, suffixes) and file not in catalogs), None)
        if first is None or name == "image_folder":
            continue
        if name == "json" and _KEYED_TEXT.match(_head(join_path(root, first))):
            yield "text_classification", f"it has texts with ids: {first}"
        else:
            yield name, f"it has {first}"


def _first_image(listing: LocalListing | ObjectListing, folders: list[str], depth: int = 2) -> str:
    """An image one or two folders down, by its path below the root, or nothing."""
    for folder in folders:
        below = listing.entries(folder)
        for entry in below:
            if has_suffix(entry.name, IMAGE_SUFFIXES) and not is_directory(entry):
                return f"{folder}/{entry.name}"
        if depth > 1:
            deeper = [f"{folder}/{entry.name}" for entry in below if is_directory(entry)]
            if found := _first_image(listing, deeper, depth - 1):
                return found
    return ""


def _in_files(pattern: str) -> Iterator[tuple[str, str]]:
    files = without_side_files(expand(pattern))
    if not is_url(files[0]) and not os.path.lexists(files[0]):
        raise NotFoundError(f"expected a file or a folder, got nothing at {pattern}")
    for name, suffixes in _FILES.items():
        matching = [path for path in files if has_suffix(path, suffixes)]
        if not matching or (name == "image_folder" and len(files) == 1):
            continue
        if name == "json" and _COCO.search(_head(matching[0])):
            hint = "Call coco(images, annotations): it needs the folder of the images too"
            raise SchemaError("expected a catalog, got annotations of COCO", matching[0], hint)
        yield name, f"{os.path.basename(matching[0])} ends in {os.path.splitext(matching[0])[1]}"
    named = _first_named(os.path.basename(path) for path in files)
    for format, file in named.items():
        yield _RECORDS[format][0], f"{file} is called as {_RECORDS[format][1]} files are"
    if named or is_url(files[0]) or any(has_suffix(files[0], suffixes) for suffixes in _FILES.values()):
        return
    if begun := _format_of(files[0]):
        yield _RECORDS[begun][0], f"{os.path.basename(files[0])} begins with a record"


def _format_of(path: str) -> str | None:
    """The format of a file that begins with a record."""
    try:
        return open_shard(path).format if len(first_records(path, 1)[0]) else None
    except CorruptionError as error:
        return "tfrecord" if error.record else None  # whoever reads it will say what is damaged
    except PenstockError:
        return None


def _first_named(names: Iterable[str]) -> dict[str, str]:
    """Of each format, the first that is called as its files are."""
    found: dict[str, str] = {}
    for name in names:
        if format := format_named(name):
            found.setdefault(format, name)
    return found


def _head(path: str) -> bytes:
    return head_of(path, _HEAD).removeprefix(b"\xef\xbb\xbf")
