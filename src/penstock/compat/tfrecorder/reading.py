"""Records as TFRecorder gives them: tuples of tensors, arrays in the shape that they had."""

from __future__ import annotations

from typing import Any

from ...errors import NotFoundError, SchemaError
from ...records.schema_file import read_schema
from ...schema import Schema
from .example import SHAPE, Example, stored_schema


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


def parse(record: Any, schema: Schema) -> tuple[Any, ...]:
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
