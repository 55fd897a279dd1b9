"""What a source is, whatever it reads: examples by number, columns, records, or a stream.

`build` takes any object with a length and an index, any iterable, and any function that returns one. `as_source` turns
it into one of these classes, once; behind it, nothing asks again what the object can do:

    Source        examples known by number: `source[i]` loads one, everything else is cheap
    BatchSource   loads many at once, as columns, on threads of one process
    TableSource   has its columns in memory
    RecordSource  has records that need not be decoded and encoded again
    Stream        examples one after the other, of unknown number

A class for your own data may inherit from one of them, but need not: an object with a length and an index becomes a
`Source`, and its `schema`, `options`, `key`, `place`, `stamp`, `stamps`, `column`, `take` and `columns` are used if it
has them.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..errors import RecordIndexError, SchemaError, name_known
from ..schema.columns import Array, Bytes, Columns, Value
from ..schema.schema import Schema

KEY = "__key__"  # in a dict: the example's key, which is not stored
RESTART = "Give the generator function itself, without calling it"
Rule: TypeAlias = "Callable[[str, Any, str], str]"  # the split of an example: by its key, itself, and where it is


class Source(ABC):
    """Examples that are known by number. `source[i]` loads one; everything else is cheap."""

    schema: Schema | None = None  # the fields that are known for sure
    largest_download: int = 0  # bytes of the largest file in a store that an example needs

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int, /) -> Any:
        """Load an example: a dict, or an object with `load` and `to_dict`."""

    @abstractmethod
    def key(self, index: int, /) -> str:
        """Return the name of an example, unique in the source and the same in every run."""

    def place(self, index: int, /) -> str:
        """Return where an example comes from, for messages."""
        key = self.key(index)
        return f"example {index}" if key == str(index) else key

    def stamp(self, index: int, /) -> str:
        """Return a text that changes when the example does; empty if that is unknown."""
        return ""

    def stamps(self, rows: Array, /) -> Sequence[str]:
        """Return the stamps of many examples."""
        return [self.stamp(row) for row in rows.tolist()]

    def column(self, name: str, /) -> Sequence[Value] | Array | None:
        """Return one field of all examples if that takes no loading, else None."""
        return None

    def all_keys(self) -> Sequence[str]:
        """Return the keys of all examples."""
        return [str(index) if self.numbered else self.key(index) for index in range(len(self))]

    @property
    def numbered(self) -> bool:
        """Whether the key of every example is its number."""
        return False

    @property
    def options(self) -> dict[str, object]:
        """What decides the examples besides their keys, as JSON: it is kept in the manifest."""
        return {}

    @property
    def by_file(self) -> list[Array] | None:
        """The examples of each file by number, if they are best read file by file."""
        return None

    @property
    def runs_user_code(self) -> bool:
        """Whether loading an example runs code that is not Penstock's."""
        return False

    @property
    def example_classes(self) -> set[type]:
        """The classes of its examples that load themselves, as far as they are known without loading."""
        return set()


class BatchSource(Source):
    """A source that loads many examples at once. It runs on threads of one process."""

    @abstractmethod
    def take(self, rows: Array, /) -> Columns:
        """Load some examples as columns."""


class TableSource(BatchSource):
    """A source whose columns are in memory."""

    columns: Mapping[str, Value]


class RecordSource(Source):
    """A source of records. They are copied as they are if the schema of the build is the source's."""

    schema: Schema

    @abstractmethod
    def records(self, rows: Array, /) -> Any:
        """Return some records, with their checksums verified."""


class Stream(ABC):
    """Examples that come one after the other; their number is known at the end."""

    @abstractmethod
    def __iter__(self) -> Iterator[Value]:
        """Yield the examples, from the start."""

    @property
    def options(self) -> dict[str, object]:
        """What decides the examples, as JSON: it is kept in the manifest."""
        return {}

    @property
    def restarts(self) -> bool:
        """Whether it can be iterated again."""
        return True


def keyed_examples(stream: Iterable[Value]) -> Iterator[tuple[str, Any]]:
    """Yield the examples of a stream with their keys."""
    for index, example in enumerate(stream):
        key = own_key(example)
        yield str(index) if key is None else key, example


def own_key(example: object) -> str | None:
    """Return the key that an example has by itself."""
    key = example.get(KEY) if isinstance(example, Mapping) else getattr(example, "key", None)
    return None if key is None or callable(key) else str(key)


def read_column(source: Source, name: str) -> Sequence[Value]:
    """Return one field of all examples: the table's column, what the source knows, or the value of each example."""
    if isinstance(source, TableSource):
        if name not in source.columns:
            raise SchemaError(f"no column {name!r}", hint=name_known(name, source.columns, "columns"))
        return _single_values(source.columns[name], name)
    if (known := source.column(name)) is not None:
        return _single_values(known, name)
    return [value_of(source[index], name, source.place(index)) for index in range(len(source))]


def _single_values(column: Value, name: str) -> Sequence[Value]:
    if isinstance(column, np.ndarray) and column.ndim == 1:
        values: list[Value] = list(column) if column.dtype.kind == "M" else column.tolist()
        return values
    if isinstance(column, Bytes) and not column.shape:
        return column.to_list()
    if isinstance(column, (list, tuple)):
        return column
    raise SchemaError(f"expected one value for each example, got {type(column).__name__}", name)


def value_of(example: object, name: str, where: str) -> Any:
    """Return a dict's value, or an object's attribute as it is before load()."""
    if isinstance(example, Mapping):
        if name in example:
            return example[name]
        known: Iterable[str] = (str(key) for key in example if key != KEY)
    elif hasattr(example, name):
        return getattr(example, name)
    else:
        known = [key for key in getattr(example, "__dict__", ()) if not key.startswith("_")]
    raise SchemaError(f"no column {name!r}", where, name_known(name, known, "columns"))


def position(index: int, length: int) -> int:
    """Return the index, counted from the end if it is negative."""
    if not isinstance(index, (int, np.integer)):
        hint = "It has no splits: split(source, train=0.8, test=0.2) makes some" if isinstance(index, str) else ""
        raise SchemaError(f"expected the number of an example, got {index!r}", "", hint)
    if not -length <= index < length:
        raise RecordIndexError(f"example {index} is outside of a source of {length} examples")
    return index % length


class Subset(Source):
    """Some examples of a source, in its order: they keep their keys, places and stamps."""

    def __init__(self, source: Source, indices: Array) -> None:
        self.source = source
        self.indices = indices
        self.schema = source.schema
        self.largest_download = source.largest_download

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.source[self._inner(index)]

    def __iter__(self) -> Iterator[Value]:
        return (self.source[index] for index in self.indices.tolist())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {len(self.source)} examples)"

    @property
    def options(self) -> dict[str, object]:
        """The source's."""
        return self.source.options

    @property
    def runs_user_code(self) -> bool:
        """The source's."""
        return self.source.runs_user_code

    @property
    def example_classes(self) -> set[type]:
        """The source's."""
        return self.source.example_classes

    def key(self, index: int) -> str:
        """Return the key that the example has in the source."""
        return self.source.key(self._inner(index))

    def place(self, index: int) -> str:
        """Return where the example comes from."""
        return self.source.place(self._inner(index))

    def stamp(self, index: int) -> str:
        """Return the stamp that the example has in the source."""
        return self.source.stamp(self._inner(index))

    def stamps(self, rows: Array) -> Sequence[str]:
        """Return the stamps of many examples."""
        return self.source.stamps(self.indices[rows])

    def column(self, name: str) -> Sequence[Value]:
        """Return one field of the examples."""
        values = read_column(self.source, name)
        return [values[index] for index in self.indices.tolist()]

    def _inner(self, index: int) -> int:
        if not -len(self) <= operator.index(index) < len(self):
            raise RecordIndexError(f"example {index} is outside of a split of {len(self)} examples")
        return int(self.indices[index])


class BatchSubset(Subset, BatchSource):
    """Some examples of a source that loads many at once."""

    source: BatchSource

    def take(self, rows: Array) -> Columns:
        """Load some examples as columns."""
        return self.source.take(self.indices[np.asarray(rows, dtype=np.int64)])


class TableSubset(BatchSubset, TableSource):
    """Some rows of a table."""

    source: TableSource

    def __init__(self, source: TableSource, indices: Array) -> None:
        super().__init__(source, indices)
        self.columns = _TakenColumns(source, indices)


class _TakenColumns(Mapping[str, Any]):
    """Columns that are taken from those of the source when they are asked for."""

    def __init__(self, source: TableSource, indices: Array) -> None:
        self._source = source
        self._indices = indices

    def __getitem__(self, name: str) -> Value:
        column = self._source.columns[name]
        return column[self._indices] if isinstance(column, np.ndarray) else self._source.take(self._indices)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._source.columns)

    def __len__(self) -> int:
        return len(self._source.columns)


class StreamSubset(Stream):
    """The examples of a stream that belong to one split. Each iteration reads the stream; a build reads it once.

    rule  the split of an example
    said  the rule as JSON
    """

    def __init__(self, source: Stream, rule: Rule, name: str, said: Mapping[str, Any]) -> None:
        self.source = source
        self.rule = rule
        self.name = name
        self.said = dict(said)

    def __iter__(self) -> Iterator[Value]:
        if not self.source.restarts:
            raise SchemaError("expected a stream that can start again, got one that runs once", self.name, RESTART)
        found = False
        for key, item in keyed_examples(self.source):
            if self.rule(key, item, key) == self.name:
                found = True
                yield item
        if not found:
            raise SchemaError("expected examples in every split, got none", self.name)

    def __repr__(self) -> str:
        return f"StreamSubset({self.name!r})"

    @property
    def options(self) -> dict[str, object]:
        """The rule, and the options of the stream."""
        return {"rule": self.said, **self.source.options}


def view(source: Source, indices: Array) -> Subset:
    """Return the chosen examples of a source, as a table if it is one."""
    if isinstance(source, Subset):
        return view(source.source, source.indices[indices])
    if isinstance(source, TableSource):
        return TableSubset(source, indices)
    return BatchSubset(source, indices) if isinstance(source, BatchSource) else Subset(source, indices)
