"""Hypothesis strategies: any schema that records can hold, and examples of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

import penstock as ps
from penstock.schema.coercion import DTYPES, FLOATS, TEXTS

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=6)


@st.composite
def fields(draw: st.DrawFn, *, simple: bool = False) -> ps.Field:
    """A field of any type that records can hold; a simple one is what tf.io.parse_example knows as one feature."""
    dtype = draw(st.sampled_from([dtype for dtype in DTYPES if not simple or dtype != "bfloat16"]))
    levels = draw(st.sampled_from([0, 0, 0, 1] if simple else [0, 0, 0, 1, 2, 3]))
    sizes = st.integers(1, 3) if levels else st.sampled_from([None, 1, 2, 3])
    shape = tuple(draw(st.lists(sizes, max_size=3)))
    if (dtype in TEXTS or simple) and shape.count(None) > 1:
        shape = tuple(2 if size is None and place else size for place, size in enumerate(shape))
    encodings = ["bytes", "zlib"] if dtype == "bfloat16" or shape.count(None) > 1 else ["none", "bytes", "zlib"]
    plain_field = ps.Field(
        dtype=dtype,
        shape=shape,
        levels=levels,
        encoding="none" if dtype in TEXTS or simple else draw(st.sampled_from(encodings)),
        optional=not simple and draw(st.booleans()),
        kind="tensor",
    )
    if levels or simple or draw(st.integers(0, 3)):
        return plain_field
    return ps.Field(
        dtype=dtype,
        shape=shape,
        encoding=plain_field.encoding,
        default=draw(values_of(plain_field)),
    )


@st.composite
def arrays_of(draw: st.DrawFn, field: ps.Field) -> Any:
    """One value of a field, its lists aside: an array, or nested lists of strings."""
    shape = [draw(st.integers(0, 3)) if size is None else size for size in field.shape]
    count = math.prod(shape)
    if field.dtype in TEXTS:
        items = st.binary(max_size=4) if field.dtype == "bytes" else st.text(max_size=4)
        strings = draw(st.lists(items, min_size=count, max_size=count))
        nested = np.array([*strings, None], dtype=object)[:-1].reshape(shape)
        return nested.tolist() if 0 not in shape else nested
    dtype = field.numpy_dtype
    assert dtype is not None
    if field.dtype in FLOATS:
        width = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}[field.dtype]
        # A float_list holds float32: float64 is stored in it where that loses nothing.
        elements: Any = st.floats(width=32 if width == 64 and field.encoding == "none" else width)
    elif field.dtype == "bool":
        elements = st.booleans()
    else:
        limits = np.iinfo(dtype)
        elements = st.integers(int(limits.min), int(limits.max))
    numbers = draw(st.lists(elements, min_size=count, max_size=count))
    with np.errstate(over="ignore"):
        return np.array(numbers, dtype=np.float64 if field.dtype == "bfloat16" else dtype).astype(dtype).reshape(shape)


def values_of(field: ps.Field) -> st.SearchStrategy[Any]:
    """A value of a field: lists of arrays as deep as it has levels."""
    values: st.SearchStrategy[Any] = arrays_of(field)
    for _ in range(field.levels):
        values = st.lists(values, max_size=3)
    return values


@st.composite
def schemas(draw: st.DrawFn) -> ps.Schema:
    """A schema of some fields, flat or with a dict and a sequence in it."""
    nodes: dict[str, Any] = draw(st.dictionaries(NAMES, fields(), min_size=1, max_size=3))
    if draw(st.booleans()):
        nodes["dict"] = ps.Schema(draw(st.dictionaries(NAMES, fields(), min_size=1, max_size=2)))
    if draw(st.booleans()):
        inner = fields().filter(lambda f: None not in f.shape and f.levels < 2 and not f.optional)
        nodes["sequence"] = ps.Schema(draw(st.dictionaries(NAMES, inner, min_size=1, max_size=2)), sequence=True)
    return ps.Schema(nodes)


def examples_of(schema: ps.Schema) -> st.SearchStrategy[dict[str, Any]]:
    """Examples of a schema; what is optional is there or None."""
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for name, node in schema.items():
        if isinstance(node, ps.Schema):
            parts[name] = st.lists(examples_of(node), max_size=3) if node.sequence else examples_of(node)
        else:
            parts[name] = st.none() | values_of(node) if node.optional else values_of(node)
    return st.fixed_dictionaries(parts)


@st.composite
def schemas_with_examples(draw: st.DrawFn) -> tuple[ps.Schema, list[dict[str, Any]]]:
    schema = draw(schemas())
    return schema, draw(st.lists(examples_of(schema), min_size=1, max_size=3))
