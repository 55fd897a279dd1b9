"""Datum's door: `import penstock.compat.datum as datum`, then its calls. docs/coming-from/datum.md tells of it."""

from __future__ import annotations

from . import configs, export, problem, reader
from .reader import load

__all__ = ["configs", "export", "load", "problem", "reader"]
