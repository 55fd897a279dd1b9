"""Some examples of a source, and what a source says of its examples without loading them.

A listed source (it has a length and an index) may have `key(i)`, `place(i)`, `stamp(i)`, `schema`, and `column(name)`:
the values of one field for all examples, where that is cheaper than loading each. One that has `take(rows)` loads many
at once, as columns, and is loaded on threads instead of in processes; a table has `columns` besides.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import RecordIndexError, SchemaError, name_known
from ..schema.columns import Array, Bytes
from ..schema.schema import Schema

RESTART = "Give the generator function itself, without calling it"


class Subset:
    """Some examples of a listed source, in its order: they keep their keys, places and stamps."""

    def __init__(self, source: Any, indices: Array) -> None:
        self.source = source
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.source[self._inner(index)]

    def __iter__(self) -> Iterator[Any]:
        return (self.source[index] for index in self.indices.tolist())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {len(self.source)} examples)"

    @property
    def schema(self) -> Schema | None:
        """The source's."""
        schema: Schema | None = getattr(self.source, "schema", None)
        return schema

    @property
    def options(self) -> dict[str, Any]:
        """The source's: what decides its examples besides their keys, plain."""
        return options_of(self.source)

    def key(self, index: int) -> str:
        """The key that the example has in the source."""
        return key_of(self.source, self._inner(index))

    def place(self, index: int) -> str:
        """Where the example comes from."""
        return place_of(self.source, self._inner(index))

    def stamp(self, index: int) -> str:
        """Changes when the example's content does; empty when unknown."""
        return str(self.source.stamp(self._inner(index))) if hasattr(self.source, "stamp") else ""

    def column(self, name: str) -> Sequence[Any]:
        """The values of one column, without loading the examples where the source knows them."""
        values = column_of(self.source, name)
        return [values[index] for index in self.indices.tolist()]

    def _inner(self, index: int) -> int:
        if not -len(self) <= operator.index(index) < len(self):
            raise RecordIndexError(f"example {index} is outside of a split of {len(self)} examples")
        return int(self.indices[index])


class TakenSubset(Subset):
    """Some examples of a source that loads many at once."""

    def take(self, indices: Any) -> dict[str, Any]:
        """The columns of some rows."""
        taken: dict[str, Any] = self.source.take(self.indices[np.asarray(indices, dtype=np.int64)])
        return taken


class TableSubset(TakenSubset):
    """Some rows of a table: columns stay columns."""

    @property
    def columns(self) -> Mapping[str, Any]:
        """The columns by name; each is taken from the source when it is asked for."""
        return _Columns(self.source, self.indices)


class _Columns(Mapping[str, Any]):
    def __init__(self, source: Any, indices: Array) -> None:
        self._source = source
        self._indices = indices

    def __getitem__(self, name: str) -> Any:
        column = self._source.columns[name]
        return column[self._indices] if isinstance(column, np.ndarray) else self._source.take(self._indices)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._source.columns)

    def __len__(self) -> int:
        return len(self._source.columns)


class StreamSubset:
    """The examples of a stream that belong to one split. To iterate is a pass for each; a build makes one for all."""

    def __init__(self, source: Any, rule: Any, name: str) -> None:
        self.source = source
        self.rule = rule
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.source, Iterator):
            raise SchemaError("expected a stream that can start again, got one that runs once", self.name, RESTART)
        found = False
        for key, item in keyed(self.source):
            if self.rule(key, item, key) == self.name:
                found = True
                yield item
        if not found:
            raise SchemaError("expected examples in every split, got none", self.name)

    def __repr__(self) -> str:
        return f"StreamSubset({self.name!r})"

    @property
    def options(self) -> dict[str, Any]:
        """The rule, and the source's own: what decides the examples, plain."""
        return {"rule": self.rule.to_json(), **options_of(self.source)}


def view(source: Any, indices: Array) -> Subset:
    """The chosen examples of a listed source, a table if it is one."""
    if isinstance(source, Subset):
        return view(source.source, source.indices[indices])
    kind = TableSubset if is_table(source) else TakenSubset if takes_many(source) else Subset
    return kind(source, indices)


# What a source knows
def is_listed(source: Any) -> bool:
    return (
        hasattr(source, "__len__") and hasattr(source, "__getitem__") and not isinstance(source, (str, bytes, Mapping))
    )


def takes_many(source: Any) -> bool:
    return callable(getattr(source, "take", None))


def is_table(source: Any) -> bool:
    return isinstance(getattr(source, "columns", None), Mapping) and takes_many(source)


def options_of(source: Any) -> dict[str, Any]:
    """What decides a source's examples besides their keys, as it says itself: plain, for a manifest."""
    options = getattr(source, "options", None)
    return dict(options) if isinstance(options, Mapping) else {}


def key_of(source: Any, index: int) -> str:
    """The key that the source gives; that of the example, in a list; or its number."""
    if callable(getattr(source, "key", None)):
        key = source.key(index)
    else:
        key = own_key(source[index]) if isinstance(source, (list, tuple)) else None
    return str(index) if key is None else str(key)


def own_key(example: Any) -> str | None:
    """The key that an example has by itself."""
    key = example.get("__key__") if isinstance(example, Mapping) else getattr(example, "key", None)
    return None if key is None or callable(key) else str(key)


def keys_of(source: Any) -> Iterable[str]:
    """The keys of all examples, in order."""
    if callable(getattr(source, "key", None)):
        return (key_of(source, index) for index in range(len(source)))
    if isinstance(source, (list, tuple)):
        return (str(index) if key is None else key for index, key in enumerate(map(own_key, source)))
    return map(str, range(len(source)))


def place_of(source: Any, index: int) -> str:
    if callable(getattr(source, "place", None)):
        return str(source.place(index))
    key = key_of(source, index)
    return f"example {index}" if key == str(index) else key


def stamps_of(source: Any, rows: Array) -> Iterable[str]:
    """What changes when these examples do; empty where that is unknown."""
    if isinstance(source, Subset):
        return stamps_of(source.source, source.indices[rows])
    if callable(getattr(source, "stamps", None)):
        stamps: Iterable[str] = source.stamps(rows)
        return stamps
    return (str(source.stamp(row)) for row in rows.tolist()) if hasattr(source, "stamp") else [""] * len(rows)


def keyed(source: Any) -> Iterator[tuple[str, Any]]:
    """The stream's examples with their keys."""
    items: Iterable[Any] = source() if callable(source) and not isinstance(source, Iterable) else source
    for index, item in enumerate(items):
        key = own_key(item)
        yield str(index) if key is None else key, item


def column_of(source: Any, name: str) -> Sequence[Any]:
    """The values of a column: the table's, what the source knows without loading, or those of each example."""
    if is_table(source):
        if name not in source.columns:
            raise SchemaError(f"no column {name!r}", hint=name_known(name, source.columns, "columns"))
        return _single_values(source.columns[name], name)
    if callable(getattr(source, "column", None)) and (known := source.column(name)) is not None:
        return _single_values(known, name)
    return [value_of(source[index], name, place_of(source, index)) for index in range(len(source))]


def _single_values(column: Any, name: str) -> Sequence[Any]:
    if isinstance(column, np.ndarray) and column.ndim == 1:
        values: list[Any] = list(column) if column.dtype.kind == "M" else column.tolist()
        return values
    if isinstance(column, Bytes) and not column.shape:
        return column.to_list()
    if isinstance(column, (list, tuple)):
        return column
    raise SchemaError(f"expected one value for each example, got {type(column).__name__}", name)


def value_of(example: Any, name: str, where: str) -> Any:
    """A dict's value, or an object's attribute as it is before load()."""
    if isinstance(example, Mapping):
        if name in example:
            return example[name]
        known: Iterable[str] = (str(key) for key in example if key != "__key__")
    elif hasattr(example, name):
        return getattr(example, name)
    else:
        known = [key for key in getattr(example, "__dict__", ()) if not key.startswith("_")]
    raise SchemaError(f"no column {name!r}", where, name_known(name, known, "columns"))


class Listed(Protocol):
    """Examples that are known by number. `source[i]` loads one; everything else is cheap."""

    @property
    def schema(self) -> Schema | None:
        """The fields that are known for sure, or None."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Mapping[str, Any]: ...

    def key(self, index: int, /) -> str:
        """What names the example, wherever it stands."""

    def place(self, index: int, /) -> str:
        """Where it comes from, for people."""

    def stamp(self, index: int, /) -> str:
        """Changes when the example's content does; empty when unknown."""


def position(index: int, length: int) -> int:
    """The index, counted from the end where it is negative."""
    if not isinstance(index, (int, np.integer)):
        hint = "It has no splits: split(source, train=0.8, test=0.2) makes some" if isinstance(index, str) else ""
        raise SchemaError(f"expected the number of an example, got {index!r}", "", hint)
    if not -length <= index < length:
        raise RecordIndexError(f"example {index} is outside of a source of {length} examples")
    return index % length
