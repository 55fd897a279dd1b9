"""The plan of a build: which example goes where. Pure: the same keys and options give the same plan, everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from .._core import hash_keys, order_numbers
from ..errors import SchemaError
from ..records.formats import Format
from ..schema.columns import Array
from ..schema.schema import Schema

Order = Literal["hash", "source", "tfds"]
OnError = Literal["raise", "skip", "quarantine"]
Dedupe = Literal["within", "across"]
FormatName = Literal["tfrecord", "array_record"]

MOST_NUMBERED = 2**32 - 1  # examples of a split whose keys are their numbers: each takes four bytes of a plan


@dataclass(frozen=True)
class Options:
    """The options that decide what a dataset holds, and what happens to invalid examples.

    schema        The declared schema; None if it is inferred.
    full          Infer the schema from every example, not from a sample.
    short_floats  Store inferred Python floats as float32.
    """

    formats: tuple[Format, ...]
    shards: int | None
    order: Order
    seed: int
    schema: Schema | None
    full: bool
    on_error: OnError
    max_errors: int | None
    retry: bool
    dedupe: Dedupe | None
    short_floats: bool = False

    @property
    def counts_shards(self) -> bool:
        """True if the number of shards is known without the size of the records."""
        return self.shards is not None or self.formats[0].shard_examples is not None

    def to_json(self) -> dict[str, object]:
        """Return the options that decide what is written."""
        plain = {"shards": self.shards, "order": self.order, "seed": self.seed, "dedupe": self.dedupe}
        first, *others = ({"name": format.name, **asdict(format)} for format in self.formats)
        formats = {"format": first, "alternatives": {other.pop("name"): other for other in others}}
        return {**formats, **plain, "schema": self.schema.to_json() if self.schema else None}


@dataclass(frozen=True)
class Task:
    """One file of records: its name, and its examples by number, in order."""

    split: str
    file: str
    rows: Array
    keys: Sequence[str]

    def __str__(self) -> str:
        some = f"{self.keys[0]!r} to {self.keys[-1]!r}" if self.keys else "nothing"
        return f"{self.file} ({len(self.keys)} examples of {self.split}, {some})"


def order_rows(
    split: str,
    keys: list[str] | int,
    *,
    order: str,
    seed: int,
    place: Callable[[int], str] = str,
) -> Array:
    """The numbers of a split's examples in the order of their records.

    `keys` is their number, when each is its own key. A key that stands twice is an error that names both places.
    """
    if isinstance(keys, int):
        if keys > MOST_NUMBERED:
            raise SchemaError(f"expected at most {MOST_NUMBERED} examples in a split, got {keys}", split, "Split it")
        if order == "tfds":
            return tfds_order(split, map(str, range(keys))).astype(np.uint32)
        return order_numbers(keys, seed, split) if order == "hash" else np.arange(keys, dtype=np.uint32)
    hashes = hash_keys(keys, seed, split)
    rows = np.argsort(hashes, kind="stable")
    sorted_hashes = hashes[rows]
    equal = np.flatnonzero(sorted_hashes[1:] == sorted_hashes[:-1])
    if len(equal):
        rows = np.lexsort((np.array(keys, object), hashes))
    for at in equal:
        first, second = sorted((int(rows[at]), int(rows[at + 1])))
        if keys[first] == keys[second]:
            places = [place(first), place(second)]
            if places[0] == places[1]:
                places = [f"example {first}", f"example {second}"]
            got = f"{keys[first]!r} twice, from {' and from '.join(places)}"
            raise SchemaError(f"expected each key once, got {got}", split)
    if order == "tfds":
        return tfds_order(split, keys)
    return rows if order == "hash" else np.arange(len(keys))


def tfds_order(split: str, keys: Iterable[str]) -> Array:
    """The numbers of examples by the MD5 of their split and key: the order in which TFDS and Datum write them."""
    salt = hashlib.md5(split.encode(), usedforsecurity=False)
    digests = bytearray()
    for key in keys:
        salted = salt.copy()
        salted.update(key.replace("\\", "/").encode("utf-8", "surrogatepass"))
        digests += salted.digest()
    halves = np.frombuffer(digests, ">u8").reshape(-1, 2)
    return np.lexsort((halves[:, 1], halves[:, 0]))


def cut_shards(count: int, shards: int) -> Array:
    """Where shards begin and end that share `count` records evenly."""
    return np.array([round(count * number / shards) for number in range(shards + 1)], np.int64)


def cut_files(lengths: Array, most_bytes: int, most_records: int) -> list[int]:
    """Where files begin and end that take as many records as fit, one at least. No records are one empty file."""
    ends = np.cumsum(lengths)
    cuts = [0]
    while cuts[-1] < len(ends) or len(cuts) == 1:
        first = cuts[-1]
        before = int(ends[first - 1]) if first else 0
        fit = int(np.searchsorted(ends, before + most_bytes, side="right"))
        cuts.append(min(max(fit, first + 1), first + most_records, len(ends)))
    return cuts


def count_shards(
    count: int, record_bytes: float, *, shards: int | None, shard_bytes: int, shard_examples: int | None
) -> int:
    """How many shards a split gets: as asked for, or by examples or bytes a shard."""
    if shards is not None:
        return max(1, min(shards, count))
    if shard_examples is not None:
        return max(1, -(-count // shard_examples))
    return max(1, min(count, -(-int(count * record_bytes) // shard_bytes)))
