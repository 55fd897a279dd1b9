"""Records to examples: the codec of what is asked for, and which of it is decoded as images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from .._core import Images
from ..dataset.provenance import Locations
from ..errors import CorruptionError, PenstockError, SchemaError, name_known
from ..records.codec import Codec, first_row
from ..records.layouts import Strings
from ..schema.columns import Array
from ..schema.field import Field
from ..schema.image import Image
from ..schema.schema import Schema
from .spec import Recipe

if TYPE_CHECKING:
    from .remote_reads import Ranged


class Decoder:
    """Reads numbered examples of a recipe, and makes users' columns of what the core has decoded."""

    def __init__(self, recipe: Recipe) -> None:
        self.codec = Codec(recipe.schema, narrow=recipe.narrow)
        self._recipe = recipe
        self.plan = self.codec._plan
        self.shards = recipe.shards
        self.locations = Locations(recipe.files)
        images = images_of(recipe.schema, recipe.decode)
        self.images = Images({name: asdict(image) for name, image in images.items()}) if images else None
        for name in images:
            self.codec._layouts[name] = _Pixels(self.codec._layouts[name].field)
            self.codec._direct_batch = False
        self._direct = self.codec._direct_example
        self._nested = self.codec._nested
        self._read = self.shards.example
        self._ranged = _ranged(recipe)

    def example(self, number: int) -> dict[str, Any]:
        """One example."""
        try:
            if self._direct:
                here = self._ranged is None or self._ranged.are_here([number])
                read = self._read if here or self._ranged is None else self._ranged.example
                raw = read(self.plan, number, self.images)
                return self.codec._example(raw) if self._nested else raw
            return first_row(self.examples([number]))
        except (CorruptionError, SchemaError) as error:
            raise self.named(error) from None

    def examples(self, numbers: Array | list[int], threads: int = 1) -> dict[str, Any]:
        """Some examples, as a batch."""
        try:
            here = self._ranged is None or self._ranged.are_here(numbers)
            shards = self.shards if here or self._ranged is None else self._ranged
            return self.codec._batch(shards.examples(self.plan, numbers, self.images, threads))
        except (CorruptionError, SchemaError) as error:
            raise self.named(error) from None

    def batch(self, raw: dict[str, Any]) -> dict[str, Any]:
        """What the core has decoded, as users see it."""
        return self.codec._batch(raw)

    def named(self, error: PenstockError) -> PenstockError:
        """An error of the core, with the key of the example that it is about."""
        form = self._recipe.form
        number = self.locations.number(error) if self.codec.narrow else None
        if form is None or number is None:
            return self.locations.named(error)
        try:  # integers that did not fit into 32 bits: the framework knows what to do then
            form.convert(Decoder(replace(self._recipe, form=None)).examples([number]))
        except SchemaError as better:
            return SchemaError(f"{better} ({self.locations.of(number)})")
        return self.locations.named(error)


def _ranged(recipe: Recipe) -> Ranged | None:
    """What reads single examples of shards that are elsewhere."""
    if recipe.fetcher is None:
        return None
    from .remote_reads import Ranged

    return Ranged(recipe.files, recipe.fetcher)


class _Pixels(Strings):
    """Images that the core has decoded."""

    def batch(self, raw: Mapping[str, Any]) -> Any:
        return Image._batch(raw[self.key])


def images_of(schema: Schema, decode: Any) -> dict[str, Image]:
    """How each field that holds images is decoded. `decode` is True, False, or says so by field."""
    fields = {leaf.name: leaf for leaf in schema.leaves() if leaf.kind == "image" and not leaf.levels}
    given = decode if isinstance(decode, Mapping) else {}
    images: dict[str, Image] = {}
    for name, field in fields.items():
        wanted = given.get(name, decode is not False and _is_plain(field))
        if not isinstance(wanted, (bool, Image)):
            expected = "expected True, False or Image(...)"
            raise SchemaError(f"{expected}, got {type(wanted).__name__}", f"decode, field {name!r}")
        if wanted is not False:
            images[name] = wanted if isinstance(wanted, Image) else _plain(field)
    return images


def check_decode(schema: Schema, decode: Any) -> None:
    """Refuse options for fields that hold no images."""
    if not isinstance(decode, (bool, Mapping)):
        raise SchemaError(f"expected True, False or options by field, got {type(decode).__name__}", "decode")
    fields = [leaf.name for leaf in schema.leaves() if leaf.kind == "image" and not leaf.levels]
    for name in decode if isinstance(decode, Mapping) else ():
        if name not in fields:
            raise SchemaError(f"no image field {name!r}", "decode", name_known(name, fields, "image fields"))
    images_of(schema, decode)


def _is_plain(field: Field) -> bool:
    """Whether its pixels are bytes, in one frame: others are left to those who know them."""
    return field.decoded is None or (field.decoded.startswith("uint8[") and field.decoded.count(",") == 2)


def _plain(field: Field) -> Image:
    """With the channels that it says; as RGB unless told; where the pixels are classes, as they are stored."""
    if field.classes is not None:
        return Image(channels=None)
    channels = 3 if field.decoded is None else Field.parse(field.decoded).shape[-1]
    return Image(channels=channels if channels in (1, 3, 4) else None)
