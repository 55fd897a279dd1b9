"""Loaders in the frameworks: leaves, one file each, imported when a loader is asked for it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """`frameworks.tf` is TensorFlow, imported when it is asked for: its absence is told in one sentence."""
    if name == "tf":
        from .tensorflow import tf

        return tf
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
