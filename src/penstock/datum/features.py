"""Examples as Datum stores them: integers, floats and strings, lists of any length flat, their shape beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ..errors import SchemaError, name_known
from ..field import Field
from ..inference import infer
from ..schema import Schema
from ..sources.listed import Mapped

_NAMES = {"label": "labels", "is_difficult": "labels_difficult"}  # of what an object has; other names stay
_BOX = ("ymin", "xmin", "ymax", "xmax")


def as_features(
    sources: Mapping[str, Any], sparse: Sequence[str] = (), *, numbered: bool = False
) -> tuple[dict[str, Mapped], Schema]:
    """The sources of some splits in Datum's features, and the schema that these have in common.

    sparse    features that are lists of any length; those that differ in length are found out without it
    numbered  whether keys are the numbers of examples
    """
    schemas = [_known(source) for source in sources.values()]
    functions = [Features(schema) for schema in schemas]
    schema = _stored(reduce(Schema.widen, (function.schema for function in functions)), sparse)
    found = {}
    for (split, source), function in zip(sources.items(), functions, strict=True):
        function.schema = schema
        found[split] = Mapped(source, function, schema, numbered=numbered)
    return found, schema


def _known(source: Any) -> Schema:
    """What all examples of a source hold: known, or looked at."""
    known: Schema | None = source.schema
    return infer(source[number] for number in range(len(source))) if known is None else known


class Features:
    """Makes Datum's features of examples. Objects become a list for each of their fields, and a mask is the label."""

    def __init__(self, schema: Schema) -> None:
        mask = schema.get("mask")
        self.names = {"mask": "label"} if isinstance(mask, Field) and mask.kind == "image" else {}
        fields: dict[str, Any] = {}
        for name, node in schema.items():
            if name == "objects" and isinstance(node, Schema) and "bbox" in node:
                fields |= dict.fromkeys((*_BOX, "area"), Field(dtype="float32", shape=(None,)))
                fields |= {_NAMES.get(inner.name, inner.name): _listed(inner) for inner in _others(node)}
            else:
                fields[self.names.get(name, name)] = node
        self.objects = "xmin" in fields and "objects" in schema
        self.schema = Schema(fields)

    def __call__(self, example: Mapping[str, Any]) -> dict[str, Any]:
        found = {self.names.get(name, name): value for name, value in example.items()}
        if self.objects:
            found |= _lists(found.pop("objects"))
        for field in self.schema.leaves():
            if field.dtype in ("float32", "int64") and field.name in found:
                found[field.name] = np.asarray(found[field.name], field.dtype)
            beside = f"{field.name}_shape"
            if beside in self.schema and beside not in found:
                found[beside] = np.array(np.shape(found[field.name]), np.int64)
                found[field.name] = np.reshape(found[field.name], -1)
        return found


def _others(objects: Schema) -> list[Field]:
    return [node for name, node in objects.items() if name != "bbox" and isinstance(node, Field)]


def _listed(field: Field) -> Field:
    return Field(dtype=field.dtype, shape=(None,))


def _lists(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Objects as Datum has them: boxes by their sides, classes from 1, words in small letters."""
    lists: dict[str, Any] = dict(zip(_BOX, objects["bbox"].T, strict=True))
    lists["area"] = (lists["xmax"] - lists["xmin"]) * (lists["ymax"] - lists["ymin"])
    for name, values in objects.items():
        if name == "label":
            lists["labels"] = [label + 1 for label in values]
        elif name not in ("bbox", "area"):  # COCO's areas are those of outlines, in pixels
            lists[_NAMES.get(name, name)] = [value.lower() if isinstance(value, str) else value for value in values]
    return lists


def _stored(schema: Schema, sparse: Sequence[str]) -> Schema:
    """The schema in Datum's types; of features with several dimensions of any size the shape stands beside them."""
    for name in sparse:
        if name not in schema:
            raise SchemaError(f"no feature {name!r}", "sparse_features", name_known(name, schema, "features"))
    fields: dict[str, Field] = {}
    for field in schema.leaves():
        name, rank = field.name, field.levels + len(field.shape)
        if field.optional:
            raise SchemaError("expected a value in every example, got none in some", name)
        dtype = "str" if field.dtype in ("str", "bytes") else "float32" if field.dtype.startswith("f") else "int64"
        if field.kind == "image":
            fields[name] = field
        elif field.levels or None in field.shape or name in sparse:
            fields[name] = Field(dtype=dtype, shape=(None,))
            if rank > 1:
                fields[f"{name}_shape"] = Field(dtype="int64", shape=(rank,))
        else:
            fields[name] = Field(dtype=dtype, shape=field.shape)
    return Schema(fields)
