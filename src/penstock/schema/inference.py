"""Types found in values: `infer` finds the schema of examples, `widen` joins two schemas.

Types are joined upwards, and only where nothing is lost. Each dimension goes from a size to unknown to a list:

    int64[3], int64[5]             -> int64[?]             bool, int64       -> int64
    int64[2,2], [[1], [2, 3]]      -> list[list[int64]]    int8, uint8       -> int16
    present, missing               -> optional             an int, a float   -> float64

A join depends neither on the order of the examples nor on how they are grouped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from ..errors import SchemaError
from .coercion import DTYPES, MAX_DEPTH, TEXTS, common_dtype, is_picture, write_dimensions
from .columns import Array, Value
from .field import Encoding, Field, Kind, image_type
from .schema import Schema

_LIST = -1  # a dimension that is a list: its rows may differ in length
_SHORT = "short"  # the encoding of a Python float, which has no width: it may be rounded to float32
_ENCODINGS = ("none", _SHORT, "auto", "bytes", "zlib")  # from the plainest that was asked for; "none" rounds a float64


class _Leaf(NamedTuple):
    """The type of a value, while it is still growing."""

    dtype: str  # "" for an empty list: any dtype, any dimensions behind its own
    dimensions: tuple[int | None, ...] = ()
    encoding: str = "auto"
    optional: bool = False
    default: Value = None
    classes: tuple[str, ...] | None = None
    kind: Kind = "tensor"
    decoded: str | None = None

    def __str__(self) -> str:
        if not self.dtype:
            return "an empty list"
        levels = self.dimensions.count(_LIST)
        return "list[" * levels + self.dtype + write_dimensions(self.dimensions[levels:]) + "]" * levels


class _Dict(NamedTuple):
    """The type of a dict, or of a list of dicts."""

    nodes: dict[str, _Node]
    sequence: bool = False

    def __str__(self) -> str:
        return "a list of dicts" if self.sequence else "a dict"


_Node: TypeAlias = "_Leaf | _Dict | None"  # None: no value seen yet
_EMPTY = _Leaf("", (0,))
_PYTHON = {
    bool: _Leaf("bool"),
    int: _Leaf("int64"),
    float: _Leaf("float64", (), _SHORT),
    str: _Leaf("str", kind="text"),
}


def infer(
    examples: Iterable[Mapping[str, Value]], *, schema: Mapping[str, Value] | None = None, short_floats: bool = False
) -> Schema:
    """The narrowest schema that holds all of the examples. Fields of `schema` are taken as they are, and checked.

    A Python int is int64, a Python float float64; arrays keep their dtype. Lists of numbers are arrays while they
    are even, lists of strings are lists. Bytes that start as an image file does, and images of Pillow, are images.

    short_floats  a Python float is float32; NumPy's floats keep their dtype
    """
    declared = schema if isinstance(schema, Schema) else Schema(schema or {})
    nodes: dict[str, _Node] = {}
    index = -1
    for index, example in enumerate(examples):
        where = f"examples[{index}]"
        if not isinstance(example, Mapping):
            raise SchemaError(f"expected a dict, got {type(example).__name__}", where)
        declared.check({name: example.get(name) for name in declared}, where)
        seen = {name: None if name in declared else _look(v, f"{where}.{name}") for name, v in example.items()}
        nodes = _join_nodes(nodes, seen, f"{where}.") if index else seen
    if index < 0:
        raise SchemaError("expected at least one example, got none")
    names = [*nodes, *(name for name in declared if name not in nodes)]
    settled = {name: _settled(nodes[name], name, short=short_floats) for name in names if name not in declared}
    return Schema({name: declared[name] if name in declared else settled[name] for name in names})


def widen(a: Schema, b: Schema, *, short_floats: bool = False) -> Schema:
    """The narrowest schema that holds what either holds; a SchemaError names the field that has no such type."""
    if a.sequence != b.sequence:
        raise SchemaError(f"no type holds both {_node_of(a)} and {_node_of(b)}")
    nodes = _join_nodes(_node_of(a).nodes, _node_of(b).nodes, "")
    settled = {name: _settled(node, name, a.sequence, short=short_floats) for name, node in nodes.items()}
    return Schema(settled, sequence=a.sequence)


def cover(
    schema: Schema,
    example: Mapping[str, Value],
    where: str,
    *,
    declared: Mapping[str, Value] | None = None,
    short_floats: bool = False,
) -> Schema:
    """The schema, widened where it must be to hold an example too. Fields of `declared` are only checked."""
    fixed = declared if isinstance(declared, Schema) else Schema(declared or {})
    fixed.check({name: example.get(name) for name in fixed}, where)
    nodes = _node_of(schema).nodes
    seen = {name: _look(value, f"{where}.{name}") for name, value in example.items() if name not in fixed}
    telling = {name: node for name, node in seen.items() if name in nodes or (node is not None and node != _EMPTY)}
    joined = _join_nodes({name: node for name, node in nodes.items() if name not in fixed}, telling, f"{where}.")
    settled = {name: _settled(node, name, short=short_floats) for name, node in joined.items() if name not in fixed}
    return Schema({name: fixed[name] if name in fixed else settled[name] for name in {**nodes, **joined}})


# Values to types
def _look(value: object, where: str, depth: int = 0) -> _Node:
    known = _PYTHON.get(type(value))
    if known is not None and (type(value) is not int or -(2**63) <= value < 2**63):
        return known
    if value is None or value is np.ma.masked:
        return None
    if depth > MAX_DEPTH:
        raise SchemaError(f"expected at most {MAX_DEPTH} lists or dicts within each other, got more", where)
    if isinstance(value, Mapping):
        return _Dict({name: _look(item, f"{where}.{name}", depth + 1) for name, item in value.items()})
    if isinstance(value, (list, tuple)):
        return _look_at_list(value, where, depth)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _Leaf("bytes", kind="tensor" if image_type(bytes(value[:16]), len(value)) is None else "image")
    if is_picture(value):
        return _Leaf("bytes", kind="image")
    if hasattr(value, "__array__"):
        return _look_at_array(np.asarray(value), where, depth)
    if isinstance(value, int):
        if -(2**63) <= value < 2**64:
            return _Leaf("int64" if value < 2**63 else "uint64")
        raise SchemaError(f"expected an int of 64 bits, got {value.bit_length()} bits", where, "Store it as a str")
    for python_type, leaf in _PYTHON.items():
        if isinstance(value, python_type):
            return leaf
    raise SchemaError(
        f"expected a number, str, bytes, array, list or dict, got {type(value).__name__}", where, "Convert it first"
    )


def _look_at_array(array: Array, where: str, depth: int) -> _Node:
    if array.dtype.kind == "O":
        return _look(array.tolist(), where, depth + 1)
    dtype = {"U": "str", "S": "bytes"}.get(array.dtype.kind, array.dtype.name)
    if dtype not in DTYPES:
        hint = 'Store times as integers: value.astype("int64")' if array.dtype.kind in "mM" else "Cast it first"
        raise SchemaError(f"expected an array of {', '.join(DTYPES)}, got {array.dtype.name}", where, hint)
    return _Leaf(dtype, array.shape)


def _look_at_list(items: list[Value] | tuple[Value, ...], where: str, depth: int) -> _Node:
    if not items:
        return _EMPTY
    looks: list[_Node]
    kinds = set(map(type, items))
    if kinds <= {bool, int, float} and min(items) >= -(2**63) and max(items) < 2**63:
        looks = [_PYTHON[kind] for kind in kinds]
    else:
        looks = [_look(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(items)]
        if None in looks:
            raise SchemaError("expected a value, got None", f"{where}[{looks.index(None)}]", "Leave it out of the list")
    element = reduce(lambda a, b: _join(a, b, where), looks)
    if isinstance(element, _Dict):
        return _look_at_dicts(element, where)
    assert element is not None  # a list holds no None
    dimensions = tuple(_LIST if size is None else size for size in element.dimensions)
    first = _LIST if element.dtype in TEXTS else len(items)
    return element._replace(dimensions=_closed(element.dtype, (first, *dimensions)))


def _look_at_dicts(element: _Dict, where: str) -> _Dict:
    if element.sequence:
        raise SchemaError("expected a list of dicts, got a list of such lists", where, "Put the inner lists in dicts")
    missing = next(_optional_names(element), None)
    if missing is not None:
        hint = "Give it a value in every dict of the list, or in none"
        raise SchemaError("expected a value in every dict of a list, got some without", f"{where}.{missing}", hint)
    return element._replace(sequence=True)


def _optional_names(node: _Dict) -> Iterator[str]:
    for name, child in node.nodes.items():
        if isinstance(child, _Dict):
            yield from (f"{name}.{below}" for below in _optional_names(child))
        elif child is None or child.optional:
            yield name


# Joins
def _join_nodes(a: dict[str, _Node], b: dict[str, _Node], where: str) -> dict[str, _Node]:
    joined = {name: _join(node, b.get(name), where + name) for name, node in a.items()}
    joined.update((name, _as_optional(node)) for name, node in b.items() if name not in a)
    return joined


def _join(a: _Node, b: _Node, where: str) -> _Node:
    if a is b:
        return a
    if a is None or b is None:
        return _as_optional(b if a is None else a)
    if isinstance(a, _Leaf) and isinstance(b, _Leaf):
        return a if a == b else _join_leaves(a, b, where)
    if isinstance(a, _Dict) and isinstance(b, _Dict) and a.sequence == b.sequence:
        return _Dict(_join_nodes(a.nodes, b.nodes, f"{where}."), a.sequence)
    dicts, leaf = (a, b) if isinstance(a, _Dict) else (b, a)
    if isinstance(dicts, _Dict) and dicts.sequence and isinstance(leaf, _Leaf) and leaf[:2] == _EMPTY[:2]:
        return _as_optional(dicts) if leaf.optional else dicts
    raise _apart(a, b, where)


def _join_leaves(a: _Leaf, b: _Leaf, where: str) -> _Leaf:
    if not a.dtype and (b.dtype or len(b.dimensions) > len(a.dimensions)):
        a, b = b, a  # if one is an empty list, it is b
    dtype = common_dtype(a.dtype, b.dtype) if b.dtype else a.dtype
    behind = () if b.dtype else a.dimensions[len(b.dimensions) :]
    if dtype is None or len(a.dimensions) != len(b.dimensions + behind):
        raise _apart(a, b, where)
    if a.classes != b.classes:
        raise SchemaError(f"no field has both the classes {a.classes} and {b.classes}", where, "Use one list of them")
    if None not in (a.default, b.default) and a.default != b.default and repr(a.default) != repr(b.default):
        raise SchemaError(f"no field has both the defaults {a.default!r} and {b.default!r}", where)
    return _Leaf(
        dtype,
        _closed(dtype, tuple(map(_join_sizes, a.dimensions, b.dimensions + behind))),
        _join_encodings(a, b, dtype),
        a.optional or b.optional,
        b.default if a.default is None else a.default,
        a.classes,
        a.kind if a.kind == b.kind or not b.dtype else "tensor",
        a.decoded if (a.kind, a.decoded) == (b.kind, b.decoded) or not b.dtype else None,
    )


def _join_encodings(a: _Leaf, b: _Leaf, dtype: str) -> str:
    """The plainest that holds both. Floats stay short until a float64 of NumPy joins them."""
    encodings = {leaf.encoding for leaf in (a, b) if leaf.encoding != "auto" or leaf.dtype == dtype == "float64"}
    if dtype == "float64" and encodings <= {_SHORT}:
        return _SHORT
    return max(a.encoding, b.encoding, key=_ENCODINGS.index)


def _join_sizes(a: int | None, b: int | None) -> int | None:
    return a if a == b else _LIST if _LIST in (a, b) else None


def _closed(dtype: str, dimensions: tuple[int | None, ...], inside: bool = False) -> tuple[int | None, ...]:
    """Lists come first, and inside of a list nothing but a list has an unknown size."""
    if inside or _LIST in dimensions or (dtype in TEXTS and dimensions.count(None) > 1):
        dimensions = tuple(_LIST if size is None else size for size in dimensions)
    levels = max((position + 1 for position, size in enumerate(dimensions) if size == _LIST), default=0)
    return (_LIST,) * levels + dimensions[levels:]


def _as_optional(node: _Node) -> _Node:
    if isinstance(node, _Dict):
        return node._replace(nodes={name: _as_optional(child) for name, child in node.nodes.items()})
    return node if node is None or node.optional else node._replace(optional=True)


def _apart(a: _Leaf | _Dict, b: _Leaf | _Dict, where: str) -> SchemaError:
    return SchemaError(f"no type holds both {a} and {b}", where, "Convert one of them, or store them in two fields")


# Types to fields, and back
def _settled(node: _Node, name: str, inside: bool = False, *, short: bool = False) -> Field | Schema:
    """The field of a type. `inside` a sequence, dimensions are lists; `short` floats are float32."""
    if isinstance(node, _Dict):
        below = {child: _settled(n, child, inside or node.sequence, short=short) for child, n in node.nodes.items()}
        return Schema(below, sequence=node.sequence)
    if node is None or not node.dtype:
        got = "None" if node is None else "only empty lists"
        raise SchemaError(f"expected a value in at least one example, got {got}", name, "Declare it: schema={...}")
    dimensions = _closed(node.dtype, node.dimensions, inside)
    levels = dimensions.count(_LIST)
    shape = dimensions[levels:]
    plain = node.encoding == _SHORT or (node.encoding == "none" and shape.count(None) > 1)
    return Field(
        name,
        "float32" if short and node.encoding == _SHORT and node.dtype == "float64" else node.dtype,
        shape,
        encoding="auto" if plain else cast("Encoding", node.encoding),
        optional=node.optional,
        default=node.default,
        classes=node.classes,
        kind=node.kind,
        levels=levels,
        decoded=node.decoded,
    )


def _node_of(schema: Schema) -> _Dict:
    nodes: dict[str, _Node] = {}
    for name, node in schema.items():
        nodes[name] = _node_of(node) if isinstance(node, Schema) else _leaf_of(node)
    return _Dict(nodes, schema.sequence)


def _leaf_of(field: Field) -> _Leaf:
    plain = Field(dtype=field.dtype, shape=field.shape, levels=field.levels).encoding
    return _Leaf(
        field.dtype,
        (_LIST,) * field.levels + field.shape,
        "auto" if field.encoding == plain else field.encoding,
        field.optional,
        field.default,
        field.classes,
        field.kind,
        field.decoded,
    )
