"""A split: a sequence of examples, each of them at hand; and a loader that reads them in their own order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, overload

import numpy as np

from ..columns import Array
from ..errors import RecordIndexError, SchemaError
from .columnar import rows_of
from .decoding import Decoder
from .loader import Loader
from .recipe import Part, Recipe


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
        from .show import split_text

        return split_text(self)

    def _repr_html_(self) -> str:
        from .show import split_html

        return split_html(self)


__all__ = ["Split"]
