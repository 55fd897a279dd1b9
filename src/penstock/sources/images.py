"""A look at an image file's header: enough to find a broken file without decoding it."""

from __future__ import annotations

from typing import NamedTuple

from .._core import image_header
from ..errors import CorruptionError
from .file_kinds import kind_of_bytes, shown_text

READABLE = "JPEG, PNG, GIF, BMP or WebP"


class ImageHeader(NamedTuple):
    """What the header of an image says."""

    format: str
    width: int
    height: int


def check_image(data: bytes, place: str) -> ImageHeader:
    """The format and the size of an image file, or a CorruptionError that names the place.

    JPEG, PNG, GIF, BMP, WebP and TIFF. A file that ends too early is broken too, as far as its format tells.
    """
    try:
        return ImageHeader(*image_header(data, place))
    except CorruptionError as error:
        if "no known format" not in str(error):
            raise
        text = shown_text(data)
        kind, fix = kind_of_bytes(data) or (f"text that begins with {text!r}" if text else "", "Replace the file")
        if not kind:
            raise
        raise CorruptionError(f"expected an image of {READABLE}, got {kind}. {fix}", place) from None
