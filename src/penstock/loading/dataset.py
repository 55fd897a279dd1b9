"""`load`: a dataset as a mapping of splits, and the expressions that name parts of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..dataset.open import Format, Opened, open_dataset
from ..dataset.shards import ShardFiles
from ..errors import ArgumentError, SchemaError, name_known, redact
from ..schema.field import Decode
from ..schema.schema import Fields, Schema
from ..storage.paths import PathLike, Paths
from .loader import Split
from .spec import LoadSpec, OnError, Part


def load(
    path: Paths,
    *,
    schema: Schema | Fields | None = None,
    format: Format | None = None,
    decode: Decode = True,
    on_error: OnError = "raise",
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
        raise ArgumentError(f'expected on_error "raise" or "skip", got {on_error!r}', "load")
    if cache_bytes is not None and (type(cache_bytes) is not int or cache_bytes < 1):
        raise ArgumentError(f"expected cache_bytes to be 1 or more, got {cache_bytes!r}", "load")
    opened = open_dataset(path, schema, format, cache, data_dir, cache_bytes=cache_bytes, decode=decode)
    if not opened.has_fields:
        got = "; ".join(f"{field}: {reason}" for field, reason in opened.unread.items()) or "none"
        raise SchemaError(f"expected at least one field to read, got {got}", str(opened.path), "Give schema={...}")
    return Dataset(opened, decode=decode, on_error=on_error)


class Dataset(Mapping[str, Split]):
    """A dataset: its splits by name, or by an expression such as "train[:80%]" or "train-2013+train-2014"."""

    def __init__(self, opened: Opened, *, decode: Decode = True, on_error: OnError = "raise") -> None:
        self.opened = opened
        self.decode = decode
        self.on_error = on_error
        starts = itertools.accumulate(map(sum, opened.records.values()), initial=0)
        self._starts = dict(zip(opened.records, starts, strict=False))

    @property
    def name(self) -> str:
        """What it is called."""
        return self.opened.name

    @property
    def path(self) -> Path | str:
        """Where it is: a path, or a URL."""
        return self.opened.path

    @property
    def schema(self) -> Schema:
        """What its examples hold."""
        return self.opened.schema

    @property
    def unread(self) -> dict[str, str]:
        """Fields that TFDS stored and that can't be read here, each with the reason."""
        return self.opened.unread

    def __getitem__(self, expression: str) -> Split:
        if not isinstance(expression, str):
            hint = "Take a split first: ds['train'][5]"
            raise KeyError(f"expected the name of a split, got {type(expression).__name__}. {hint}")
        parts = resolve(expression, self.opened.records)
        spans = tuple((self._starts[name] + first, self._starts[name] + last) for name, first, last in parts)
        return Split(LoadSpec(Part(self.opened, spans, self.on_error), decode=self.decode), expression)

    def __contains__(self, expression: object) -> bool:
        """Whether `self[expression]` is a split: a name, or an expression such as "train[:80%]"."""
        try:
            return isinstance(expression, str) and bool(resolve(expression, self.opened.records))
        except (KeyError, ArgumentError):
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened.splits)

    def __len__(self) -> int:
        return len(self.opened.splits)

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

    def __reduce__(self) -> tuple[Callable[..., Dataset], tuple[object, ...]]:
        return _dataset, (self.opened, self.decode, self.on_error)

    def info(self) -> dict[str, Any]:
        """What it is, plain: name, path, splits with their sizes, schema, and what its build or TFDS said."""
        splits = {
            split: {
                "examples": sum(files.records),
                "shards": len(files),
                "bytes": sum(files.sizes),
            }
            for split, files in self.opened.splits.items()
        }
        told: dict[str, Any] = {
            "name": self.name,
            "path": redact(str(self.path)),
            "splits": splits,
            "schema": self.schema.to_json(),
        }
        manifest = self.opened.manifest
        if manifest is not None:
            told |= {part: getattr(manifest, part) for part in ("options", "source", "found", "made")}
            told["formats"] = list(manifest.formats)
        if self.opened.prepared is not None:
            told |= {"tfds": self.opened.prepared.said}
        return told

    @property
    def files(self) -> ShardFiles:
        """All shards, split by split: examples are numbered through them."""
        return self.opened.files

    def fingerprint(self) -> str:
        """Return a digest of the shards, wherever they are."""
        return self.opened.fingerprint()


def _dataset(opened: Opened, decode: Decode, on_error: OnError) -> Dataset:
    return Dataset(opened, decode=decode, on_error=on_error)


# Split expressions
_PART = re.compile(r"(?P<name>[\w-]+)(?:\[(?P<selector>[^\[\]]*)\])?")
_END = re.compile(r"(?:(?P<value>-?[\d_]*\.?\d+)(?P<unit>%|shard)?)?")
_HINT = 'Write it as "train", "train[:80%]", "train[100:200]", "train[1shard]" or "train+test"'
Span = tuple[int, int]


def resolve(expression: str, splits: Mapping[str, Sequence[int]]) -> list[tuple[str, int, int]]:
    """The parts that an expression names: split, first example, and the one after the last.

    `splits` has the number of examples in each shard of every split. "all" stands for every split, unless one is
    called so. An unknown split is a KeyError.
    """
    parts: list[tuple[str, int, int]] = []
    for text in expression.split("+"):
        match = _PART.fullmatch(text.strip())
        if match is None:
            raise _unread(expression)
        name, selector = match["name"], match["selector"]
        if name in splits:
            parts.append((name, *_span(selector, splits[name], text.strip())))
        elif name == "all" and selector is None:
            parts += [(split, 0, sum(lengths)) for split, lengths in splits.items()]
        else:
            raise KeyError(f"no split {name!r}. {name_known(name, splits, 'splits')}")
    return parts


def _span(selector: str | None, lengths: Sequence[int], text: str) -> Span:
    """Which examples of a split a selector means, such as "10%:" in "train[10%:]"."""
    total = sum(lengths)
    if selector is None:
        return 0, total
    ends = [_END.fullmatch(end.strip()) for end in selector.split(":")]
    given = [end for end in ends if end is not None and end["value"] is not None]
    if len(ends) > 2 or not given or None in ends:
        raise _unread(text)
    units = {end["unit"] or "" for end in given}
    if len(units) > 1:
        raise ArgumentError("expected the same unit at both ends", text, _HINT)
    (unit,) = units
    if len(ends) == 1 and unit != "shard":
        raise ArgumentError("expected a slice, such as [10:20] or [:10%]", text, "Only a shard is named by one number")
    values = [None if end is None or end["value"] is None else _number(end["value"], unit, text) for end in ends]
    first, last = values if len(values) == 2 else (values[0], (values[0] or 0) + 1)
    if unit == "%":
        start = 0 if first is None else round(first * total / 100.0)
        stop = total if last is None else round(last * total / 100.0)
    elif unit == "shard":
        start, stop = _shards(first, last, lengths, len(values) == 1, text)
    else:
        start, stop = (0 if first is None else int(first)), (total if last is None else int(last))
    if max(abs(start), abs(stop)) > total:
        raise ArgumentError(f"expected positions within the {total} examples of the split, got [{selector}]", text)
    start, stop = (end + total if end < 0 else end for end in (start, stop))
    return start, max(start, stop)


def _shards(
    first: float | None, last: float | None, lengths: Sequence[int], single: bool, text: str
) -> tuple[int, int]:
    """The examples of some shards. Shards count from the end where they are negative."""
    count = len(lengths)
    low = 0 if first is None else int(first)
    if single and not -count <= low < count:
        raise ArgumentError(f"expected one of the {count} shards of the split", text)
    high = count if last is None else int(last)
    if high <= 0:
        high += count
    return sum(lengths[:low]), sum(lengths[:high])


def _number(value: str, unit: str, text: str) -> float:
    try:
        number = float(value) if unit == "%" else int(value)
    except ValueError:
        raise _unread(text) from None
    if unit == "%" and abs(number) > 100:
        raise ArgumentError(f"expected percents of -100 to 100, got {value}", text)
    return number


def _unread(text: str) -> ArgumentError:
    return ArgumentError("expected a split, or a part of one", repr(text), _HINT)
