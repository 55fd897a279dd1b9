"""A dataset in an object store or on a web server: its manifest is read now, its shards when they are needed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import CorruptionError, NotFoundError
from ..manifest import MANIFEST, MOST_MANIFEST_BYTES, Manifest
from ..schema import Schema
from ..storage import expand, join_url, open_store
from ..storage.cache import Cache, RemoteFile
from .fetching import Fetcher
from .opening import Opened, open_manifest
from .remote import Remote
from .shard_files import ShardFile


def read_remote_manifest(url: str) -> tuple[Manifest, RemoteFile]:
    """The manifest of a dataset, and the object that it was read from."""
    where = join_url(url, MANIFEST)
    store, name = open_store(where)
    try:
        entry = store.entry(name)
    except NotFoundError:
        raise NotFoundError(f"expected a dataset, got no {MANIFEST} - at {url}") from None
    if entry.size > MOST_MANIFEST_BYTES:
        raise CorruptionError(f"expected a manifest of at most {MOST_MANIFEST_BYTES} bytes, got more", where)
    (data,) = store.read_ranges(name, [(0, entry.size)], version=entry.version)
    try:
        said = json.loads(bytes(data))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"expected a manifest, got broken JSON ({error})", where) from None
    return Manifest.from_json(said, where), RemoteFile(where, entry.size, version=entry.version)


def open_url(url: str, schema: Schema | None, format: str | None, cache: Cache) -> Opened:
    """A dataset that `build` made; its manifest says all."""
    manifest, told = read_remote_manifest(url)
    return open_manifest(url, manifest, schema, format, cache, told)


def brought_files(urls: Sequence[str], cache: Cache) -> list[str]:
    """Files of a store that come without a manifest: all of them are brought, for nothing says what is in them."""
    files = []
    for url in (found for pattern in urls for found in expand(pattern)):
        store, name = open_store(url)
        entry = store.entry(name)
        remote = Remote(RemoteFile(url, entry.size, version=entry.version), cache)
        files.append(ShardFile(str(cache.path(remote.file)), 0, entry.size, None, remote=remote))
    Fetcher(files).get(file.path for file in files)
    return [file.path for file in files]
