"""Datum's export."""

from __future__ import annotations

from .export import export_to_tfrecord

__all__ = ["export_to_tfrecord"]
