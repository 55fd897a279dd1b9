"""Object stores: what is asked of one, and who answers for a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from ..errors import SchemaError, did_you_mean

SCHEMES = ("s3", "gs", "az", "http", "https", "ais")
STORE_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "AIS_")  # beginnings of those that say where stores are and who we are
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True)
class Entry:
    """An object of a store: `version` changes with its content, where the store tells such a thing."""

    name: str
    size: int
    version: str | None = None


class Store(Protocol):
    """A bucket, or a web server. Every call is tried again while that can help, up to a deadline; then it is an error.

    url  its root, for messages: "s3://bucket"
    """

    url: str

    def list(self, prefix: str) -> Iterator[Entry]:
        """The objects whose names begin with a folder's name, in order of name."""

    def entry(self, name: str) -> Entry:
        """What is known of an object; NotFoundError if there is none."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """An object, or a part of it."""

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None) -> Sequence[Any]:
        """Parts of an object, each as (start, length), in parallel; neighbours are read together.

        With a version: an error if the object is another one by now. What is returned are buffers.
        """

    def fetch(
        self,
        name: str,
        path: Path,
        *,
        size: int,
        version: str | None = None,
        told: Callable[[Any], object] = lambda block: None,
    ) -> None:
        """Write an object of that size to a new file. `told` sees each block, in order; what it raises ends it."""

    def send(self, path: Path, name: str) -> Entry:
        """A local file becomes an object; it is seen whole or not at all."""

    def publish(self, name: str, data: bytes, *, exclusive: bool = False) -> bool:
        """Some bytes become an object. `exclusive`: False if there is one already, which stays."""

    def delete(self, name: str) -> None:
        """Take an object away, if it is there."""


def is_url(path: Any) -> bool:
    """Whether a path is that of an object store or of a web server."""
    return isinstance(path, str) and _URL.match(path) is not None


def url_name(url: str) -> str:
    """The last part of a URL."""
    return url.rstrip("/").rpartition("/")[2]


def join_url(url: str, name: str) -> str:
    """The URL of something below another."""
    return f"{url.rstrip('/')}/{name}"


def split_url(url: str) -> tuple[str, str]:
    """The root of a URL's store, and the name of what it names there."""
    match = _URL.match(url)
    scheme = match[1].lower() if match else ""
    if scheme not in SCHEMES:
        hint = did_you_mean(scheme, SCHEMES)
        raise SchemaError(f"expected a URL that begins with {', '.join(SCHEMES)}, got {url!r}", "", hint)
    if scheme in ("http", "https"):
        parts = urlsplit(url)
        if not parts.netloc:
            raise SchemaError(f"expected a server, as in http://server/data, got {url!r}")
        if parts.query:
            hint = "For a signed URL, name the object (s3://bucket/key) and set credentials, or download the file first"
            raise SchemaError(f"expected a URL without a query, got {url!r}", "", hint)
        return f"{scheme}://{parts.netloc}", parts.path.strip("/")
    bucket, _, name = url[len(scheme) + 3 :].partition("/")
    if not bucket:
        raise SchemaError(f"expected a bucket, as in {scheme}://bucket/data, got {url!r}")
    return f"{scheme}://{bucket}", name.strip("/")
