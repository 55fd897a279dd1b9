"""S3, Google Cloud Storage, Azure and web servers, through obstore.

Who may do what is found where each ecosystem keeps it: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL ...,
GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME ...
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from ..errors import MissingDependencyError, NoBucketError, NotFoundError, StorageError, redact
from .local import WholeFile, machine_lock
from .store import Buffer, Entry, names_below
from .transfer import PIECE, Result, ShortError, Temporary, cut_out, joined, replaced, retry

Meta = Mapping[str, Any]  # what obstore tells of an object
DEADLINE = 60.0  # seconds in which a call has to get somewhere
REQUEST = 20  # seconds that one request may take
SMALLEST = 1 << 18  # bytes that are asked for at least, however slow the server is
AT_ONCE = 4  # pieces of one object that are under way
IN_FLIGHT = 64  # parts of objects that are under way
MULTIPART = 16 << 20  # a file from this size on is sent in parts
_TEMPORARY = ("408", "409", "425", "429", "500", "502", "503", "504")
_HINT = "Look at the credentials in the environment"
_STATUS = re.compile(r"status code: (\d{3})|[Cc]lient error with status (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_DENIED = ("401", "403")

# Some servers answer these with the status 400 or 404; each with the variables to check, in S3.
_DENIED_CODES = {
    "InvalidAccessKeyId": "AWS_ACCESS_KEY_ID",
    "XAdminUserNotFound": "AWS_ACCESS_KEY_ID",  # versitygw
    "SignatureDoesNotMatch": "AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "AWS_SESSION_TOKEN",
    "InvalidToken": "AWS_SESSION_TOKEN",
    "TokenRefreshRequired": "AWS_SESSION_TOKEN",
    "AuthorizationHeaderMalformed": "AWS_REGION",
    "RequestTimeTooSkewed": "the clock of this machine",
}
_CHECK = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the permissions of the bucket",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS and the permissions of the bucket",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and the permissions of the container",
    "http": "the user and password, as in http://user:password@server/data",
    "https": "the user and password, as in https://user:password@server/data",
}


class Objects:
    """A bucket, or a web server: see `Store`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._obs = library()
        try:
            self._store = _made(self._obs, url)
        except self._obs.exceptions.BaseError as error:
            raise StorageError(
                f"expected settings for a store, got an error: {_said(error)} - at {url}. {_HINT}"
            ) from None
        self._readers: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Objects({redact(self.url)!r})"

    def list(self, prefix: str) -> Iterator[Entry]:
        """The objects of a folder, in order of name."""
        if self.url.startswith("http"):
            got = "a web server, which cannot be asked. Name each file, or a range: part-{000..146}.tar"
            raise StorageError(f"expected a store that lists its objects, got {got} - at {self._at(prefix)}")

        def attempt() -> Any:
            return self._obs.list(self._store, prefix or None, chunk_size=1000).collect()

        found = self._tried(prefix, attempt, doing="listing")
        return iter(sorted(map(_entry, found), key=lambda entry: entry.name))

    def names(self, folder: str) -> set[str]:
        """Return the names of the objects directly in a folder."""
        return names_below(self.list(folder), folder)

    def entry(self, name: str) -> Entry:
        """What is known of an object."""

        def attempt() -> Any:
            try:
                return self._obs.head(self._store, name)
            except (self._obs.exceptions.BaseError, FileNotFoundError) as error:
                if not self.url.startswith("http") and _status(error).startswith("4"):
                    self._obs.get(self._store, name, options={"range": (0, 1)})  # HEAD has no body for the reason
                raise

        return _entry(self._tried(name, attempt))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """An object, or a part of it."""
        if length == 0:
            return b""
        options: dict[str, object] = {}
        if start or length is not None:
            options["range"] = (start, start + length) if length is not None else {"offset": start}
        return bytes(self._tried(name, lambda: self._obs.get(self._store, name, options=options).bytes()))

    def read_ranges(
        self, name: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> Sequence[bytes | memoryview]:
        """Return parts of an object, in parallel."""
        spans = joined(ranges)

        def part(span: tuple[int, int]) -> memoryview:
            return memoryview(self._part(name, *span, version))

        found = [part(spans[0])] if len(spans) == 1 else list(self._pool().map(part, spans))
        return cut_out(ranges, spans, found)

    def _part(self, name: str, start: int, stop: int, version: str | None) -> Buffer:
        def attempt() -> Buffer:
            answer = self._obs.get(self._store, name, options={"range": (start, stop)})
            if version is not None and _entry(answer.meta).version != version:
                raise replaced(self._at(name))
            found: Buffer = answer.bytes()
            if len(found) != stop - start:
                raise ShortError(f"{len(found)} bytes of {stop - start}")
            return found

        return self._tried(name, attempt, offset=start) if stop > start else b""

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            self._readers = self._readers or ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="penstock-read")
            return self._readers

    def fetch(
        self,
        name: str,
        path: Path,
        *,
        size: int,
        version: str | None = None,
        told: Callable[[Buffer], object] = lambda block: None,
    ) -> None:
        """Write an object to a file, some pieces at a time. A server that is slow is asked for smaller ones."""
        piece, count, at = PIECE, AT_ONCE, 0
        last = time.monotonic()
        with WholeFile(path, size) as file:
            while at < size:
                starts = list(range(at, min(size, at + count * piece), piece))
                stops = [min(size, start + piece) for start in starts]
                try:
                    pieces = partial(self._pieces, name, starts, stops)
                    blocks = self._tried(name, pieces, offset=at, since=last)
                except _SlowError:
                    if piece > SMALLEST:
                        piece, count, last = max(SMALLEST, piece // 4), 1, time.monotonic()
                    continue
                for block in blocks:
                    file.write(block)
                    told(block)
                at, last = stops[-1], time.monotonic()
        if version is not None and self.entry(name).version != version:
            raise replaced(self._at(name))

    def _pieces(self, name: str, starts: Sequence[int], stops: Sequence[int]) -> Sequence[Buffer]:
        blocks = self._obs.get_ranges(self._store, name, starts=starts, ends=stops, coalesce=0)
        for start, stop, block in zip(starts, stops, blocks, strict=True):
            if len(block) != stop - start:
                raise ShortError(f"{len(block)} bytes of {stop - start}")
        found: Sequence[Buffer] = blocks
        return found

    def send(self, path: Path, name: str) -> Entry:
        """A local file becomes an object."""
        self._check_writable(name)
        size = path.stat().st_size

        def attempt() -> Any:
            if size < MULTIPART:
                return self._obs.put(self._store, name, path.read_bytes(), use_multipart=False)
            return self._obs.put(self._store, name, path, use_multipart=True, chunk_size=PIECE, max_concurrency=AT_ONCE)

        sent = self._tried(name, attempt, patience=max(DEADLINE, size / SMALLEST), doing="writing")
        return Entry(name, size, _tag(sent))

    def publish(self, name: str, data: bytes, *, exclusive: bool = False, sync: bool = False) -> bool:
        """Some bytes become an object."""
        self._check_writable(name)
        mode = "create" if exclusive else "overwrite"
        try:
            put = partial(self._obs.put, self._store, name, data, mode=mode, use_multipart=False)
            self._tried(name, put, doing="writing")
        except FileExistsError:
            return self.read(name) == data  # an attempt whose answer was lost
        return True

    def delete(self, name: str) -> None:
        """Take an object away, if it is there."""
        self._check_writable(name)
        try:
            self._tried(name, lambda: self._obs.delete(self._store, name), doing="deleting")
        except NotFoundError:
            return

    def lock(self, name: str) -> int | None:
        """Lock a name against other processes of this machine."""
        return machine_lock(f"{self.url}/{name}")

    def _check_writable(self, name: str) -> None:
        if self.url.startswith("http"):
            got = "a web server. Write to s3://, gs://, az:// or ais://, or to a directory"
            raise StorageError(f"expected a store that can be written to, got {got} - at {self._at(name)}")

    def _at(self, name: str) -> str:
        return f"{self.url}/{name}"

    def _tried(
        self,
        name: str,
        attempt: Callable[[], Result],
        *,
        offset: int | None = None,
        since: float | None = None,
        patience: float | None = None,
        doing: str = "reading",
    ) -> Result:
        """Return the result of an attempt, which is repeated after temporary errors until the deadline."""
        where = self._at(name) + ("" if offset is None else f", offset {offset}")
        patience = DEADLINE if patience is None else patience

        def judge(error: Exception) -> Temporary:
            if not isinstance(error, (self._obs.exceptions.BaseError, OSError, ShortError)):
                raise error
            failure = self._failure(error, where, doing)
            if failure is not None:
                raise failure from None
            said = f"expected an answer within {patience:.0f} s, got none that was whole: {_said(error)}"
            late = StorageError(f"{said} - at {where}. Look at the server, then go on")
            is_slow = since is not None and "timed out" in str(error).lower()
            return Temporary(late, patience, _SlowError() if is_slow else None)

        return retry(partial(self._waited, attempt), judge, since=since)

    def _waited(self, attempt: Callable[[], Result]) -> Result:
        """What an attempt gives. The library looks for no signals: the main thread waits while another one calls it."""
        if threading.current_thread() is not threading.main_thread():
            return attempt()
        return self._pool().submit(attempt).result()

    def _failure(self, error: Exception, where: str, doing: str) -> Exception | None:
        """The error for what does not pass by itself."""
        kind = type(error).__name__
        if kind == "AlreadyExistsError":
            return FileExistsError(where)
        if kind in ("PreconditionError", "NotModifiedError"):
            return replaced(where)
        status, code = _status(error), _code(error)
        reason = " ".join(filter(None, (status, code)))
        scheme, _, bucket = self.url.partition("://")
        denied = kind in ("PermissionDeniedError", "UnauthenticatedError")
        if denied or status in _DENIED or code in _DENIED_CODES:
            check = _DENIED_CODES.get(code) if scheme == "s3" else None
            said = f"Permission denied {doing} {where} ({reason or _said(error)})"
            return StorageError(f"{said}. Check {check or _CHECK[scheme]}")
        if isinstance(error, FileNotFoundError) or (status == "404" and doing == "listing"):
            # An empty folder is an empty list: only a bucket that does not exist cannot be listed.
            if scheme not in ("http", "https") and (doing == "listing" or code in _NO_BUCKET):
                return NoBucketError(f"expected the bucket {bucket}, got nothing ({reason}) - at {where}")
            return NotFoundError(f"expected an object, got nothing - at {where}")
        final = kind not in ("GenericError", "JoinError", "ShortError") and not isinstance(error, OSError)
        if final or (status.startswith("4") and status not in _TEMPORARY):
            hint = f". {_HINT}" if "token request" in str(error) else ""
            return StorageError(f"expected to reach an object, got an error: {_said(error)} - at {where}{hint}")
        return None


class _SlowError(Exception):
    """A request that took too long."""


def _entry(meta: Meta) -> Entry:
    version = _tag(meta) or (meta["last_modified"].isoformat() if meta.get("last_modified") else None)
    return Entry(meta["path"], meta["size"], version)


def _tag(meta: Meta) -> str | None:
    """The ETag of an object. Azure quotes it when it is asked for the object, and not when it lists it."""
    tag = meta.get("e_tag")
    return tag if tag is None else str(tag).strip('"')


def _status(error: Exception) -> str:
    """The status of HTTP that an error of the library speaks of."""
    status = _STATUS.search(str(error))
    return (status[1] or status[2]) if status else ""


def _code(error: Exception) -> str:
    """The code that a store gives as its reason, such as InvalidBucketName."""
    code = _CODE.search(str(error))
    return code[1] if code else ""


def _said(error: Exception) -> str:
    """What a library says, in a line: its errors have several, some of them whole pages of HTML."""
    if code := _code(error):
        message = _MESSAGE.search(str(error))
        return " ".join(filter(None, (_status(error), code))) + (
            f": {message[1].strip().rstrip('.')}" if message else ""
        )
    text = str(error).partition("Debug source:")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("<")]
    text = " ".join(lines[:2]) or type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


def _made(obs: ModuleType, url: str) -> Any:
    """The library's store of a URL."""
    scheme, _, place = url.partition("://")
    client: dict[str, object] = {
        "allow_http": True,
        "timeout": timedelta(seconds=REQUEST),
        "connect_timeout": timedelta(seconds=5),
    }
    backoff = {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2}
    patience = {"max_retries": 2, "retry_timeout": timedelta(seconds=REQUEST), "backoff": backoff}
    said: dict[str, object] = {"client_options": client, "retry_config": patience}
    kinds = obs._store  # the native module has no other name for them
    if scheme in ("http", "https"):
        user, at, server = place.rpartition("@")
        if at:
            name, _, password = map(unquote, user.partition(":"))
            client["default_headers"] = {"Authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}
        return kinds.HTTPStore(f"{scheme}://{server}", **said)
    if scheme == "gs":
        return kinds.GCSStore(place, **said)
    if scheme == "az":
        return kinds.AzureStore(place, **said)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return kinds.S3Store(place, region=region or "us-east-1", **said)


_loaded: dict[int, ModuleType] = {}  # by process
_lock = threading.Lock()


def _forget_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def library() -> ModuleType:
    """The native module of obstore."""
    process = os.getpid()
    found = _loaded.get(process)
    if found is None:
        with _lock:
            found = _loaded.get(process)
            if found is None:
                found = _loaded[process] = _again(_imported()) if _loaded else _imported()
    return found


def _imported() -> ModuleType:
    try:
        from obstore import _obstore  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise MissingDependencyError.needed("obstore", "Object stores", extra="stores") from None
    module: ModuleType = _obstore
    return module


def _again(module: ModuleType) -> ModuleType:
    """The same module with nothing in it that an earlier process left."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        assert module.__file__ is not None
        path = shutil.copy(module.__file__, Path(folder))
        loader = ExtensionFileLoader("penstock.storage._obstore", str(path))
        spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
        assert spec is not None
        fresh = importlib.util.module_from_spec(spec)
        loader.exec_module(fresh)
        return fresh
