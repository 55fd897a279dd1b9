"""Dtypes and shapes, and how a value is fitted into its field: without a loss, or not at all.

NumPy's numbers keep their dtype or move to one that holds them all, Python's have no width and must fit, texts become
bytes. Lists that belong together are equally long.
"""

from __future__ import annotations

import io
import math
import reprlib
import struct
import zlib
from collections.abc import Mapping
from typing import Protocol, TypeAlias

import numpy as np

from ..errors import MissingDependencyError, SchemaError, name_known
from .columns import Array, DType, Value

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TEXTS = ("bytes", "str")
DTYPES = ("bool", *INTEGERS, *FLOATS, *TEXTS)
MAX_DEPTH = 32  # dicts within dicts, and lists within lists
MAX_RANK = 30  # dimensions of one value: NumPy stops at 32, and a batch adds one
MAX_ELEMENTS = 2**40  # of one value's known dimensions: far more than a record holds
Shape: TypeAlias = "tuple[int | None, ...]"
_COLORS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels, and what PNG calls them: grey, grey and alpha, RGB, RGB and alpha
_IMAGES = "An image is the bytes of its file, an image of Pillow, or uint8[height,width,channels]"


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


def numpy_dtype(name: str) -> DType | None:
    """Return the dtype of arrays; None for bytes and str."""
    if name in TEXTS:
        return None
    if name != "bfloat16":
        return np.dtype(name)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise MissingDependencyError.needed("ml_dtypes", "bfloat16 fields", extra="bfloat16") from None
    dtype: DType = np.dtype(bfloat16)
    return dtype


def write_dimensions(shape: Shape) -> str:
    """A shape as types show it: "[4,?]", nothing for a single value."""
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]" if shape else ""


class ValueType(Protocol):
    """What a value is fitted into. A Field is one; its str is the type that messages show."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def optional(self) -> bool: ...
    @property
    def classes(self) -> tuple[str, ...] | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def levels(self) -> int: ...


def coerce(field: ValueType, value: object, where: str) -> Value:
    """The value in its one canonical form, or a SchemaError (see Field.coerce)."""
    if value is None or value is np.ma.masked:
        if field.optional:
            return None
        raise SchemaError(f"expected {field}, got nothing", where, f'Give it a value, or declare it "{field}?"')
    return _coerce(field, value, field.levels, where)


def _coerce(field: ValueType, value: object, levels: int, where: str) -> Value:
    """The value, where `levels` lists still enclose it."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    if levels > 1:
        if not isinstance(value, (list, tuple)) and not (isinstance(value, np.ndarray) and value.ndim):
            raise _mismatch(field, value, where)
        return [_coerce(field, row, levels - 1, f"{where}[{index}]") for index, row in enumerate(value)]
    if field.kind == "label" and field.classes is not None:
        value = _class_indices(field.classes, value, where)
    if field.kind == "image":
        value = _encode_images(field, value, levels, where)
    array = _coerce_texts(field, value, where) if field.dtype in TEXTS else _coerce_numbers(field, value, where)
    shape = (None,) * levels + field.shape
    if not array.size and array.ndim < len(shape) and isinstance(value, (list, tuple)):
        array = array.reshape(array.shape + tuple(size or 0 for size in shape[array.ndim :]))  # an empty list of rows
    if array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True)):
        raise _mismatch(field, value, where, "Reshape it, or declare the type that it has")
    if field.kind == "label" and field.classes is not None and array.size:
        _check_labels(field.classes, array, where)
    return array if array.ndim or array.dtype != object else array[()]


def _coerce_texts(field: ValueType, value: object, where: str) -> Array:
    items: list[Value]
    shape: tuple[int, ...]
    if isinstance(value, np.ndarray):
        items, shape = value.ravel().tolist(), value.shape
    else:
        items, shape = _unnest(value) if isinstance(value, (list, tuple)) else ([value], ())
    encoded = np.empty(len(items), object)
    for index, item in enumerate(items):
        if field.dtype == "bytes" and isinstance(item, (bytes, bytearray, memoryview)):
            encoded[index] = bytes(item)
        elif field.dtype == "str" and isinstance(item, str):
            try:
                encoded[index] = item.encode()
            except UnicodeEncodeError:  # half of a surrogate pair
                got = f"a str that is not valid Unicode, {reprlib.repr(item)}"
                raise _mismatch(field, value, where, got=got) from None
        else:
            raise _mismatch(field, value, where, _text_hint(field, item, value))
    return encoded.reshape(shape)


def _text_hint(field: ValueType, item: object, value: object) -> str:
    """How a value becomes a str or bytes, where that is known."""
    if field.dtype == "str":
        return "Convert it: value.decode()" if hasattr(item, "decode") else "Convert it first: str(value)"
    if hasattr(item, "read_bytes"):
        return "Convert it: value.read_bytes()"
    if field.kind in ("image", "video"):
        return "Give the bytes of the file: pathlib.Path(value).read_bytes()" if isinstance(item, str) else _IMAGES
    if isinstance(item, str):
        return "Convert it: value.encode()"
    if isinstance(value, (np.ndarray, np.generic)):
        return f'Declare the type that it has: "{_describe(value)}"'
    return "Convert it: value.tobytes()" if hasattr(item, "tobytes") else "Convert it first"


# Images
def is_picture(value: object) -> bool:
    """Whether a value is an image of Pillow."""
    return type(value).__module__.startswith("PIL.") and hasattr(value, "save") and hasattr(value, "getbands")


def _encode_images(field: ValueType, value: Value, levels: int, where: str) -> Value:
    """The files of images that are given as pixels: PNG, which loses nothing. What are files already stays."""
    if levels:
        rows = value if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 1 else None
        if rows is None:
            return value
        return [_encode_images(field, row, levels - 1, f"{where}[{index}]") for index, row in enumerate(rows)]
    if is_picture(value):
        return _encode_picture(field, value, where)
    if hasattr(value, "__array__") and not isinstance(value, (bytes, np.bytes_)):
        array = np.asarray(value)
        if array.dtype.kind not in "SUO":
            return _encode_pixels(field, array, where)
    return value


def _encode_picture(field: ValueType, picture: Value, where: str) -> bytes:
    if getattr(picture, "n_frames", 1) > 1:
        got = f"an animation of {picture.n_frames} frames"
        raise _mismatch(field, picture, where, "Give the bytes of its file, or one frame: image.copy()", got=got)
    out = io.BytesIO()
    try:
        picture.save(out, "PNG")
    except OSError as error:  # a mode that PNG does not have
        got = f"an image of the mode {picture.mode} ({error})"
        raise _mismatch(field, picture, where, 'Convert it: image.convert("RGB")', got=got) from error
    return out.getvalue()


def _encode_pixels(field: ValueType, pixels: Array, where: str) -> bytes:
    """Return a PNG file of pixels that PNG can hold."""
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or channels not in _COLORS or not pixels.size:
        raise _mismatch(field, pixels, where, _IMAGES)
    return encode_png(pixels)


def encode_png(pixels: Array) -> bytes:
    """Return a PNG file of uint8[height, width] or uint8[height, width, 1 to 4]."""
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    height, width = pixels.shape[:2]
    lines = pixels.reshape(height, width * channels)
    filtered = np.empty((height, 1 + width * channels), np.uint8)
    filtered[:, 0] = 2  # each line is stored as its difference from the one above
    filtered[0, 1:], filtered[1:, 1:] = lines[0], lines[1:] - lines[:-1]
    header = struct.pack(">IIBBBBB", width, height, 8, _COLORS[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.data, 6)), (b"IEND", b""))
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _coerce_numbers(field: ValueType, value: Value, where: str) -> Array:
    if hasattr(value, "__array__"):
        return _coerce_array(field, value, where)
    items, shape = _unnest(value) if isinstance(value, (list, tuple)) else ([value], ())
    if len(shape) > MAX_RANK:
        raise _mismatch(field, value, where, got=f"a list of more than {MAX_RANK} dimensions")
    if any(hasattr(kind, "__array__") for kind in set(map(type, items))):
        rows = [_coerce_numbers(field, row, where) for row in value]
        if len({row.shape for row in rows}) > 1:
            raise _mismatch(field, value, where, got="arrays that differ in shape")
        return np.stack(rows)
    return _coerce_python(field, items, where, value).reshape(shape)


def _coerce_array(field: ValueType, value: object, where: str) -> Array:
    """NumPy's rule is strict: the same dtype, or one that loses nothing."""
    if np.ma.is_masked(value):
        raise _mismatch(field, value, where, "Fill it first: value.filled(...)", got="an array with masked elements")
    array = np.asarray(value)
    name = array.dtype.name
    if name not in DTYPES or common_dtype(name, field.dtype) != field.dtype:
        hint = f'Cast it first: value.astype("{field.dtype}")' if name in DTYPES else ""
        raise _mismatch(field, array, where, hint)
    if name in ("int64", "uint64") and field.dtype == "float64":
        for item in array[(array > 2**53) | (array < -(2**53))].tolist():
            if float(item) != item:
                raise _mismatch(field, array, where, got=f"{name} {item}, which float64 cannot hold exactly")
    return np.asarray(array, dtype=numpy_dtype(field.dtype), order="C")


def _coerce_python(field: ValueType, items: list[Value], where: str, value: object) -> Array:
    """Python's numbers have no width: an int must fit, a float is rounded to the field's precision."""
    allowed = (bool,) if field.dtype == "bool" else (int,) if field.dtype in INTEGERS else (int, float)
    if not all(isinstance(item, allowed) for item in items):
        uneven = any(isinstance(item, (list, tuple)) for item in items)
        raise _mismatch(field, value, where, "Declare it as a list of lists" if uneven else "Convert it first")
    if field.dtype in INTEGERS:
        limits = np.iinfo(field.dtype)
        for item in items:
            if not limits.min <= item <= limits.max:
                got = item if item.bit_length() <= 64 else f"an int of {item.bit_length()} bits"
                raise _mismatch(field, value, where, got=f"{got}, outside of {limits.min} to {limits.max}")
    if field.dtype not in FLOATS:
        return np.array(items, dtype=field.dtype)
    try:
        exact = np.array(items, dtype=np.float64)
    except OverflowError:
        raise _mismatch(field, value, where, got="an int too large for any float") from None
    with np.errstate(over="ignore"):
        rounded = exact.astype(numpy_dtype(field.dtype))
    for item, stored in zip(items, rounded.tolist(), strict=True):
        if stored != item and (isinstance(item, int) or (math.isinf(stored) and math.isfinite(item))):
            wide = str(field).replace(field.dtype, "float64")
            hint = f'Declare it: schema={{"{where.rpartition(".")[2]}": "{wide}"}}' if field.dtype != "float64" else ""
            raise _mismatch(field, value, where, hint, got=f"{item}, which {field.dtype} cannot hold")
    return rounded


# Labels
def _class_indices(classes: tuple[str, ...], value: object, where: str) -> Value:
    """A label may be given by the name of its class."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        value = value.tolist()

    def index(item: object) -> Value:
        if isinstance(item, str) and item not in classes:
            raise SchemaError(f"unknown class {reprlib.repr(item)}", where, name_known(item, classes, "classes"))
        return classes.index(item) if isinstance(item, str) else item

    return map_nested(index, value)


def _check_labels(classes: tuple[str, ...], array: Array, where: str) -> None:
    """A label is the index of its class; -1 is "none", as TFDS has it."""
    for label in (int(array.min()), int(array.max())):
        if not -1 <= label < len(classes):
            raise SchemaError(f"expected a label of {len(classes)} classes, got {label}", where)


# Lists
def check_lengths(lists: Mapping[str, Value], depth: int, where: str) -> None:
    """The lists of one sequence are equally long, at each of the `depth` levels that they share."""
    lengths = {name: _lengths(value, depth) for name, value in lists.items() if value is not None}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} of {length}" for name, length in lengths.items())
        raise SchemaError(f"expected lists of equal length in a sequence, got {got}", where)


def _lengths(value: Value, depth: int) -> Value:
    return len(value) if depth == 1 else tuple(_lengths(row, depth - 1) for row in value)


def _unnest(value: list[Value] | tuple[Value, ...]) -> tuple[list[Value], tuple[int, ...]]:
    """The items of nested lists in order, and the shape of the lists around them, as far as they are even."""
    items: list[Value] = list(value)
    shape: tuple[int, ...] = (len(value),)
    while items and len(shape) <= MAX_RANK and all(isinstance(item, (list, tuple)) for item in items):
        lengths = {len(item) for item in items}
        if len(lengths) > 1:
            break
        items = [inner for item in items for inner in item]
        shape = (*shape, lengths.pop())
    return items, shape


def map_nested(
    function: Value, value: object, into: type[list[Value]] | type[tuple[Value, ...]] = tuple, depth: int = 0
) -> Value:
    """The function over all items of nested lists or tuples, which become tuples, or what `into` says."""
    if not isinstance(value, (list, tuple)):
        return function(value)
    if depth > MAX_RANK:
        raise SchemaError(f"expected at most {MAX_RANK} dimensions, got more")
    return into(map_nested(function, item, into, depth + 1) for item in value)


# What messages say
def _describe(value: object) -> str:
    """The type of any value, in the notation of fields; Python's numbers have no width."""
    if isinstance(value, (np.ndarray, np.generic)):
        name: str = {"U": "str", "S": "bytes"}.get(value.dtype.kind, value.dtype.name)
        return name + write_dimensions(value.shape)
    if isinstance(value, (list, tuple)):
        items, shape = _unnest(value)
        names = sorted({type(item).__name__ for item in items})
        if "list" in names or "tuple" in names:
            return "lists that differ in length"
        return (
            names[0] + write_dimensions(shape) if len(names) == 1 else f"a list of {' and '.join(names) or 'nothing'}"
        )
    return type(value).__name__


def _mismatch(field: ValueType, value: object, where: str, hint: str = "", got: str = "") -> SchemaError:
    return SchemaError(f"expected {field}, got {got or _describe(value)}", where, hint)
