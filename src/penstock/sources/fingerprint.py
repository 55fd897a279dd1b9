"""What tells a function or a value from others, plain, for a manifest: the same in every process, whatever its hash."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import SchemaError
from ..schema.columns import Value


def digest(data: bytes) -> str:
    """A short name of some bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def code_digest(function: object) -> str:
    """Of what a function does, as far as that can be read from its code; of None, where it has none to read."""
    return digest(repr(_code(getattr(function, "__code__", None))).encode())


def _code(code: Any) -> Any:
    if hasattr(code, "co_code"):
        return code.co_code, code.co_names, [_code(part) for part in code.co_consts]
    return code if isinstance(code, (int, float, str, bytes)) else None


def described(value: Value, where: str) -> Any:
    """A value as JSON has it: plain ones as they are, others by a digest of what they hold or do."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value else "nan"
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(name): described(part, where) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [described(part, where) for part in value]
    if isinstance(value, (set, frozenset)):  # whose order is another one in each process
        return sorted((described(part, where) for part in value), key=repr)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype.name}{list(value.shape)} {digest(np.ascontiguousarray(value).tobytes())}"
    if hasattr(value, "__code__"):
        return f"{value.__qualname__} {code_digest(value)}"
    try:
        return f"{type(value).__qualname__} {digest(pickle.dumps(value, protocol=4))}"
    except Exception as error:  # noqa: BLE001  # whatever pickling may raise
        got = f"{type(value).__name__} ({error})"
        raise SchemaError(f"expected a value that can be sent to worker processes, got {got}", where) from None
