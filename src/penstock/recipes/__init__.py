"""Whole datasets in a page: `penstock.recipes.tornet`. Each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import tornet as tornet

RECIPES = ("tornet",)


def __getattr__(name: str) -> Any:
    if name not in RECIPES:
        raise AttributeError(f"module 'penstock.recipes' has no attribute {name!r}")
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *RECIPES})
