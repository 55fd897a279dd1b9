"""Records and the files that hold them: what the native core does, in Python's words."""

from __future__ import annotations

from .._core import Records, __version__, crc32c, masked_crc32c

__all__ = ["Records", "__version__", "crc32c", "masked_crc32c"]
