"""Examples as TFRecorder has them: classes whose properties say what is stored, and as what."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...errors import SchemaError
from ...field import Field
from ...records.codec import Codec
from ...schema import Schema
from .options import given_to

SomeExample = TypeVar("SomeExample", bound="Example")

# By the numbers of its types. Arrays are bytes; their shape, where it is not that of a vector, stands beside them.
FIELDS = {
    8: Field(dtype="bool"),
    5: Field(dtype="int32"),
    3: Field(dtype="int64"),
    2: Field(dtype="float32"),
    9: Field(dtype="str"),
    12: Field(dtype="float32", shape=(None,), encoding="bytes"),
    121: Field(dtype="int32", shape=(None,), encoding="bytes"),
}
SHAPE = Field(dtype="int64", shape=(None,), optional=True)


class IgnoreExampleException(Exception):  # noqa: N818  # the name that TFRecorder gave it
    """Raise it in `load` or `split` to leave an example out."""


class Recorded(property):
    """A property that is stored. Each dtype is a class of its own, so that `setter` and its like keep it."""

    dtype: ClassVar[int]


def tfrecordable(dtype: int) -> type[Recorded]:
    """Decorates what is stored, as `property` does: `@tfrecordable(dtype=Example.Field.TYPE_INT32)`."""
    if dtype not in FIELDS:
        raise TypeError(f"expected one of Example.Field.TYPE_..., got {dtype!r} - at tfrecordable")
    return type("Recorded", (Recorded,), {"dtype": dtype})


def schema_of(types: Mapping[str, int]) -> Schema:
    """What records hold, by the numbers of its types: arrays are flat."""
    return Schema({name: FIELDS[dtype] for name, dtype in types.items()})


@cache
def codec_of(schema: Schema) -> Codec:
    """What makes records: of each array, the shape too."""
    shapes = {f"{field.name}/shape": SHAPE for field in schema.leaves() if field.shape}
    return Codec(Schema({**schema, **shapes}))


class Example:
    """One example: subclass it, and decorate with `tfrecordable` what is stored. It is light until `load`."""

    class Field:
        """What a value is stored as."""

        TYPE_BOOL = 8
        TYPE_INT32 = 5
        TYPE_INT64 = 3
        TYPE_FLOAT = 2
        TYPE_DOUBLE = 2  # tf.Example has no other floats
        TYPE_STRING = 9
        TYPE_ARRAY_FLOAT32 = 12
        TYPE_ARRAY_INT32 = 121

    def load(self, **options: Any) -> None:
        """Set what is costly: read files here."""

    def split(self, **options: Any) -> Iterable[Example]:
        """The examples that this one becomes."""
        return [self]

    def release(self) -> None:
        """Let go of what is stored."""
        for name in self.get_tfrecordable_attribute_names():
            if getattr(type(self), name).fset is not None:
                setattr(self, name, None)

    def to_csv_row(self) -> list[Any]:
        """The cells of a row that is enough to make this example again."""
        raise NotImplementedError(f"{type(self).__name__} has no to_csv_row(), and its examples are to be logged")

    @classmethod
    def from_csv_row(cls: type[SomeExample], row: list[str], **options: Any) -> SomeExample:
        """The example of a row: a list of texts."""
        raise NotImplementedError(f"{cls.__name__} has no from_csv_row(row), and its examples are in a CSV file")

    @staticmethod
    def to_csv_file(filepath: str | os.PathLike[str], examples: Iterable[Example]) -> None:
        """Append the examples' rows to a file."""
        with open(filepath, "a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(example.to_csv_row() for example in examples)

    @classmethod
    def from_csv_file(cls: type[SomeExample], filepath: str | os.PathLike[str], **options: Any) -> list[SomeExample]:
        """An example for each row of a file without a header; empty lines are left out."""
        given = given_to(cls.from_csv_row, options)
        with open(filepath, newline="", encoding="utf-8-sig") as file:
            return [cls.from_csv_row(row, **given) for row in csv.reader(file) if row]

    @classmethod
    def get_tfrecordable_ordered_dict(cls) -> dict[str, int]:
        """The dtypes of what is stored, in the order of declaration; a parent's come first, and stay its own."""
        declared = (item for parent in reversed(cls.__mro__) for item in vars(parent).items())
        return {name: value.dtype for name, value in declared if isinstance(value, Recorded)}

    @classmethod
    def get_tfrecordable_attribute_names(cls) -> list[str]:
        """The names of what is stored."""
        return list(cls.get_tfrecordable_ordered_dict())

    @classmethod
    def schema(cls) -> Schema:
        """What the records hold, for `ps.load`: arrays are flat."""
        return schema_of(cls.get_tfrecordable_ordered_dict())

    def serialize_to_string(self) -> bytes:
        """The record: a serialized tf.Example."""
        kind, schema = type(self).__name__, self.schema()
        if not schema:
            raise SchemaError("expected something to store, got nothing", kind, "Decorate it with @tfrecordable")
        values = {name: getattr(self, name) for name in schema}
        for field in schema.leaves():
            if field.shape:
                array = _checked(values[field.name], field, f"{kind}.{field.name}")
                values[field.name] = array.reshape(-1)
                values[f"{field.name}/shape"] = None if array.ndim == 1 else np.array(array.shape, np.int64)
        try:
            return bytes(codec_of(schema).encode_examples([values])[0])
        except SchemaError as error:
            raise TypeError(str(error).replace("[0].", f"{kind}.", 1)) from None

    def get_byte_size(self) -> int:
        """The size of the record."""
        return len(self.serialize_to_string())

    @classmethod
    def parse_from_string(cls, serialized_examples: Any) -> tuple[Any, ...]:
        """The tensors of a record, in the order of declaration."""
        from .dataset import parse

        return parse(serialized_examples, cls.schema())


def _checked(value: Any, field: Field, where: str) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray) and value.dtype == field.dtype:
        return value
    got, hint = type(value).__name__, "Set it in load()"
    if isinstance(value, np.ndarray):
        got, hint = f"an array of {value.dtype}", f"Cast it in load(): array.astype(np.{field.dtype})"
    raise TypeError(f"expected an array of {field.dtype}, got {got} - at {where}. {hint}")
