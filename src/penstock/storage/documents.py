"""Small files that say what a dataset is, here or in a store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import CorruptionError, NoBucketError, NotFoundError
from .local import publish
from .store import Entry, is_url, join_url, open_store


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
