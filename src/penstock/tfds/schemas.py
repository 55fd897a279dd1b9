"""features.json as a schema. Nothing is imported by the names that it holds: a class that we don't know is a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..dtypes import DTYPES, Shape
from ..errors import CorruptionError, SchemaError
from ..field import PIXELS, Field
from ..schema import Schema
from .features import BOX_FORMAT, Json, label_file

Classes = Callable[[tuple[str, ...]], tuple[str, ...] | None]
Lengths = tuple[int | None, ...]


def schema_of(features: Json, classes: Classes) -> tuple[Schema, dict[str, str]]:
    """The schema of features, and those that can't be read, each with the reason.

    classes  gives the names of a label's classes, by its path, if they are known
    """
    reading = _Reading(classes)
    node = reading.node(features, (), (), 0)
    if not isinstance(node, Schema):
        raise SchemaError(f"expected a dict of features, got {_name_of(features)}", "features.json")
    return node, reading.unread


class _Reading:
    """Features to nodes of a schema. `lengths` are those of the sequences around; `implied`, how many of them the
    schemas around stand for."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self.unread: dict[str, str] = {}

    def node(self, feature: Json, path: tuple[str, ...], lengths: Lengths, implied: int) -> Field | Schema | None:
        """A field, the schema of a dict, or None for what can't be read."""
        name, content = _name_of(feature), _Content(feature)
        if name == "FeaturesDict":
            return self._dict(content.features(), path, lengths, implied, False)
        if name == "Translation":
            texts = {language: {"pythonClassName": "Text"} for language in content.get("languages")}
            return self._dict(texts, path, lengths, implied, False)
        if name in ("Sequence", "Dataset", "TranslationVariableLanguages"):
            inner, length = content.inner() if name != "TranslationVariableLanguages" else (_VARIABLE, None)
            if _name_of(inner) != "FeaturesDict":
                return self.node(inner, path, (*lengths, length), implied)
            open_ended = length is None
            below = _Content(inner).features()
            return self._dict(below, path, (*lengths, length), implied + open_ended, open_ended)
        read = _FIELDS.get(name)
        try:
            if read is None:
                raise SchemaError(f"its class {name} is none that Penstock knows")
            return _enclosed(read(content), lengths, implied, self._classes(name, content, path))
        except SchemaError as error:
            self.unread["/".join(path)] = str(error)
            return None

    def _dict(
        self, features: Json, path: tuple[str, ...], lengths: Lengths, implied: int, sequence: bool
    ) -> Schema | None:
        found = {name: self.node(feature, (*path, name), lengths, implied) for name, feature in features.items()}
        known = {name: node for name, node in found.items() if node is not None}
        return Schema(known, sequence=sequence) if known or not path else None

    def _classes(self, name: str, content: _Content, path: tuple[str, ...]) -> tuple[str, ...] | None:
        if name not in ("ClassLabel", "LabeledImage"):
            return None
        label = content.get("label", {}) if name == "LabeledImage" else content.data
        count = int(label.get("numClasses", label.get("num_classes")) or 0)
        names = self.classes(path)
        if names is not None and count and len(names) != count:
            hint = "Restore the file of class names from a copy, or delete it to load labels as numbers"
            where = f"{label_file(path)}. {hint}"
            raise CorruptionError(f"expected {count} names of classes as in features.json, got {len(names)}", where)
        return names if count else None


_VARIABLE: Json = {
    "pythonClassName": "FeaturesDict",
    "featuresDict": {"features": {name: {"pythonClassName": "Text"} for name in ("language", "translation")}},
}


def _name_of(feature: Json) -> str:
    """The class of a feature: the last part of its name if it is one of TFDS's own."""
    name = str(feature.get("pythonClassName") or feature.get("type") or "of no name")
    module, _, last = name.rpartition(".")
    return last if not module or module.split(".")[0] == "tensorflow_datasets" else name


class _Content:
    """What a feature says of itself, in today's JSON or in that of TFDS before 4.3."""

    def __init__(self, feature: Json) -> None:
        self.data: Json = next((value for value in feature.values() if isinstance(value, dict)), {})
        self.legacy = "type" in feature

    def get(self, key: str, default: Any = None) -> Any:
        """A value by its name, which used to be written in snake_case."""
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
        return self.data.get(key, self.data.get(snake, default))

    def features(self) -> Json:
        """Those of a dict."""
        found: Json = self.data if self.legacy else self.data.get("features", {})
        return found

    def inner(self) -> tuple[Json, int | None]:
        """That of a sequence, and its length."""
        length = self.get("length")
        return self.data["feature"], None if length is None or int(length) < 0 else int(length)

    @property
    def shape(self) -> Shape:
        """Of the decoded value."""
        given = self.get("shape") or ()
        sizes = given.get("dimensions", ()) if isinstance(given, dict) else given
        return tuple(None if size is None or int(size) < 0 else int(size) for size in sizes)

    @property
    def dtype(self) -> str:
        """Of the decoded value; a string is bytes to TFDS."""
        dtype = str(self.get("dtype"))
        if dtype == "string":
            return "bytes"
        if dtype not in DTYPES:
            raise SchemaError(f"its dtype {dtype} is none that Penstock knows")
        return dtype


def _tensor(content: _Content) -> Field:
    encoding = str(content.get("encoding") or "none").lower()
    return Field("", content.dtype, content.shape, encoding=encoding, optional=bool(content.get("optional", False)))


def _text(content: _Content) -> Field:
    if content.get("useEncoder"):
        raise SchemaError("its texts are encoded by a vocabulary, which TFDS has given up")
    return Field(dtype="str")


def _box(content: _Content) -> Field:
    relative = content.get("bboxFormat") in (None, "", BOX_FORMAT)
    return Field("", str(content.get("dtype", "float32")), (4,), kind="box" if relative else "tensor")


def _image(content: _Content) -> Field:
    return Field(dtype="bytes", kind="image", decoded=_decoded(content, content.shape))


def _video(content: _Content) -> Field:
    """Its frames are a list, which `_enclosed` makes of `shape` if their number is known."""
    shape = content.shape or (None,)
    levels = int(shape[0] is None)
    return Field(
        "", "bytes", () if levels else shape[:1], kind="video", levels=levels, decoded=_decoded(content, shape[1:])
    )


def _decoded(content: _Content, shape: Shape) -> str | None:
    dtype = str(content.get("dtype", "uint8"))
    if dtype not in PIXELS or not shape:
        return None
    return str(Field("", dtype, shape, encoding="bytes"))


def _audio(content: _Content) -> Field:
    if content.get("lazyDecode"):
        return Field(dtype="bytes", kind="audio")
    encoding = str(content.get("encoding") or "none").lower()
    return Field("", content.dtype, content.shape, encoding=encoding, kind="audio")


def _label(content: _Content) -> Field:
    return Field(dtype="int64", kind="label")


_FIELDS: dict[str, Callable[[_Content], Field]] = {
    "Audio": _audio,
    "BBoxFeature": _box,
    "ClassLabel": _label,
    "Image": _image,
    "LabeledImage": _image,
    "Scalar": _tensor,
    "Tensor": _tensor,
    "Text": _text,
    "Video": _video,
}


def _enclosed(field: Field, lengths: Lengths, implied: int, classes: tuple[str, ...] | None) -> Field:
    """The field within sequences. TFDS stores one of a known length as a dimension, several as lists in any case."""
    shape, levels = field.shape, field.levels + len(lengths) - implied
    if len(lengths) == 1 and lengths[0] is not None and not field.levels and _takes_shape(field):
        shape, levels = (lengths[0], *shape), 0
    elif lengths and field.shape and field.kind == "video":
        shape, levels = (), levels + 1
    kind = "tensor" if field.kind == "text" and shape else field.kind
    return replace(field, shape=shape, levels=levels, kind=kind, classes=classes)


def _takes_shape(field: Field) -> bool:
    return field.encoding == "none" and field.kind not in ("image", "video") and None not in field.shape
