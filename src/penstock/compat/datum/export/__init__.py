"""Datum's export."""

from __future__ import annotations

from .export import export_to_tfrecord as export_to_tfrecord
