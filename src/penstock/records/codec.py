"""From examples to records and back, by a schema that is compiled once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial

import numpy as np

from .. import _core
from .._core import Images, Plan, Records
from ..errors import ArgumentError, SchemaError, check_type
from ..schema.columns import Array, Columns, ExampleDict, Value
from ..schema.field import Image
from ..schema.schema import Fields, Schema
from .layouts import Fixed, Parts, Pixels, layout


def default_threads() -> int:
    """As many threads as this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Codec:
    """Encodes examples as tf.train.Example records, and decodes them.

    codec = Codec({"dense": "float32[13]", "label": "int64"})
    records = codec.encode({"dense": rows, "label": labels})    # a batch of columns
    codec.decode(records)["label"]                              # an array
    codec.decode_example(records[0])                            # one example; encode_example is the way back
    """

    def __init__(
        self, schema: Schema | Fields, *, narrow: bool = False, images: Mapping[str, Image] | None = None
    ) -> None:
        """Compile a schema.

        narrow  decode integers of 64 bits into 32; those that do not fit are errors
        images  fields whose files readers of shards decode, with their options
        """
        self.schema = schema if isinstance(schema, Schema) else Schema(schema)
        self.narrow = narrow
        self._image_options = images or {}
        self.images = Images({name: asdict(image) for name, image in images.items()}) if images else None
        self.layouts = {
            field.name: Pixels(field) if field.name in self._image_options else layout(field)
            for field in self.schema.leaves()
        }
        self.nested = any(isinstance(node, Schema) for node in self.schema.values()) or self.schema.sequence
        layouts = self.layouts.values()
        columns = [(column, narrow and isinstance(each, Fixed)) for each in layouts for column in each.columns()]
        self.plan = Plan([column.narrowed() if narrowed else column for column, narrowed in columns])
        self._by_column = list(layouts)  # where each has one column, as all direct ones do
        self.direct_batch = not self.nested and all(each.direct_batch for each in layouts)
        self.direct_example = all(each.direct_example for each in layouts)
        self._labels = [each.field for each in layouts if each.field.kind == "label" and each.field.classes is not None]

    def __repr__(self) -> str:
        return f"Codec({self.schema!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(Codec, narrow=self.narrow, images=self._image_options), (self.schema,))

    def select(self, *names: str) -> Codec:
        """A codec of some fields; the bytes of the others are skipped."""
        return Codec(self.schema.select(*names))

    # Records to examples

    def decode(self, records: Records | Iterable[bytes]) -> Columns:
        """Records as a batch: a column for each field."""
        return self.to_batch(self.plan.decode(records if isinstance(records, Records) else list(records)))

    def decode_example(self, record: bytes) -> ExampleDict:
        """One record as an example."""
        if not self.direct_example:
            return first_row(self.decode([record]))
        return self.to_example(self.plan.decode_example(record))

    def to_batch(self, raw: Columns) -> Columns:
        """What the core decoded, as users see it."""
        if self.direct_batch:
            return raw
        batch = {name: each.batch(raw) for name, each in self.layouts.items()}
        return self.schema.unflatten(batch) if self.nested else batch

    def to_example(self, raw: ExampleDict) -> ExampleDict:
        """One example that the core decoded, where all layouts are direct."""
        return self.schema.unflatten(raw) if self.nested else raw

    # Examples to records

    def encode(self, columns: Mapping[str, Value], *, threads: int | None = None) -> Records:
        """A batch of columns as records. Arrays must have the fields' dtypes, or ones that lose nothing in them.

        The column of an optional field may be left out: all rows lack it then.
        """
        check_type(columns, Mapping, "a dict of columns", "encode", "encode_examples takes a list of examples")
        parts, rows = self.to_parts(columns)
        return self.plan.encode(parts, rows, threads or default_threads())

    def encode_rows(self, columns: Mapping[str, Value], rows: Array, *, threads: int | None = None) -> Records | None:
        """Some rows of columns that the core takes as they are, without taking them out first; None for others."""
        if self.nested or columns.keys() != self.layouts.keys():
            return None
        parts = []
        for name, each in self.layouts.items():
            part = each.chosen(columns[name], rows)
            if part is None:
                return None
            parts.append(part)
        height = len(next(iter(columns.values()), ()))
        return self.plan.encode(parts, height, threads or default_threads(), rows)

    def encode_examples(self, examples: Iterable[Mapping[str, Value]], *, threads: int | None = None) -> Records:
        """Examples as records."""
        rows, fit = self.to_rows(examples)
        return self.plan.encode_examples(rows, fit, threads or default_threads())

    def encode_example(self, example: Mapping[str, Value], where: str = "") -> bytes:
        """One example as a record; `where` is what an error calls it."""
        try:
            return bytes(self.encode_examples([example], threads=1)[0])
        except SchemaError as error:
            raise SchemaError(error.message, error.where.replace("[0]", where, 1).lstrip("."), error.hint) from None

    def to_parts(self, columns: Mapping[str, Value], rows: int | None = None) -> tuple[list[Parts], int]:
        """The columns as the core takes them, and how many rows they have."""
        flat = self.schema.flatten(columns) if self.nested or columns.keys() != self.layouts.keys() else columns
        parts: list[Parts] = []
        lengths: dict[str, list[Array]] = {}
        for name, each in self.layouts.items():
            if flat[name] is not None or not each.field.optional:
                found = rows_in(flat[name], name, str(each.field))
                rows = found if rows is None else rows
                if found != rows:
                    raise SchemaError(f"expected {rows} rows, as other columns have, got {found}", name)
        rows = rows or 0
        for name, each in self.layouts.items():
            own = each.gather([None] * rows) if flat[name] is None else each.parts(flat[name], rows)
            parts += own
            if own[0][3] is None:  # the lists of rows that are missing have no length to compare
                lengths[name] = each.lengths(own)
        if self.nested:
            _check_sequences(self.schema, lengths)
        return parts, rows

    def to_rows(self, examples: Iterable[Mapping[str, Value]]) -> tuple[list[Value], Value]:
        """Examples as flat dicts by column, and what the core calls for a value that is not of its column's type."""
        rows: list[Value] = examples if isinstance(examples, list) else list(examples)
        if self.nested or not self.direct_example:
            return [self._record_values(example, f"[{number}]") for number, example in enumerate(rows)], _fitted
        if self._labels:
            self._check_labels(rows)
        return rows, self._fit

    def _record_values(self, example: Mapping[str, Value], where: str) -> Columns:
        values: Columns = {}
        for name, exact in self.schema.coerce(example, where).items():
            values |= self.layouts[name].record_values(exact) if exact is not None else {}
        return values

    def _check_labels(self, rows: list[Value]) -> None:
        """The core takes any int64: those that are the index of no class are refused here."""
        for field in self._labels:
            classes = len(field.classes or ())
            for number, example in enumerate(rows):
                label = example.get(field.name) if isinstance(example, dict) else None
                if label is not None and not (isinstance(label, (int, np.integer)) and -1 <= label < classes):
                    field.coerce(label, f"[{number}].{field.name}")

    def _fit(self, column: int | None, row: int, value: Value) -> Value:
        """The core found a value that is not of its column's very type, or, without a column, an unknown key."""
        if column is None:
            self.schema.flatten(value, f"[{row}]")
            return None
        each = self._by_column[column]
        return each.record_values(each.field.coerce(value, f"[{row}].{each.name}"))[each.key]


def _fitted(column: int | None, row: int, value: object) -> Value:
    """Values were fitted before: they are what they must be."""
    return value


def rows_in(column: object, name: str, kind: str) -> int:
    """How many rows a column has."""
    if column is None:
        raise SchemaError(f"expected a column of {kind}, got nothing", name)
    if isinstance(column, (str, bytes, Mapping)) or not hasattr(column, "__len__") or getattr(column, "shape", 1) == ():
        got = type(column).__name__
        raise SchemaError(f"expected a column of {kind}, got {got}", name, "A column has a row for each example")
    return len(column)


def first_row(batch: Mapping[str, Value]) -> ExampleDict:
    """The one example of a batch of one."""
    first: ExampleDict = {}
    for name, column in batch.items():
        if isinstance(column, dict):
            first[name] = first_row(column)
        elif isinstance(column, np.ma.MaskedArray):
            first[name] = None if np.ma.getmaskarray(column)[0].any() else column.data[0]
        else:
            first[name] = column[0]
    return first


def _check_sequences(node: Schema, lengths: Mapping[str, list[Array]], depth: int = 0, prefix: str = "") -> None:
    """The lists of one sequence are equally long, at every level that they share."""
    depth += node.sequence
    if node.sequence:
        names = [name for name in (prefix + field.name for field in node.leaves()) if lengths.get(name)]
        for name in names[1:]:
            shared = zip(lengths[names[0]][:depth], lengths[name], strict=False)
            if any(not np.array_equal(a, b) for a, b in shared):
                got = f"{names[0]} and {name} that differ"
                raise SchemaError(f"expected lists of equal length in a sequence, got {got}", prefix.rstrip("/"))
    for name, child in node.items():
        if isinstance(child, Schema):
            _check_sequences(child, lengths, depth, f"{prefix}{name}/")


def max_row_bytes(limit: int | None = None) -> int:
    """Return the largest row that this process reads, in bytes; with `limit`, set it and return the previous one.

    Files and schemas can name any size: a record that inflates to gigabytes, a column of a billion elements. Larger
    ones raise an error before memory is allocated. The default is 1 GiB. The limit applies to

    - a record of a compressed file, and a chunk of an ArrayRecord file, once inflated
    - a row of one column, by its schema or once inflated
    - the rows of one batch that are missing from their records and filled in

    before = max_row_bytes(4 << 30)

    Call it before you open a dataset, in each process that reads: a process that was spawned starts with the default.
    """
    if limit is None:
        return _core.max_row_bytes()
    if type(limit) is not int or not 1 <= limit < 2**64:
        raise ArgumentError(f"expected a limit of 1 or more bytes, got {limit!r}", "max_row_bytes")
    return _core.max_row_bytes(limit)
