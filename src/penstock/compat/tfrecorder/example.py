"""Examples as TFRecorder has them: classes whose properties say what is stored, and as what."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from ...dataset.plain_files import read_schema
from ...errors import NotFoundError, SchemaError
from ...records.codec import Codec
from ...schema import field
from ...schema.columns import ExampleDict
from ...schema.example_class import IgnoreExample
from ...schema.schema import Schema
from ...sources.example_classes import deal
from ...sources.files import read_text
from ...storage.files import checked_path, local_path

METHODS = ("from_csv_row", "load", "split")  # that get options
SHAPE = "/shape"  # after the name of an array that is no vector: its shape, which stands beside it


class Examples(list[Any]):
    """Examples, and where each comes from, whatever order they are brought into."""

    def __init__(self, examples: Iterable[Any] = (), origins: Mapping[int, tuple[Any, str]] | None = None) -> None:
        super().__init__(examples)
        self._origins = dict(origins or {})  # by identity, which holds as long as the example is kept

    def add(self, example: object, origin: str) -> None:
        """Append an example."""
        self.append(example)
        self._origins[id(example)] = example, origin

    def origin(self, index: int) -> str:
        """Where an example comes from: the line and the row of a CSV file, or its number in a list."""
        return self._origins.get(id(self[index]), (None, f"example {index}"))[1]

    def having(self, examples: Iterable[Any]) -> Examples:
        """Some of the examples, in another order."""
        return Examples(examples, self._origins)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return self.having(found) if isinstance(index, slice) else found

    @classmethod
    def of(cls, examples: Iterable[Any]) -> Examples:
        """Some examples; those of a plain list are numbered by it."""
        if isinstance(examples, cls):
            return examples
        listed = list(examples)
        return cls(listed, {id(each): (each, f"example {number}") for number, each in enumerate(listed)})


class Recorded(property):
    """A property that is stored. Each type is a class of its own, so that `setter` and its like keep it."""

    dtype: ClassVar[field.Field]


def tfrecordable(dtype: field.Field) -> type[Recorded]:
    """Decorates what is stored, as `property` does: `@tfrecordable(dtype=Example.Field.TYPE_INT32)`."""
    if not isinstance(dtype, field.Field):
        raise TypeError(f"expected one of Example.Field.TYPE_..., got {dtype!r} - at tfrecordable")
    return type("Recorded", (Recorded,), {"dtype": dtype})


class Example:
    """One example: subclass it, and decorate with `tfrecordable` what is stored. It is light until `load`."""

    class Field:
        """What a value is stored as. What a record lacks is 0, False or empty; tf.Example has no doubles."""

        TYPE_BOOL = field.Field(dtype="bool", default=False)
        TYPE_INT32 = field.Field(dtype="int32", default=0)
        TYPE_INT64 = field.Field(dtype="int64", default=0)
        TYPE_FLOAT = TYPE_DOUBLE = field.Field(dtype="float32", default=0)
        TYPE_STRING = field.Field(dtype="str", default="")
        TYPE_ARRAY_FLOAT32 = field.Field(dtype="float32", shape=(None,), encoding="bytes", default=[])
        TYPE_ARRAY_INT32 = field.Field(dtype="int32", shape=(None,), encoding="bytes", default=[])

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
    def from_csv_row(cls, row: list[str], **options: Any) -> Any:
        """The example of a row: a list of texts."""
        raise NotImplementedError(f"{cls.__name__} has no from_csv_row(row), and its examples are in a CSV file")

    @staticmethod
    def to_csv_file(filepath: Any, examples: Iterable[Example]) -> None:
        """Append the examples' rows to a file."""
        with local_path(filepath, "a file that rows are added to").open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(example.to_csv_row() for example in examples)

    @classmethod
    def from_csv_file(cls, filepath: Any, **options: Any) -> list[Any]:
        """An example for each row of a file without a header; empty lines are left out."""
        given = deal([cls], options, METHODS, base=Example)[cls]["from_csv_row"]
        examples = Examples()
        with io.StringIO(read_text(checked_path(filepath)), newline="") as file:
            for row in filter(None, reader := csv.reader(file)):
                try:
                    examples.add(cls.from_csv_row(row, **given), f"{filepath}, line {reader.line_num}: {row}")
                except IgnoreExample:
                    continue
                except (ValueError, LookupError, TypeError) as error:
                    where = f"{filepath}, line {reader.line_num}"
                    raise SchemaError(f"{type(error).__name__}: {error}", where) from error
        return examples

    @classmethod
    def get_tfrecordable_ordered_dict(cls) -> dict[str, field.Field]:
        """The types of what is stored, in the order of declaration; a parent's come first, and stay its own."""
        declared = (item for parent in reversed(cls.__mro__) for item in vars(parent).items())
        return {name: value.dtype for name, value in declared if isinstance(value, Recorded)}

    @classmethod
    def get_tfrecordable_attribute_names(cls) -> list[str]:
        """The names of what is stored."""
        return list(cls.get_tfrecordable_ordered_dict())

    def serialize_to_string(self) -> bytes:
        """The record: a serialized tf.Example."""
        try:
            return Codec(stored_schema(type(self))).encode_example(stored(self), type(self).__name__)
        except SchemaError as error:
            raise TypeError(str(error)) from None

    def get_byte_size(self) -> int:
        """The size of the record."""
        return len(self.serialize_to_string())

    @classmethod
    def parse_from_string(cls, serialized_examples: object) -> tuple[Any, ...]:
        """The tensors of a record, in the order of declaration."""

        return parse(serialized_examples, stored_schema(cls))


# Functions, and no methods: whatever else an example has, under whatever name, is its own affair.
def stored_schema(kind: type[Example]) -> Schema:
    """What the records of a class hold: arrays are flat; those that are no vectors have a shape beside them."""
    types = kind.get_tfrecordable_ordered_dict()
    if not types:
        hint = "Decorate it with @tfrecordable"
        raise SchemaError("expected something to store, got nothing", kind.__name__, hint)
    shape = field.Field(dtype="int64", shape=(None,), default=[])
    return Schema({**types, **{name + SHAPE: shape for name, dtype in types.items() if dtype.shape}})


def stored(example: Example) -> ExampleDict:
    """What is stored, as plain values: as pandas, argmax and files of NumPy give them, they have 8 bytes."""
    found: ExampleDict = {}
    for name, dtype in example.get_tfrecordable_ordered_dict().items():
        value = getattr(example, name)
        if value is None:
            raise SchemaError("expected a value, got None", f"{type(example).__name__}.{name}", "Set it in load()")
        if dtype.shape and not isinstance(value, (str, bytes)):
            array = np.asarray(value)
            if array.ndim != 1:
                found[name + SHAPE] = np.array(array.shape, np.int64)
            value = array.reshape(-1) if isinstance(value, np.ndarray) else array.reshape(-1).tolist()
        elif isinstance(value, (np.generic, np.ndarray)) and not value.ndim:
            value = value.item()
        if isinstance(value, int) and dtype.dtype == "float32":
            value = float(value)
        if isinstance(value, int) and dtype.dtype == "bool" and value in (0, 1):
            value = bool(value)
        found[name] = value
    return found


def schema_of(paths: list[str], kind: type[Example] | None) -> Schema:
    """What records hold: as the class says, with the dimensions that the schema beside them knows; else all of that."""
    try:
        told = read_schema(paths)
    except SchemaError:  # of several runs, whose arrays have other dimensions, or whose class has grown since
        if kind is None:
            raise
        return stored_schema(kind)
    if kind is not None:
        types = kind.get_tfrecordable_ordered_dict()
        shapes = {name + SHAPE: told[name + SHAPE] for name in types if told and name + SHAPE in told}
        return Schema({**types, **shapes})
    if told is None:
        hint = "Say which class the records are of: generate_dataset(paths, example_class)"
        raise NotFoundError(f"expected a schema beside the records, got none - at {', '.join(paths[:1])}. {hint}")
    return told


def parse(record: object, schema: Schema) -> tuple[Any, ...]:
    """The tensors of a record; arrays whose shapes are told in these, of so many dimensions as the schema knows."""
    from ...frameworks.tensorflow import tf
    from ...frameworks.tensorflow_graph import record_parser

    found = record_parser(schema)(record)
    for beside in [each for each in schema.leaves() if each.name.endswith(SHAPE)]:
        name, shape, rank = beside.name.removesuffix(SHAPE), found.pop(beside.name), beside.shape[0]
        if rank is None:  # a vector has none
            shape = tf.cond(tf.size(shape) > 0, lambda shape=shape: shape, lambda: tf.constant([-1], tf.int64))
        array = tf.reshape(found[name], shape)
        found[name] = array if rank is None else tf.ensure_shape(array, [None] * rank)
    return tuple(found.values())
