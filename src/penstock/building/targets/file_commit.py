"""The commit of plain files: all of them get their names, or the next run finishes it. See `records.interrupted`.

  .penstock-commit/part-0.tfrecord.json     what is to be moved, removed and written; gone when all of it is done

The record is in the folder where the pattern begins; folders of splits have copies of it, which readers find.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ...dataset.plain_files import FOLDER, schema_path
from ...dataset.plain_files import SUFFIX as SCHEMA
from ...errors import BuildError, PenstockError, SchemaError, StorageError
from ...records.index import SUFFIX as INDEX
from ...records.index import sidecar_path
from ...storage.cache import cache_home
from ...storage.files import join_path, list_objects, parent_path
from ...storage.local import publish, sync_folder
from ...storage.open import open_store
from ...storage.paths import SPLIT, named_by
from ...storage.store import url_name
from ...thread_pool import ordered_map
from .directory import QUARANTINE, is_quarantine

VERSION = 1
_INDEX_MAGIC = b"PENSTIDX"


@dataclass(frozen=True)
class FileCommit:
    """What gives files their names.

    moves    where each file is, and its name; its index goes along
    removes  files of an earlier build, with what stands beside them
    texts    small files beside, with their content; None removes one
    begun    tells builds apart: the same one again may replace the files
    marker   a file that is created once all files have their names, before the record is removed
    """

    moves: list[tuple[str, str]]
    removes: list[str]
    texts: Mapping[str, str | None]
    begun: str = ""
    marker: Path | None = None

    def publish(self, pattern: str, *, sync: bool = True) -> None:
        """Write the record, do what it says, and remove it."""
        check_beside([name for _, name in self.moves], self.texts)
        if not (self.moves or self.removes or self.texts):
            return
        root = _record_path(pattern)
        folders = {os.path.dirname(name) for name in (*(to for _, to in self.moves), *self.removes, *self.texts)}
        records = [root, *(path for folder in sorted(folders) if (path := Path(folder, FOLDER, root.name)) != root)]
        for record in records:
            record.parent.mkdir(exist_ok=True)
            publish(record, json.dumps(self.to_json(record.parent.parent)).encode(), sync=sync)
            if sync:
                sync_folder(record.parent.parent)
        self.carry_out(records, sync=sync)

    def carry_out(self, records: list[Path], *, sync: bool) -> None:
        """Move, remove and write what the commit lists, and remove its records."""
        for source, name in self.moves:
            _move(source, name)
        for name in self.removes:
            remove(name)
        for name, text in self.texts.items():
            _remove_partial(Path(name))
            if text is None:
                Path(name).unlink(missing_ok=True)
            else:
                publish(name, text.encode())
        if sync:
            for folder in {record.parent.parent for record in records}:
                sync_folder(folder)
        if self.marker is not None and self.marker.parent.is_dir():
            self.marker.touch()
        for record in reversed(records):
            record.unlink(missing_ok=True)
            with suppress(OSError):  # one that is gone, or that other commits use
                _remove_partial(record)
                record.parent.rmdir()

    def to_json(self, folder: Path) -> dict[str, object]:
        """Return the record of the commit, with paths relative to a folder."""

        def relative(path: str) -> str:
            return os.path.relpath(path, folder)

        names = [*(to for _, to in self.moves), *self.removes]
        return {
            "penstock_commit": VERSION,
            "begun": self.begun,
            "moves": [[relative(source), relative(name)] for source, name in self.moves],
            "removes": [relative(name) for name in self.removes],
            "texts": {relative(name): text for name, text in self.texts.items()},
            "touched": [name for name in map(relative, names) if os.sep not in name],
        }


def finish_interrupted(pattern: str, marker: Path | None = None) -> str | None:
    """Finish the commit of an earlier run into files of these names. Return what it was of; None if there is none.

    marker  see FileCommit
    """
    record = _record_path(pattern)
    try:
        told = json.loads(record.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        told = {}
    folder = record.parent.parent
    try:
        if told["penstock_commit"] != VERSION:
            raise ValueError
        commit = FileCommit(
            [(_inside(folder, source), _inside(folder, name)) for source, name in told["moves"]],
            [_inside(folder, name) for name in told["removes"]],
            {_inside(folder, name): text for name, text in told["texts"].items()},
            str(told["begun"]),
            marker,
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        hint = "Remove it, and build with overwrite=True (--overwrite)"
        raise BuildError(
            f"expected the record of an interrupted commit, got other content - at {record}. {hint}"
        ) from None
    folders = {os.path.dirname(name) for name in (*(to for _, to in commit.moves), *commit.removes, *commit.texts)}
    copies = [path for each in sorted(folders) if (path := Path(each, FOLDER, record.name)) != record]
    commit.carry_out([record, *copies], sync=True)
    return commit.begun


def _record_path(pattern: str) -> Path:
    """Return the path of the record of a pattern: in the folder before the first name that is not fixed."""
    fixed = Path(pattern.partition("{")[0] + "x").absolute().parent
    rest = os.path.relpath(os.path.abspath(pattern), fixed)
    return fixed / FOLDER / f"{rest.translate({ord('{'): '', ord('}'): '', ord(os.sep): '-'})}.json"


def _inside(folder: Path, name: str) -> str:
    """Return a path of a record; raise ValueError if it leaves the folder of the record."""
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(name) or not path.startswith(os.path.join(folder, "")):
        raise ValueError
    return path


def _remove_partial(path: Path) -> None:
    """Remove what a killed run was writing under a temporary name."""
    for partial in path.parent.glob(f".{glob.escape(path.name)}.????????.partial"):
        partial.unlink(missing_ok=True)


def _move(source: str, name: str) -> None:
    """Give a file its name, and its index. Done again, it does what is left."""
    if os.path.exists(source):
        for beside in (schema_path(name), sidecar_path(name)):
            beside.unlink(missing_ok=True)
        os.replace(source, name)
    if sidecar_path(source).exists():
        os.replace(sidecar_path(source), sidecar_path(name))


def remove(path: str) -> None:
    """Remove a file, if it exists, and what stands beside it: its index, a schema of its own."""
    for each in (schema_path(path), sidecar_path(path), Path(path)):
        each.unlink(missing_ok=True)


def check_beside(names: Iterable[str], texts: Iterable[str]) -> None:
    """Refuse to replace files beside plain files that Penstock did not write."""
    known = {_is_index: map(sidecar_path, names), _is_text: map(Path, texts)}
    for is_own, paths in known.items():
        for path in paths:
            if path.exists() and not (path.is_file() and is_own(path)):
                hint = "Move it away, or give the files another name"
                raise BuildError(f"expected a new file, got one that Penstock did not write - at {path}. {hint}")


def _is_index(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_INDEX_MAGIC)) == _INDEX_MAGIC


def _is_text(path: Path) -> bool:
    """Return True if a file is a schema, or a quarantine, that a build has written; a damaged schema counts as one."""
    data = path.read_bytes()
    if path.name.endswith(".jsonl"):
        return is_quarantine(data)
    try:
        told = json.loads(data)
    except ValueError:
        return b"penstock_schema" in data
    return isinstance(told, dict) and "penstock_schema" in told


SENDERS = 4  # files that are sent at a time
SENDING = ".sending"  # is in the local folder from when files are sent


def local_folder(url: str) -> Path:
    """Return the local folder in which the files of a URL are written."""
    digest = blake2b(url.encode(), digest_size=8).hexdigest()
    return cache_home() / "builds" / f"{digest}-files"


@contextmanager
def staged_files(pattern: str, *, overwrite: bool, made_from: Iterable[str] = ()) -> Iterator[str]:
    """Yield a local pattern whose files become the objects of a URL when the block ends without an error.

    A local pattern is yielded as it is.

    pattern    a file or numbered files of a store: s3://bucket/{split}-{000..}.tfrecord
    overwrite  whether files of that name may exist
    made_from  files that are read: none of them may be replaced
    """
    if not open_store(pattern)[0].url:
        yield pattern
        return
    above = _fixed_folder(pattern)
    local = local_folder(pattern)
    names = re.compile("[^/]+".join(named_by(part).pattern for part in pattern.split(SPLIT)))
    for url in made_from:
        if names.fullmatch(url):
            raise SchemaError("expected other files to write, got those of the source", url, "Rename the destination")
    before = [url for url in list_objects(above) if names.fullmatch(url)]
    if (local / SENDING).exists():
        shutil.rmtree(local)  # files that an earlier run was sending: they are made again
    elif before and not overwrite:
        hint = "Say overwrite=True (--overwrite) to replace it"
        raise StorageError(f"expected a new file, got one that exists - at {before[0]}. {hint}")
    local.mkdir(parents=True, exist_ok=True)
    with _named_after(local, above):
        yield str(local / pattern[len(above) + 1 :])
    (local / SENDING).touch()
    sent = send_folder(local, above)
    for url in before:
        if url not in sent:
            store, name = open_store(url)
            for each in (name + SCHEMA, name + INDEX, name):
                store.delete(each)
    if (old := quarantine_beside(pattern)) not in sent:
        store, name = open_store(old)
        store.delete(name)
    shutil.rmtree(local)


@contextmanager
def staged_folder(url: str, *, replaces: Callable[[str], bool] = lambda name: False) -> Iterator[Path]:
    """Yield a new local folder whose files become objects below a URL when the block ends without an error.

    replaces  which objects of the folders that files are sent to go, if none of that name is sent: those of an
              earlier run
    """
    local = local_folder(url)
    shutil.rmtree(local, ignore_errors=True)
    local.mkdir(parents=True)
    try:
        with _named_after(local, url):
            yield local
        sent = send_folder(local, url)
        folders = set(map(parent_path, sent))
        for old in list_objects(url):
            if old not in sent and parent_path(old) in folders and replaces(url_name(old)):
                store, name = open_store(old)
                store.delete(name)
    finally:
        shutil.rmtree(local, ignore_errors=True)


def send_folder(local: Path, url: str) -> set[str]:
    """Send the files of a local folder, without hidden ones; return their URLs."""
    files = [path for path in sorted(local.rglob("*")) if path.is_file()]
    shown = [path for path in files if not any(part.startswith(".") for part in path.relative_to(local).parts)]
    urls = [join_path(url, path.relative_to(local).as_posix()) for path in shown]

    def send(file: tuple[Path, str]) -> None:
        store, name = open_store(file[1])
        store.send(file[0], name)

    for _, sent in ordered_map(send, list(zip(shown, urls, strict=True)), SENDERS):
        sent()
    return set(urls)


def quarantine_beside(pattern: str) -> str:
    """Return where the bad examples of plain files are kept: in the folder before the first name that is not fixed."""
    above = _fixed_folder(pattern)
    rest = pattern.removeprefix(above.rstrip("/") + "/")
    name = f"{rest.translate({ord('{'): '', ord('}'): '', ord('/'): '-'})}.{QUARANTINE}"
    return name if above == os.curdir else join_path(above, name)


def _fixed_folder(pattern: str) -> str:
    """Return the folder before the first name that has a number or a split in it."""
    return parent_path(pattern.partition("{")[0] + "x") if "{" in pattern else parent_path(pattern)


@contextmanager
def _named_after(local: Path, url: str) -> Iterator[None]:
    """Name the URL in errors in place of the local folder."""
    try:
        yield
    except PenstockError as error:
        if str(local) in str(error) and len(error.args) == 1:
            error.args = (str(error).replace(str(local), url),)
        raise
