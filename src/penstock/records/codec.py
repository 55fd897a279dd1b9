"""From examples to records and back, by a schema that is compiled once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._core import Plan, Records
from ..errors import SchemaError
from ..schema import Schema
from .leaves import Leaf, Parts


def default_threads() -> int:
    """As many threads as this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Codec:
    """Encodes examples as tf.train.Example records, and decodes them.

    codec = Codec({"dense": "float32[13]", "label": "int64"})
    records = codec.encode({"dense": rows, "label": labels})    # a batch of columns
    codec.decode(records)["label"]                              # an array
    codec.decode_example(records[0])                            # one example
    """

    def __init__(self, schema: Schema | Mapping[str, Any]) -> None:
        self.schema = schema if isinstance(schema, Schema) else Schema(schema)
        self._leaves = [Leaf(field) for field in self.schema.leaves()]
        self._nested = any(isinstance(node, Schema) for node in self.schema.values()) or self.schema.sequence
        columns = [column for leaf in self._leaves for column in leaf.columns()]
        self._plan = Plan([tuple(column) for column in columns])
        self._names = [leaf.name for leaf in self._leaves]
        self._direct_batch = not self._nested and all(leaf.direct_batch for leaf in self._leaves)
        self._direct_example = all(leaf.direct_example for leaf in self._leaves)

    def __repr__(self) -> str:
        return f"Codec({self.schema!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Codec, (self.schema,))

    def select(self, *names: str) -> Codec:
        """A codec of some fields; the bytes of the others are skipped."""
        return Codec(self.schema.select(*names))

    # Records to examples

    def decode(self, records: Records | Iterable[bytes]) -> dict[str, Any]:
        """Records as a batch: a column for each field."""
        return self._batch(self._plan.decode(records if isinstance(records, Records) else list(records)))

    def decode_example(self, record: bytes) -> dict[str, Any]:
        """One record as an example."""
        if not self._direct_example:
            return self._first(self.decode([record]))
        return self._example(self._plan.decode_example(record))

    def _batch(self, raw: dict[str, Any]) -> dict[str, Any]:
        """What the core decoded, as users see it."""
        if self._direct_batch:
            return raw
        batch = {leaf.name: leaf.batch(raw) for leaf in self._leaves}
        return self.schema.unflatten(batch) if self._nested else batch

    def _example(self, raw: dict[str, Any]) -> dict[str, Any]:
        return self.schema.unflatten(raw) if self._nested else raw

    def _first(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The one example of a batch of one."""
        return _first_row(batch)

    # Examples to records

    def encode(self, columns: Mapping[str, Any], *, threads: int | None = None) -> Records:
        """A batch of columns as records. Arrays must have the fields' dtypes, or narrower ones."""
        parts, rows = self._parts(columns)
        return self._plan.encode(parts, rows, threads or default_threads())

    def encode_examples(self, examples: Iterable[Mapping[str, Any]], *, threads: int | None = None) -> Records:
        """Examples as records."""
        rows, coerce = self._rows(examples)
        return self._plan.encode_examples(rows, coerce, threads or default_threads())

    def _parts(self, columns: Mapping[str, Any]) -> tuple[list[Parts], int]:
        """The columns as the core takes them, and how many rows they have."""
        flat = self.schema.flatten(columns) if self._nested else columns
        unknown = [name for name in flat if name not in self._names]
        if unknown:
            raise SchemaError(f"no field {unknown[0]!r}", hint=f"The fields are {', '.join(self._names)}")
        rows = -1
        parts: list[Parts] = []
        for leaf in self._leaves:
            column = flat.get(leaf.name)
            if column is None:
                raise SchemaError(f"expected a column of {leaf.field}, got nothing", leaf.name)
            rows = len(column) if rows < 0 else rows
            parts += leaf.parts(column, rows)
        return parts, max(rows, 0)

    def _rows(self, examples: Iterable[Mapping[str, Any]]) -> tuple[list[Any], Any]:
        """Examples as flat dicts by column, and the function that fits a value that is not of its column's type."""
        rows: list[Any] = examples if isinstance(examples, list) else list(examples)
        if self._nested or not self._direct_example:
            rows = [self._record_values(example, f"[{number}]") for number, example in enumerate(rows)]
            return rows, self._refuse
        return rows, self._coerce

    def _record_values(self, example: Mapping[str, Any], where: str) -> dict[str, Any]:
        flat = self.schema.flatten(example, where)
        values: dict[str, Any] = {}
        for leaf in self._leaves:
            values |= leaf.record_values(flat[leaf.name], f"{where}.{leaf.name}")
        return values

    def _coerce(self, column: int | None, row: int, value: Any) -> Any:
        """Called by the core for a value that is not of its column's very type, or for an example with unknown keys."""
        if column is None:
            self.schema.flatten(value, f"[{row}]")
            return None
        leaf = self._leaves[column]
        return leaf.record_values(value, f"[{row}].{leaf.name}")[leaf.field.record_keys[0]]

    def _refuse(self, column: int | None, row: int, value: Any) -> Any:
        """Values were fitted before; what still does not fit is missing."""
        raise SchemaError(f"expected a value, got {value!r}", f"[{row}]")


def _first_row(batch: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    first: dict[str, Any] = {}
    for name, column in batch.items():
        if isinstance(column, dict):
            first[name] = _first_row(column)
        else:
            row = column[0]
            first[name] = None if row is np.ma.masked or np.ma.is_masked(row) else row
    return first


def as_list(items: Sequence[Any] | Any) -> list[int]:
    """Record numbers as plain ints."""
    return [int(item) for item in items]
