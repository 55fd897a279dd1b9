"""What people should know of a dataset: its name, its version, what it is, how to cite it, what it is for."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..errors import SchemaError, name_known
from ..schema.coercion import is_utf8
from ..schema.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Info:
    """What a dataset says of itself, as TensorFlow Datasets shows it.

    name         what its shards are called; the last part of its path unless told
    version      such as 1.0.0; the part of its path that looks like one unless told
    description  what it is, in a few sentences
    citation     how to cite it, such as BibTeX
    supervised   the fields that are what a model gets and what it should say: ("image", "label")
    tfds         what else TensorFlow Datasets should find: {"info": {...}, "features": {...}}, as `tfds` says it
    """

    name: str | None = None
    version: str | None = None
    description: str = ""
    citation: str = ""
    supervised: tuple[str, str] | None = None
    tfds: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, pattern, like in (("name", r"\w+", "photos_2024"), ("version", r"\d+\.\d+\.\d+", "1.0.0")):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and re.fullmatch(pattern, value)):
                raise SchemaError(f"expected a {name} such as {like}, got {value!r}", "info")
        for name in ("description", "citation"):
            if not is_utf8(getattr(self, name)):
                raise SchemaError(f"expected a text, got {reprlib.repr(getattr(self, name))}", f"info {name}")
        if self.tfds is not None and not (
            isinstance(self.tfds, dict)
            and self.tfds.keys() <= {"info", "features"}
            and all(isinstance(part, dict) for part in self.tfds.values() if part is not None)
        ):
            raise SchemaError(f"expected a dict of info and features, got {reprlib.repr(self.tfds)}", "info tfds")
        pair = self.supervised
        if pair is not None:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
                raise SchemaError(f"expected the names of two fields, got {pair!r}", "info supervised")
            object.__setattr__(self, "supervised", tuple(pair))

    def over(self, other: Info) -> Info:
        """This, and what the other one says where this says nothing."""
        return Info(**{field.name: getattr(self, field.name) or getattr(other, field.name) for field in fields(self)})

    def check(self, schema: Schema) -> None:
        """That the fields that it names are there."""
        for name in self.supervised or ():
            if name not in schema:
                raise SchemaError(f"no field {name!r}", "info supervised", name_known(name, schema))

    def to_json(self) -> dict[str, Any]:
        """Plain; the name goes elsewhere in a manifest."""
        plain = asdict(self) | {"supervised": None if self.supervised is None else list(self.supervised)}
        del plain["name"]
        return plain

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> Info:
        """The info of `to_json()`."""
        return cls(name=name, **data)
