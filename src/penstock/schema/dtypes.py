"""What types are made of: the dtypes, which of them hold which, and shapes."""

from __future__ import annotations

from typing import TypeAlias

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TEXTS = ("bytes", "str")
DTYPES = ("bool", *INTEGERS, *FLOATS, *TEXTS)
MAX_DEPTH = 32  # dicts within dicts, and lists within lists
MAX_RANK = 30  # dimensions of one value: NumPy stops at 32, and a batch adds one
MAX_ELEMENTS = 2**40  # of one value's known dimensions: far more than a record holds
Shape: TypeAlias = "tuple[int | None, ...]"


def common_dtype(a: str, b: str) -> str | None:
    """The narrowest dtype that holds both, None if there is none. An integer and a float meet in float64."""
    if a == b:
        return a
    if a in TEXTS or b in TEXTS:
        return None
    if a in FLOATS or b in FLOATS:
        return "float32" if a in FLOATS and b in FLOATS and "float64" not in (a, b) else "float64"
    if "bool" in (a, b):
        return b if a == "bool" else a
    a, b = sorted((a, b), key=lambda dtype: int(dtype.lstrip("uint")))
    if a[0] == b[0] or (a[0] == "u" and a[1:] != b):
        return b
    bits = 2 * int((a if a[0] == "u" else b).lstrip("uint"))
    return f"int{bits}" if bits <= 64 else None


def write_dimensions(shape: Shape) -> str:
    """A shape as types show it: "[4,?]", nothing for a single value."""
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]" if shape else ""
