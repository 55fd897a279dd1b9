"""A schema as features.json, which tells TFDS what records hold; and the files that hold the names of classes.

Our records are laid out as TFDS lays them out, so this is a translation of words. TFDS can't read all that we can
store: such fields are left out, with a reason, and TFDS passes over their bytes. Its Video and Audio are not among the
words: a dataset with them can't be opened without TensorFlow, and images and tensors give the same values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..dtypes import TEXTS, Shape
from ..field import Field
from ..schema import Schema

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
    feature = _tensor((), "string", "none") if as_bytes else _value(field)
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
    tensor = _tensor(field.shape, "string" if field.dtype in TEXTS else field.dtype, field.encoding)
    if field.optional:
        tensor["tensor"]["optional"] = True
    return tensor


def _tensor(shape: Shape, dtype: str, encoding: str) -> Json:
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
