"""Images: what a field holds, and what becomes of it when it is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..errors import check_type
from .columns import Array, Ragged


@dataclass(frozen=True, kw_only=True)
class Image:
    """The annotation of a field that holds an image file, `image: Image`; and, called, how such files are decoded.

    size      (height, width) of the result, exactly
    max_side  the longer side is at most this; smaller images stay as they are
    crop      None: all of the image; "center": its largest centered part of the aspect ratio of `size`; "random": a
              part of a random share of its area (`scale`) in a random aspect ratio (`ratio`: width / height)
    flip      how probable it is that left and right are swapped
    channels  1: grey; 3: RGB; 4: RGB and alpha; None: as stored
    seed      other seeds give other crops and flips

    Crops and flips depend on the seed, the field, the epoch and the example's place in it, and on nothing else.
    """

    size: tuple[int, int] | None = None
    max_side: int | None = None
    crop: str | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    channels: int | None = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "scale", "ratio"):
            value = getattr(self, name)
            if isinstance(value, list):  # as configuration files have them
                object.__setattr__(self, name, tuple(value))
            elif value is not None:
                check_type(value, tuple, "two numbers, such as (224, 224)", name)
        _core.Images({"Image": asdict(self)})  # it refuses what makes no sense

    if TYPE_CHECKING:  # the value of a field annotated with it

        def __get__(self, example: object, kind: type | None = None) -> bytes: ...
        def __set__(self, example: object, value: bytes) -> None: ...

    def decode(self, data: bytes, random: int = 0) -> Array:
        """The pixels of an image file: uint8[height, width, channels]. `random` decides crops and flips."""
        return _core.decode_image(data, random, **asdict(self))

    def resize(self, data: bytes, place: str = "") -> bytes:
        """An image file of this size, in the channels that it has; one of the size stays as it is.

        JPEG stays JPEG, all other formats become PNG. `place` is named where the file is broken.
        """
        return _core.resize_image(data, place, **asdict(self))

    @staticmethod
    def _batch(raw: Any) -> Any:
        """A decoded column as users see it: one array where all images have one size, masked where some are missing."""
        if isinstance(raw, np.ndarray):
            return raw
        values, shapes, row_splits, present = raw
        if row_splits is not None:
            return Ragged._trusted(values, row_splits, shapes, present)
        return np.ma.MaskedArray(values, np.broadcast_to(~present[:, None, None, None], values.shape))
