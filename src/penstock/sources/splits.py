"""Splits: which examples belong to train, eval, test.

Where an example goes depends on its key and the seed alone, never on its neighbours: neither the order of the input nor
data that is added moves it. The rule is a promise, and this is all of it:

    h = BLAKE2b of the key in UTF-8, 8 bytes, read as a little-endian number
        (the hash's key: the seed in decimal ASCII; its personalization: "penstock split")
    the example belongs to the first split with h < c * 2**64, where c is the sum of the ratios up to that split,
    added as float64 in the order they were given; the last split takes the rest

With `group`, the text of the group takes the place of the key. With `stratify`, each label's examples are sorted by
(h, key) and dealt out by counts. A number's text is the shortest that reads back; a whole number has no fraction.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import reprlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

import numpy as np

from ..errors import SchemaError, name_known
from ..schema.columns import Array, Value
from .adapt import as_source, is_column
from .protocol import RESTART, Source, Stream, StreamSubset, Subset, keyed_examples, read_column, value_of, view
from .table import table

_NAME = re.compile(r"[\w-]+")
_PERSON = b"penstock split"


class Splits(Mapping[str, Any]):
    """Splits by name, each a source, in order. Made by `splits`, `split`, and by sources that find splits on disk."""

    __slots__ = ("_sources",)

    def __init__(self, sources: Mapping[str, Any]) -> None:
        if not isinstance(sources, Mapping) or not sources:
            raise SchemaError(f"expected a source for each split, got {reprlib.repr(sources)}", hint="train=source")
        for name, source in sources.items():
            _check_name(name)
            if not _may_be_source(source):
                raise SchemaError(f"expected a source of examples, got {type(source).__name__}", name)
        self._sources = dict(sources)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._sources[name]
        except KeyError:
            raise KeyError(f"no split {reprlib.repr(name)}. {name_known(name, self._sources, 'splits')}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __repr__(self) -> str:
        sizes = (f"{name}: {len(s) if isinstance(s, Sized) else '?'}" for name, s in self._sources.items())
        return f"Splits({', '.join(sizes)})"

    def leave_out(self, name: str) -> Splits:
        """One round of cross-validation: eval is the named split, train all the others."""
        held = self[name]
        rest = [source for other, source in self.items() if other != name]
        if not rest or not all(isinstance(s, Subset) and s.source is getattr(held, "source", None) for s in rest):
            raise SchemaError("expected splits of one listed source, such as split(source, folds=5) makes", name)
        indices = np.sort(np.concatenate([source.indices for source in rest]))
        return Splits({"train": view(held.source, indices), "eval": held})


def splits(**sources: Any) -> Splits:
    """Splits that are there already: `splits(train=a, eval=b)`."""
    return Splits(sources)


def split(
    source: object,
    *,
    seed: int = 0,
    group: str | None = None,
    stratify: str | None = None,
    cut: object = None,
    by: str | None = None,
    folds: int | None = None,
    **ratios: float,
) -> Splits:
    """Split a source: `split(source, train=0.8, eval=0.1, test=0.1)`. Where an example goes depends on its key.

    group     a column: examples of one group stay together, in one split
    stratify  a column: each split gets its share of every label, as near as whole examples allow
    by        a column that names the split of each example; with `cut`, the column that is cut
    cut       by="date", cut="2020-01-01": train is before, test from then on; or {"eval": "2019-01-01", "test": ...}:
              where each split begins, after train. Dates in ISO form, datetimes or numbers
    folds     k splits of equal share, fold-0 ...; each example is in one. See `Splits.leave_out`
    """
    if isinstance(source, Splits):
        raise SchemaError(f"expected a source without splits, got {source!r}", hint="Split one of them: source[name]")
    _check_choice(ratios, group=group, stratify=stratify, cut=cut, by=by, folds=folds)
    if folds is not None:
        ratios = dict.fromkeys(_fold_names(folds), 1 / folds)
    kind, names, bounds = _shares(ratios) if ratios else _cuts(cut) if cut is not None else ("name", (), ())
    rule = Rule(kind, names, bounds, _checked_seed(seed), group or by)
    source = as_source(source)
    if isinstance(source, Stream):
        return _split_stream(source, rule, stratify)
    if not len(source):
        raise SchemaError("expected examples to split, got none")
    if stratify is not None:
        numbers = _stratified(source, rule, read_column(source, stratify), list(ratios.values()))
    else:
        names, numbers = _assigned(source, rule)
    counts = np.bincount(numbers, minlength=len(names))
    if not counts.all():
        empty = ", ".join(name for name, count in zip(names, counts, strict=True) if not count)
        hint = "Move the cut" if cut is not None else "Give it more examples, a larger ratio or another seed"
        raise SchemaError(f"expected examples in every split, got none of {len(source)}", empty, hint)
    return Splits({name: view(source, np.flatnonzero(numbers == n)) for n, name in enumerate(names)})


# The rule
@dataclass(frozen=True)
class Rule:
    """Where an example goes; a function of its key, or of one of its columns.

    kind  "share": by hash and ratio; "time", "number": by where a value lies; "name": the column says it
    """

    kind: str
    names: tuple[str, ...]
    bounds: tuple[Any, ...]  # where each split but the first begins: a hash, a time or a number
    seed: int
    column: str | None

    def __call__(self, key: str, example: object, where: str) -> str:
        """The split of an example that is at hand."""
        value = key if self.column is None else value_of(example, self.column, where)
        return self.name_of(value, where)

    def name_of(self, value: object, where: str = "") -> str:
        """The split for a key, or for the value of the rule's column."""
        if self.kind in ("time", "number"):
            return self.names[bisect_right(self.bounds, moment(value, self.kind == "time", where))]
        text = _text(value, where)
        if text is None or (self.kind == "name" and not text):
            raise SchemaError(f"expected a value in {self.column!r}, got nothing", where, "Every example needs one")
        if self.kind == "name":
            return _check_name(text.decode("utf-8", "replace"), where)
        return self.names[bisect_right(self.bounds, self.hash(text))]

    def to_json(self) -> dict[str, object]:
        """What it says, plain."""
        parts = {"kind": self.kind, "names": list(self.names), "seed": self.seed, "column": self.column}
        return parts | {"bounds": list(map(str, self.bounds))}

    def hash(self, text: bytes) -> int:
        """A number below 2**64."""
        digest = hashlib.blake2b(text, digest_size=8, key=str(self.seed).encode(), person=_PERSON).digest()
        return int.from_bytes(digest, "little")


def _assigned(source: Source, rule: Rule) -> tuple[tuple[str, ...], Array]:
    """The splits' names, and the number of each example's split."""
    values = read_column(source, rule.column) if rule.column else source.all_keys()
    known: dict[Any, str] = {}
    found: list[str] = []
    for index, value in enumerate(values):
        name = known.get((type(value), value)) if isinstance(value, (str, bytes, int)) else None
        if name is None:
            try:
                name = rule.name_of(value)
            except SchemaError:
                rule.name_of(value, source.place(index))  # again, to say where
                raise
            if rule.column and isinstance(value, (str, bytes, int)):  # values repeat, keys do not
                known[type(value), value] = name
        found.append(name)
    names = rule.names or tuple(sorted(set(found), key=_train_first))
    numbers = {name: number for number, name in enumerate(names)}
    return names, np.fromiter(map(numbers.__getitem__, found), np.int64, len(found))


def _train_first(name: str) -> tuple[bool, str]:
    return name != "train", name


def _stratified(source: Source, rule: Rule, labels: Sequence[Value], ratios: list[float]) -> Array:
    """Each label's examples, sorted by their hash, are dealt out by counts."""
    strata: dict[bytes | None, list[tuple[int, bytes, int]]] = {}
    for index, (key, label) in enumerate(zip(source.all_keys(), labels, strict=True)):
        data = key.encode("utf-8", "surrogatepass")
        try:
            stratum = _text(label)
        except SchemaError:
            _text(label, source.place(index))
            raise
        strata.setdefault(stratum, []).append((rule.hash(data), data, index))
    numbers = np.empty(len(labels), dtype=np.int64)
    for stratum, members in strata.items():
        indices = [index for _, _, index in sorted(members)]
        ties = [rule.hash(b"%s/%d" % (stratum or b"", n)) for n in range(len(ratios))]
        numbers[indices] = np.repeat(np.arange(len(ratios)), _counts(len(indices), ratios, ties))
    return numbers


def _counts(total: int, ratios: list[float], ties: list[int]) -> list[int]:
    """Whole numbers nearest to the ratios: rounded down, and what is left goes to the largest remainders."""
    exact = [total * ratio / math.fsum(ratios) for ratio in ratios]
    counts = [math.floor(share + 1e-9) for share in exact]
    order = sorted(range(len(ratios)), key=lambda n: (-round(exact[n] - counts[n], 9), ties[n]))
    for n in order[: total - sum(counts)]:
        counts[n] += 1
    return counts


def _split_stream(source: Stream, rule: Rule, stratify: str | None) -> Splits:
    if stratify is not None:
        hint = "Split by ratios or by group, or list the examples first"
        raise SchemaError("stratify counts examples, and a stream has no length", hint=hint)
    names = rule.names
    if not names:  # the column names them: a pass to find them
        if not source.restarts:
            raise SchemaError("expected a stream that can start again, got one that runs once", hint=RESTART)
        names = tuple(sorted({rule(key, item, key) for key, item in keyed_examples(source)}, key=_train_first))
    return Splits({name: StreamSubset(source, rule, name, rule.to_json()) for name in names})


def as_splits(given: object) -> dict[str, Source | Stream]:
    """Return the sources of all splits by name. A source without splits is train.

    A dict of sources or of lists of examples is splits, a dict of columns is a table.
    """
    if isinstance(given, Splits):
        return {name: as_source(part) for name, part in given.items()}
    if not isinstance(given, Mapping):
        return {"train": as_source(given)}
    columns = {name: is_column(value) for name, value in given.items()}
    if all(columns.values()):
        return {"train": table(given)}
    if any(columns.values()):
        kinds = ", ".join(f"{name!r} is a {'column' if columns[name] else 'source'}" for name in given)
        hint = "Write splits(train=..., test=...) for splits, table({...}) for columns"
        raise SchemaError(f"expected a dict of columns or a dict of splits, got both: {kinds}", hint=hint)
    return {name: as_source(part) for name, part in Splits(given).items()}


def split_names(given: object) -> list[str]:
    """Return the names of the splits of whatever a build may be given."""
    if isinstance(given, Deduped):
        return split_names(given.source)
    if isinstance(given, Mapping) and (isinstance(given, Splits) or not all(map(is_column, given.values()))):
        return list(given)
    return ["train"]


def _may_be_source(given: object) -> bool:
    if isinstance(given, (str, bytes, Splits)):
        return False
    return isinstance(given, (Source, Stream, Iterable, Sized)) or callable(given)


# Options
def _check_choice(ratios: Mapping[str, float], **options: Any) -> None:
    given = {name for name, value in options.items() if value is not None}
    ways = [way for way, on in (("ratios", ratios), ("folds", "folds" in given), ("by", "by" in given)) if on]
    if "cut" in given and "by" not in given:
        raise SchemaError("expected the column that is cut, got none", "cut", 'Write by="date" beside it')
    if len(ways) != 1:
        got = " and ".join(ways) or "none"
        raise SchemaError(f"expected one of ratios (train=0.8, eval=0.2), folds and by, got {got}")
    for clash in ({"group", "stratify"}, {"by", "group"}, {"by", "stratify"}):
        if clash <= given:
            raise SchemaError(f"expected one of {' and '.join(sorted(clash))}, got both")
    for name in ("group", "stratify", "by"):
        if name in given and not (isinstance(options[name], str) and options[name]):
            raise SchemaError(f"expected the name of a column, got {reprlib.repr(options[name])}", name)


def _check_name(name: object, where: str = "") -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "all":
        hint = '"all" stands for all splits' if name == "all" else "Use letters, digits, _ and -"
        raise SchemaError(f"expected a split's name, got {reprlib.repr(name)}", where, hint)
    return name


def _checked_seed(seed: object) -> int:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or abs(int(seed)) >= 2**64:
        raise SchemaError(f"expected an int below 2**64, got {reprlib.repr(seed)}", "seed")
    return int(seed)


def _fold_names(folds: object) -> list[str]:
    if not isinstance(folds, int) or isinstance(folds, bool) or folds < 2:
        raise SchemaError(f"expected 2 folds or more, got {reprlib.repr(folds)}", "folds")
    return [f"fold-{number}" for number in range(folds)]


def _shares(ratios: Mapping[str, float]) -> tuple[str, tuple[str, ...], tuple[Any, ...]]:
    for name, ratio in ratios.items():
        _check_name(name)
        number = isinstance(ratio, (int, float, np.integer, np.floating)) and not isinstance(ratio, bool)
        if not number or not ratio > 0:
            raise SchemaError(f"expected a ratio above 0, got {reprlib.repr(ratio)}", name)
    total = math.fsum(ratios.values())
    if not abs(total - 1) <= 1e-9:
        written = ", ".join(f"{name}={ratio}" for name, ratio in ratios.items())
        raise SchemaError(f"expected ratios that sum to 1, got {written}, the sum {total:.10g}")
    sums = itertools.accumulate(float(ratio) for ratio in list(ratios.values())[:-1])
    return "share", tuple(ratios), tuple(int(c * 2**64) for c in sums)


def _cuts(cut: object) -> tuple[str, tuple[str, ...], tuple[Any, ...]]:
    begins = dict(cut) if isinstance(cut, Mapping) else {"test": cut}
    if not begins or next(iter(begins.values())) is not None:
        if "train" in begins or not begins:
            raise SchemaError(f"expected where eval or test begins, got {reprlib.repr(cut)}", "cut", "train is before")
        begins = {"train": None, **begins}
    names = tuple(_check_name(name, "cut") for name in begins)
    points = list(begins.values())[1:]
    times = not (points and isinstance(points[0], (int, float, np.integer, np.floating)))
    moments = [moment(point, times, "cut") for point in points]
    if not moments or any(a >= b for a, b in itertools.pairwise(moments)):
        raise SchemaError(f"expected cuts that rise, got {reprlib.repr(cut)}", "cut")
    return "time" if times else "number", names, tuple(moments)


def _text(value: object, where: str = "") -> bytes | None:
    """What is hashed for a value; None for a missing one."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if value is np.ma.masked:
        return None
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        value = str(value) if value.dtype.kind == "M" and not np.isnat(value) else value.item()
    if value is None or (isinstance(value, (float, date)) and value != value):
        return None
    if isinstance(value, bytes):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (str, int, float, date)):
        raise SchemaError(f"expected a text or a number, got {type(value).__name__}", where)
    return str(value).encode("utf-8", "surrogatepass")


_ISO = re.compile(r"(\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d{1,18})?)?)?)?)?)?)(Z|[+-]\d\d:?\d\d)?")


def moment(value: Value, times: bool, where: str) -> int | float:
    """A number that can be compared: a time in microseconds since 1970, UTC unless it says otherwise; or the value."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not times:
        if number and value == value:
            return value  # type: ignore[no-any-return]
        raise SchemaError(f"expected a number, as the cut is one, got {reprlib.repr(value)}", where)
    hint = "Give the cut as a number too" if number else "Write it as 2020-01-31 or 2020-01-31T23:59:59"
    try:
        time = _time(value)
    except ValueError:
        time = None
    if time is None or np.isnat(time):
        raise SchemaError(f"expected a date, got {reprlib.repr(value)}", where, hint)
    return int(time.astype("datetime64[us]").astype(np.int64))


def _time(value: object) -> np.datetime64 | None:
    if isinstance(value, np.datetime64):
        return value
    if isinstance(value, date):
        if value != value:  # pandas' NaT
            return None
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        value = value.isoformat()
    match = _ISO.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    time = np.datetime64(match[1], "us")
    if match[2] in (None, "Z"):
        return time
    sign, hours, minutes = match[2][0], int(match[2][1:3]), int(match[2][-2:])
    offset = np.timedelta64((60 * hours + minutes) * (1 if sign == "+" else -1), "m")
    return time - offset


@dataclass(frozen=True)
class Deduped:
    """What a build makes without duplicates: in each split, or across all."""

    source: Any
    across: bool


def dedupe(source: object, *, across: bool = False) -> Deduped:
    """Leave out examples whose record is that of another one, to the byte.

        build(dedupe(rows), "data/rows")
        build(dedupe(split(rows, train=0.9, test=0.1), across=True), "data/rows")

    across  not only within each split: an example that stands in an earlier split is left out of the later ones

    The first one stays, in the order of the records: neither the order of the input nor the workers decide which that
    is, unless the build is to keep the order of the source.
    """
    if isinstance(source, Deduped):
        raise SchemaError("expected a source, got one that is deduped already")
    return Deduped(source, across)
