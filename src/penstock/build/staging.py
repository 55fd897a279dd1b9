"""Plain files for a store: written to a local folder, then sent as objects.

An object appears whole, so that a reader never sees a part of a file. A build that is killed goes on from its local
folder; one that is killed while it sends files is allowed to replace those that it has sent.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from ..errors import PenstockError, SchemaError, StorageError
from ..records.index import SUFFIX as INDEX
from ..records.schema_file import SUFFIX as SCHEMA
from ..storage import SPLIT, is_url, join_path, list_objects, named_by, open_store, parent_path, url_name
from ..storage.cache import default_folder
from .ownership import QUARANTINE

SENDERS = 4  # files that are sent at a time
SENDING = ".sending"  # is in the local folder from when files are sent


def local_folder(url: str) -> Path:
    """Return the local folder in which the files of a URL are written."""
    digest = blake2b(url.encode(), digest_size=8).hexdigest()
    return default_folder().with_name("builds") / f"{digest}-files"


@contextmanager
def staged_files(pattern: str, *, overwrite: bool, made_from: Iterable[str] = ()) -> Iterator[str]:
    """Yield a local pattern whose files become the objects of a URL when the block ends without an error.

    pattern    a file or numbered files of a store: s3://bucket/{split}-{000..}.tfrecord
    overwrite  whether files of that name may exist
    made_from  files that are read: none of them may be replaced
    """
    above = parent_path(pattern.partition("{")[0] + "x") if "{" in pattern else parent_path(pattern)
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
    _delete_old_quarantine(pattern, above, sent)
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

    def send(path: Path, target: str) -> None:
        store, name = open_store(target)
        store.send(path, name)

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send, shown, urls))
    return set(urls)


def _delete_old_quarantine(pattern: str, above: str, sent: set[str]) -> None:
    """Delete the invalid examples of an earlier build."""
    rest = pattern[len(above) + 1 :].translate({ord("{"): "", ord("}"): "", ord("/"): "-"})
    url = join_path(above, f"{rest}.{QUARANTINE}")
    if url not in sent:
        store, name = open_store(url)
        store.delete(name)


@contextmanager
def _named_after(local: Path, url: str) -> Iterator[None]:
    """Errors name the URL, and not the local folder."""
    try:
        yield
    except PenstockError as error:
        if str(local) in str(error) and len(error.args) == 1:
            error.args = (str(error).replace(str(local), url),)
        raise


def source_urls(files: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return those of some paths that are URLs."""
    return [text for text in map(str, files) if is_url(text)]
