"""A look at an image file's header: enough to find a broken file without decoding it."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .._core import image_header
from ..errors import CorruptionError
from ..schema.columns import Array
from .files import kind_of_bytes, shown_text

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


SLACK = 1.0  # pixels that a box may reach over the border: annotators' tools round; it is cut off


def relative_box(
    corners: tuple[float, float, float, float], width: float, height: float, place: str
) -> tuple[float, float, float, float]:
    """The relative box of xmin, ymin, xmax, ymax in pixels."""
    xmin, ymin, xmax, ymax = corners
    if not all(map(math.isfinite, corners)) or xmin > xmax or ymin > ymax:
        raise CorruptionError(f"expected a box of xmin, ymin, xmax, ymax, got {_written(corners)}", place)
    if min(xmin, ymin) < -SLACK or xmax > width + SLACK or ymax > height + SLACK:
        size = f"{width:g} x {height:g} pixels"
        raise CorruptionError(f"expected a box inside of {size}, got {_written(corners)}", place)
    return (_share(ymin, height), _share(xmin, width), _share(ymax, height), _share(xmax, width))


def _share(value: float, size: float) -> float:
    return min(max(value / size, 0.0), 1.0)


def _written(corners: tuple[float, float, float, float]) -> str:
    return ", ".join(f"{value:g}" for value in corners)


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE = 3  # the colour type of a header


def class_numbers(data: bytes, place: str) -> bytes:
    """A PNG with a palette as a grey one whose levels are the numbers of its entries; any other file as it is.

    With 8 bits a pixel both hold the same bytes: it is the header that says what they mean. With fewer, each pixel
    becomes a byte, since the levels of a grey file with 4 bits are 0, 17, 34 ...
    """
    if data[:8] != _SIGNATURE or len(data) < 33 or data[25] != _PALETTE:
        return data
    width, height, bits = struct.unpack_from(">IIB", data, 16)
    if not width or not height or bits not in (1, 2, 4, 8):
        raise CorruptionError(f"expected a mask with pixels of 1 to 8 bits, got {width} x {height} of {bits}", place)
    kept = [(kind, content) for kind, content in _chunks(data) if kind not in (b"IHDR", b"PLTE", b"tRNS", b"bKGD")]
    header = data[16:24] + b"\x08\x00" + data[26:29]
    if bits < 8:
        if data[28]:
            hint = "Save it with 8 bits a pixel"
            raise CorruptionError(
                f"expected a mask that is not interlaced, got one of {bits} bits that is. {hint}", place
            )
        packed = b"".join(content for kind, content in kept if kind == b"IDAT")
        numbers = _unpacked(packed, width, height, bits, place)
        lines = np.insert(numbers, 0, 0, axis=1)  # each begins with its filter: none
        kept = [(b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in [(b"IHDR", header), *kept])


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        at += 12 + size


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _unpacked(packed: bytes, width: int, height: int, bits: int, place: str) -> Array:
    """The numbers of the pixels, where several share a byte."""
    stride = -(-width * bits // 8)
    expected = height * (stride + 1)
    try:
        raw = zlib.decompressobj().decompress(packed, expected)
    except zlib.error as error:
        raise CorruptionError(f"expected the pixels of a PNG, got bytes that do not inflate ({error})", place) from None
    if len(raw) < expected:
        raise CorruptionError(f"expected {expected} bytes of pixels, got {len(raw)}", place)
    lines = np.frombuffer(raw, np.uint8).reshape(height, stride + 1)
    rows = np.zeros((height + 1, stride), np.uint8)
    for number, line in enumerate(lines):
        rows[number + 1] = _unfiltered(int(line[0]), line[1:], rows[number])
    ones = np.unpackbits(rows[1:], axis=1).reshape(height, -1, bits)
    return np.packbits(ones, axis=2)[:, :width, 0] >> (8 - bits)


def _unfiltered(kind: int, line: Array, above: Array) -> Array:
    """A line of a PNG as it was before its filter: what is stored are differences to the bytes on the left or above."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, dtype=np.uint8)
    if kind == 2:
        return line + above
    left = corner = 0
    found = []
    for value, up in zip(line.tolist(), above.tolist(), strict=True):
        if kind == 3:
            near = (left + up) // 2
        else:  # that of the three that is nearest to left + up - corner
            guess = left + up - corner
            near = min((left, up, corner), key=lambda each: abs(guess - each))
        left, corner = (value + near) % 256, up
        found.append(left)
    return np.array(found, np.uint8)
