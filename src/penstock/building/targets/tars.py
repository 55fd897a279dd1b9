"""A dataset as tar shards that webdataset reads: a sample for each example, a file for each field."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SchemaError
from ...loading.dataset import Dataset, load
from ...records.shard import ShardFormat
from ...records.tar import KEY, SUFFIXES
from ...schema.coercion import INTEGERS
from ...schema.field import Field, image_type
from ...schema.schema import Fields, Schema
from ...sources.fingerprint import digest
from ...storage.paths import Paths, is_numbered
from ..engines.engine import Meter, Progress
from .file_commit import FileCommit, finish_interrupted
from .plain_files import NEW, NumberedFiles, check_apart, check_pattern, staged

_KEY = re.compile(r"(?:[^/.][^/]*/)*[^/.]+")
_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}
_BLOCK = 512
_ALSO = {"cls": ("cls2", "index", "inx", "id", "int"), "txt": ("text", "transcript", "json", "jsn")}


def names_tars(path: str | Path) -> bool:
    """Return True if a path stands for tar shards, such as out-{00000..}.tar."""
    return str(path).lower().endswith(SUFFIXES)


def write_tars(
    source: Paths,
    pattern: str | Path,
    *,
    format: Any = None,
    shards: int | None = None,
    schema: Schema | Fields | None = None,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Dataset:
    """Write the examples of a dataset, in their order, into tars that a pattern names.

    out-{00000..}.tar          as many as are needed, numbered from there on; without a number, one
    out-{split}-{0000..}.tar   those of each split apart
    """
    text = os.fspath(pattern)
    mode = next((mode for suffix, mode in _MODES.items() if text.lower().endswith(suffix)), None)
    if mode is None:
        raise SchemaError("expected tars that end in .tar, .tar.gz or .tgz, got another compression", text)
    dataset = load(source, schema=schema, decode=False)
    check_pattern(text, list(dataset))
    check_apart(text, (file.path for file in dataset.files))
    files_already = any(file.rules is not None for file in dataset.files)
    names = {name: name for name in dataset.schema if name != KEY} if files_already else _names(dataset.schema)
    size = format[0] if isinstance(format, Sequence) and not isinstance(format, str) else format
    size = size if isinstance(size, ShardFormat) else ShardFormat()
    meter = Meter(progress)
    text = os.path.abspath(text)
    begun = digest(
        repr(([(file.path, file.bytes) for file in dataset.files], mode, size, shards, dataset.schema)).encode()
    )
    overwrite = finish_interrupted(text) == begun or overwrite
    named = {split: NumberedFiles(text, split, overwrite) for split in dataset}
    for tars in named.values():
        tars.check()
        tars.sweep()
    for split, tars in named.items():
        examples = dataset[split]
        meter.begin(f"writing {split}", len(examples))
        most = -(-len(examples) // shards) if shards else size.shard_examples
        limit = None if shards else size.shard_bytes
        if not is_numbered(text):
            most = limit = None  # one file for all
        with _Tars(tars, mode, most, limit) as out:
            for number, example in enumerate(examples):
                meter(1, out.add(_files(example, number, names, dataset.schema)))
    files = [path for tars in named.values() for path in tars.files]
    rest = [path for tars in named.values() for path in tars.rest()]
    FileCommit([(staged(path), path) for path in files], rest, {}, begun).publish(text)
    return load(files)


def _names(schema: Schema) -> dict[str, str]:
    """Return the extension of the file of each field.

    A field that is the only one of its kind by the kind alone, the others by both; one that is called as such files
    are keeps its name. An image has the extension of its content, which comes later.
    """
    kinds: dict[str, str] = {}
    for name, node in schema.items():
        if not isinstance(node, Field):
            raise SchemaError("expected plain fields, got a nested one", name, "A file in a tar holds one value")
        if name != KEY:
            kinds[name] = _kind(node)
    alone = [kind for kind in kinds.values() if list(kinds.values()).count(kind) == 1]
    names = {}
    for name, kind in kinds.items():
        if kind == "image":
            names[name] = "" if kind in alone else name
        elif name.rpartition(".")[2] in (kind, *_ALSO.get(kind, ())):
            names[name] = name
        else:
            names[name] = kind if kind in alone else f"{name}.{kind}"
    return names


def _kind(field: Field) -> str:
    """Return the extension of a kind of field."""
    if field.kind == "image" and not field.levels:
        return "image"
    if field.levels or (field.shape and field.dtype in ("str", "bytes")):
        if field.dtype == "bytes":
            raise SchemaError(f"expected a type that a file in a tar can hold, got {field}", field.name)
        return "json"
    if field.dtype in ("bytes", "str"):
        return "bin" if field.dtype == "bytes" else "txt"
    return "cls" if field.dtype in INTEGERS and not field.shape else "npy"


def _files(example: Mapping[str, Any], number: int, names: dict[str, str], schema: Schema) -> list[tuple[str, bytes]]:
    """Return the files of an example. Its key is that of its tar, if it comes from one; else its number."""
    own = example.get(KEY)
    key = own if isinstance(own, str) and _KEY.fullmatch(own) else f"{number:09}"
    files = []
    for name, extension in names.items():
        field, value = schema[name], example[name]
        if value is None:
            continue
        assert isinstance(field, Field)
        if _kind(field) == "image":
            kind = (image_type(value) or "image/bin").rpartition("/")[2].replace("jpeg", "jpg")
            extension = f"{extension}.{kind}" if extension else kind
        files.append((f"{key}.{extension}", _content(_kind(field), value)))
    if not files:
        raise SchemaError("expected an example with a value, got none", f"example {number}")
    return files


def _content(kind: str, value: Any) -> bytes:
    if kind in ("image", "bin"):
        return bytes(value)
    if kind == "txt":
        return str(value).encode()
    if kind == "cls":
        return str(int(value)).encode()
    if kind == "json":
        return json.dumps(value.tolist() if hasattr(value, "tolist") else list(value)).encode()
    out = io.BytesIO()
    np.save(out, np.ascontiguousarray(value).reshape(np.shape(value)), allow_pickle=False)
    return out.getvalue()


class _Tars:
    """Tars, one after the other; they get their names when all of them are written."""

    def __init__(self, names: NumberedFiles, mode: str, most: int | None, limit: int | None) -> None:
        self.names = names
        self.mode = mode
        self.most = most
        self.limit = limit
        self._open: tarfile.TarFile | None = None
        self._samples = self._bytes = 0
        self._path = self._temporary = ""
        self._process = os.getpid()

    def add(self, files: list[tuple[str, bytes]]) -> int:
        """Append a sample, which stays together; gives its size."""
        size = sum(_BLOCK + -(-len(data) // _BLOCK) * _BLOCK for _, data in files)
        full = self.limit is not None and self._bytes + size > self.limit
        if self._open is not None and (full or self._samples == self.most):
            self._end()
        archive = self._open or self._begin()
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        self._samples += 1
        self._bytes += size
        return size

    def _begin(self) -> tarfile.TarFile:
        self._path = self.names.next()
        folder, name = os.path.split(self._path)
        self._temporary = os.path.join(folder, f".{name}{NEW}.partial")
        self._open = tarfile.open(self._temporary, self.mode)  # type: ignore[call-overload]  # noqa: SIM115
        self._samples = self._bytes = 0
        return self._open

    def _end(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
            os.replace(self._temporary, staged(self._path))

    def __enter__(self) -> _Tars:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._end()
            return
        if self._process != os.getpid():
            return  # a fork leaves the files to the process that writes them
        if self._open is not None:
            self._open.close()
            with suppress(FileNotFoundError):
                os.unlink(self._temporary)
        self.names.sweep()
