"""Files and folders by path or URL: the one place that decides whether a user's path is local or in a store."""

from __future__ import annotations

import json
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import CorruptionError, NoBucketError, NotFoundError, PenstockError, SchemaError, StorageError
from ..thread_pool import thread_pool
from .cache import Cache, RemoteFile, default_folder
from .local import publish
from .open import open_store
from .store import SCHEMES, Entry, is_url, join_url, split_url

FETCHES = 16  # objects that one call downloads at a time
COPIES = 4  # large objects that are copied to the cache at a time
_MANGLED = re.compile(rf"({'|'.join(SCHEMES)}):/(?!/)")


def checked_path(path: str | os.PathLike[str], where: str = "") -> str:
    """Return a path or URL that a user gave, as a str. A URL that pathlib has damaged, or of no store, is an error."""
    text = os.fspath(path)
    if _MANGLED.match(text):
        url = text.replace(":/", "://", 1)
        raise SchemaError(
            f"expected a path or a URL, got {text!r}, which is a URL that lost a slash",
            where,
            f'Write "{url}" as a str',
        )
    if is_url(text):
        split_url(text)
    return text


def local_path(path: str | os.PathLike[str], what: str) -> Path:
    """Return a user's path that must be on a local disk, such as a cache folder; a URL is an error."""
    text = checked_path(path, what)
    if is_url(text):
        raise SchemaError(f"expected a local path for {what}, got a URL", text, "Give a folder or a file on a disk")
    return Path(text)


def join_path(folder: str, *names: str) -> str:
    """Return the path of something below a folder, which may be a URL; "." and ".." are resolved in URLs."""
    if not is_url(folder):
        return os.path.join(folder, *names)
    root, name = split_url(folder)
    joined = posixpath.normpath(posixpath.join(name, *names)).lstrip("/")
    return root if joined in ("", ".") else f"{root}/{joined}"


def parent_path(path: str) -> str:
    """Return the folder of a file, which may be a URL."""
    if not is_url(path):
        return os.path.dirname(path) or os.curdir
    root, name = split_url(path)
    return join_path(root, posixpath.dirname(name))


def is_below(path: str, folder: str) -> bool:
    """Return True if a path is the folder or below it, on a local disk or in the same store."""
    if is_url(path) != is_url(folder):
        return False
    resolved = [text if is_url(text) else os.path.realpath(text) for text in (path, folder)]
    return os.path.join(resolved[0], "").startswith(os.path.join(resolved[1], ""))


# Folders
@dataclass(frozen=True)
class ListedFile:
    """A file or a folder of a store. It has the methods of `os.DirEntry` that sources use.

    stamp  Size and version of an object; empty where the store has no versions.
    """

    name: str
    path: str
    folder: bool = False
    stamp: str = ""

    def is_dir(self) -> bool:
        """True for a folder."""
        return self.folder

    def is_file(self) -> bool:
        """True for an object."""
        return not self.folder


FolderEntry = os.DirEntry[str] | ListedFile


class LocalListing:
    """The files below a folder on a local disk, read when they are asked for."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.stamps: Mapping[str, str] = {}

    def entries(self, below: str = "") -> Sequence[FolderEntry]:
        """Return the files and folders in a folder, by name; hidden ones are left out."""
        folder = os.path.join(self.root, below) if below else self.root
        try:
            with os.scandir(folder) as scan:
                found = [entry for entry in scan if not entry.name.startswith(".")]
        except NotADirectoryError:
            raise StorageError(f"expected a folder, got the file {folder}") from None
        except OSError as error:
            raise unreadable(error, folder, "", "a folder") from None
        found.sort(key=lambda entry: entry.name)
        return found


class ObjectListing:
    """The objects below a folder of a store, listed once.

    stamps  Stamp of each object by URL.
    """

    def __init__(self, url: str) -> None:
        self.root = join_path(url)
        store, name = open_store(self.root)
        self.stamps: dict[str, str] = {}
        self._folders: dict[str, dict[str, ListedFile]] = {}
        for entry in store.list(name):
            relative = entry.name[len(name) :].lstrip("/")
            if relative and not relative.endswith("/"):  # else it is an empty object that stands for a folder
                self._add(relative, stamp_of_entry(entry))
        if not self._folders:
            raise NotFoundError(f"expected a file or a folder, got nothing at {url}")

    def _add(self, relative: str, stamp: str) -> None:
        folder, _, name = relative.rpartition("/")
        path = f"{self.root}/{relative}"
        self.stamps[path] = stamp
        self._folders.setdefault(folder, {})[name] = ListedFile(name, path, stamp=stamp)
        while folder:
            above, _, name = folder.rpartition("/")
            beside = self._folders.setdefault(above, {})
            if name in beside and beside[name].folder:
                return
            beside[name] = ListedFile(name, f"{self.root}/{folder}", folder=True)
            folder = above

    def entries(self, below: str = "") -> Sequence[FolderEntry]:
        """Return the objects and folders in a folder, by name; hidden ones are left out."""
        found = self._folders.get(posixpath.normpath(below) if below not in ("", ".") else "", {})
        return [found[name] for name in sorted(found) if not name.startswith(".")]


def list_folder(path: str) -> LocalListing | ObjectListing:
    """Return what lies below a folder, local or in a store."""
    return ObjectListing(path) if is_url(path) else LocalListing(path)


def list_objects(url: str) -> list[str]:
    """Return the URLs of all objects below a folder of a store; none where there is no such folder."""
    store, name = open_store(url)
    return [f"{store.url}/{entry.name}" for entry in store.list(name)]


def is_folder(path: str) -> bool:
    """Return True if a path is a folder. A store has a folder where objects have its name before theirs."""
    if not is_url(path):
        return os.path.isdir(path)
    store, name = open_store(path)
    if store.url.startswith("http"):
        return False
    return any(True for _ in store.list(name))


def is_file(path: str) -> bool:
    """Return True if a path is a file, or an object of a store."""
    if not is_url(path):
        return os.path.isfile(path)
    store, name = open_store(path)
    try:
        return bool(name) and store.entry(name) is not None
    except NotFoundError:
        return False


# Whole files
def read_file(path: str, place: str = "") -> bytes:
    """Return the content of a file or an object; `place` names what refers to it."""
    try:
        if is_url(path):
            store, name = open_store(path)
            return store.read(name)
        with open(path, "rb", buffering=0, opener=_open_file) as file:
            return file.read()
    except StorageError as error:
        if not place or place == path or place in str(error):
            raise
        raise type(error)(f"{error} - at {place}") from None
    except (OSError, ValueError) as error:
        raise unreadable(error, path, place) from None


def _open_file(path: str, flags: int) -> int:
    """Open a file, and nothing that may never end or never begin, such as a pipe."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode) and not stat.S_ISDIR(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is no file, but a device, a pipe or a socket")
    return handle


def read_files(paths: Sequence[str]) -> list[bytes]:
    """Return the content of files, in order; objects are downloaded in parallel."""
    if not any(map(is_url, paths)):
        return list(map(read_file, paths))
    with thread_pool(max(1, min(FETCHES, len(paths)))) as pool:
        return list(pool.map(read_file, paths))


def unreadable(error: Exception, path: str, place: str, wanted: str = "a file") -> StorageError:
    """Return the error for a local file that cannot be read."""
    where = f" - at {place}" if place and place != path else ""
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"expected {wanted}, got nothing at {path}{where}")
    reason = getattr(error, "strerror", None) or str(error)
    return StorageError(f"cannot read {path}: {reason}{where}")


def stamp_of_entry(entry: Entry) -> str:
    """Return what changes with an object's content; empty where the store has no versions."""
    return f"{entry.size} {entry.version}" if entry.version else ""


def object_stamps(urls: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the stamps of objects: those of a listing, the others by asking the store; empty for a missing one."""
    missing = list(dict.fromkeys(url for url in urls if url not in known))
    if not missing:
        return {}
    with thread_pool(min(FETCHES, len(missing))) as pool:
        return dict(zip(missing, pool.map(_object_stamp, missing), strict=True))


def _object_stamp(url: str) -> str:
    store, name = open_store(url)
    try:
        return stamp_of_entry(store.entry(name))
    except PenstockError:
        return ""


# Local copies of objects
@dataclass(frozen=True)
class LocalCopy:
    """A file that is read from a local disk: a local file itself, or an object's copy in the cache of this machine.

    file  Path of the local file, or URL of the object.
    """

    file: str
    remote: RemoteFile | None = None

    def __str__(self) -> str:
        return self.file

    @property
    def path(self) -> str:
        """Local path of the file, or where its copy is once `bring` was called; another machine has its own cache."""
        return self.file if self.remote is None else str(_cache(default_folder()).path(self.remote))

    def bring(self) -> str:
        """Download the object if the cache does not have it, and return the local path."""
        if self.remote is None:
            return self.file
        return str(_cache(default_folder()).get(self.remote, _no_checksum))

    @property
    def bytes(self) -> int:
        """Size of an object; 0 for a local file, which takes no room in the cache."""
        return 0 if self.remote is None else self.remote.size


@lru_cache
def _cache(folder: Path) -> Cache:
    """The cache where no folder is given. `folder` is where it is: another one if the environment changes."""
    return Cache()


def _no_checksum(block: object, value: int) -> int:
    """Objects are checked by their version."""
    return value


def local_copies(paths: Sequence[str]) -> list[LocalCopy]:
    """Return where files are read. Objects are looked up in their store, and downloaded by `bring`."""

    def copy(path: str) -> LocalCopy:
        if not is_url(path):
            return LocalCopy(path)
        store, name = open_store(path)
        entry = store.entry(name)
        return LocalCopy(path, RemoteFile(path, entry.size, version=entry.version))

    if not any(map(is_url, paths)):
        return list(map(LocalCopy, paths))
    with thread_pool(max(1, min(FETCHES, len(paths)))) as pool:
        return list(pool.map(copy, paths))


def bring_all(copies: Sequence[LocalCopy]) -> list[str]:
    """Download what is not on the local disk, some objects at a time, and return the local paths."""
    remote = [copy for copy in copies if copy.remote is not None]
    if remote:
        with thread_pool(min(COPIES, len(remote))) as pool:
            list(pool.map(LocalCopy.bring, remote))
    return [copy.path for copy in copies]


def fit_cache(copies: Sequence[LocalCopy]) -> bool:
    """Return True if the cache holds all copies at once."""
    room = sum(copy.bytes for copy in copies)
    return not room or room <= _cache(default_folder()).most


@contextmanager
def named_by_url(copies: Iterable[LocalCopy]) -> Iterator[None]:
    """Errors name the object, and not its copy in the cache."""
    try:
        yield
    except PenstockError as error:
        copy = next((copy for copy in copies if copy.remote is not None and copy.path in str(error)), None)
        if copy is None:
            raise
        said = str(error).replace(copy.path, str(copy))
        if not isinstance(error, CorruptionError | SchemaError | StorageError):
            raise
        named = type(error)(said)
        if isinstance(error, CorruptionError) and isinstance(named, CorruptionError):
            named.path, named.offset, named.record = str(copy), error.offset, error.record
        raise named from None


def beside(directory: Path | str, name: str) -> Path | str:
    """A file of a directory, which may be a URL."""
    return join_url(str(directory), name) if is_url(directory) else Path(directory) / name


def read_bytes(path: Path | str) -> bytes:
    """The whole of a small file."""
    if not is_url(path):
        return Path(path).read_bytes()
    store, name = open_store(str(path))
    return store.read(name)


Parse = Callable[[bytes, str, str], Any]  # bytes, what they should be, and their path; or a CorruptionError


def parse_json(data: bytes, what: str, where: str) -> Any:
    """Parse JSON; anything else is a CorruptionError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, a number with thousands of digits
        raise CorruptionError(f"expected {what}, got broken JSON ({error})", where) from None


def publish_document(path: Path | str, data: bytes) -> None:
    """Write a small file, locally or to a store, so that it is seen whole or not at all."""
    if not is_url(path):
        publish(path, data)
        return
    store, name = open_store(str(path))
    store.publish(name, data)


def read_json(path: Path | str, what: str, most_bytes: int, parse: Parse = parse_json) -> Any:
    """A small file of a dataset; `what` it is, for people."""
    if is_url(path):
        return read_json_object(str(path), what, most_bytes, parse)[0]
    try:
        size = os.stat(path).st_size
        data = b"" if size > most_bytes else read_bytes(path)
    except FileNotFoundError:
        raise _missing(path) from None
    return _parsed(data, size, str(path), what, most_bytes, parse)


def read_json_object(url: str, what: str, most_bytes: int, parse: Parse = parse_json) -> tuple[Any, Entry]:
    """The same of a store, with what is known of the object that was read."""
    store, name = open_store(url)
    try:
        entry = store.entry(name)
    except NoBucketError:
        raise
    except NotFoundError:
        raise _missing(url) from None
    data = b""
    if entry.size <= most_bytes:
        (part,) = store.read_ranges(name, [(0, entry.size)], version=entry.version)
        data = bytes(part)
    return _parsed(data, entry.size, url, what, most_bytes, parse), entry


def _missing(path: Path | str) -> NotFoundError:
    directory, name = os.path.split(path)
    return NotFoundError(f"expected a dataset, got no {name} - at {directory}")


def _parsed(data: bytes, size: int, where: str, what: str, most_bytes: int, parse: Parse) -> Any:
    if size > most_bytes:
        raise CorruptionError(f"expected {what} of at most {most_bytes} bytes, got more", where)
    return parse(data, what, where)
