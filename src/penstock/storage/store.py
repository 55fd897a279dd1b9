"""The Store protocol: what a build or a reader asks of a store, local or remote; and the URLs of stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from ..errors import SchemaError, did_you_mean

SCHEMES = ("s3", "gs", "az", "http", "https", "ais")
STORE_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "AIS_")  # beginnings of those that say where stores are and who we are
Buffer = bytes | bytearray | memoryview
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True)
class Entry:
    """An object of a store: `version` changes with its content, where the store tells such a thing."""

    name: str
    size: int
    version: str | None = None


class Store(Protocol):
    """A bucket, a web server, or the local disk, where names are paths.

    Every call is repeated after temporary errors, up to a deadline; then it is an error.

    url  Root of the store: "s3://bucket"; empty for the local disk.
    """

    url: str

    def list(self, prefix: str) -> Iterator[Entry]:
        """Return the objects below a folder, in order of name."""

    def names(self, folder: str) -> set[str]:
        """Return the names directly in a folder: of objects, and on a disk of folders too."""

    def entry(self, name: str) -> Entry:
        """Return what is known of an object; raise NotFoundError if it is missing."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return an object, or a part of it."""

    def read_ranges(
        self, name: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> Sequence[bytes | memoryview]:
        """Return parts of an object, each given as (start, length), in parallel; neighbours are read together.

        version  Raise an error if the object is another one by now.
        """

    def fetch(
        self,
        name: str,
        path: Path,
        *,
        size: int,
        version: str | None = None,
        told: Callable[[Buffer], object] = lambda block: None,
    ) -> None:
        """Write an object of that size to a new file. `told` receives each block, in order; an error of it ends it."""

    def send(self, path: Path, name: str) -> Entry:
        """Copy a local file to an object, which appears whole or not at all."""

    def publish(self, name: str, data: bytes, *, exclusive: bool = False, sync: bool = False) -> bool:
        """Write an object, which appears whole or not at all.

        exclusive  Return False if it exists: it is not replaced.
        sync       Wait until the object survives a power cut, as it does in remote stores.
        """

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""

    def lock(self, name: str) -> int | None:
        """Lock a name against other processes of this machine: a handle for `unlock`, or None if it is locked.

        The lock ends with the process. Processes of other machines are kept away by exclusive writes.
        """


def is_url(path: object) -> bool:
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


def names_below(entries: Iterable[Entry], folder: str) -> set[str]:
    """Return the names directly in a folder, given the objects below it."""
    prefix = len(folder.rstrip("/")) + 1 if folder else 0
    return {name for entry in entries if "/" not in (name := entry.name[prefix:])}
