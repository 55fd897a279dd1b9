"""`build`: check the arguments, and adapt them to a build."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from ..dataset.manifest import Info, Manifest
from ..dataset.tfds import dataset_directory, is_tfds_name, tfds_notes
from ..errors import SchemaError, check_type, did_you_mean, redact
from ..loading.dataset import Dataset
from ..records.formats import FORMATS, Format
from ..schema.schema import Fields, Schema
from ..sources.splits import Deduped
from ..sources.tfds_builder import GeneratedSplits
from ..storage.files import checked_path
from ..storage.paths import names_record_files
from .engines.engine import Engine
from .engines.local import Local
from .entries import BadExample
from .listing import check_outside, list_splits
from .plan import FormatName, OnError, Options, Order
from .run import BuildResult, run_build
from .sample import count_split_shards, infer_schema, may_multiply, sample_splits
from .targets.directory import Directory
from .targets.plain_files import build_plain_files, check_plain_files
from .targets.store import StoreDirectory

ORDERS: tuple[Order, ...] = get_args(Order)
POLICIES: tuple[OnError, ...] = get_args(OnError)
Formats = FormatName | Format | Sequence[FormatName | Format]
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """Keep bad examples apart, with their tracebacks: a file quarantine.jsonl in the dataset's directory.

    max_errors  so many, and the build ends with an error; any number unless told
    retry       of a dataset that is there, try the bad examples again: only the shards that lack some are written anew
    """

    max_errors: int | None = None
    retry: bool = False

    def __post_init__(self) -> None:
        if self.max_errors is not None and (type(self.max_errors) is not int or self.max_errors < 0):
            raise SchemaError(f"expected max_errors to be 0 or more, got {self.max_errors!r}")


def build(
    source: Any,
    path: str | Path,
    *,
    format: Formats = "tfrecord",
    shards: int | None = None,
    schema: Schema | Fields | str | None = None,
    order: Order = "hash",
    seed: int = 0,
    on_error: OnError | Quarantine = "raise",
    workers: int | None = None,
    engine: Engine | None = None,
    info: Info | None = None,
    overwrite: bool = False,
) -> Built:
    """Build a dataset from a source into a directory. The same build again goes on after whatever has cut it off.

    build([{"x": 1}, {"x": 2}], "data/toy")
    build(image_folder("photos/"), "data/photos", shards=8, on_error="quarantine")

    path       a directory, or the URL of one: s3://, gs://, az://, ais://; "tfds:name" or "tfds:name:1.0.0" is the one
               where TFDS looks for that name; plain files, "train.record" or "{split}/{000..}.tfrecord", and no dataset
    format     "tfrecord" or "array_record", or TFRecord(...) or ArrayRecord(...) with options; a list for both at once
    shards     how many for each split; by size unless told
    schema     what examples hold; found out unless told, from a sample or, with "full", from every example
    order      "hash": by seed and key, whatever the order of the source; "source": as they come; "tfds": by key, as
               TFDS orders them
    on_error   "raise", "skip" or "quarantine" examples that cannot be stored; Quarantine(max_errors=...)
    workers    processes; Local(workers=..., max_memory=..., progress=...) as `engine` says more
    engine     Local(...), or Ray(...) for the machines of a cluster: the same bytes
    info       what people should know of it: Info(name=..., version=..., description=...)
    overwrite  build anew what stands there, or was begun there, even if it was something else
    """
    if engine is not None and workers is not None:
        raise SchemaError("expected workers or an engine, got both", hint="Local(workers=...)")
    if engine is not None:
        check_type(engine, Engine, "Local(...) or Ray(...)", "engine")
    if info is not None:
        check_type(info, Info, "Info(...)", "info")
    check_type(path, (str, os.PathLike), "a path", "build")
    if not os.fspath(path):
        raise SchemaError("expected a path, got an empty one", "build", "The folder that you are in is .")
    path = str(path) if is_tfds_name(path) else checked_path(path, "build")
    check_outside(source, path)
    if isinstance(source, GeneratedSplits):
        schema = source.schema if schema is None else schema
        info = (info or Info()).over(source.info)
    engine = engine or Local(workers=workers)
    are_files = names_record_files(path)
    options = check_options(
        source,
        format=check_plain_files(source, path, format, shards) if are_files else format,
        shards=shards,
        schema=schema,
        order=order,
        seed=seed,
        on_error=on_error,
    )
    if are_files:
        return Built(build_plain_files(source, path, options, engine, info, overwrite=overwrite))
    directory = dataset_directory(path, info)
    target = Directory(directory) if isinstance(directory, Path) else StoreDirectory(directory)
    return Built(run_build(source, target, options, engine, info, overwrite=overwrite))


def check_options(
    source: Any,
    *,
    format: Formats,
    shards: int | None,
    schema: Schema | Fields | str | None,
    order: Order,
    seed: int,
    on_error: OnError | Quarantine,
) -> Options:
    """Check the options of a user. A source may have some too."""
    if shards is not None and (type(shards) is not int or shards < 1):
        raise SchemaError(f"expected shards to be 1 or more, got {shards!r}")
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise SchemaError(f"expected a seed from 0 to 2**64 - 1, got {seed!r}")
    if isinstance(schema, str) and schema != "full":
        raise SchemaError(f'expected a schema or "full", got {schema!r}')
    apart = on_error if isinstance(on_error, Quarantine) else Quarantine()
    return Options(
        schema=None if schema is None or isinstance(schema, str) else Schema(schema),
        on_error="quarantine" if isinstance(on_error, Quarantine) else _one_of("on_error", on_error, POLICIES),
        order=_one_of("order", order, ORDERS),
        formats=checked_formats(format),
        shards=shards,
        seed=seed,
        full=schema == "full",
        max_errors=apart.max_errors,
        retry=apart.retry,
        dedupe=("across" if source.across else "within") if isinstance(source, Deduped) else None,
    )


def checked_formats(asked: Formats) -> tuple[Format, ...]:
    """Return the requested formats. Shards of several formats are cut alike: each holds the same records."""
    several = [asked] if isinstance(asked, (str, Format)) or not isinstance(asked, Sequence) else list(asked)
    formats = tuple(
        each if isinstance(each, Format) else FORMATS[_one_of("format", each, tuple(FORMATS))]() for each in several
    )
    names = [format.name for format in formats]
    if not names or len(set(names)) < len(names):
        raise SchemaError(f"expected each format once, got {' and '.join(names) or 'none'}", "format")
    if len({(format.shard_bytes, format.shard_examples) for format in formats}) > 1:
        hint = "Give both the same shard_bytes and shard_examples"
        raise SchemaError("expected shards of one size in all formats, got others", "format", hint)
    return formats


def _one_of(name: str, value: Word, known: tuple[Word, ...]) -> Word:
    if value not in known:
        expected = " or ".join(map(repr, known))
        raise SchemaError(f"expected {name} to be {expected}, got {value!r}", "", did_you_mean(value, known))
    return value


class Built(Dataset):
    """A dataset as `load` opens it, and what its build did.

    written, kept  shards
    bad_examples   the first of the examples that this build left out: split, key, place and error of each
    leaking        some of the contents that stand in more than one split
    notes          fields of floats that TensorFlow's parser can't read, or that were rounded to 32 bits
    drift          how the schema was widened, and for which example; empty if it was not
    """

    def __init__(self, result: BuildResult) -> None:
        super().__init__(result.opened)
        self.manifest = result.manifest
        self.written = result.written
        self.kept = result.kept
        self.leaking = result.leaking
        self.drift = result.drift
        self.seconds = result.seconds
        self.bad_examples = tuple(_without_traceback(example) for example in result.bad)

    @property
    def bad(self) -> int:
        """Number of examples that could not be stored."""
        return int(self.manifest.found.get("bad", 0))

    @property
    def ignored(self) -> int:
        """Number of examples that asked to be left out."""
        return int(self.manifest.found.get("ignored", 0))

    @property
    def duplicates(self) -> int:
        """Number of examples that were left out because another one has the same record; see `dedupe`."""
        return int(self.manifest.found.get("duplicates", 0))

    @property
    def tfds_notes(self) -> dict[str, str]:
        """Fields that TFDS can't read, or reads differently, each with the reason. Its description has them too."""
        return tfds_notes(self.manifest)

    @property
    def notes(self) -> dict[str, str]:
        """Fields that other readers see differently, each with the reason and the fix."""
        return float_notes(self.manifest)

    @property
    def leaks(self) -> int:
        """Number of contents that are in more than one split."""
        return int(self.manifest.found.get("leaks", 0))

    def __repr__(self) -> str:
        splits = self.manifest.splits.items()
        told = [f"{name} {sum(s.records for s in shards):,} in {len(shards)}" for name, shards in splits]
        rest = [
            f"{count:,} {word}" for word in ("bad", "ignored", "duplicates", "leaks") if (count := getattr(self, word))
        ]
        return f"Built({redact(str(self.path))!r}: {', '.join(told + rest)})"


def _without_traceback(example: BadExample) -> dict[str, str]:
    return {name: text for name, text in example.to_json().items() if name != "traceback"}


def float_notes(manifest: Manifest) -> dict[str, str]:
    """Return what became of inferred floats, by field."""
    notes = {}
    dtypes = {leaf.name: leaf.dtype for leaf in manifest.schema.leaves()}
    for name, kind in manifest.found.get("floats", {}).items():
        if dtypes.get(name) == "float32":
            notes[name] = (
                f"Python floats are stored as float32. To keep 64 bits: {_declared(manifest, name, 'float64')}"
            )
        elif name in dtypes:
            fix = _declared(manifest, name, "float32") if kind == "python" else 'value.astype("float32")'
            problem = "float64 is stored as bytes, which tf.io.parse_example can't read as numbers"
            notes[name] = f"{problem}. To store float32: {fix}"
    return notes


def _declared(manifest: Manifest, name: str, dtype: str) -> str:
    """Return the option that declares a field. A declared schema has all fields: the others are repeated."""
    node = next(leaf for leaf in manifest.schema.leaves() if leaf.name == name)
    text = str(replace(node, dtype=dtype, encoding="auto"))
    others = "" if list(manifest.schema) == [name] else "**built.schema, "
    return f'schema={{{others}"{name}": "{text}"}}'


@dataclass(frozen=True)
class Preview:
    """The plan of a build: the schema as far as a sample shows it, and for each split its examples and shards.

    A split whose number of examples is not known before it is built has None for both.
    """

    schema: Schema
    splits: dict[str, tuple[int, int] | None]


def preview(source: Any, **asked: Any) -> Preview:
    """List the source, load a sample, and plan. The options are those of `build` that decide what is written."""
    options = check_options(source, **asked)
    splits = list_splits(source, options.order, options.seed)
    workers = Local()
    samples = sample_splits(splits, options.on_error, workers)
    schema = options.schema or infer_schema(splits, samples, options.on_error)
    counts: dict[str, tuple[int, int] | None] = {}
    for split in splits:
        if split.stream is not None or options.dedupe or may_multiply(split, workers):
            counts[split.name] = None
        else:
            shards = count_split_shards(split, samples[split.name], schema, options.shards, options.formats[0])
            counts[split.name] = len(split.rows), shards
    return Preview(schema, counts)
