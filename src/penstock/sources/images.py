"""A look at an image file's header: enough to find a broken file without decoding it."""

from __future__ import annotations

from typing import NamedTuple

from .._core import image_header


class ImageHeader(NamedTuple):
    """What the header of an image says."""

    format: str
    width: int
    height: int


def check_image(data: bytes, place: str) -> ImageHeader:
    """The format and the size of an image file, or a CorruptionError that names the place.

    JPEG, PNG, GIF, BMP, WebP and TIFF. A file that ends too early is broken too, as far as its format tells.
    """
    return ImageHeader(*image_header(data, place))
