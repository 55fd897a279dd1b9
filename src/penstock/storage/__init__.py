"""Bytes on a local disk or in an object store, behind one Store protocol."""

from __future__ import annotations

from .open import open_store as open_store
