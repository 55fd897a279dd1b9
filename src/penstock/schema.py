"""What an example holds. A Field is one value, a Schema a dict of them.

Types are written the way messages show them:

    int64          a number                      list[int64]        a list of numbers
    float32[13]    a vector of 13                list[list[str]]    a list of lists of strings
    uint8[?,?,3]   two unknown dimensions        int64[?]?          may be missing
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from .errors import MissingDependencyError, SchemaError, did_you_mean, name_known

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TEXTS = ("bytes", "str")
DTYPES = ("bool", *INTEGERS, *FLOATS, *TEXTS)
ENCODINGS = ("none", "bytes", "zlib")
KINDS = ("tensor", "text", "label", "image", "video", "audio", "box")

MAX_DEPTH = 32  # dicts within dicts, and lists within lists
MAX_RANK = 30  # dimensions of one value: NumPy stops at 32, and a batch adds one
MAX_ELEMENTS = 2**40  # of one value's known dimensions: far more than a record holds

JSON_VERSION = 1

Shape: TypeAlias = "tuple[int | None, ...]"

_KIND_DTYPES = {"text": ("str",), "label": INTEGERS, "image": ("bytes",), "video": ("bytes",), "box": FLOATS}
_NOTATION = re.compile(r"((?:list\[)*)([a-z]+[0-9]*)(?:\[([^\[\]]*)\])?(\]*)(\??)")
_DIMENSION = re.compile(r"\?|0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, eq=False, repr=False)
class Field:
    """One value of an example: its type, and how it is stored.

    shape     None stands for an unknown dimension
    encoding  "none": the values themselves, in the record's list of numbers or strings;
              "bytes", "zlib": one byte string that holds the array in C order, little endian;
              "auto": the plainest of them that loses nothing (it becomes one of the three at once)
    optional  the value may be missing; a reader gets `default` then, or None
    classes   the names of a label's values
    kind      what the value means: "tensor", "text", "label", "image" ...
    levels    how many lists of any length enclose the value
    """

    name: str = ""
    dtype: str = "float32"
    shape: Shape = ()
    _: KW_ONLY
    encoding: str = "auto"
    optional: bool = False
    default: Any = None
    classes: tuple[str, ...] | None = None
    kind: str = "tensor"
    levels: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SchemaError(f"expected a field's name as a str, got {reprlib.repr(self.name)}")
        self._one_of("dtype", DTYPES)
        self._set("shape", _checked_shape(self.shape, self.name))
        self._one_of("encoding", ("auto", *ENCODINGS))
        if not isinstance(self.optional, bool):
            raise SchemaError(f"expected optional to be True or False, got {reprlib.repr(self.optional)}", self.name)
        self._one_of("kind", KINDS)
        if type(self.levels) is not int or not 0 <= self.levels <= MAX_DEPTH:
            raise SchemaError(f"expected 0 to {MAX_DEPTH} levels, got {reprlib.repr(self.levels)}", self.name)
        self._settle_kind()
        self._settle_encoding()
        if self.default is not None:
            self._settle_default()

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)

    def _one_of(self, attribute: str, known: tuple[str, ...]) -> None:
        value = getattr(self, attribute)
        if not isinstance(value, str) or value not in known:
            raise SchemaError(
                f"expected {attribute} to be one of {', '.join(known)}, got {reprlib.repr(value)}",
                self.name,
                did_you_mean(value, known),
            )

    def _settle_kind(self) -> None:
        """Class names make a label, a single string is a text; each kind has its dtypes."""
        if self.classes is not None:
            self._set("classes", _checked_classes(self.classes, self.name))
            if self.kind == "tensor":
                self._set("kind", "label")
            if self.kind not in ("label", "image"):
                raise SchemaError(f"expected class names on a label, got them on kind {self.kind!r}", self.name)
        if self.kind == "tensor" and self.dtype == "str" and not self.shape:
            self._set("kind", "text")
        known = _KIND_DTYPES.get(self.kind, DTYPES)
        if self.dtype not in known:
            raise SchemaError(
                f"expected dtype {', '.join(known)} for kind {self.kind!r}, got {self.dtype}",
                self.name,
                f'Write dtype="{"int64" if self.kind == "label" else known[0]}"',
            )
        if self.kind in ("text", "image") and self.shape:
            raise SchemaError(
                f"expected no shape for kind {self.kind!r}, got {self}", self.name, "Use levels=1 for a list of them"
            )

    def _settle_encoding(self) -> None:
        unknown = self.shape.count(None)
        if unknown and self.levels:
            raise SchemaError(
                f"expected known dimensions inside a list, got {self}",
                self.name,
                "Write one more list, such as list[list[int64]], for rows that differ in length",
            )
        if self.dtype in TEXTS:
            if self.encoding not in ("auto", "none"):
                raise SchemaError(f"expected encoding 'none' for {self}, got {self.encoding!r}", self.name)
            if unknown > 1:
                raise SchemaError(
                    f"expected at most one unknown dimension, got {self}", self.name, "Write list[list[...]] instead"
                )
        exact_only = self.dtype == "bfloat16" or unknown > 1
        if self.encoding == "none" and exact_only:
            raise SchemaError(
                f"{self} cannot be stored with encoding 'none'", self.name, "Use encoding 'bytes' or 'zlib'"
            )
        if self.encoding == "auto":
            self._set("encoding", "bytes" if exact_only or self.dtype == "float64" else "none")

    def _settle_default(self) -> None:
        """A field with a default may be missing. The default is kept as plain Python values."""
        if self.levels:
            raise SchemaError("expected no default on a list", self.name, "A missing one reads as None")
        self._set("optional", True)
        value = self.coerce(self.default, f"the default of {self.name or self}")
        if isinstance(value, np.ndarray):
            value = map_nested(lambda item: item.decode() if self.dtype == "str" else item, value.tolist())
        self._set("default", value.decode() if self.dtype == "str" and isinstance(value, bytes) else value)

    @classmethod
    def parse(cls, text: str, name: str = "", **options: Any) -> Field:
        """The field of a type such as "float32[4,?]"; the inverse of `str(field)`."""
        match = _NOTATION.fullmatch(text.replace(" ", "")) if isinstance(text, str) else None
        if match and len(match[1]) == len("list[") * len(match[4]):
            dimensions = match[3].split(",") if match[3] is not None else []
            if all(_DIMENSION.fullmatch(dimension) for dimension in dimensions):
                shape = tuple(None if dimension == "?" else int(dimension) for dimension in dimensions)
                return cls(name, match[2], shape, levels=len(match[4]), optional=bool(match[5]), **options)
        raise SchemaError(
            f"expected a type such as float32[4,?], list[str] or int64?, got {reprlib.repr(text)}",
            name,
            "An unknown dimension is written ?",
        )

    def __str__(self) -> str:
        return (
            "list[" * self.levels + self.dtype + write_dimensions(self.shape) + "]" * self.levels + "?" * self.optional
        )

    def __repr__(self) -> str:
        return self._written(name=self.name)

    def _written(self, name: str) -> str:
        """The call that makes this field; only what differs from the plain field of its type."""
        plain = Field(self.name, self.dtype, self.shape, levels=self.levels)
        implied = {
            "shape": (),
            "encoding": plain.encoding,
            "optional": self.default is not None,
            "default": None,
            "classes": None,
            "kind": plain.kind if self.classes is None else "label",
            "levels": 0,
        }
        parts = [repr(name)] if name else []
        parts.append(f"dtype={self.dtype!r}")
        parts += [f"{key}={_literal(getattr(self, key))}" for key, v in implied.items() if getattr(self, key) != v]
        return f"Field({', '.join(parts)})"

    def _key(self) -> tuple[Any, ...]:
        """What makes two fields equal. The default goes by its repr, so that nan equals nan."""
        return tuple(repr(self.default) if f.name == "default" else getattr(self, f.name) for f in fields(self))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Field) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def numpy_dtype(self) -> np.dtype[Any] | None:
        """The dtype of its arrays; None for bytes and str."""
        if self.dtype in TEXTS:
            return None
        if self.dtype != "bfloat16":
            return np.dtype(self.dtype)
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            raise MissingDependencyError.needed("ml_dtypes", "bfloat16 fields", extra="bfloat16") from None
        dtype: np.dtype[Any] = np.dtype(bfloat16)
        return dtype

    @property
    def wire(self) -> str:
        """Which list of tf.Example holds it: "int64", "float" or "bytes"."""
        if self.encoding != "none" or self.dtype in TEXTS:
            return "bytes"
        return "float" if self.dtype in FLOATS else "int64"

    @property
    def fixed_count(self) -> int | None:
        """How many elements one value has, lists aside; None where a dimension is unknown."""
        return None if None in self.shape else math.prod(d for d in self.shape if d is not None)

    @property
    def record_keys(self) -> tuple[str, ...]:
        """The keys that hold it in a tf.Example, the values' own key first."""
        if self.levels > 1:
            lengths = (f"{self.name}/ragged_row_lengths_{level}" for level in range(self.levels - 1))
            return (f"{self.name}/ragged_flat_values", *lengths)
        return (f"{self.name}/value", f"{self.name}/shape") if self.shape.count(None) > 1 else (self.name,)

    def coerce(self, value: Any, where: str = "") -> Any:
        """The value in its one canonical form, or a SchemaError: nothing is cast with a loss.

        Numbers become an ndarray of the exact dtype in C order, bytes and str become bytes (arrays of them: an
        object ndarray), the innermost list becomes the array's first dimension, the lists around it stay lists.
        """
        where = where or self.name
        if value is None or value is np.ma.masked:
            if self.optional:
                return None
            raise SchemaError(f"expected {self}, got nothing", where, f'Give it a value, or declare it "{self}?"')
        from .inference import coerce

        return coerce(self, value, self.levels, where)


class Schema(Mapping[str, "Field | Schema"]):
    """What an example holds: names and their fields, in order; a nested dict is a Schema within it.

    Schema({"dense": "float32[13]", "label": Field(dtype="int64", classes=("cat", "dog"))})

    With sequence=True it stands for a list of such dicts (or a dict of lists): all fields below get one more level.
    """

    __slots__ = ("_fields", "_leaves", "_sequence")

    def __init__(self, fields: Mapping[str, str | Field | Mapping[str, Any]], *, sequence: bool = False) -> None:
        if not isinstance(fields, Mapping):
            raise SchemaError(f"expected a dict of fields, got {type(fields).__name__}")
        if not isinstance(sequence, bool):
            raise SchemaError(f"expected sequence to be True or False, got {reprlib.repr(sequence)}")
        _check_depth(fields)
        self._sequence = sequence
        self._fields = {name: _node(name, value) for name, value in fields.items()}
        self._leaves = tuple(self._find_leaves())
        owners: dict[str, str] = {}
        for key, name in ((key, leaf.name) for leaf in self._leaves for key in leaf.record_keys):
            if key in owners:
                got = f"{owners[key]!r} and {name!r}, both stored under {key!r}"
                raise SchemaError(f"expected one field for each key, got {got}", hint="Rename one of them")
            owners[key] = name

    def _find_leaves(self) -> Iterator[Field]:
        extra = int(self._sequence)
        for name, node in self._fields.items():
            if isinstance(node, Field):
                yield replace(node, levels=node.levels + extra) if extra else node
            else:
                for leaf in node._leaves:
                    yield replace(leaf, name=f"{name}/{leaf.name}", levels=leaf.levels + extra)

    def __getitem__(self, name: str) -> Field | Schema:
        try:
            return self._fields[name]
        except KeyError:
            raise KeyError(f"no field {reprlib.repr(name)}. {name_known(name, self._fields)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        """Equal when they hold equal fields, in any order."""
        if not isinstance(other, Schema):
            return NotImplemented
        return self._sequence == other._sequence and self._fields == other._fields

    def __hash__(self) -> int:
        return hash((self._sequence, frozenset(self._fields.items())))

    def __repr__(self) -> str:
        return _written_schema(self, "")

    @property
    def sequence(self) -> bool:
        """Whether it stands for a list of dicts."""
        return self._sequence

    def leaves(self) -> list[Field]:
        """All fields, depth first, with names as in "objects/box" and all levels that enclose them."""
        return list(self._leaves)

    def select(self, *names: str) -> Schema:
        """Only the named fields; "objects" takes all below it, "objects/box" one of them."""
        known = [leaf.name for leaf in self._leaves]
        chosen: set[str] = set()
        for name in names:
            found = [leaf for leaf in known if leaf == name or leaf.startswith(f"{name}/")]
            if not found:
                raise SchemaError(f"no field {reprlib.repr(name)}", hint=name_known(name, known))
            chosen.update(found)
        return _selected(self, chosen, "")

    def flatten(self, example: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """The values by the names of `leaves()`; None where one is missing.

        A sequence is a list of dicts, or a dict of lists.
        """
        return _flatten(self, example, int(self._sequence), where)

    def unflatten(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Nested dicts from values by leaf name, those that are there; a sequence becomes a dict of lists."""
        known = [leaf.name for leaf in self._leaves]
        for name in flat:
            if name not in known:
                raise SchemaError(f"no field {reprlib.repr(name)}", hint=name_known(name, known))
        return _unflatten(self, flat, "")

    def coerce(self, example: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """The flat example with every value in its canonical form (see Field.coerce), or a SchemaError."""
        from .inference import check_lengths

        flat = self.flatten(example, where)
        values = {leaf.name: leaf.coerce(flat[leaf.name], _join(where, leaf.name)) for leaf in self._leaves}
        check_lengths(self, values, where)
        return values

    def check(self, example: Mapping[str, Any], where: str = "") -> None:
        """Raise a SchemaError that says what does not fit, and where."""
        self.coerce(example, where)

    @classmethod
    def infer(cls, examples: Iterable[Mapping[str, Any]], *, schema: Mapping[str, Any] | None = None) -> Schema:
        """The narrowest schema that holds all of the examples (see penstock.inference)."""
        from .inference import infer

        return infer(examples, schema=schema)

    def widen(self, other: Schema) -> Schema:
        """The narrowest schema that holds what either of the two holds (see penstock.inference)."""
        from .inference import widen

        return widen(self, other)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return {"penstock_schema": JSON_VERSION, **_schema_to_json(self)}

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """The schema of `to_json()`; anything else is a SchemaError."""
        if not isinstance(data, dict) or data.get("penstock_schema") != JSON_VERSION:
            version = data.get("penstock_schema") if isinstance(data, dict) else data
            raise SchemaError(f'expected a schema with "penstock_schema": {JSON_VERSION}, got {reprlib.repr(version)}')
        return _schema_from_json({key: value for key, value in data.items() if key != "penstock_schema"}, "", 1)


# Names, shapes and how they are written


def _checked_shape(shape: Any, where: str) -> Shape:
    if not isinstance(shape, (tuple, list)) or len(shape) > MAX_RANK:
        raise SchemaError(
            f"expected a shape such as (13,) or (None, 3), of at most {MAX_RANK} dimensions, got {reprlib.repr(shape)}",
            where,
        )
    for size in shape:
        if size is not None and (not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 0):
            raise SchemaError(
                f"expected each dimension to be 0 or more, or None, got {reprlib.repr(size)}", where, "None is unknown"
            )
    checked = tuple(None if size is None else int(size) for size in shape)
    if math.prod(size or 1 for size in checked) > MAX_ELEMENTS:
        raise SchemaError(f"expected at most {MAX_ELEMENTS} elements, got shape {write_dimensions(checked)}", where)
    return checked


def _checked_classes(classes: Any, where: str) -> tuple[str, ...]:
    if not isinstance(classes, (tuple, list)) or not all(is_utf8(name) for name in classes):
        raise SchemaError(f"expected class names as a tuple of str, got {reprlib.repr(classes)}", where)
    if len(set(classes)) != len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise SchemaError(f"expected each class once, got {reprlib.repr(twice)} twice", where)
    return tuple(str(name) for name in classes)


def is_utf8(name: Any) -> bool:
    """Whether it is a str that can be stored: one without halves of surrogate pairs."""
    try:
        return isinstance(name, str) and name.encode() is not None
    except UnicodeEncodeError:
        return False


def write_dimensions(shape: Shape) -> str:
    """A shape as types show it: "[4,?]", nothing for a single value."""
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]" if shape else ""


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def map_nested(function: Any, value: Any, into: type[list[Any]] | type[tuple[Any, ...]] = tuple, depth: int = 0) -> Any:
    """The function over all items of nested lists or tuples, which become tuples, or what `into` says."""
    if not isinstance(value, (list, tuple)):
        return function(value)
    if depth > MAX_RANK:
        raise SchemaError(f"expected at most {MAX_RANK} dimensions, got more")
    return into(map_nested(function, item, into, depth + 1) for item in value)


def _literal(value: Any) -> str:
    """The repr, also for numbers that have no literal."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _written_schema(schema: Schema, indent: str) -> str:
    lines = []
    for name, node in schema.items():
        if isinstance(node, Schema):
            text = _written_schema(node, indent + "    ")
        else:
            text = repr(str(node)) if node == Field.parse(str(node), name) else node._written(name="")
        lines.append(f"{indent}    {name!r}: {text},\n")
    body = "{\n" + "".join(lines) + indent + "}" if lines else "{}"
    return f"Schema({body}{', sequence=True' if schema.sequence else ''})"


# Nested dicts


def _check_depth(fields: Mapping[str, Any]) -> None:
    layer: list[Mapping[str, Any]] = [fields]
    for _ in range(MAX_DEPTH):
        layer = [value for mapping in layer for value in mapping.values() if isinstance(value, Mapping)]
        if not layer:
            return
    raise SchemaError(f"expected at most {MAX_DEPTH} dicts within each other, got more")


def _node(name: Any, value: Any) -> Field | Schema:
    if not is_utf8(name) or not name:
        raise SchemaError(f"expected a name of at least one letter, valid as UTF-8, got {reprlib.repr(name)}")
    if isinstance(value, Field):
        return value if value.name == name else replace(value, name=str(name))
    if isinstance(value, str):
        return Field.parse(value, str(name))
    if not isinstance(value, Mapping):
        raise SchemaError(f"expected a type, a Field or a dict, got {type(value).__name__}", name)
    if not value:
        raise SchemaError("expected at least one field in a nested dict, got none", name)
    return value if isinstance(value, Schema) else Schema(value)


def _selected(node: Schema, chosen: set[str], prefix: str) -> Schema:
    kept: dict[str, Field | Schema] = {}
    for name, child in node.items():
        if isinstance(child, Field):
            if prefix + name in chosen:
                kept[name] = child
        elif any(f"{prefix}{name}/{leaf.name}" in chosen for leaf in child.leaves()):
            kept[name] = _selected(child, chosen, f"{prefix}{name}/")
    return Schema(kept, sequence=node.sequence)


def _flatten(node: Schema, value: Any, depth: int, where: str) -> dict[str, Any]:
    """`depth` is how many lists, those of the sequences above, may still enclose the dict."""
    names = [leaf.name for leaf in node.leaves()]
    if value is None:
        return dict.fromkeys(names)
    if depth and isinstance(value, (list, tuple)):
        rows = [_flatten(node, row, depth - 1, f"{where}[{index}]") for index, row in enumerate(value)]
        columns = {name: [row[name] for row in rows] for name in names}
        return {name: None if rows and all(v is None for v in c) else c for name, c in columns.items()}
    if not isinstance(value, Mapping):
        raise SchemaError(f"expected a dict{' or a list of dicts' * bool(depth)}, got {type(value).__name__}", where)
    for name in value:
        if name not in node:
            raise SchemaError(f"unknown field {reprlib.repr(name)}", where, name_known(name, node))
    flat: dict[str, Any] = {}
    for name, child in node.items():
        if isinstance(child, Field):
            flat[name] = value.get(name)
        else:
            below = _flatten(child, value.get(name), depth + child.sequence, _join(where, name))
            flat.update((f"{name}/{leaf}", v) for leaf, v in below.items())
    return flat


def _unflatten(node: Schema, flat: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, child in node.items():
        if isinstance(child, Schema):
            below = _unflatten(child, flat, f"{prefix}{name}/")
            if below:
                nested[name] = below
        elif prefix + name in flat:
            nested[name] = flat[prefix + name]
    return nested


# JSON


def _schema_to_json(schema: Schema) -> dict[str, Any]:
    data = {name: _schema_to_json(n) if isinstance(n, Schema) else _field_to_json(n) for name, n in schema.items()}
    return {"fields": data, "sequence": True} if schema.sequence else {"fields": data}


def _field_to_json(field: Field) -> dict[str, Any]:
    data: dict[str, Any] = {"type": str(field), "encoding": field.encoding, "kind": field.kind}
    if field.classes is not None:
        data["classes"] = list(field.classes)
    if field.default is not None:
        data["default"] = map_nested(_item_to_json, field.default, into=list)
    return data


def _item_to_json(item: Any) -> Any:
    if isinstance(item, bytes):
        return base64.b64encode(item).decode()
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


def _schema_from_json(data: Any, where: str, depth: int) -> Schema:
    _check_keys(data, ("fields", "sequence"), where)
    if depth > MAX_DEPTH:
        raise SchemaError(f"expected at most {MAX_DEPTH} dicts within each other, got more")
    if not isinstance(data.get("fields"), dict):
        raise SchemaError(f'expected "fields" to be an object, got {type(data.get("fields")).__name__}', where)
    nodes: dict[str, Field | Schema] = {}
    for name, value in data["fields"].items():
        path = f"{where}/{name}" if where else str(name)
        nested = isinstance(value, dict) and "fields" in value
        nodes[name] = _schema_from_json(value, path, depth + 1) if nested else _field_from_json(value, path)
    return Schema(nodes, sequence=data.get("sequence", False))


def _field_from_json(data: Any, where: str) -> Field:
    _check_keys(data, ("type", "encoding", "kind", "classes", "default"), where)
    options = {key: value for key, value in data.items() if key != "type"}
    if options.get("default") is not None:
        dtype = Field.parse(data.get("type"), where).dtype
        options["default"] = map_nested(lambda item: _item_from_json(item, dtype, where), options["default"])
    return Field.parse(data.get("type"), where, **options)


def _item_from_json(item: Any, dtype: str, where: str) -> Any:
    try:
        if dtype == "bytes":
            return base64.b64decode(item, validate=True)
        return float(item) if dtype in FLOATS and item in ("nan", "inf", "-inf") else item
    except (TypeError, ValueError, binascii.Error):
        raise SchemaError(f"expected a default in base64, got {reprlib.repr(item)}", where) from None


def _check_keys(data: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(data, dict):
        raise SchemaError(f"expected an object, got {type(data).__name__}", where)
    for key in data:
        if key not in known:
            raise SchemaError(f"unknown key {reprlib.repr(key)}, expected {', '.join(known)}", where)
