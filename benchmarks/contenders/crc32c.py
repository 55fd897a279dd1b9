"""CRC-32C of buffers that are in memory: ours and Google's."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.data import pseudo_random_bytes
from benchmarks.rows import Job, Setting

CHECK_VALUE = 0xE3069283  # of b"123456789", as the definition of CRC-32C gives it


def ours(length: int) -> Callable[[Setting], Job]:
    """penstock.crc32c."""

    def build(setting: Setting) -> Job:
        import penstock

        return _job(penstock.crc32c, length)

    return build


def google(length: int) -> Callable[[Setting], Job]:
    """google_crc32c.value, in its native form."""

    def build(setting: Setting) -> Job:
        import google_crc32c

        if google_crc32c.implementation != "c":
            raise ImportError("google-crc32c has no native part here")
        return _job(google_crc32c.value, length)

    return build


def _job(checksum: Callable[[bytes], int], length: int) -> Job:
    count = max(1, 20_000_000 // max(length, 2_000))
    buffers = [pseudo_random_bytes(length, index) for index in range(min(count, 16))] * (count // min(count, 16))

    def run() -> float:
        for buffer in buffers:
            checksum(buffer)
        return len(buffers) * length / 1e9

    def checked() -> None:
        if checksum(b"123456789") != CHECK_VALUE:
            raise ValueError(f"expected {CHECK_VALUE:#x}, got {checksum(b'123456789'):#x}")

    return Job(run, checked)
