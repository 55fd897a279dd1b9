"""What plain files hold: a schema beside them. It is named after them, with an N for the number that each one has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import CorruptionError, SchemaError
from ..schema.schema import Schema
from ..storage.files import is_file, list_folder, local_path, parent_path, read_json
from ..storage.local import publish
from ..storage.store import is_url, url_name
from .manifest import parse_sealed, seal_json

SUFFIX = ".schema.json"
MOST_BYTES = 64 << 20
HINT = "Delete the file, or say what the records hold: schema={...}"
_NUMBER = re.compile(r"\{\d*\.\.\}")


def schema_path(pattern: str | os.PathLike[str]) -> Path:
    """Where the schema of some files is: part-N.tfrecord.schema.json for part-{000..}.tfrecord."""
    return local_path(_NUMBER.sub("N", os.fspath(pattern)) + SUFFIX, "a schema file")


def write_schema(pattern: str | os.PathLike[str], schema: Schema) -> None:
    """Say what some files hold, beside them."""
    publish(schema_path(pattern), schema_text(schema).encode())


def schema_text(schema: Schema) -> str:
    """Return the content of a schema file."""
    return seal_json(schema.to_json()).decode()


def read_schema(files: Sequence[str]) -> Schema | None:
    """What was said of some files, or of some of them; None where nobody has. Files of two kinds are an error."""
    found: dict[str, Schema] = {}
    folders: dict[str, set[str]] = {}
    for file in files:
        path = next((path for path in _paths_of(file) if path in found or _exists(path, folders)), None)
        if path is not None and path not in found:
            found[path] = _read(path)
            first = next(iter(found))
            if found[path] != found[first]:
                hint = "Read them apart, or say what they hold: schema={...}"
                raise SchemaError(f"expected files of one schema, got another than in {first}", path, hint)
    return next(iter(found.values()), None)


def _paths_of(file: str) -> Iterator[str]:
    """Where the schema of a file may be: any of the numbers in its name may be its own, the last one before others."""
    folder, name = os.path.split(file)
    yield file + SUFFIX
    for match in reversed(list(re.finditer(r"\d+", name))):
        yield os.path.join(folder, f"{name[: match.start()]}N{name[match.end() :]}{SUFFIX}")


def _exists(path: str, folders: dict[str, set[str]]) -> bool:
    """Whether a file is there. A folder of a store is listed once; `folders` has the names of those that were."""
    if not is_url(path) or path.startswith("http"):
        return is_file(path)
    folder = parent_path(path)
    if folder not in folders:
        folders[folder] = {entry.name for entry in list_folder(folder).entries()}
    return url_name(path) in folders[folder]


def _read(path: str) -> Schema:
    try:
        return Schema.from_json(read_json(path, "the schema of records", MOST_BYTES, parse_sealed))
    except SchemaError as error:
        raise CorruptionError(f"{error} - at {path}. {HINT}") from None
    except CorruptionError as error:
        raise CorruptionError(f"{error}. {HINT}") from None


FOLDER = ".penstock-commit"


def check_complete(files: Iterable[str]) -> None:
    """Refuse files that an interrupted commit was to replace, to write or to remove."""
    names: dict[str, set[str]] = {}
    for file in files:
        folder, name = os.path.split(file)
        names.setdefault(folder, set()).add(name)
    for folder, inside in names.items():
        records = os.path.join(folder, FOLDER)
        if not os.path.isdir(records):
            continue
        for record in sorted(name for name in os.listdir(records) if name.endswith(".json")):
            touched = inside & _touched(os.path.join(records, record))
            if touched:
                place = os.path.join(folder, min(touched))
                hint = "Run the same build again: it finishes"
                problem = "expected files of one build, got an overwrite that was interrupted"
                raise CorruptionError(f"{problem} - at {place}. {hint}")


def _touched(path: str) -> set[str]:
    """The names that a record lists; none if it is finished meanwhile, or is still being written."""
    with suppress(OSError, ValueError, TypeError, KeyError), open(path, encoding="utf-8") as file:
        return set(json.load(file)["touched"])
    return set()
