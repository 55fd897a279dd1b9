"""The problems that Datum knows."""

from __future__ import annotations

from .types import *  # noqa: F403
