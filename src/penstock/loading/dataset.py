"""`load`: a dataset as a mapping of splits."""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import Shards
from ..dataset.open import Opened, open_dataset
from ..dataset.shards import JoinedFiles, ShardFile, ShardFiles
from ..errors import LoadError, SchemaError, redact
from ..schema.schema import Schema
from ..storage.cache import Cache
from ..storage.local import file_stamp
from ..storage.paths import PathLike, Paths
from .decode import check_decode
from .spec import Part, Recipe, fetcher_of, shards_of
from .split import Split, resolve

if TYPE_CHECKING:
    from ..dataset.downloads import Fetcher


def load(
    path: Paths,
    *,
    schema: Schema | Mapping[str, Any] | None = None,
    format: str | None = None,
    decode: bool | Mapping[str, Any] = True,
    on_error: str = "raise",
    cache: PathLike | None = None,
    cache_bytes: int | None = None,
    data_dir: PathLike | None = None,
) -> Dataset:
    """Open a dataset: a directory that `build` made or TFDS prepared, or record or tar files made by anyone.

    ds = load("data/photos")
    ds["train"][5]                         # any example: {"image": array(...), "label": 3}
    ds["train[:80%]"].shuffle(seed=7).batch(64)

    path      a directory, a file, a glob, a range such as "part-{000..146}.tfrecord", or a list of them;
              the URL of any of them: s3://, gs://, az://, http://, https://, ais://;
              "tfds:name", "tfds:name/config:1.0.0": what TFDS prepared under that name
    schema    what the records hold; unless told, what stands beside them, or what a sample of them shows
    format    "tfrecord", "array_record" or "tar", where several are there; found out unless told
    decode    images become arrays; False leaves them, and all files of a tar, as bytes;
              {"image": Image(size=(224, 224))} says how
    on_error  "raise", or "skip" to leave damaged records out, count and report them
    cache     the folder for shards of a URL, and for indexes of files whose own folder cannot be written to;
              ~/.cache/penstock unless told. Processes may share it
    cache_bytes   so many of a URL's shards are kept there; half of the free disk, 100 GiB at most, unless told
    data_dir  where TFDS keeps its datasets: $TFDS_DATA_DIR, or ~/tensorflow_datasets, unless told
    """
    if on_error not in ("raise", "skip"):
        raise SchemaError(f'expected on_error "raise" or "skip", got {on_error!r}', "load")
    if cache_bytes is not None and (type(cache_bytes) is not int or cache_bytes < 1):
        raise SchemaError(f"expected cache_bytes to be 1 or more, got {cache_bytes!r}", "load")
    opened = open_dataset(path, schema, format, cache, data_dir, cache_bytes=cache_bytes, raw=decode is False)
    if not opened.schema.leaves():
        unread = {} if opened.prepared is None else opened.prepared.unread
        got = "; ".join(f"{field}: {reason}" for field, reason in unread.items()) or "none"
        raise SchemaError(f"expected at least one field to read, got {got}", str(opened.path), "Give schema={...}")
    check_decode(opened.schema, decode)
    return Dataset(opened, decode=decode, on_error=on_error)


class Dataset(Mapping[str, Split]):
    """A dataset: its splits by name, or by an expression such as "train[:80%]" or "train-2013+train-2014"."""

    def __init__(self, opened: Opened, *, decode: Any = True, on_error: str = "raise") -> None:
        self._opened = opened
        self.decode = decode
        self.on_error = on_error
        starts = itertools.accumulate((sum(files.records) for files in opened.splits.values()), initial=0)
        self._starts = dict(zip(opened.splits, starts, strict=False))

    @property
    def name(self) -> str:
        """What it is called."""
        return self._opened.name

    @property
    def path(self) -> Path | str:
        """Where it is: a path, or a URL."""
        return self._opened.path

    @property
    def schema(self) -> Schema:
        """What its examples hold."""
        return self._opened.schema

    @property
    def unread(self) -> dict[str, str]:
        """Fields that TFDS stored and that can't be read here, each with the reason."""
        return {} if self._opened.prepared is None else self._opened.prepared.unread

    def __getitem__(self, expression: str) -> Split:
        if not isinstance(expression, str):
            hint = "Take a split first: ds['train'][5]"
            raise KeyError(f"expected the name of a split, got {type(expression).__name__}. {hint}")
        lengths = {split: files.records for split, files in self._opened.splits.items()}
        spans = [(self._starts[name] + a, self._starts[name] + b) for name, a, b in resolve(expression, lengths)]
        return Split(Recipe(Part(self, tuple(spans)), decode=self.decode), expression)

    def __contains__(self, expression: object) -> bool:
        return expression in self._opened.splits

    def __iter__(self) -> Iterator[str]:
        return iter(self._opened.splits)

    def __len__(self) -> int:
        return len(self._opened.splits)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        from .display import dataset_text

        return dataset_text(self)

    def _repr_html_(self) -> str:
        from .display import dataset_html

        return dataset_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Small: another process opens the same files again, and makes sure that they are the same."""
        opened = self._opened
        if opened.manifest is not None:
            given = None if opened.schema == opened.manifest.schema else opened.schema.to_json()
            said = (given, opened.format, self.decode, self.on_error, opened.cache)
            return _reopened, (str(opened.path), *said, self.fingerprint())
        return _restored, (opened, self.decode, self.on_error, platform.node())

    def info(self) -> dict[str, Any]:
        """What it is, plain: name, path, splits with their sizes, schema, and what its build or TFDS said."""
        splits = {
            split: {
                "examples": sum(files.records),
                "shards": len(files),
                "bytes": sum(files.sizes),
            }
            for split, files in self._opened.splits.items()
        }
        told: dict[str, Any] = {
            "name": self.name,
            "path": redact(str(self.path)),
            "splits": splits,
            "schema": self.schema.to_json(),
        }
        manifest = self._opened.manifest
        if manifest is not None:
            told |= {part: getattr(manifest, part) for part in ("options", "source", "found", "made")}
            told["formats"] = list(manifest.formats)
        if self._opened.prepared is not None:
            told |= {"tfds": self._opened.prepared.said}
        return told

    @cached_property
    def files(self) -> ShardFiles:
        """All shards, split by split: examples are numbered through them."""
        return JoinedFiles(self._opened.splits.values())

    @cached_property
    def shards(self) -> Shards:
        """The same, to read from. Each is opened when it is first needed."""
        return shards_of(self.files, self.fetcher)

    @cached_property
    def fetcher(self) -> Fetcher | None:
        """What brings shards that are elsewhere, if there are any."""
        return fetcher_of(self.files)

    def fingerprint(self, spans: Sequence[tuple[int, int]] | None = None) -> str:
        """A digest of the shards that hold some examples, wherever they lie, and of which examples it is.

        Where a dataset is there in several formats, it is that of the first: what they hold is the same.
        """
        digest = hashlib.blake2b(digest_size=8)
        first = 0
        for name, records, size, told in self._contents:
            last = first + records
            inside = [(max(a, first) - first, min(b, last) - first) for a, b in spans or [(first, last)]]
            inside = [(a, b) for a, b in inside if a < b]
            if inside:
                digest.update(repr((name, records, size, told, inside)).encode())
            first = last
        return digest.hexdigest()

    @cached_property
    def _contents(self) -> list[tuple[str, int, int, int | None]]:
        """The shards' names, records, bytes, and CRC-32C where a manifest has them."""
        manifest = self._opened.manifest
        if manifest is None:
            return [(os.path.basename(file.path), file.records, file.bytes, None) for file in self.files]
        shards = itertools.chain.from_iterable(manifest.splits.values())
        return [(shard.file, shard.records, shard.bytes, shard.crc32c) for shard in shards]


def _reopened(
    path: str, schema: Any, format: str | None, decode: Any, on_error: str, cache: Cache | None, fingerprint: str
) -> Dataset:
    given = None if schema is None else Schema.from_json(schema)
    folder, most = (None, None) if cache is None else (cache.given, cache.most)
    said: dict[str, Any] = {"schema": given, "format": format, "decode": decode, "on_error": on_error}
    dataset = load(path, **said, cache=folder, cache_bytes=most)
    if dataset.fingerprint() != fingerprint:
        raise SchemaError("expected the dataset that was pickled, got another one in its place", path, "Load it again")
    return dataset


def _restored(opened: Opened, decode: Any, on_error: str, host: str) -> Dataset:
    if host != platform.node():  # it may have copies of the files: those count from now on
        splits = {split: ShardFiles(map(_stamped, files)) for split, files in opened.splits.items()}
        opened = replace(opened, splits=splits)
    return Dataset(opened, decode=decode, on_error=on_error)


def _stamped(file: ShardFile) -> ShardFile:
    if file.stamp is None:
        return file
    stamp = file_stamp(file.path)
    if stamp[2] != file.bytes:
        problem = f"expected the file of {file.bytes} bytes that was pickled, got {stamp[2]} bytes"
        raise LoadError(f"{problem} - at {file.path}. Call ps.load again", path=file.path)
    return replace(file, stamp=stamp)
