"""From a source to a published dataset: list, decide the schema, plan, run the tasks, commit."""

from __future__ import annotations

from .local import Local
from .options import Quarantine
from .run import Built, build

__all__ = ["Built", "Local", "Quarantine", "build"]
