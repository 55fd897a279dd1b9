"""`export_to_tfrecord`: Datum's four problems, in the files that Datum writes, which Datum and Penstock open alike."""

from __future__ import annotations

from inspect import signature
from typing import Any

from ....errors import NotFoundError, SchemaError, check_known
from ....sources.classification import image_classification, keyed, text_classification
from ....sources.voc import voc_detection, voc_segmentation
from ....storage.files import checked_path, is_folder
from ....storage.paths import PathLike
from ..configs import TFRWriteConfigs
from ..exporter import export_plain
from ..problem.types import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF

_SOURCES: dict[str, Any] = {IMAGE_CLF: image_classification, IMAGE_DET: voc_detection}
_SOURCES |= {IMAGE_SEG: voc_segmentation, TEXT_CLF: text_classification}
# Where Datum looks, and nowhere else.
_USUAL = {IMAGE_DET: {"set_dir": "ImageSets"}, IMAGE_SEG: {"set_dir": "."}, TEXT_CLF: {"json_path": "{}*.json"}}


def export_to_tfrecord(
    input_path: PathLike, output_path: PathLike, problem_type: str, write_configs: TFRWriteConfigs
) -> None:
    """Build the splits that the configs name. Splits that are there already and are not named stay as they are."""
    root, configs = checked_path(input_path, "input_path"), write_configs
    check_known([problem_type], _SOURCES, "problem", "export")
    if not configs.splits:
        raise SchemaError("expected the splits to export, got none", "write_configs", 'splits = {"train": {}}')
    if configs.serializer is not None:
        raise SchemaError("expected no serializer: records are tf.Example", "write_configs", "Change what is generated")
    if not is_folder(root):
        raise NotFoundError(f"expected a folder, got nothing at {root}")
    own = None if configs.generator is None else configs.generator(root)
    sources = {split: _source(root, problem_type, split, options, own) for split, options in configs.splits.items()}
    numbered = problem_type == IMAGE_CLF and own is None  # the key of an image is the number of its row
    export_plain(sources, output_path, sparse=configs.sparse_features or (), numbered=numbered)


def _source(root: str, problem: str, split: str, options: dict[str, Any], own: Any) -> Any:
    """The examples of a split, where its options say that they are, or as a generator of one's own yields them."""
    where, told = f"splits[{split!r}]", {name: value for name, value in options.items() if name != "num_examples"}
    if own is not None:
        return keyed(own(split=split, **told), where, images=problem != TEXT_CLF)
    names = {name.replace("mask", "label"): name for name in signature(_SOURCES[problem]).parameters}
    check_known(told, list(names)[2:], "option", where)
    usual = {name: value.format(split) for name, value in _USUAL.get(problem, {}).items()}
    return _SOURCES[problem](root, split=split, **usual | {names[name]: value for name, value in told.items() if value})
