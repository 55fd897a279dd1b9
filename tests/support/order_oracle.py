"""Random numbers and permutations from the words of FORMAT.md, in plain Python, slowly."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

MASK = (1 << 64) - 1
DOMAIN = int.from_bytes(b"PENSTOCK", "little")

MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
ZIPPER = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)


def _half_turn(word: int) -> int:
    return (word >> 32 | word << 32) & MASK


def highway64(key: tuple[int, int, int, int], data: bytes) -> int:
    """HighwayHash-64 of less than 32 bytes."""
    assert len(data) < 32
    mul0, mul1 = list(MUL0), list(MUL1)
    v0 = [mul ^ word for mul, word in zip(mul0, key, strict=True)]
    v1 = [mul ^ _half_turn(word) for mul, word in zip(mul1, key, strict=True)]

    def add_zipped(source: list[int], target: list[int]) -> None:
        for pair in (0, 2):
            packed = struct.pack("<2Q", *source[pair : pair + 2])
            words = struct.unpack("<2Q", bytes(packed[at] for at in ZIPPER))
            target[pair : pair + 2] = [(word + more) & MASK for word, more in zip(target[pair:], words, strict=False)]

    def update(lanes: tuple[int, ...]) -> None:
        for i in range(4):
            v1[i] = (v1[i] + mul0[i] + lanes[i]) & MASK
            mul0[i] ^= (v1[i] & 0xFFFFFFFF) * (v0[i] >> 32)
            v0[i] = (v0[i] + mul1[i]) & MASK
            mul1[i] ^= (v0[i] & 0xFFFFFFFF) * (v1[i] >> 32)
        add_zipped(v1, v0)
        add_zipped(v0, v1)

    size = len(data)
    if size:
        for i in range(4):
            v0[i] = (v0[i] + (size << 32) + size) & MASK
            halves = [
                (half << size | half >> (32 - size)) & 0xFFFFFFFF
                for half in struct.unpack("<2I", struct.pack("<Q", v1[i]))
            ]
            v1[i] = halves[1] << 32 | halves[0]
        whole, rest = data[: size & ~3], data[size & ~3 :]
        packet = bytearray(whole.ljust(32, b"\0"))
        if size & 16:
            packet[28:] = data[size - 4 :]
        elif rest:
            packet[16:19] = bytes([rest[0], rest[len(rest) >> 1], rest[-1]])
        update(struct.unpack("<4Q", packet))
    for _ in range(4):
        update(tuple(_half_turn(v0[i]) for i in (2, 3, 0, 1)))
    return (v0[0] + v1[0] + mul0[0] + mul1[0]) & MASK


def split_mix(state: int) -> Iterator[int]:
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        yield z ^ z >> 31


def permutation(seed: int, epoch: int, salt: int, length: int) -> list[int]:
    """The whole permutation of 0 .. length - 1."""
    stream = split_mix(highway64((seed, epoch, DOMAIN, 3), struct.pack("<2Q", salt, length)))
    if length <= 256:
        numbers = list(range(length))
        for last in range(length - 1, 0, -1):
            other = (next(stream) >> 32) * (last + 1) >> 32
            numbers[last], numbers[other] = numbers[other], numbers[last]
        return numbers
    rows = math.isqrt(length - 1) + 1
    columns = -(-length // rows)
    keys = [next(stream) for _ in range(6)]

    def scramble(half: int, key: int) -> int:
        y = (half ^ key) * 0xBF58476D1CE4E5B9 & MASK
        return ((y ^ y >> 32) * 0x94D049BB133111EB & MASK) >> 32

    def once(position: int) -> int:
        left, right = divmod(position, columns)
        for first, second in zip(keys[::2], keys[1::2], strict=True):
            left = (left + (scramble(right, first) * rows >> 32)) % rows
            right = (right + (scramble(left, second) * columns >> 32)) % columns
        return left * columns + right

    def number(position: int) -> int:
        position = once(position)
        while position >= length:
            position = once(position)
        return position

    return [number(position) for position in range(length)]


def shuffle(seed: int, epoch: int, length: int, window: int | None) -> list[int]:
    """The positions of a shuffle."""
    if window is None or window >= length:
        return permutation(seed, epoch, 0, length)
    windows = length // window
    turn = permutation(seed, epoch, 1, length)[0]
    numbers = []
    for window_number in [*permutation(seed, epoch, 0, windows), windows]:
        size = min(window, length - window_number * window)
        inside = permutation(seed, epoch, 2 + window_number, size)
        numbers += [(window_number * window + number + turn) % length for number in inside]
    return numbers
