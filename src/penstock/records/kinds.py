"""What kind of bytes a record holds that is no tf.Example: a name for error messages."""

from __future__ import annotations

import json
import re

_MAGIC = {
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"GIF8": "a GIF image",
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a ZIP archive (.zip, .npz, .pt)",
    b"\x1f\x8b\x08": "gzip data",
    b"(\xb5/\xfd": "Zstandard data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\0": "xz data",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"%PDF-": "a PDF file",
    b"fLaC": "FLAC audio",
    b"OggS": "Ogg audio",
    b"ID3": "MP3 audio",
}
UNKNOWN = "bytes of an unknown kind"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_FIELDS = 1000  # of a protobuf message that are looked at
_DEPTH = 32
_MOST_LOOKED_AT = 1 << 20


def byte_kind(data: bytes) -> str:
    """Return a description of bytes, such as "a JPEG image" or "JSON"."""
    if not data:
        return "no bytes"
    if data[:4] == b"RIFF":
        return {b"WEBP": "a WebP image", b"WAVE": "WAV audio"}.get(data[8:12], "a RIFF file")
    if data[:2] == b"BM" and int.from_bytes(data[2:6], "little") == len(data):
        return "a BMP image"
    if data[4:8] == b"ftyp":
        return "an MP4 file"
    for magic, name in _MAGIC.items():
        if data.startswith(magic):
            return name
    if _PICKLE.match(data) and data.endswith(b"."):
        return "a Python pickle"
    if _is_json(data):
        return "JSON"
    if _is_text(data):
        return "plain text"
    if data[0] >= 0x80 and len(data) <= _MOST_LOOKED_AT and _msgpack_end(data, 0, 0) == len(data):
        return "MessagePack"
    if _is_protobuf(data):
        return "a protobuf message of another type"
    shown = data[:16].hex(" ")
    return f"{UNKNOWN} ({shown}{' ...' if len(data) > 16 else ''})"


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(letter.isprintable() or letter in "\t\n\r" for letter in text)


def _is_json(data: bytes) -> bool:
    if data.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _varint(data: bytes, at: int) -> tuple[int, int] | None:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return None
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    return None


def _is_protobuf(data: bytes) -> bool:
    """True if the bytes are fields of protobuf from the first to the last, as far as they are looked at."""
    at = 0
    for _ in range(_FIELDS):
        if at == len(data):
            return True
        tag = _varint(data, at)
        if tag is None or not tag[0] >> 3 or tag[0] >> 3 > (1 << 29) - 1:
            return False
        wire, at = tag[0] & 7, tag[1]
        if wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire in (0, 2):
            found = _varint(data, at)
            if found is None:
                return False
            at = found[1] + (found[0] if wire == 2 else 0)
        else:
            return False
        if at > len(data):
            return False
    return True


def _msgpack_end(data: bytes, at: int, depth: int) -> int:
    """Return where the MessagePack value at a position ends, -1 if there is none."""
    if at >= len(data) or depth > _DEPTH:
        return -1
    first, at = data[at], at + 1
    if first < 0x80 or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
        return at
    sizes = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
    fixed = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17} | sizes
    if first in fixed:
        return at + fixed[first] if at + fixed[first] <= len(data) else -1
    lengths = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
    if first in lengths or 0xA0 <= first < 0xC0:
        width = lengths.get(first, 0)
        length = int.from_bytes(data[at : at + width], "big") if width else first & 0x1F
        end = at + width + length + (1 if first in (0xC7, 0xC8, 0xC9) else 0)
        return end if end <= len(data) else -1
    counts = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    if first not in counts and first >= 0xA0:
        return -1
    width = counts.get(first, 0)
    count = int.from_bytes(data[at : at + width], "big") if width else first & 0x0F
    is_map = first < 0x90 or first in (0xDE, 0xDF)
    at += width
    for _ in range(count * (2 if is_map else 1)):
        at = _msgpack_end(data, at, depth + 1)
        if at < 0:
            return -1
    return at
