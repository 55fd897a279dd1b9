"""A dataset in an object store or on a web server: its manifest is read now, its shards when they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import NotFoundError
from ..manifest import MANIFEST, MOST_MANIFEST_BYTES, Manifest, parse_manifest
from ..records.datum_files import MAPPING
from ..schema import Schema
from ..storage import SPLIT, expand, is_url, join_url, open_store, read_json_object, split_patterns, url_name
from ..storage.cache import Cache, RemoteFile
from ..tfds.directory import INFO
from .fetching import Fetcher
from .opening import Opened, open_manifest
from .remote import Remote
from .shard_files import ShardFile, ShardFiles


def read_remote_manifest(url: str) -> tuple[Manifest, RemoteFile]:
    """The manifest of a dataset, and the object that it was read from."""
    where = join_url(url, MANIFEST)
    said, entry = read_json_object(where, "a manifest", MOST_MANIFEST_BYTES, parse_manifest)
    return Manifest.from_json(said, where), RemoteFile(where, entry.size, version=entry.version)


def remote_manifest(url: str) -> Manifest | None:
    """The manifest of a dataset; None of one that TFDS prepared, which has none."""
    try:
        return read_remote_manifest(url)[0]
    except NotFoundError:
        if not _has(url, INFO):
            raise
        return None


def open_url(url: str, schema: Schema | None, format: str | None, cache: Cache) -> Opened:
    """A dataset that `build` made, TFDS prepared or Datum exported, by its metadata."""
    try:
        manifest, told = read_remote_manifest(url)
    except NotFoundError:
        if _has(url, INFO):
            from .prepared import open_prepared_url

            return open_prepared_url(url, schema, format, cache)
        if _has(url, MAPPING):
            from .exported import open_exported_url

            return open_exported_url(url, schema, cache)
        raise
    return open_manifest(url, manifest, schema, format, cache, told)


def _has(url: str, name: str) -> bool:
    store, where = open_store(join_url(url, name))
    try:
        store.entry(where)
    except NotFoundError:
        return False
    return True


def brought_files(patterns: Sequence[str], cache: Cache) -> dict[str, dict[str, str]]:
    """Local copies of files that come without a manifest, by URL, for each pattern.

    All of them are brought, for nothing says what is in them.
    """
    from ..sources.files import without_side_files

    texts = [each for text in patterns for each in (split_patterns(text).values() if SPLIT in text else [text])]
    found = {text: without_side_files(expand(text)) for text in texts if is_url(text)}
    files = {}
    for url in dict.fromkeys(url for urls in found.values() for url in urls):
        store, name = open_store(url)
        entry = store.entry(name)
        remote = Remote(RemoteFile(url, entry.size, version=entry.version), cache)
        files[url] = ShardFile(str(cache.path(remote.file)), 0, entry.size, None, remote=remote)
    Fetcher(ShardFiles(files.values())).get(file.path for file in files.values())
    return {text: {url: files[url].path for url in urls} for text, urls in found.items()}


def known_schema(urls: Iterable[str]) -> Schema | None:
    """The schema that lies beside files of a store, as `build` writes it; tars have none."""
    from ..sources.record_files import format_named, schema_beside

    records = [url for url in urls if format_named(url_name(url)) != "tar"]
    return schema_beside(records) if records else None
