"""What all frameworks share: a walk over what a loader gives, and the error for a column that has no form there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..errors import SchemaError
from ..schema.columns import Value

Tensor: TypeAlias = Any
"""A tensor, or dicts and tuples of them: the frameworks are not installed where types are checked."""


def convert(item: object, column: Callable[[Value, str], Tensor], where: str = "") -> Tensor:
    """The same dicts and tuples, with every column (or value) in them replaced."""
    if isinstance(item, Mapping):
        return {name: convert(value, column, f"{where}/{name}" if where else str(name)) for name, value in item.items()}
    if isinstance(item, tuple):
        return tuple(convert(value, column, f"{where}[{at}]") for at, value in enumerate(item))
    return column(item, where)


def refuse_missing(where: str) -> SchemaError:
    """For values that may be missing, where a framework knows no such thing."""
    return SchemaError(
        "expected values that are all there, got an optional field",
        where,
        "Give the field a default in the schema, fill it in map(), or leave it out with select()",
    )
