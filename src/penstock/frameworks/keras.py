"""Keras: batches of a split by their number, for whichever backend Keras has."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import MissingDependencyError
from ..loading.loader import Split
from .conversion import Tensor

try:
    import keras  # type: ignore[import-not-found]
except ImportError:
    raise MissingDependencyError.needed("keras", "datasets of Keras", extra="keras") from None


class KerasBatches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras is not there when types are checked
    """Batches of a split as NumPy arrays, after a function of each. `fit` shuffles them, unless told otherwise."""

    def __init__(self, split: Split, batch_size: int, function: Callable[[Tensor], Tensor], **options: Tensor) -> None:
        super().__init__(**options)
        self._split = split
        self._size = batch_size
        self._function = function

    def __len__(self) -> int:
        return math.ceil(len(self._split) / self._size)

    def __getitem__(self, index: int) -> Tensor:
        first = index * self._size
        return self._function(self._split[first : first + self._size])
