"""Examples as TFRecorder has them: classes whose properties say what is stored, and as what."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...errors import SchemaError
from ...field import Field
from ...records.codec import Codec
from ...schema import Schema
from .options import given_to

SomeExample = TypeVar("SomeExample", bound="Example")

TYPES = {8: "bool", 5: "int32", 3: "int64", 2: "float32", 9: "str"}
ARRAYS = {12: "float32", 121: "int32"}


class IgnoreExampleException(Exception):  # noqa: N818  # the name that TFRecorder gave it
    """Raise it in `load` or `split` to leave an example out."""


class Recorded(property):
    """A property that is stored. Each dtype is a class of its own, so that `setter` and its like keep it."""

    dtype: ClassVar[int]


def tfrecordable(dtype: int) -> type[Recorded]:
    """Decorates what is stored, as `property` does: `@tfrecordable(dtype=Example.Field.TYPE_INT32)`."""
    if dtype not in TYPES and dtype not in ARRAYS:
        raise TypeError(f"expected one of Example.Field.TYPE_..., got {dtype!r} - at tfrecordable")
    return type("Recorded", (Recorded,), {"dtype": dtype})


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

    # What is stored

    @classmethod
    def get_tfrecordable_ordered_dict(cls) -> dict[str, int]:
        """The dtypes of what is stored, in the order of declaration; a parent's come first, and stay its own."""
        found: dict[str, int] = {}
        for parent in reversed(cls.__mro__):
            for name, value in vars(parent).items():
                if isinstance(value, Recorded):
                    found[name] = value.dtype
        return found

    @classmethod
    def get_tfrecordable_attribute_names(cls) -> list[str]:
        """The names of what is stored."""
        return list(cls.get_tfrecordable_ordered_dict())

    @classmethod
    def schema(cls) -> Schema:
        """What the records hold, for `ps.load`: arrays are flat."""
        fields = cls.get_tfrecordable_ordered_dict().items()
        plain = {name: Field(dtype=TYPES[dtype]) for name, dtype in fields if dtype in TYPES}
        flat = {name: ARRAYS[dtype] for name, dtype in fields if dtype in ARRAYS}
        arrays = {name: Field(dtype=dtype, shape=(None,), encoding="bytes") for name, dtype in flat.items()}
        return Schema({name: {**plain, **arrays}[name] for name, _ in fields})

    def serialize_to_string(self) -> bytes:
        """The record: a serialized tf.Example."""
        fields = self.get_tfrecordable_ordered_dict()
        if not fields:
            kind = type(self).__name__
            raise SchemaError("expected something to store, got nothing", kind, "Decorate it with @tfrecordable")
        values: dict[str, Any] = {}
        for name, dtype in fields.items():
            value = getattr(self, name)
            if dtype in ARRAYS:
                array = self._checked(name, ARRAYS[dtype], value)
                values[name] = array.tobytes()
                values[f"{name}/shape"] = None if array.ndim == 1 else np.array(array.shape, np.int64)
            else:
                values[name] = value
        try:
            return bytes(_codec(tuple(fields.items())).encode_examples([values])[0])
        except SchemaError as error:
            raise TypeError(str(error).replace("[0].", f"{type(self).__name__}.", 1)) from None

    def array_ranks(self) -> dict[str, int]:
        """How many dimensions its arrays have."""
        fields = self.get_tfrecordable_ordered_dict().items()
        return {name: np.ndim(getattr(self, name)) for name, dtype in fields if dtype in ARRAYS}

    def get_byte_size(self) -> int:
        """The size of the record."""
        return len(self.serialize_to_string())

    def _checked(self, name: str, dtype: str, value: Any) -> np.ndarray[Any, Any]:
        if isinstance(value, np.ndarray) and value.dtype == dtype:
            return value
        got = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        hint = f"Cast it in load(): array.astype(np.{dtype})" if isinstance(value, np.ndarray) else "Set it in load()"
        raise TypeError(f"expected an array of {dtype}, got {got} - at {type(self).__name__}.{name}. {hint}")

    @classmethod
    def parse_from_string(cls, serialized_examples: Any) -> tuple[Any, ...]:
        """The tensors of a record, in the order of declaration."""
        from .dataset import parse

        return parse(serialized_examples, cls.get_tfrecordable_ordered_dict())


@cache
def _codec(fields: tuple[tuple[str, int], ...]) -> Codec:
    """Arrays are bytes, as TFRecorder stores them. Their shape, where it is not that of a vector, stands beside."""
    stored: dict[str, Field] = {}
    for name, dtype in fields:
        stored[name] = Field(dtype=TYPES.get(dtype, "bytes"))
        if dtype in ARRAYS:
            stored[f"{name}/shape"] = Field(dtype="int64", shape=(None,), optional=True)
    return Codec(Schema(stored))
