"""The two JSON files of a dataset that Datum exported: its shards, and the types and shapes of its features."""

from __future__ import annotations

import re
import reprlib
from pathlib import Path
from typing import Any

from ..errors import CorruptionError, SchemaError
from ..field import Field
from ..schema import Schema
from ..storage import beside, join_path, read_json
from ..values import is_utf8

MAPPING = "datum_to_type_and_shape_mapping.json"
SHARDS = "shard_info.json"
MOST_BYTES = 64 << 20

_SPLIT = re.compile(r"[\w-]{1,200}")
_DTYPES = {"int": "int64", "float": "float32", "string": "str"}


def exported_files(directory: Path | str) -> dict[str, list[str]]:
    """The shards of each split of a directory, which may be a URL."""
    path = beside(directory, SHARDS)
    shards = read_json(path, "a list of Datum's shards", MOST_BYTES)
    if not isinstance(shards, dict) or not all(files and isinstance(files, dict) for files in shards.values()):
        raise CorruptionError("expected the files of each split, got something else", str(path))
    if not shards:
        raise CorruptionError("expected the files of each split, got no split", str(path))
    for split in shards:
        if not _SPLIT.fullmatch(split):
            got = reprlib.repr(split)
            raise CorruptionError(f"expected a split named by letters, digits, _ and -, got {got}", str(path))
    for file in (file for files in shards.values() for file in files):
        if Path(file).name != file or not is_utf8(file) or "\0" in file:
            raise CorruptionError(f"expected files of this folder, got {file!r}", str(path))
    return {split: [join_path(str(directory), file) for file in files] for split, files in shards.items()}


def read_mapping(path: Path | str) -> Schema:
    """The schema that Datum's mapping of types and shapes stands for."""
    mapping = read_json(path, "a mapping of Datum's types and shapes", MOST_BYTES)
    try:
        if not mapping:
            raise SchemaError("no feature")
        return Schema({name: _field(said) for name, said in mapping.items()})
    except (AttributeError, KeyError, TypeError, OverflowError, SchemaError) as error:
        raise CorruptionError(
            f"expected types and shapes as Datum writes them, got others ({error})", str(path)
        ) from None


def _field(said: dict[str, Any]) -> Field:
    """A string with a shape is an image: of two dimensions a grey one, of three in colour."""
    dtype, shape = _DTYPES[said["type"]], tuple(said["shape"])
    if dtype == "str" and len(shape) in (2, 3):
        return Field(dtype="bytes", kind="image", decoded=f"uint8[?,?,{1 if len(shape) == 2 else 3}]")
    if not said["dense"]:
        return Field(dtype=dtype, shape=(None,))
    return Field(dtype=dtype, shape=() if dtype == "str" else shape)
