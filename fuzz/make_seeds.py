#!/usr/bin/env python3
"""Writes the seeds of every fuzz target anew: fuzz/make_seeds.py

Small valid inputs of every kind, and the odd shapes that files of others have. Only the standard library is needed, and
Pillow for images. The bytes are the same each time, but for compressed ones, which are up to the libraries at hand.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import random
import shutil
import struct
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SEEDS = Path(__file__).resolve().parent / "seeds"


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C, a byte at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The masked CRC as a frame stores it."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


# Frames


def header(length: int) -> bytes:
    """A frame's header, whatever follows."""
    packed = struct.pack("<Q", length)
    return packed + masked(packed)


def frame(data: bytes) -> bytes:
    """A whole frame."""
    return header(len(data)) + data + masked(data)


def gzipped(data: bytes) -> bytes:
    """One gzip member without a time in it."""
    return gzip.compress(data, mtime=0)


def frame_scan() -> dict[str, bytes]:
    """Files: whole, compressed, damaged."""
    records = [b"hello", b"", b"three" * 10, bytes(range(256))]
    whole = b"".join(frame(record) for record in records)
    broken = bytearray(whole)
    broken[14] ^= 1
    noisy = random.Random(1).randbytes(40)
    cut = len(whole) // 2
    zipped, deflated = gzipped(whole), zlib.compress(whole)
    bad_trailer = bytearray(zipped)
    bad_trailer[-6] ^= 1
    bad_middle = bytearray(gzipped(b"".join(frame(bytes([n]) * 99) for n in range(40))))
    bad_late = bytearray(bad_middle)
    bad_middle[len(bad_middle) // 2] ^= 0x55
    bad_late[-30] ^= 0x55
    return {
        "empty": b"",
        "hello": frame(b"hello"),
        "empty_record": frame(b""),
        "records": whole,
        "partial_header": whole + whole[:7],
        "short_body": whole + frame(b"cut off")[:-9],
        "short_footer": whole[:-2],
        "bad_data": bytes(broken),
        "bad_length": whole[:21] + b"\x07" + whole[22:],
        "huge_length": frame(b"before") + header(2**64 - 1) + b"after" + frame(b"after"),
        "long_length": frame(b"before") + header(2**40) + frame(b"after"),
        "looks_like_gzip": header(0x088B1F) + b"x" * 40,
        "zeros_behind": whole + bytes(16),
        "junk_between": frame(b"one") + noisy + frame(b"two"),
        "frame_in_junk": noisy + frame(frame(b"a frame in a frame")) + noisy,
        "gzip": zipped,
        "gzip_members": gzipped(whole[:cut]) + gzipped(whole[cut:]),
        "gzip_empty_member": gzipped(b"") + gzipped(whole[:cut]) + gzipped(b"") + gzipped(whole[cut:]),
        "gzip_no_trailer": zipped[:-8],
        "gzip_bad_trailer": bytes(bad_trailer),
        "gzip_bad_middle": bytes(bad_middle),
        "gzip_bad_late": bytes(bad_late),
        "gzip_zeros_behind": zipped + bytes(16),
        "gzip_of_nothing": gzipped(b""),
        "gzip_of_zeros": gzipped(bytes(20_000)),
        "gzip_large_frame": gzipped(frame(b"before") + frame(bytes(2 << 20)) + frame(b"after")),
        "gzip_magic_damaged": b"\x1e" + zipped[1:],
        "zlib_header_damaged": b"\x79" + deflated[1:],
        "zlib": deflated,
        "zlib_streams": zlib.compress(whole[:cut]) + zlib.compress(whole[cut:]),
        "zlib_cut": deflated[:-3],
        "zlib_of_junk": zlib.compress(noisy),
        # Programs: see src/build.rs.
        "program_frames": b"\xff" + bytes([5 << 3]) + b"hello" + bytes([2 << 3 | 1, 3 << 3 | 2]) + b"bad" + b"\x08a",
        "program_header": b"\xff" + bytes([1 << 3]) + b"a" + bytes([2 << 3 | 3, 9, 0, 3 << 3 | 4]) + b"abc\x10zz",
        "program_large": b"\xff" + b"\x18abc" + bytes([30 << 3 | 6]) + b"\x18def" + bytes([6]),
        "program_members": b"\xff" + b"\x18abc" + bytes([6]) + b"\x18def" + bytes([6, 3 << 3 | 7, 0, 40]),
    }


# Messages


def varint(value: int) -> bytes:
    """A varint; negative numbers take ten bytes."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(number: int, body: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def ints(*values: int) -> bytes:
    """A Feature with an int64_list in one packed chunk, or an empty one."""
    return message(3, message(1, b"".join(map(varint, values))) if values else b"")


def floats(*values: float) -> bytes:
    """A Feature with a float_list in one packed chunk."""
    return message(2, message(1, struct.pack(f"<{len(values)}f", *values)))


def strings(*values: bytes) -> bytes:
    """A Feature with a bytes_list."""
    return message(1, b"".join(message(1, value) for value in values))


def entry(key: str, feature: bytes) -> bytes:
    """A map's entry."""
    return message(1, message(1, key.encode()) + message(2, feature))


def features(**values: bytes) -> bytes:
    """A Features message's body."""
    return b"".join(entry(key, feature) for key, feature in values.items())


def example(**values: bytes) -> bytes:
    """An Example in its usual shape."""
    return message(1, features(**values))


def joined(records: Iterable[bytes]) -> bytes:
    """Records with their lengths before them."""
    return b"".join(struct.pack("<H", len(record)) + record for record in records)


def odd_features() -> dict[str, bytes]:
    """Features in shapes that protobuf allows, and some that it refuses."""
    unknown = b"\x20\x01"
    return {
        "packed": ints(1, -1, 300, 2**62),
        "unpacked": message(3, b"\x08\x01\x08\x02"),
        "chunks": message(3, message(1, b"\x01") + message(1, b"\x02\x03")),
        "packed_then_unpacked": message(3, message(1, b"\x01") + b"\x08\x02"),
        "unpacked_then_packed": message(3, b"\x08\x02" + message(1, b"\x01")),
        "float_five_bytes": message(2, message(1, bytes(5))),
        "floats": floats(0.5, -1.0, 3e38),
        "floats_unpacked": message(2, b"\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40"),
        "no_list": b"",
        "empty_ints": ints(),
        "empty_floats": message(2, b""),
        "empty_strings": strings(),
        "empty_chunk": message(3, message(1, b"")),
        "ints_then_floats": ints(1) + floats(1.0),
        "ints_twice": ints(1) + ints(2),
        "unknown_around": unknown + ints(1) + unknown,
        "unknown_within": message(3, unknown + message(1, b"\x01")),
        "group": b"\x2b\x08\x01\x2c" + ints(1),
        "eleven_bytes": message(3, message(1, b"\xff" * 10 + b"\x01")),
        "ten_bytes": message(3, message(1, b"\xff" * 9 + b"\x01")),
        "overlong": message(3, message(1, b"\x80\x80\x00\x81\x00")),
        "cut": message(3, message(1, b"\x01\x80")),
        "many": ints(*(1 << n for n in range(63)), *range(40)),
        "strings": strings(b"one", b"", b"three"),
        "string": strings(b"\x00\xff"),
    }


def odd_examples() -> dict[str, bytes]:
    """Examples whose maps have odd shapes."""
    one = entry("a", ints(1))
    return {
        "empty": b"",
        "no_features": message(1, b""),
        "key_twice": message(1, one + entry("a", ints(2))),
        "features_twice": message(1, one + entry("b", floats(1, 2, 3))) + message(1, entry("a", ints(2))),
        "no_value": message(1, message(1, message(1, b"a"))),
        "no_key": message(1, message(1, message(2, ints(1)))),
        "value_before_key": message(1, message(1, message(2, ints(1)) + message(1, b"a"))),
        "value_twice": message(1, message(1, message(1, b"a") + message(2, ints(1)) + message(2, ints(2)))),
        "unknown_in_entry": message(1, message(1, message(1, b"a") + message(2, ints(1)) + b"\x20\x01")),
        "unknown_in_features": message(1, b"\x20\x01" + one),
        "unknown_in_example": b"\x20\x01" + message(1, one),
        "key_not_text": message(1, message(1, message(1, b"\xff") + message(2, ints(1)))),
        "broken_elsewhere": message(1, message(1, message(1, b"z") + message(2, b"\xff\xff")) + entry("c", ints(1))),
        "long_tag": b"\x8a\x00" + varint(len(one)) + one,
        "past_the_end": b"\x0a\x7f" + one,
    }


def example_decode() -> dict[str, bytes]:
    """A plan's number (src/plans.rs), then records with their lengths before them."""
    pack = struct.pack
    usual = [
        [example(a=ints(7), b=floats(1, 2, 3), c=ints(1, -1)), example(a=ints(8), b=floats(4, 5, 6), c=ints(2, 3))],
        [example(a=ints(1, 2, 3), b=floats(), c=strings()), example(a=ints(), b=floats(1.5), c=strings(b"x", b"yz"))],
        [example(a=strings(b"one"), b=strings(b"", b"two"), c=strings(b"x")),
         example(a=strings(b""), b=strings(b"1", b"2"))],
        [example(a=ints(1), b=floats(1, 2), c=strings(b"s"), d=ints(1, 2)), example(), example(d=ints(5))],
        [example(a=ints(1), b=floats(1, 2), c=strings(b"s"), d=ints(4, 5, 6)), example()],
        [example(a=ints(0, 1), b=ints(-128, 127), c=ints(255), d=ints(-32768), e=ints(65535), f=ints(-(2**31)),
                 g=ints(2**32 - 1), h=ints(-1, 5))],
        [example(a=floats(1, 2), b=floats(0.25), c=floats(65504, 1e-7), d=floats(float("inf"))),
         example(a=floats(float("nan"), -0.0), b=floats(1e-40), c=floats(1e9))],
        [example(a=strings(pack("<2d", 1, 2)), b=strings(b"\x80\x3f\x00\x40"), c=strings(b"abc"),
                 d=strings(pack("<i", 5))),
         example(a=strings(bytes(16)), b=strings(b""))],
        [example(a=strings(zlib.compress(pack("<4h", 1, 2, 3, 4))), b=strings(zlib.compress(bytes(4000))),
                 c=strings(zlib.compress(b"some text, some text"))),
         example(a=strings(zlib.compress(bytes(8), 0)), b=strings(zlib.compress(b"")))],
        [example(a=strings(b"skipped"), b=floats(1), c=ints(1, 2, 3)), example(b=floats(), c=ints(4))],
        [example(a=ints(1)), b""],
        [message(1, entry("", ints(1)) + entry("a", ints()) + entry("b", strings())), example(a=ints())],
        [example(a=ints(1), b=strings(bytes(8)), c=strings(zlib.compress(bytes(8))))],
        [example(), *(example(c=strings(zlib.compress(bytes(size << 20)))) for size in (1, 3))],
    ]  # fmt: skip
    seeds = {f"plan_{number}": bytes([number]) + joined(records) for number, records in enumerate(usual)}
    for name, feature in odd_features().items():
        seeds[f"feature_{name}"] = b"\x01" + joined(
            [example(a=ints(5), b=floats(), c=strings()), example(a=feature, b=feature, c=feature)]
        )
    for name, record in odd_examples().items():
        seeds[f"example_{name}"] = b"\x03" + joined([example(a=ints(5)), record, record])
    seeds["projected_broken_elsewhere"] = b"\x09" + joined([odd_examples()["broken_elsewhere"]])
    unusual = b"\x20\x01"
    huge = {
        "nothing": b"",
        "no_list": example(a=b"", b=b"", c=b""),
        "other_list": example(a=floats(1), b=ints(1), c=ints(1)),
        "unusual": message(1, features(c=unusual + strings(b"x"), b=unusual + strings(b"x"), a=unusual + ints(1))),
    }
    for name, record in huge.items():
        seeds[f"huge_{name}"] = b"\x0c" + joined([record] * 3)
    seeds["wide_missing"] = b"\x0d" + joined([b""] * 600)
    seeds["no_records"] = b"\x00"
    # Programs: see src/build.rs.
    feature = bytes([0, 0, 3, 1 << 3, 2 << 3, 0, 5 << 3 | 4]) + b"\x01\x02\x80\xff\x07"
    seeds["program_ints"] = b"\xff\x01" + feature + b"\xfe" + feature + b"\xda" + feature
    seeds["program_zlib"] = b"\xff\x08" + bytes([0, 0, 3, 1 << 3, 0, 8 << 3 | 7]) + bytes(8) + b"\xfe"
    return seeds


def sequence_decode() -> dict[str, bytes]:
    """Two plans' numbers, for the context and for the lists, then records with their lengths before them."""

    def lists(**values: Iterable[bytes]) -> bytes:
        return message(
            2, b"".join(entry(key, b"".join(message(1, step) for step in steps)) for key, steps in values.items())
        )

    context = example(a=ints(1), b=floats(1, 2, 3), c=ints(1, 2))
    ragged = lists(a=[ints(1, 2), ints()], b=[floats(1)], c=[strings(b"x"), strings(), strings(b"y", b"z")])
    seeds = {
        "fixed": b"\x00\x00" + joined([context + lists(a=[ints(1)], b=[floats(1, 2, 3)] * 2, c=[])] * 2),
        "ragged": b"\x0a\x01" + joined([ragged, lists(a=[], b=[], c=[])]),
        "both": b"\x00\x01" + joined([context + ragged]),
        "missing_list": b"\x0a\x01" + joined([lists(a=[ints(1)])]),
        "optional": b"\x03\x03" + joined([b"", example(a=ints(1)) + lists(a=[ints(1), b"", ints(2)], d=[ints(), b""])]),
        "default": b"\x04\x04" + joined([lists(a=[b"", ints(1)], b=[b""], c=[strings(b"x"), b""], d=[b""]), b""]),
        "bytes": b"\x0a\x07"
        + joined([lists(a=[strings(bytes(16))], b=[strings(b"abcd")], d=[b"", strings(bytes(4))])]),
        "zlib": b"\x0a\x08"
        + joined([lists(a=[strings(zlib.compress(bytes(8)))] * 2, b=[strings(zlib.compress(b"four"))])]),
        "lists_first": b"\x00\x01" + joined([ragged + context]),
        "twice": b"\x00\x01" + joined([context + ragged + context + ragged]),
        "unknown": b"\x00\x01" + joined([b"\x20\x01" + context + b"\x1a\x02ab" + ragged]),
        "list_twice": b"\x0a\x09"
        + joined([message(2, features(c=message(1, ints(1))) + features(c=message(1, ints(2))))]),
        "empty": b"\x0a\x0a" + joined([b"", b""]),
        "huge": b"\x0c\x0c" + joined([context + ragged]),
        "huge_steps": b"\x0a\x0c" + joined([lists(c=[b"", strings(b"x")], b=[b""] * 3, a=[b"", ints(1)])]),
        "program": b"\xff\x0a\x01" + bytes([1 << 3, 0, 3, 1 << 3, 0, 2 << 3, 0, 3 << 3 | 4]) + b"\x01\x02\x80",
    }
    odd = odd_features()
    for name in ("unpacked", "chunks", "no_list", "empty_ints", "ints_then_floats", "eleven_bytes", "many", "string"):
        feature = odd[name]
        seeds[f"step_{name}"] = b"\x03\x03" + joined([example(a=feature) + lists(a=[feature], d=[ints(5), feature])])
    return seeds


def index_file() -> dict[str, bytes]:
    """Our indexes, and DALI's."""

    def index(offsets: list[int], *, compression: int = 0, size: int | None = None, version: int = 1) -> bytes:
        size = offsets[-1] if size is None else size
        body = b"PENSTIDX" + struct.pack("<IIQIIQ", version, compression, size, 7, 0, len(offsets) - 1)
        body += struct.pack(f"<{len(offsets)}Q", *offsets)
        return body + struct.pack("<I", crc32c(body))

    whole = index([0, 20, 36, 60])
    return {
        "whole": whole,
        "empty": index([0]),
        "gzip": index([0, 100, 1000], compression=1, size=50),
        "zlib": index([0, 16], compression=2, size=9),
        "unknown_compression": index([0, 16], compression=3),
        "unknown_version": index([0, 16], version=2),
        "wrong_size": index([0, 16], size=17),
        "no_room": index([0, 10, 60]),
        "falling": index([0, 60, 20]),
        "not_from_zero": index([16, 60]),
        "huge": index([0, 2**64 - 1]),
        "cut": whole[:-9],
        "more_behind": whole + bytes(8),
        "bad_crc": whole[:-1] + b"\x00",
        "many": index([17 * n for n in range(100)]),
        "dali": b"0 20\n20 16\n36 24\n",
        "dali_windows": b"0 20\r\n20 16\r\n",
        "dali_spaces": b"  0\t20 \n\n20   16",
        "dali_gap": b"0 20\n21 16\n",
        "dali_short": b"0\n",
        "dali_overflow": b"0 18446744073709551615\n18446744073709551615 20\n",
        "dali_words": "0 zwölf\n".encode(),
        "dali_signs": b"+0 +20\n-20 16\n",
        "nothing": b"",
    }


def round_trip() -> dict[str, bytes]:
    """Bytes to make columns of: any will do."""
    source = random.Random(2)
    seeds = {f"random_{length}": source.randbytes(length) for length in (64, 256, 1024, 4096)}
    return {"zeros": bytes(400), "ones": b"\x01" * 400, "high": b"\xff" * 400, "rising": bytes(range(256)) * 2, **seeds}


def image() -> dict[str, bytes]:
    """A byte of options, then an image file."""
    from PIL import Image as Pillow

    size = (20, 17)
    pixels = bytes((x * 12 + y * 5 * channel) & 0xFF for y in range(17) for x in range(20) for channel in range(3))
    scene = Pillow.frombytes("RGB", size, pixels)
    clear = scene.convert("RGBA")
    clear.putalpha(scene.convert("L"))

    def save(picture: Any, kind: str, **options: Any) -> bytes:
        file = io.BytesIO()
        picture.save(file, kind, **options)
        return file.getvalue()

    files = {
        "jpeg": save(scene, "JPEG"),
        "jpeg_444": save(scene, "JPEG", subsampling="4:4:4"),
        "jpeg_422": save(scene, "JPEG", subsampling="4:2:2"),
        "jpeg_progressive": save(scene, "JPEG", progressive=True),
        "jpeg_restarts": save(scene, "JPEG", restart_marker_blocks=1),
        "jpeg_rgb": save(scene, "JPEG", keep_rgb=True),
        "jpeg_grey": save(scene.convert("L"), "JPEG"),
        "jpeg_cmyk": save(scene.convert("CMYK"), "JPEG"),
        "png": save(scene, "PNG"),
        "png_alpha": save(clear, "PNG"),
        "png_grey_alpha": save(clear.convert("LA"), "PNG"),
        "png_palette": save(scene.convert("P"), "PNG", transparency=3),
        "png_bits": save(scene.convert("1"), "PNG"),
        "png_deep": save(Pillow.frombytes("I;16", size, pixels[: 20 * 17 * 2]), "PNG"),
        "png_animated": save(scene, "PNG", save_all=True, append_images=[scene.rotate(90)]),
        "webp": save(scene, "WEBP"),
        "webp_alpha": save(clear, "WEBP"),
        "webp_lossless": save(clear, "WEBP", lossless=True),
        "webp_animated": save(scene, "WEBP", save_all=True, append_images=[scene.rotate(90)]),
        "gif": save(scene.convert("P"), "GIF"),
        "gif_interlaced": save(scene.convert("P"), "GIF", interlace=1, transparency=2),
        "gif_animated": save(scene, "GIF", save_all=True, append_images=[scene.rotate(90)]),
        "bmp": save(scene, "BMP"),
        "bmp_alpha": save(clear, "BMP"),
        "bmp_palette": save(scene.convert("P"), "BMP"),
        "bmp_bits": save(scene.convert("1"), "BMP"),
        "tiff": save(scene, "TIFF"),
        "tiff_lzw": save(clear, "TIFF", compression="tiff_lzw"),
        "tiff_deflate": save(scene.convert("L"), "TIFF", compression="tiff_adobe_deflate"),
        "tiff_bits": save(scene.convert("1"), "TIFF", compression="packbits"),
        "tiff_deep": save(Pillow.frombytes("I;16", size, pixels[: 20 * 17 * 2]), "TIFF"),
    }
    seeds = {name: bytes([number % 16]) + file for number, (name, file) in enumerate(files.items())}
    for name in ("jpeg", "jpeg_progressive", "png", "webp", "webp_lossless", "gif"):
        seeds[f"{name}_cut"] = b"\0" + files[name][: len(files[name]) * 3 // 4]
    huge = bytearray(files["jpeg"])
    at = huge.index(b"\xff\xc0")
    huge[at + 5 : at + 9] = b"\xff" * 4
    return {**seeds, "jpeg_huge": b"\0" + bytes(huge), "text": b"\0text", "empty": b"\0"}


def array_record() -> dict[str, bytes]:
    """The data of chunks, with their records and decoded size before them; or programs (src/chunks.rs) for files."""

    def chunk(letter: bytes, sizes: bytes, values: bytes, lengths: list[int]) -> bytes:
        head = bytes([len(lengths)]) + struct.pack("<H", sum(lengths))
        return head + letter + varint(len(sizes)) + sizes + values

    def stored(data: bytes) -> bytes:
        return (
            varint(len(data))
            + b"\x28\xb5\x2f\xfd\x20"
            + bytes([len(data)])
            + struct.pack("<I", len(data) << 3 | 1)[:3]
            + data
        )

    def snappy(data: bytes) -> bytes:
        return varint(len(data)) * 2 + bytes([len(data) - 1 << 2]) + data if data else b"\0\0"

    def literal(data: bytes) -> bytes:
        return varint(len(data)) + bytes([0x8B, len(data) - 1 >> 1, 0x80]) + data + b"\x03"

    zeros = b"\x40\x28\xb5\x2f\xfd\x20\x40\x03\x02\x00\x00"
    program = {
        "one": bytes([5 << 3, 1, 0]) + b"hello" + b"\x07",
        "groups": bytes([5 << 3, 1, 2]) + b"hello" + bytes([3 << 3, 2, 0]) + b"abc" + b"\x07",
        "every_compression": b"".join(bytes([9 << 3 | 1, n | 40, 3]) + b"some text" for n in range(4)) + b"\x07",
        "empty": b"\x07",
        "not_closed": bytes([5 << 3, 1, 0]) + b"hello",
        "flipped": bytes([5 << 3, 1, 0])
        + b"hello"
        + bytes([5 << 3, 0, 0])
        + b"world"
        + bytes([5, 0, 0, 150])
        + b"\x07",
        "flipped_table": bytes([5 << 3, 1, 0]) + b"hello" + bytes([13, 0, 0, 160]) + b"\x07",
        "flipped_postscript": bytes([5 << 3, 1, 0]) + b"hello" + bytes([13, 1, 0, 60]) + b"\x07",
        "blocks": bytes([31 << 3 | 1, 0xFC, 0] + [7] * 31 + [4] + [31 << 3 | 1, 0xFD, 7] + [8] * 31) + b"\x07",
        "junk": bytes([3 << 3, 0, 0])
        + b"abc"
        + bytes([4 << 3 | 6])
        + b"junk"
        + bytes([3 << 3, 0, 0])
        + b"def"
        + b"\x07",
        "lies": bytes([3 << 3, 0, 0]) + b"abc" + bytes([9 << 3 | 7, 0, 0, 0, 1, 0, 0, 0, 0, 0]),
        "transposed": bytes([2 << 3 | 3]) + b"\x07",
        "padding": bytes([3 << 3 | 3, 1 << 3 | 3, 4]) + b"\x07",
    }
    seeds = {
        "plain": chunk(b"\0", b"\x03\x00\x02", b"abcde", [3, 0, 2]),
        "plain_short": chunk(b"\0", b"\x03\x00\x03", b"abcde", [3, 0, 3]),
        "zstd": chunk(b"z", stored(b"\x03\x02"), stored(b"abcde"), [3, 2]),
        "zstd_zeros": chunk(b"z", stored(b"\x40"), zeros, [64]),
        "zstd_cut": chunk(b"z", stored(b"\x03\x02"), stored(b"abcde")[:-1], [3, 2]),
        "snappy": chunk(b"s", snappy(b"\x03\x02"), snappy(b"abcde"), [3, 2]),
        "brotli": chunk(b"b", literal(b"\x03\x02"), literal(b"abcd\0")[:-1] + b"\x03", [3, 2]),
        "unknown": chunk(b"x", b"\x01\x03", b"\x03abc", [3]),
        "huge": b"\x01\xff\xff" + b"z" + varint(11) + stored(b"\xff\xff\x03")[:11] + varint(2**50) + zeros[1:],
        "empty": b"\0\0\0",
    }
    return seeds | {f"program_{name}": b"\xff" + steps for name, steps in program.items()}


def tar() -> dict[str, bytes]:
    """Archives, and programs that build one."""

    def archive(names: Iterable[str], format: int, data: bytes = b"7") -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=format) as made:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                made.addfile(member, io.BytesIO(data))
        return out.getvalue().rstrip(b"\0") + bytes(1536)

    plain = archive(["a.txt", "a.cls", "b.txt"], tarfile.USTAR_FORMAT)
    plain = plain[: len(plain) // 512 * 512]
    long = ["d" * 120 + "/a.txt", "b.txt"]
    files = {
        "plain": plain,
        "gnu": archive(long, tarfile.GNU_FORMAT),
        "pax": archive(long, tarfile.PAX_FORMAT),
        "cut": plain[:700],
        "apart": archive(["a.txt", "b.txt", "a.cls"], tarfile.USTAR_FORMAT),
        "twice": archive(["a.txt", "a.txt"], tarfile.USTAR_FORMAT),
        "out": archive(["../a.txt"], tarfile.USTAR_FORMAT),
        "gzip": gzipped(plain),
        "gzip_cut": gzipped(plain)[:-5],
        "bzip2": bz2.compress(plain),
        "bzip2_twice": bz2.compress(plain[:700]) + bz2.compress(plain[700:]),
        "xz": lzma.compress(plain, preset=0),
        "xz_padded": lzma.compress(plain[:700], preset=0) + bytes(4) + lzma.compress(plain[700:], preset=0),
        "zeros": bytes(1024),
        "empty": b"",
    }
    steps = bytes([0, 3, 0, 0]) + b"abc" + bytes([0, 1, 1, 0]) + b"d"
    return files | {
        "program_two": b"\xff" + steps,
        "program_long": b"\xff" + bytes([5, 6, 0, 0]) + b"q.txt\0" + steps,
        "program_wrong": b"\xff" + steps + bytes([0, 0, 2, 255]),
    }


def csv() -> dict[str, bytes]:
    """A byte for the size of blocks, one whose highest bits choose the delimiter, and one file of text or two."""
    wide = "a§b\n1§¦\n".encode()
    return {
        "late_texts": b"\x04\0a,b\n1,1\n2,18446744073709551615\n3,-1\ncat,7\n007,2.5\n",
        "never_closed": b'\x03\0a,b\n1,"2\n3,4\n',
        "not_text": b"\x03\0a,b\n1,\xfe\n",
        "quotes": b'\x07\0\xef\xbb\xbfid, name ,note\r\n1,"a, b","two\r\nlines"\r\n\r\n2,"say ""hi""",\r\n',
        "spaced": b'\x05\0filename, label, "kind"\na, 3, "x, y"\nb, 4, z\n',
        "tabs_and_returns": b'\x02\x40a\tb\r1\tx\r2\t\ry\t"\r"',
        "two_files": b"\x03\0a,b\n1,x\n2,y\n\xffb,a\nz,2.5\n",
        "types": b'\x10\0a,b,c,d\n1,2.5,true,x\n-3,1e3,FALSE,\n,nan,,"y, z"\n',
        "wide_delimiter": b"\x06\xc0" + wide,
    }


def deflate() -> dict[str, bytes]:
    """A byte for how often the rest is repeated, and numbers of four bytes."""
    halves = struct.pack("<40f", *(n % 7 / 2 if n % 3 else math.nan for n in range(40)))
    return {
        "halves": b"\x40" + halves,
        "no_number": b"\0ab",
        "none": b"\0",
        "one": b"\xff\0\0\x80?",
        "rising": b"\x03" + struct.pack("<100I", *range(100)),
        "shifted": b"\x21" + halves + b"x",
        "wide": b"\0" + bytes(n * n * 97 % 251 for n in range(4000)),
    }


def main() -> None:
    """Writes all seeds."""
    total = 0
    shutil.rmtree(SEEDS, ignore_errors=True)
    records = (frame_scan, array_record, example_decode, sequence_decode, index_file, round_trip)
    for target in (*records, deflate, image, tar, csv):
        folder = SEEDS / target.__name__
        folder.mkdir(parents=True)
        for name, data in target().items():
            (folder / name).write_bytes(data)
            total += len(data)
    print(f"{sum(path.is_file() for path in SEEDS.rglob('*'))} seeds, {total:,} bytes")


if __name__ == "__main__":
    main()
