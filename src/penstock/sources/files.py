"""Files of sources, local or in a store: which a pattern or a folder means, their stamps, never outside of a root."""

from __future__ import annotations

import codecs
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from .._core import file_stamps
from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError
from ..manifest import KEYS_SUFFIX
from ..records.schema_file import SUFFIX as SCHEMA_SUFFIX
from ..storage import (
    FolderEntry,
    Paths,
    expand,
    is_file,
    is_glob,
    is_url,
    join_path,
    list_folder,
    object_stamps,
    open_store,
    path_list,
    read_file,
    split_url,
)

_MARKS = {  # the longer ones first: that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
NO_STAMPS: Mapping[str, str] = {}


def entries(folder: str) -> Sequence[FolderEntry]:
    """What is in a folder, by name; hidden files are left out."""
    return list_folder(folder).entries()


def files_named(patterns: Paths, suffixes: Sequence[str]) -> list[str]:
    """The files that patterns name; a folder stands for those in it that have one of the suffixes."""
    return [file for text in path_list(patterns) for file in _files_named(text, suffixes)]


def without_side_files(files: Sequence[str]) -> list[str]:
    """Files without what stands beside one of them and goes with it: its index, its keys, its schema."""
    beside = {file + suffix for file in files for suffix in (".index", ".idx", KEYS_SUFFIX)}
    others = [file for file in files if file not in beside]
    return [file for file in others if not file.endswith(SCHEMA_SUFFIX)] or others


def _files_named(text: str, suffixes: Sequence[str]) -> list[str]:
    if is_url(text):
        named = text.startswith("http") or is_glob(text) or "{" in text or has_suffix(text, suffixes)
        if named or is_file(text):
            return expand(text)  # whether an object is there, its store tells when it is read
    elif not os.path.isdir(text):
        files = expand(text)
        for path in files:
            if not os.path.lexists(path):
                raise NotFoundError(f"expected a file or a folder, got nothing at {path}")
        return files
    names = [entry.name for entry in entries(text) if entry.is_file() and has_suffix(entry.name, suffixes)]
    if not names:
        raise StorageError(f"expected files that end in {' or '.join(suffixes)}, got none - at {text}")
    return [join_path(text, name) for name in names]


def has_suffix(name: str, suffixes: Sequence[str]) -> bool:
    """Whether a name ends in one of the suffixes, in capitals or not."""
    return name.lower().endswith(tuple(suffixes))


def suffixes(extension: str | None) -> tuple[str, ...]:
    """The extension that was said, or those of images."""
    return (extension.lower(),) if extension else IMAGE_SUFFIXES


def short_names(files: Sequence[str]) -> list[str]:
    """The files' paths relative to the folder that all of them are in."""
    if len(files) == 1:
        return [os.path.basename(files[0])]
    if all(map(is_url, files)):
        places = [file.partition("://")[2] for file in files]
        common = posixpath.commonpath([posixpath.dirname(place) for place in places])
        return [posixpath.relpath(place, common or ".") for place in places]
    common = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in files])
    return [os.path.relpath(os.path.abspath(path), common).replace(os.sep, "/") for path in files]


def read_text(path: str) -> str:
    """A file of text: UTF-8, or UTF-16 and UTF-32 with a byte order mark."""
    return decoded_text(read_file(path), path)


def decoded_text(data: bytes, path: str, *, whole: bool = True) -> str:
    """The text of a file's bytes; if they are not the whole of it, the last character may be cut off."""
    try:
        return codecs.getincrementaldecoder(encoding_of(data) or "utf-8-sig")().decode(data, whole)
    except UnicodeDecodeError as error:
        raise not_text(path, error) from None


def encoding_of(data: bytes) -> str | None:
    """The encoding that a byte order mark names, other than UTF-8."""
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)


def head_of(path: str, most: int) -> bytes:
    """The first bytes of a file, or of an object in a store."""
    if is_url(path):
        store, name = open_store(path)
        return store.read(name, 0, min(store.entry(name).size, most))
    with open(path, "rb") as file:
        return file.read(most)


def read_lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file that hold something, stripped, with their numbers."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            yield number, line.strip()


def not_text(path: str, error: UnicodeDecodeError) -> CorruptionError:
    """The error for a file that should be text."""
    return CorruptionError(
        f"expected UTF-8 text, got the byte 0x{error.object[error.start]:02x}. Convert the file to UTF-8", path
    )


def stamp_of(path: str, known: Mapping[str, str] = NO_STAMPS) -> str:
    """A file's size and time of change, or an object's size and version; empty when it cannot be looked at."""
    return stamps_of_files([path], known)[0]


def stamps_of_files(paths: Sequence[str], known: Mapping[str, str] = NO_STAMPS) -> list[str]:
    """The stamps of files, in order. Objects that a listing knows are not asked for again.

    known  stamps of objects by URL
    """
    if not any(map(is_url, paths)):
        return file_stamps(list(paths))
    asked = object_stamps((path for path in paths if is_url(path)), known)
    return [known.get(path) or (asked.get(path, "") if is_url(path) else file_stamps([path])[0]) for path in paths]


def within(root: str, name: str, place: str) -> str:
    """The path that a catalog names, which has to be below the root. Links are followed: they are the owner's."""
    if is_url(root) or is_url(name):
        return _url_within(root, name, place)
    base = os.path.abspath(root)
    path = os.path.normpath(os.path.join(base, name))
    if "\0" in name or not path.startswith(base.rstrip(os.sep) + os.sep) or path == base:
        raise _outside(root, name, place)
    return path if os.path.isabs(name) else os.path.normpath(os.path.join(root, name))


def _url_within(root: str, name: str, place: str) -> str:
    """The same where the root is a folder of a store; a name may be a whole URL below it."""
    if not is_url(root):
        raise _outside(root, name, place)
    store, base = split_url(root)
    if is_url(name):
        other, inner = split_url(name)
        path = inner if other == store else ".."
    else:
        path = posixpath.join(base, name)
    path = posixpath.normpath(path)
    below = path.startswith(f"{base}/") if base else not path.startswith(("..", "/"))
    if "\0" in name or not below or path == ".":
        raise _outside(root, name, place)
    return f"{store}/{path}"


def _outside(root: str, name: str, place: str) -> SchemaError:
    hint = "Say root= if the files are in another folder"
    return SchemaError(f"expected a path below {root}, got {name!r}", place, hint)
