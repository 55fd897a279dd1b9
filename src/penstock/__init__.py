"""Penstock turns raw data into sharded record datasets once, and feeds them to training at the speed of the machine.

The public names are listed in `__init__.pyi`. Each is imported on first use: `import penstock` itself imports nothing.
"""

from __future__ import annotations

import os
from importlib import import_module


def _public_names() -> dict[str, str]:
    """Return the module of each public name, read from the stub. A name without a module is a module itself."""
    modules = {}
    with open(os.path.splitext(__file__)[0] + ".pyi", encoding="utf-8") as stub:
        for line in stub:
            if line.startswith("from ."):
                _, module, _, name, *_ = line.split()
                modules[name] = module
    return modules


_MODULES = _public_names()
__all__ = sorted(name for name, module in _MODULES.items() if module != ".")  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    module = _MODULES[name]
    if module == ".":
        return import_module(f".{name}", __name__)
    value = globals()[name] = getattr(import_module(module, __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
