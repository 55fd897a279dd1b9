"""The problems that Datum knows."""

from __future__ import annotations

from . import types
from .types import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF

__all__ = ["IMAGE_CLF", "IMAGE_DET", "IMAGE_SEG", "TEXT_CLF", "types"]
