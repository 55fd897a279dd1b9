"""One value of an example: a Field, its type and how it is stored; an Image, how the files of a field are decoded.

Types are written the way messages show them:

    int64          a number                      list[int64]        a list of numbers
    float32[13]    a vector of 13                list[list[str]]    a list of lists of strings
    uint8[?,?,3]   two unknown dimensions        int64[?]?          may be missing
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from .. import _core
from ..errors import ArgumentError, SchemaError, did_you_mean, name_known
from .coercion import (
    DTYPES,
    FLOATS,
    INTEGERS,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_RANK,
    TEXTS,
    Shape,
    coerce,
    map_nested,
    numpy_dtype,
    write_dimensions,
)
from .columns import Array, DType, Value

Encoding: TypeAlias = Literal["auto", "none", "bytes", "zlib"]
Kind: TypeAlias = Literal["tensor", "text", "label", "image", "video", "audio", "box"]
Crop: TypeAlias = Literal["center", "random"]
Channels: TypeAlias = Literal[1, 3, 4]

ENCODINGS = ("none", "bytes", "zlib")
PIXELS = ("uint8", "uint16", "float32")
KINDS = ("tensor", "text", "label", "image", "video", "audio", "box")
_KIND_DTYPES = {"text": ("str",), "label": INTEGERS, "image": ("bytes",), "video": ("bytes",), "box": FLOATS}
_IMAGE_TYPES = {  # by the first bytes of a file; see also image_type
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
}
_NUMPY_DTYPES = {*DTYPES} - {*TEXTS, "bfloat16"}
_NOTATION = re.compile(r"((?:list\[)*)([a-z]+[0-9]*)(?:\[([^\[\]]*)\])?(\]*)(\??)")
_DIMENSION = re.compile(r"\?|0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, eq=False, repr=False)
class Field:
    """One value of an example: its type, and how it is stored.

    shape     None stands for an unknown dimension
    encoding  "none": the values themselves, in the record's list of numbers or strings;
              "bytes", "zlib": one byte string that holds the array in C order, little endian;
              "auto": the plainest of them that loses nothing (it becomes one of the three at once)
    optional  the value may be missing; a reader gets `default` then, or None
    classes   the names of a label's values
    kind      what the value means: "tensor", "text", "label", "image" ...
    levels    how many lists of any length enclose the value
    decoded   the type of an image's pixels, or of a video's frame: "uint8[28,28,1]"; RGB of any size unless told
    """

    name: str = ""
    dtype: str = "float32"
    shape: Shape = ()
    _: KW_ONLY
    encoding: Encoding = "auto"
    optional: bool = False
    default: Value = None
    classes: tuple[str, ...] | None = None
    kind: Kind = "tensor"
    levels: int = 0
    decoded: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SchemaError(f"expected a field's name as a str, got {reprlib.repr(self.name)}")
        self._one_of("dtype", DTYPES)
        self._set("shape", _checked_shape(self.shape, self.name))
        self._one_of("encoding", ("auto", *ENCODINGS))
        if not isinstance(self.optional, bool):
            raise SchemaError(f"expected optional to be True or False, got {reprlib.repr(self.optional)}", self.name)
        self._one_of("kind", KINDS)
        if type(self.levels) is not int or not 0 <= self.levels <= MAX_DEPTH:
            raise SchemaError(f"expected 0 to {MAX_DEPTH} levels, got {reprlib.repr(self.levels)}", self.name)
        self._settle_kind()
        self._settle_encoding()
        if self.decoded is not None:
            self._settle_decoded()
        if self.default is not None:
            self._settle_default()

    def _set(self, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)

    def _one_of(self, attribute: str, known: tuple[str, ...]) -> None:
        value = getattr(self, attribute)
        if not isinstance(value, str) or value not in known:
            raise SchemaError(
                f"expected {attribute} to be one of {', '.join(known)}, got {reprlib.repr(value)}",
                self.name,
                did_you_mean(value, known),
            )

    def _settle_kind(self) -> None:
        """Class names make a label, a single string is a text; each kind has its dtypes."""
        if self.classes is not None:
            self._set("classes", _checked_classes(self.classes, self.name))
            if self.kind == "tensor":
                self._set("kind", "label")
            if self.kind not in ("label", "image"):
                raise SchemaError(f"expected class names on a label, got them on kind {self.kind!r}", self.name)
        if self.kind == "tensor" and self.dtype == "str" and not self.shape:
            self._set("kind", "text")
        known = _KIND_DTYPES.get(self.kind, DTYPES)
        if self.dtype not in known:
            raise SchemaError(
                f"expected dtype {', '.join(known)} for kind {self.kind!r}, got {self.dtype}",
                self.name,
                f'Write dtype="{"int64" if self.kind == "label" else known[0]}"',
            )
        if self.kind in ("text", "image") and self.shape:
            raise SchemaError(
                f"expected no shape for kind {self.kind!r}, got {self}", self.name, "Use levels=1 for a list of them"
            )

    def _settle_encoding(self) -> None:
        unknown = self.shape.count(None)
        if unknown and self.levels:
            raise SchemaError(
                f"expected known dimensions inside a list, got {self}",
                self.name,
                "Write one more list, such as list[list[int64]], for rows that differ in length",
            )
        if self.dtype in TEXTS:
            if self.encoding not in ("auto", "none"):
                raise SchemaError(f"expected encoding 'none' for {self}, got {self.encoding!r}", self.name)
            if unknown > 1:
                raise SchemaError(
                    f"expected at most one unknown dimension, got {self}", self.name, "Write list[list[...]] instead"
                )
        exact_only = self.dtype == "bfloat16" or unknown > 1
        if self.encoding == "none" and exact_only:
            raise SchemaError(
                f"{self} cannot be stored with encoding 'none'", self.name, "Use encoding 'bytes' or 'zlib'"
            )
        if self.encoding == "auto":
            self._set("encoding", "bytes" if exact_only or self.dtype == "float64" else "none")

    def _settle_decoded(self) -> None:
        """Height, width and channels, of bytes or of what a PNG can hold besides; a moving image has frames before."""
        pixels = Field.parse(self.decoded or "", self.name)
        if self.kind not in ("image", "video"):
            raise SchemaError(f"expected decoded on an image or a video, got it on kind {self.kind!r}", self.name)
        plain = not pixels.levels and not pixels.optional and len(pixels.shape) in (3, 4)
        if not plain or pixels.dtype not in PIXELS:
            raise SchemaError(f"expected decoded as uint8[height,width,channels], got {self.decoded}", self.name)
        self._set("decoded", str(pixels))

    def _settle_default(self) -> None:
        """A field with a default may be missing. The default is kept as plain Python values."""
        if self.levels:
            raise SchemaError("expected no default on a list", self.name, "A missing one reads as None")
        self._set("optional", True)
        value = self.coerce(self.default, f"the default of {self.name or self}")
        if isinstance(value, np.ndarray):
            value = map_nested(lambda item: item.decode() if self.dtype == "str" else item, value.tolist())
        self._set("default", value.decode() if self.dtype == "str" and isinstance(value, bytes) else value)

    @classmethod
    def parse(cls, text: str, name: str = "", **options: Value) -> Field:
        """The field of a type such as "float32[4,?]"; the inverse of `str(field)`."""
        match = _NOTATION.fullmatch(text.replace(" ", "")) if isinstance(text, str) else None
        if match and len(match[1]) == len("list[") * len(match[4]):
            dimensions = match[3].split(",") if match[3] is not None else []
            if all(_DIMENSION.fullmatch(dimension) for dimension in dimensions):
                shape = tuple(None if dimension == "?" else int(dimension) for dimension in dimensions)
                return cls(name, match[2], shape, levels=len(match[4]), optional=bool(match[5]), **options)
        raise SchemaError(
            f"expected a type such as float32[4,?], list[str] or int64?, got {reprlib.repr(text)}",
            name,
            "An unknown dimension is written ?",
        )

    def __str__(self) -> str:
        return (
            "list[" * self.levels + self.dtype + write_dimensions(self.shape) + "]" * self.levels + "?" * self.optional
        )

    def __repr__(self) -> str:
        """The call that makes this field; only what differs from the plain field of its type."""
        plain = Field(self.name, self.dtype, self.shape, levels=self.levels)
        implied = {
            "shape": (),
            "encoding": plain.encoding,
            "optional": self.default is not None,
            "default": None,
            "classes": None,
            "kind": plain.kind if self.classes is None else "label",
            "levels": 0,
            "decoded": None,
        }
        parts = [repr(self.name)] if self.name else []
        parts.append(f"dtype={self.dtype!r}")
        parts += [f"{key}={_literal(getattr(self, key))}" for key, v in implied.items() if getattr(self, key) != v]
        return f"Field({', '.join(parts)})"

    def _key(self) -> tuple[Value, ...]:
        """What makes two fields equal. The default goes by its repr, so that nan equals nan."""
        return tuple(repr(self.default) if f.name == "default" else getattr(self, f.name) for f in fields(self))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Field) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def numpy_dtype(self) -> DType | None:
        """The dtype of its arrays; None for bytes and str."""
        return np.dtype(self.dtype) if self.dtype in _NUMPY_DTYPES else numpy_dtype(self.dtype)

    @property
    def wire(self) -> str:
        """Which list of tf.Example holds it: "int64", "float" or "bytes"."""
        if self.encoding != "none" or self.dtype in TEXTS:
            return "bytes"
        return "float" if self.dtype in FLOATS else "int64"

    @property
    def fixed_count(self) -> int | None:
        """How many elements one value has, lists aside; None where a dimension is unknown."""
        return None if None in self.shape else math.prod(d for d in self.shape if d is not None)

    @property
    def record_keys(self) -> tuple[str, ...]:
        """The keys that hold it in a tf.Example, the values' own key first."""
        if self.levels > 1:
            lengths = (f"{self.name}/ragged_row_lengths_{level}" for level in range(self.levels - 1))
            return (f"{self.name}/ragged_flat_values", *lengths)
        return (f"{self.name}/value", f"{self.name}/shape") if self.shape.count(None) > 1 else (self.name,)

    def coerce(self, value: object, where: str = "") -> Value:
        """The value in its one canonical form, or a SchemaError: nothing is cast with a loss.

        Numbers become an ndarray of the exact dtype in C order, bytes and str become bytes (arrays of them: an
        object ndarray), the innermost list becomes the array's first dimension, the lists around it stay lists.
        """
        return coerce(self, value, where or self.name)


def _checked_shape(shape: object, where: str) -> Shape:
    if not isinstance(shape, (tuple, list)) or len(shape) > MAX_RANK:
        raise SchemaError(
            f"expected a shape such as (13,) or (None, 3), of at most {MAX_RANK} dimensions, got {reprlib.repr(shape)}",
            where,
        )
    for size in shape:
        if size is not None and (not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 0):
            raise SchemaError(
                f"expected each dimension to be 0 or more, or None, got {reprlib.repr(size)}", where, "None is unknown"
            )
    checked = tuple(None if size is None else int(size) for size in shape)
    if math.prod(size or 1 for size in checked) > MAX_ELEMENTS:
        raise SchemaError(f"expected at most {MAX_ELEMENTS} elements, got shape {write_dimensions(checked)}", where)
    return checked


def _checked_classes(classes: object, where: str) -> tuple[str, ...]:
    if not isinstance(classes, (tuple, list)) or not all(is_utf8(name) for name in classes):
        raise SchemaError(f"expected class names as a tuple of str, got {reprlib.repr(classes)}", where)
    if len(set(classes)) != len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise SchemaError(f"expected each class once, got {reprlib.repr(twice)} twice", where)
    return tuple(str(name) for name in classes)


def is_utf8(name: object) -> bool:
    """Return whether it is a str that can be stored: one without halves of surrogate pairs."""
    try:
        return isinstance(name, str) and name.encode() is not None
    except UnicodeEncodeError:
        return False


def _literal(value: object) -> str:
    """The repr, also for numbers that have no literal."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


@dataclass(frozen=True, kw_only=True)
class Image:
    """The annotation of a field that holds an image file, `image: Image`; and, called, how such files are decoded.

    size      (height, width) of the result, exactly
    max_side  the longer side is at most this; smaller images stay as they are
    crop      None: all of the image; "center": its largest centered part of the aspect ratio of `size`; "random": a
              part of a random share of its area (`scale`) in a random aspect ratio (`ratio`: width / height)
    flip      how probable it is that left and right are swapped
    channels  1: grey; 3: RGB; 4: RGB and alpha; None: as stored
    seed      other seeds give other crops and flips

    Crops and flips depend on the seed, the field, the epoch and the example's place in it, and on nothing else.
    """

    size: tuple[int, int] | None = None
    max_side: int | None = None
    crop: Crop | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    channels: Channels | None = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "scale", "ratio"):
            value = getattr(self, name)
            if isinstance(value, list):  # as configuration files have them
                object.__setattr__(self, name, tuple(value))
            elif value is not None and not isinstance(value, tuple):
                raise ArgumentError(f"expected two numbers, such as (224, 224), got {type(value).__name__}", name)
        _core.Images({"Image": asdict(self)})  # it refuses what makes no sense

    if TYPE_CHECKING:  # the value of a field annotated with it

        def __get__(self, example: object, kind: type | None = None) -> bytes: ...
        def __set__(self, example: object, value: bytes) -> None: ...

    def decode(self, data: bytes, random: int = 0) -> Array:
        """The pixels of an image file: uint8[height, width, channels]. `random` decides crops and flips."""
        return _core.decode_image(data, random, **asdict(self))

    def resize(self, data: bytes, place: str = "") -> bytes:
        """An image file of this size, in the channels that it has; one of the size stays as it is.

        JPEG stays JPEG, all other formats become PNG. `place` is named where the file is broken.
        """
        return _core.resize_image(data, place, **asdict(self))


Decode: TypeAlias = "bool | Mapping[str, bool | Image]"
"""How images are decoded: all of them, none, or options by field."""


def image_options(leaves: Iterable[Field], decode: Decode) -> dict[str, Image]:
    """Return how each field that holds images is decoded; fields whose images stay bytes are left out."""
    given = decode if isinstance(decode, Mapping) else {}
    images: dict[str, Image] = {}
    for field in leaves:
        if not _holds_image(field):
            continue
        wanted = given.get(field.name, decode is not False and _is_plain(field))
        if not isinstance(wanted, (bool, Image)):
            expected = "expected True, False or Image(...)"
            raise ArgumentError(f"{expected}, got {type(wanted).__name__}", f"decode, field {field.name!r}")
        if wanted is not False:
            images[field.name] = wanted if isinstance(wanted, Image) else _plain_image(field)
    return images


def check_decode(leaves: Iterable[Field], decode: Decode) -> None:
    """Refuse options for fields that hold no images."""
    if not isinstance(decode, (bool, Mapping)):
        raise ArgumentError(f"expected True, False or options by field, got {type(decode).__name__}", "decode")
    fields = [leaf for leaf in leaves if _holds_image(leaf)]
    names = [field.name for field in fields]
    for name in decode if isinstance(decode, Mapping) else ():
        if name not in names:
            raise ArgumentError(f"no image field {name!r}", "decode", name_known(name, names, "image fields"))
    image_options(fields, decode)


def _holds_image(field: Field) -> bool:
    return field.kind == "image" and not field.levels


def _is_plain(field: Field) -> bool:
    """Return whether the pixels are bytes, in one frame: the core decodes no others."""
    return field.decoded is None or (field.decoded.startswith("uint8[") and field.decoded.count(",") == 2)


def _plain_image(field: Field) -> Image:
    """Return an image with the channels of the field, RGB by default; pixels that are classes stay as stored."""
    if field.classes is not None:
        return Image(channels=None)
    channels = 3 if field.decoded is None else Field.parse(field.decoded).shape[-1]
    known: dict[int | None, Channels] = {1: 1, 3: 3, 4: 4}
    return Image(channels=known.get(channels))


def image_type(head: bytes, size: int | None = None) -> str | None:
    """Return the media type of an image file, None for other bytes. Its first 16 bytes do, with its size."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[:2] == b"BM" and int.from_bytes(head[2:6], "little") == (len(head) if size is None else size):
        return "image/bmp"
    return next((name for magic, name in _IMAGE_TYPES.items() if head.startswith(magic)), None)
