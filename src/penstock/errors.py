"""The errors that Penstock raises. Each says what was expected, what came, where, and what to do.

PenstockError
├── ArgumentError           (ValueError, TypeError)   a wrong argument of a function
├── SchemaError             (ValueError)   a value, a type or a schema that does not fit
├── CorruptionError         (ValueError)   bytes that are damaged: path, offset, record
│   └── IndexMismatchError                 an index that does not belong to its shard
├── RecordIndexError        (IndexError)   a position outside of a shard or a batch
├── StorageError            (OSError)      a file or an object that cannot be read or written
│   ├── NotFoundError       (FileNotFoundError)
│   │   └── NoBucketError                  a bucket that does not exist
│   └── ElsewhereError                     bytes that are not here yet: nobody but the loader sees it
├── BuildError                             a build that cannot go on as asked
│   ├── ExampleError                       an example that could not be stored: split, key, place
│   └── NoExamplesError     (SchemaError)  nothing to store: where
├── LoadError                              a function of a loader that failed on an example: key, path;
│   │                                      or a dataset that was rebuilt after it was loaded
│   └── StateError          (SchemaError)  a state that a loader cannot resume from
├── MissingDependencyError  (ImportError)  an optional package that is not installed
└── InternalError           (RuntimeError) a bug in Penstock: please report it
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

MOST_NAMES = 20  # that a hint lists
_SECRET_PARAMETERS = (
    "X-Amz-Signature|X-Amz-Credential|X-Amz-Security-Token|X-Goog-Signature|X-Goog-Credential|AWSAccessKeyId"
    "|GoogleAccessId|Signature|sig|token|access_token|refresh_token|id_token|auth|authorization|api_?key|key"
    "|password|passwd|pwd|secret|client_secret"
)
_SECRETS = re.compile(
    r"(?P<user>(?<=://)[^/?#\s]*(?=@))"
    r"|(?P<coded>(?<=%3A%2F%2F)[^&/\s]*?(?=%40))"  # a URL inside of another
    rf"|(?<=[?&;])(?P<name>(?:{_SECRET_PARAMETERS})=)[^&;#\s'\"<>)]*",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return the text with `***` for users, passwords, tokens and signatures of the URLs in it."""
    return _SECRETS.sub(lambda found: f"{found['name'] or ''}***", text)


class PenstockError(Exception):
    """Base class of all errors of this package. Messages never hold the secrets of a URL: see `redact`."""

    def __init__(self, *values: Any, **more: Any) -> None:
        super().__init__(*(redact(value) if isinstance(value, str) else value for value in values), **more)


class SchemaError(PenstockError, ValueError):
    """A value, a type or a schema that does not fit: `message - at where. hint`."""

    def __init__(self, message: str, where: str = "", hint: str = "") -> None:
        super().__init__(message + (f" - at {where}" if where else "") + (f". {hint}" if hint else ""))
        self.message = message
        self.where = where
        self.hint = hint


class ArgumentError(PenstockError, ValueError, TypeError):
    """A wrong argument of a function, by its value or its type: `message - at where. hint`."""

    def __init__(self, message: str, where: str = "", hint: str = "") -> None:
        super().__init__(message + (f" - at {where}" if where else "") + (f". {hint}" if hint else ""))
        self.message = message
        self.where = where
        self.hint = hint


class CorruptionError(PenstockError, ValueError):
    """Damaged bytes: `message - at FILE, offset N, record K`, as far as each is known."""

    def __init__(
        self, message: str, path: str | None = None, offset: int | None = None, record: int | None = None
    ) -> None:
        place = ", ".join(
            ([] if path is None else [path])
            + ([] if offset is None else [f"offset {offset}"])
            + ([] if record is None else [f"record {record}"])
        )
        super().__init__(f"{message} - at {place}" if place else message)
        self.path = path
        self.offset = offset
        self.record = record


class IndexMismatchError(CorruptionError):
    """An index that does not belong to its shard. Delete it: the next open makes a new one."""


class RecordIndexError(PenstockError, IndexError):
    """A position outside of a shard, or of a batch."""


class StorageError(PenstockError, OSError):
    """A file or an object that cannot be read or written."""


class NotFoundError(StorageError, FileNotFoundError):
    """A file or an object that is not there."""


class NoBucketError(NotFoundError):
    """A bucket that does not exist."""


class ElsewhereError(StorageError):
    """Bytes of a remote file that were not asked for yet. Whoever reads remote files brings them, and goes on."""

    path: str
    offset: int
    length: int


class BuildError(PenstockError):
    """A build that cannot go on as asked. What it has finished is kept: the same build again goes on from there."""


class ExampleError(BuildError):
    """An example that could not be loaded or stored: which one, where it comes from, and why."""

    def __init__(self, message: str, *, split: str = "", key: str = "", place: str = "") -> None:
        super().__init__(message)
        self.split = split
        self.key = key
        self.place = place


class NoExamplesError(BuildError, SchemaError):
    """A split, or a whole build, without any example."""


class LoadError(PenstockError):
    """A function of a loader that failed: why, and on which example. What it raised is the cause."""

    def __init__(self, message: str, *, key: str | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.path = path


class StateError(LoadError, SchemaError):
    """A state that `resume` cannot go on from: damaged, of other data or of another pipeline."""

    def __init__(self, message: str, where: str = "", hint: str = "") -> None:
        SchemaError.__init__(self, message, where, hint)
        self.key = self.path = None


class MissingDependencyError(PenstockError, ImportError):
    """An optional package that is not installed."""

    @classmethod
    def needed(cls, package: str, purpose: str, extra: str) -> MissingDependencyError:
        """The one sentence for it, with the pip line: `purpose` in the plural, as in "bfloat16 fields"."""
        return cls(f"{purpose} need the package {package}: pip install penstock-data[{extra}]", name=package)


class InternalError(PenstockError, RuntimeError):
    """A bug in Penstock: a thread of the core panicked. The message says with what; please report it."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The hint for a name that is nearly right, or nothing."""
    near = difflib.get_close_matches(name[:100], list(known), n=3) if isinstance(name, str) else []
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else ""


def check_type(value: object, kind: type | tuple[type, ...], expected: str, where: str = "", hint: str = "") -> None:
    """Refuse what is of another type: `expected Local(...) or Ray(...), got str - at engine. hint`."""
    if not isinstance(value, kind):
        raise SchemaError(f"expected {expected}, got {type(value).__name__}", where, hint)


def check_known(names: Iterable[str], known: Iterable[str], noun: str, where: str) -> None:
    """Refuse a name that is none of those that are known: `unknown option 'sed' - at where. Did you mean 'seed'?`."""
    among = list(known)
    for name in names:
        if name not in among:
            raise SchemaError(f"unknown {noun} {name!r}", where, name_known(name, among, f"{noun}s"))


def name_known(name: object, known: Iterable[str], noun: str = "fields") -> str:
    """The hint for a name that is not there: near misses, then what there is."""
    names = list(known)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{did_you_mean(name, names)} The {noun} are: {', '.join(names[:MOST_NAMES]) or 'none'}{more}".lstrip()
