"""A schema as features.json, which tells TFDS what records hold; and the files that hold the names of classes.

Our records are laid out as TFDS lays them out, so this is a translation of words. TFDS can't read all that we can
store: such fields are left out, with a reason, and TFDS passes over their bytes. Its Video and Audio are not among the
words: a dataset with them can't be opened without TensorFlow, and images and tensors give the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from ..errors import CorruptionError, SchemaError
from ..schema.coercion import DTYPES, TEXTS, Shape
from ..schema.field import PIXELS, Encoding, Field
from ..schema.schema import Schema

FEATURES = "features.json"
LABELS = ".labels.txt"
BOX_FORMAT = "REL_YXYX"
_PACKAGE = "tensorflow_datasets.core.features"
_MODULES = {
    "BBoxFeature": "bounding_boxes",
    "ClassLabel": "class_label_feature",
    "FeaturesDict": "features_dict",
    "Image": "image_feature",
    "LabeledImage": "labeled_image",
    "Sequence": "sequence_feature",
    "Tensor": "tensor_feature",
    "Text": "text_feature",
}
Json = dict[str, Any]


def features_of(schema: Schema) -> tuple[Json, dict[str, str]]:
    """The features of a schema, and what TFDS does otherwise: fields that it can't read, or gives as stored bytes."""
    notes = {leaf.name: note for leaf in schema.leaves() if (note := _note(leaf))}
    kept = [leaf.name for leaf in schema.leaves() if not is_left_out(leaf)]
    return _dict_feature(schema.select(*kept), 0), notes


def is_left_out(leaf: Field) -> bool:
    """Whether TFDS can't read a field, with all levels that enclose it: not everything may be missing there."""
    return leaf.optional and bool(leaf.levels or None in leaf.shape or _is_packed(leaf))


def _note(leaf: Field) -> str:
    if is_left_out(leaf):
        return f"left out, for it may be missing, and TFDS has no such {_described(leaf)}"
    if leaf.levels > 1 and _is_packed(leaf):
        return f"given as the bytes that are stored, for TFDS decodes no lists of lists of {_described(leaf)}"
    return ""


def _is_packed(field: Field) -> bool:
    return field.encoding != "none" or field.kind in ("image", "video")


def _described(leaf: Field) -> str:
    if leaf.kind in ("image", "video"):
        return f"{leaf.kind}s"
    if leaf.encoding != "none":
        return f"arrays in the encoding {leaf.encoding}"
    return "lists" if leaf.levels else "arrays of unknown size"


def _dict_feature(schema: Schema, enclosing: int) -> Json:
    """`enclosing` is how many sequences there are around it."""
    enclosing += schema.sequence
    below = {
        name: _dict_feature(node, enclosing) if isinstance(node, Schema) else _feature(node, enclosing)
        for name, node in schema.items()
    }
    feature = _named("FeaturesDict", featuresDict={"features": below})
    return _sequence(feature) if schema.sequence else feature


def _feature(field: Field, enclosing: int) -> Json:
    as_bytes = enclosing + field.levels > 1 and _is_packed(field)
    feature = _tensor_feature((), "string", "none") if as_bytes else _value(field)
    for _ in range(field.levels):
        feature = _sequence(feature)
    return feature


def _value(field: Field) -> Json:
    """The feature of one value, lists aside."""
    plain = field.encoding == "none" and not field.optional
    if field.kind == "video" and len(field.shape) < 2:
        frame = _named("Image", image=_pixels(field))
        return _sequence(frame, field.shape[0]) if field.shape else frame
    if field.kind == "image":
        if field.classes is None:
            return _named("Image", image=_pixels(field))
        label = {"useColormap": True, "label": {"numClasses": str(len(field.classes))}}
        return _named("LabeledImage", image=_pixels(field) | label)
    if plain and field.kind == "text":
        return _named("Text", text={})
    if plain and field.classes is not None and len(field.shape) < 2:
        label = _named("ClassLabel", classLabel={"numClasses": str(len(field.classes))})
        return _sequence(label, field.shape[0]) if field.shape else label
    if plain and field.kind == "box" and field.shape == (4,) and field.dtype == "float32":
        return _named("BBoxFeature", boundingBox=_typed(field.shape, field.dtype) | {"bboxFormat": BOX_FORMAT})
    tensor = _tensor_feature(field.shape, "string" if field.dtype in TEXTS else field.dtype, field.encoding)
    if field.optional:
        tensor["tensor"]["optional"] = True
    return tensor


def _tensor_feature(shape: Shape, dtype: str, encoding: str) -> Json:
    return _named("Tensor", tensor=_typed(shape, dtype) | {"encoding": encoding})


def _pixels(field: Field) -> Json:
    """The type of an image's pixels, or of a video's frame."""
    decoded = Field.parse(field.decoded or ("uint8[?,?,3]" if field.classes is None else "uint8[?,?,1]"))
    return _typed(decoded.shape, decoded.dtype)


def _typed(shape: Shape, dtype: str) -> Json:
    dimensions = {"dimensions": ["-1" if size is None else str(size) for size in shape]} if shape else {}
    return {"shape": dimensions, "dtype": dtype}


def _sequence(feature: Json, length: int | None = None) -> Json:
    return _named("Sequence", sequence={"feature": feature, "length": "-1" if length is None else str(length)})


def _named(name: str, **content: Json) -> Json:
    return {"pythonClassName": f"{_PACKAGE}.{_MODULES[name]}.{name}", **content}


# The names of classes
def label_files(schema: Schema) -> dict[str, str | None]:
    """The file of each label's class names, and what it holds; None where TFDS would not read these names from it."""
    return {label_file(path): _lines(field.classes) for path, field in labels_of(schema)}


def label_file(path: tuple[str, ...]) -> str:
    """The file of a label's class names. The path has the names of the dicts around it, and its own."""
    return "-".join(path).replace("/", ".") + LABELS


def labels_of(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """The fields that have classes, each with its path."""
    for name, node in schema.items():
        if isinstance(node, Schema):
            yield from labels_of(node, (*path, name))
        elif node.classes is not None:
            yield (*path, name), node


def _lines(names: tuple[str, ...] | None) -> str | None:
    """A line for each. TFDS strips them, and passes over empty ones."""
    if not names or any("\n" in name or not name or name != name.strip() for name in names):
        return None
    return "\n".join(names) + "\n"


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

    def get(self, key: str, default: object = None) -> Any:
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

    @property
    def encoding(self) -> Encoding:
        """How its bytes are stored. Field refuses others than its own."""
        return cast("Encoding", str(self.get("encoding") or "none").lower())


def _tensor(content: _Content) -> Field:
    optional = bool(content.get("optional", False))
    return Field("", content.dtype, content.shape, encoding=content.encoding, optional=optional)


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
    return Field("", content.dtype, content.shape, encoding=content.encoding, kind="audio")


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
