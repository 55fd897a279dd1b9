"""Masks with a palette: what they mean are the numbers of its entries, and TensorFlow reads their colours."""

from __future__ import annotations

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def grey_of_palette(data: bytes) -> bytes:
    """A PNG of 8 bits with a palette as a grey one whose levels are the entries' numbers; all else as it is.

    Both hold the same bytes: it is the header that says what they mean.
    """
    header = data[16:29]  # width, height, bits, colour, and three more
    if data[:8] != _SIGNATURE or len(header) < 13 or header[8:10] != b"\x08\x03":
        return data
    kept = [_SIGNATURE, _chunk(b"IHDR", header[:9] + b"\0" + header[10:])]
    at = 33
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] not in (b"PLTE", b"tRNS"):
            kept.append(data[at : at + 12 + size])
        at += 12 + size
    return b"".join(kept)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
