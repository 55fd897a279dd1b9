"""AIStore, through its SDK. AIS_ENDPOINT says where the cluster is, unless the URL does.

The SDK by itself retries for half a minute and more without a word. Here it tries once, and what may pass is tried
again by us, up to a deadline. AIStore answers a ranged read with the status 200: that it is the right one is checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

from ..errors import MissingDependencyError, NoBucketError, NotFoundError, SchemaError, StorageError, redact
from ..thread_pool import ordered_map, thread_pool
from .local import WholeFile, machine_lock
from .store import Buffer, Entry, names_below
from .transfer import PIECE, Result, ShortError, Temporary, cut_out, joined, replaced, retry

if TYPE_CHECKING:
    from requests import Response
    from urllib3 import HTTPResponse

DEADLINE = 60.0  # seconds in which a call has to get somewhere
REFUSED = 5.0  # seconds, where all connections are refused and none ever was not: nobody is there
TIMEOUT = (5.0, 20.0)  # seconds to connect, and between two pieces of an answer
AT_ONCE = 16  # requests that are under way
PASSING = (408, 409, 425, 429, 500, 502, 503, 504)  # statuses that may be gone a moment later
PROPERTIES = "name,size,version,checksum"
_ANSWERED: set[str] = set()  # addresses at which a cluster has been


class AISStore:
    """A bucket of an AIStore: see `Store`.

    url  "ais://bucket", and what is not as usual: "ais://bucket?etl=name", "ais://bucket?endpoint=..."; see `option`
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.bucket, _, said = url.removeprefix("ais://").partition("?")
        options = dict(parse_qsl(said, strict_parsing=True)) if said else {}
        self.etl = options.pop("etl", None)
        self._endpoint = options.pop("endpoint", None)
        for name in options:
            raise SchemaError(f"expected the option etl or endpoint, got {name!r}", url)

    def __repr__(self) -> str:
        return f"AISStore({redact(self.url)!r})"

    @property
    def client(self) -> Any:
        """The SDK's client of the cluster, which has connections of its own in each process."""
        endpoint = self._endpoint or os.environ.get("AIS_ENDPOINT", "")
        if not endpoint:
            hint = "Set it to that of its proxy, as in http://localhost:8080"
            raise StorageError(f"expected the address of an AIStore in AIS_ENDPOINT, got none - at {self.url}. {hint}")
        return _client(endpoint)

    def list(self, prefix: str) -> Iterator[Entry]:
        """The objects of a folder, in order of name."""
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        found = self.tried(prefix, lambda: self._bucket.list_all_objects(folder, props=PROPERTIES))
        entries = [Entry(each.name, each.size, _version(each.checksum, each.version)) for each in found]
        return iter(sorted(entries, key=lambda entry: entry.name))

    def names(self, folder: str) -> set[str]:
        """Return the names of the objects directly in a folder."""
        return names_below(self.list(folder), folder)

    def entry(self, name: str) -> Entry:
        """What is known of an object. How large it is once transformed, only reading it tells."""
        if self.etl is not None:
            return Entry(name, len(self.read(name)))
        return self.tried(name, lambda: self._head(name))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """An object, or a part of it."""
        stop = None if length is None else start + length
        if self.etl is not None:
            return self.tried(name, lambda: self._whole(name))[start:stop]
        if start == 0 and stop is None:
            return self.tried(name, lambda: self._whole(name))
        return self._part(name, start, self.entry(name).size if stop is None else stop, None)

    def read_ranges(
        self, name: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> Sequence[bytes | memoryview]:
        """Return parts of an object, in parallel."""
        spans = joined(ranges)
        with thread_pool(min(AT_ONCE, max(1, len(spans)))) as pool:
            blocks = list(pool.map(lambda span: memoryview(self._part(name, span[0], span[1], version)), spans))
        return cut_out(ranges, spans, blocks)

    def fetch(
        self,
        name: str,
        path: Path,
        *,
        size: int,
        version: str | None = None,
        told: Callable[[Buffer], object] = lambda block: None,
    ) -> None:
        """Write an object to a file, some pieces at a time."""
        with thread_pool(2) as pool, WholeFile(path, size) as file:
            if self.etl is not None:
                blocks: Iterable[bytes] = [self.read(name)]
            else:
                spans = [(start, min(size, start + PIECE)) for start in range(0, size, PIECE)]
                parts = ordered_map(lambda span: self._part(name, span[0], span[1], version), spans, 2, pool=pool)
                blocks = (part() for _, part in parts)
            for block in blocks:
                file.write(block)
                told(block)
        if version is not None and self.entry(name).version != version:
            raise replaced(f"{self.url}/{name}")

    def send(self, path: Path, name: str) -> Entry:
        """A local file becomes an object."""
        patience = max(DEADLINE, path.stat().st_size / (1 << 18))
        self.tried(name, lambda: _done(self._bucket.object(name).get_writer().put_file(path)), patience=patience)
        return self.entry(name)

    def publish(self, name: str, data: bytes, *, exclusive: bool = False, sync: bool = False) -> bool:
        """Some bytes become an object. AIStore has no conditional put: `exclusive` looks first, and two may not see."""
        if exclusive:
            with suppress(NotFoundError):
                self.entry(name)
                return False
        self.tried(name, lambda: _done(self._bucket.object(name).get_writer().put_content(data)))
        return True

    def delete(self, name: str) -> None:
        """Take an object away, if it is there."""
        with suppress(NotFoundError):
            self.tried(name, lambda: _done(self._bucket.object(name).delete()))

    def lock(self, name: str) -> int | None:
        """Lock a name against other processes of this machine."""
        return machine_lock(f"{self.url}/{name}")

    # Single requests

    @property
    def _bucket(self) -> Any:
        return self.client.bucket(self.bucket)

    def _head(self, name: str) -> Entry:
        head = self._bucket.object(name).head(PROPERTIES)
        version = _version(head.checksum_value, head.obj_version)
        if version is None and not head.size:
            raise ShortError("an answer that says nothing of the object")
        return Entry(name, head.size, version)

    def _whole(self, name: str) -> bytes:
        from aistore.sdk.etl import ETLConfig

        raw = self._bucket.object(name).get_reader(etl=ETLConfig(self.etl) if self.etl else None).raw()
        said = raw.headers.get("Content-Length")
        if said is None and self.etl is None:
            raise ShortError("an answer without its length")
        return _body(raw, None if said is None else int(said))

    def _part(self, name: str, start: int, stop: int, version: str | None) -> bytes:
        def attempt() -> bytes:
            raw = self._bucket.object(name).get_reader(byte_range=f"bytes={start}-{stop - 1}").raw()
            with closing(raw):
                now = _version(raw.headers.get("Ais-Checksum-Value", ""), raw.headers.get("Ais-Version", ""))
                if version is not None and now is not None and now != version:
                    raise replaced(f"{self.url}/{name}")
                got = raw.headers.get("Content-Range", "no range at all")
                if not got.startswith(f"bytes {start}-{stop - 1}/"):
                    raise ShortError(f"expected bytes {start}-{stop - 1}, got {got}")
                return _body(raw, stop - start)

        return self.tried(name, attempt, offset=start) if stop > start else b""

    def tried(
        self, name: str, attempt: Callable[[], Result], *, offset: int | None = None, patience: float | None = None
    ) -> Result:
        """Return the result of an attempt, which is repeated after temporary errors until the deadline."""
        where = f"{self.url}/{name}" + ("" if offset is None else f", offset {offset}")
        client = self.client  # a missing package is reported first
        from aistore.sdk import errors

        endpoint = client._request_client.base_url  # the SDK has no other name for it
        wait = DEADLINE if patience is None else patience

        def judge(error: Exception) -> Temporary:
            nonlocal wait
            if isinstance(error, errors.AISError):
                _ANSWERED.add(endpoint)
                said = f"{error.status_code} {' '.join(error.message.split())[:300]}"
                if error.status_code in (401, 403):
                    hint = f"Check the permissions of the bucket {self.bucket}"
                    raise StorageError(f"Permission denied reading or writing {where} ({said}). {hint}") from None
                self._check_found(error, said, where)
                if error.status_code not in PASSING:
                    raise StorageError(f"expected to reach an object, got an error: {said} - at {where}") from None
            elif isinstance(error, _broken_answers()):
                said = " ".join(str(error).split())[:300]
                if "Connection refused" in str(error):
                    said = "the connection is refused"
                    wait = wait if endpoint in _ANSWERED else min(wait, REFUSED)
            else:
                raise error
            problem = f"expected an answer within {wait:.0f} s, got none that was whole: {said}"
            return Temporary(StorageError(f"{problem} - at {where}. Look whether {endpoint} is up"), wait)

        result = retry(attempt, judge)
        _ANSWERED.add(endpoint)
        return result

    def _check_found(self, error: Any, said: str, where: str) -> None:
        """Refuse what is not there. Of an ETL that is missing or fails, AIStore's own words say which it is."""
        from aistore.sdk import errors

        if self.etl is not None and error.status_code not in PASSING:
            raise StorageError(
                f"expected what the ETL {self.etl!r} makes of an object, got: {said} - at {where}"
            ) from None
        if isinstance(error, (errors.ErrBckNotFound, errors.ErrRemoteBckNotFound)):
            raise NoBucketError(f"expected the bucket {self.bucket}, got nothing - at {where}") from None
        if isinstance(error, errors.ErrObjNotFound) or error.status_code == 404:
            raise NotFoundError(f"expected an object, got nothing - at {where}") from None


def option(url: str, name: str, value: str) -> str:
    """A URL, or a pattern of URLs, of an AIStore with one more option for its bucket.

    etl       an ETL of the cluster transforms what is read
    endpoint  where the cluster is, whatever AIS_ENDPOINT says
    """
    root, slash, rest = url.removeprefix("ais://").partition("/")
    if not url.startswith("ais://") or not root or f"{name}=" in root:
        raise SchemaError("expected objects of an AIStore, as in ais://bucket/train-{0..7}.tar", url)
    return f"ais://{root}{'&' if '?' in root else '?'}{name}={quote(value, safe='')}{slash}{rest}"


@lru_cache
def _client(endpoint: str) -> Any:
    try:
        import tenacity
        import urllib3
        from aistore.sdk import Client
        from aistore.sdk.retry_config import RetryConfig
    except ImportError:
        raise MissingDependencyError.needed("aistore", "ais:// URLs", extra="ais") from None
    once = RetryConfig(
        urllib3.Retry(total=None, connect=0, read=0, redirect=5, status=0, other=0, raise_on_status=False),
        tenacity.Retrying(stop=tenacity.stop_after_attempt(1), reraise=True),
    )
    return Client(endpoint, timeout=TIMEOUT, retry_config=once, max_pool_size=AT_ONCE)


@lru_cache
def _broken_answers() -> tuple[type[Exception], ...]:
    """What is raised where an answer does not come, or not as a whole; the SDK's parsers see to some of it."""
    import msgspec
    import pydantic
    import requests
    import urllib3

    parsers = (msgspec.MsgspecError, pydantic.ValidationError, pydantic.PydanticUserError)
    return (requests.RequestException, urllib3.exceptions.HTTPError, *parsers, ShortError)


def _done(response: Response) -> None:
    """What was asked for was done, and not only answered: the SDK takes a redirect that leads nowhere for an answer."""
    if response.status_code != 200:
        raise ShortError(f"the status {response.status_code}")


def _body(raw: HTTPResponse, length: int | None) -> bytes:
    """What an answer holds. A server that gives a byte now and then is not waited for."""
    deadline = time.monotonic() + DEADLINE
    pieces: list[bytes] = []
    with closing(raw):
        while piece := raw.read(1 << 20):
            pieces.append(piece)
            if time.monotonic() > deadline:
                raise ShortError(f"{sum(map(len, pieces))} bytes in {DEADLINE:.0f} s")
        body = b"".join(pieces)
        if length is not None and len(body) != length:
            raise ShortError(f"{len(body)} bytes of {length}")
        raw.release_conn()
    return body


def _version(checksum: str, version: str) -> str | None:
    """What changes with an object's content."""
    return checksum or version or None
