"""Datum's door: `import penstock.compat.datum as datum`, then its calls, over our build and load.

What was wrong there is right here: docs/coming-from/datum.md lists it.
"""

from __future__ import annotations

from . import configs, export, problem, reader
from .reader import load

__all__ = ["configs", "export", "load", "problem", "reader"]
