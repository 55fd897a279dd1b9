"""tf.train.SequenceExample: fields of the whole example, and fields of each of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from .._core import Records, SequencePlan
from ..errors import SchemaError, name_known
from ..schema.columns import Array, Columns, ExampleDict, Ragged, Value
from ..schema.schema import Fields, Schema
from .codec import Codec, first_row, rows_in
from .layouts import Layout, Parts

StepParts: TypeAlias = "tuple[Parts, Array, Array | None]"


class SequenceCodec:
    """Encodes examples that are sequences as tf.train.SequenceExample records, and decodes them.

    codec = SequenceCodec(context={"speaker": "str"}, steps={"tokens": "int64[?]", "score": "float32"})
    records = codec.encode_examples([{"speaker": "ann", "tokens": [[5, 6], [7]], "score": [0.5, 0.25]}])
    codec.decode(records)["score"]     # Ragged: a row for each example, an element for each step

    Both kinds of fields stand side by side in one dict. A step field has one value for each step.
    """

    def __init__(self, context: Schema | Fields, steps: Schema | Fields) -> None:
        self._context = Codec(context)
        self._steps = Codec(steps)
        self.context = self._context.schema
        self.steps = self._steps.schema
        both = [name for name in self.steps if name in self.context]
        if both:
            got = f"{both[0]!r} in the context and in the steps"
            raise SchemaError(f"expected each field once, got {got}", hint="Rename one of them")
        for name, layout in self._steps.layouts.items():
            if len(layout.columns()) > 1:
                hint = "Leave one dimension unknown, or one list, in each step"
                raise SchemaError(f"expected a step that one feature holds, got {layout.field}", name, hint)
        self._plan = SequencePlan(self._context.plan, self._steps.plan)

    def __repr__(self) -> str:
        return f"SequenceCodec(context={self.context!r}, steps={self.steps!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (SequenceCodec, (self.context, self.steps))

    # Records to examples

    def decode(self, records: Records | Iterable[bytes]) -> Columns:
        """Records as a batch: a column for each field, a Ragged one for each field of the steps."""
        context, steps = self._plan.decode(records if isinstance(records, Records) else list(records))
        columns = {name: _step_column(layout, steps[name]) for name, layout in self._steps.layouts.items()}
        return self._context.to_batch(context) | self.steps.unflatten(columns)

    def decode_example(self, record: bytes) -> ExampleDict:
        """One record as an example."""
        return first_row(self.decode([record]))

    # Examples to records

    def encode(self, columns: Mapping[str, Value]) -> Records:
        """A batch of columns as records."""
        context, steps = self._split(columns)
        flat = self.steps.flatten(steps)
        rows = None if context else self._count(flat)
        parts, rows = self._context.to_parts(context, rows)
        return self._plan.encode(
            parts, [_step_parts(layout, flat[name], rows) for name, layout in self._steps.layouts.items()], rows
        )

    def encode_examples(self, examples: Iterable[Mapping[str, Value]]) -> Records:
        """Examples as records."""
        context: list[ExampleDict] = []
        steps: list[ExampleDict] = []
        for number, example in enumerate(examples):
            where = f"[{number}]"
            if not isinstance(example, Mapping):
                raise SchemaError(f"expected an example as a dict, got {type(example).__name__}", where)
            of_context, of_steps = self._split(example, where)
            context.append(self.context.coerce(of_context, where))
            steps.append(self.steps.flatten(of_steps, where))
        parts = [
            own
            for name, layout in self._context.layouts.items()
            for own in layout.gather(example[name] for example in context)
        ]
        lists = [
            _step_parts(layout, [example[name] for example in steps], len(steps))
            for name, layout in self._steps.layouts.items()
        ]
        return self._plan.encode(parts, lists, len(steps))

    def _split(self, values: Mapping[str, Value], where: str = "") -> tuple[Columns, Columns]:
        """The values of the context, and those of the steps."""
        context: Columns = {}
        steps: Columns = {}
        for name, value in values.items():
            if name not in self.context and name not in self.steps:
                known = [*self.context, *self.steps]
                raise SchemaError(f"unknown field {name!r}", where, name_known(name, known))
            (context if name in self.context else steps)[name] = value
        return context, steps

    def _count(self, flat: Mapping[str, Value]) -> int | None:
        """How many rows the columns of the steps have, where the context has none."""
        name, layout = next(iter(self._steps.layouts.items()), (None, None))
        return rows_in(flat[name], name, f"list[{layout.field}]") if name and layout else None


def _step_column(layout: Layout, decoded: tuple[Value, Array, Array | None]) -> Ragged:
    """The column of a step field from what the core decoded: the column of all steps, cut into examples."""
    values, splits, present = decoded
    steps = layout.batch({layout.key: values})
    if isinstance(steps, np.ma.MaskedArray) and not np.ma.is_masked(steps):
        steps = steps.data
    return Ragged.unchecked(steps, splits, None, None if present is None or present.all() else present)


def _step_parts(layout: Layout, column: Value, rows: int) -> StepParts:
    """A step field as the core takes it: the parts of all steps, where each example's begin and end, and present."""
    kind = f"list[{layout.field}]"
    found = rows_in(column, layout.name, kind)
    if found != rows:
        raise SchemaError(f"expected {rows} rows, as other columns have, got {found}", layout.name)
    if isinstance(column, Ragged) and column.shapes is None:
        values, splits, present = column.values, column.row_splits, column.present
        return layout.parts(values, len(values))[0], np.ascontiguousarray(splits), present
    steps: list[Value] = []
    counts = np.zeros(rows + 1, np.int64)
    there = np.ones(rows, bool)
    for row, value in enumerate(column):
        if value is None and not layout.field.optional:
            raise SchemaError(f"expected {kind}, got nothing", f"[{row}].{layout.name}")
        if value is not None and (isinstance(value, (str, bytes)) or not hasattr(value, "__len__")):
            raise SchemaError(f"expected {kind}, got {type(value).__name__}", f"[{row}].{layout.name}")
        there[row] = value is not None
        for step, item in enumerate(value if value is not None else ()):
            steps.append(layout.field.coerce(item, f"[{row}].{layout.name}[{step}]"))
        counts[row + 1] = len(steps)
    return layout.gather(steps)[0], counts, None if there.all() else there
