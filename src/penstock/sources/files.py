"""Files of sources: which a pattern or a folder means, read whole, and never outside of their root."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence

from .._core import file_stamps
from ..errors import CorruptionError, NotFoundError, SchemaError, StorageError
from ..manifest import KEYS_SUFFIX
from ..records.schema_file import SUFFIX as SCHEMA_SUFFIX
from ..storage import Paths, expand, is_url, path_list

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")


def entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder, by name; hidden files are left out."""
    try:
        with os.scandir(folder) as scan:
            found = [entry for entry in scan if not entry.name.startswith(".")]
    except NotADirectoryError:
        raise StorageError(f"expected a folder, got the file {folder}") from None
    except OSError as error:
        raise _failed(error, folder, "", "a folder") from None
    found.sort(key=lambda entry: entry.name)
    return found


def files_named(patterns: Paths, suffixes: Sequence[str]) -> list[str]:
    """The files that patterns name; a folder stands for those in it that have one of the suffixes."""
    return [file for text in path_list(patterns) for file in _files_named(text, suffixes)]


def without_side_files(files: Sequence[str]) -> list[str]:
    """Files without what stands beside one of them and goes with it: its index, its keys, its schema."""
    beside = {file + suffix for file in files for suffix in (".index", ".idx", KEYS_SUFFIX)}
    others = [file for file in files if file not in beside]
    return [file for file in others if not file.endswith(SCHEMA_SUFFIX)] or others


def _files_named(text: str, suffixes: Sequence[str]) -> list[str]:
    if not os.path.isdir(text):
        files = expand(text)
        for path in files:
            if not os.path.lexists(path):
                raise NotFoundError(f"expected a file or a folder, got nothing at {path}")
        return files
    names = [entry.name for entry in entries(text) if entry.is_file() and has_suffix(entry.name, suffixes)]
    if not names:
        raise StorageError(f"expected files that end in {' or '.join(suffixes)}, got none - at {text}")
    return [os.path.join(text, name) for name in names]


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


def read_file(path: str, place: str = "") -> bytes:
    """All of a file; `place` is who asked for it."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise _failed(error, path, place) from None


def read_text(path: str) -> str:
    """A file of UTF-8 text, with or without a byte order mark."""
    data = read_file(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_text(path, error) from None


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


def stamp_of(path: str) -> str:
    """A file's size and time of change, empty when it cannot be looked at."""
    return file_stamps([path])[0]


def within(root: str, name: str, place: str) -> str:
    """The path that a catalog names, which has to be below the root. Links are followed: they are the owner's."""
    base = os.path.abspath(root)
    path = os.path.normpath(os.path.join(base, name))
    if "\0" in name or not path.startswith(base.rstrip(os.sep) + os.sep) or path == base:
        raise SchemaError(
            f"expected a path below {root}, got {name!r}", place, "Say root= if the files are in another folder"
        )
    return path if os.path.isabs(name) else os.path.normpath(os.path.join(root, name))


def _failed(error: Exception, path: str, place: str, wanted: str = "a file") -> StorageError:
    where = f" - at {place}" if place and place != path else ""
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"expected {wanted}, got nothing at {path}{where}")
    reason = getattr(error, "strerror", None) or str(error)
    return StorageError(f"cannot read {path}: {reason}{where}")
