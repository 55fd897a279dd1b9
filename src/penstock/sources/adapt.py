"""Turn whatever a user gives into a source.

This is the only place that looks at what an object can do.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import contains
from typing import Any, TypeGuard

import numpy as np

from ..errors import SchemaError
from ..schema.columns import Array, Bytes, Columns, ExampleDict, Ragged, Value
from ..schema.schema import Schema
from .protocol import KEY, BatchSource, Source, Stream, TableSource, own_key
from .table import table


class ExampleList(Source):
    """A list of examples."""

    def __init__(self, examples: Sequence[Value]) -> None:
        self.examples = examples
        classes = set(map(type, examples))
        self._classes = {kind for kind in classes if hasattr(kind, "load")}
        self._plain = are_plain(examples)
        self.schema = _class_schema(classes)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Any:
        return self.examples[index]

    def __repr__(self) -> str:
        return f"ExampleList({len(self)} examples)"

    def key(self, index: int) -> str:
        """Return the example's own key, or its number."""
        key = own_key(self.examples[index])
        return str(index) if key is None else key

    @property
    def numbered(self) -> bool:
        """Whether no example has a key of its own."""
        return self._plain

    @property
    def runs_user_code(self) -> bool:
        """Whether examples load themselves."""
        return bool(self._classes)

    @property
    def example_classes(self) -> set[type]:
        """The classes of examples that load themselves."""
        return self._classes


class UserSource(Source):
    """An object of the user with a length and an index. What it does not say has defaults."""

    def __init__(self, source: Any) -> None:
        self.source = source
        schema = getattr(source, "schema", None)
        self.schema = schema if isinstance(schema, Schema) else None
        self._has = {name for name in ("key", "place", "stamp", "stamps", "column") if _has_method(source, name)}

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return self.source[index]

    def __repr__(self) -> str:
        return repr(self.source)

    def key(self, index: int) -> str:
        """Return the key that the object gives, or the number."""
        key = self.source.key(index) if "key" in self._has else None
        return str(index) if key is None else str(key)

    def place(self, index: int) -> str:
        """Return what the object says."""
        return str(self.source.place(index)) if "place" in self._has else super().place(index)

    def stamp(self, index: int) -> str:
        """Return what the object says."""
        return str(self.source.stamp(index)) if "stamp" in self._has else ""

    def stamps(self, rows: Array) -> Sequence[str]:
        """Return what the object says."""
        return list(self.source.stamps(rows)) if "stamps" in self._has else super().stamps(rows)

    def column(self, name: str) -> Sequence[Value] | Array | None:
        """Return what the object knows."""
        known: Sequence[Value] | None = self.source.column(name) if "column" in self._has else None
        return known

    @property
    def numbered(self) -> bool:
        """Whether the object gives no keys."""
        return bool(getattr(self.source, "numbered", "key" not in self._has))

    @property
    def options(self) -> dict[str, object]:
        """What the object says."""
        return _options(self.source)

    @property
    def by_file(self) -> list[Array] | None:
        """What the object says."""
        by_file: list[Array] | None = getattr(self.source, "by_file", None)
        return by_file

    @property
    def runs_user_code(self) -> bool:
        """Always."""
        return True


class UserBatchSource(UserSource, BatchSource):
    """An object of the user that loads many examples at once."""

    def take(self, rows: Array) -> Columns:
        """Load some examples as columns."""
        taken: Columns = self.source.take(rows)
        return taken


class UserTable(UserBatchSource, TableSource):
    """An object of the user that has columns."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.columns: Mapping[str, Value] = source.columns


class UserStream(Stream):
    """An iterable of the user, or a function that returns one."""

    def __init__(self, source: Iterable[Value] | Callable[[], Iterable[Value]]) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Value]:
        return iter(self.source if isinstance(self.source, Iterable) else self.source())

    def __repr__(self) -> str:
        return repr(self.source)

    @property
    def options(self) -> dict[str, object]:
        """What the object says."""
        return _options(self.source)

    @property
    def restarts(self) -> bool:
        """Whether it is more than an iterator."""
        return not isinstance(self.source, Iterator)


def as_source(given: object) -> Source | Stream:
    """Return the source or the stream that an object stands for.

    A dict of columns, a structured array, and a table of pandas or Arrow become a `Table`; a list becomes an
    `ExampleList`; an object with a length and an index a `UserSource`, or a `UserBatchSource` if it has `take`; other
    iterables and functions a `UserStream`.
    """
    if isinstance(given, (Source, Stream)):
        return given
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)[:100]
        hint = f"Such as penstock.image_folder({path!r})"
        raise SchemaError(f"expected a source of examples, got the path {path!r}", hint=hint)
    if isinstance(given, bytes) or inspect.isclass(given):
        got = f"the class {given.__name__}" if inspect.isclass(given) else "bytes"
        raise SchemaError(f"expected a source of examples, got {got}", hint="Such as image_folder(path)")
    if isinstance(given, (list, tuple)):
        return ExampleList(given)
    # Hugging Face datasets and our own splits have `take(count)` for the first so many, and `skip(count)` beside it.
    takes_many = _has_method(given, "take") and not _has_method(given, "skip")
    if takes_many and isinstance(getattr(given, "columns", None), Mapping):
        return UserTable(given)
    if isinstance(given, (Mapping, np.ndarray)) or hasattr(given, "columns"):
        return table(given)
    if hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        return UserBatchSource(given) if takes_many else UserSource(given)
    if isinstance(given, Iterable) or callable(given):
        return UserStream(given)
    raise SchemaError(f"expected a source of examples, got {type(given).__name__}")


def are_plain(examples: Sequence[object]) -> TypeGuard[Sequence[ExampleDict]]:
    """Return True if all are dicts that can be stored as they are."""
    dicts: Sequence[Value] = examples
    return set(map(type, examples)) <= {dict} and not any(map(contains, dicts, repeat(KEY)))


def _class_schema(classes: set[type]) -> Schema | None:
    """Return the schema of the one class that all examples have."""
    declared = getattr(next(iter(classes)), "schema", None) if len(classes) == 1 else None
    schema = declared() if callable(declared) else None
    return schema if isinstance(schema, Schema) else None


def _has_method(given: object, name: str) -> bool:
    return callable(getattr(given, name, None))


def _options(given: object) -> dict[str, object]:
    options = getattr(given, "options", None)
    return dict(options) if isinstance(options, Mapping) else {}


def is_column(value: object) -> bool:
    """Return True for a column of a table, False for a source of examples: a list of dicts is a source."""
    if isinstance(value, (list, tuple)):
        return not any(isinstance(item, Mapping) or hasattr(type(item), "load") for item in value)
    return isinstance(value, (np.ndarray, Ragged, Bytes)) or (
        hasattr(value, "__array__") and not hasattr(value, "columns")
    )
