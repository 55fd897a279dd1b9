"""Examples with typed fields: a class whose annotations are its schema.

    class Toy(Example):                    # lightweight until load()
        name: Skip[str]                    # known, never stored
        label: int
        data: Array["float32", None]       # any length

Each annotation comes down to Annotated[python type, Field]: that is the long form, for anything that has no short one.
"""

from __future__ import annotations

import contextlib
import inspect
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ..errors import PenstockError, SchemaError, name_known
from .coercion import DTYPES, INTEGERS, write_dimensions
from .columns import ExampleDict, Value
from .field import Field, Image
from .schema import Schema

T = TypeVar("T")
TypeHint: TypeAlias = Any  # an annotation of a class
SomeExample = TypeVar("SomeExample", bound="Example")


class IgnoreExample(PenstockError):  # noqa: N818  # it is a wish, not a fault
    """Raise it in `load` or `split` to leave an example out. A build counts these, and goes on."""


# Annotations


class _Skipped:
    """The mark of a field that is never stored."""

    def __repr__(self) -> str:
        return "Skip"


_SKIPPED = _Skipped()

Skip = Annotated[T, _SKIPPED]
"""Known, never stored: `name: Skip[str]`."""
Text = Annotated[str, Field(dtype="str", kind="text")]
"""A text."""

if TYPE_CHECKING:  # type checkers see Any: no type of theirs holds a dtype, sizes or names
    Array: Any
    Label: Any
else:

    class Array:
        """An array: `Array["float32", 4, 120]`, `Array[np.float32, None]`; None is a dimension of any size."""

        def __class_getitem__(cls, item: object) -> TypeHint:
            dtype, *shape = item if isinstance(item, tuple) else (item,)
            name = dtype if isinstance(dtype, str) else _numpy_name(dtype)
            if name is None:
                raise SchemaError(f"expected a dtype first, got {reprlib.repr(dtype)}", 'Array["float32", None]')
            return Annotated[Any, Field(dtype=name, shape=tuple(shape))]

    class Label:
        """A label, given by the name of its class or by its index: `Label["cat", "dog"]`, or a tuple `Label[NAMES]`."""

        def __class_getitem__(cls, item: object) -> TypeHint:
            classes = tuple(item) if isinstance(item, (tuple, list)) else (item,)
            return Annotated[int | str, Field(dtype="int64", classes=classes, kind="label")]


_PLAIN = {bool: "bool", int: "int64", float: "float64", str: "str", bytes: "bytes"}
_SKIPPED_CELLS: dict[TypeHint, Callable[[str], Value]] = {str: str, Path: Path}


class _Declared(NamedTuple):
    """One annotation, understood."""

    stored: Field | Schema | None  # None: skipped
    optional: bool
    kind: TypeHint  # the Python type, without None
    cell: Field | Callable[[str], Value] | None  # how a cell of a CSV file is read; None: it has no place there


class Example:
    """One example with typed fields. Subclass it, and annotate the fields.

    It is made with keywords, and lightweight: a field may be left out until `load` sets it. An optional field
    (`int | None`) that nobody sets is None; `label: int = 0` sets a default. Names that begin with an underscore
    are not fields. A subclass adds fields to those of its parent, or declares them anew.
    """

    _own: ClassVar[dict[str, _Declared] | None] = None
    _all: ClassVar[dict[str, _Declared] | None] = None
    _key_field: ClassVar[str | None] = None
    _schema: ClassVar[Schema | None] = None

    def __init_subclass__(cls, **options: Value) -> None:
        super().__init_subclass__(**options)
        cls._own = cls._all = cls._schema = None
        for name in inspect.get_annotations(cls):
            if name.startswith("_"):
                continue
            if hasattr(Example, name):
                raise SchemaError(f"expected another name: Example.{name} is taken", f"{cls.__name__}.{name}")
            default = cls.__dict__.get(name)
            if default is not None and type(default).__hash__ is None:
                raise SchemaError(
                    f"expected a default that cannot change, got {type(default).__name__}",
                    f"{cls.__name__}.{name}",
                    "All examples would share it: set it in load()",
                )
        scope = sys._getframe(1)  # noqa: SLF001  # where the class is defined, which may be inside a function
        with contextlib.suppress(_UnknownNameError):  # of what comes later: looked up again when it is needed
            cls._own = _own_fields(cls, {**scope.f_globals, **scope.f_locals})

    def __init__(self, **values: Value) -> None:
        declared = _fields_of(type(self))
        for name in values:
            if name not in declared:
                raise _unknown(type(self), name)
        self.__dict__.update(values)

    if TYPE_CHECKING:

        @property
        def key(self) -> str | None:
            """What tells it apart: the field `key`, or the first `Skip[str]`; None when there is neither."""
    else:

        def __getattr__(self, name: str) -> Value:
            """Only called for what is not set."""
            declared = {} if name.startswith("__") else _fields_of(type(self))
            if name == "key":
                field = type(self)._key_field  # noqa: SLF001  # of this class
                return getattr(self, field, None) if field else None
            if name not in declared:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            if declared[name].optional:
                return None
            raise AttributeError(f"{type(self).__name__} has no value for {name!r} yet. Set it in load()")

    def load(self, *args: Value, **options: Value) -> None:
        """Set the fields that are costly: read files here. Runs in the workers of a build, with its options."""

    def split(self, *args: Value, **options: Value) -> Iterable[Example]:
        """The examples that this one becomes: itself, unless a subclass yields others."""
        return (self,)

    def replace(self: SomeExample, **changes: Value) -> SomeExample:
        """A copy with some fields changed; the values themselves are shared."""
        for name in changes:
            if name not in _fields_of(type(self)):
                raise _unknown(type(self), name)
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__, **changes)
        return copy

    @classmethod
    def schema(cls) -> Schema:
        """What is stored: the schema of all fields but the skipped ones."""
        if cls._schema is None:
            stored = {name: field.stored for name, field in _fields_of(cls).items()}
            cls._schema = Schema({name: node for name, node in stored.items() if node is not None})
        return cls._schema

    def to_dict(self) -> ExampleDict:
        """The values that are stored, in the schema's order."""
        try:
            return {name: getattr(self, name) for name in self.schema()}
        except AttributeError:
            for name, node in self.schema().items():
                if not _is_set(self, name):
                    where = f"{type(self).__name__}{'' if self.key is None else f' {self.key!r}'}.{name}"
                    wanted = "a dict" if isinstance(node, Schema) else str(node)
                    raise SchemaError(f"expected {wanted}, got nothing", where, "Set it in load()") from None
            raise

    @classmethod
    def from_csv_row(cls: type[SomeExample], row: Mapping[str, str]) -> SomeExample:
        """The example of a row, such as csv.DictReader gives it.

        Cells are read by the type of their field, an empty one as None where the field is optional. Columns that are
        no fields are left aside; fields that have no column are left to `load`.
        """
        declared = _fields_of(cls)
        cells = {name: field for name, field in declared.items() if field.cell is not None}
        if not any(name in row for name in cells):
            wanted = f"expected at least one of the columns {', '.join(cells) or '(none)'}"
            raise SchemaError(f"{wanted}, got {', '.join(map(str, row)) or 'none'}", cls.__name__)
        found = {name: (field, row[name]) for name, field in cells.items() if row.get(name) is not None}
        return cls(**{name: _read_cell(field, text, f"{cls.__name__}.{name}") for name, (field, text) in found.items()})

    def to_csv_row(self) -> dict[str, str]:
        """The cells of its single numbers and texts, skipped ones too; arrays and bytes have no place in a row."""
        cells = [(name, field) for name, field in _fields_of(type(self)).items() if field.cell is not None]
        return {name: _write_cell(field, getattr(self, name)) for name, field in cells if _is_set(self, name)}

    def __eq__(self, other: object) -> bool:
        """Equal when they are of one class and hold equal values; arrays are compared whole."""
        if type(other) is not type(self):
            return NotImplemented
        names = [name for name in _fields_of(type(self)) if _is_set(self, name) or _is_set(other, name)]
        return all(
            _is_set(self, name) and _is_set(other, name) and _equal(getattr(self, name), getattr(other, name))
            for name in names
        )

    __hash__ = None  # type: ignore[assignment]  # it may change

    def __repr__(self) -> str:
        fields = (name for name in _fields_of(type(self)) if _is_set(self, name))
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(getattr(self, name))}' for name in fields)})"


# From annotations to fields


class _UnknownNameError(SchemaError):
    """An annotation with a name that is not there, or not yet."""


def _fields_of(cls: type[Example]) -> dict[str, _Declared]:
    """All fields of a class, those of its parents first."""
    if cls._all is None:
        declared: dict[str, _Declared] = {}
        for parent in reversed(cls.__mro__):
            if issubclass(parent, Example) and parent is not Example:
                own = parent._own  # noqa: SLF001  # found when it is first needed
                if own is None:
                    module = sys.modules.get(parent.__module__)
                    own = _own_fields(parent, {} if module is None else vars(module))
                    parent._own = own  # noqa: SLF001
                declared.update(own)
        texts = (name for name, field in declared.items() if field.stored is None and field.kind is str)
        cls._key_field = None if "key" in declared else next(texts, None)
        cls._all = declared
    return cls._all


def _own_fields(cls: type[Example], names: dict[str, object]) -> dict[str, _Declared]:
    """The fields that the class itself declares."""
    fields = {}
    for name, annotation in inspect.get_annotations(cls).items():
        where = f"{cls.__name__}.{name}"
        if not name.startswith("_") and not _is_class_variable(hint := _resolved(cls, annotation, names, where)):
            fields[name] = _understood(hint, name, where)
    return fields


def _resolved(cls: type[Example], annotation: object, names: dict[str, object], where: str) -> TypeHint:
    """The annotation itself, where `from __future__ import annotations` made a text of it."""
    holder = type(cls.__name__, (), {"__annotations__": {"it": annotation}})
    try:
        return typing.get_type_hints(holder, names, dict(vars(cls)), include_extras=True)["it"]
    except NameError as error:
        raise _UnknownNameError(
            f"cannot read the annotation {annotation}: {error}",
            where,
            "Import or define the name at the top of the module, and not under TYPE_CHECKING",
        ) from None
    except (TypeError, SyntaxError) as error:
        raise SchemaError(f"expected a type, got {annotation!r}: {error}", where) from None


def _is_class_variable(hint: object) -> bool:
    return hint is ClassVar or typing.get_origin(hint) is ClassVar


def _understood(hint: object, name: str, where: str) -> _Declared:
    """Peels None, Skip and Annotated off, in any order."""
    optional = skipped = False
    node: Field | Schema | None = None
    while True:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is Annotated:
            hint, *marks = arguments
            skipped = skipped or any(mark is _SKIPPED for mark in marks)
            node = next((mark for mark in marks if isinstance(mark, (Field, Schema))), node)
        elif origin in (typing.Union, types.UnionType) and type(None) in arguments:
            optional = True
            hint = typing.Union[tuple(kind for kind in arguments if kind is not type(None))]  # noqa: UP007
        else:
            break
    if node is None:
        node = _plain_field(hint, 0)
    if hint is Image:
        hint = bytes
    if node is None and not skipped:
        raise SchemaError(
            f"expected a type that can be stored, got {_type_name(hint)}",
            where,
            'Write int, float, bool, str, bytes, list[...], Array["float32", None], Image, Label[...], Text, '
            "or Annotated[type, Field(...)]; Skip[...] for what is not stored",
        )
    if isinstance(node, Field):
        node = replace(node, name=name, optional=node.optional or optional)
        optional = node.optional
    cell: Value = _SKIPPED_CELLS.get(hint) if skipped else None
    if cell is None and isinstance(node, Field) and not node.shape and not node.levels and node.dtype != "bytes":
        cell = node
    return _Declared(None if skipped else node, optional, hint, cell)


def _plain_field(hint: object, levels: int) -> Field | None:
    """The field of a plain Python or NumPy type, or of lists of them."""
    if typing.get_origin(hint) is list:
        inner = typing.get_args(hint)[0]
        if typing.get_origin(inner) is not Annotated:
            return _plain_field(inner, levels + 1)
        field = next((mark for mark in inner.__metadata__ if isinstance(mark, Field)), None)
        return None if field is None else replace(field, levels=field.levels + levels + 1)
    if hint is Image:
        return Field(dtype="bytes", kind="image", levels=levels)
    dtype = _PLAIN.get(hint) if isinstance(hint, type) else None
    dtype = dtype or (_numpy_name(hint) if isinstance(hint, type) and issubclass(hint, np.generic) else None)
    return None if dtype is None else Field(dtype=dtype, levels=levels)


def _numpy_name(dtype: TypeHint) -> str | None:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        return None
    return name if dtype is not None and name in DTYPES else None


def _type_name(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _unknown(cls: type[Example], name: str) -> SchemaError:
    return SchemaError(f"unknown field {name!r}", cls.__name__, name_known(name, _fields_of(cls)))


# Cells of a CSV file


def _read_cell(field: _Declared, text: str, where: str) -> Value:
    if field.optional and text == "":
        return None
    if not isinstance(field.cell, Field):
        return field.cell(text) if field.cell else None
    value: Value = text
    plain = text.replace("_", "?")  # Python reads 1_000, a table does not
    try:
        if field.cell.dtype == "bool":
            value = {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()]
        elif field.cell.dtype in INTEGERS:
            value = text if field.cell.classes and text in field.cell.classes else int(plain)
        elif field.cell.dtype != "str":
            value = float(plain)
    except (KeyError, ValueError):
        hint = name_known(text, field.cell.classes, "classes") if field.cell.classes else "Correct the cell"
        raise SchemaError(f"expected {field.cell}, got the cell {reprlib.repr(text)}", where, hint) from None
    field.cell.coerce(value, where)
    return value


def _write_cell(field: _Declared, value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    classes = field.cell.classes if isinstance(field.cell, Field) else None
    if classes and not isinstance(value, str) and 0 <= int(value) < len(classes):
        return classes[int(value)]
    return str(value)


# Values


def _is_set(example: Example, name: str) -> bool:
    """Whether it has a value: its own, its class's default, or None where it is optional."""
    return hasattr(example, name)


def _equal(a: Value, b: Value) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        same = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype
        return same and np.array_equal(a, b)
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(value, b[name]) for name, value in a.items())
    return bool(a == b)


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{write_dimensions(value.shape)}"
    if isinstance(value, (bytes, bytearray)) and len(value) > 20:
        return f"<{len(value)} bytes>"
    return reprlib.repr(value)
