"""What a path on the command line is: the source that reads it, or an error that lists the choices."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from ..errors import CorruptionError, NotFoundError, PenstockError, SchemaError
from ..records.peek import first_records
from ..records.shard import open_shard
from ..storage import (
    LocalListing,
    ObjectListing,
    PathLike,
    checked_path,
    expand,
    is_glob,
    is_url,
    join_path,
    list_folder,
    open_store,
)
from .files import IMAGE_SUFFIXES, has_suffix, without_side_files
from .record_files import format_named
from .voc import ANNOTATIONS, IMAGES, MASKS

UNDERSTOOD = """
  root/class/*.jpg, root/split/class/*.jpg     image_folder
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


def recognise(path: PathLike) -> tuple[str, str]:
    """The name of the source function that reads a path, and why it is that one."""
    text = checked_path(path)
    listing = _listing(text)
    found = dict(_in_files(text)) if listing is None else dict(_in_folder(listing))
    if len(found) == 1:
        return next(iter(found.items()))
    if not found:
        raise SchemaError(f"expected one of the layouts below, got none of them - at {text}{UNDERSTOOD}")
    choices = "".join(f"\n  {name}: {why}" for name, why in found.items())
    raise SchemaError(f"expected one kind of source, got {len(found)} - at {text}. Say which it is (--as):{choices}")


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
    folders = {entry.name for entry in listed if entry.is_dir()}
    files = [entry.name for entry in listed if not entry.is_dir()]
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
            if has_suffix(entry.name, IMAGE_SUFFIXES) and not entry.is_dir():
                return f"{folder}/{entry.name}"
        if depth > 1:
            deeper = [f"{folder}/{entry.name}" for entry in below if entry.is_dir()]
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
    if is_url(path):
        store, name = open_store(path)
        size = store.entry(name).size
        return store.read(name, 0, min(size, _HEAD)).removeprefix(b"\xef\xbb\xbf")
    with open(path, "rb") as file:
        return file.read(_HEAD).removeprefix(b"\xef\xbb\xbf")
