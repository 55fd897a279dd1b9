"""A split: a sequence of examples, each of them at hand; and a loader that reads them in their own order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, overload

import numpy as np

from ..errors import RecordIndexError, SchemaError, name_known
from ..schema.columns import Array
from .decode import Decoder
from .loader import Loader
from .spec import Part, Recipe
from .transforms.batch import rows_of


class Split(Loader):
    """A split, or a part of one, or several one after the other.

    split[5], split[-1]           an example
    split[100:200], split[[5, 900, 12]]   a batch: a dict with a column for each field
    len(split), for example in split

    It has all methods of a Loader; torch's DataLoader and Grain take it as it is.
    """

    def __init__(self, recipe: Recipe, expression: str) -> None:
        super().__init__(recipe)
        self.name = expression
        assert isinstance(recipe.root, Part)
        self._part = recipe.root
        self._length = recipe.root.length
        spans = recipe.root.spans
        self._first = spans[0][0] if len(spans) == 1 else None
        self._ends = list(accumulate(last - first for first, last in spans))

    def __getstate__(self) -> tuple[Recipe, str]:
        return self._recipe, self.name

    def __setstate__(self, state: tuple[Recipe, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self._recipe)

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int]) -> dict[str, Any]: ...
    def __getitem__(self, index: Any) -> dict[str, Any]:
        if type(index) is int and self._first is not None and 0 <= index < self._length:  # nearly always
            return self._decoder.example(self._first + index)
        if isinstance(index, (slice, list, tuple, np.ndarray, range)):
            return self._decoder.examples(self._numbers(index))
        return self._decoder.example(self._number(index))

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Some examples, each on its own: what torch's DataLoader asks for."""
        return rows_of(self._decoder.examples(self._numbers(indices)))

    def _number(self, index: Any) -> int:
        """The number that an example has in the dataset."""
        length = self._length
        try:
            position = index + length if index < 0 else index
            if 0 <= position < length:
                if self._first is not None:
                    return self._first + position.__index__()  # type: ignore[no-any-return]
                return int(self._translated(np.array([position.__index__()]))[0])
        except (TypeError, AttributeError):
            kind = type(index).__name__
            raise TypeError(
                f"expected an int, a slice or a list of ints, got {kind} - at split {self.name!r}"
            ) from None
        raise RecordIndexError(f"example {index} is outside of the split {self.name!r} of {length} examples")

    def _numbers(self, indices: slice | Sequence[int] | Array) -> Array:
        if isinstance(indices, slice):
            return self._translated(np.arange(*indices.indices(self._length)))
        positions = np.asarray(indices)
        if positions.size == 0:
            return np.empty(0, np.int64)
        if positions.dtype == bool or positions.dtype.kind not in "iu" or positions.ndim != 1:
            raise SchemaError(
                f"expected a list of ints, got {positions.dtype}{list(positions.shape)}", f"split {self.name!r}"
            )
        outside = (positions < -self._length) | (positions >= self._length)
        if outside.any():
            self._number(int(positions[outside][0]))
        return self._translated(np.where(positions < 0, positions + self._length, positions).astype(np.int64))

    def _translated(self, positions: Array) -> Array:
        if self._first is not None:
            return positions + self._first
        starts = np.array([first for first, _ in self._part.spans])
        ends = np.array([0, *self._ends])
        span = np.searchsorted(ends[1:], positions, side="right")
        numbers: Array = positions - ends[span] + starts[span]
        return numbers

    def key(self, index: int) -> str | None:
        """The key that an example had in the source that it was built from, if that is known."""
        return self._decoder.locations.of(self._number(index)).key

    def __repr__(self) -> str:
        from .display import split_text

        return split_text(self)

    def _repr_html_(self) -> str:
        from .display import split_html

        return split_html(self)


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
        raise SchemaError("expected the same unit at both ends", text, _HINT)
    (unit,) = units
    if len(ends) == 1 and unit != "shard":
        raise SchemaError("expected a slice, such as [10:20] or [:10%]", text, "Only a shard is named by one number")
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
        raise SchemaError(f"expected positions within the {total} examples of the split, got [{selector}]", text)
    start, stop = (end + total if end < 0 else end for end in (start, stop))
    return start, max(start, stop)


def _shards(
    first: float | None, last: float | None, lengths: Sequence[int], single: bool, text: str
) -> tuple[int, int]:
    """The examples of some shards. Shards count from the end where they are negative."""
    count = len(lengths)
    low = 0 if first is None else int(first)
    if single and not -count <= low < count:
        raise SchemaError(f"expected one of the {count} shards of the split", text)
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
        raise SchemaError(f"expected percents of -100 to 100, got {value}", text)
    return number


def _unread(text: str) -> SchemaError:
    return SchemaError("expected a split, or a part of one", repr(text), _HINT)
