"""What an example holds: a Schema, names and their fields; nested dicts made flat and back; JSON."""

from __future__ import annotations

import base64
import binascii
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from ..errors import SchemaError, name_known
from .coercion import FLOATS, MAX_DEPTH, check_lengths, map_nested
from .columns import ExampleDict, Value
from .field import Field, is_utf8

JSON_VERSION = 1

# What a user writes for a schema: names of fields, each with a type as text, a Field, or fields of its own.
Fields: TypeAlias = "Mapping[str, str | Field | Mapping[str, Value]]"


class Schema(Mapping[str, "Field | Schema"]):
    """What an example holds: names and their fields, in order; a nested dict is a Schema within it.

    Schema({"dense": "float32[13]", "label": Field(dtype="int64", classes=("cat", "dog"))})

    With sequence=True it stands for a list of such dicts (or a dict of lists): all fields below get one more level.
    """

    __slots__ = ("_fields", "_leaves", "_sequence")

    def __init__(self, fields: Fields, *, sequence: bool = False) -> None:
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
                for leaf in node.leaves():
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
        below: dict[str, list[str]] = {}  # each field, and each dict around it, with the fields that it takes
        for leaf in self._leaves:
            end = len(leaf.name)
            while end > 0:
                below.setdefault(leaf.name[:end], []).append(leaf.name)
                end = leaf.name.rfind("/", 0, end)
        chosen: set[str] = set()
        for name in names:
            if name not in below:
                raise SchemaError(f"no field {reprlib.repr(name)}", hint=name_known(name, self._leaf_names()))
            chosen.update(below[name])
        return _selected(self, chosen, "")

    def _leaf_names(self) -> list[str]:
        return [leaf.name for leaf in self._leaves]

    def flatten(self, example: Mapping[str, Value], where: str = "") -> ExampleDict:
        """The values by the names of `leaves()`; None where one is missing.

        A sequence is a list of dicts, or a dict of lists.
        """
        return _flatten(self, example, int(self._sequence), where)

    def unflatten(self, flat: Mapping[str, Value]) -> ExampleDict:
        """Nested dicts from values by leaf name, those that are there; a sequence becomes a dict of lists."""
        known = set(self._leaf_names())
        for name in flat:
            if name not in known:
                raise SchemaError(f"no field {reprlib.repr(name)}", hint=name_known(name, self._leaf_names()))
        return _unflatten(self, flat, "")

    def coerce(self, example: Mapping[str, Value], where: str = "") -> ExampleDict:
        """The flat example with every value in its canonical form (see Field.coerce), or a SchemaError."""
        flat = self.flatten(example, where)
        values = {leaf.name: leaf.coerce(flat[leaf.name], _join(where, leaf.name)) for leaf in self._leaves}
        _check_sequences(self, values, where)
        return values

    def check(self, example: Mapping[str, Value], where: str = "") -> None:
        """Raise a SchemaError that says what does not fit, and where."""
        self.coerce(example, where)

    @classmethod
    def infer(cls, examples: Iterable[Mapping[str, Value]], *, schema: Mapping[str, Value] | None = None) -> Schema:
        """The narrowest schema that holds all of the examples (see `penstock.schema.inference`)."""
        from .inference import infer  # it stands above: it makes schemas

        return infer(examples, schema=schema)

    def widen(self, other: Schema) -> Schema:
        """The narrowest schema that holds what either of the two holds (see `penstock.schema.inference`)."""
        from .inference import widen

        return widen(self, other)

    def to_json(self) -> ExampleDict:
        """Plain dicts, lists, strings and numbers."""
        return {"penstock_schema": JSON_VERSION, **_schema_to_json(self)}

    @classmethod
    def from_json(cls, data: object) -> Schema:
        """The schema of `to_json()`; anything else is a SchemaError."""
        if not isinstance(data, dict) or data.get("penstock_schema") != JSON_VERSION:
            version = data.get("penstock_schema") if isinstance(data, dict) else data
            raise SchemaError(f'expected a schema with "penstock_schema": {JSON_VERSION}, got {reprlib.repr(version)}')
        return _schema_from_json({key: value for key, value in data.items() if key != "penstock_schema"}, "", 1)


def _written_schema(schema: Schema, indent: str) -> str:
    lines = []
    for name, node in schema.items():
        if isinstance(node, Schema):
            text = _written_schema(node, indent + "    ")
        else:
            text = repr(str(node)) if node == Field.parse(str(node), name) else repr(replace(node, name=""))
        lines.append(f"{indent}    {name!r}: {text},\n")
    body = "{\n" + "".join(lines) + indent + "}" if lines else "{}"
    return f"Schema({body}{', sequence=True' if schema.sequence else ''})"


# Nested dicts
def _check_depth(fields: Mapping[str, Value]) -> None:
    layer: list[Mapping[str, Value]] = [fields]
    for _ in range(MAX_DEPTH):
        layer = [value for mapping in layer for value in mapping.values() if isinstance(value, Mapping)]
        if not layer:
            return
    raise SchemaError(f"expected at most {MAX_DEPTH} dicts within each other, got more")


def _node(name: Value, value: Value) -> Field | Schema:
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


def _flatten(node: Schema, value: object, depth: int, where: str) -> ExampleDict:
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
    flat: ExampleDict = {}
    for name, child in node.items():
        if isinstance(child, Field):
            flat[name] = value.get(name)
        else:
            below = _flatten(child, value.get(name), depth + child.sequence, _join(where, name))
            flat.update((f"{name}/{leaf}", v) for leaf, v in below.items())
    return flat


def _unflatten(node: Schema, flat: Mapping[str, Value], prefix: str) -> ExampleDict:
    nested: ExampleDict = {}
    for name, child in node.items():
        if isinstance(child, Schema):
            below = _unflatten(child, flat, f"{prefix}{name}/")
            if below:
                nested[name] = below
        elif prefix + name in flat:
            nested[name] = flat[prefix + name]
    return nested


def _check_sequences(node: Schema, values: Mapping[str, Value], where: str, depth: int = 0, prefix: str = "") -> None:
    """The lists of each sequence are equally long; `depth` is how many sequences enclose it."""
    depth += node.sequence
    if node.sequence:
        check_lengths({name: values[name] for name in (prefix + leaf.name for leaf in node.leaves())}, depth, where)
    for name, child in node.items():
        if isinstance(child, Schema):
            _check_sequences(child, values, where, depth, f"{prefix}{name}/")


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


# JSON
def _schema_to_json(schema: Schema) -> ExampleDict:
    data = {name: _schema_to_json(n) if isinstance(n, Schema) else _field_to_json(n) for name, n in schema.items()}
    return {"fields": data, "sequence": True} if schema.sequence else {"fields": data}


def _field_to_json(field: Field) -> ExampleDict:
    data: ExampleDict = {"type": str(field), "encoding": field.encoding, "kind": field.kind}
    if field.classes is not None:
        data["classes"] = list(field.classes)
    if field.decoded is not None:
        data["decoded"] = field.decoded
    if field.default is not None:
        data["default"] = map_nested(_item_to_json, field.default, into=list)
    return data


def _item_to_json(item: object) -> Value:
    if isinstance(item, bytes):
        return base64.b64encode(item).decode()
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


def _schema_from_json(data: Value, where: str, depth: int) -> Schema:
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


def _field_from_json(data: Value, where: str) -> Field:
    _check_keys(data, ("type", "encoding", "kind", "classes", "decoded", "default"), where)
    options = {key: value for key, value in data.items() if key != "type"}
    if options.get("default") is not None:
        dtype = Field.parse(data.get("type"), where).dtype
        options["default"] = map_nested(lambda item: _item_from_json(item, dtype, where), options["default"])
    return Field.parse(data.get("type"), where, **options)


def _item_from_json(item: Value, dtype: str, where: str) -> Value:
    try:
        if dtype == "bytes":
            return base64.b64decode(item, validate=True)
        return float(item) if dtype in FLOATS and item in ("nan", "inf", "-inf") else item
    except (TypeError, ValueError, binascii.Error):
        raise SchemaError(f"expected a default in base64, got {reprlib.repr(item)}", where) from None


def _check_keys(data: Value, known: tuple[str, ...], where: str) -> None:
    if not isinstance(data, dict):
        raise SchemaError(f"expected an object, got {type(data).__name__}", where)
    for key in data:
        if key not in known:
            raise SchemaError(f"unknown key {reprlib.repr(key)}, expected {', '.join(known)}", where)
