"""Records to examples: the codec of what is asked for, and which of it is decoded as images."""

from __future__ import annotations

from typing import Any

from .._core import Images
from ..columns import Array
from ..errors import CorruptionError, SchemaError
from ..records.codec import Codec, first_row
from .places import Places
from .recipe import Recipe


class Decoder:
    """Reads numbered examples of a recipe, and makes users' columns of what the core has decoded."""

    def __init__(self, recipe: Recipe) -> None:
        self.codec = Codec(recipe.schema)
        self.images: Images | None = None
        self.plan = self.codec._plan
        self.shards = recipe.shards
        self.places = Places(recipe.files)
        self._direct = self.codec._direct_example and self.images is None

    def example(self, number: int) -> dict[str, Any]:
        """One example."""
        try:
            if self._direct:
                return self.codec._example(self.shards.example(self.plan, number))
            return first_row(self.examples([number]))
        except (CorruptionError, SchemaError) as error:
            raise self.places.named(error) from None

    def examples(self, numbers: Array | list[int], threads: int = 1) -> dict[str, Any]:
        """Some examples, as a batch."""
        try:
            return self.codec._batch(self.shards.examples(self.plan, numbers, self.images, threads))
        except (CorruptionError, SchemaError) as error:
            raise self.places.named(error) from None

    def batch(self, raw: dict[str, Any]) -> dict[str, Any]:
        """What the core has decoded, as users see it."""
        return self.codec._batch(raw)
