"""The library that speaks to object stores, one for each process.

Its threads do not survive a fork, and it cannot start them again: a call in a child would wait for ever, and torch's
workers are such children. So a process that was forked after the library was used loads it once more, from a copy of
its file, which begins with nothing.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import threading
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

from ..errors import MissingDependencyError

_loaded: dict[int, Any] = {}  # by process
_lock = threading.Lock()


def _forget_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def library() -> Any:
    """The native module of obstore."""
    process = os.getpid()
    found = _loaded.get(process)
    if found is None:
        with _lock:
            found = _loaded.get(process)
            if found is None:
                found = _loaded[process] = _again(_imported()) if _loaded else _imported()
    return found


def _imported() -> Any:
    try:
        from obstore import _obstore  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise MissingDependencyError.needed("obstore", "Object stores", extra="stores") from None
    return _obstore


def _again(module: Any) -> Any:
    """The same module with nothing in it that an earlier process left."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = shutil.copy(module.__file__, Path(folder))
        loader = ExtensionFileLoader("penstock.storage._obstore", str(path))
        spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
        assert spec is not None
        fresh = importlib.util.module_from_spec(spec)
        loader.exec_module(fresh)
        return fresh
