"""A look at an image file's header: enough to find a broken file without decoding it."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ..errors import CorruptionError

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the markers that begin a frame
_JPEG_ALONE = frozenset(range(0xD0, 0xD9)) | {0x01}  # the markers without a length
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xae\x42\x60\x82"

_U16 = Struct(">H")
_U16_PAIR = Struct(">HH")
_LITTLE_U16_PAIR = Struct("<HH")
_LITTLE_I32_PAIR = Struct("<ii")
_LITTLE_U32 = Struct("<I")
_U32_PAIR = Struct(">II")


class ImageHeader(NamedTuple):
    """What the header of an image says."""

    format: str
    width: int
    height: int


class _BrokenError(Exception):
    """What is wrong with the bytes."""


def check_image(data: bytes, place: str) -> ImageHeader:
    """The format and the size of an image file, or a CorruptionError that names the place.

    JPEG, PNG, GIF, BMP and WebP. A file that ends too early is broken too, as far as its format tells.
    """
    try:
        header = _look(data)
        if header.width < 1 or header.height < 1:
            raise _BrokenError(f"{header.format} of {header.width} x {header.height} pixels")
    except _BrokenError as problem:
        raise CorruptionError(f"expected an image, got {problem}", place) from None
    return header


def _look(data: bytes) -> ImageHeader:
    if not data:
        raise _BrokenError("an empty file")
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    if data.startswith(_PNG_MAGIC):
        return _png(data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ImageHeader("GIF", *_read(_LITTLE_U16_PAIR, data, 6, "GIF"))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data.startswith(b"BM"):
        return _bmp(data)
    raise _BrokenError(f"bytes of no known format ({data[:8].hex(' ')})")


def _read(layout: Struct, data: bytes, offset: int, format: str) -> tuple[int, ...]:
    if offset + layout.size > len(data):
        raise _BrokenError(f"a {format} that ends in its header")
    return layout.unpack_from(data, offset)


def _jpeg(data: bytes) -> ImageHeader:
    """Walk from marker to marker, each with the length of what follows, up to the first scan."""
    header = None
    offset = 2
    while True:
        if offset + 1 >= len(data):
            raise _BrokenError("a JPEG that ends in its header")
        if data[offset] != 0xFF:
            raise _BrokenError(f"a JPEG without a marker at offset {offset}")
        marker = data[offset + 1]
        if marker == 0xFF:  # filling
            offset += 1
            continue
        if marker in _JPEG_ALONE:
            offset += 2
            continue
        if marker == 0xD9:
            raise _BrokenError("a JPEG without an image in it")
        (length,) = _read(_U16, data, offset + 2, "JPEG")
        if length < 2:
            raise _BrokenError(f"a JPEG with a segment of {length} bytes at offset {offset}")
        if marker in _JPEG_FRAMES and header is None:
            height, width = _read(_U16_PAIR, data, offset + 5, "JPEG")
            header = ImageHeader("JPEG", width, height)
        offset += 2 + length
        if marker == 0xDA:
            break
    if header is None:
        raise _BrokenError("a JPEG without a frame header")
    if data.rfind(b"\xff\xd9", offset) < 0:  # in a scan, 0xff stands for itself only before 0x00
        raise _BrokenError("a JPEG that ends too early: it has no end marker")
    return header


def _png(data: bytes) -> ImageHeader:
    if data[8:16] != b"\0\0\0\rIHDR":
        raise _BrokenError("a PNG without its header")
    width, height = _read(_U32_PAIR, data, 16, "PNG")
    if data.rfind(_PNG_END, 24) < 0:
        raise _BrokenError("a PNG that ends too early: it has no end chunk")
    return ImageHeader("PNG", width, height)


def _webp(data: bytes) -> ImageHeader:
    (size,) = _read(_LITTLE_U32, data, 4, "WebP")
    if size + 8 > len(data):
        raise _BrokenError(f"a WebP that ends too early: {len(data)} of {size + 8} bytes")
    kind = data[12:16]
    if len(data) < 30:
        raise _BrokenError("a WebP that ends in its header")
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    else:
        raise _BrokenError("a WebP without an image in it")
    return ImageHeader("WebP", width, height)


def _bmp(data: bytes) -> ImageHeader:
    (start,) = _read(_LITTLE_U32, data, 10, "BMP")
    (size,) = _read(_LITTLE_U32, data, 14, "BMP")
    if size == 12:
        width, height = _read(_LITTLE_U16_PAIR, data, 18, "BMP")
        _, depth = _read(_LITTLE_U16_PAIR, data, 22, "BMP")
        compression = 0
    elif size >= 40:
        width, height = _read(_LITTLE_I32_PAIR, data, 18, "BMP")
        height = abs(height)  # negative: from the top down
        _, depth = _read(_LITTLE_U16_PAIR, data, 26, "BMP")
        (compression,) = _read(_LITTLE_U32, data, 30, "BMP")
    else:
        raise _BrokenError(f"a BMP with a header of {size} bytes")
    needed = start + (width * depth + 31) // 32 * 4 * height
    if compression == 0 and len(data) < needed:
        raise _BrokenError(f"a BMP that ends too early: {len(data)} of {needed} bytes")
    return ImageHeader("BMP", width, height)
