"""Tar shards, as WebDataset has them: the files of one key are a sample, and each extension is a field.

    d/0001.jpg  d/0001.cls  d/0001.seg.png      {"__key__": "d/0001", "jpg": ..., "cls": 7, "seg.png": ...}

The schema says what each file is read as. Without one, the last part of its extension does:

    jpg jpeg png gif bmp webp tif tiff   an image
    cls cls2 index inx id int            a whole number in text
    txt text transcript json jsn         a text
    npy                                  an array
    anything else                        bytes
"""

from __future__ import annotations

import io
import re
import tarfile
from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from .._core import describe
from ..errors import CorruptionError, SchemaError
from ..schema.coercion import INTEGERS, TEXTS
from ..schema.columns import ExampleDict, Value
from ..schema.field import Field
from ..schema.schema import Fields, Schema
from .inspect import first_records

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
KEY = "__key__"
SAMPLED_FILES = 16
SAMPLE = 100
Rule = tuple[str, str, list["int | None"]]
_IMAGES = ("jpg", "jpeg", "png", "gif", "bmp", "webp", "tif", "tiff")
_NUMBERS = ("cls", "cls2", "index", "inx", "id", "int")
_TEXTS = ("txt", "text", "transcript", "json", "jsn")
_NPY = re.compile(rb"\x93NUMPY(?:\x01.(?P<short>..)|[\x02\x03].(?P<long>....))", re.DOTALL)


def sampled_schema(files: Sequence[str], *, raw: bool = False, count: int | None = None) -> Schema:
    """What the first samples of some files show; with `raw`, all of it as bytes.

    count  how many files there are, where these are some of them
    """
    records: list[bytes] = []
    for path in files[:: max(1, len(files) // SAMPLED_FILES)][:SAMPLED_FILES]:
        found, damage = first_records(path, max(10, SAMPLE // min(count or len(files), SAMPLED_FILES)))
        if damage is not None and not len(found):
            raise damage
        records += found
    if not records:
        raise SchemaError("expected samples to infer a schema from, got none", files[0], "Give it: schema={...}")
    return _inferred(records, raw=raw)


def _inferred(records: Sequence[bytes], *, raw: bool) -> Schema:
    fields: dict[str, Field] = {}
    seen: dict[str, int] = {}
    for record in records:
        for name, _, _, values in describe(record):
            field = _raw_field(name) if raw else _field(name, values[0])
            known = fields.setdefault(name, field)
            if known != field:
                fields[name] = _both(known, field)
            seen[name] = seen.get(name, 0) + 1
    return Schema({name: replace(field, optional=seen[name] < len(records)) for name, field in fields.items()})


def merged_schema(schemas: Iterable[Schema]) -> Schema:
    """What the samples of all files show, by what those of each one do."""
    fields: dict[str, Field] = {}
    found = list(schemas)
    for schema in found:
        for field in schema.leaves():
            known = fields.setdefault(field.name, replace(field, optional=False))
            if known != replace(field, optional=False):
                fields[field.name] = _both(known, replace(field, optional=False))
    optional = {
        name: any(name not in schema or cast(Field, schema[name]).optional for schema in found) for name in fields
    }
    return Schema({name: replace(field, optional=optional[name]) for name, field in fields.items()})


def _raw_field(name: str) -> Field:
    return Field(name, "str" if name == KEY else "bytes")


def _field(name: str, data: bytes = b"") -> Field:
    last = name.rpartition(".")[2]
    if last in _NUMBERS:
        return Field(name, "int64")
    if name == KEY or last in _TEXTS:
        return Field(name, "str")
    if last in _IMAGES:
        return Field(name, "bytes", kind="image")
    array = _array(data) if last == "npy" else None
    return Field(name, "bytes") if array is None else Field(name, array[0], array[1], encoding="bytes")


def _both(known: Field, field: Field) -> Field:
    """An array whose sizes differ, or bytes where arrays have nothing in common."""
    if known.dtype != field.dtype or len(known.shape) != len(field.shape):
        return Field(known.name, "bytes")
    shape = tuple(a if a == b else None for a, b in zip(known.shape, field.shape, strict=True))
    return replace(known, shape=shape)


def _array(data: bytes) -> tuple[str, tuple[int, ...]] | None:
    """The dtype and the shape of an array in NumPy's format; None for what is no field."""
    match = _NPY.match(data)
    if match is None:
        return None
    length = int.from_bytes(match["short"] or match["long"], "little")
    try:
        header = literal_eval(data[match.end() : match.end() + length].decode("latin-1"))
        dtype = np.dtype(header["descr"])
        plain = dtype.isnative and not header["fortran_order"] and dtype.kind in "biuf" and dtype.itemsize <= 8
        return (dtype.name, tuple(map(int, header["shape"]))) if plain else None
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        return None


def checked_schema(schema: Schema | Fields) -> Schema:
    """A schema that somebody gave, with arrays stored as they are."""
    given = schema if isinstance(schema, Schema) else Schema(schema)
    fields = {}
    for name, node in given.items():
        if not isinstance(node, Field):
            raise SchemaError("expected a field for each extension, got a nested one", name)
        array = name.rpartition(".")[2] == "npy" and node.dtype not in TEXTS
        fields[name] = replace(node, encoding="bytes") if array else node
    checked = Schema(fields)
    rules_of(checked)
    return checked


def rules_of(schema: Schema) -> list[Rule]:
    """What the core reads each file as."""
    return [_rule(field) for field in schema.leaves()]


def _rule(field: Field) -> Rule:
    if not field.levels and field.dtype in TEXTS and not field.shape:
        return field.name, "bytes", []
    if field.name.rpartition(".")[2] == "npy" and not field.levels and field.dtype not in (*TEXTS, "bfloat16"):
        return field.name, np.dtype(field.dtype).str, list(field.shape)
    if not field.levels and not field.shape and field.encoding == "none":
        if field.dtype in INTEGERS:
            return field.name, "int", []
        if field.dtype == "float32":
            return field.name, "float", []
    hint = "A file is bytes, a str, one number (int64, float32), or an array (npy)"
    raise SchemaError(f"expected a type that a file in a tar has, got {field}", field.name, hint)


def is_tar(path: str) -> bool:
    """Whether a file is a tar, by how it begins; one in zstd by its name."""
    return tarfile.is_tarfile(path) or path.lower().endswith(".tar.zst")


def read_sample(record: bytes, schema: Schema, where: str) -> ExampleDict:
    """The files of a sample that `first_records` gave, as `load` reads them: by the schema."""
    held = {name: values[0] for name, _, _, values in describe(record) if values}
    return {field.name: _read(held.get(field.name), field, where) for field in schema.leaves()}


def _read(data: bytes | None, field: Field, where: str) -> Value:
    if data is None:
        return None
    kind = _rule(field)[1]
    try:
        if kind == "bytes":
            return data.decode() if field.dtype == "str" else data
        if kind in ("int", "float"):
            return int(data) if kind == "int" else np.float32(data)
        return np.load(io.BytesIO(data), allow_pickle=False)[()]  # a number, where it has no axes
    except ValueError:
        raise CorruptionError(f"expected {field} in {field.name}, got {data[:20]!r} - at {where}") from None


def without_key(schema: Schema) -> Schema:
    """The fields that are files."""
    return Schema({name: field for name, field in schema.items() if name != KEY})


def is_tar_name(name: str) -> bool:
    """Whether a file is called as tar shards are."""
    return name.lower().endswith(SUFFIXES)


def exact_schema(schema: Schema, samples: int, extensions: Iterable[Mapping[str, int]], *, raw: bool = False) -> Schema:
    """A sampled schema, made to hold every sample: which files are there how often is known of all of them."""
    counts: dict[str, int] = {}
    for found in extensions:
        for name, count in found.items():
            counts[name] = counts.get(name, 0) + count
    fields: ExampleDict = {}
    for name, count in counts.items():
        field = schema.get(name, _raw_field(name) if raw else _field(name))
        assert isinstance(field, Field)
        fields[name] = replace(field, optional=count < samples)
    return Schema(fields)
